//! Full disks, failed fsyncs, and when a write is acknowledged: told from outside, by strace and by a small file system.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{
    acknowledged, assert_all_there, child, child_directory, lines, open, puts, say, write_one,
};
use futures_executor::block_on;
use punctual_store::Store;
use punctual_store::conformance::World;

/// Four threads write at once, so that commits are shared.
#[test]
fn child_writes_at_once() {
    let Some(directory) = child_directory() else { return };
    let store = open(&directory);
    let mut world = block_on(World::new(store.clone()));
    let mut puts = puts(&mut world, 80, 10);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let part = puts.split_off(puts.len() - 20);
            let store = &store;
            scope.spawn(move || part.into_iter().for_each(|put| assert!(write_one(store, put))));
        }
    });
}

#[test]
fn nothing_is_acknowledged_before_its_fsync_returned() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("strace.log");
    let data = directory.path().join("data");
    let trace = ["strace", "-f", "-y", "-s", "4200", "-e", "trace=pwrite64,write,fsync,fdatasync", "-o"];
    let wrapper: Vec<&str> = trace.into_iter().chain([log.to_str().unwrap()]).collect();
    let said = lines(&child(&wrapper, "faults::child_writes_at_once", &data));
    assert_eq!(acknowledged(&said).len(), 80);
    let calls = calls(&std::fs::read_to_string(&log).unwrap());
    let mut syncs = 0;
    for name in (0..80).map(|number| format!("mark-{number:04}-")) {
        let is_in_log = |call: &&Call| call.name == "pwrite64" && call.text.contains("-wal>");
        let written = calls.iter().filter(is_in_log).find(|call| call.text.contains(&name)).unwrap();
        let acknowledged = format!("\"ack {name} ");
        let told =
            calls.iter().find(|call| call.name == "write" && call.text.contains(&acknowledged)).unwrap();
        let synced = calls.iter().any(|call| {
            matches!(call.name, "fsync" | "fdatasync")
                && call.text.contains("-wal>")
                && call.result.starts_with('0')
                && call.began > written.ended
                && call.ended < told.began
        });
        assert!(synced, "{name} was acknowledged before the log was synced");
        syncs += 1;
    }
    println!("fsync before acknowledgement: {syncs} writes");
}

/// A system call as strace tells it; where it began and ended are line numbers.
struct Call {
    name: &'static str,
    text: String,
    result: String,
    began: usize,
    ended: usize,
}

fn calls(log: &str) -> Vec<Call> {
    let mut open: HashMap<&str, Call> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in log.lines().enumerate() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let rest = rest.trim_start();
        let result = |text: &str| text.rsplit_once(" = ").map_or("", |(_, result)| result).to_string();
        if rest.starts_with("<... ") {
            let Some(mut call) = open.remove(thread) else { continue };
            (call.ended, call.result) = (at, result(rest));
            calls.push(call);
            continue;
        }
        let names = ["pwrite64", "write", "fsync", "fdatasync"];
        let Some(name) = names.into_iter().find(|name| rest.starts_with(&format!("{name}("))) else {
            continue;
        };
        let call = Call { name, text: rest.to_string(), result: result(rest), began: at, ended: at };
        match rest.ends_with("<unfinished ...>") {
            true => drop(open.insert(thread, call)),
            false => calls.push(call),
        }
    }
    calls
}

/// Writes one by one and goes on whatever it is told; reads in between.
#[test]
fn child_writes_one_by_one() {
    let Some(directory) = child_directory() else { return };
    let store = open(&directory);
    let mut world = block_on(World::new(store.clone()));
    let mut known = Vec::new();
    for put in puts(&mut world, 60, 10) {
        let id = put.job.id;
        if write_one(&store, put) {
            known.push(id);
            assert_eq!(store.health(), Default::default());
        } else {
            let health = store.health();
            assert!(!health.writable);
            say(&format!("health {}", health.reason.unwrap()));
        }
        // Reads are answered all the time, with what was acknowledged.
        assert_all_there(&store, &known);
    }
}

