//! Long work over many runs: started, listed, read, cancelled.

use punctual_domain::attempt::Outcome;
use serde_json::Value;

use crate::world::World;

const REDRIVE: &str = "POST /v1/dead-letters/redrive";

async fn start(world: &World) -> String {
    let reply = world.call(REDRIVE, r#"{"filter":{"queue":"default"}}"#).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let id = reply.json()["id"].as_str().unwrap().to_string();
    assert_eq!(reply.header("location"), format!("/v1/operations/{id}"));
    world.clock.advance(jiff::SignedDuration::from_millis(5));
    id
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_operation_tells_what_it_does_and_how_far_it_is() {
    let world = World::new().await;
    world.register(r#"{"now":true}"#).await;
    world.work(Outcome::Failed).await;
    let id = start(&world).await;
    let running = world.get(&format!("/v1/operations/{id}")).await;
    assert_eq!((&running["kind"], &running["state"]), (&"redrive".into(), &"running".into()));
    assert_eq!(running["filter"], serde_json::json!({"queue": "default"}));
    assert_eq!((&running["done"], &running["total"]), (&0.into(), &Value::Null));
    world.operate().await;
    let ended = world.get(&format!("/v1/operations/{id}")).await;
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["failed"]),
        (&"succeeded".into(), &1.into(), &0.into())
    );
    assert_eq!(ended["finished_at"], ended["updated_at"]);
    let unknown = world.call("GET /v1/operations/none", "").await;
    assert_eq!(unknown.problem(), (404, "operation_not_found".into()));
}

#[tokio::test]
async fn operations_are_listed_newest_first_in_pages_and_by_state() {
    let world = World::new().await;
    let mut started = Vec::new();
    for _ in 0..3 {
        started.insert(0, start(&world).await);
    }
    let first = world.get("/v1/operations?limit=2").await;
    assert_eq!(ids(&first), started[..2]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/v1/operations?limit=2&cursor={cursor}")).await;
    assert_eq!((ids(&second), &second["next_cursor"]), (vec![started[2].as_str()], &Value::Null));
    world.call(&format!("POST /v1/operations/{}/cancel", started[1]), "").await.expect(200);
    assert_eq!(ids(&world.get("/v1/operations?state=cancelled").await), [&started[1]]);
    assert_eq!(ids(&world.get("/v1/operations?state=running").await), [&started[0], &started[2]]);
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let acme = [("punctual-tenant", "acme")];
    let others = world.call_with("GET /v1/operations", &acme, "").await.expect(200);
    assert_eq!(ids(&others), [""; 0]);
    for line in
        [format!("GET /v1/operations/{}", started[0]), format!("POST /v1/operations/{}/cancel", started[0])]
    {
        assert_eq!(world.call_with(&line, &acme, "").await.problem(), (404, "operation_not_found".into()));
    }
}

#[tokio::test]
async fn a_cancelled_operation_does_nothing_more() {
    let world = World::new().await;
    world.register(r#"{"now":true}"#).await;
    world.work(Outcome::Failed).await;
    let id = start(&world).await;
    let cancelled = world.call(&format!("POST /v1/operations/{id}/cancel"), "").await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    world.operate().await;
    assert_eq!(world.get("/v1/dead-letters").await["items"].as_array().unwrap().len(), 1);
    let again = world.call(&format!("POST /v1/operations/{id}/cancel"), "").await;
    assert_eq!(again.problem(), (409, "wrong_state".into()));
}

#[tokio::test]
async fn the_same_request_starts_one_operation() {
    let world = World::new().await;
    let key = [("idempotency-key", "req-1")];
    let first = world.call_with(REDRIVE, &key, r#"{"filter":{}}"#).await;
    let again = world.call_with(REDRIVE, &key, r#"{"filter":{}}"#).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (202, "true"));
    assert_eq!(
        (again.text.as_str(), again.header("location")),
        (first.text.as_str(), first.header("location"))
    );
    assert_eq!(ids(&world.get("/v1/operations").await).len(), 1);
    let other = world.call_with(REDRIVE, &key, r#"{"filter":{"queue":"x"}}"#).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".into()));
}

#[tokio::test]
async fn catching_up_is_an_operation_that_can_be_cancelled() {
    let world = World::new().await;
    let body = r#"{"schedule":{"cron":"* * * * *"},"target":{"discard":{}},
                   "catch_up":{"policy":"all","window":"PT5H","rate":1}}"#;
    let job = world.call("POST /v1/jobs", body).await.expect(201)["id"].as_str().unwrap().to_string();
    world.advance(630).await;
    world.operate().await;
    let page = world.get("/v1/operations").await;
    let operation = &page["items"][0];
    assert_eq!((&operation["kind"], &operation["job_id"]), (&"catch_up".into(), &job.as_str().into()));
    assert_eq!((&operation["done"], &operation["total"]), (&1.into(), &9.into()));
    world.call(&format!("POST /v1/operations/{}/cancel", ids(&page)[0]), "").await.expect(200);
    let ledger = world.get(&format!("/v1/jobs/{job}/ledger")).await;
    let entry = &ledger["items"][0];
    assert_eq!((&entry["slots"], &entry["reason"]), (&8.into(), &"cancel".into()), "{ledger}");
}

#[tokio::test]
async fn slots_of_the_past_are_counted_and_backfilled() {
    let world = World::new().await;
    let job = world.register(r#"{"cron":"*/15 * * * *"}"#).await;
    let line = format!("POST /v1/jobs/{job}/backfill");
    let body = r#"{"from":"2026-01-01T06:00:00Z","to":"2026-01-01T09:00:00Z","dry_run":true}"#;
    let told = world.call(&line, body).await.expect(200);
    let expected = serde_json::json!({
        "job_id": job, "slots": 12, "first": "2026-01-01T06:00:00Z", "last": "2026-01-01T08:45:00Z"
    });
    assert_eq!(told, expected);
    assert_eq!(ids(&world.get("/v1/operations").await).len(), 0);
    let body = r#"{"from":"2026-01-01T06:00:00Z","to":"2026-01-01T09:00:00Z","rate":100,
                   "overlap":{"policy":"queue_all","max":20}}"#;
    let key = [("idempotency-key", "once")];
    let first = world.call_with(&line, &key, body).await;
    let again = world.call_with(&line, &key, body).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (202, "true"));
    assert_eq!(first.header("location"), again.header("location"));
    let operation = first.expect(202);
    assert_eq!((&operation["kind"], &operation["job_id"]), (&"backfill".into(), &job.as_str().into()));
    assert_eq!(operation["total"], 12);
    let asked = serde_json::json!({
        "from": "2026-01-01T06:00:00Z", "to": "2026-01-01T09:00:00Z", "rate": 100,
        "overlap": {"policy": "queue_all", "max": 20}
    });
    assert_eq!(operation["backfill"], asked);
    world.operate().await;
    let runs = world.get(&format!("/v1/jobs/{job}/runs?waiting_for=earlier_run")).await;
    let runs = runs["items"].as_array().unwrap();
    assert_eq!(runs.len(), 11);
    assert_eq!((&runs[0]["cause"], &runs[0]["waiting_for"]), (&"backfill".into(), &"earlier_run".into()));
    assert!(runs[0]["available_at"].is_null(), "{}", runs[0]);
    let ended = world.get(&format!("/v1/operations/{}", operation["id"].as_str().unwrap())).await;
    assert_eq!((&ended["state"], &ended["done"]), (&"succeeded".into(), &12.into()));
}

#[tokio::test]
async fn a_backfill_that_cannot_be_is_refused_with_the_way_out() {
    let world = World::new().await;
    let job = world.register(r#"{"cron":"*/15 * * * *"}"#).await;
    let line = format!("POST /v1/jobs/{job}/backfill");
    for (body, pointer, said) in [
        ("{}", "/from", "`from` is missing"),
        (r#"{"from":1,"to":2,"rate":0}"#, "/rate", "0 is not in 1 to 10000"),
        (r#"{"from":1,"to":2,"overlap":{"policy":"wait"}}"#, "/overlap/policy", "`wait` is not known"),
        (r#"{"from":2,"to":2}"#, "/to", "`to` is not later than `from`"),
        (r#"{"from":1,"to":"2026-01-01T12:00:01Z"}"#, "/to", "`to` is in the future"),
        (r#"{"from":1,"to":2}"#, "", "the schedule has no slot between"),
        (r#"{"from":0,"to":"2026-01-01T00:00:00Z"}"#, "/to", "these are 1963584 slots, at most 100000"),
    ] {
        let reply = world.call(&line, body).await;
        assert_eq!(reply.problem(), (422, "invalid_request".into()), "{body}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], pointer, "{error}");
        assert!(error["detail"].as_str().unwrap().starts_with(said), "{error}");
    }
    world.call(&format!("POST /v1/jobs/{job}/pause"), "").await.expect(200);
    let paused = world.call(&line, r#"{"from":0,"to":86400}"#).await;
    assert_eq!(paused.problem(), (409, "wrong_state".into()));
    assert!(paused.text.contains("resume it first"), "{}", paused.text);
}
