//! Tenants as their admins and their owners meet them: quotas, usage, suspended, deleted.

use serde_json::{Value, json};

use crate::world::World;

const ACME: [(&str, &str); 1] = [("punctual-tenant", "acme")];
const JOB: &str = r#"{"name":"job","schedule":{"every":"1h"},"target":{"discard":{}}}"#;

async fn world() -> World {
    let world = World::new().await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    world
}

#[tokio::test]
async fn quotas_are_set_shown_and_held_with_a_way_out() {
    let world = world().await;
    assert_eq!(world.get("/v1/tenants/acme/quotas").await, json!({}));
    let quotas = json!({"jobs": 1, "runs_per_second": 50, "concurrency": 2, "payload_bytes": 4});
    let set = world.call("PUT /v1/tenants/acme/quotas", &quotas.to_string()).await;
    assert_eq!((set.header("etag").to_string(), set.expect(200)), ("\"1\"".into(), quotas.clone()));
    let limit = world.get("/v1/limits/tenant:acme").await;
    assert_eq!((&limit["tenant"], &limit["max"]), (&"acme".into(), &2.into()));
    world.call_with("POST /v1/jobs", &ACME, JOB).await.expect(201);
    let refused = world.call_with("POST /v1/jobs", &ACME, JOB).await;
    assert_eq!(refused.problem(), (403, "quota_exceeded".into()));
    assert!(
        refused.text.contains("jobs of its quotas") && refused.text.contains("tenant quotas"),
        "{}",
        refused.text
    );
    world.call("POST /v1/jobs", JOB).await.expect(201);
    let usage = world.get("/v1/tenants/acme/usage").await;
    assert_eq!((&usage["jobs"], &usage["quotas"], &usage["tenant"]), (&1.into(), &quotas, &"acme".into()));
    let wrong = world.call("PUT /v1/tenants/acme/quotas", r#"{"concurrency":0,"job":1}"#).await.expect(422);
    assert!(wrong.to_string().contains("did you mean `jobs`?"), "{wrong}");
    world.call("PUT /v1/tenants/acme/quotas", "{}").await.expect(200);
    assert_eq!(
        world.call("GET /v1/limits/tenant:acme", "").await.status,
        404,
        "the limit goes with the quota"
    );
}

#[tokio::test]
async fn a_suspended_tenant_is_refused_with_the_reason_and_goes_on_when_resumed() {
    let world = world().await;
    let job =
        world.call_with("POST /v1/jobs", &ACME, JOB).await.expect(201)["id"].as_str().unwrap().to_string();
    let operation = world.call("POST /v1/tenants/acme/suspend", r#"{"reason":"unpaid"}"#).await.expect(202);
    assert_eq!(operation["kind"], "cancel_runs");
    let tenant = world.get("/v1/tenants/acme").await;
    assert_eq!((&tenant["state"], &tenant["reason"]), (&"suspended".into(), &"unpaid".into()));
    for line in
        ["POST /v1/jobs".to_string(), format!("POST /v1/jobs/{job}/trigger"), "POST /v1/claims".into()]
    {
        let refused = world.call_with(&line, &ACME, JOB).await;
        assert_eq!(refused.problem(), (403, "tenant_suspended".into()), "{line}");
        assert!(refused.text.contains("unpaid"), "{}", refused.text);
    }
    let seen = world.call_with(&format!("GET /v1/jobs/{job}"), &ACME, "").await;
    assert_eq!(seen.status, 200, "an admin of all tenants may look");
    world.advance(3_600).await;
    let path = format!("/v1/jobs/{job}");
    let ledger = world.call_with(&format!("GET {path}/ledger"), &ACME, "").await.expect(200);
    assert_eq!(ledger["items"][0]["reason"], "tenant_suspended", "{ledger}");
    let resumed = world.call("POST /v1/tenants/acme/resume", "").await.expect(200);
    assert_eq!((&resumed["state"], resumed.get("reason")), (&"active".into(), None::<&Value>));
    world.call_with(&format!("POST {path}/trigger"), &ACME, "").await.expect(201);
    let kept = world.call("POST /v1/tenants/default/suspend", "").await;
    assert_eq!(kept.problem(), (409, "wrong_state".into()));
}

#[tokio::test]
async fn a_deleted_tenant_is_not_there_any_more() {
    let world = world().await;
    world.call_with("POST /v1/jobs", &ACME, JOB).await.expect(201);
    let operation = world.call("DELETE /v1/tenants/acme", "").await;
    assert_eq!(operation.header("location").split('/').nth(2), Some("operations"));
    assert_eq!(operation.expect(202)["kind"], "delete_jobs");
    let names = world.get("/v1/tenants").await.to_string();
    assert!(!names.contains("acme"), "{names}");
    let refused = world.call_with("POST /v1/jobs", &ACME, JOB).await;
    assert_eq!(refused.problem(), (404, "tenant_not_found".into()));
    let again = world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await;
    assert_eq!(again.problem(), (409, "wrong_state".into()));
    assert_eq!(world.call("DELETE /v1/tenants/nobody", "").await.problem(), (404, "tenant_not_found".into()));
}
