//! Secrets with the real binary: they reach their targets and are found nowhere else; a master key is rotated under two nodes; without one
//! everything else works.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::echo::Echo;
use crate::support::server::{Answer, Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn put(server: &Server, name: &str, value: &str) -> Answer {
    let body = json!({ "value": value }).to_string();
    let headers = [("content-type", "application/json")];
    call(server.address, "PUT", &format!("/v1/secrets/{name}"), &headers, &body).unwrap()
}

/// A command that asks the server, with something on standard input.
fn fed(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut child = command()
        .args(arguments)
        .args(["--server", &server.url()])
        .env("PUNCTUAL_TZDATA", "bundled")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read anything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Registers a job that runs now, and is not tried twice.
fn register(
    server: &Server,
    name: &str,
    target: &Value,
    payload: Option<&Value>,
    more: &[(&str, Value)],
) -> Value {
    let mut job = json!({
        "name": name,
        "schedule": { "now": true },
        "target": { "http": target },
        "retry": { "max_attempts": 1 },
    });
    if let Some(payload) = payload {
        job["payload"] = payload.clone();
    }
    for (member, value) in more {
        job[*member] = value.clone();
    }
    let answer = server.post("/v1/jobs", &job.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

/// The one run of a job, when it has ended.
fn ended(server: &Server, job: &Value) -> Value {
    let path = format!("/v1/jobs/{}/runs", job["id"].as_str().unwrap());
    let id = wait_for("a run that has ended", || {
        let runs = server.get(&path);
        let run = runs["items"].get(0)?.clone();
        let is_ended = !["pending", "running"].contains(&run["state"].as_str()?);
        is_ended.then(|| run["id"].as_str().unwrap().to_owned())
    });
    server.get(&format!("/v1/runs/{id}"))
}

/// Every file below a folder, with what is in it.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut left) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(bytes) = std::fs::read(&path) {
            found.push((path, bytes));
        }
    }
    found
}

/// What is looked for: the part of a canary that is the same in every form.
fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

fn key_file(folder: &Path, keys: &[u8]) -> String {
    let path = folder.join("secrets.key");
    let line = |byte: &u8| format!("{byte:02x}").repeat(32);
    std::fs::write(&path, keys.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A canary: the word in it is found in whatever form the rest is written.
fn canary(n: usize) -> (String, String) {
    let word = format!("canary{n:02}x{:016x}", 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n as u64 + 1));
    let value = match n % 5 {
        0 => word.clone(),
        1 => format!("{word}/+ =&?"),
        2 => format!("\"{word}\\"),
        3 => format!("{word}%41"),
        _ => format!("a {word} z"),
    };
    (word, value)
}

#[test]
fn fifty_canaries_reach_their_targets_and_are_found_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let key = key_file(folder.path(), &[7]);
    let echo = Echo::start();
    let server =
        Server::start_with(&data, &["--log", "debug", "--breaker-failures", "0", "--secrets-key-file", &key]);
    let canaries: Vec<(String, String)> = (0..50).map(canary).collect();
    let mut shown: Vec<(String, Vec<u8>)> = Vec::new();
    let mut jobs = Vec::new();
    for (n, (_, value)) in canaries.iter().enumerate() {
        let name = format!("c{n}");
        if n % 10 == 0 {
            let output = fed(&server, &["secret", "set", &name], &format!("{value}\n"));
            assert!(output.status.success(), "{}", said(&output));
            shown.push((format!("secret set {name}"), said(&output).into_bytes()));
        } else {
            let answer = put(&server, &name, value);
            assert_eq!(answer.status, 201, "{}", answer.body);
            shown.push((format!("PUT {name}"), answer.body.into_bytes()));
        }
        let reference = format!("{{{{ secret.{name} }}}}");
        let place = if n % 3 == 0 { "fail" } else { "hook" };
        let (url, headers, payload) = match n % 4 {
            0 => (format!("{}/{place}/{n}", echo.url), json!({ "X-Token": reference }), None),
            1 => (format!("{}/{place}/{n}/{reference}", echo.url), json!({}), None),
            2 => (format!("{}/{place}/{n}?q={reference}&z=1", echo.url), json!({}), None),
            _ => (
                format!("{}/{place}/{n}", echo.url),
                json!({}),
                Some(json!({ "inner": { "token": reference } })),
            ),
        };
        let dead = json!({ "http": { "url": format!("{}/dead/{n}", echo.url), "headers": { "X-Token": reference } } });
        let more = [("dead_letter_target", dead)];
        jobs.push(register(
            &server,
            &name,
            &json!({ "url": url, "headers": headers }),
            payload.as_ref(),
            &more,
        ));
    }
    for (n, job) in jobs.iter().enumerate() {
        let run = ended(&server, job);
        let expected = if n % 3 == 0 { "failed" } else { "succeeded" };
        assert_eq!(run["state"], expected, "{run}");
        let output = run["attempts"][0]["output"]["text"].as_str().unwrap_or_default();
        assert!(output.contains(&format!("[secret c{n}]")), "it came back, and was taken out: {run}");
        shown.push((format!("run of c{n}"), run.to_string().into_bytes()));
    }
    // All of them arrived, and for dead letters a second time.
    wait_for("every canary has arrived", || {
        let received = echo.received();
        let count = |word: &str| received.iter().filter(|request| request.contains(word)).count();
        let is_there =
            |(n, (word, _)): (usize, &(String, String))| count(word) >= if n % 3 == 0 { 2 } else { 1 };
        canaries.iter().enumerate().all(is_there).then_some(())
    });
    // Wrong bodies, wrong names, values that no header can have.
    let (word, value) = &canaries[0];
    for body in [
        format!("{{\"value\":\"{value}"),
        format!("{{\"value\":[\"{value}\"]}}"),
        format!("{{\"valeu\":\"{value}\"}}"),
        format!("{{\"value\":\"{value}\",\"value\":\"{value}\"}}"),
        value.clone(),
    ] {
        let answer = call(server.address, "PUT", "/v1/secrets/wrong", &[], &body).unwrap();
        assert!((400..500).contains(&answer.status), "{}", answer.body);
        shown.push(("a refused body".into(), answer.body.into_bytes()));
    }
    assert_eq!(put(&server, "broken", &format!("{word}\r\nX-Evil: 1")).status, 201);
    let target = json!({ "url": format!("{}/hook/broken", echo.url), "headers": { "X-Token": "{{ secret.broken }}" } });
    let run = ended(&server, &register(&server, "broken", &target, None, &[]));
    assert_eq!(run["attempts"][0]["error"]["code"], "target_header_invalid", "{run}");
    shown.push(("a header that cannot be sent".into(), run.to_string().into_bytes()));
    let url = format!("{}/{}{{{{ secret.c0 }}}}", echo.url, "a".repeat(1_980));
    let run = ended(&server, &register(&server, "long", &json!({ "url": url }), None, &[]));
    assert_eq!(run["attempts"][0]["error"]["code"], "target_url_invalid", "{run}");
    shown.push(("a URL that is too long".into(), run.to_string().into_bytes()));
    // Everything that shows anything.
    for path in [
        "/v1/jobs?limit=1000",
        "/v1/runs?limit=1000",
        "/v1/dead-letters?limit=1000",
        "/v1/dead-letters/groups",
        "/v1/secrets?limit=1000",
        "/v1/secrets/c1",
        "/v1/forecast",
        "/v1/queues",
        "/v1/breakers",
    ] {
        shown.push((path.into(), server.get(path).to_string().into_bytes()));
    }
    let metrics = call(server.address, "GET", "/metrics", &[], "").unwrap();
    shown.push(("/metrics".into(), metrics.body.into_bytes()));
    let export = folder.path().join("export");
    for arguments in [
        vec!["export"],
        vec!["export", "--full", "-f", export.to_str().unwrap()],
        vec!["job", "list", "--all", "-o", "json"],
        vec!["run", "list", "--all", "-o", "json"],
        vec!["secret", "list", "--all"],
        vec!["secret", "list", "--all", "-o", "json"],
        vec!["secret", "rotate-key"],
    ] {
        let output = fed(&server, &arguments, "");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        shown.push((arguments.join(" "), said(&output).into_bytes()));
    }
    let backup = folder.path().join("backup");
    let output =
        command().args(["backup", backup.to_str().unwrap(), "--data", data.to_str().unwrap()]).output();
    assert!(output.unwrap().status.success());
    let mut found = files(&data);
    let (_, log) = server.stop();
    shown.push(("the log".into(), log.into_bytes()));
    found.extend(files(folder.path()));
    assert!(found.len() > 10, "{}", found.len());
    shown.extend(found.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes)));
    let master = "07".repeat(32);
    for (place, bytes) in &shown {
        for (word, _) in &canaries {
            assert!(!holds(bytes, word), "{word} is in {place}");
        }
        assert!(place.ends_with("secrets.key") || !holds(bytes, &master), "the master key is in {place}");
    }
    // The names are everywhere, so what was looked at is what there is.
    assert!(shown.iter().filter(|(_, bytes)| holds(bytes, "secret.c11")).count() > 5);
}

