//! Bad input: every refusal is a problem that says the way out.

use crate::world::World;

#[tokio::test]
async fn every_line_of_the_table_is_refused_as_it_says() {
    let world = World::new().await;
    let mut wrong = Vec::new();
    for (number, line) in include_str!("../../testdata/refused.txt").lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (request, expected) = line.split_once(" => ").unwrap();
        let request = request.trim();
        let (line, body) = request.split_once(" < ").unwrap_or((request, ""));
        let reply = world.call(line.trim(), body).await;
        let (status, code) = reply.problem();
        let json = reply.json();
        let error = &json["errors"][0];
        let said = match error["pointer"].as_str() {
            Some(pointer) => format!("{status} {code} {pointer} {}", error["detail"].as_str().unwrap()),
            None => format!("{status} {code} {}", json["detail"].as_str().unwrap()),
        };
        if !said.starts_with(expected) {
            wrong.push(format!("line {}:\n  expected {expected}\n  said     {said}", number + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_body_of_ten_megabytes_is_refused() {
    let world = World::new().await;
    let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(10 << 20));
    assert_eq!(world.call("POST /v1/jobs", &body).await.problem(), (413, "body_too_large".into()));
    assert_eq!(world.call("POST /v1/jobs/bulk", &format!("[{body}]")).await.problem().0, 413);
}

#[tokio::test]
async fn deep_json_is_refused() {
    let world = World::new().await;
    let body = format!(r#"{{"payload":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(world.call("POST /v1/jobs", &body).await.problem(), (400, "malformed_json".into()));
}

#[tokio::test]
async fn a_method_that_is_not_taken_is_told_which_are() {
    let world = World::new().await;
    let reply = world.call("DELETE /v1/jobs", "").await;
    assert_eq!(reply.problem(), (405, "method_not_allowed".into()));
    let allowed = reply.header("allow").to_string();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    assert_eq!(world.call("GET /v2/jobs", "").await.problem(), (404, "route_not_found".into()));
}

#[tokio::test]
async fn a_request_keeps_its_id() {
    let world = World::new().await;
    let reply = world.call_with("GET /nowhere", &[("x-request-id", "abc-1")], "").await;
    assert_eq!(reply.header("x-request-id"), "abc-1");
    assert_eq!(reply.json()["instance"], "urn:request:abc-1");
    assert!(!world.call("GET /livez", "").await.header("x-request-id").is_empty());
}

#[tokio::test]
async fn large_headers_are_refused() {
    let world = World::new().await;
    let reply = world.call_with("GET /livez", &[("x-junk", &"x".repeat(40_000))], "").await;
    assert_eq!(reply.problem(), (431, "headers_too_large".into()));
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_refused() {
    let world = World::new().await;
    let body = axum::body::Body::from(vec![b'{', 0xff, b'}']);
    let reply = world.send(crate::world::request("POST /v1/jobs", &[], body)).await;
    assert_eq!(reply.problem(), (400, "malformed_json".into()));
}
