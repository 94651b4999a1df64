//! Who is refused, walked over every route and every method of gRPC: each is asked without a key, with keys that are wrong in every way,
//! with one of another tenant and with every role that is too low.
//!
//! Router and gate are made from the tables that are walked, so a route without a row is not there, and one with a row is walked.

use std::sync::Arc;

use http::HeaderMap;
use punctual_domain::key::{KeyId, Shown};
use punctual_engine::{Node, Options};
use punctual_rpc::status;
use punctual_server::{Endpoint, METHODS, Needs, Role, TABLE};
use serde_json::Value;

use crate::world::{World, request};

/// A status and a code.
type Refusal = (u16, &'static str);

/// Whether a route refuses somebody, and how.
type Expected = dyn Fn(&Endpoint) -> Option<Refusal>;

/// Somebody who calls: the headers that say who, and how that is answered.
struct Caller {
    who: String,
    headers: Vec<(&'static str, String)>,
    /// What is expected of a route that needs a key: its status and code.
    expected: Box<Expected>,
}

/// A world with two tenants, and everybody who is refused somewhere.
async fn everybody() -> (World, Vec<Caller>) {
    let world = World::of_keys().await;
    let admin = create(&world, None, r#"{"name":"ops","role":"admin"}"#).await.0;
    world.call_with("POST /v1/tenants", &[("authorization", &admin)], r#"{"name":"acme"}"#).await.expect(201);
    let mut callers = vec![Caller {
        who: "an admin of all tenants".into(),
        headers: vec![("authorization", admin.clone())],
        expected: Box::new(|_| None),
    }];
    let mut refused = |who: &str, headers: Vec<(&'static str, String)>, code: &'static str| {
        callers.push(Caller { who: who.into(), headers, expected: Box::new(move |_| Some((401, code))) });
    };
    refused("nobody", vec![], "unauthenticated");
    for text in
        ["Bearer", "Bearer ", "Bearer nonsense", "Bearer pk_1_2", "Basic b3BzOm9wcw==", "pk_1_2", "\u{fc}"]
    {
        refused("with a malformed key", vec![("authorization", text.into())], "key_malformed");
    }
    let stranger = format!("Bearer {}", Shown::new(KeyId::new(1), [1; 32]).reveal());
    refused("with an unknown key", vec![("authorization", stranger)], "key_unknown");
    let (expired, _) =
        create(&world, Some(&admin), r#"{"name":"old","role":"admin","expires_after":"PT1M"}"#).await;
    world.clock.advance(jiff::SignedDuration::from_mins(1));
    refused("with an expired key", vec![("authorization", expired)], "key_expired");
    let (revoked, id) = create(&world, Some(&admin), r#"{"name":"gone","role":"admin"}"#).await;
    world.call_with(&format!("DELETE /v1/keys/{id}"), &[("authorization", &admin)], "").await.expect(204);
    refused("with a revoked key", vec![("authorization", revoked)], "key_revoked");
    let (other, _) = create(&world, Some(&admin), r#"{"name":"acme","role":"admin","tenant":"acme"}"#).await;
    callers.push(Caller {
        who: "an admin of another tenant".into(),
        headers: vec![("authorization", other), ("punctual-tenant", "default".into())],
        expected: Box::new(|endpoint| match endpoint.is_for_all {
            true => Some((403, "forbidden")),
            false => Some((404, "tenant_not_found")),
        }),
    });
    for role in Role::ALL {
        let spec = format!(r#"{{"name":"low","role":"{}"}}"#, role.as_str());
        callers.push(Caller {
            who: format!("with the role {}", role.as_str()),
            headers: vec![("authorization", create(&world, Some(&admin), &spec).await.0)],
            expected: Box::new(move |endpoint| (!endpoint.needs.met_by(role)).then_some((403, "forbidden"))),
        });
    }
    (world, callers)
}

/// What a new key is sent as, and its id.
async fn create(world: &World, by: Option<&str>, spec: &str) -> (String, String) {
    let by: Vec<(&str, &str)> = by.map(|by| ("authorization", by)).into_iter().collect();
    let made = world.call_with("POST /v1/keys", &by, spec).await.expect(201);
    let text = |member: &Value| member.as_str().unwrap().to_string();
    (format!("Bearer {}", text(&made["key"])), text(&made["id"]))
}

fn filled(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_refuses_whoever_it_is_not_for() {
    let (world, callers) = everybody().await;
    let (mut refused, mut let_in) = (0, 0);
    for endpoint in TABLE {
        let line = format!("{} {}", endpoint.method, filled(endpoint.path));
        for caller in &callers {
            let headers: Vec<(&str, &str)> =
                caller.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let reply = world.call_with(&line, &headers, "").await;
            let said = format!("{line}, {}: {} {}", caller.who, reply.status, reply.text);
            let needs_key = !matches!(endpoint.needs, Needs::Nothing | Needs::Token);
            match (caller.expected)(endpoint).filter(|_| needs_key) {
                Some((status, code)) => {
                    assert_eq!(reply.problem(), (status, code.to_string()), "{said}");
                    let challenge = if status == 401 { "Bearer" } else { "" };
                    assert_eq!(reply.header("www-authenticate"), challenge, "{said}");
                    refused += 1;
                }
                // A token is a matter of its route; everybody else is let in to what the handler makes of `x` and no body.
                None if endpoint.needs == Needs::Token => {
                    assert!(reply.status != 403 && !reply.text.contains("\"key_"), "{said}");
                }
                None => {
                    assert!(!["401", "403"].contains(&reply.status.as_str()), "{said}");
                    let_in += 1;
                }
            }
        }
    }
    assert!(refused > 10 * TABLE.len() && let_in > TABLE.len(), "{refused} refused, {let_in} let in");
}

/// A message of gRPC that says nothing.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

#[tokio::test]
async fn every_method_of_grpc_refuses_whoever_it_is_not_for() {
    let (world, callers) = everybody().await;
    for method in METHODS {
        for caller in &callers {
            let mut headers = vec![("content-type", "application/grpc"), ("te", "trailers")];
            headers.extend(caller.headers.iter().map(|(name, value)| (*name, value.as_str())));
            let line = format!("POST {}", method.path);
            let answer = world.head(request(&line, &headers, axum::body::Body::from(EMPTY_MESSAGE))).await;
            let said = format!("{line}, {}: {answer:?}", caller.who);
            let needs_key = !matches!(method.needs, Needs::Nothing | Needs::Token);
            match (caller.expected)(method).filter(|_| needs_key) {
                Some((http, code)) => {
                    let (number, told) = told(&answer).unwrap_or_else(|| panic!("{said}"));
                    let expected = match http {
                        401 => tonic::Code::Unauthenticated,
                        403 => tonic::Code::PermissionDenied,
                        _ => tonic::Code::NotFound,
                    };
                    assert_eq!((number, told.as_str()), (expected, code), "{said}");
                }
                None => {
                    let refused = [tonic::Code::Unauthenticated, tonic::Code::PermissionDenied];
                    assert!(told(&answer).is_none_or(|(number, _)| !refused.contains(&number)), "{said}");
                }
            }
        }
    }
}

/// The number and the code of REST that an answer has, if it is nothing but a refusal.
fn told(headers: &HeaderMap) -> Option<(tonic::Code, String)> {
    let refusal = tonic::Status::from_header_map(headers)?;
    let code = status::problem(&refusal).map(|problem| problem.code).unwrap_or_default();
    Some((refusal.code(), code))
}

#[tokio::test]
async fn what_another_tenant_has_is_not_there() {
    let world = World::of_keys().await;
    let engine = Arc::new(world.engine.clone());
    let node = Node::start(engine.clone(), engine.new_worker_id(), Options::default()).await.unwrap();
    let admin = create(&world, None, r#"{"name":"ops","role":"admin"}"#).await.0;
    let ours = [("authorization", admin.as_str())];
    world.call_with("POST /v1/tenants", &ours, r#"{"name":"acme"}"#).await.expect(201);
    let theirs = create(&world, Some(&admin), r#"{"name":"acme","role":"admin","tenant":"acme"}"#).await.0;
    let make = async |line: &str, body: &str| {
        let reply = world.call_with(line, &ours, body).await;
        assert!(reply.status.is_success(), "{line}: {}", reply.text);
        reply.json()["id"].as_str().unwrap_or_default().to_string()
    };
    let job = make(
        "POST /v1/jobs",
        r#"{"name":"a","key":"x","schedule":{"every":"1h"},"target":{"discard":{}},"on_unknown":"ask"}"#,
    )
    .await;
    let run = make(&format!("POST /v1/jobs/{job}/trigger"), "").await;
    let batch = make(
        "POST /v1/batches",
        r#"{"id":"b","schedule":{"now":true},"target":{"discard":{}},"items":[{"id":"i","payload":1}]}"#,
    )
    .await;
    let operation = make("POST /v1/jobs/bulk/pause", r#"{"filter":{"queue":"default"}}"#).await;
    make("PUT /v1/calendars/x", r#"{"exclude_weekdays":["SUN"]}"#).await;
    let key = create(&world, Some(&admin), r#"{"name":"k","role":"viewer","tenant":"default"}"#).await.1;
    let installation = create(&world, Some(&admin), r#"{"name":"k","role":"viewer"}"#).await.1;
    // Something to do, so that the claim does not wait for a clock that stands.
    let mail = r#"{"schedule":{"now":true},"queue":"emails","target":{"worker":{"handler":"h"}}}"#;
    make("POST /v1/jobs", mail).await;
    let claim = r#"{"name":"m","queues":["emails"],"capacity":1}"#;
    let claimed = world.call_with("POST /v1/claims", &ours, claim).await.expect(200);
    let worker = claimed["worker"].as_str().unwrap().to_string();
    let given = claimed["attempts"][0]["run_id"].as_str().unwrap();
    let results = format!(r#"{{"results":[{{"run_id":"{given}","attempt":1,"outcome":"succeeded"}}]}}"#);
    let mut asked = 0;
    for endpoint in TABLE.iter().filter(|endpoint| endpoint.path.contains('{')) {
        let is_own = endpoint.method == "PUT" && !endpoint.path.contains("{id}"); // It would be made, among their own.
        if endpoint.is_for_all || endpoint.needs == Needs::Token || is_own {
            continue;
        }
        let noun = endpoint.path.trim_start_matches("/v1/").split('/').next().unwrap();
        let ids: Vec<&str> = match noun {
            "jobs" => vec![&job],
            "runs" => vec![&run],
            "batches" => vec![&batch],
            "operations" => vec![&operation],
            "workers" => vec![&worker],
            "keys" => vec![&key, &installation],
            "tenants" => vec!["default"],
            _ => vec!["x"],
        };
        let body = match (endpoint.method, endpoint.path.rsplit('/').next().unwrap()) {
            ("GET" | "DELETE", _) => "",
            (_, "backfill") => r#"{"from":"2026-01-01T00:00:00Z","to":"2026-01-01T03:00:00Z"}"#,
            (_, "answer") => r#"{"answer":"retry"}"#,
            (_, "heartbeat") => r#"{"held":[]}"#,
            (_, "results") => &results,
            ("PUT", "{id}") => r#"{"schedule":{"every":"1h"},"target":{"discard":{}}}"#,
            _ => "{}",
        };
        for id in ids {
            let path = endpoint.path.replace("{id}", id).replace("{key}", "x").replace("{name}", id);
            let line = format!("{} {path}", endpoint.method);
            let reply = world.call_with(&line, &[("authorization", &theirs)], body).await;
            if line.ends_with("/results") && reply.status == 200 {
                // Each result is answered for itself.
                let code = reply.json()["results"][0]["problem"]["code"].clone();
                assert!(
                    ["run_not_found", "lease_lost"].contains(&code.as_str().unwrap_or("")),
                    "{}",
                    reply.text
                );
                continue;
            }
            let (status, code) = reply.problem();
            let is_lost = noun == "workers" && code == "worker_lost";
            assert!((status == 404 && code.ends_with("_not_found")) || is_lost, "{line}: {}", reply.text);
            assert!(!code.starts_with("route"), "{line}");
            asked += 1;
        }
    }
    assert!(asked > 30, "{asked}");
    let untouched = world.call_with(&format!("GET /v1/runs/{given}"), &ours, "").await.expect(200);
    assert_eq!(untouched["state"], "running");
    let page = world.call_with("GET /v1/jobs?limit=10", &[("authorization", &theirs)], "").await.expect(200);
    assert_eq!(page["items"], serde_json::json!([]));
    node.stop().await.unwrap();
}
