//! The log of a run.

use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::attempt::Outcome;
use serde_json::{Value, json};

use crate::world::World;

const JOB: &str = r#"{"schedule":{"now":true},"target":{"discard":{}},"retry":{"max_attempts":2}}"#;

fn texts(page: &Value) -> Vec<String> {
    let line = |line: &Value| format!("{}.{} {}", line["attempt"], line["number"], line["text"]);
    page["items"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test]
async fn a_log_is_read_in_pages_of_all_attempts_or_of_one() {
    let world = World::new().await;
    world.call("POST /v1/jobs", r#"{"schedule":{"now":true},"target":{"discard":{}}}"#).await.expect(201);
    let claimed = world.claim().await;
    let path = format!("/v1/runs/{}/log", claimed[0].id());
    assert_eq!(world.get(&path).await, json!({"items": [], "next_cursor": null}));
    world.note(&claimed[0], 40, "1", &["one", "two", "three"]).await;
    let all = world.get(&path).await;
    assert_eq!(texts(&all), [r#"1.1 "one""#, r#"1.2 "two""#, r#"1.3 "three""#]);
    assert_eq!((&all["items"][0]["at"], &all["next_cursor"]), (&json!("2026-01-01T12:00:00Z"), &Value::Null));
    let first = world.get(&format!("{path}?limit=2")).await;
    assert_eq!(texts(&first), [r#"1.1 "one""#, r#"1.2 "two""#]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = world.get(&format!("{path}?limit=2&cursor={cursor}")).await;
    assert_eq!((texts(&rest), &rest["next_cursor"]), (vec![r#"1.3 "three""#.to_string()], &Value::Null));
    assert_eq!(texts(&world.get(&format!("{path}?attempt=2")).await), [""; 0]);
    assert_eq!(texts(&world.get(&format!("{path}?attempt=1")).await).len(), 3);
    world.finish(claimed, Outcome::Succeeded, Duration::from_secs(1)).await;
    assert_eq!(texts(&world.get(&path).await).len(), 3, "it is there when the run is over");
}

#[tokio::test]
async fn who_follows_a_log_is_answered_when_there_is_more_and_told_when_there_is_not() {
    let world = World::new().await;
    world.call("POST /v1/jobs", JOB).await.expect(201);
    let claimed = world.claim().await;
    let path = format!("/v1/runs/{}/log?follow=true", claimed[0].id());
    // Nothing yet: it waits until there is.
    let (page, ()) = tokio::join!(world.get(&path), async {
        world.note(&claimed[0], 40, "1", &["one"]).await;
        world.clock.advance(SignedDuration::from_secs(1));
    });
    assert_eq!(texts(&page), [r#"1.1 "one""#]);
    let on = format!("{path}&cursor={}", page["next_cursor"].as_str().unwrap());
    // Nothing for as long as it may wait: an empty page, from which it goes on.
    let (page, ()) = tokio::join!(world.get(&on), async {
        world.clock.advance(SignedDuration::from_secs(20));
    });
    assert_eq!(
        (texts(&page).len(), &on),
        (0, &format!("{path}&cursor={}", page["next_cursor"].as_str().unwrap()))
    );
    // Over: the last lines, and no more.
    let (page, ()) = tokio::join!(world.get(&on), async {
        world.note(&claimed[0], 90, "2", &["two"]).await;
        world.finish(claimed.clone(), Outcome::Succeeded, Duration::from_secs(1)).await;
        world.clock.advance(SignedDuration::from_secs(1));
    });
    assert_eq!((texts(&page), &page["next_cursor"]), (vec![r#"1.2 "two""#.to_string()], &Value::Null));
}

#[tokio::test]
async fn wrong_questions_about_a_log_are_named() {
    let world = World::new().await;
    world.call("POST /v1/jobs", JOB).await.expect(201);
    let claimed = world.claim().await;
    let path = format!("GET /v1/runs/{}/log?follow=perhaps&attempt=x&cursor=y", claimed[0].id());
    let problem = world.call(&path, "").await.expect(422);
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3, "{problem}");
    let other = world.call("GET /v1/runs/nothing/log", "").await.expect(404);
    assert_eq!(other["code"], "run_not_found");
}
