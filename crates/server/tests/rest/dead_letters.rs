//! Runs that ended badly: listed, redriven, acknowledged.

use punctual_domain::attempt::Outcome;
use serde_json::Value;

use crate::world::World;

async fn with_dead(count: usize) -> (World, Vec<String>) {
    let world = World::new().await;
    for _ in 0..count {
        world.register(r#"{"now":true}"#).await;
    }
    world.work(Outcome::Failed).await;
    let dead = world.get("/v1/dead-letters").await;
    let ids = dead["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_string());
    let ids: Vec<String> = ids.collect();
    assert_eq!(ids.len(), count);
    (world, ids)
}

fn dead_count(page: &Value) -> usize {
    page["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn dead_letters_are_redriven_by_id_as_the_same_run() {
    let (world, ids) = with_dead(2).await;
    let body = format!(r#"{{"runs":["{}","nonsense"]}}"#, ids[0]);
    let result = world.call("POST /v1/dead-letters/redrive", &body).await.expect(200);
    assert_eq!((&result["done"], &result["failed"]), (&1.into(), &1.into()), "{result}");
    assert_eq!(result["items"][0]["run"]["state"], "pending");
    assert_eq!(result["items"][1]["problem"]["code"], "run_not_found");
    assert_eq!(dead_count(&world.get("/v1/dead-letters").await), 1);
    world.work(Outcome::Succeeded).await;
    let run = world.get(&format!("/v1/runs/{}", ids[0])).await;
    assert_eq!((&run["state"], &run["attempt"]), (&"succeeded".into(), &2.into()));
    assert_eq!(run["attempts"][0]["error"]["code"], "http_status");
}

#[tokio::test]
async fn dead_letters_are_acknowledged_and_stay_in_history() {
    let (world, ids) = with_dead(1).await;
    let body = format!(r#"{{"runs":["{}"]}}"#, ids[0]);
    let result = world.call("POST /v1/dead-letters/acknowledge", &body).await.expect(200);
    assert_eq!(result["done"], 1);
    assert_eq!(dead_count(&world.get("/v1/dead-letters").await), 0);
    assert_eq!(world.get(&format!("/v1/runs/{}", ids[0])).await["state"], "failed");
    let again = world.call("POST /v1/dead-letters/acknowledge", &body).await.expect(200);
    assert_eq!(again["items"][0]["problem"]["code"], "wrong_state");
    assert_eq!(
        world.call(&format!("POST /v1/runs/{}/retry", ids[0]), "").await.expect(200)["state"],
        "pending"
    );
}

#[tokio::test]
async fn all_of_a_filter_is_an_operation() {
    let (world, _) = with_dead(3).await;
    let reply = world.call("POST /v1/dead-letters/redrive", r#"{"filter":{}}"#).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let location = reply.header("location").to_string();
    assert_eq!(world.get(&location).await["state"], "running");
    world.operate().await;
    let ended = world.get(&location).await;
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["kind"]),
        (&"succeeded".into(), &3.into(), &"redrive".into())
    );
    assert_eq!(dead_count(&world.get("/v1/dead-letters").await), 0);
    for body in ["{}", r#"{"runs":[],"filter":{}}"#, r#"{"runs":[]}"#, r#"{"filter":{"job":"x"}}"#] {
        assert_eq!(world.call("POST /v1/dead-letters/redrive", body).await.problem().0, 422, "{body}");
    }
}
