//! The audit with the real binary, on both stores: what is done on one node by a key is told by another, with the key's name; it outlives
//! a kill, and is exported.

use std::path::Path;

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::server::{Server, call, command};

/// Standard output of a command that succeeds.
fn done(arguments: &[&str]) -> String {
    let output = command().args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn changes_are_told_by_a_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    story(folder.path(), &[]);
    let checked = punctual_store_embedded::check(&folder.path().join("one"), jiff::Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn changes_are_told_by_a_database_and_every_node_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Postgres::shared().database();
    story(folder.path(), &["--store", &store]);
}

fn story(folder: &Path, store: &[&str]) {
    let data = folder.join("one");
    let first = Server::start_with(&data, store);
    let file = folder.join("ops.key").to_str().unwrap().to_string();
    let url = format!("http://{}", first.address);
    done(&["key", "create", "ops", "--role", "admin", "--save", &file, "--server", &url]);
    let asked = ["--server", &url, "--key-file", &file];
    let punctual = |arguments: &[&str]| done(&[arguments, &asked].concat());
    punctual(&["job", "create", "nightly", "--key", "nightly", "--cron", "0 3 * * *", "--discard"]);
    punctual(&["job", "pause", "key:nightly", "--reason", "moving"]);
    punctual(&["job", "resume", "key:nightly"]);
    punctual(&["job", "update", "key:nightly", "--name", "renamed"]);
    punctual(&["job", "trigger", "key:nightly"]);
    punctual(&["limit", "set", "all", "--max", "5"]);
    let versions: Value =
        serde_json::from_str(&punctual(&["job", "versions", "key:nightly", "-o", "json"])).unwrap();
    let told: Vec<(u64, &str, &str)> = versions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let action = one["action"].as_str().unwrap();
            (one["version"].as_u64().unwrap(), action, one["job"]["name"].as_str().unwrap())
        })
        .collect();
    let wanted =
        [(4, "edit", "renamed"), (3, "resume", "nightly"), (2, "pause", "nightly"), (1, "create", "nightly")];
    assert_eq!(told, wanted);
    assert!(punctual(&["job", "versions", "key:nightly"]).contains("ops"));
    // What was answered is there, however the server ends; on a database another node tells it.
    drop(first);
    let second = match store.is_empty() {
        true => Server::start_with(&data, store),
        false => Server::start_with(&folder.join("two"), store),
    };
    let url = format!("http://{}", second.address);
    let exported = done(&["audit", "export", "--server", &url, "--key-file", &file]);
    let entries: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<String> = entries
        .iter()
        .rev()
        .map(|entry| format!("{} {}", entry["kind"].as_str().unwrap(), entry["action"].as_str().unwrap()))
        .collect();
    let wanted =
        ["key create", "job create", "job pause", "job resume", "job edit", "run trigger", "limit create"];
    assert_eq!(told, wanted);
    assert_eq!(entries[6]["who"], json!({"name": "loopback"}), "there was no key yet");
    for entry in &entries[..6] {
        assert_eq!((&entry["who"]["name"], &entry["from"]), (&json!("ops"), &json!("127.0.0.1")), "{entry}");
        assert!(entry["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{entry}");
    }
    let list =
        done(&["audit", "list", "--kind", "job", "--action", "edit", "--server", &url, "--key-file", &file]);
    assert!(list.contains("ops") && list.contains("edit") && !list.contains("pause"), "{list}");
    // As others export it: in one stream.
    let key = std::fs::read_to_string(&file).unwrap();
    let bearer = format!("Bearer {}", key.trim());
    let headers = [("authorization", bearer.as_str()), ("accept", "application/x-ndjson")];
    let stream = call(second.address, "GET", "/v1/audit", &headers, "").unwrap();
    // Between the lines are the lengths of chunks.
    let lines: Vec<&str> = stream.body.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!((stream.status, lines), (200, exported.lines().collect::<Vec<_>>()));
}
