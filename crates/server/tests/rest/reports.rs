//! Receivers that report later: the policy, what a run that waits for its report looks like, and what is taken under a token.

use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::channel::Channel;
use punctual_domain::attempt::Outcome;
use punctual_domain::token::{Key, Token};
use punctual_domain::work::Held;
use punctual_domain::{Receiver, RunId};
use punctual_engine::Clock as _;
use serde_json::{Value, json};

use crate::world::{Reply, World, request};

fn key() -> Key {
    Key::new([5; 32])
}

async fn world() -> World {
    let world = World::new().await;
    world.engine.set_token_key(key());
    world
}

fn body(more: &str) -> String {
    format!(
        r#"{{"name":"j","schedule":{{"now":true}},"target":{{"http":{{"url":"https://hook.example.com/x"}}}}{more}}}"#
    )
}

/// A run whose receiver has answered, and its token.
async fn entrusted(world: &World, more: &str) -> (String, String) {
    world
        .call("POST /v1/jobs", &body(&format!(r#","completion":"token","timeout":"PT10M"{more}"#)))
        .await
        .expect(201);
    let claimed = world.claim().await;
    let (run, started_at) = (claimed[0].clone(), world.clock.now());
    world.finish(claimed, Outcome::Succeeded, std::time::Duration::ZERO).await;
    let shown = world.get(&format!("/v1/runs/{}", run.id())).await;
    let report_by: jiff::Timestamp = shown["report_by"].as_str().unwrap().parse().unwrap();
    assert_eq!(report_by.duration_since(started_at).as_secs(), 600, "{shown}");
    assert_eq!((&shown["state"], &shown["attempts"][0]["outcome"]), (&"running".into(), &Value::Null));
    let heartbeat = more.contains("heartbeat").then(|| std::time::Duration::from_secs(60));
    let receiver = Receiver { ends_at: report_by, heartbeat }.id(Held::from(&run));
    (run.id().to_string(), key().sign(&Token::new(run.id(), 1, receiver)))
}

async fn send(world: &World, what: &str, run: &str, token: &str, body: &Value) -> Reply {
    let headers = [("punctual-completion-token", token)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    world.call_with(&format!("POST /v1/runs/{run}/{what}"), &headers, &body).await
}

#[tokio::test]
async fn the_policy_is_shown_with_its_default_and_refused_where_it_says_nothing() {
    let world = world().await;
    let job = world.call("POST /v1/jobs", &body("")).await.expect(201);
    assert_eq!((&job["completion"], &job["heartbeat"]), (&"answer".into(), &Value::Null));
    let job =
        world.call("POST /v1/jobs", &body(r#","completion":"token","heartbeat":"PT30S""#)).await.expect(201);
    assert_eq!((&job["completion"], &job["heartbeat"]), (&"token".into(), &"PT30S".into()));
    let path = format!("PATCH /v1/jobs/{}", job["id"].as_str().unwrap());
    let merge = [("content-type", "application/merge-patch+json")];
    let edited = world.call_with(&path, &merge, r#"{"completion":null,"heartbeat":null}"#).await.expect(200);
    assert_eq!(edited["completion"], "answer");
}

#[tokio::test]
async fn a_receiver_heartbeats_and_completes_with_nothing_but_its_token() {
    let world = world().await;
    let (run, token) = entrusted(&world, r#","heartbeat":"PT1M""#).await;
    let heard = send(&world, "heartbeat", &run, &token, &Value::Null).await.expect(200);
    assert_eq!((&heard["cancelled"], heard["report_by"].is_string()), (&false.into(), true));
    let said =
        json!({"progress": {"percent": 40, "message": "page 4"}, "checkpoint": {"page": 4}, "log": ["on"]});
    send(&world, "heartbeat", &run, &token, &said).await.expect(200);
    let shown = world.get(&format!("/v1/runs/{run}")).await;
    assert_eq!((&shown["progress"]["percent"], &shown["checkpoint"]["page"]), (&40.into(), &4.into()));
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("host", "jobs.example.com")];
    let taken = world
        .call_with(
            &format!("POST /v1/runs/{run}/complete"),
            &headers,
            r#"{"outcome":"succeeded","output":"done"}"#,
        )
        .await
        .expect(200);
    assert_eq!(taken, json!({"run_id": run, "attempt": 1, "state": "succeeded"}));
    for what in ["heartbeat", "complete"] {
        let again = send(&world, what, &run, &token, &json!({"outcome": "failed"})).await;
        let expected = if what == "complete" { (409, "attempt_over") } else { (422, "invalid_request") };
        assert_eq!(again.problem(), (expected.0, expected.1.into()), "{what}");
    }
    assert_eq!(send(&world, "heartbeat", &run, &token, &json!({})).await.problem().1, "attempt_over");
}

#[tokio::test]
async fn a_token_is_for_its_run_and_its_time() {
    let world = world().await;
    let (run, token) = entrusted(&world, "").await;
    let (other, _) = entrusted(&world, "").await;
    let done = json!({"outcome": "succeeded"});
    for wrong in ["", "x", &token[..token.len() - 1]] {
        let refused = send(&world, "complete", &run, wrong, &done).await;
        assert_eq!(refused.problem(), (401, "token_invalid".into()), "{wrong}");
    }
    let refused = send(&world, "complete", &other, &token, &done).await;
    assert_eq!(refused.problem(), (403, "token_of_another_run".into()));
    let nobodys: RunId = run.parse().unwrap();
    assert_eq!(send(&world, "complete", "x", &token, &done).await.problem(), (404, "run_not_found".into()));
    assert_eq!(nobodys.to_string(), run);
    world.advance(601).await;
    for what in ["complete", "heartbeat"] {
        let body = if what == "complete" { done.clone() } else { json!({}) };
        let refused = send(&world, what, &run, &token, &body).await;
        assert_eq!(refused.problem(), (401, "token_expired".into()));
    }
}

#[tokio::test]
async fn who_has_no_token_is_not_listened_to_and_learns_nothing_of_tenants() {
    let world = world().await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let (run, token) = entrusted(&world, "").await;
    for what in ["heartbeat", "complete"] {
        let line = format!("POST /v1/runs/{run}/{what}");
        for tenant in ["default", "acme", "nobody"] {
            let headers = [("punctual-tenant", tenant), ("punctual-completion-token", "x")];
            // A body that never ends is not waited for.
            let (sender, channel) = Channel::<Bytes, Infallible>::new(1);
            let reply = world.send(request(&line, &headers, Body::new(channel))).await;
            assert_eq!(reply.problem(), (401, "token_invalid".into()), "{tenant}");
            drop(sender);
        }
    }
    // Whoever has one is told what it is for, whatever tenant they name.
    let headers = [("punctual-tenant", "nobody"), ("punctual-completion-token", token.as_str())];
    let done = r#"{"outcome":"succeeded"}"#;
    world.call_with(&format!("POST /v1/runs/{run}/complete"), &headers, done).await.expect(200);
}

#[tokio::test]
async fn a_cancelled_run_is_over_and_its_receiver_hears_of_it() {
    let world = world().await;
    let (run, token) = entrusted(&world, "").await;
    let cancelled = world.call(&format!("POST /v1/runs/{run}/cancel"), "").await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    let heard = send(&world, "heartbeat", &run, &token, &json!({})).await.expect(200);
    assert_eq!(heard, json!({"cancelled": true}));
}

#[tokio::test]
async fn what_is_wrong_with_a_report_is_named() {
    let world = world().await;
    let (run, token) = entrusted(&world, "").await;
    for (what, body, at) in [
        ("complete", json!({}), "/outcome"),
        ("complete", json!({"outcome": "released"}), "/outcome"),
        ("complete", json!({"outcome": "won"}), "/outcome"),
        ("complete", json!({"outcome": "succeeded", "error": {"message": "no"}}), "/error"),
        ("complete", json!({"outcome": "failed", "run_id": run}), "/run_id"),
        ("heartbeat", json!({"held": []}), "/held"),
        ("heartbeat", json!({"checkpoint": "x".repeat(70_000)}), "/checkpoint"),
    ] {
        let reply = send(&world, what, &run, &token, &body).await;
        let pointer = reply.json()["errors"][0]["pointer"].as_str().unwrap_or_default().to_owned();
        assert_eq!((reply.problem().0, pointer.as_str()), (422, at), "{what}");
    }
    assert_eq!(world.get(&format!("/v1/runs/{run}")).await["state"], "running");
}
