//! Limits that runs share: of a job, and of administrators.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn an_administrator_sets_reads_lists_and_deletes_limits() {
    let world = World::new().await;
    let body = r#"{"queue":"mail","by":["tenant"],"max":10,"rate":{"limit":100}}"#;
    let made = world.call("PUT /v1/limits/mail", body).await.expect(201);
    let expected = json!({
        "name": "mail", "queue": "mail", "by": ["tenant"], "max": 10,
        "rate": {"limit": 100, "per": "PT1S", "burst": 1}, "holds_retries": false,
    });
    assert_eq!(made, expected);
    assert_eq!(world.call("PUT /v1/limits/mail", body).await.expect(200), expected, "the same again");
    assert_eq!(world.get("/v1/limits/mail").await, expected);
    world
        .call("PUT /v1/limits/all", r#"{"max":1000,"tenant":"default","holds_retries":true}"#)
        .await
        .expect(201);
    let listed = world.get("/v1/limits").await;
    let names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all", "mail"]);
    assert_eq!(listed["items"][0]["tenant"], "default");
    assert_eq!(world.call("DELETE /v1/limits/mail", "").await.status, 204);
    assert_eq!(world.call("DELETE /v1/limits/mail", "").await.problem(), (404, "limit_not_found".into()));
    assert_eq!(world.call("GET /v1/limits/mail", "").await.problem(), (404, "limit_not_found".into()));
}

#[tokio::test]
async fn a_limit_that_is_wrong_is_refused_with_every_reason() {
    let world = World::new().await;
    for (body, pointers) in [
        ("{}", &[""][..]),
        (r#"{"max":0,"by":["colour","job","job"]}"#, &["/max", "/by/0", "/by/2"]),
        (r#"{"rate":{"per":"25h"},"queue":""}"#, &["/rate/limit", "/rate/per", "/queue"]),
        (r#"{"mx":1}"#, &["/mx"]),
    ] {
        let reply = world.call("PUT /v1/limits/x", body).await;
        assert_eq!(reply.problem(), (422, "invalid_request".into()), "{body}");
        let errors = reply.json()["errors"].clone();
        let said: Vec<&str> =
            errors.as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
        assert_eq!(said, pointers, "{body}: {errors}");
    }
    let unknown = world.call("PUT /v1/limits/x", r#"{"max":1,"tenant":"nobody"}"#).await;
    assert_eq!(unknown.problem(), (404, "tenant_not_found".into()));
    assert_eq!(world.call("PUT /v1/limits/a%20b", r#"{"max":1}"#).await.problem().0, 422);
}

#[tokio::test]
async fn a_run_that_waits_for_a_limit_says_so() {
    let world = World::new().await;
    let body = r#"{"schedule":{"now":true},"target":{"discard":{}},"payload":{"customer":"acme"},
        "concurrency":{"max":1,"key":"{payload.customer}","across":"tenant"}}"#;
    for _ in 0..2 {
        world.call("POST /v1/jobs", body).await.expect(201);
    }
    let waiting = world.get("/v1/runs?waiting_for=limit").await;
    let items = waiting["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["state"], &items[0]["waiting_for"]),
        (1, &json!("pending"), &json!("limit"))
    );
    let missing = body.replace("payload.customer", "payload.client");
    let job = world.call("POST /v1/jobs", &missing).await.expect(201);
    let shown = world.get(&format!("/v1/jobs/{}", job["id"].as_str().unwrap())).await;
    assert!(shown["warnings"].to_string().contains("payload.client"), "{}", shown["warnings"]);
}
