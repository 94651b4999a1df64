//! Targets and jobs that are left alone.

use punctual_domain::attempt::Outcome;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_job_that_fails_again_and_again_is_left_alone_until_it_is_reset() {
    let world = World::new().await;
    let body = r#"{"schedule":{"every":"1m"},"target":{"discard":{}},"retry":{"max_attempts":1},"breaker":{"failures":2}}"#;
    let job = world.call("POST /v1/jobs", body).await.expect(201);
    let (id, name) = (job["id"].as_str().unwrap(), format!("job {}", job["id"].as_str().unwrap()));
    assert_eq!(job["breaker"], json!({"failures": 2}));
    assert_eq!(world.get("/v1/breakers").await["items"], json!([]));
    for _ in 0..2 {
        world.advance(60).await;
        world.work(Outcome::Failed).await;
    }
    let breakers = world.get("/v1/breakers").await;
    let breaker = &breakers["items"][0];
    assert_eq!((&breaker["name"], &breaker["state"]), (&json!(name), &json!("open")));
    assert_eq!((&breaker["interval"], &breaker["max"]), (&json!("PT5S"), &json!(1)));
    assert_eq!(
        (&breaker["since"], &breaker["probe_by"]),
        (&json!("2026-01-01T12:02:00Z"), &json!("2026-01-01T12:02:05Z"))
    );
    assert_eq!(world.get("/v1/limits").await["items"], json!([]), "it is nobody's limit");
    // The next slot asks, the one after it waits.
    world.advance(60).await;
    world.advance(1).await;
    let trigger = world.call(&format!("POST /v1/jobs/{id}/trigger"), "").await.expect(201);
    assert_eq!((&trigger["state"], &trigger["waiting_for"]), (&json!("pending"), &json!("breaker")));
    let why = world.get(&format!("/v1/jobs/{id}/why")).await;
    assert!(why.to_string().contains("waiting_for_"), "{why}");
    let path = format!("DELETE /v1/breakers/{}", name.replace(' ', "%20"));
    assert_eq!(world.call(&path, "").await.status, 204);
    assert_eq!(world.call(&path, "").await.problem(), (404, "breaker_not_found".into()));
    let told = world.get("/v1/audit?kind=breaker").await;
    assert_eq!((&told["items"][0]["action"], &told["items"][0]["subject"]), (&json!("reset"), &json!(name)));
    let nobody = world.call("DELETE /v1/breakers/http%20nowhere", "").await;
    assert_eq!(nobody.problem(), (404, "breaker_not_found".into()));
}

#[tokio::test]
async fn nobody_calls_a_limit_as_breakers_are_called() {
    let world = World::new().await;
    let refused = world.call("PUT /v1/limits/breaker%20http%20x", r#"{"max":1}"#).await;
    assert_eq!(refused.problem().0, 422);
}
