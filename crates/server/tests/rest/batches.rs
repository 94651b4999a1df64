//! Batches over REST: registered once, counted, listed item by item, cancelled, deleted.

use jiff::SignedDuration;
use punctual_domain::attempt::Outcome;
use serde_json::{Value, json};

use crate::world::World;

fn body(id: &str, schedule: Value, items: usize) -> String {
    let item = |n: usize| json!({"id": format!("item-{n}"), "payload": {"n": n}});
    json!({
        "id": id, "schedule": schedule, "target": {"discard": {}}, "retry": {"max_attempts": 1},
        "items": (0..items).map(item).collect::<Vec<_>>(), "on_complete": {"discard": {}}
    })
    .to_string()
}

fn now() -> Value {
    json!({"now": true})
}

/// Fires and gives birth to what is due.
async fn begin(world: &World) {
    world.advance(0).await;
    world.operate().await;
}

fn counts(batch: &Value) -> (u64, u64, u64, u64) {
    let count = |word: &str| batch["counts"][word].as_u64().unwrap();
    (count("pending"), count("succeeded"), count("failed"), count("cancelled"))
}

#[tokio::test]
async fn a_batch_is_registered_once_and_shown_as_it_stands() {
    let world = World::new().await;
    let created = world.call("POST /v1/batches", &body("a/b", now(), 3)).await;
    assert_eq!(created.header("location"), "/v1/batches/a%2Fb");
    let created = created.expect(201);
    assert_eq!((&created["state"], counts(&created)), (&"scheduled".into(), (3, 0, 0, 0)), "{created}");
    let again = world.call("POST /v1/batches", &body("a/b", now(), 3)).await.expect(200);
    assert_eq!(again["job_id"], created["job_id"]);
    let other = world.call("POST /v1/batches", &body("a/b", now(), 4)).await;
    assert_eq!(other.problem(), (409, "key_taken".into()));
    begin(&world).await;
    let running = world.get("/v1/batches/a%2Fb").await;
    assert_eq!((&running["state"], counts(&running)), (&"running".into(), (3, 0, 0, 0)));
    assert_eq!(running["scheduled_for"], "2026-01-01T12:00:00Z");
    let mut claimed = world.claim().await;
    let last = claimed.split_off(1);
    world.finish(claimed, Outcome::Failed, std::time::Duration::from_millis(5)).await;
    world.finish(last, Outcome::Succeeded, std::time::Duration::from_millis(5)).await;
    world.clock.advance(SignedDuration::from_secs(10));
    world.operate().await;
    let done = world.get("/v1/batches/a%2Fb").await;
    assert_eq!((&done["state"], counts(&done)), (&"completed".into(), (0, 2, 1, 0)));
    assert_eq!(done["completed_at"], "2026-01-01T12:00:10Z");
    // Its job is a job, and says that it is a batch; its end is a message.
    let job = world.get("/v1/jobs/key/a%2Fb").await;
    assert_eq!(
        (&job["id"], &job["batch_items"], &job["lane"]),
        (&done["job_id"], &3.into(), &"batch".into())
    );
    let told = world.get("/v1/jobs?type=system.batch").await;
    assert_eq!(told["items"].as_array().unwrap().len(), 1);
    assert_eq!(told["items"][0]["payload"]["counts"]["succeeded"], 2);
    let refused = world.call("POST /v1/batches/a%2Fb/cancel", "").await;
    assert_eq!(refused.problem(), (409, "wrong_state".into()));
}

#[tokio::test]
async fn items_are_listed_with_their_runs_in_pages_and_by_state() {
    let world = World::new().await;
    world.call("POST /v1/batches", &body("b", now(), 5)).await.expect(201);
    begin(&world).await;
    let first = world.get("/v1/batches/b/items?limit=3").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = world.get(&format!("/v1/batches/b/items?limit=3&cursor={cursor}")).await;
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|one| one["item_id"].as_str().unwrap().into()).collect()
    };
    assert_eq!(ids(&first), ["item-4", "item-3", "item-2"]);
    assert_eq!(ids(&second), ["item-1", "item-0"]);
    let run = world.get(&format!("/v1/runs/{}", first["items"][0]["run_id"].as_str().unwrap())).await;
    assert_eq!((&run["cause"], &run["payload"]), (&"batch".into(), &json!({"n": 4})));
    assert_eq!(run["item_id"], "item-4");
    world.work(Outcome::Failed).await;
    assert_eq!(ids(&world.get("/v1/batches/b/items?state=failed").await).len(), 5);
    assert_eq!(ids(&world.get("/v1/batches/b/items?state=succeeded").await).len(), 0);
    assert_eq!(world.call("GET /v1/batches/b/items?state=tired", "").await.problem().0, 422);
}

