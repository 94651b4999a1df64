//! `punctual apply` and `punctual export` end to end: the real binary against a real server.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::support::asked::{Asked, text};

/// Everything there is a document for.
const FILES: [(&str, &str); 3] = [
    (
        "repo/calendars.yaml",
        "kind: calendar
name: holidays
exclude_dates: ['12-25', 2026-04-06]
---
kind: limit
name: gentle
queue: mail
max: 5
---
kind: defaults
timeout: 1m
",
    ),
    (
        "repo/jobs/report.yaml",
        "# The chain begins here, and is written before what it needs.
kind: job
key: report
name: The report
labels: {team: billing}
schedule: {cron: '0 2 * * *', timezone: Europe/Paris, calendars: [holidays]}
target: {http: {url: 'http://127.0.0.1:9000/hook', headers: {X-A: b}}}
payload:
  amount: 1.50
  big: 12345678901234567890
  text: |
    two
    lines
links: [{on: succeeded, job: send}]
retry: {backoff: list, delays: [1s, 1m]}
---
kind: job
key: send
labels: {team: billing}
schedule: {every: 1h}
target: {worker: {handler: send}}
queue: mail
paused: {reason: not yet}
",
    ),
    (
        "repo/alert.json",
        r#"{"kind": "alert", "name": "dead", "on": "dead_letter", "jobs": {"labels": {"team": "billing"}},
            "to": {"webhook": {"url": "http://127.0.0.1:9000/alarm"}}}"#,
    ),
];

fn with_files() -> Asked {
    let asked = Asked::start();
    for (name, text) in FILES {
        asked.file(name, text);
    }
    asked
}

#[test]
fn files_become_jobs_and_applying_twice_changes_nothing() {
    let asked = with_files();
    let dry = asked.says(&["apply", "-f", "repo", "--dry-run"]);
    assert!(dry.contains("+ job report  (repo/jobs/report.yaml:2)"), "{dry}");
    assert!(dry.contains("plan: 5 would be created, 1 changed, 0 deleted; 0 stay"), "{dry}");
    assert_eq!(asked.json(&["job", "list"])["items"].as_array().unwrap().len(), 0);

    let (code, _) = asked.ends(&["apply", "-f", "repo", "--exit-code"]);
    assert_eq!(code, 6, "something was different, and is applied");
    let job = asked.json(&["job", "get", "key:report"]);
    assert_eq!((&job["timeout"], &job["links"][0]["job"]), (&"PT1M".into(), &"send".into()), "{job}");
    let raw = asked.says(&["job", "get", "key:report", "-o", "json"]);
    assert!(raw.contains("1.50") && raw.contains("12345678901234567890"), "numbers stay as written: {raw}");
    assert_eq!(asked.json(&["job", "get", "key:send"])["paused"]["reason"], "not yet");

    let again = asked.run(&["apply", "-f", "repo", "--exit-code"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout), "nothing to change: 6 are as they should be\n");
    assert_eq!(asked.json(&["job", "get", "key:report"])["version"], 1);
}

