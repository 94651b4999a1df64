//! Caps on what waits, as users see them.

use punctual_domain::policy::backlog::Caps;
use serde_json::Value;

use crate::world::{Reply, World};

const NOW: &str = r#"{"schedule":{"now":true},"target":{"discard":{}}}"#;
const DAILY: &str = r#"{"schedule":{"cron":"0 3 * * *"},"target":{"discard":{}}}"#;

/// A world in which three runs wait, of three that may.
async fn full() -> World {
    let world = World::new().await;
    world.engine.set_caps(Caps { tenant: 3, all: 100 });
    for _ in 0..3 {
        world.call("POST /v1/jobs", NOW).await.expect(201);
    }
    world
}

fn must_be_full(reply: &Reply) {
    assert_eq!(reply.problem(), (429, "too_many_pending".into()), "{}", reply.text);
    assert_eq!(reply.header("retry-after"), "10");
    let detail = reply.json()["detail"].as_str().unwrap().to_string();
    for part in ["3 runs of tenant `default` wait", "at most 3", "tenant_pending_max", "/v1/runs/bulk/cancel"]
    {
        assert!(detail.contains(part), "{detail}");
    }
}

async fn count(world: &World, path: &str) -> usize {
    world.get(path).await["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_run_that_is_asked_for_over_the_cap_gets_429_and_leaves_nothing_behind() {
    let world = full().await;
    let daily = world.call("POST /v1/jobs", DAILY).await.expect(201);
    must_be_full(&world.call("POST /v1/jobs", NOW).await);
    let keyed = world.call("PUT /v1/jobs/key/nightly", NOW).await;
    must_be_full(&keyed);
    let trigger = format!("POST /v1/jobs/{}/trigger", daily["id"].as_str().unwrap());
    must_be_full(&world.call(&trigger, "").await);
    assert_eq!((count(&world, "/v1/jobs").await, count(&world, "/v1/runs").await), (4, 3));
    // One of them is cancelled, and there is room for another.
    let runs = world.get("/v1/runs").await;
    let run = runs["items"][0]["id"].as_str().unwrap();
    world.call(&format!("POST /v1/runs/{run}/cancel"), "").await.expect(200);
    world.call(&trigger, "").await.expect(201);
    must_be_full(&world.call("POST /v1/jobs", NOW).await);
}

#[tokio::test]
async fn items_of_a_list_and_lines_of_an_import_stand_for_themselves() {
    let world = full().await;
    let bulk = world.call("POST /v1/jobs/bulk", &format!("[{NOW},{DAILY}]")).await;
    let text = bulk.text.clone();
    assert!(text.contains("too_many_pending"), "{text}");
    let import = world.call("POST /v1/jobs/import", &format!("{NOW}\n{DAILY}\n")).await;
    let lines: Vec<Value> = import.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(import.text.contains("too_many_pending"), "{}", import.text);
    let summary = lines.last().unwrap().to_string();
    assert!(summary.contains(r#""created":1"#) && summary.contains(r#""failed":1"#), "{summary}");
    assert_eq!(count(&world, "/v1/jobs").await, 5, "what is for later is registered");
}

#[tokio::test]
async fn slots_over_the_cap_are_told_in_the_ledger_and_by_why() {
    let world = full().await;
    let body = r#"{"schedule":{"cron":"* * * * *"},"target":{"discard":{}}}"#;
    let id = world.call("POST /v1/jobs", body).await.expect(201)["id"].as_str().unwrap().to_string();
    for _ in 0..2 {
        world.advance(60).await;
    }
    let ledger = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    let entry = &ledger["items"][0];
    assert_eq!((&entry["state"], &entry["reason"]), (&"throttled".into(), &"tenant_pending_max".into()));
    assert_eq!(entry["slots"], 2, "{ledger}");
    let why = world.get(&format!("/v1/jobs/{id}/why")).await;
    assert_eq!(why["reason"], "throttled", "{why}");
}

#[tokio::test]
async fn tenants_show_how_many_of_their_runs_wait() {
    let world = full().await;
    let tenants = world.get("/v1/tenants").await;
    let tenant = &tenants["items"][0];
    assert_eq!((&tenant["pending_runs"], &tenant["pending_max"]), (&3.into(), &3.into()), "{tenants}");
}
