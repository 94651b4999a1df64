//! Dead letters that are told elsewhere: the target of a job, the message, and the types that are the system's own.

use punctual_domain::attempt::Outcome;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_dead_letter_target_is_shown_edited_and_taken_away() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    let job = format!("/v1/jobs/{id}");
    assert_eq!(world.get(&job).await.get("dead_letter_target"), None, "nobody is told by default");
    let to = json!({"dead_letter_target": {"http": {"url": "http://127.0.0.1:9/dead", "method": "PUT"}}});
    let patched = world.call(&format!("PATCH {job}"), &to.to_string()).await.expect(200);
    assert_eq!(patched["dead_letter_target"], to["dead_letter_target"]);
    assert_eq!(patched["target"], json!({"discard": {}}), "the other one stays");
    let moved = json!({"dead_letter_target": {"http": {"url": "http://127.0.0.1:9/other"}}});
    let patched = world.call(&format!("PATCH {job}"), &moved.to_string()).await.expect(200);
    assert_eq!(patched["dead_letter_target"]["http"]["method"], "PUT");
    let body = json!({"dead_letter_target": {"function": {"name": "undertaker"}}});
    let patched = world.call(&format!("PATCH {job}"), &body.to_string()).await.expect(200);
    assert_eq!(patched["dead_letter_target"], body["dead_letter_target"], "another kind takes its place");
    let again = world.call(&format!("PUT {job}"), &patched.to_string()).await.expect(200);
    assert_eq!(again["version"], patched["version"], "what is shown is accepted again");
    let gone = world.call(&format!("PATCH {job}"), r#"{"dead_letter_target":null}"#).await.expect(200);
    assert_eq!(gone.get("dead_letter_target"), None);
}

#[tokio::test]
async fn a_dead_letter_target_is_held_to_the_rules_of_targets() {
    let world = World::new().await;
    let body = json!({
        "schedule": {"every": "PT1H"}, "target": {"discard": {}},
        "dead_letter_target": {"http": {"url": "http://169.254.0.1/x"}}
    });
    let refused = world.call("POST /v1/jobs", &body.to_string()).await.expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/dead_letter_target/http");
    assert_eq!(refused["errors"][0]["code"], "target_refused");
}

#[tokio::test]
async fn a_dead_letter_becomes_a_message_that_is_a_job_like_any_other() {
    let world = World::new().await;
    let body = json!({
        "name": "invoices", "schedule": {"now": true}, "target": {"discard": {}}, "payload": {"n": 7},
        "dead_letter_target": {"http": {"url": "http://127.0.0.1:9/dead"}}
    });
    let job = world.call("POST /v1/jobs", &body.to_string()).await.expect(201);
    world.work(Outcome::Failed).await;
    let messages = world.get("/v1/jobs?type=system.dead-letter").await;
    assert_eq!(messages["items"].as_array().unwrap().len(), 1, "{messages}");
    let message = &messages["items"][0];
    assert_eq!(
        (&message["name"], &message["retry"]["max_attempts"]),
        (&"dead letter of invoices".into(), &10.into())
    );
    assert_eq!(message["payload"]["job"]["id"], job["id"]);
    assert_eq!(message["payload"]["payload"], json!({"n": 7}));
    assert_eq!(message["payload"]["output"], json!({"text": "hello", "is_truncated": false}));
    world.work(Outcome::Succeeded).await;
    let id = message["id"].as_str().unwrap();
    let runs = world.get(&format!("/v1/jobs/{id}/runs")).await;
    assert_eq!(
        (&runs["items"][0]["state"], runs["items"].as_array().unwrap().len()),
        (&"succeeded".into(), 1)
    );
    assert_eq!(world.get("/v1/dead-letters").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn types_of_the_system_are_refused_wherever_a_type_is_written() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    world.clock.advance(jiff::SignedDuration::from_millis(5));
    let body = r#"{"type":"system.alert","schedule":{"every":"PT1H"},"target":{"discard":{}}}"#;
    for line in [
        "POST /v1/jobs".to_string(),
        "PUT /v1/jobs/key/mine".into(),
        format!("PUT /v1/jobs/{id}"),
        format!("PATCH /v1/jobs/{id}"),
    ] {
        let refused = world.call(&line, body).await.expect(422);
        let wrong = &refused["errors"][0];
        assert_eq!(
            (&wrong["pointer"], &wrong["code"]),
            (&"/type".into(), &"reserved".into()),
            "{line}: {refused}"
        );
    }
    let edit = json!({"filter": {}, "patch": {"type": "system.alert"}});
    let operation = world.call("POST /v1/jobs/bulk/edit", &edit.to_string()).await.expect(202);
    world.operate().await;
    let ended = world.get(&format!("/v1/operations/{}", operation["id"].as_str().unwrap())).await;
    assert_eq!((&ended["done"], &ended["failed"]), (&0.into(), &1.into()), "{ended}");
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await.get("type"), None);
}
