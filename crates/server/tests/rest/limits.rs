//! Retries and limits of time as users see them.

use punctual_domain::attempt::Outcome;
use serde_json::{Value, json};

use crate::world::World;

async fn create(world: &World, schedule: &str, policies: &str) -> String {
    let body = format!(r#"{{"schedule":{schedule},"target":{{"discard":{{}}}},{policies}}}"#);
    world.call("POST /v1/jobs", &body).await.expect(201)["id"].as_str().unwrap().into()
}

/// The newest run of a job, with its attempts.
async fn run(world: &World, job: &str) -> Value {
    let list = world.get(&format!("/v1/jobs/{job}/runs")).await;
    world.get(&format!("/v1/runs/{}", list["items"][0]["id"].as_str().unwrap())).await
}

#[tokio::test]
async fn policies_are_stored_shown_patched_and_taken_away() {
    let world = World::new().await;
    let id = create(&world, r#"{"every":"1h"}"#, r#""retry":{"max_attempts":3},"start_window":"5m""#).await;
    let path = format!("/v1/jobs/{id}");
    let exponential = json!({"max_attempts":3,"backoff":"exponential","base":"PT1S","cap":"PT5M"});
    let job = world.get(&path).await;
    assert_eq!((&job["retry"], &job["start_window"]), (&exponential, &"PT5M".into()));
    assert_eq!((&job["timeout"], &job["deadline"]), (&"PT5M".into(), &Value::Null));
    let patch = r#"{"retry":{"delays":["10s","1m"],"retry_for":"2h","on":{"status":[409]}},"deadline":"4h","start_window":null}"#;
    let job = world.call(&format!("PATCH {path}"), patch).await.expect(200);
    let list = json!({"max_attempts":3,"backoff":"list","delays":["PT10S","PT1M"],"retry_for":"PT2H","on":{"status":["409"]}});
    assert_eq!((&job["retry"], &job["deadline"]), (&list, &"PT4H".into()));
    assert_eq!(job["start_window"], Value::Null);
    let back = world.call(&format!("PUT {path}"), &job.to_string()).await.expect(200);
    assert_eq!(back["retry"], list, "what is shown is accepted");
    let refused = world.call(&format!("PATCH {path}"), r#"{"deadline":"1h"}"#).await;
    assert_eq!(refused.problem().0, 422);
    assert!(refused.text.contains("/retry/retry_for"), "{}", refused.text);
}

#[tokio::test]
async fn a_run_that_was_missed_is_found_and_says_why() {
    let world = World::new().await;
    let id = create(&world, r#"{"now":true}"#, r#""start_window":"10s""#).await;
    let waiting = run(&world, &id).await;
    assert_eq!(
        (&waiting["state"], &waiting["start_by"]),
        (&"pending".into(), &"2026-01-01T12:00:10Z".into())
    );
    world.advance(11).await;
    assert_eq!(world.lapse().await, 1);
    let missed = run(&world, &id).await;
    assert_eq!((&missed["state"], &missed["reason"]), (&"missed".into(), &"start_window".into()));
    assert_eq!((&missed["attempts"], &missed["started_at"]), (&json!([]), &Value::Null));
    assert_eq!(missed["finished_at"], "2026-01-01T12:00:11Z");
    for (query, count) in [("state=missed", 1), ("state=cancelled", 0), ("dead=true", 0)] {
        let found = world.get(&format!("/v1/runs?{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}");
    }
    let retry = world.call(&format!("POST /v1/runs/{}/retry", missed["id"].as_str().unwrap()), "").await;
    assert_eq!(retry.problem().0, 409, "there is nothing to go on with");
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await["state"], "ended");
}

#[tokio::test]
async fn a_slot_that_was_reached_too_late_is_in_the_ledger() {
    let world = World::new().await;
    let id = create(&world, r#"{"every":"1h"}"#, r#""start_window":"10m","catch_up":{"window":"6h"}"#).await;
    world.advance(3_600 + 1_200).await;
    let ledger = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    let entry = &ledger["items"][0];
    assert_eq!((&entry["state"], &entry["reason"]), (&"missed".into(), &"start_window".into()));
    assert_eq!((&entry["from"], &entry["slots"]), (&"2026-01-01T13:00:00Z".into(), &1.into()));
}

#[tokio::test]
async fn a_run_says_which_limit_ended_it_and_each_attempt_what_was_decided() {
    let world = World::new().await;
    let policies = r#""retry":{"max_attempts":9,"backoff":"fixed","base":"30s","retry_for":"45s","on":{"status":["5xx"]}}"#;
    let id = create(&world, r#"{"now":true}"#, policies).await;
    world.work(Outcome::Failed).await;
    let waiting = run(&world, &id).await;
    assert_eq!(
        (&waiting["waiting_for"], &waiting["start_by"]),
        (&"retry".into(), &"2026-01-01T12:00:45Z".into())
    );
    let attempt = &waiting["attempts"][0];
    assert_eq!((&attempt["outcome"], &attempt["status"]), (&"failed".into(), &500.into()));
    assert_eq!(attempt["error"]["is_retryable"], true, "the job says otherwise than the target");
    assert!(attempt["worker"].is_string() && attempt["output"]["text"] == "hello", "{attempt}");
    world.advance(30).await;
    world.work(Outcome::Failed).await;
    let dead = run(&world, &id).await;
    assert_eq!(
        (&dead["state"], &dead["reason"], &dead["attempt"]),
        (&"failed".into(), &"retry_for".into(), &2.into())
    );
    let path = format!("POST /v1/runs/{}/retry", dead["id"].as_str().unwrap());
    let again = world.call(&path, "").await.expect(200);
    assert_eq!((&again["state"], &again["redriven_at"]), (&"pending".into(), &"2026-01-01T12:00:30Z".into()));
    assert_eq!((&again["reason"], &again["start_by"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_job_warns_of_runs_that_are_too_quick_or_too_slow() {
    let world = World::new().await;
    let id = create(&world, r#"{"every":"PT1M"}"#, r#""min_duration":"1s""#).await;
    let warnings = async || world.get(&format!("/v1/jobs/{id}")).await["warnings"].clone();
    assert_eq!(warnings().await, Value::Null, "nothing is known yet");
    world.advance(60).await;
    world.work(Outcome::Succeeded).await;
    let quick = "its last run succeeded in 25ms, and less than 1s is suspicious by `min_duration`";
    assert_eq!(warnings().await, json!([quick]));
    world.advance(60).await;
    assert_eq!(warnings().await, json!([quick]), "the newest run is not over");
    world.work(Outcome::Failed).await;
    assert_eq!(warnings().await, Value::Null, "a failure is not too quick");
    world.advance(60).await;
    world.work_for(90).await;
    let slow = "its last run took 1m 30s, and the next slot comes 1m after its own: runs overlap, or it runs less often than its schedule says";
    assert_eq!(warnings().await, json!([slow]));
    let completion = create(&world, r#"{"every":"PT1M","from":"completion"}"#, r#""timeout":"5m""#).await;
    world.advance(0).await;
    world.work_for(90).await;
    assert_eq!(
        world.get(&format!("/v1/jobs/{completion}")).await["warnings"],
        Value::Null,
        "as it was asked for"
    );
}
