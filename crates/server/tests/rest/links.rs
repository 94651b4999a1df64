//! Links and payloads of runs over REST.

use punctual_domain::Outcome;
use punctual_domain::link;
use punctual_engine::links::Followed;
use serde_json::{Value, json};

use crate::world::World;

/// A job that runs when it is triggered.
fn job(key: &str, links: Value) -> String {
    json!({
        "key": key, "schedule": {"at": "2199-01-01T00:00:00Z"}, "target": {"discard": {}}, "payload": {"n": 7}, "links": links
    })
    .to_string()
}

async fn create(world: &World, key: &str, links: Value) -> String {
    let created = world.call("POST /v1/jobs", &job(key, links)).await.expect(201);
    created["id"].as_str().unwrap().to_string()
}

fn wrong(refused: &Value) -> Vec<(&str, &str)> {
    let pair = |error: &'_ Value| -> (String, String) {
        (error["pointer"].as_str().unwrap().into(), error["code"].as_str().unwrap().into())
    };
    let errors = refused["errors"].as_array().unwrap();
    assert!(errors.iter().map(pair).all(|(pointer, _)| pointer.starts_with("/links")), "{refused}");
    errors.iter().map(|error| (error["pointer"].as_str().unwrap(), error["code"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn links_are_shown_edited_and_taken_away() {
    let world = World::new().await;
    let after = create(&world, "after", json!(null)).await;
    assert_eq!(world.get(&format!("/v1/jobs/{after}")).await.get("links"), None);
    let links = json!([{"on": "succeeded", "job": "after"}, {"on": "finished", "job": after}]);
    let id = create(&world, "job", links.clone()).await;
    let path = format!("/v1/jobs/{id}");
    assert_eq!(world.get(&path).await["links"], links, "as they were written");
    let renamed = world.call(&format!("PATCH {path}"), r#"{"name":"other"}"#).await.expect(200);
    assert_eq!(renamed["links"], links);
    let one = json!({"links": [{"on": "failed", "job": "after"}]});
    let patched = world.call(&format!("PATCH {path}"), &one.to_string()).await.expect(200);
    assert_eq!(patched["links"], one["links"]);
    let gone = world.call(&format!("PATCH {path}"), r#"{"links":null}"#).await.expect(200);
    assert_eq!(gone.get("links"), None);
}

#[tokio::test]
async fn links_to_nothing_and_cycles_are_refused_wherever_links_are_written() {
    let world = World::new().await;
    let a = create(&world, "a", json!([])).await;
    let b = create(&world, "b", json!([{"on": "succeeded", "job": "a"}])).await;
    let missing = job("c", json!([{"on": "failed", "job": "a"}, {"on": "failed", "job": "nobody"}]));
    let refused = world.call("POST /v1/jobs", &missing).await.expect(422);
    assert_eq!(wrong(&refused), [("/links/1/job", "job_not_found")]);
    let cycle = json!({"links": [{"on": "failed", "job": b}]}).to_string();
    let refused = world.call(&format!("PATCH /v1/jobs/{a}"), &cycle).await.expect(422);
    assert_eq!(wrong(&refused), [("/links/0", "cycle")]);
    assert!(refused["detail"].as_str().unwrap().contains("a -> "), "{refused}");
    let cycle = job("a", json!([{"on": "finished", "job": "b"}]));
    for line in ["PUT /v1/jobs/key/a".to_string(), format!("PUT /v1/jobs/{a}")] {
        let refused = world.call(&line, &cycle).await.expect(422);
        assert_eq!(wrong(&refused), [("/links/0", "cycle")], "{line}");
    }
    let bulk = json!({"filter": {}, "patch": {"links": [{"on": "failed", "job": "a"}]}}).to_string();
    let refused = world.call("POST /v1/jobs/bulk/edit", &bulk).await.expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/patch/links");
}

#[tokio::test]
async fn every_wrong_link_is_named() {
    let world = World::new().await;
    create(&world, "a", json!([])).await;
    let links = json!([
        {"on": "won", "job": "a"}, {"job": "a"}, {"on": "failed"}, {"on": "failed", "job": "a b"},
        {"on": "failed", "job": "a"}, {"on": "failed", "job": "a"}
    ]);
    let refused = world.call("POST /v1/jobs", &job("b", links)).await.expect(422);
    let expected = [
        ("/links/0/on", "unknown_value"),
        ("/links/1/on", "missing_field"),
        ("/links/2/job", "missing_field"),
        ("/links/3/job", "bad_character"),
        ("/links/5", "duplicate"),
    ];
    assert_eq!(wrong(&refused), expected);
    let many: Vec<Value> = (0..17).map(|n| json!({"on": "failed", "job": format!("a{n}")})).collect();
    let refused = world.call("POST /v1/jobs", &job("b", many.into())).await.expect(422);
    assert_eq!(wrong(&refused), [("/links", "too_long")]);
}

#[tokio::test]
async fn a_linked_run_shows_what_caused_it_and_what_it_is_sent() {
    let world = World::new().await;
    let after = create(&world, "after", json!([])).await;
    let id = create(&world, "job", json!([{"on": "succeeded", "job": "after"}])).await;
    let first = world.call(&format!("POST /v1/jobs/{id}/trigger"), "").await.expect(201);
    world.work(Outcome::Succeeded).await;
    let messages = world.get("/v1/jobs?type=system.link").await;
    let message = messages["items"][0]["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(messages["items"][0]["queue"], link::QUEUE);
    let Followed::Run(run) = world.engine.follow(message).await.unwrap() else { panic!("it is made") };
    let run = world.get(&format!("/v1/runs/{run}")).await;
    assert_eq!((&run["cause"], &run["job_id"]), (&json!("link"), &json!(after)));
    assert_eq!(run["caused_by"], json!({"run_id": first["id"], "depth": 1}));
    assert_eq!(run["payload"]["output"], "hello");
    assert_eq!((&run["payload"]["on"], &run["payload"]["payload"]), (&json!("succeeded"), &json!({"n": 7})));
    let listed = world.get(&format!("/v1/jobs/{after}/runs")).await;
    assert_eq!(
        (&listed["items"][0]["caused_by"], listed["items"][0].get("payload")),
        (&run["caused_by"], None)
    );
    let at = run["scheduled_for"].as_str().unwrap();
    let why = world.get(&format!("/v1/jobs/{after}/why?at={at}")).await;
    let text = why["text"].as_str().unwrap_or_default();
    assert!(text.contains(first["id"].as_str().unwrap()), "{why}");
}

#[tokio::test]
async fn a_trigger_may_bring_a_payload_of_its_own() {
    let world = World::new().await;
    let id = create(&world, "job", json!([])).await;
    let path = format!("POST /v1/jobs/{id}/trigger");
    let run = world.call(&path, r#"{"payload":{"n": 8}}"#).await.expect(201);
    let plain = world.call(&path, "").await.expect(201);
    let shown = world.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap())).await;
    assert_eq!((&shown["payload"], &shown["cause"]), (&json!({"n": 8}), &json!("trigger")));
    let shown = world.get(&format!("/v1/runs/{}", plain["id"].as_str().unwrap())).await;
    assert_eq!(shown.get("payload"), None, "it is sent its job's");
    let large = json!({"payload": "x".repeat(300 << 10)}).to_string();
    let refused = world.call(&path, &large).await.expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/payload");
}
