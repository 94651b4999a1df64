//! Who may do what, walked over the table of routes.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::ConnectInfo;
use punctual_server::{Needs, Role, TABLE};
use tower::ServiceExt;

use crate::world::{World, request};

#[tokio::test]
async fn every_route_asks_for_its_role() {
    for role in Role::ALL {
        let world = World::of_role(role, None).await;
        for endpoint in TABLE {
            let path = endpoint.path.replace("{id}", "x").replace("{key}", "x");
            let reply = world.call(&format!("{} {path}", endpoint.method), "").await;
            // A token counts by itself, whoever has it: none is refused by the handler.
            if endpoint.needs == Needs::Token {
                assert!([401, 404, 422].contains(&reply.status.as_u16()), "{path}: {}", reply.text);
            }
            let is_denied = reply.status == 403;
            assert_eq!(
                is_denied,
                !endpoint.needs.met_by(role),
                "{role:?} {} {path}: {}",
                endpoint.method,
                reply.text
            );
            if is_denied {
                assert_eq!(reply.problem(), (403, "forbidden".into()));
            }
        }
    }
}

#[test]
fn roles_are_what_they_say() {
    for endpoint in TABLE {
        let reads = endpoint.method == "GET";
        match endpoint.needs {
            Needs::Nothing => assert!(reads, "{} is open", endpoint.path),
            Needs::Viewer => assert!(reads, "a viewer would change {}", endpoint.path),
            Needs::Token => assert!(endpoint.path.starts_with("/v1/runs/{id}/"), "{}", endpoint.path),
            Needs::Operator | Needs::Worker | Needs::Admin => {}
        }
        let is_for_workers = matches!(endpoint.needs, Needs::Nothing | Needs::Token | Needs::Worker);
        assert_eq!(endpoint.needs.met_by(Role::Worker), is_for_workers);
    }
}

#[tokio::test]
async fn a_caller_of_one_tenant_stays_in_it() {
    let world = World::of_role(Role::Admin, Some("default")).await;
    world.call("GET /v1/jobs", "").await.expect(200);
    let other = world.call_with("GET /v1/jobs", &[("punctual-tenant", "acme")], "").await;
    assert_eq!(other.problem(), (404, "tenant_not_found".into()));
    assert_eq!(world.call("GET /v1/runs?tenant=acme", "").await.problem().0, 404);
    assert_eq!(world.call("GET /v1/runs?tenant=*", "").await.problem().0, 403);
    assert_eq!(world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.problem().0, 403);
}

#[tokio::test]
async fn without_keys_only_this_machine_is_served_by_its_own_name() {
    let world = World::new().await;
    for (headers, status) in [
        (vec![("host", "localhost:8080")], 200),
        (vec![("host", "[::1]:8080")], 200),
        (vec![("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")], 200),
        (vec![("host", "evil.example:8080")], 403),
        (vec![("host", "127.0.0.1.evil.example")], 403),
        (vec![("host", "127.0.0.1:8080"), ("origin", "http://evil.example")], 403),
        (vec![("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:9999")], 403),
        (vec![("host", "127.0.0.1:8080"), ("origin", "null")], 403),
    ] {
        let reply = world.call_with("GET /v1/jobs", &headers, "").await;
        assert_eq!(reply.status.as_u16(), status, "{headers:?}: {}", reply.text);
    }
    let mut from_afar = request("GET /v1/jobs", &[], Body::empty());
    let peer: std::net::SocketAddr = "10.0.0.9:1234".parse().unwrap();
    from_afar.extensions_mut().insert(ConnectInfo(peer));
    assert_eq!(world.send(from_afar).await.problem(), (401, "unauthenticated".into()));
    let mut unknown = request("GET /v1/jobs", &[], Body::empty());
    unknown.extensions_mut().clear();
    assert_eq!(world.send(unknown).await.problem().0, 401, "nobody knows where it comes from");
}

#[tokio::test]
async fn probes_are_open_and_say_what_is_wrong() {
    let world = World::new().await;
    assert_eq!(world.call("GET /livez", "").await.text, "ok\n");
    let ready = world.get("/readyz").await;
    assert_eq!(ready["is_ready"], true);
    world.health.0.store(true, Ordering::Relaxed);
    let draining = world.call_with("GET /readyz", &[("host", "10.1.2.3")], "").await.expect(503);
    assert_eq!((&draining["is_ready"], &draining["checks"][1]["name"]), (&false.into(), &"draining".into()));
    let waiting = punctual_server::waiting(world.health.clone());
    for (host, is_told) in [("127.0.0.1:8080", true), ("10.1.2.3", false)] {
        // Why is for whoever would be let in; also while the server has no store.
        for line in ["GET /readyz", "GET /v1/jobs"] {
            let asked = request(line, &[("host", host)], Body::empty());
            let answer = waiting.clone().oneshot(asked).await.unwrap().into_body();
            let text = axum::body::to_bytes(answer, usize::MAX).await.unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            assert_eq!(text.contains("told to stop"), is_told, "{line}: {text}");
        }
        let reply = world.call_with("GET /readyz", &[("host", host)], "").await;
        assert_eq!(reply.text.contains("told to stop"), is_told, "{}", reply.text);
    }
    assert_eq!(world.call("GET /metrics", "").await.text, "punctual_up 1\n");
    assert_eq!(world.get("/v1/version").await["version"], "1.2.3");
}