#[test]
fn export_change_plan_apply_and_export_are_equal() {
    let asked = with_files();
    asked.says(&["apply", "-f", "repo"]);
    let before = asked.says(&["export"]);
    assert!(before.contains("kind: calendar\nname: holidays\n"), "{before}");
    assert!(!before.contains("lane:"), "what nobody said is left out: {before}");
    let unchanged = asked.fed(&["apply", "-f", "-", "--exit-code"], &before);
    assert_eq!(unchanged.status.code(), Some(0), "{}", text(&unchanged.stdout));
    let full = asked.says(&["export", "--full"]);
    assert!(full.contains("lane: standard"), "{full}");
    assert_eq!(asked.fed(&["apply", "-f", "-", "--exit-code"], &full).status.code(), Some(0));

    let changed = before
        .replace("cron: 0 2 * * *", "cron: 0 3 * * *")
        .replace("amount: 1.50", "amount: 1.75")
        .replace("max: 5", "max: 6");
    assert_ne!(changed, before);
    let planned = asked.fed(&["apply", "-f", "-", "--dry-run", "-o", "json"], &changed);
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let changes: Vec<String> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step["changes"].as_array().cloned().unwrap_or_default())
        .map(|change| format!("{} {} {}", change["pointer"].as_str().unwrap(), change["old"], change["new"]))
        .collect();
    let expected = ["/max 5 6", r#"/schedule/cron "0 2 * * *" "0 3 * * *""#, "/payload/amount 1.5 1.75"];
    assert_eq!(changes, expected, "{plan:#}");
    let page = text(&asked.fed(&["apply", "-f", "-"], &changed).stdout);
    assert!(page.contains("    schedule.cron: 0 2 * * * -> 0 3 * * *\n"), "{page}");
    assert!(page.contains("applied: 0 created, 2 changed, 0 deleted"), "{page}");
    assert_eq!(asked.says(&["export"]), changed, "what was applied is what is exported");

    // The same in files.
    asked.says(&["export", "-f", "out"]);
    assert!(asked.path("out/jobs/report.yaml").exists() && asked.path("out/defaults.yaml").exists());
    assert_eq!(asked.ends(&["apply", "-f", "out", "--exit-code"]).0, 0);
    asked.file("out/jobs/old.yaml", "kind: job");
    let (_, notes) = asked.ends(&["export", "-f", "out"]);
    assert!(notes.contains("old.yaml is not part of this export"), "{notes}");
}

