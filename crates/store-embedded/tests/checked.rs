//! The check: nothing to find after anything the suite does, and something to find after every kind of damage.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use futures_executor::block_on;
use jiff::Timestamp;
use punctual_domain::Outcome;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_store::conformance::{Case, SHARDS, World};
use punctual_store_embedded::{Checked, Embedded, OpenError, Options, check};
use support::open;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// Every story of the suite leaves a sound directory behind.
fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let store = Arc::new(Embedded::open(&Options { directory: data.clone(), shards: SHARDS }).unwrap());
    block_on(case(store));
    let mut checked = check(&data, now()).unwrap();
    // The suite registers jobs without due entries, where a case is not about slots.
    checked.findings.retain(|finding| !finding.what.contains("but no entry"));
    assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
}

punctual_store::conformance!(run);

/// Jobs with and without keys, edited and paused ones, open runs of all kinds, history, dead letters, the ledger.
fn populate(directory: &Path) {
    let store = open(directory);
    let mut world = block_on(World::new(store.clone()));
    block_on(async {
        for (number, verdict) in [Verdict::Succeed, Verdict::Fail, Verdict::TimeOut].into_iter().enumerate() {
            let worker = world.worker();
            let run = world.running(&format!("ended {number}"), worker).await;
            let outcome = if number == 0 { Outcome::Succeeded } else { Outcome::Failed };
            world.conclude(worker, &run, outcome, verdict).await.unwrap();
        }
        let worker = world.worker();
        let run = world.running("retried", worker).await;
        let retry = Verdict::Retry { available_at: world.after(30), charge: Charge::Attempt };
        world.conclude(worker, &run, Outcome::Failed, retry).await.unwrap();
        world.running("running", worker).await;
        world.fired("waiting").await;
        let mut keyed = world.job("keyed");
        keyed.spec.key = Some("the-key".into());
        world.try_put(world.put(keyed.clone(), Some(world.after(60)))).await.unwrap();
        keyed.version = keyed.version.next();
        let mut put = world.put(keyed.clone(), Some(world.after(90)));
        put.ledger = vec![punctual_store::ledger_entry(
            &keyed,
            &[],
            punctual_domain::ledger::Fate::MissedCatchUp,
            world.now,
        )];
        put.ledger[0].slots = 1;
        world.try_put(put).await.unwrap();
    });
}

#[test]
fn a_sound_directory_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    populate(directory.path());
    let checked = check(directory.path(), now()).unwrap();
    let expected = Checked {
        format: checked.format,
        shards: 16,
        tenants: 1,
        jobs: 7,
        due: 7,
        due_stale: 1,
        open_runs: 3,
        running: 1,
        history: 3,
        partitions: 1,
        dead_letters: 2,
        ledger: 1,
        findings: Vec::new(),
        wrong: 0,
    };
    assert_eq!(checked, expected);
    // It changed nothing, and the directory is free again.
    let store = open(directory.path());
    let error = check(directory.path(), now()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { pid: Some(_), .. }), "{error}");
    let backup = directory.path().join("backup");
    store.backup(&backup, now(), |_| {}).unwrap();
    assert_eq!(check(&backup, now()).unwrap(), expected, "a backup can be checked as it is");
    assert_eq!(std::fs::read_dir(&backup).unwrap().count(), 2, "and is left as it is");
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(check(&missing, now()), Err(OpenError::Unusable { .. })));
    assert!(!missing.exists());
    let error = check(directory.path(), now()).unwrap_err();
    assert!(error.to_string().contains("no punctual.db"), "{error}");
}

