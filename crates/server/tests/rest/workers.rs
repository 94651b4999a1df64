//! Workers that pull.

use std::sync::Arc;

use punctual_engine::{Node, Options};
use serde_json::{Value, json};

use crate::world::World;

/// A world whose loops run.
struct Running {
    world: World,
    node: Node,
}

impl Running {
    async fn start() -> Running {
        let world = World::new().await;
        let engine = Arc::new(world.engine.clone());
        let id = engine.new_worker_id();
        let node = Node::start(engine, id, Options::default()).await.unwrap();
        Running { world, node }
    }

    async fn job(&self, more: &str) -> String {
        let body = format!(
            r#"{{"name":"mail","schedule":{{"every":"1h"}},"queue":"emails","target":{{"worker":{{"handler":"send"}}}}{more}}}"#
        );
        let job = self.world.call("POST /v1/jobs", &body).await.expect(201);
        job["id"].as_str().unwrap().to_string()
    }

    async fn trigger(&self, job: &str) -> Value {
        self.world.call(&format!("POST /v1/jobs/{job}/trigger"), "").await.expect(201)
    }

    /// Claims as a worker; without an identity, as a new one.
    async fn claim(&self, worker: Option<&str>) -> Value {
        let who = worker.map(|worker| format!(r#""worker":"{worker}","#)).unwrap_or_default();
        let body = format!(r#"{{{who}"name":"m","queues":["emails"],"capacity":10,"wait":"PT1S"}}"#);
        self.world.call("POST /v1/claims", &body).await.expect(200)
    }

    async fn result(&self, worker: &str, attempt: &Value, more: Value) -> Value {
        let mut result = json!({"run_id": attempt["run_id"], "attempt": attempt["attempt"]});
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = json!({"results": [result]}).to_string();
        let answer = self.world.call(&format!("POST /v1/workers/{worker}/results"), &body).await.expect(200);
        answer["results"][0].clone()
    }

    async fn beat(&self, worker: &str, held: &[&Value]) -> crate::world::Reply {
        let held: Vec<Value> =
            held.iter().map(|one| json!({"run_id": one["run_id"], "attempt": one["attempt"]})).collect();
        let body = json!({"held": held, "concurrency": 40, "saturation": 0.25}).to_string();
        self.world.call(&format!("POST /v1/workers/{worker}/heartbeat"), &body).await
    }

    async fn run(&self, attempt: &Value) -> Value {
        self.world.get(&format!("/v1/runs/{}", attempt["run_id"].as_str().unwrap())).await
    }

    async fn stop(self) {
        self.node.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_claims_beats_and_reports() {
    let all = Running::start().await;
    let job = all.job(r#","payload":{"n":7},"labels":{"a":"b"},"deadline":"PT10M""#).await;
    let seen = all.world.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(seen["target"], json!({"worker": {"handler": "send"}}));
    assert_eq!((&seen["queue"], &seen["requires"]), (&json!("emails"), &Value::Null), "{seen}");
    let hint = "no worker asks for runs of the queue `emails` now";
    assert_eq!(seen["warnings"], json!([hint]), "{seen}");
    all.trigger(&job).await;
    let claimed = all.claim(None).await;
    let (worker, attempt) = (claimed["worker"].as_str().unwrap(), &claimed["attempts"][0]);
    assert_eq!((&claimed["lease"], &claimed["heartbeat_every"]), (&json!("PT15S"), &json!("PT5S")));
    assert_eq!(
        (&attempt["handler"], &attempt["payload"], &attempt["attempt"], &attempt["labels"]),
        (&json!("send"), &json!({"n": 7}), &json!(1), &json!({"a": "b"}))
    );
    assert_eq!((&attempt["timeout"], &attempt["job_id"]), (&json!("PT5M"), &json!(job)));
    assert_eq!(attempt["deadline"], json!("2026-01-01T12:10:00Z"));
    assert_eq!(all.beat(worker, &[attempt]).await.expect(200), json!({"cancelled": [], "not_held": []}));
    let workers = all.world.get("/v1/workers").await;
    let listed = &workers["items"][0];
    assert_eq!((&listed["id"], &listed["name"], &listed["held"]), (&json!(worker), &json!("m"), &json!(1)));
    assert_eq!((&listed["concurrency"], &listed["saturation"]), (&json!(40), &json!(0.25)));
    assert_eq!(all.world.get(&format!("/v1/workers/{worker}")).await, *listed);
    let done = all.result(worker, attempt, json!({"outcome": "succeeded", "output": "sent 40"})).await;
    assert_eq!(done["state"], "succeeded", "{done}");
    let run = all.run(attempt).await;
    assert_eq!(run["attempts"][0]["output"]["text"], "sent 40");
    assert_eq!(run["attempts"][0]["worker"], worker);
    let again = all.result(worker, attempt, json!({"outcome": "succeeded"})).await;
    assert_eq!((&again["problem"]["code"], &again["problem"]["status"]), (&json!("lease_lost"), &json!(409)));
    // Who is there is given what comes next in the commit that makes it.
    let job_seen = all.world.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(job_seen["warnings"], Value::Null, "{job_seen}");
    let dismissed = all.world.call(&format!("DELETE /v1/workers/{worker}"), "").await;
    assert_eq!(dismissed.status, 204);
    let told = all.world.get("/v1/audit?kind=worker&action=dismiss").await;
    assert_eq!(told["items"][0]["subject"], worker);
    assert_eq!(all.world.get("/v1/workers").await["items"], json!([]));
    assert_eq!(all.beat(worker, &[]).await.problem(), (409, "worker_lost".into()));
    let body = format!(r#"{{"worker":"{worker}","queues":["emails"],"wait":"PT1S"}}"#);
    assert_eq!(all.world.call("POST /v1/claims", &body).await.problem(), (409, "worker_lost".into()));
    all.stop().await;
}

#[tokio::test]
async fn failures_are_retried_as_the_worker_says_and_what_is_released_is_not_charged() {
    let all = Running::start().await;
    let job = all.job(r#","retry":{"max_attempts":2,"backoff":"fixed","base":"PT1S"}"#).await;
    all.trigger(&job).await;
    let claimed = all.claim(None).await;
    let worker = claimed["worker"].as_str().unwrap();
    let released = all.result(worker, &claimed["attempts"][0], json!({"outcome": "released"})).await;
    assert_eq!(released["state"], "pending");
    let claimed = all.claim(Some(worker)).await;
    let second = &claimed["attempts"][0];
    assert_eq!(second["attempt"], 2);
    let error = json!({"message": "busy", "code": "smtp_busy", "retry_after": "PT30S"});
    let failed = all.result(worker, second, json!({"outcome": "failed", "error": error})).await;
    assert_eq!(failed["state"], "pending", "one attempt of two was charged: {failed}");
    let run = all.run(second).await;
    assert_eq!(run["attempts"][1]["error"]["code"], "smtp_busy");
    assert_eq!(run["available_at"], "2026-01-01T12:00:30Z");
    for _ in 0..4 {
        all.world.clock.advance(jiff::SignedDuration::from_secs(8));
        all.beat(worker, &[]).await.expect(200);
    }
    let claimed = all.claim(Some(worker)).await;
    let third = &claimed["attempts"][0];
    let error = json!({"message": "no such mailbox", "is_retryable": false});
    let failed = all.result(worker, third, json!({"outcome": "failed", "error": error})).await;
    assert_eq!(failed["state"], "failed");
    assert_eq!(all.run(third).await["attempts"][2]["error"]["code"], "worker_failed");
    let dead = all.world.get("/v1/dead-letters").await;
    assert_eq!(dead["items"][0]["id"], third["run_id"]);
    all.stop().await;
}

#[tokio::test]
async fn cancellation_reaches_a_worker_with_its_next_sign_of_life() {
    let all = Running::start().await;
    let job = all.job("").await;
    all.trigger(&job).await;
    let claimed = all.claim(None).await;
    let (worker, attempt) = (claimed["worker"].as_str().unwrap(), &claimed["attempts"][0]);
    let path = format!("POST /v1/runs/{}/cancel", attempt["run_id"].as_str().unwrap());
    all.world.call(&path, "").await.expect(200);
    let answer = all.beat(worker, &[attempt]).await.expect(200);
    let named = json!({"run_id": attempt["run_id"], "attempt": 1});
    assert_eq!(answer, json!({"cancelled": [named], "not_held": []}));
    let stopped = all.result(worker, attempt, json!({"outcome": "cancelled"})).await;
    assert_eq!(stopped["state"], "cancelled");
    let answer = all.beat(worker, &[attempt]).await.expect(200);
    assert_eq!(answer, json!({"cancelled": [], "not_held": [named]}));
    all.stop().await;
}

#[tokio::test]
async fn an_attempt_says_how_far_it_is_and_the_next_one_goes_on_there() {
    let all = Running::start().await;
    let job = all.job("").await;
    all.trigger(&job).await;
    let claimed = all.claim(None).await;
    let (worker, attempt) = (claimed["worker"].as_str().unwrap(), &claimed["attempts"][0]);
    let beat = |more: &str| {
        let (run, line) = (&attempt["run_id"], format!("POST /v1/workers/{worker}/heartbeat"));
        let body = format!(r#"{{"held":[{{"run_id":{run},"attempt":1,{more}}}]}}"#);
        let world = &all.world;
        async move { world.call(&line, &body).await }
    };
    beat(r#""progress":{"percent":40,"message":"page 4"},"checkpoint":{"row": 1.50},"log":["one","two"]"#)
        .await
        .expect(200);
    beat(r#""log":["three"]"#).await.expect(200);
    let large = format!(r#""checkpoint":"{}""#, "x".repeat(70_000));
    assert_eq!(beat(&large).await.problem(), (422, "invalid_request".into()));
    let run = all.run(attempt).await;
    assert_eq!(run["progress"], json!({"percent": 40, "message": "page 4"}), "{run}");
    let texts = |run: &Value| -> Vec<String> {
        let log = run["attempts"][0]["log"].as_array().unwrap();
        log.iter().map(|line| line["text"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(texts(&run), ["one", "two", "three"]);
    let error = json!({"message": "no", "retry_after": "PT0.1S"});
    all.result(worker, attempt, json!({"outcome": "failed", "error": error, "log": ["four"]})).await;
    all.world.clock.advance(jiff::SignedDuration::from_secs(5));
    all.beat(worker, &[]).await.expect(200);
    let claimed = all.claim(Some(worker)).await;
    assert_eq!(
        (&claimed["attempts"][0]["attempt"], &claimed["attempts"][0]["checkpoint"]),
        (&json!(2), &json!({"row": 1.5}))
    );
    assert_eq!(texts(&all.run(attempt).await), ["one", "two", "three", "four"]);
    all.stop().await;
}

#[tokio::test]
async fn what_a_worker_does_not_stop_in_time_is_ended_for_it() {
    let all = Running::start().await;
    let job = all.job(r#","timeout":"PT10S","retry":{"max_attempts":1}"#).await;
    all.trigger(&job).await;
    let claimed = all.claim(None).await;
    let (worker, attempt) = (claimed["worker"].as_str().unwrap(), &claimed["attempts"][0]);
    for _ in 0..2 {
        all.world.clock.advance(jiff::SignedDuration::from_secs(12));
        all.beat(worker, &[attempt]).await.expect(200);
    }
    assert_eq!(all.run(attempt).await["state"], "running", "it has a lease's time more");
    all.world.clock.advance(jiff::SignedDuration::from_secs(2));
    let answer = all.beat(worker, &[attempt]).await.expect(200);
    assert_eq!(answer["not_held"][0]["run_id"], attempt["run_id"], "{answer}");
    assert_eq!(all.run(attempt).await["state"], "timed_out");
    all.stop().await;
}

#[tokio::test]
async fn every_wrong_field_of_a_worker_is_named() {
    let all = Running::start().await;
    let id = "0198c6f0-aaaa-7000-8000-000000000001";
    let beat = format!("POST /v1/workers/{id}/heartbeat");
    let results = format!("POST /v1/workers/{id}/results");
    for (line, body, pointers) in [
        ("POST /v1/claims", "{}", vec!["/queues"]),
        ("POST /v1/claims", r#"{"queues":["emails"],"que":1}"#, vec!["/que"]),
        (
            "POST /v1/claims",
            r#"{"queues":[],"capacity":0,"wait":"PT2M","worker":"me","labels":{"punctual/pull":"1"}}"#,
            vec!["/worker", "/queues", "/labels", "/capacity", "/wait"],
        ),
        (
            &beat,
            r#"{"held":[{"run_id":"x"}],"saturation":2}"#,
            vec!["/held/0/run_id", "/held/0/attempt", "/saturation"],
        ),
        (
            &results,
            r#"{"results":[{"outcome":"fine"}]}"#,
            vec!["/results/0/run_id", "/results/0/attempt", "/results/0/outcome"],
        ),
        (&results, r#"{"results":[]}"#, vec!["/results"]),
    ] {
        let reply = all.world.call(line, body).await;
        assert_eq!(reply.problem(), (422, "invalid_request".into()), "{line} {body}");
        let problem = reply.json();
        let found: Vec<&str> = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|error| error["pointer"].as_str().unwrap())
            .collect();
        for pointer in pointers {
            assert!(found.contains(&pointer), "{pointer}: {problem}");
        }
    }
    let body = r#"{"schedule":"@daily","target":{"worker":{}},"requires":{"punctual/pull":"1"}}"#;
    let refused = all.world.call("POST /v1/jobs", body).await.json().to_string();
    assert!(refused.contains("/target/worker/handler") && refused.contains("/requires"), "{refused}");
    all.stop().await;
}

#[tokio::test]
async fn queues_tell_what_waits_and_who_is_there() {
    let all = Running::start().await;
    assert_eq!(all.world.get("/v1/queues").await["items"], json!([]));
    let job = all.job("").await;
    for _ in 0..3 {
        all.trigger(&job).await;
    }
    let waiting = all.world.get("/v1/queues").await;
    let queue = &waiting["items"][0];
    assert_eq!(
        (&queue["queue"], &queue["waiting"], &queue["is_more"]),
        (&json!("emails"), &json!(3), &json!(false))
    );
    assert_eq!((&queue["workers"], queue.get("saturation")), (&json!(0), None), "{queue}");
    let claimed = all.claim(None).await;
    let worker = claimed["worker"].as_str().unwrap();
    let attempts: Vec<&Value> = claimed["attempts"].as_array().unwrap().iter().collect();
    all.beat(worker, &attempts).await.expect(200);
    let taken = all.world.get("/v1/queues?tenant=*").await;
    let queue = &taken["items"][0];
    assert_eq!(
        (&queue["waiting"], &queue["running"], &queue["oldest_wait_ms"]),
        (&json!(0), &json!(3), &json!(0))
    );
    assert_eq!((&queue["workers"], &queue["concurrency"]), (&json!(1), &json!(40)), "{queue}");
    assert_eq!((&queue["saturation"], &queue["tenant"]), (&json!(0.25), &json!("default")));
    // The slots of the next quarter of an hour; the one at its end is not in it.
    let body = r#"{"schedule":{"every":"1m"},"queue":"often","target":{"discard":{}}}"#;
    all.world.call("POST /v1/jobs", body).await.expect(201);
    let planned = all.world.get("/v1/queues").await;
    let often = planned["items"].as_array().unwrap().iter().find(|queue| queue["queue"] == "often").unwrap();
    assert_eq!((&often["planned"], &often["is_planned_exact"]), (&json!(14), &json!(true)), "{often}");
    all.stop().await;
}
