//! Forecasts, and hints to jobs of a crowded second.

use punctual_server::Role;
use serde_json::{Value, json};

use crate::world::World;

fn job(kind: &str, minute: u8, url: &str) -> String {
    format!(
        r#"{{"name":"job","type":"{kind}","schedule":{{"cron":"{minute} * * * *"}},"target":{{"http":{{"url":"{url}"}}}}}}"#
    )
}

#[tokio::test]
async fn planned_slots_are_told_by_time_and_by_group() {
    let world = World::new().await;
    for (kind, minute, host) in [("mail", 30, "a"), ("mail", 30, "b"), ("report", 45, "a")] {
        let body = job(kind, minute, &format!("https://{host}.example/hook?x=1"));
        world.call("POST /v1/jobs", &body).await.expect(201);
    }
    let forecast = world.get("/v1/forecast?resolution=15m").await;
    assert_eq!(
        forecast,
        json!({
            "from": "2026-01-01T12:00:00Z", "to": "2026-01-01T13:00:00Z", "resolution": "PT15M",
            "as_of": "2026-01-01T12:00:00Z", "is_complete": true, "is_exact": true, "slots": 3,
            "peak": {"at": "2026-01-01T12:30:00Z", "slots": 2},
            "buckets": [
                {"at": "2026-01-01T12:00:00Z", "slots": 0}, {"at": "2026-01-01T12:15:00Z", "slots": 0},
                {"at": "2026-01-01T12:30:00Z", "slots": 2}, {"at": "2026-01-01T12:45:00Z", "slots": 1}
            ],
            "groups": [
                {"tenant": "default", "type": "mail", "target": "http a.example", "slots": 1, "buckets": [0, 0, 1, 0]},
                {"tenant": "default", "type": "mail", "target": "http b.example", "slots": 1, "buckets": [0, 0, 1, 0]},
                {"tenant": "default", "type": "report", "target": "http a.example", "slots": 1, "buckets": [0, 0, 0, 1]}
            ]
        })
    );
    let by_type = world.get("/v1/forecast?by=type&from=2026-01-01T13:00:00Z&to=2026-01-02T13:00:00Z").await;
    assert_eq!((&by_type["slots"], &by_type["resolution"]), (&72.into(), &"PT30M".into()));
    let types: Vec<&Value> =
        by_type["groups"].as_array().unwrap().iter().map(|group| &group["type"]).collect();
    assert_eq!(types, ["mail", "report"]);
    let few = world.get("/v1/forecast?by=target,type&groups=1").await;
    let rest = &few["groups"][1];
    assert_eq!((&rest["is_rest"], &rest["slots"], &rest["target"]), (&true.into(), &2.into(), &Value::Null));
}

#[tokio::test]
async fn another_tenants_slots_are_for_an_admin() {
    let world = World::new().await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    world
        .call_with("POST /v1/jobs", &[("punctual-tenant", "acme")], &job("mail", 5, "https://a.example/"))
        .await
        .expect(201);
    assert_eq!(world.get("/v1/forecast").await["slots"], 0, "the default tenant has none");
    assert_eq!(world.get("/v1/forecast?tenant=acme").await["slots"], 1);
    let all = world.get("/v1/forecast?tenant=*&by=tenant").await;
    assert_eq!((&all["jobs"], &all["groups"][0]["tenant"]), (&1.into(), &"acme".into()));
    let viewer = World::of_role(Role::Viewer, Some("default")).await;
    assert_eq!(viewer.get("/v1/forecast").await["jobs"], Value::Null, "how many others have is theirs");
    assert_eq!(viewer.call("GET /v1/forecast?tenant=*", "").await.problem().0, 403);
    assert_eq!(viewer.call("GET /v1/forecast?tenant=acme", "").await.problem().0, 404);
}

#[tokio::test]
async fn a_job_in_a_crowded_second_is_told_so_when_it_is_registered_or_changed() {
    let world = World::new().await;
    world.engine.set_hot_second(3);
    for _ in 0..4 {
        world.register(r#"{"cron":"0 15 * * *"}"#).await;
        world.clock.advance(jiff::SignedDuration::from_secs(6));
    }
    let body = |minute: u8| {
        format!(r#"{{"name":"job","schedule":{{"cron":"{minute} 15 * * *"}},"target":{{"discard":{{}}}}}}"#)
    };
    let hint = "4 jobs are due at 2026-01-01T15:00:00Z already, and with more than 3 in a second some start late; \
                a `spread` of `PT10S`, or `H` in its expression, gives it a time of its own";
    // The same answer again, though the crowd has grown.
    for _ in 0..2 {
        let created = world.call_with("POST /v1/jobs", &[("idempotency-key", "once")], &body(0)).await;
        assert_eq!(created.expect(201)["warnings"], json!([hint]));
    }
    let other = world.call("POST /v1/jobs", &body(1)).await.expect(201);
    assert_eq!(other["warnings"], Value::Null);
    let path = format!("/v1/jobs/{}", other["id"].as_str().unwrap());
    let said = |job: &Value| {
        job["warnings"][0].as_str().is_some_and(|text| text.contains("due at 2026-01-01T15:00:00Z"))
    };
    let moved =
        world.call(&format!("PATCH {path}"), r#"{"schedule":{"cron":"0 15 * * *"}}"#).await.expect(200);
    assert!(said(&moved), "{moved}");
    assert_eq!(world.get(&path).await["warnings"], Value::Null, "whoever reads it need not be told");
    let spread = r#"{"schedule":{"cron":"0 15 * * *","spread":"PT10S"}}"#;
    let spread = world.call(&format!("PATCH {path}"), spread).await.expect(200);
    assert_eq!(spread["warnings"], Value::Null, "as it was told");
    let keyed = world.call("PUT /v1/jobs/key/k", &body(0)).await.expect(201);
    assert!(said(&keyed), "{keyed}");
    let paused = world.call("PUT /v1/jobs/key/k", &body(0)).await.expect(200);
    let id = paused["id"].as_str().unwrap();
    let paused = world.call(&format!("POST /v1/jobs/{id}/pause"), "").await.expect(200);
    assert_eq!(paused["warnings"], Value::Null, "it does not fire");
}
