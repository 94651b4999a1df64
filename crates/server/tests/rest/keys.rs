//! Keys: made, listed, revoked, rotated; who may do that for whom.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::channel::Channel;
use jiff::SignedDuration;
use punctual_domain::TenantId;
use punctual_domain::id::ShardId;
use punctual_domain::operation::{Kind, MoveShards};
use punctual_engine::{Node, Options};
use punctual_rpc::v1;
use punctual_rpc::v1::workers_client::WorkersClient;
use serde_json::{Value, json};

use crate::world::{Reply, World, at, request};

/// A world with an admin of all tenants, an admin of `acme`, and what proves them.
struct Keyed {
    world: World,
    admin: String,
    acme: String,
}

impl Keyed {
    async fn new() -> Self {
        let world = World::of_keys().await;
        let first = world.call("POST /v1/keys", r#"{"name":"ops","role":"admin"}"#).await.expect(201);
        assert_eq!((&first["tenant"], &first["created_by"]), (&Value::Null, &json!("this machine")));
        let mut keyed = Keyed { world, admin: bearer(&first), acme: String::new() };
        keyed.as_admin("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
        let acme = keyed.as_admin("POST /v1/keys", r#"{"name":"a","role":"admin","tenant":"acme"}"#).await;
        keyed.acme = bearer(&acme.expect(201));
        keyed
    }

    async fn by(&self, who: &str, line: &str, body: &str) -> Reply {
        self.world.call_with(line, &[("authorization", who)], body).await
    }

    async fn as_admin(&self, line: &str, body: &str) -> Reply {
        self.by(&self.admin, line, body).await
    }

    async fn as_acme(&self, line: &str, body: &str) -> Reply {
        self.by(&self.acme, line, body).await
    }
}

impl Keyed {
    /// Sends a request whose body comes after its key was revoked.
    async fn late(&self, made: &Value, line: &str, body: &str) -> Reply {
        let (who, id) = (bearer(made), made["id"].as_str().unwrap());
        let (mut sender, channel) = Channel::<Bytes, Infallible>::new(2);
        let sent = self.world.send(request(line, &[("authorization", &who)], Body::new(channel)));
        let revoked = async {
            self.as_admin(&format!("DELETE /v1/keys/{id}"), "").await.expect(204);
            sender.send_data(Bytes::copy_from_slice(body.as_bytes())).await.unwrap();
            drop(sender);
        };
        // In this order: the request has passed the gate when the key is revoked.
        let (reply, ()) = tokio::join!(sent, revoked);
        reply
    }
}

fn bearer(made: &Value) -> String {
    format!("Bearer {}", made["key"].as_str().unwrap())
}

fn names(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_first_key_locks_the_door_and_is_shown_once() {
    let world = World::of_keys().await;
    world.call("GET /v1/jobs", "").await.expect(200);
    // One that makes no others would lock everybody out.
    for body in [
        r#"{"name":"ci","role":"operator"}"#,
        r#"{"name":"ci","role":"admin","tenant":"default"}"#,
        r#"{"name":"ci","role":"admin","expires_after":"PT1H"}"#,
    ] {
        let reply = world.call("POST /v1/keys", body).await;
        assert_eq!(reply.problem(), (409, "wrong_state".into()), "{body}");
        assert!(reply.text.contains("punctual key create"), "{}", reply.text);
    }
    world.call("GET /v1/jobs", "").await.expect(200);
    let made = world.call("POST /v1/keys", r#"{"name":"ops","role":"admin"}"#).await;
    let location = made.header("location").to_string();
    let made = made.expect(201);
    assert_eq!(location, format!("/v1/keys/{}", made["id"].as_str().unwrap()));
    let text = made["key"].as_str().unwrap();
    assert!(text.starts_with(&format!("pk_{}_", made["id"].as_str().unwrap())), "{text}");
    assert_eq!(world.call("GET /v1/jobs", "").await.problem(), (401, "unauthenticated".into()));
    world.call("GET /livez", "").await;
    let who = bearer(&made);
    // A name of the machine that is not `localhost` is as good: nobody sends a key by accident.
    let reply =
        world.call_with("GET /v1/jobs", &[("authorization", &who), ("host", "jobs.example")], "").await;
    reply.expect(200);
    let lower = who.replace("Bearer", "bearer");
    let page = world.call_with("GET /v1/keys", &[("authorization", &lower)], "").await;
    assert!(
        !page.text.contains(text) && !page.text.contains("secret") && !page.text.contains("hash"),
        "{}",
        page.text
    );
    let page = page.expect(200);
    assert_eq!((names(&page), &page["items"][0]["state"]), (vec!["ops"], &json!("active")));
    assert_eq!(page["items"][0]["last_used_at"], json!("2026-01-01T12:00:00Z"));
}

#[tokio::test]
async fn why_the_server_is_not_ready_is_told_to_who_has_a_key() {
    let all = Keyed::new().await;
    all.world.health.0.store(true, Ordering::Relaxed);
    let reply = all.world.call("GET /readyz", "").await;
    assert!(!reply.text.contains("told to stop"), "{}", reply.text);
    let checks = reply.expect(503)["checks"].clone();
    assert_eq!((&checks[1]["name"], &checks[1]["is_ok"]), (&json!("draining"), &json!(false)));
    let reply = all.as_acme("GET /readyz", "").await;
    assert!(reply.text.contains("told to stop"), "{}", reply.text);
}

#[tokio::test]
async fn an_admin_of_a_tenant_manages_its_keys_and_no_others() {
    let all = Keyed::new().await;
    let made = all.as_acme("POST /v1/keys", r#"{"name":"b","role":"worker"}"#).await.expect(201);
    assert_eq!(made["tenant"], "acme");
    assert!(made["created_by"].as_str().unwrap().starts_with("key "), "{made}");
    for (body, expected) in [
        (r#"{"name":"c","role":"viewer","tenant":"default"}"#, (404, "tenant_not_found")),
        (r#"{"name":"c","role":"viewer","tenant":"nobody"}"#, (404, "tenant_not_found")),
        (r#"{"name":"c","role":"viewer","tenant":"*"}"#, (403, "forbidden")),
    ] {
        let reply = all.as_acme("POST /v1/keys", body).await.problem();
        assert_eq!(reply, (expected.0, expected.1.to_string()), "{body}");
    }
    assert_eq!(names(&all.as_acme("GET /v1/keys", "").await.expect(200)).len(), 2);
    assert_eq!(all.as_acme("GET /v1/keys?tenant=*", "").await.problem().0, 403);
    all.as_admin("POST /v1/keys", r#"{"name":"d","role":"viewer","tenant":"default"}"#).await.expect(201);
    let page = all.as_admin("GET /v1/keys", "").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 4);
    assert_eq!(names(&all.as_admin("GET /v1/keys?tenant=default", "").await.expect(200)), ["d"]);
    let named = [("authorization", all.admin.as_str()), ("punctual-tenant", "acme")];
    let page = all.world.call_with("GET /v1/keys", &named, "").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let mut seen = Vec::new();
    let mut path = "GET /v1/keys?limit=1".to_string();
    loop {
        let page = all.as_admin(&path, "").await.expect(200);
        seen.extend(names(&page).into_iter().map(str::to_string));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("GET /v1/keys?limit=1&cursor={cursor}");
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[tokio::test]
async fn a_key_that_expires_gives_out_none_that_outlives_it() {
    let all = Keyed::new().await;
    let made = all.as_admin("POST /v1/keys", r#"{"name":"t","role":"admin","expires_after":"PT1H"}"#).await;
    let made = made.expect(201);
    assert_eq!(made["expires_at"], json!("2026-01-01T13:00:00Z"));
    let who = bearer(&made);
    for (body, status) in [
        (r#"{"name":"u","role":"viewer"}"#, 403),
        (r#"{"name":"u","role":"viewer","expires_after":"2h"}"#, 403),
        (r#"{"name":"u","role":"viewer","expires_at":"2026-01-01T13:00:00Z"}"#, 201),
    ] {
        assert_eq!(all.by(&who, "POST /v1/keys", body).await.status, status, "{body}");
    }
    all.world.clock.advance(SignedDuration::from_hours(1));
    let refused = all.by(&who, "GET /v1/jobs", "").await;
    assert_eq!(refused.problem(), (401, "key_expired".into()));
    assert!(refused.json()["detail"].as_str().unwrap().contains("2026-01-01T13:00:00Z"), "{}", refused.text);
}

#[tokio::test]
async fn a_rotated_key_has_two_secrets_for_the_overlap() {
    let all = Keyed::new().await;
    let made = all.as_acme("POST /v1/keys", r#"{"name":"b","role":"viewer"}"#).await.expect(201);
    let (id, old) = (made["id"].as_str().unwrap(), bearer(&made));
    let rotate = format!("POST /v1/keys/{id}/rotate");
    let rotated = all.as_acme(&rotate, r#"{"overlap":"PT10M"}"#).await.expect(200);
    let fresh = bearer(&rotated);
    assert_eq!((&rotated["id"], &rotated["old_until"]), (&made["id"], &json!("2026-01-01T12:10:00Z")));
    for who in [&old, &fresh] {
        all.by(who, "GET /v1/jobs", "").await.expect(200);
    }
    all.world.clock.advance(SignedDuration::from_mins(10));
    assert_eq!(all.by(&old, "GET /v1/jobs", "").await.problem(), (401, "key_expired".into()));
    all.by(&fresh, "GET /v1/jobs", "").await.expect(200);
    // Without an overlap, and without a body, the old one ends at once.
    let newest = bearer(&all.as_acme(&rotate, "").await.expect(200));
    assert_eq!(all.by(&fresh, "GET /v1/jobs", "").await.problem().1, "key_expired");
    all.by(&newest, "GET /v1/jobs", "").await.expect(200);
    all.as_acme(&format!("DELETE /v1/keys/{id}"), "").await.expect(204);
    all.as_acme(&format!("DELETE /v1/keys/{id}"), "").await.expect(204);
    assert_eq!(all.by(&newest, "GET /v1/jobs", "").await.problem(), (401, "key_revoked".into()));
    assert_eq!(all.as_acme(&rotate, "").await.problem(), (409, "wrong_state".into()));
    let read = all.as_admin(&format!("GET /v1/keys/{id}"), "").await.expect(200);
    assert_eq!((&read["state"], &read["revoked_at"]), (&json!("revoked"), &json!("2026-01-01T12:10:00Z")));
}

#[tokio::test]
async fn nobody_rotates_their_way_to_more_than_they_have() {
    let all = Keyed::new().await;
    let made = all.as_admin("POST /v1/keys", r#"{"name":"t","role":"admin","expires_after":"PT1H"}"#).await;
    let lasting = all.as_admin("POST /v1/keys", r#"{"name":"l","role":"admin"}"#).await.expect(201);
    let rotate = |made: &Value| format!("POST /v1/keys/{}/rotate", made["id"].as_str().unwrap());
    let reply = all.by(&bearer(&made.expect(201)), &rotate(&lasting), "").await;
    assert_eq!(reply.problem(), (403, "forbidden".into()));
    // A secret that was replaced may do what it could, until its end, but gives out nothing that is good after that.
    let old = bearer(&lasting);
    let fresh = all.by(&old, &rotate(&lasting), r#"{"overlap":"PT10M"}"#).await.expect(200);
    all.by(&old, "GET /v1/keys", "").await.expect(200);
    assert_eq!(all.by(&old, &rotate(&lasting), "").await.problem(), (403, "forbidden".into()));
    for (who, expires, status) in
        [(&old, "PT11M", 403), (&old, "PT10M", 201), (&bearer(&fresh), "PT11M", 201)]
    {
        let body = format!(r#"{{"name":"h","role":"viewer","expires_after":"{expires}"}}"#);
        assert_eq!(all.by(who, "POST /v1/keys", &body).await.status, status, "{expires}");
    }
}

#[tokio::test]
async fn a_key_of_one_tenant_neither_sees_nor_stops_a_move_of_shards() {
    let all = Keyed::new().await;
    let spec = r#"{"name":"d","role":"admin","tenant":"default"}"#;
    let ours = bearer(&all.as_admin("POST /v1/keys", spec).await.expect(201));
    let kind = Kind::MoveShards(MoveShards { shards: vec![ShardId(1)], to: 1 });
    let engine = &all.world.engine;
    let moving = engine.start_operation(TenantId::DEFAULT, kind, None, |_, _| ()).await.unwrap();
    let path = format!("/v1/operations/{}", moving.id);
    for line in [format!("GET {path}"), format!("POST {path}/cancel")] {
        assert_eq!(all.by(&ours, &line, "").await.problem(), (404, "operation_not_found".into()), "{line}");
    }
    assert_eq!(all.by(&ours, "GET /v1/operations", "").await.expect(200)["items"], json!([]));
    assert_eq!(
        all.as_admin("GET /v1/operations", "").await.expect(200)["items"].as_array().unwrap().len(),
        1
    );
    let shown = all.as_admin(&format!("GET {path}"), "").await.expect(200);
    assert_eq!(shown["state"], "running");
    all.as_admin(&format!("POST {path}/cancel"), "").await.expect(200);
}

#[tokio::test]
async fn an_answer_with_a_secret_is_not_kept_to_be_given_again() {
    let all = Keyed::new().await;
    let headers = [("authorization", all.admin.as_str()), ("idempotency-key", "k1")];
    for (line, body) in [
        ("POST /v1/keys", r#"{"name":"x","role":"viewer"}"#),
        ("POST /v1/keys/0000000000000000/rotate", "{}"),
    ] {
        let reply = all.world.call_with(line, &headers, body).await;
        assert_eq!(reply.problem(), (422, "invalid_request".into()), "{line}");
        assert_eq!(reply.json()["errors"][0]["pointer"], "Idempotency-Key");
    }
}

#[tokio::test]
async fn a_key_that_is_revoked_while_its_body_is_on_its_way_does_nothing_more() {
    let all = Keyed::new().await;
    let other = all.as_admin("POST /v1/keys", r#"{"name":"other","role":"admin"}"#).await.expect(201);
    let rotate = format!("POST /v1/keys/{}/rotate", other["id"].as_str().unwrap());
    let job = r#"{"name":"j","schedule":{"every":"1h"},"target":{"discard":{}}}"#;
    let many = format!("[{job}]");
    for (line, body) in [
        ("POST /v1/keys", r#"{"name":"heir","role":"admin"}"#),
        (rotate.as_str(), "{}"),
        ("POST /v1/jobs", job),
        ("POST /v1/jobs/bulk", many.as_str()),
    ] {
        let made = all.as_admin("POST /v1/keys", r#"{"name":"gone","role":"admin"}"#).await.expect(201);
        let reply = all.late(&made, line, body).await;
        assert_eq!(reply.problem(), (401, "key_revoked".into()), "{line}");
    }
    let page = all.as_admin("GET /v1/keys?limit=100", "").await.expect(200);
    assert!(!names(&page).contains(&"heir"), "{page}");
    all.by(&bearer(&other), "GET /v1/jobs", "").await.expect(200);
    let page = all.as_admin("GET /v1/jobs", "").await.expect(200);
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::impatient().await;
    let (sender, channel) = Channel::<Bytes, Infallible>::new(2);
    let reply = world.send(request("POST /v1/jobs", &[], Body::new(channel))).await;
    assert_eq!(reply.problem(), (400, "malformed_json".into()));
    assert!(reply.text.contains("nothing came for 5ms"), "{}", reply.text);
    drop(sender);
}

#[tokio::test]
async fn an_import_ends_with_the_key_that_began_it() {
    let all = Keyed::new().await;
    let made = all.as_admin("POST /v1/keys", r#"{"name":"gone","role":"operator"}"#).await.expect(201);
    let line = r#"{"name":"j","schedule":{"every":"1h"},"target":{"discard":{}}}"#;
    let reply = all.late(&made, "POST /v1/jobs/import", line).await;
    let said: Value = serde_json::from_str(reply.text.trim()).unwrap();
    assert_eq!(said["stopped"]["code"], "key_revoked", "{said}");
    assert_eq!(all.as_admin("GET /v1/jobs", "").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_worker_that_waits_is_sent_away_when_its_key_is_revoked() {
    let all = Keyed::new().await;
    let engine = Arc::new(all.world.engine.clone());
    let node = Node::start(engine.clone(), engine.new_worker_id(), Options::default()).await.unwrap();
    let made = all.as_admin("POST /v1/keys", r#"{"name":"w","role":"worker"}"#).await.expect(201);
    let (id, who) = (made["id"].as_str().unwrap().to_string(), bearer(&made));
    // One polls, one has a stream.
    let body = r#"{"name":"m","queues":["emails"],"capacity":1,"wait":"PT20S"}"#;
    let polling = all.by(&who, "POST /v1/claims", body);
    let mut client =
        WorkersClient::with_origin(all.world.network(), "http://127.0.0.1:8080".parse().unwrap());
    let (said, waiting) = tokio::sync::mpsc::unbounded_channel();
    let hello =
        v1::Hello { name: "s".into(), queues: vec!["emails".into()], concurrency: 1, ..Default::default() };
    said.send(v1::ClaimRequest { message: Some(v1::claim_request::Message::Hello(hello)) }).unwrap();
    let outgoing = futures_util::stream::unfold(waiting, |mut waiting| async move {
        waiting.recv().await.map(|said| (said, waiting))
    });
    let mut request = tonic::Request::new(outgoing);
    request.metadata_mut().insert("authorization", who.parse().unwrap());
    let mut told = client.claim(request).await.unwrap().into_inner();
    told.message().await.unwrap().expect("welcome");
    let revoke = async {
        tokio::task::yield_now().await;
        all.as_admin(&format!("DELETE /v1/keys/{id}"), "").await.expect(204)
    };
    let (polled, _) = tokio::join!(polling, revoke);
    assert_eq!(polled.problem(), (401, "key_revoked".into()));
    let ended = loop {
        match told.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended without a word"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended:?}");
    assert_eq!(punctual_rpc::status::problem(&ended).unwrap().code, "key_revoked");
    assert_eq!(all.world.engine.now(), at("12:00:00"), "no time has passed");
    node.stop().await.unwrap();
}
