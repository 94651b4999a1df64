//! Runs of which nobody knows what they did: the policy, the list, and the answer.

use punctual_domain::attempt::Outcome;
use serde_json::Value;

use crate::world::{Reply, World};

/// The first field that is wrong.
fn pointer(reply: &Reply) -> String {
    reply.json()["errors"][0]["pointer"].as_str().unwrap_or_default().to_string()
}

/// A job that asks.
async fn register(world: &World, more: &str) -> Value {
    let body = format!(r#"{{"name":"job","schedule":{{"now":true}},"target":{{"discard":{{}}}}{more}}}"#);
    world.call("POST /v1/jobs", &body).await.expect(201)
}

#[tokio::test]
async fn the_policy_is_shown_with_its_default_and_refused_if_it_is_none() {
    let world = World::new().await;
    assert_eq!(register(&world, "").await["on_unknown"], "retry");
    for word in ["retry", "skip", "ask"] {
        let job = register(&world, &format!(r#","on_unknown":"{word}""#)).await;
        assert_eq!(job["on_unknown"], word);
        let id = job["id"].as_str().unwrap();
        assert_eq!(world.get(&format!("/v1/jobs/{id}")).await["on_unknown"], word);
    }
    let wrong = r#"{"name":"j","schedule":{"now":true},"target":{"discard":{}},"on_unknown":"perhaps"}"#;
    let reply = world.call("POST /v1/jobs", wrong).await;
    assert_eq!((reply.problem().0, pointer(&reply)), (422, "/on_unknown".into()));
}

#[tokio::test]
async fn under_skip_a_lost_attempt_is_a_dead_letter_that_says_so() {
    let world = World::new().await;
    register(&world, r#","on_unknown":"skip""#).await;
    world.work(Outcome::Lost).await;
    let dead = world.get("/v1/dead-letters?error=unknown").await;
    let id = dead["items"][0]["id"].as_str().unwrap_or_else(|| panic!("{dead}")).to_string();
    let run = world.get(&format!("/v1/runs/{id}")).await;
    assert_eq!((&run["state"], &run["attempts"][0]["outcome"]), (&"failed".into(), &"lost".into()));
    let said = run["attempts"][0]["error"]["message"].as_str().unwrap();
    assert!(said.contains("nobody knows whether it did its work, not tried again"), "{said}");
}

#[tokio::test]
async fn what_waits_for_an_answer_is_listed_and_answered() {
    let world = World::new().await;
    for _ in 0..3 {
        register(&world, r#","on_unknown":"ask""#).await;
    }
    world.register(r#"{"after":"PT1H"}"#).await;
    world.work(Outcome::Lost).await;
    let list = world.get("/v1/runs?waiting_for=answer").await;
    let runs: Vec<&Value> = list["items"].as_array().unwrap().iter().collect();
    assert_eq!(runs.len(), 3);
    for run in &runs {
        let shown = (&run["state"], &run["waiting_for"], &run["available_at"]);
        assert_eq!(shown, (&"pending".into(), &"answer".into(), &Value::Null));
    }
    let path = |run: &Value| format!("POST /v1/runs/{}/answer", run["id"].as_str().unwrap());
    for (body, at) in
        [("{}", "/answer"), (r#"{"answer":"maybe"}"#, "/answer"), (r#"{"answer":"retry","by":"me"}"#, "/by")]
    {
        let reply = world.call(&path(runs[0]), body).await;
        assert_eq!((reply.problem().0, pointer(&reply)), (422, at.into()), "{body}");
    }
    for (run, (answer, state)) in
        runs.iter().zip([("retry", "pending"), ("succeeded", "succeeded"), ("failed", "failed")])
    {
        let body = format!(r#"{{"answer":"{answer}"}}"#);
        let answered = world.call(&path(run), &body).await.expect(200);
        assert_eq!((&answered["state"], &answered["id"]), (&state.into(), &run["id"]));
        assert_eq!(world.call(&path(run), &body).await.problem(), (409, "wrong_state".into()));
    }
    assert_eq!(world.get("/v1/runs?waiting_for=answer").await["items"].as_array().unwrap().len(), 0);
    assert_eq!(world.work(Outcome::Succeeded).await, 1, "the one that is tried again");
    let nobodys = world.call("POST /v1/runs/nonsense/answer", r#"{"answer":"retry"}"#).await;
    assert_eq!(nobodys.problem(), (404, "run_not_found".into()));
}

#[tokio::test]
async fn an_answer_under_an_idempotency_key_is_taken_once() {
    let world = World::new().await;
    register(&world, r#","on_unknown":"ask""#).await;
    world.work(Outcome::Lost).await;
    let list = world.get("/v1/runs?waiting_for=answer").await;
    let path = format!("POST /v1/runs/{}/answer", list["items"][0]["id"].as_str().unwrap());
    for _ in 0..2 {
        let headers = [("idempotency-key", "one")];
        let answered = world.call_with(&path, &headers, r#"{"answer":"succeeded"}"#).await.expect(200);
        assert_eq!(answered["state"], "succeeded");
    }
}
