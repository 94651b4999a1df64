//! Runs as users see them.

use std::time::Duration;

use punctual_domain::attempt::Outcome;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_run_tells_its_whole_story() {
    let world = World::new().await;
    let body = r#"{"type":"report","queue":"slow","schedule":{"every":"PT10S"},"target":{"discard":{}},
        "correlation_id":"order-7"}"#;
    let id = world.call("POST /v1/jobs", body).await.expect(201)["id"].as_str().unwrap().to_string();
    world.advance(10).await;
    world.clock.advance(jiff::SignedDuration::from_millis(40));
    world.work(Outcome::Succeeded).await;
    let list = world.get(&format!("/v1/jobs/{id}/runs")).await;
    let run = &list["items"][0];
    assert_eq!(run["job_id"], id.as_str());
    assert_eq!(
        (&run["cause"], &run["state"], &run["type"]),
        (&"schedule".into(), &"succeeded".into(), &"report".into())
    );
    assert_eq!((&run["scheduled_for"], &run["attempt"]), (&"2026-01-01T12:00:10Z".into(), &1.into()));
    assert_eq!((&run["started_at"], &run["lateness_ms"]), (&"2026-01-01T12:00:10.04Z".into(), &40.into()));
    assert_eq!((&run["queue"], &run["correlation_id"]), (&"slow".into(), &"order-7".into()));
    let detail = world.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).await;
    let attempt = &detail["attempts"][0];
    assert_eq!((&attempt["number"], &attempt["outcome"]), (&1.into(), &"succeeded".into()));
    assert_eq!((&attempt["duration_ms"], &attempt["output"]["text"]), (&25.into(), &"hello".into()));
    assert_eq!(
        (&attempt["phases"][0]["name"], &attempt["phases"][0]["duration_ms"]),
        (&"connect".into(), &1.5.into())
    );
    let job = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(job["last_run"]["id"], run["id"]);
}

#[tokio::test]
async fn a_run_shows_what_its_attempts_say() {
    let world = World::new().await;
    let body = r#"{"schedule":{"now":true},"target":{"discard":{}}}"#;
    world.call("POST /v1/jobs", body).await.expect(201);
    let claimed = world.claim().await;
    world.note(&claimed[0], 40, r#"{"row": 7,  "of":9}"#, &["begun", "page 4"]).await;
    let path = format!("/v1/runs/{}", claimed[0].id());
    let run = world.get(&path).await;
    assert_eq!(run["progress"], json!({"percent": 40, "message": "on"}));
    assert_eq!(run["checkpoint"], json!({"row": 7, "of": 9}));
    let line = |text: &str| json!({"at": "2026-01-01T12:00:00Z", "text": text});
    assert_eq!(run["attempts"][0]["log"], json!([line("begun"), line("page 4")]));
    assert_eq!(run["attempts"][0].get("log_dropped"), None);
    let many: Vec<String> = (0..1_001).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.note(&claimed[0], 90, "8", &many).await;
    world.finish(claimed, Outcome::Succeeded, Duration::from_secs(1)).await;
    let run = world.get(&path).await;
    assert_eq!((&run["progress"]["percent"], run.get("checkpoint")), (&90.into(), None));
    assert_eq!(run["attempts"][0]["log_dropped"], 3);
    assert_eq!(run["attempts"][0]["output"]["text"], "hello");
    let listed = &world.get("/v1/runs").await["items"][0];
    assert!(listed.get("attempts").is_none() && listed.get("progress").is_none(), "{listed}");
}

#[tokio::test]
async fn runs_are_found_by_what_is_asked() {
    let world = World::new().await;
    let job = |kind: &str, queue: &str, schedule: &str| {
        format!(
            r#"{{"type":"{kind}","queue":"{queue}","schedule":{schedule},"target":{{"discard":{{}}}},
                "retry":{{"max_attempts":1}}}}"#
        )
    };
    world.call("POST /v1/jobs", &job("bad", "q1", r#"{"now":true}"#)).await.expect(201);
    world.work(Outcome::Failed).await;
    world.advance(60).await;
    let id =
        world.call("POST /v1/jobs", &job("good", "q2", r#"{"now":true}"#)).await.expect(201)["id"].clone();
    for (query, count) in [
        ("", 2),
        ("state=failed", 1),
        ("state=pending&waiting_for=capacity", 1),
        ("waiting_for=retry", 0),
        ("dead=true", 1),
        ("dead=false", 1),
        ("type=good", 1),
        ("queue=q1", 1),
        ("queue=q1&type=good", 0),
        (&format!("job={}", id.as_str().unwrap()), 1),
        ("from=2026-01-01T12:00:30Z", 1),
        ("to=2026-01-01T12:00:30Z", 1),
        ("from=1767268830", 1),
    ] {
        let page = world.get(&format!("/v1/runs?{query}")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn a_trigger_is_a_run_of_its_own_and_can_be_cancelled() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    let body = r#"{"correlation_id":"by-hand"}"#;
    let reply = world.call(&format!("POST /v1/jobs/{id}/trigger"), body).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let run = reply.json();
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(reply.header("location"), path);
    assert_eq!((&run["cause"], &run["correlation_id"]), (&"trigger".into(), &"by-hand".into()));
    assert_eq!((&run["waiting_for"], &run["attempt"]), (&"capacity".into(), &0.into()));
    assert_eq!(world.call(&format!("POST {path}/retry"), "").await.problem(), (409, "wrong_state".into()));
    assert_eq!(world.call(&format!("POST {path}/cancel"), "").await.expect(200)["state"], "cancelled");
    assert_eq!(world.call(&format!("POST {path}/cancel"), "").await.problem(), (409, "wrong_state".into()));
    let missing = world.call("POST /v1/runs/01890000-0000-7000-8000-02badc0ffee5/cancel", "").await;
    assert_eq!(missing.problem(), (404, "run_not_found".into()));
}

#[tokio::test]
async fn runs_are_paged_newest_first() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1S"}"#).await;
    for _ in 0..7 {
        world.advance(1).await;
    }
    let (mut slots, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/jobs/{id}/runs?limit=3&cursor={cursor}")).await;
        slots.extend(page["items"].as_array().unwrap().iter().map(|run| run["scheduled_for"].to_string()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_string(),
            None => break,
        }
    }
    assert_eq!(slots.len(), 7);
    assert!(slots.is_sorted_by(|a, b| a > b), "{slots:?}");
}