#[test]
fn jobs_with_the_label_that_are_not_in_the_files_are_pruned() {
    let asked = with_files();
    asked.says(&["apply", "-f", "repo"]);
    let create = |key: &str, label: &str| {
        asked.says(&["job", "create", "--key", key, "--every", "1h", "--discard", "--label", label]);
    };
    create("stale", "team=billing");
    create("other", "team=sales");
    let prune = ["apply", "-f", "repo", "--prune", "--label", "team=billing"];
    let (code, message) = asked.ends(&prune);
    assert_eq!((code, message.contains("--yes")), (2, true), "nobody can be asked: {message}");
    let page = asked.says(&[&prune[..], &["--yes"]].concat());
    assert!(page.contains("- job stale  (not in the files)"), "{page}");
    assert_eq!(asked.ends(&["job", "get", "key:stale"]).0, 3);
    asked.says(&["job", "get", "key:other"]);
    asked.says(&["job", "get", "key:send"]);
    assert_eq!(asked.ends(&[&prune[..], &["--exit-code"]].concat()).0, 0);
    assert_eq!(asked.ends(&["apply", "-f", "repo", "--prune"]).0, 2, "a label is needed");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_and_nothing_is_changed() {
    let asked = Asked::start();
    asked.file("repo/a.yaml", "kind: job\nkey: good\nschedule: {every: 1h}\ntarget: {discard: {}}\n");
    asked.file(
        "repo/b.yaml",
        "kind: job\nkey: bad\nschedule: {cron: '99 * * * *'}\ntarget: {discard: {}}\nqueu: x\n---\nkind: calender\n",
    );
    asked.file(
        "repo/c.yaml",
        "kind: job\nkey: lost\nschedule: {every: 1h, calendars: [gone]}\ntarget: {discard: {}}\n",
    );
    let (code, message) = asked.ends(&["apply", "-f", "repo"]);
    assert_eq!(code, 2, "{message}");
    for words in [
        "repo/b.yaml:3: document 1, /schedule/cron: ",
        "repo/b.yaml:5: document 1, /queu: unknown field `queu`; did you mean `queue`?",
        "repo/b.yaml:7: document 2, /kind: \"calender\" is not known; did you mean `calendar`?",
    ] {
        assert!(message.contains(words), "{words}\n{message}");
    }
    fs::remove_file(asked.path("repo/b.yaml")).unwrap();
    let (code, message) = asked.ends(&["apply", "-f", "repo"]);
    assert_eq!(
        (code, message.contains("/schedule/calendars/0: there is no calendar `gone`")),
        (2, true),
        "{message}"
    );
    assert_eq!(asked.json(&["job", "list"])["items"].as_array().unwrap().len(), 0);
    asked.file("repo/d.yaml", "kind: job\nschedule: * * * * *\n");
    let (_, message) = asked.ends(&["apply", "-f", "repo"]);
    assert!(message.contains("repo/d.yaml:2") && message.contains("needs quotes"), "{message}");
    assert_eq!(asked.ends(&["apply", "-f", "nowhere"]).0, 2);
}

#[test]
fn what_somebody_else_changed_is_not_overwritten() {
    let asked = Asked::start();
    let job = "kind: job\nkey: a\nschedule: {every: 1h}\ntarget: {discard: {}}\n";
    let path = asked.file("a.yaml", job);
    asked.says(&["apply", "-f", &path]);
    // Somebody takes it home, and meanwhile it is changed.
    let taken = asked.says(&["job", "get", "key:a", "-o", "yaml"]);
    asked.says(&["job", "update", "key:a", "--timeout", "9m"]);
    let (code, message) = {
        let output = asked.fed(&["apply", "-f", "-"], &format!("kind: job\n{taken}"));
        (output.status.code().unwrap(), text(&output.stderr))
    };
    assert_eq!((code, message.contains("it has version 2 now")), (4, true), "{message}");
    // Without a version it is a change like any other, and the plan says what it undoes.
    let page = asked.says(&["apply", "-f", &path]);
    assert!(page.contains("timeout: PT9M -> PT5M"), "{page}");
}

#[test]
fn what_changes_between_the_plan_and_the_answer_is_refused() {
    let asked = Asked::start();
    let job = "kind: job\nkey: a\nlabels: {app: x}\nschedule: {every: 1h}\ntarget: {discard: {}}\n";
    asked.file("a.yaml", job);
    asked.says(&["apply", "-f", "a.yaml"]);
    asked.says(&["job", "create", "--key", "old", "--every", "1h", "--discard", "--label", "app=x"]);
    asked.file("a.yaml", &job.replace("1h", "2h"));
    // `script` gives it a terminal, so that it asks.
    let binary = env!("CARGO_BIN_EXE_punctual");
    let line = format!("{binary} apply -f a.yaml --prune --label app=x --server {}", asked.server.url());
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(asked.path("."))
        .env("XDG_CONFIG_HOME", "/nowhere")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut shown, mut bytes) = (String::new(), BufReader::new(child.stdout.take().unwrap()).bytes());
    while !shown.contains("[y/N]") {
        shown.push(char::from(bytes.next().expect("it asks").unwrap()));
    }
    asked.says(&["job", "update", "key:a", "--timeout", "9m"]);
    child.stdin.take().unwrap().write_all(b"y\n").unwrap();
    let rest: Vec<u8> = bytes.map(Result::unwrap).collect();
    let rest = text(&rest);
    assert_eq!(child.wait().unwrap().code(), Some(4), "{rest}");
    assert!(rest.contains("job `a`: somebody else has changed it since it was read"), "{rest}");
    let kept = asked.json(&["job", "get", "key:a"]);
    assert_eq!((&kept["schedule"]["every"], &kept["timeout"]), (&"PT1H".into(), &"PT9M".into()));
    assert!(rest.contains("1 more were not tried"), "{rest}");
    assert_eq!(asked.ends(&["job", "get", "key:old"]).0, 0, "nothing is deleted while something was refused");
}

#[test]
fn a_pause_is_left_alone_unless_the_file_speaks_of_it() {
    let asked = Asked::start();
    let job = "kind: job\nkey: a\nschedule: {every: 1h}\ntarget: {discard: {}}\n";
    let silent = asked.file("a.yaml", job);
    asked.says(&["apply", "-f", &silent]);
    asked.says(&["job", "pause", "key:a", "--reason", "fire"]);
    assert_eq!(asked.ends(&["apply", "-f", &silent, "--exit-code"]).0, 0);
    let resumed = asked.file("b.yaml", &format!("{job}paused: false\n"));
    let page = asked.says(&["apply", "-f", &resumed]);
    assert!(page.contains("paused: ") && page.contains("-> false"), "{page}");
    assert_eq!(asked.json(&["job", "get", "key:a"])["state"], "active");
}

