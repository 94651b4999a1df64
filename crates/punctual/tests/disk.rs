//! Disks that are full and files that are damaged, as a user meets them: the real binary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::server::{Answer, Server, call};

/// Where a child finds its small disk; a test that finds none is not a child.
const DISK: &str = "PUNCTUAL_CHILD_DISK";

#[test]
fn a_full_disk_takes_nothing_loses_nothing_and_is_found_well_again() {
    let directory = tempfile::tempdir().unwrap();
    // In a mount namespace of its own nothing is left behind, whatever happens; without root, in a user namespace.
    let mount = format!("mount -t tmpfs -o size=40m tmpfs {} && exec \"$@\"", directory.path().display());
    let may = |namespaces: &str| {
        let mut probe = Command::new("unshare");
        probe.args([namespaces, "sh", "-c", &mount, "sh", "true"]);
        probe.output().is_ok_and(|output| output.status.success())
    };
    let namespaces =
        ["-m", "-rm"].into_iter().find(|one| may(one)).expect("unshare -m or -rm may mount a tmpfs");
    let output = Command::new("unshare")
        .args([namespaces, "sh", "-c", &mount, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "disk::child_fills_the_disk", "--nocapture"])
        .env(DISK, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    println!("{}", said.lines().find(|line| line.starts_with("full disk: ")).unwrap());
}

/// Fills a small file system through the API, makes room, and looks for everything that was acknowledged.
#[test]
fn child_fills_the_disk() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else { return };
    let (data, filler) = (disk.join("data"), disk.join("filler"));
    std::fs::write(&filler, vec![7; 28 << 20]).unwrap();
    let server = Server::start(&data);
    let ticking = json!({"name": "tick", "schedule": {"every": "PT1S"}, "target": {"discard": {}}});
    let ticking = server.post("/v1/jobs", &ticking.to_string());
    assert_eq!(ticking.status, 201, "{}", ticking.body);
    let ticking = ticking.json();
    let large = json!({
        "name": "large", "schedule": {"at": "2190-01-01T00:00:00Z"}, "target": {"discard": {}}, "payload": "x".repeat(50_000),
    });
    let large = large.to_string();
    let mut known: Vec<String> = Vec::new();
    let refused = loop {
        let answer = server.post("/v1/jobs", &large);
        if answer.status != 201 {
            break answer;
        }
        known.push(answer.json()["id"].as_str().unwrap().to_owned());
        assert!(known.len() < 1_000, "the disk is not small");
    };
    assert!(known.len() > 20, "it fits some");
    assert_refused(&refused);
    eventually("the server not being ready", || (ready(&server).status == 503).then_some(()));
    for _ in 0..20 {
        assert_refused(&server.post("/v1/jobs", &large));
        let answer = ready(&server);
        assert_eq!(answer.status, 503, "{}", answer.body);
        let store = answer.json()["checks"][0].clone();
        assert_eq!((&store["name"], &store["is_ok"]), (&json!("store"), &json!(false)), "{store}");
        assert!(store["detail"].as_str().unwrap().contains("full"), "{store}");
    }
    assert_eq!(call(server.address, "GET", "/livez", &[], "").unwrap().status, 200);
    assert_all_there(&server, &known);
    // Enough for the database to take over what is in its log.
    std::fs::remove_file(&filler).unwrap();
    // Nobody asks it to write: it finds out by itself.
    eventually("the server being ready", || (ready(&server).status == 200).then_some(()));
    let answer = server.post("/v1/jobs", &large);
    assert_eq!(answer.status, 201, "{}", answer.body);
    known.push(answer.json()["id"].as_str().unwrap().to_owned());
    let runs = eventually("the job going on", || {
        let (before, after) = (slots(&server, &ticking), slots(&server, &ticking));
        (after.last()? > &Timestamp::now().checked_sub(Duration::from_secs(2)).unwrap()).then_some(before)
    });
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = Server::start(&data);
    assert_all_there(&server, &known);
    drop(server);
    let checked = punctual_store_embedded::check(&data, Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
    println!("\nfull disk: {} jobs acknowledged and kept, {} slots each once", known.len(), runs.len());
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.header("retry-after"), "1");
    let problem = answer.json();
    assert_eq!(problem["code"], "unavailable", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("full"), "{problem}");
}

fn ready(server: &Server) -> Answer {
    call(server.address, "GET", "/readyz", &[], "").unwrap()
}

fn assert_all_there(server: &Server, ids: &[String]) {
    for id in ids {
        assert_eq!(server.get(&format!("/v1/jobs/{id}"))["id"], **id);
    }
}

/// The slots of a job that is due every second: none twice, and none left out but for what the ledger says.
fn slots(server: &Server, job: &Value) -> Vec<Timestamp> {
    let id = job["id"].as_str().unwrap();
    let items = |page: Value| page["items"].as_array().unwrap().clone();
    let runs = items(server.get(&format!("/v1/jobs/{id}/runs?limit=1000")));
    let slots: Vec<Timestamp> =
        runs.iter().rev().map(|run| run["scheduled_for"].as_str().unwrap().parse().unwrap()).collect();
    let once: BTreeSet<Timestamp> = slots.iter().copied().collect();
    assert_eq!(once.len(), slots.len(), "a slot has two runs");
    let ledger = items(server.get(&format!("/v1/jobs/{id}/ledger")));
    let missed: i64 = ledger.iter().map(|entry| entry["slots"].as_i64().unwrap()).sum();
    let (Some(first), Some(last)) = (once.first(), once.last()) else { return slots };
    assert_eq!(last.as_second() - first.as_second() + 1, slots.len() as i64 + missed, "{ledger:?}");
    once.into_iter().collect()
}

/// Waits for something to become true; how long it takes is not the point.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What is done to a data directory that was not closed, and what `serve` says about it.
type Damage = (&'static str, fn(&Path), &'static str);

const DAMAGES: [Damage; 5] = [
    (
        "another file",
        |data| overwrite(&data.join("punctual.db"), |bytes| bytes.fill(0x5a)),
        "punctual.db is damaged",
    ),
    (
        "cut short",
        |data| overwrite(&data.join("punctual.db"), |bytes| bytes.truncate(0)),
        "the file is empty",
    ),
    ("gone", |data| std::fs::remove_file(data.join("punctual.db")).unwrap(), "the file is missing"),
    (
        "its log gone",
        |data| std::fs::remove_file(data.join("punctual.db-wal")).unwrap(),
        "the last process did not close the store",
    ),
    (
        "a bit of its log",
        |data| overwrite(&data.join("punctual.db-wal"), |bytes| bytes[5_000] ^= 1),
        "punctual.db-wal",
    ),
];

fn overwrite(file: &Path, change: fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn damaged_data_is_refused_at_the_start_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    let server = Server::start(&whole);
    for _ in 0..20 {
        let job = json!({"name": "a", "schedule": {"at": "2190-01-01T00:00:00Z"}, "target": {"discard": {}}});
        assert_eq!(server.post("/v1/jobs", &job.to_string()).status, 201);
    }
    server.kill();
    for (what, damage, said) in DAMAGES {
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir(&data).unwrap();
        for entry in std::fs::read_dir(&whole).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
        }
        damage(&data);
        let log = Server::try_start(&data, &[]).err().unwrap_or_else(|| panic!("{what}: it started"));
        assert!(log.contains(&data.display().to_string()), "{what}: it names the place: {log}");
        assert!(log.contains("damaged") && log.contains(said), "{what}: {log}");
        assert!(log.contains("restore a backup"), "{what}: it says what to do: {log}");
    }
}