/// What is done to a sound database, and words of what must be found.
const WRONGS: &[(&str, &str)] = &[
    ("delete from due where version = 2", "is active and has slots to come, but no entry"),
    (
        "insert into due select at + 1000, lane, tenant, job, version, slot from due where version = 2",
        "has 2 entries",
    ),
    (
        "update due set version = 9 where version = 1 and at = (select min(at) from due)",
        "newer than the job's",
    ),
    ("update due set lane = 2 - lane * 2 where version = 2", "in another lane"),
    ("update due set tenant = 5 where version = 2", "another tenant"),
    ("update due set slot = at + 1 where version = 2", "for the slot"),
    ("update due set job = x'00000000000070008000000000000000' where version = 2", "which is not there"),
    (
        "insert into due select at + 9, lane, tenant, x'ffffffffffff70ff8000000000000000', 1, slot from due where version = 2",
        "an entry of job ffffffff-ffff-70ff-8000-000000000000, which is not there",
    ),
    ("update jobs set record = '{}' where version = 2", "the record of job"),
    ("update jobs set state = 1 where version = 2", "has state 1 in its column"),
    ("update jobs set tenant = 7 where version = 2", "has tenant 7"),
    ("delete from job_keys", "does not lead to job"),
    ("update job_keys set key = 'another'", "another key"),
    ("insert into job_keys values (1, 'x', x'00000000000070008000000000000000')", "leads to job"),
    ("update shards set shard = 99 where shard = 3", "numbered 0 to 99"),
    ("delete from shards where shard > 1", "in shard"),
    ("update tenants set name = 'Not A Name!'", "has the name"),
    ("update open_runs set job = x'00000000000070008000000000000000'", "a run of job"),
    ("update open_runs set version = 5 where state = 1", "has version 5"),
    ("update open_runs set tenant = 5 where state = 1", "another tenant"),
    ("update open_runs set state = 10 where state = 1", "an ended run has an end"),
    ("update open_runs set state = 77 where state = 1", "run state 77"),
    ("update open_runs set lost = 9 where state = 1", "attempts that count are attempts"),
    ("update open_runs set attempt = 4 where state = 1", "attempts, and not 1 to 4"),
    ("delete from ready", "waits in 0 lines"),
    ("insert into delayed select available_at, seq from open_runs where state = 3", "waits in 2 lines"),
    (
        "insert into ready select 1, 0, available_at, seq from open_runs where state = 1",
        "waits and is running",
    ),
    ("insert into delayed values (1, 2)", "waits and is not open"),
    ("insert into open_runs select * from history_1 limit 1", "is also in"),
    ("insert into history_0 select * from history_1 limit 1", "is also in history_"),
    (
        "insert into history_1 select seq + 5000000, job, tenant, version, cause, slot, part, state, available_at, attempt, \
         charged, lost, queue, retention, lane, priority, started_at, finished_at, is_cancel_requested, correlation_id, worker, \
         claimed_at, reported_at, attempts from history_1 limit 1",
        "are for the same slot of the same job",
    ),
    ("update history_1 set state = 3, finished_at = null", "and in history"),
    ("update history_1 set retention = 1", "not as this partition"),
    ("update history_1 set finished_at = null", "an ended run has an end"),
    ("update history_1 set attempts = x'00' where state = 11", "history_1: run"),
    ("update history_1 set seq = -seq where state = 10", "does not give out"),
    ("insert into meta values ('database', 3), ('floor', 5)", "does not give out"),
    ("insert into meta values ('database', 300)", "out of range"),
    ("update partitions set retention = 12", "a partition of 12 days"),
    ("insert into partitions select 2, retention, from_seq - 5, null from partitions", "overlap"),
    ("insert into partitions select 2, 1, from_seq, from_seq - 1 from partitions", "ends before it begins"),
    (
        "insert into partitions select 2, 1, from_seq, null from partitions",
        "the table history_2 is not there",
    ),
    ("create table history_9 (seq)", "the table history_9 belongs to no partition"),
    ("insert into dead_letters values (5)", "run 5 is not in history"),
    ("insert into dead_letters select seq from history_1 where state = 10", "and is a dead letter"),
    ("update ledger set fate = 99", "has no fate"),
    ("update ledger set to_slot = from_slot - 1", "no range"),
    ("update ledger set tenant = 4", "of another tenant"),
    (
        "insert into job_versions select id, 7, tenant, record from jobs where version = 2",
        "has no version after 7",
    ),
];

#[test]
fn every_kind_of_wrong_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    populate(&whole);
    for (wrong, words) in WRONGS {
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(whole.join("punctual.db"), data.join("punctual.db")).unwrap();
        let connection = rusqlite::Connection::open(data.join("punctual.db")).unwrap();
        connection.execute_batch(wrong).unwrap_or_else(|error| panic!("{wrong}: {error}"));
        let changed: i64 = connection.query_row("select total_changes()", [], |row| row.get(0)).unwrap();
        assert!(changed > 0 || wrong.starts_with("create"), "{wrong} changes nothing");
        drop(connection);
        let checked = check(&data, now()).unwrap();
        let found = checked.findings.iter().any(|finding| finding.to_string().contains(words));
        assert!(found, "{wrong}: `{words}` is not among {:#?}", checked.findings);
    }
    println!("checks: {} kinds of wrong found", WRONGS.len());
}