#[test]
fn without_a_master_key_everything_works_until_the_first_secret() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let echo = Echo::start();
    let server = Server::start(&data);
    let refused = put(&server, "token", "s3cret-value");
    assert_eq!((refused.status, refused.json()["code"].as_str().unwrap()), (409, "secrets_key_missing"));
    assert!(refused.body.contains("--secrets-key-file"), "the way out: {}", refused.body);
    assert_eq!(server.get("/v1/secrets")["items"], json!([]));
    let target = json!({ "url": format!("{}/hook", echo.url), "headers": { "Authorization": "Bearer {{ secret.token }}" } });
    let job = register(&server, "early", &target, None, &[]);
    let warning = job["warnings"][0].as_str().unwrap_or_default();
    assert!(warning.contains("`token`") && warning.contains("secret_not_found"), "{job}");
    let run = ended(&server, &job);
    assert_eq!(run["attempts"][0]["error"]["code"], "secret_not_found", "{run}");
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "another attempt would find as little");
    assert!(echo.received().is_empty());
    server.stop();
    let key = key_file(folder.path(), &[1]);
    let server = Server::start_with(&data, &["--secrets-key-file", &key]);
    assert_eq!(put(&server, "token", "s3cret-value").status, 201);
    let job = register(&server, "later", &target, None, &[]);
    assert!(job["warnings"].as_array().is_none_or(Vec::is_empty), "{job}");
    assert_eq!(ended(&server, &job)["state"], "succeeded");
    assert!(echo.received()[0].contains("Bearer s3cret-value"));
    server.stop();
    // The key is gone: other work goes on, and what needs it says so.
    let server = Server::start(&data);
    let run = ended(&server, &register(&server, "keyless", &target, None, &[]));
    assert_eq!(run["attempts"][0]["error"]["code"], "secret_unreadable", "{run}");
    let plain = register(&server, "plain", &json!({ "url": format!("{}/hook", echo.url) }), None, &[]);
    assert_eq!(ended(&server, &plain)["state"], "succeeded");
    let (_, log) = server.stop();
    assert!(log.contains("secrets cannot be opened by this node"), "{log}");
    let wrong = Server::try_start(&data, &["--secrets-key-file", "/nowhere/key"]).map(drop).unwrap_err();
    assert!(wrong.contains("/nowhere/key"), "{wrong}");
}