#[test]
fn after_a_failed_fsync_nothing_is_acknowledged_until_the_store_is_opened_anew() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(open(&data));
    // Only one fsync of the writer's fails: a store that tried again would be told that all is well.
    let log = directory.path().join("strace.log");
    let inject = "inject=fsync,fdatasync:error=EIO:when=20";
    let trace = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-e", inject, "-o", log.to_str().unwrap()];
    let said = lines(&child(&trace, "faults::child_writes_one_by_one", &data));
    let answers: Vec<bool> = said
        .iter()
        .filter(|line| line.starts_with("ack ") || line.starts_with("refused "))
        .map(|line| line.starts_with("ack "))
        .collect();
    assert_eq!(answers.len(), 60);
    let first = answers.iter().position(|acknowledged| !acknowledged).expect("an fsync failed");
    assert!(first > 5, "{said:?}");
    assert!(answers[first..].iter().all(|acknowledged| !acknowledged), "{said:?}");
    let reasons: Vec<&String> = said.iter().filter(|line| !line.starts_with("ack ")).collect();
    let told = reasons.iter().filter(|line| line.contains("fsync of the log failed")).count();
    assert_eq!(told, 2 * (60 - first), "{reasons:?}");
    let store = open(&data);
    assert_all_there(&store, &acknowledged(&said));
    let mut world = block_on(World::new_at(store.clone(), 1_800_000_000 + 2_000_000));
    assert!(write_one(&store, puts(&mut world, 1, 10).remove(0)));
    println!("failed fsync: {first} acknowledged before, none of {} after", 60 - first);
}

#[test]
fn while_the_log_cannot_grow_writes_are_refused_and_then_taken_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(open(&data));
    let log = directory.path().join("strace.log");
    let wal = data.join("punctual.db-wal");
    let inject = "inject=pwrite64:error=ENOSPC:when=101..115";
    let trace = [
        "strace",
        "-f",
        "-P",
        wal.to_str().unwrap(),
        "-e",
        "trace=pwrite64",
        "-e",
        inject,
        "-o",
        log.to_str().unwrap(),
    ];
    let said = lines(&child(&trace, "faults::child_writes_one_by_one", &data));
    let refused: Vec<usize> = said
        .iter()
        .filter(|line| line.starts_with("ack ") || line.starts_with("refused "))
        .enumerate()
        .filter(|(_, line)| line.starts_with("refused "))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(refused.len(), 15, "{said:?}");
    assert!(refused[0] > 5 && refused[14] == refused[0] + 14 && refused[14] < 59, "{refused:?}");
    let full = said.iter().filter(|line| line.contains("disk is full")).count();
    assert_eq!(full, 30, "the answer and the health say why: {said:?}");
    assert_all_there(&open(&data), &acknowledged(&said));
}

/// Fills a small file system, makes room, goes on.
#[test]
fn child_fills_the_disk() {
    let Some(directory) = child_directory() else { return };
    let filler = directory.with_file_name("filler");
    // As much as the database needs to take over what is in its log.
    std::fs::write(&filler, vec![7; 14 << 20]).unwrap();
    let store = open(&directory);
    let mut world = block_on(World::new(store.clone()));
    let mut known = Vec::new();
    let mut puts = puts(&mut world, 400, 50_000).into_iter();
    for put in puts.by_ref() {
        let id = put.job.id;
        if !write_one(&store, put) {
            break;
        }
        known.push(id);
    }
    assert!(known.len() > 3, "it fits some");
    assert!(!store.health().writable);
    assert_all_there(&store, &known);
    assert!(!write_one(&store, puts.next().unwrap()), "still full");
    // What writes nothing succeeds, and says nothing about the disk.
    let worker = world.worker();
    assert!(!block_on(store.heartbeat(worker, Vec::new(), world.now)).unwrap().is_refused);
    assert!(!store.health().writable);
    std::fs::remove_file(&filler).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !store.health().writable {
        assert!(Instant::now() < deadline, "nobody writes, and it does not find out");
        std::thread::sleep(Duration::from_millis(20));
    }
    for put in puts.by_ref().take(3) {
        known.push(put.job.id);
        assert!(write_one(&store, put), "there is room again");
    }
    assert!(store.health().writable);
    drop(world);
    drop(Arc::into_inner(store).unwrap());
    assert_all_there(&open(&directory), &known);
    say(&format!("full disk: {} acknowledged and kept", known.len()));
}

#[test]
fn a_full_disk_refuses_writes_and_answers_reads_until_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    // In a mount namespace of its own nothing is left behind, whatever happens; without root, in a user namespace.
    let mount = format!("mount -t tmpfs -o size=24m tmpfs {} && exec \"$@\"", directory.path().display());
    let may = |namespaces: &str| {
        let mut probe = std::process::Command::new("unshare");
        probe.args([namespaces, "sh", "-c", &mount, "sh", "true"]);
        probe.output().is_ok_and(|output| output.status.success())
    };
    let namespaces =
        ["-m", "-rm"].into_iter().find(|one| may(one)).expect("unshare -m or -rm may mount a tmpfs");
    let wrapper = ["unshare", namespaces, "sh", "-c", &mount, "sh"];
    let said = lines(&child(&wrapper, "faults::child_fills_the_disk", &directory.path().join("data")));
    let line = said.iter().find(|line| line.starts_with("full disk: ")).unwrap();
    println!("{line}");
}
