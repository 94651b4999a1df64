//! Alerts end to end: the real binary on both stores, killed in between; a webhook, a chat and a mailbox hear of what is not well
//! once, and once when it is over.

use std::time::{Duration, Instant};

use punctual_testing::{MailServer, Postgres};
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::{Server, command};

#[test]
fn everybody_hears_once_of_dead_letters_and_once_that_they_are_over() {
    let directory = tempfile::tempdir().unwrap();
    tell(&|more| Server::start_with(directory.path(), &[&["--log", "warn"], more].concat()));
}

#[test]
fn everybody_hears_once_of_dead_letters_and_once_that_they_are_over_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    tell(&|more| {
        let store = ["--log", "warn", "--store", &address, "--lease", "3", "--shard-lease", "2"];
        Server::start_with(directory.path(), &[&store, more].concat())
    });
}

fn tell(start: &dyn Fn(&[&str]) -> Server) {
    let (hook, mail) = (Hook::start(), MailServer::start());
    let smtp = mail.url();
    let settings = ["--smtp-url", &smtp, "--smtp-from", "Punctual <punctual@example.com>"];
    let server = start(&settings);
    let url = |path: &str| format!("{}{path}", hook.url);
    let (webhook, slack) = (url("/webhook"), url("/slack"));
    for (name, to) in [
        ("hook", ["--webhook", &webhook]),
        ("chat", ["--slack", &slack]),
        ("mail", ["--mail", "ops@example.com"]),
    ] {
        says(
            &server,
            &[&["alert", "put", name, "--on", "dead_letter", "--label", "team=core"], &to[..]].concat(),
        );
    }
    assert!(says(&server, &["alert", "list"]).contains("slack http://127.0.0.1"));
    assert!(says(&server, &["alert", "get", "mail"]).contains("told to mail ops@example.com"));
    let create = |name: &str, label: &str| {
        let fails = url("/fail");
        let job = [
            "job",
            "create",
            name,
            "--now",
            "--url",
            &fails,
            "--max-attempts",
            "1",
            "--key",
            name,
            "--label",
            label,
        ];
        says(&server, &job);
    };
    create("invoices", "team=core");
    create("unwatched", "team=web");
    let heard = |path: &str| -> Vec<Value> {
        let all = hook.received().into_iter().filter(|received| received.path == path);
        all.map(|received| serde_json::from_str(&received.body).unwrap()).collect()
    };
    let all_heard = |count: usize| {
        until(|| {
            let counts = [heard("/webhook").len(), heard("/slack").len(), mail.mails().len()];
            (counts == [count; 3]).then_some(()).ok_or(format!("{counts:?} of {count} heard"))
        });
    };
    all_heard(1);
    // What is heard is on its way to be recorded; a kill before that would have it told again.
    until(|| {
        let alarms: Value = serde_json::from_str(&says(&server, &["alert", "alarms", "-o", "json"])).unwrap();
        let items = alarms["items"].as_array().unwrap();
        let are_told = items.iter().all(|alarm| alarm["name"] == "invoices" && alarm["told"] == 1);
        (items.len() == 3 && are_told).then_some(()).ok_or(alarms.to_string())
    });
    until(|| {
        let open =
            ["pending", "running"].map(|state| server.get(&format!("/v1/runs?state={state}&limit=100")));
        let is_over = open.iter().all(|page| page["items"].as_array().unwrap().is_empty());
        is_over.then_some(()).ok_or(format!("{open:?}"))
    });
    assert!(says(&server, &["alert", "alarms"]).contains("invoices"));
    // What was raised is known to whoever comes after.
    server.kill();
    let server = start(&settings);
    says(&server, &["job", "update", "key:invoices", "--url", &url("/ok")]);
    says(&server, &["job", "trigger", "key:invoices"]);
    all_heard(2);
    until(|| {
        let alarms = server.get("/v1/alarms")["items"].clone();
        alarms.as_array().unwrap().is_empty().then_some(()).ok_or(alarms.to_string())
    });
    let told = heard("/webhook");
    let states: Vec<&Value> = told.iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["raised", "over"]);
    assert_eq!((&told[0]["alert"], &told[0]["subject"]["job"]["name"]), (&"hook".into(), &"invoices".into()));
    let said: Vec<String> =
        heard("/slack").iter().map(|one| one["text"].as_str().unwrap().to_string()).collect();
    assert!(
        said[0].starts_with("chat: dead letters of job invoices") && said[1].starts_with("chat: over"),
        "{said:?}"
    );
    let mails = mail.mails();
    for state in ["raised", "over"] {
        let subject = format!("Subject: [punctual] {state} mail: invoices");
        let one: Vec<&String> = mails.iter().filter(|mail| mail.contains(&subject)).collect();
        assert_eq!(one.len(), 1, "{mails:#?}");
        assert!(one[0].contains("To: ops@example.com") && one[0].contains("punctual@example.com"), "{one:?}");
    }
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    all_heard(2);
}

fn says(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until it is so; says what it was last, if it never is.
fn until(mut is_so: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while let Err(what) = is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
