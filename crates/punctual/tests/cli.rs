//! The commands that ask a server, end to end: the real binary against a real server on a port of its own.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::server::{Server, command};

/// A server in a directory of its own, and the commands that ask it.
struct Remote {
    server: Server,
    directory: tempfile::TempDir,
}

impl Remote {
    fn start() -> Remote {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start_with(&directory.path().join("data"), &["--log", "warn"]);
        Remote { server, directory }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command().args(arguments).args(["--server", &self.url()]).output().unwrap()
    }

    /// What a command that succeeds says.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// The exit code and message of a command that fails.
    fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), text(&output.stderr))
    }

    /// The run of a job, once it is in a state.
    fn run_in_state(&self, job: &str, state: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let runs = self.json(&["run", "list", "--job", job, "--state", state]);
            if let Some(run) = runs["items"].as_array().unwrap().first() {
                return run.clone();
            }
            assert!(Instant::now() < until, "no run of {job} is {state}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap()
}

/// Receives one call after another and answers each; returns what was sent.
fn receiver(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut received = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut chunk = [0; 4_096];
            while !is_whole(&text(&request)) {
                let read = socket.read(&mut chunk).unwrap();
                assert!(read > 0, "the call broke off");
                request.extend_from_slice(&chunk[..read]);
            }
            socket.write_all(answer.as_bytes()).unwrap();
            received.push(text(&request));
        }
        received
    });
    (url, thread)
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.to_ascii_lowercase();
    let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    body.len() >= length.map_or(0, |length| length.trim().parse().unwrap())
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone";
const BROKEN: &str = "HTTP/1.1 500 Oh\r\ncontent-length: 11\r\nconnection: close\r\n\r\nno database";

