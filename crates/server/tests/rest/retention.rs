//! What is kept of runs, and what holds for jobs that do not say.

use punctual_domain::attempt::Outcome;
use punctual_server::Role;
use serde_json::{Value, json};

use crate::world::World;

const DEFAULTS: &str = "/v1/tenants/acme/defaults";
const ACME: [(&str, &str); 1] = [("punctual-tenant", "acme")];

fn body(schedule: &str, more: &str) -> String {
    format!(r#"{{"schedule":{schedule},"target":{{"discard":{{}}}}{more}}}"#)
}

/// A world with a second tenant.
async fn with_acme() -> World {
    let world = World::new().await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    world
}

async fn create(world: &World, schedule: &str, more: &str) -> Value {
    world.call_with("POST /v1/jobs", &ACME, &body(schedule, more)).await.expect(201)
}

#[tokio::test]
async fn lists_of_a_job_show_the_newest_runs_and_the_rest_is_there_by_its_id() {
    let world = World::new().await;
    let more = r#","retention":{"days":30,"failures":true,"last":2},"retry":{"max_attempts":1}"#;
    let job = world.call("POST /v1/jobs", &body(r#"{"every":"1m"}"#, more)).await.expect(201);
    let kept = json!({"days":30,"failures":true,"last":2,"output_max":65536});
    assert_eq!(job["retention"], kept);
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let mut ended = Vec::new();
    for outcome in [Outcome::Failed, Outcome::Succeeded, Outcome::Failed, Outcome::Succeeded] {
        world.advance(60).await;
        assert_eq!(world.work(outcome).await, 1);
        let newest = world.get(&format!("{path}/runs?limit=1")).await;
        ended.insert(0, newest["items"][0]["id"].clone());
    }
    let first = world.get(&format!("{path}/runs?limit=1")).await;
    let next = format!("{path}/runs?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = world.get(&next).await;
    assert_eq!((&first["items"][0]["id"], &second["items"][0]["id"]), (&ended[0], &ended[1]));
    assert_eq!(second["next_cursor"], Value::Null, "there are no more to be read");
    for (query, count) in [("", 2), ("?state=failed", 1), ("?dead=true", 2)] {
        let found = world.get(&format!("{path}/runs{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}");
    }
    let oldest = world.get(&format!("/v1/runs/{}", ended[3].as_str().unwrap())).await;
    assert_eq!(oldest["state"], "failed");
    let all = world.call(&format!("PATCH {path}"), r#"{"retention":{"last":null}}"#).await.expect(200);
    assert_eq!(all["retention"], json!({"days":30,"failures":true,"output_max":65536}));
    assert_eq!(world.get(&format!("{path}/runs")).await["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_job_is_registered_with_the_defaults_of_its_tenant() {
    let world = with_acme().await;
    assert_eq!(world.get(DEFAULTS).await, json!({}));
    let set = r#"{"schedule":{"spread":"10m"},"retention":{"days":30,"failures":true},"timeout":"1m","overlap":{"policy":"skip"}}"#;
    let shown = world.call(&format!("PUT {DEFAULTS}"), set).await.expect(200);
    let expected = json!({"schedule":{"spread":"PT10M"},"retention":{"days":30,"failures":true},
        "timeout":"PT1M","overlap":{"policy":"skip"}});
    assert_eq!((&shown, &world.get(DEFAULTS).await), (&expected, &expected));

    let job = create(&world, r#"{"cron":"0 2 * * *"}"#, "").await;
    assert_eq!((&job["schedule"]["spread"], &job["timeout"]), (&"PT10M".into(), &"PT1M".into()));
    assert_eq!(job["overlap"]["policy"], "skip");
    assert_eq!(job["retention"], json!({"days":30,"failures":true,"output_max":65536}));
    let own = create(&world, r#"{"every":"1h"}"#, r#","timeout":"9s","overlap":null"#).await;
    assert_eq!((&own["timeout"], &own["overlap"]["policy"]), (&"PT9S".into(), &"allow".into()));
    let elsewhere = world.call("POST /v1/jobs", &body(r#"{"cron":"0 2 * * *"}"#, "")).await.expect(201);
    assert_eq!(elsewhere["timeout"], "PT5M", "another tenant's jobs know nothing of it");

    // A change of the defaults changes no job, until that is replaced.
    world.call(&format!("PUT {DEFAULTS}"), r#"{"timeout":"2m"}"#).await.expect(200);
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let kept = world.call_with(&format!("GET {path}"), &ACME, "").await.expect(200);
    assert_eq!(kept["timeout"], "PT1M");
    let patched = world.call_with(&format!("PATCH {path}"), &ACME, r#"{"name":"x"}"#).await.expect(200);
    assert_eq!(patched["timeout"], "PT1M");
    let replaced = body(r#"{"cron":"0 2 * * *"}"#, "");
    let replaced = world.call_with(&format!("PUT {path}"), &ACME, &replaced).await.expect(200);
    assert_eq!((&replaced["timeout"], &replaced["retention"]["days"]), (&"PT2M".into(), &7.into()));

    world.call(&format!("DELETE {DEFAULTS}"), "").await.expect(204);
    assert_eq!(world.get(DEFAULTS).await, json!({}));
    assert_eq!(create(&world, r#"{"every":"1h"}"#, "").await["timeout"], "PT5M");
}

#[tokio::test]
async fn every_way_of_registering_a_job_knows_the_defaults() {
    let world = with_acme().await;
    world.call(&format!("PUT {DEFAULTS}"), r#"{"retention":{"days":400}}"#).await.expect(200);
    let job = body(r#"{"every":"1h"}"#, "");
    let keyed = world.call_with("PUT /v1/jobs/key/k", &ACME, &job).await.expect(201);
    assert_eq!(keyed["retention"]["days"], 400);
    let bulk = world.call_with("POST /v1/jobs/bulk", &ACME, &format!("[{job}]")).await.expect(200);
    let ndjson = [ACME[0], ("content-type", "application/x-ndjson")];
    assert_eq!(world.call_with("POST /v1/jobs/import", &ndjson, &format!("{job}\n")).await.status, 200);
    assert_eq!(bulk["created"], 1);
    let jobs = world.call_with("GET /v1/jobs", &ACME, "").await.expect(200);
    let days: Vec<&Value> =
        jobs["items"].as_array().unwrap().iter().map(|job| &job["retention"]["days"]).collect();
    assert_eq!(days, [400, 400, 400]);
}

#[tokio::test]
async fn defaults_are_checked_and_changed_by_one_at_a_time() {
    let world = with_acme().await;
    let refused = world.call(&format!("PUT {DEFAULTS}"), r#"{"retention":{"days":8},"name":"x"}"#).await;
    assert_eq!(refused.problem(), (422, "invalid_request".into()));
    assert!(refused.text.contains("/name"), "{}", refused.text);
    let put = |version: &'static str, body: &'static str| {
        let world = &world;
        async move { world.call_with(&format!("PUT {DEFAULTS}"), &[("if-match", version)], body).await }
    };
    let first = world.call(&format!("PUT {DEFAULTS}"), r#"{"timeout":"1m"}"#).await;
    assert_eq!(first.header("etag"), "\"1\"");
    assert_eq!(put("\"1\"", r#"{"timeout":"2m"}"#).await.header("etag"), "\"2\"");
    assert_eq!(put("\"1\"", r#"{"timeout":"3m"}"#).await.problem(), (412, "version_conflict".into()));
    assert_eq!(world.get(DEFAULTS).await, json!({"timeout":"PT2M"}));

    // A job that is wrong because of them says so.
    world.call(&format!("PUT {DEFAULTS}"), r#"{"deadline":"1m"}"#).await.expect(200);
    let job = body(r#"{"every":"1h","spread":"10m"}"#, "");
    let refused = world.call_with("POST /v1/jobs", &ACME, &job).await;
    assert_eq!(refused.problem().0, 422);
    assert!(refused.text.contains("is a default of the tenant"), "{}", refused.text);
}

#[tokio::test]
async fn whose_defaults_they_are() {
    let world = World::of_role(Role::Admin, Some("default")).await;
    world.call("PUT /v1/tenants/default/defaults", r#"{"timeout":"1m"}"#).await.expect(200);
    for method in ["GET", "PUT", "DELETE"] {
        let other = world.call(&format!("{method} {DEFAULTS}"), "{}").await;
        assert_eq!(other.problem(), (404, "tenant_not_found".into()), "{method}");
    }
    let unknown = World::new().await.call(&format!("GET {DEFAULTS}"), "").await;
    assert_eq!(unknown.problem(), (404, "tenant_not_found".into()));
}
