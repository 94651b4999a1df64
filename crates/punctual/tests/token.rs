//! Receivers that answer first and report later, beside the real binary, on both stores: by their token alone, through restarts and kills,
//! with no worker kept busy; an expired, used, forged or foreign token does nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::hook::Hook;
use crate::support::server::{Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An attempt as its receiver knows it: by the headers of the call.
struct Called {
    run: String,
    token: String,
    complete: String,
    heartbeat: String,
}

/// Registers a job that runs now and whose receiver reports, and waits until it was called and has answered.
fn called(server: &Server, hook: &Hook, more: &str) -> Called {
    let body = format!(
        r#"{{"name":"report","schedule":{{"now":true}},"target":{{"http":{{"url":"{}/ok"}}}},"completion":"token","retry":{{"max_attempts":1}}{more}}}"#,
        hook.url
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let job = answer.json()["id"].as_str().unwrap().to_owned();
    let mut found = None;
    wait_until("the call arrives", || {
        found = hook.received().into_iter().find(|one| one.headers["punctual-job-id"] == job);
        found.is_some()
    });
    let headers = found.unwrap().headers;
    let run = headers["punctual-run-id"].clone();
    wait_until("the answer is recorded", || {
        let shown = server.get(&format!("/v1/runs/{run}"));
        shown["report_by"].is_string() || shown["state"] != "running"
    });
    Called {
        run,
        token: headers["punctual-completion-token"].clone(),
        complete: headers["punctual-complete-url"].clone(),
        heartbeat: headers["punctual-heartbeat-url"].clone(),
    }
}

/// The status and the answer to what a receiver sends, with nothing but its token.
fn send(server: &Server, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let headers = [("punctual-completion-token", token)];
    let answer = call(server.address, "POST", path, &headers, &body.to_string()).unwrap();
    (answer.status, answer.json())
}

fn complete(server: &Server, called: &Called, body: &Value) -> (u16, Value) {
    send(server, &called.complete, &called.token, body)
}

fn refused((status, answer): (u16, Value)) -> (u16, String) {
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

fn state(server: &Server, run: &str) -> String {
    server.get(&format!("/v1/runs/{run}"))["state"].as_str().unwrap().to_owned()
}

/// A worker with one place calls one receiver after the other; what they report counts, whatever happens to the server meanwhile.
fn reports_count_through_restarts(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let one_place: Vec<&str> = [arguments, &["--concurrency", "1"]].concat();
    let server = Server::start_with(data, &one_place);
    let first = called(&server, &hook, r#","timeout":"PT1H","concurrency":{"max":1}"#);
    let second = called(&server, &hook, r#","timeout":"PT1H","heartbeat":"PT10M""#);
    for one in [&first, &second] {
        let run = server.get(&format!("/v1/runs/{}", one.run));
        assert_eq!((&run["state"], run["report_by"].is_string()), (&"running".into(), true), "{run}");
    }
    let why = command()
        .args(["run", "get", &first.run, "--server", &server.url()])
        .output()
        .map(|output| String::from_utf8(output.stdout).unwrap())
        .unwrap();
    assert!(why.contains("waits for its report until"), "{why}");
    server.kill();
    let server = Server::start_with(data, &one_place);
    let said = json!({"progress": {"percent": 50}, "log": ["half way"]});
    let (status, heard) = send(&server, &second.heartbeat, &second.token, &said);
    assert_eq!((status, &heard["cancelled"]), (200, &false.into()), "{heard}");
    assert!(heard["report_by"].is_string());
    let (status, _) = server.stop();
    assert!(status.success(), "what receivers hold does not keep a server from stopping");
    let server = Server::start_with(data, &one_place);
    let done = json!({"outcome": "succeeded", "output": "42 rows"});
    let (status, taken) = complete(&server, &first, &done);
    assert_eq!((status, &taken["state"]), (200, &"succeeded".into()), "{taken}");
    let failed = json!({"outcome": "failed", "error": {"message": "disk full", "is_retryable": false}});
    assert_eq!(complete(&server, &second, &failed).1["state"], "failed");
    let run = server.get(&format!("/v1/runs/{}", first.run));
    assert_eq!(run["attempts"][0]["output"]["text"], "42 rows", "{run}");
    let run = server.get(&format!("/v1/runs/{}", second.run));
    assert_eq!(run["attempts"][0]["log"][0]["text"], "half way", "{run}");
    assert_eq!(run["attempts"][0]["error"]["message"], "disk full", "{run}");
    for one in [&first, &second] {
        assert_eq!(
            refused(complete(&server, one, &done)),
            (409, "attempt_over".into()),
            "a token is used once"
        );
    }
    assert_eq!(
        (state(&server, &first.run), state(&server, &second.run)),
        ("succeeded".into(), "failed".into())
    );
}

/// Tokens that are expired, used, forged, of another run or of nobody.
fn other_tokens_do_nothing(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let server = Server::start_with(data, arguments);
    let done = json!({"outcome": "succeeded"});
    let held = called(&server, &hook, r#","timeout":"PT1H""#);
    let other = called(&server, &hook, r#","timeout":"PT1H""#);
    let mut forged = held.token.clone();
    let last = if forged.ends_with('0') { '1' } else { '0' };
    forged.pop();
    forged.push(last);
    for (token, expected) in [
        ("", (401, "token_invalid")),
        ("nonsense", (401, "token_invalid")),
        (forged.as_str(), (401, "token_invalid")),
        (other.token.as_str(), (403, "token_of_another_run")),
    ] {
        let expected = (expected.0, expected.1.to_owned());
        assert_eq!(refused(send(&server, &held.complete, token, &done)), expected, "{token}");
        assert_eq!(refused(send(&server, &held.heartbeat, token, &json!({}))), expected, "{token}");
    }
    assert_eq!(state(&server, &held.run), "running");
    // Its time ends while nobody reports.
    let expired = called(&server, &hook, r#","timeout":"PT1S""#);
    wait_until("it times out", || state(&server, &expired.run) == "timed_out");
    assert_eq!(refused(complete(&server, &expired, &done)), (401, "token_expired".into()));
    // It is not heard of, though its token would still count.
    let silent = called(&server, &hook, r#","timeout":"PT1H","heartbeat":"PT1S""#);
    wait_until("it is not heard of", || state(&server, &silent.run) == "timed_out");
    let run = server.get(&format!("/v1/runs/{}", silent.run));
    assert!(run["attempts"][0]["error"]["message"].as_str().unwrap().contains("not heard of"), "{run}");
    assert_eq!(refused(complete(&server, &silent, &done)), (409, "attempt_over".into()));
    assert_eq!(
        refused(send(&server, &silent.heartbeat, &silent.token, &json!({}))),
        (409, "attempt_over".into())
    );
    // Somebody cancels it: it is over at once, and its receiver hears of it.
    let answer = server.post(&format!("/v1/runs/{}/cancel", other.run), "");
    assert_eq!((answer.status, &answer.json()["state"]), (200, &"cancelled".into()), "{}", answer.body);
    let heard = send(&server, &other.heartbeat, &other.token, &json!({}));
    assert_eq!(heard, (200, json!({"cancelled": true})));
    assert_eq!(refused(complete(&server, &other, &done)), (409, "attempt_over".into()));
    // By the command line, as a script on the receiver's machine would.
    let output = command()
        .args(["run", "complete", &held.run, "succeeded", "--result", "done", "--server", &server.url()])
        .env("PUNCTUAL_COMPLETION_TOKEN", &held.token)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the run is succeeded"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

fn on_embedded(story: fn(&Path, &[&str])) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    story(&data, &["--lease", "3"]);
    let checked = punctual_store_embedded::check(&data, jiff::Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

fn on_postgres(story: fn(&Path, &[&str])) {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    story(directory.path(), &["--store", &address, "--lease", "3"]);
}

#[test]
fn what_receivers_report_counts_through_restarts() {
    on_embedded(reports_count_through_restarts);
}

#[test]
fn what_receivers_report_counts_through_restarts_on_postgres() {
    on_postgres(reports_count_through_restarts);
}

#[test]
fn a_token_that_is_expired_used_forged_or_foreign_does_nothing() {
    on_embedded(other_tokens_do_nothing);
}

#[test]
fn a_token_that_is_expired_used_forged_or_foreign_does_nothing_on_postgres() {
    on_postgres(other_tokens_do_nothing);
}

#[test]
fn a_token_counts_on_every_node() {
    let address = Postgres::shared().database();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let public = ["--store", &address, "--lease", "3", "--public-url", "https://jobs.example.com/"];
    let first = Server::start_with(one.path(), &public);
    let hook = Hook::start();
    let called = called(&first, &hook, r#","timeout":"PT1H""#);
    let path =
        called.complete.strip_prefix("https://jobs.example.com").expect("the public address").to_owned();
    let second = Server::start_with(two.path(), &public);
    first.kill();
    let (status, taken) = send(&second, &path, &called.token, &json!({"outcome": "succeeded"}));
    assert_eq!((status, &taken["state"]), (200, &"succeeded".into()), "{taken}");
}
