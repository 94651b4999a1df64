//! `punctual migrate` and `serve --no-migrate`, with the real binary.

use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::server::{Server, command};

/// Runs a command: its exit code and what it printed.
fn run(words: &[&str]) -> (i32, String, String) {
    let output = command().args(words).env_remove("PUNCTUAL_STORE").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_server_that_may_not_migrate_waits_for_the_command() {
    let database = Postgres::shared();
    let address = database.database();
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--store", &address, "--no-migrate"];
    let Err(log) = Server::try_start(directory.path(), &flags) else { panic!("it started") };
    assert!(log.contains("punctual migrate up"), "{log}");

    let (code, table, _) = run(&["migrate", "status", "--store", &address]);
    assert!(code == 0 && table.contains("start") && table.contains("missing"), "{code}: {table}");
    let (code, table, errors) = run(&["migrate", "up", "--store", &address]);
    assert!(code == 0 && table.contains("brought up from 0"), "{code}: {table}{errors}");
    let (code, text, _) = run(&["migrate", "status", "--store", &address, "-o", "json"]);
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &status["is_usable"], &status["found"]), (0, &Value::Bool(true), &status["known"]));
    let (_, table, _) = run(&["migrate", "up", "--store", &address]);
    assert!(table.contains("up to date"), "{table}");
    Server::start_with(directory.path(), &flags);
}

#[test]
fn what_cannot_be_migrated_is_named() {
    let (code, _, errors) = run(&["migrate", "status"]);
    assert!(code == 2 && errors.contains("--store"), "{code}: {errors}");
    let (code, _, errors) = run(&["migrate", "up", "--store", "postgres://127.0.0.1:1/x?sslmode=maybe"]);
    assert!(code == 2 && errors.contains("verify-full"), "{code}: {errors}");
    let (code, _, errors) = run(&["migrate", "up", "--store", "postgres://me:secret@127.0.0.1:1/x"]);
    assert!(code == 5 && errors.contains("cannot reach the database"), "{code}: {errors}");
    assert!(!errors.contains("secret"), "{errors}");
}
