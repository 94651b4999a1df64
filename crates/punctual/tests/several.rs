//! Real nodes on two databases: shards move between them while jobs are created, triggered, fired and completed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use punctual_testing::Postgres;

use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Jobs of the far future, so that a move takes a while.
const CATALOGUE: usize = 20_000;

fn join(stores: &[String], folder: &Path, name: &str) -> Server {
    let mut arguments = vec!["--name", name];
    stores.iter().for_each(|store| arguments.extend(["--store", store]));
    Server::start_with(folder, &arguments)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Creates a job and returns its id.
fn create(at: &Server, body: &str) -> String {
    let answer = at.post("/v1/jobs", body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The nominal times of a job's runs, oldest first.
fn slots(of: &Server, job: &str) -> Vec<Timestamp> {
    let slot = |run: &serde_json::Value| run["scheduled_for"].as_str().unwrap().parse().unwrap();
    let mut slots: Vec<Timestamp> = all(of, &format!("/v1/jobs/{job}/runs")).iter().map(slot).collect();
    slots.sort_unstable();
    slots
}

/// Every item of a list, page by page.
fn all(of: &Server, list: &str) -> Vec<serde_json::Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = of.get(&format!("{list}?limit=500{cursor}"));
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

fn start_move(at: &Server, shards: &str, to: &str) -> String {
    let moved = command()
        .args(["shards", "move", shards, "--to", to, "-o", "json", "--server", &at.url()])
        .output()
        .unwrap();
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let operation: serde_json::Value = serde_json::from_slice(&moved.stdout).unwrap();
    operation["id"].as_str().unwrap().to_owned()
}

fn state(at: &Server, operation: &str) -> String {
    at.get(&format!("/v1/operations/{operation}"))["state"].as_str().unwrap().to_owned()
}

fn shards_of(at: &Server, database: usize) -> String {
    at.get("/v1/databases")["items"][database]["shards"].as_str().unwrap().to_owned()
}

/// Ends the work also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What somebody does meanwhile: jobs that run at once, some with a key, and triggers. Returns jobs with how many runs each
/// must have.
fn work(nodes: [&Server; 2], triggered: &str, is_over: &AtomicBool) -> (Vec<String>, usize) {
    let (mut jobs, mut triggers) = (Vec::new(), 0);
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let node = nodes[n % 2];
        let key = if n % 3 == 0 { format!("\"key\":\"one-{n}\",") } else { String::new() };
        let now = format!(
            "{{{key}\"name\":\"now\",\"schedule\":{{\"now\":true}},\"target\":{{\"discard\":{{}}}}}}"
        );
        jobs.push(create(node, &now));
        let answer = node.post(&format!("/v1/jobs/{triggered}/trigger"), "{}");
        assert!(answer.status < 300, "{}", answer.body);
        triggers += 1;
    }
    (jobs, triggers)
}

#[test]
fn shards_move_while_they_are_in_use() {
    let stores = [Postgres::shared().database(), Postgres::shared().database()];
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| join(&stores, folder.path(), name));
    assert_eq!((shards_of(&one, 0), shards_of(&one, 1)), ("0-255".into(), String::new()));
    let far =
        "{\"name\":\"far\",\"schedule\":{\"at\":\"2100-01-01T00:00:00Z\"},\"target\":{\"discard\":{}}}\n";
    let file = folder.path().join("far.ndjson");
    std::fs::write(&file, far.repeat(CATALOGUE)).unwrap();
    let imported = command().args(["job", "import", "--server", &one.url()]).arg(&file).output().unwrap();
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let end = Timestamp::now() + SignedDuration::from_secs(25);
    let every = format!(
        "{{\"name\":\"each\",\"schedule\":{{\"every\":\"PT1S\",\"end\":\"{end}\"}},\"target\":{{\"discard\":{{}}}}}}"
    );
    let each: Vec<String> = (0..60).map(|n| create([&one, &two][n % 2], &every)).collect();
    let triggered = create(
        &one,
        "{\"name\":\"far\",\"schedule\":{\"at\":\"2100-01-01T00:00:00Z\"},\"target\":{\"discard\":{}}}",
    );

    let is_over = AtomicBool::new(false);
    let (created, triggers) = std::thread::scope(|scope| {
        let working = scope.spawn(|| work([&one, &two], &triggered, &is_over));
        let _end = End(&is_over);
        let there = start_move(&two, "0-127 200", "1");
        until("half of the shards moved", || state(&one, &there) == "succeeded");
        assert_eq!(shards_of(&two, 1), "0-127 200");
        let back = start_move(&one, "64-127", "0");
        until("some moved back", || state(&two, &back) == "succeeded");
        is_over.store(true, Ordering::Relaxed);
        working.join().unwrap()
    });
    assert!(created.len() > 20, "{} jobs were created meanwhile", created.len());

    // The node that does it dies in the middle; the other goes on.
    let last = start_move(&one, "0-255", "1");
    until("it has begun", || one.get(&format!("/v1/operations/{last}"))["done"].as_u64() > Some(0));
    two.kill();
    until("everything moved", || state(&one, &last) == "succeeded");
    assert_eq!((shards_of(&one, 0), shards_of(&one, 1)), (String::new(), "0-255".into()));

    for job in &created {
        until("what was created ran", || slots(&one, job).len() == 1);
    }
    until("what was triggered ran", || slots(&one, &triggered).len() == triggers);
    for job in &each {
        until("the last slot of a job ran", || {
            slots(&one, job).last().is_some_and(|last| *last + SignedDuration::from_secs(1) > end)
        });
        let slots = slots(&one, job);
        let is_next = |pair: &[Timestamp]| pair[1].duration_since(pair[0]) == SignedDuration::from_secs(1);
        assert!(slots.windows(2).all(is_next), "job {job} lost or repeated slots: {slots:?}");
    }
    let jobs: BTreeSet<String> = all(&one, "/v1/jobs").iter().map(|job| job["id"].to_string()).collect();
    assert_eq!(jobs.len(), CATALOGUE + each.len() + created.len() + 1, "every job is there once");
    let runs = all(&one, "/v1/runs");
    let ids: BTreeSet<String> = runs.iter().map(|run| run["id"].to_string()).collect();
    let expected = created.len() + triggers + each.iter().map(|job| slots(&one, job).len()).sum::<usize>();
    assert_eq!((runs.len(), ids.len()), (expected, expected), "every run is listed once");

    // A database that nothing lives in can be left out; one that something lives in cannot.
    drop(one);
    let alone = join(&stores[1..], folder.path(), "alone");
    assert_eq!(alone.get("/v1/databases")["items"].as_array().unwrap().len(), 1);
    let refused =
        command().args(["serve", "--listen", "127.0.0.1:0", "--store", &stores[0]]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("256 shards live in a database that was not given"),
        "{told}"
    );
}