#[test]
fn a_job_goes_through_its_life() {
    let server = Remote::start();
    let (url, received) = receiver(vec![OK]);
    let job = server.json(&[
        "job",
        "create",
        "nightly",
        "--cron",
        "0 2 * * *",
        "--tz",
        "Europe/Paris",
        "--url",
        &url,
        "--payload",
        r#"{"n": 7}"#,
        "--key",
        "report",
        "--max-attempts",
        "5",
        "--timeout",
        "30s",
        "--label",
        "team=ops",
        "--header",
        "X-Test: yes",
        "--type",
        "mail",
        "--lane",
        "batch",
        "--priority",
        "-3",
    ]);
    assert_eq!(job["state"], "active");
    assert_eq!(job["schedule"]["timezone"], "Europe/Paris");
    assert_eq!(job["retry"]["max_attempts"], 5);
    assert_eq!(job["timeout"], "PT30S");
    assert_eq!((&job["lane"], &job["priority"]), (&"batch".into(), &(-3).into()));

    let page = server.says(&["job", "get", "key:report"]);
    assert!(page.contains("NEXT SLOTS") && page.contains("T02:00:00+0"), "{page}");
    assert!(page.contains("last run") && page.contains("none yet"), "{page}");
    let list = server.says(&["job", "list", "--label", "team=ops"]);
    assert!(list.contains("nightly") && list.contains("0 2 * * * Europe/Paris"), "{list}");

    let changed = server.json(&["job", "update", "key:report", "--every", "1h", "--payload", r#"{"m":1}"#]);
    assert_eq!(changed["version"], 2);
    assert_eq!(changed["schedule"]["every"], "PT1H");
    assert_eq!(changed["payload"], serde_json::json!({"m": 1}));
    assert_eq!(changed["target"]["http"]["headers"]["X-Test"], "yes");

    let until = ["--until", "2199-01-01T08:00:00Z"];
    server.says(&["job", "pause", "key:report", "--reason", "holidays", "--by", "ann", until[0], until[1]]);
    let page = server.says(&["job", "get", id(&job)]);
    assert!(page.contains("paused by ann since") && page.contains("holidays"), "{page}");
    assert!(page.contains(" until Tue 2199-01-01"), "{page}");
    server.says(&["job", "resume", "key:report"]);

    let run = server.json(&["job", "trigger", "key:report", "--correlation-id", "c1"]);
    server.run_in_state("key:report", "succeeded");
    let page = server.says(&["run", "get", id(&run)]);
    assert!(page.contains("succeeded") && page.contains("trigger") && page.contains("done"), "{page}");
    let call = received.join().unwrap().remove(0);
    assert!(call.contains(r#"{"m":1}"#) && call.to_ascii_lowercase().contains("x-test: yes"), "{call}");

    server.says(&["job", "delete", "key:report"]);
    assert_eq!(server.fails(&["job", "get", id(&job)]).0, 3);
}

#[test]
fn a_file_is_read_edited_and_written_back_unless_it_changed_meanwhile() {
    let server = Remote::start();
    let file = server.path("job.json");
    let body =
        r#"{"name":"a","key":"k","schedule":{"after":"PT1H"},"target":{"discard":{}},"payload":{"n": 1.50}}"#;
    std::fs::write(&file, body).unwrap();
    server.says(&["job", "create", "-f", &file]);
    let (code, message) = server.fails(&["job", "create", "-f", &file]);
    assert_eq!(code, 4, "{message}");
    server.says(&["job", "create", "--key", "k", "--upsert", "-f", &file, "--queue", "other"]);

    let read = server.says(&["job", "get", "key:k", "-o", "json"]);
    assert!(read.contains(r#""payload":{"n": 1.50}"#), "{read}");
    std::fs::write(&file, read.replace(r#""name":"a""#, r#""name":"b""#)).unwrap();
    let changed = server.json(&["job", "update", "key:k", "-f", &file]);
    assert_eq!((&changed["name"], &changed["queue"]), (&"b".into(), &"other".into()));
    let (code, message) = server.fails(&["job", "update", "key:k", "-f", &file]);
    assert_eq!(code, 4, "{message}");
    server.says(&["job", "update", "key:k", "-f", &file, "--force"]);
    std::fs::write(&file, r#"{"labels":{"a":"b"}}"#).unwrap();
    let merged = server.json(&["job", "update", "key:k", "-f", &file, "--merge"]);
    assert_eq!((&merged["labels"]["a"], &merged["name"]), (&"b".into(), &"b".into()));
}

#[test]
fn wrong_input_is_told_field_by_field() {
    let server = Remote::start();
    let (code, message) =
        server.fails(&["job", "create", "x", "--cron", "0 2 * * FRY", "--url", "ftp://host"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("/schedule/cron: ") && message.contains("/target/http/url: "), "{message}");
    let (code, message) = server.fails(&["job", "create", "x", "--now", "--discard", "--payload", "hello"]);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("--payload is not JSON"), "{message}");
    assert_eq!(server.fails(&["job", "create", "x", "--now", "--every", "5s"]).0, 2);
    assert_eq!(server.fails(&["job", "update", "key:none", "--every", "5s"]).0, 3);
    assert_eq!(server.fails(&["run", "get", "nothing"]).0, 3);
    assert_eq!(server.fails(&["dead-letter", "redrive"]).0, 2);
    assert_eq!(server.fails(&["job", "list", "--tenant", "nobody"]).0, 3);
}

#[test]
fn a_server_that_is_not_there_is_said_with_the_way_out() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = command().args(["run", "list", "--server", &address.to_string()]).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains(&format!("http://{address}")), "{message}");
    assert!(message.contains("is `punctual serve` running there?"), "{message}");
    let output = command().args(["run", "list", "--server", "ftp://x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_dead_run_is_understood_redriven_and_acknowledged() {
    let server = Remote::start();
    let (url, received) = receiver(vec![BROKEN, BROKEN, OK]);
    let create = ["job", "create", "x", "--now", "--url", &url, "--key"];
    let create = |key: &str| server.json(&[&create[..], &[key, "--max-attempts", "1"]].concat());
    create("one");
    let run = server.run_in_state("key:one", "failed");
    let page = server.says(&["run", "get", id(&run)]);
    assert!(page.contains("500") && page.contains("no database"), "{page}");
    assert!(page.contains(&format!("punctual run retry {}", id(&run))), "{page}");
    create("two");
    let other = server.run_in_state("key:two", "failed");

    let dead = server.json(&["dead-letter", "list", "--all"]);
    assert_eq!(dead["items"].as_array().unwrap().len(), 2);
    server.says(&["dead-letter", "acknowledge", id(&other)]);
    let (code, message) = server.fails(&["dead-letter", "acknowledge", id(&other)]);
    assert!(code == 3 || code == 4, "{code} {message}");
    let done = server.json(&["dead-letter", "redrive", "--job", "key:one"]);
    assert_eq!((&done["state"], &done["done"]), (&"succeeded".into(), &1.into()));
    let operations = server.json(&["operation", "list", "--state", "succeeded"]);
    assert_eq!(operations["items"], serde_json::json!([done]));
    let page = server.says(&["operation", "get", id(&done)]);
    assert!(page.contains("redrive") && page.contains("succeeded"), "{page}");
    assert!(server.says(&["operation", "list"]).contains(id(&done)));
    let (code, message) = server.fails(&["operation", "cancel", id(&done)]);
    assert_eq!(code, 4, "{message}");
    assert_eq!(server.fails(&["operation", "get", "none"]).0, 3);
    server.run_in_state("key:one", "succeeded");
    assert_eq!(server.json(&["dead-letter", "list"])["items"], serde_json::json!([]));
    let (code, message) = server.fails(&["run", "retry", id(&run)]);
    assert_eq!(code, 4, "{message}");
    assert_eq!(received.join().unwrap().len(), 3);
}

#[test]
fn a_waiting_run_is_cancelled() {
    let server = Remote::start();
    // Nobody listens: the first attempt fails, and the second is long away.
    let url = format!("http://{}/", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let job = server.json(&[
        "job",
        "create",
        "x",
        "--now",
        "--url",
        &url,
        "--retry-base",
        "1h",
        "--retry-cap",
        "2h",
    ]);
    let until = Instant::now() + Duration::from_secs(30);
    let run = loop {
        let runs = server.json(&["run", "list", "--job", id(&job), "--waiting-for", "retry"]);
        match runs["items"].as_array().unwrap().first() {
            Some(run) => break run.clone(),
            None => assert!(Instant::now() < until, "no retry"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let page = server.says(&["run", "get", id(&run)]);
    assert!(page.contains("waits for retry until") && page.contains("connect"), "{page}");
    assert_eq!(server.json(&["run", "cancel", id(&run)])["state"], "cancelled");
}

#[test]
fn runs_wait_for_each_other_and_slots_of_the_past_are_run() {
    let server = Remote::start();
    let job =
        server.json(&["job", "create", "hourly", "--cron", "0 * * * *", "--discard", "--overlap", "skip"]);
    assert_eq!(job["overlap"]["policy"], "skip");
    let page = server.says(&["job", "get", id(&job)]);
    assert!(page.contains("overlap") && page.contains("skip"), "{page}");
    let changed = server.json(&["job", "update", id(&job), "--overlap", "queue_all", "--overlap-max", "30"]);
    assert_eq!(
        (&changed["overlap"]["policy"], &changed["overlap"]["max"]),
        (&"queue_all".into(), &30.into())
    );
    let range = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"];
    let with = |more: &[&str]| -> Vec<String> {
        let job = ["job", "backfill", id(&job)];
        job.iter().chain(&range).chain(more).map(std::string::ToString::to_string).collect()
    };
    let words = with(&["--dry-run"]);
    let told = server.says(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(told.starts_with("24 slots would run, from "), "{told}");
    let words = with(&["--rate", "1000", "--overlap", "queue_all", "--idempotency-key", "k"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = server.says(&words);
    assert!(told.starts_with("backfilling 24 slots: operation "), "{told}");
    assert_eq!(server.says(&words), told, "once under one key");
    let (code, said) =
        server.fails(&["job", "backfill", id(&job), "--from", "2026-01-02T00:00:00Z", "--to", "0"]);
    assert!(code == 2 && said.contains("`to` is not later than `from`"), "{code} {said}");
    let operation = told.split_whitespace().nth(4).unwrap().to_owned();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let runs = server.json(&["run", "list", "--job", id(&job), "--state", "succeeded"]);
        let runs = runs["items"].as_array().unwrap();
        if runs.len() == 24 && runs.iter().all(|run| run["cause"] == "backfill") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{}", server.says(&["operation", "get", &operation]));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let page = server.says(&["operation", "get", &operation]);
    assert!(page.contains("backfill") && page.contains("24 of 24"), "{page}");
    let waiting = server.json(&["run", "list", "--waiting-for", "earlier_run"]);
    assert_eq!(waiting["items"].as_array().unwrap().len(), 0);
}

#[test]
fn a_tenant_has_defaults_and_a_job_says_what_is_kept_of_its_runs() {
    let remote = Remote::start();
    remote.says(&["tenant", "create", "acme"]);
    assert_eq!(remote.says(&["tenant", "defaults", "acme"]), "tenant acme has no defaults\n");
    let file = remote.path("defaults.json");
    std::fs::write(&file, r#"{"retention":{"days":30,"failures":true},"timeout":"1m"}"#).unwrap();
    let shown = remote.says(&["tenant", "defaults", "acme", "-f", &file]);
    assert!(shown.contains("\"failures\": true"), "{shown}");
    std::fs::write(&file, r#"{"retention":{"days":3}}"#).unwrap();
    let (code, said) = remote.fails(&["tenant", "defaults", "acme", "-f", &file]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("/retention/days"), "{said}");

    let body = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\nhello world";
    let (url, received) = receiver(vec![body]);
    let create = ["job", "create", "kept", "--now", "--url", &url, "--tenant", "acme"];
    let job = remote.json(&[&create[..], &["--retention-last", "10", "--output-max", "5"]].concat());
    let kept = serde_json::json!({"days":30,"failures":true,"last":10,"output_max":5});
    assert_eq!((&job["retention"], &job["timeout"]), (&kept, &"PT1M".into()));
    assert_eq!(received.join().unwrap().len(), 1);
    let acme = ["--tenant", "acme"];
    let until = Instant::now() + Duration::from_secs(30);
    let run = loop {
        let list = ["run", "list", "--job", id(&job), "--state", "succeeded"];
        let runs = remote.json(&[&list[..], &acme].concat());
        if let Some(run) = runs["items"].as_array().unwrap().first() {
            break run.clone();
        }
        assert!(Instant::now() < until, "the job does not succeed");
        std::thread::sleep(Duration::from_millis(50));
    };
    let run = remote.json(&[&["run", "get", id(&run)][..], &acme].concat());
    let output = &run["attempts"][0]["output"];
    assert_eq!((&output["text"], &output["is_truncated"]), (&"hello".into(), &true.into()), "{output}");
    let page = remote.says(&[&["job", "get", id(&job)][..], &acme].concat());
    let line = "30 days, successes 1 day, lists show the last 10, 5 bytes of output";
    assert!(page.contains(line), "{page}");
    let update = ["job", "update", id(&job), "--retention-last", "off", "--retention", "400"];
    let job = remote.json(&[&update[..], &acme].concat());
    assert_eq!(job["retention"], serde_json::json!({"days":400,"failures":true,"output_max":5}));
    assert_eq!(remote.says(&["tenant", "defaults", "acme", "--clear"]), "tenant acme has no defaults\n");
}

#[test]
fn jobs_are_imported_and_exported() {
    let server = Remote::start();
    let (from, to) = (server.path("from.ndjson"), server.path("to.ndjson"));
    let mut lines = String::new();
    for n in 0..2_500 {
        lines.push_str(&format!(
            "{{\"name\":\"n{n}\",\"schedule\":{{\"every\":\"PT1H\"}},\"target\":{{\"discard\":{{}}}},\"payload\":{{\"n\": {n}.0}}}}\n"
        ));
    }
    std::fs::write(&from, &lines).unwrap();
    let said = server.says(&["job", "import", &from]);
    assert!(said.contains("2500 jobs registered"), "{said}");
    assert!(server.says(&["job", "export", &to]).contains("2500 jobs written"));
    let exported = std::fs::read_to_string(&to).unwrap();
    assert_eq!(exported.lines().count(), 2_500);
    assert!(exported.contains("\"payload\":{\"n\": 17.0}"), "payloads stay as they were written");
    assert_eq!(server.json(&["job", "list", "--all"])["items"].as_array().unwrap().len(), 2_500);

    // Of what is paused it says that an import does not know.
    let paused = server.path("paused.ndjson");
    let first = server.json(&["job", "list"])["items"][0].clone();
    server.says(&["job", "pause", id(&first)]);
    let output = server.run(&["job", "export", &paused, "--state", "paused"]);
    assert_eq!(std::fs::read_to_string(&paused).unwrap().lines().count(), 1);
    let note = text(&output.stderr);
    assert!(note.contains("1 of them are paused; an import registers them active"), "{note}");

    // What was exported can be imported, for another tenant too.
    server.says(&["tenant", "create", "acme"]);
    let tenants = server.json(&["tenant", "list"]);
    assert_eq!(tenants["items"].as_array().unwrap().len(), 2);
    let said = server.says(&["job", "import", &to, "--tenant", "acme", "--idempotency-key", "again"]);
    assert!(said.contains("2500 jobs registered"), "{said}");
    let said = server.says(&["job", "import", &to, "--tenant", "acme", "--idempotency-key", "again"]);
    assert!(said.contains("0 jobs registered, 2500 were there already"), "{said}");

    std::fs::write(
        &from,
        "{\"name\":7}\nno JSON\n{\"schedule\":{\"now\":true},\"target\":{\"discard\":{}}}\n",
    )
    .unwrap();
    let output = server.run(&["job", "import", &from]);
    let (said, wrong) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{wrong}");
    assert!(said.contains("1 jobs registered, 2 lines refused"), "{said}");
    assert!(wrong.contains("line 1: ") && wrong.contains("line 2: ") && wrong.contains("/name"), "{wrong}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let server = Remote::start();
    server.says(&["job", "create", "x", "--every", "1h", "--discard"]);
    for arguments in [&["job", "list"][..], &["job", "export"], &["job", "list", "--all", "-o", "json"]] {
        let mut process = command()
            .args(arguments)
            .args(["--server", &server.url()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(process.stdout.take());
        assert!(process.wait().unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn a_running_server_is_backed_up_and_the_backup_restored_and_checked() {
    let server = Remote::start();
    server.says(&["job", "create", "x", "--every", "1h", "--discard", "--key", "k"]);
    let (data, backup, restored) = (server.path("data"), server.path("backup"), server.path("restored"));
    let run = |arguments: &[&str]| {
        let output = command().args(arguments).output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = run(&["check", &data]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("punctual backup TO"), "{said}");
    let (code, said) = run(&["backup", &backup, "--data", &data]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 jobs"), "{said}");
    assert_eq!(run(&["backup", &backup, "--data", &data]).0, 2);
    let (code, said) = run(&["check", &backup]);
    assert!(code == 0 && said.contains("everything is as it must be"), "{said}");
    // The server goes on as if nothing had been.
    server.says(&["job", "create", "y", "--every", "1h", "--discard"]);

    let (code, said) = run(&["restore", &backup, "--data", &restored]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = run(&["check", &restored, "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    let checked: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&checked["jobs"], &checked["is_sound"]), (&1.into(), &true.into()));
    assert_eq!(run(&["restore", &server.path("nothing"), "--data", &server.path("other")]).0, 2);
    assert_ne!(run(&["check", &server.path("nothing")]).0, 0);
    assert!(!Path::new(&server.path("nothing")).exists());
    assert_ne!(run(&["backup", &server.path("b2"), "--data", &server.path("nothing")]).0, 0);
}