#[test]
fn what_others_say_does_not_get_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), &[1]);
    let echo = Echo::start();
    let server =
        Server::start_with(&folder.path().join("data"), &["--secrets-key-command", &format!("cat {key}")]);
    assert_eq!(put(&server, "token", "s3cret-value").status, 201);
    let target = json!({ "url": format!("{}/hook", echo.url) });
    let own = json!({ "token": "{{ secret.token }}" });
    let job = register(&server, "own", &target, Some(&own), &[]);
    assert_eq!(ended(&server, &job)["state"], "succeeded");
    assert!(echo.received()[0].contains(r#"{"token":"s3cret-value"}"#), "{:?}", echo.received());
    let trigger = format!("/v1/jobs/{}/trigger", job["id"].as_str().unwrap());
    let answer = server.post(&trigger, &json!({ "payload": { "said": "{{ secret.token }}" } }).to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    wait_for("the triggered run", || (echo.received().len() == 2).then_some(()));
    assert!(echo.received()[1].contains("{{ secret.token }}"), "{:?}", echo.received());
    // Nor does a host, which everybody sees.
    let job = json!({ "name": "h", "schedule": { "now": true }, "target": { "http": { "url": "http://{{ secret.token }}/" } } });
    let refused = server.post("/v1/jobs", &job.to_string());
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("path or the query"), "{}", refused.body);
    // A program that pulls gets what was written.
    let job = json!({
        "name": "pulled", "schedule": { "now": true }, "queue": "elsewhere",
        "target": { "worker": { "handler": "x" } }, "payload": own,
    });
    let pulled = server.post("/v1/jobs", &job.to_string()).json();
    assert!(pulled["warnings"].to_string().contains("`http` targets alone"), "{pulled}");
    let claimed = server
        .post("/v1/claims", &json!({ "queues": ["elsewhere"], "capacity": 1, "wait": "PT5S" }).to_string());
    assert_eq!(claimed.status, 200, "{}", claimed.body);
    assert!(
        claimed.body.contains("{{ secret.token }}") && !claimed.body.contains("s3cret"),
        "{}",
        claimed.body
    );
}

#[test]
fn a_master_key_is_rotated_under_two_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Postgres::shared().database();
    let key = key_file(folder.path(), &[1]);
    let echo = Echo::start();
    let node = |name: &str| {
        let data = folder.path().join(name);
        let arguments = ["--store", &store, "--secrets-key-file", &key, "--queues", name, "--log", "warn"];
        Server::start_with(&data, &arguments)
    };
    let (one, two) = (node("one"), node("two"));
    for n in 0..5 {
        assert_eq!(put(&one, &format!("t{n}"), &format!("s3cret-{n}")).status, 201);
    }
    let all_work = |when: &str| {
        for queue in ["one", "two"] {
            for n in 0..5 {
                let headers = json!({ "X-Token": format!("{{{{ secret.t{n} }}}}") });
                let target = json!({ "url": format!("{}/{when}/{queue}/{n}", echo.url), "headers": headers });
                let job = register(&one, when, &target, None, &[("queue", json!(queue))]);
                let run = ended(&one, &job);
                assert_eq!(run["state"], "succeeded", "{when}, {queue}: {run}");
            }
        }
        let received = echo.received();
        let of_now: Vec<&String> = received.iter().filter(|request| request.contains(when)).collect();
        assert_eq!(of_now.len(), 10, "{when}");
        for (n, request) in of_now.iter().enumerate() {
            assert!(request.contains(&format!("s3cret-{}", n % 5)), "{request}");
        }
    };
    all_work("before");
    let old = two.get("/v1/secrets")["items"][0]["master_key"].clone();
    key_file(folder.path(), &[2, 1]);
    all_work("both");
    let output = fed(&two, &["secret", "rotate-key", "-o", "json"], "");
    assert!(output.status.success(), "{}", said(&output));
    let rotated: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&rotated["resealed"], &rotated["unreadable"]), (&json!(5), &json!(0)), "{rotated}");
    assert_ne!(rotated["master_key"], old);
    all_work("rotated");
    for secret in one.get("/v1/secrets")["items"].as_array().unwrap() {
        assert_eq!(secret["master_key"], rotated["master_key"], "{secret}");
    }
    key_file(folder.path(), &[2]);
    let again: Value =
        serde_json::from_slice(&fed(&one, &["secret", "rotate-key", "-o", "json"], "").stdout).unwrap();
    assert_eq!((&again["resealed"], &again["already"]), (&json!(0), &json!(5)), "{again}");
    all_work("without");
    // What is sealed with a key that is gone is named, and left as it is.
    key_file(folder.path(), &[3]);
    let output = fed(&one, &["secret", "rotate-key"], "");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("5 could not be read") && said(&output).contains("keep the old keys"));
    key_file(folder.path(), &[3, 2]);
    assert!(fed(&one, &["secret", "rotate-key"], "").status.success());
    all_work("third");
}