#[test]
fn nothing_to_apply_prunes_nothing() {
    let asked = Asked::start();
    let label = ["--label", "app=x", "--yes"];
    asked.says(&["job", "create", "--key", "kept", "--every", "1h", "--discard", "--label", "app=x"]);
    let empty = asked.fed(&["apply", "-f", "-", "--prune", "--label", "app=x", "--yes"], "");
    assert_eq!(empty.status.code(), Some(2), "{}", text(&empty.stderr));
    assert!(text(&empty.stderr).contains("has no document"), "{}", text(&empty.stderr));
    asked.file("only.yaml", "kind: calendar\nname: c\nexclude_dates: ['12-25']\n");
    let (code, said) = asked.ends(&[&["apply", "-f", "only.yaml", "--prune"], &label[..]].concat());
    assert!(code == 2 && said.contains("without a single job"), "{code} {said}");
    assert_eq!(asked.ends(&["job", "get", "key:kept"]).0, 0);
}

#[test]
fn jobs_that_no_document_can_name_are_left_alone() {
    let asked = Asked::start();
    let keyless = asked.json(&["job", "create", "--every", "1h", "--discard", "--label", "app=x"]);
    asked.file(
        "a.yaml",
        "kind: job\nkey: a\nlabels: {app: x}\nschedule: {every: 1h}\ntarget: {discard: {}}\n",
    );
    let output = asked.run(&["apply", "-f", "a.yaml", "--prune", "--label", "app=x", "--yes"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 jobs with the label have no key"), "{}", text(&output.stderr));
    assert_eq!(asked.ends(&["job", "get", keyless["id"].as_str().unwrap()]).0, 0);
}

#[test]
fn an_export_after_a_change_of_defaults_changes_no_job() {
    let asked = Asked::start();
    asked.says(&["job", "create", "--key", "old", "--every", "1h", "--discard"]);
    asked.file("defaults.json", r#"{"deadline": "PT2H", "retention": {"last": 7}}"#);
    asked.says(&["tenant", "defaults", "default", "-f", "defaults.json"]);
    for full in [&[][..], &["--full"]] {
        let exported = asked.says(&[&["export"][..], full].concat());
        let output = asked.fed(&["apply", "-f", "-", "--dry-run", "--exit-code"], &exported);
        assert_eq!(output.status.code(), Some(0), "{}\n{exported}", text(&output.stdout));
    }
}

#[test]
fn headers_that_are_there_twice_do_not_keep_others_from_being_exported() {
    let asked = Asked::start();
    let twice = r#"{"key":"twice","schedule":{"every":"PT1H"},"target":{"http":{"url":"http://127.0.0.1:9000/","headers":{"X-A":"1","X-A":"2"}}}}"#;
    let answer = asked.server.post("/v1/jobs", twice);
    assert_eq!(answer.status, 201, "{}", answer.body);
    asked.says(&["job", "create", "--key", "other", "--every", "1h", "--discard"]);
    assert!(asked.says(&["export"]).contains("key: other"));
    assert!(asked.says(&["job", "list", "-o", "yaml"]).contains("twice"));
}

#[test]
fn a_pause_that_is_over_asks_for_nothing() {
    let asked = Asked::start();
    let job = "kind: job\nkey: a\nschedule: {every: 1h}\ntarget: {discard: {}}\n";
    let path =
        asked.file("a.yaml", &format!("{job}paused: {{reason: move, until: '2020-01-01T00:00:00Z'}}\n"));
    asked.says(&["apply", "-f", &path]);
    assert_eq!(asked.json(&["job", "get", "key:a"])["state"], "active");
    assert_eq!(asked.ends(&["apply", "-f", &path, "--exit-code"]).0, 0);
}
