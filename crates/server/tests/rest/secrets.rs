//! Secrets as administrators meet them: set, listed and deleted, and never shown.

use std::sync::Arc;

use punctual_engine::secrets::KeySource;
use punctual_server::Role;
use serde_json::Value;

use crate::world::{Reply, World};

#[derive(Debug)]
struct OneKey;

#[tonic::async_trait]
impl KeySource for OneKey {
    async fn read(&self) -> Result<String, String> {
        Ok("17".repeat(32))
    }
}

async fn world() -> World {
    let world = World::new().await;
    world.engine.set_key_source(Arc::new(OneKey));
    world
}

async fn put(world: &World, name: &str, value: &str) -> Reply {
    let reply = world.call(&format!("PUT /v1/secrets/{name}"), &format!(r#"{{"value":"{value}"}}"#)).await;
    assert!(!reply.text.contains(value), "{}", reply.text);
    reply
}

#[tokio::test]
async fn a_secret_is_set_listed_changed_and_deleted_and_never_shown() {
    let world = world().await;
    let first = put(&world, "token", "hunter2").await;
    assert_eq!(first.header("etag"), "\"1\"");
    assert_eq!(first.expect(201)["name"], "token");
    put(&world, "token", "hunter3").await.expect(200);
    put(&world, "api-key", "hunter4").await.expect(201);
    let list = world.get("/v1/secrets").await;
    let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["api-key", "token"]);
    assert!(!list.to_string().contains("hunter"), "{list}");
    let page = world.get("/v1/secrets?limit=1").await;
    let rest = world.get(&format!("/v1/secrets?cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!(
        (&page["items"][0]["name"], &rest["items"][0]["name"]),
        (&list["items"][0]["name"], &list["items"][1]["name"])
    );
    let one = world.get("/v1/secrets/token").await;
    assert_eq!(one["version"], 2);
    assert_eq!(one["set_by"], "this machine");
    let stale = [("if-match", "\"1\"")];
    let reply = world.call_with("PUT /v1/secrets/token", &stale, r#"{"value":"hunter5"}"#).await;
    assert_eq!(reply.problem(), (412, "version_conflict".into()));
    let reply = world.call_with("PUT /v1/secrets/none", &stale, r#"{"value":"hunter5"}"#).await;
    assert_eq!(reply.problem(), (412, "version_conflict".into()));
    world.call("DELETE /v1/secrets/token", "").await.expect(204);
    assert_eq!(world.call("DELETE /v1/secrets/token", "").await.problem(), (404, "secret_not_found".into()));
    assert_eq!(world.call("GET /v1/secrets/token", "").await.problem(), (404, "secret_not_found".into()));
}

#[tokio::test]
async fn what_is_wrong_is_told_without_the_value() {
    let world = world().await;
    for (line, body) in [
        ("PUT /v1/secrets/token", "{}"),
        ("PUT /v1/secrets/token", r#"{"value":""}"#),
        ("PUT /v1/secrets/token", r#"{"value":{"hunter2":"hunter2"}}"#),
        ("PUT /v1/secrets/token", r#"{"secret":"hunter2"}"#),
        ("PUT /v1/secrets/no%20name", r#"{"value":"hunter2"}"#),
        ("PUT /v1/secrets/token", r#"{"value":"hunter2"#),
    ] {
        let reply = world.call(line, body).await;
        assert!(["400", "422"].contains(&reply.status.as_str()), "{body}: {}", reply.text);
        assert!(!reply.text.contains("hunter2"), "{body}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_job_that_names_a_secret_that_is_not_there_is_told_so() {
    let world = world().await;
    let body =
        r#"{"schedule":{"every":"PT1M"},"target":{"http":{"url":"http://a.test/{{ secret.token }}"}}}"#;
    let job = world.call("POST /v1/jobs", body).await.expect(201);
    assert!(job["warnings"].to_string().contains("secret_not_found"), "{job}");
    put(&world, "token", "hunter2").await.expect(201);
    let job = world.get(&format!("/v1/jobs/{}", job["id"].as_str().unwrap())).await;
    assert!(!job["warnings"].to_string().contains("secret_not_found"), "{job}");
    assert!(job.to_string().contains("{{ secret.token }}"), "{job}");
    for (url, part) in [
        ("http://{{ secret.host }}/", "path or the query"),
        ("http://a.test/{{ secret.not a name }}", "not the name of a secret"),
        ("http://a.test/{{ secret.open", "not closed"),
    ] {
        let body = format!(r#"{{"schedule":{{"every":"PT1M"}},"target":{{"http":{{"url":"{url}"}}}}}}"#);
        let reply = world.call("POST /v1/jobs", &body).await;
        assert!(reply.status == 422 && reply.text.contains(part), "{url}: {}", reply.text);
    }
}

#[tokio::test]
async fn without_a_master_key_the_way_out_is_told() {
    let world = World::new().await;
    let reply = world.call("PUT /v1/secrets/token", r#"{"value":"hunter2"}"#).await;
    assert_eq!(reply.problem(), (409, "secrets_key_missing".into()));
    assert!(reply.text.contains("--secrets-key-file"), "{}", reply.text);
    assert_eq!(
        world.call("POST /v1/secret-keys/rotate", "").await.problem(),
        (409, "secrets_key_missing".into())
    );
}

#[tokio::test]
async fn operators_see_names_and_set_nothing() {
    let world = World::of_role(Role::Operator, None).await;
    world.call("GET /v1/secrets", "").await.expect(200);
    for line in ["PUT /v1/secrets/a", "DELETE /v1/secrets/a", "POST /v1/secret-keys/rotate"] {
        assert_eq!(world.call(line, r#"{"value":"x"}"#).await.problem(), (403, "forbidden".into()), "{line}");
    }
}