#[tokio::test]
async fn a_batch_is_cancelled_and_deleted_and_another_tenants_is_not_there() {
    let world = World::new().await;
    world.call("POST /v1/batches", &body("b", now(), 4)).await.expect(201);
    begin(&world).await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let acme = [("punctual-tenant", "acme")];
    for line in
        ["GET /v1/batches/b", "GET /v1/batches/b/items", "POST /v1/batches/b/cancel", "DELETE /v1/batches/b"]
    {
        let other = world.call_with(line, &acme, "").await;
        assert_eq!(other.problem(), (404, "batch_not_found".into()), "{line}");
    }
    let cancelled = world.call("POST /v1/batches/b/cancel", "").await.expect(200);
    assert_eq!((&cancelled["state"], counts(&cancelled)), (&"cancelled".into(), (0, 0, 0, 4)));
    assert_eq!(cancelled["cancelled_at"], "2026-01-01T12:00:00Z");
    assert_eq!(world.call("POST /v1/batches/b/cancel", "").await.expect(200)["state"], "cancelled");
    // A recurring one has no more slots, either.
    let daily = json!({"cron": "0 13 * * *"});
    let created = world.call("POST /v1/batches", &body("daily", daily, 2)).await.expect(201);
    assert_eq!(
        (&created["state"], &created["next_fire_at"]),
        (&"scheduled".into(), &"2026-01-01T13:00:00Z".into())
    );
    let cancelled = world.call("POST /v1/batches/daily/cancel", "").await.expect(200);
    assert_eq!((&cancelled["state"], &cancelled["next_fire_at"]), (&"cancelled".into(), &Value::Null));
    let listed = world.get("/v1/batches").await;
    let states: Vec<(&str, &str)> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["id"].as_str().unwrap(), one["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states.len(), 2, "{listed}");
    assert!(states.contains(&("b", "cancelled")) && states.contains(&("daily", "cancelled")), "{states:?}");
    assert_eq!(listed["items"][0].get("counts"), None, "not in lists");
    world.call("DELETE /v1/batches/b", "").await.expect(204);
    assert_eq!(world.call("GET /v1/batches/b", "").await.problem(), (404, "batch_not_found".into()));
    world.call("POST /v1/batches", &body("b", now(), 9)).await.expect(201);
}

#[tokio::test]
async fn a_batch_is_edited_as_a_job_and_keeps_its_items() {
    let world = World::new().await;
    let created =
        world.call("POST /v1/batches", &body("b", json!({"cron": "0 13 * * *"}), 2)).await.expect(201);
    let path = format!("/v1/jobs/{}", created["job_id"].as_str().unwrap());
    let edited = world.call(&format!("PATCH {path}"), r#"{"priority":7}"#).await.expect(200);
    assert_eq!((&edited["priority"], &edited["batch_items"]), (&7.into(), &2.into()));
    let refused = world.call(&format!("PATCH {path}"), r#"{"overlap":{"policy":"skip"}}"#).await;
    assert_eq!(refused.problem().0, 422);
    assert_eq!(world.call(&format!("POST {path}/trigger"), "").await.problem(), (409, "wrong_state".into()));
    let range = r#"{"from":"2025-12-01T00:00:00Z","to":"2025-12-02T00:00:00Z"}"#;
    assert_eq!(world.call(&format!("POST {path}/backfill"), range).await.problem().0, 422);
    world.advance(3_600).await;
    world.operate().await;
    assert_eq!(world.get("/v1/batches/b/items").await["items"].as_array().unwrap().len(), 2);
    // What became of its slot is told of its items.
    world.work(Outcome::Succeeded).await;
    let why = world.get(&format!("{path}/why?at=2026-01-01T13:00:00Z")).await;
    assert!(why["text"].as_str().is_some_and(|text| text.contains("item `item-")), "{why}");
    let account =
        world.get(&format!("{path}/ledger?from=2026-01-01T12:00:00Z&to=2026-01-01T14:00:00Z")).await;
    let slots: u64 =
        account["items"].as_array().unwrap().iter().map(|one| one["slots"].as_u64().unwrap()).sum();
    assert_eq!(slots, 1, "{account}");
}

#[tokio::test]
async fn a_page_of_batches_is_bounded_because_each_is_read_with_its_items() {
    let world = World::new().await;
    for n in 0..51 {
        world.call("POST /v1/batches", &body(&format!("b{n}"), now(), 1)).await.expect(201);
    }
    let first = world.get("/v1/batches?limit=1000").await;
    assert_eq!(first["items"].as_array().map(Vec::len), Some(50));
    let cursor = first["next_cursor"].as_str().unwrap();
    let last = world.get(&format!("/v1/batches?limit=1000&cursor={cursor}")).await;
    assert_eq!((last["items"].as_array().map(Vec::len), &last["next_cursor"]), (Some(1), &Value::Null));
}
