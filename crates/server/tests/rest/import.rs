//! A stream of jobs.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::channel::Channel;
use serde_json::Value;

use crate::world::{World, request};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn job(n: usize) -> String {
    format!(
        r#"{{"name":"job {n}","schedule":{{"every":"PT1H"}},"target":{{"discard":{{}}}},"payload":{{"n":{n}}}}}"#
    )
}

#[tokio::test]
async fn good_lines_are_registered_and_bad_ones_named() {
    let world = World::new().await;
    let body = format!("{}\n\n{{\n{}\r\n{{\"name\":\"x\"}}\n{}", job(1), job(2), job(3));
    let reply = world.call("POST /v1/jobs/import", &body).await;
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let lines = lines(&reply.text);
    assert_eq!(lines[0]["refused"]["line"], 3, "{}", reply.text);
    assert_eq!(lines[0]["refused"]["problem"]["code"], "malformed_json");
    assert_eq!(lines[1]["refused"]["line"], 5);
    assert_eq!(lines[1]["refused"]["problem"]["errors"].as_array().unwrap().len(), 2);
    let summary = &lines[2]["summary"];
    assert_eq!(
        (&summary["lines"], &summary["created"], &summary["failed"]),
        (&5.into(), &3.into(), &2.into())
    );
    assert_eq!(world.get("/v1/jobs").await["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn many_lines_in_odd_pieces_are_all_there() {
    let world = World::new().await;
    let text: String = (0..12_345).map(|n| job(n) + "\n").collect();
    let (mut sender, channel) = Channel::<Bytes, std::convert::Infallible>::new(2);
    tokio::spawn(async move {
        for piece in text.as_bytes().chunks(7_777) {
            sender.send_data(Bytes::copy_from_slice(piece)).await.unwrap();
        }
    });
    let reply = world.send(request("POST /v1/jobs/import", &[], Body::new(channel))).await;
    let lines = lines(&reply.text);
    assert_eq!(lines[0]["progress"]["created"], 10_000, "{}", reply.text);
    assert_eq!(lines[1]["summary"]["created"], 12_345);
}

#[tokio::test]
async fn an_import_repeated_under_its_key_goes_on_where_it_broke_off() {
    let world = World::new().await;
    let key = [("idempotency-key", "import-1")];
    let half: String = (0..50).map(|n| job(n) + "\n").collect();
    let whole: String = (0..80).map(|n| job(n) + "\n").collect();
    world.call_with("POST /v1/jobs/import", &key, &half).await;
    let reply = world.call_with("POST /v1/jobs/import", &key, &whole).await;
    let summary = lines(&reply.text)[0]["summary"].clone();
    assert_eq!((&summary["repeated"], &summary["created"]), (&50.into(), &30.into()), "{summary}");
    let other = world.call_with("POST /v1/jobs/import", &key, &job(99)).await;
    assert_eq!(lines(&other.text)[0]["refused"]["problem"]["code"], "idempotency_key_reused");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_passed_over() {
    let world = World::new().await;
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(2 << 20));
    let reply = world.call("POST /v1/jobs/import", &format!("{}\n{long}\n{}\n", job(1), job(2))).await;
    let lines = lines(&reply.text);
    assert_eq!(
        (&lines[0]["refused"]["line"], &lines[0]["refused"]["problem"]["status"]),
        (&2.into(), &413.into())
    );
    assert_eq!(lines[1]["summary"]["created"], 2);
}

#[tokio::test]
async fn refused_lines_are_told_up_to_a_bound_and_counted_beyond() {
    let world = World::new().await;
    let reply = world.call("POST /v1/jobs/import", &"{}\n".repeat(3_000)).await;
    let lines = lines(&reply.text);
    assert_eq!(lines.len(), 1_001);
    assert_eq!(lines[1_000]["summary"]["failed"], 3_000);
}
