//! Batches, end to end: the real binary on both stores, killed while items are born and run; each item has one run, so many go on at once,
//! and the end is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::{Value, json};

use crate::support::hook::{Hook, Received};
use crate::support::server::{Server, command};

/// More than a step gives birth to.
const ITEMS: usize = 300;

/// Every so manieth fails.
const FAILING: usize = 100;

/// How many go on at once.
const AT_ONCE: usize = 3;

#[test]
fn each_item_runs_and_the_end_is_told_once_through_kills() {
    let directory = tempfile::tempdir().unwrap();
    story(directory.path(), &["--log", "warn", "--lease", "3"]);
    let checked = command().arg("check").arg(directory.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn each_item_runs_and_the_end_is_told_once_through_kills_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    story(directory.path(), &["--log", "warn", "--lease", "3", "--shard-lease", "3", "--store", &address]);
}

fn says(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(240);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn body(id: &str, hook: &Hook, path: &str, items: usize) -> Value {
    let item = |n: usize| json!({"id": format!("item-{n}"), "payload": {"n": n, "fail": n % FAILING == 7}});
    json!({
        "id": id,
        "schedule": {"now": true},
        "target": {"http": {"url": format!("{}{path}", hook.url)}},
        "retry": {"max_attempts": 1},
        "concurrency": {"max": AT_ONCE},
        "items": (0..items).map(item).collect::<Vec<_>>(),
        "on_complete": {"http": {"url": format!("{}/done-{id}", hook.url)}},
    })
}

/// All items of a batch that have runs.
fn items(server: &Server, id: &str) -> Vec<Value> {
    server.get(&format!("/v1/batches/{id}/items?limit=1000"))["items"].as_array().unwrap().clone()
}

fn story(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let heard = |path: &str| -> Vec<Received> {
        hook.received().into_iter().filter(|received| received.path == path).collect()
    };
    let mut server = Server::start_with(data, arguments);
    let written = body("invoices", &hook, "/hold", ITEMS);
    let file = data.join("batch.json");
    std::fs::write(&file, written.to_string()).unwrap();
    let created = says(&server, &["batch", "create", "-f", file.to_str().unwrap()]);
    assert_eq!(created, format!("batch invoices: {ITEMS} items\n"));
    // The same again is the same batch; something else under its id is refused.
    assert_eq!(server.post("/v1/batches", &written.to_string()).status, 200);
    let other = server.post("/v1/batches", &body("invoices", &hook, "/hold", ITEMS - 1).to_string());
    assert_eq!((other.status, &other.json()["code"]), (409, &"key_taken".into()), "{}", other.body);
    server.kill();
    server = Server::start_with(data, arguments);
    let counts = |server: &Server, id: &str| server.get(&format!("/v1/batches/{id}"))["counts"].clone();
    wait_for("so many go on, and no more", || counts(&server, "invoices")["running"] == AT_ONCE);
    wait_for("all have a run", || items(&server, "invoices").len() == ITEMS);
    assert_eq!(counts(&server, "invoices")["pending"], ITEMS - AT_ONCE);
    // The node dies with what it held; others are begun in its place when the lease is over.
    server.kill();
    hook.release();
    server = Server::start_with(data, arguments);
    wait_for("half of them have ended", || {
        let counts = counts(&server, "invoices");
        counts["succeeded"].as_u64().unwrap() > ITEMS as u64 / 2
    });
    server.kill();
    server = Server::start_with(data, arguments);
    wait_for("the end is told", || !heard("/done-invoices").is_empty());

    let batch = server.get("/v1/batches/invoices");
    let failing = ITEMS / FAILING;
    assert_eq!((&batch["state"], &batch["items"]), (&"completed".into(), &ITEMS.into()), "{batch}");
    assert_eq!(batch["counts"]["succeeded"], ITEMS - failing, "{batch}");
    assert_eq!(batch["counts"]["failed"], failing, "{batch}");
    // One run an item.
    let ended = items(&server, "invoices");
    let ids: BTreeSet<&str> = ended.iter().map(|item| item["item_id"].as_str().unwrap()).collect();
    assert_eq!((ended.len(), ids.len()), (ITEMS, ITEMS));
    // Receivers know which item of which batch it is; what came twice came under the same key.
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for received in heard("/hold") {
        assert_eq!(received.headers["punctual-batch-id"], "invoices");
        let sent: Value = serde_json::from_str(&received.body).unwrap();
        assert_eq!(received.headers["punctual-item-id"], format!("item-{}", sent["n"]));
        let item = received.headers["punctual-item-id"].clone();
        keys.entry(item).or_default().insert(received.headers["idempotency-key"].clone());
    }
    assert_eq!(keys.len(), ITEMS);
    assert!(keys.values().all(|keys| keys.len() == 1));
    let told = heard("/done-invoices");
    let told_keys: BTreeSet<&str> = told.iter().map(|one| &*one.headers["idempotency-key"]).collect();
    assert_eq!(told_keys.len(), 1, "told once");
    let told: Value = serde_json::from_str(&told[0].body).unwrap();
    assert_eq!((&told["kind"], &told["batch"]["id"]), (&"batch".into(), &"invoices".into()), "{told}");
    assert_eq!((&told["counts"], &told["is_cancelled"]), (&batch["counts"], &false.into()));
    let failed: BTreeSet<&str> =
        told["failed"].as_array().unwrap().iter().map(|one| one["item"].as_str().unwrap()).collect();
    assert_eq!(failed, BTreeSet::from(["item-7", "item-107", "item-207"]));
    let page = says(&server, &["batch", "get", "invoices"]);
    assert!(page.contains(&format!("{} succeeded, {failing} failed", ITEMS - failing)), "{page}");
    let listed = says(&server, &["batch", "items", "invoices", "--state", "failed"]);
    assert_eq!(listed.lines().count(), failing + 1, "{listed}");
    assert!(listed.contains("item-107"), "{listed}");

    // A batch that is cancelled ends with what it had begun, and says so.
    let endless = body("endless", &hook, "/hang", 20);
    assert_eq!(server.post("/v1/batches", &endless.to_string()).status, 201);
    wait_for("some go on", || counts(&server, "endless")["running"] == AT_ONCE);
    assert!(says(&server, &["batch", "cancel", "endless"]).contains("cancelled"));
    wait_for("its end is told", || !heard("/done-endless").is_empty());
    let told: Value = serde_json::from_str(&heard("/done-endless")[0].body).unwrap();
    assert_eq!((&told["counts"]["cancelled"], &told["is_cancelled"]), (&20.into(), &true.into()), "{told}");
    let listed = says(&server, &["batch", "list"]);
    assert!(listed.contains("invoices") && listed.contains("endless"), "{listed}");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}
