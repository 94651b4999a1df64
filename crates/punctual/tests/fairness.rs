//! Who goes first when there is not room for all, with the real binary on both stores: lanes have their shares, and a tenant with very
//! many runs does not hold up another. Orders are compared, not times.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::server::{Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs that wait in each lane.
const OF_A_LANE: usize = 400;

/// Runs of the noisy tenant.
const NOISY: usize = 20_000;

/// While fewer of them wait, it says little who went first.
const MANY: usize = 5_000;

/// Lanes and what each is owed of a hundred starts.
const LANES: [(&str, f64); 3] = [("critical", 70.0), ("standard", 25.0), ("batch", 5.0)];

#[test]
fn lanes_have_their_shares_in_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    lanes(&directory.path().join("data"), &[]);
}

#[test]
fn lanes_have_their_shares_on_postgres() {
    let (address, directory) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    lanes(directory.path(), &["--store", &address]);
}

#[test]
fn a_noisy_tenant_does_not_hold_up_another_in_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    noisy(&directory.path().join("data"), &[]);
}

#[test]
fn a_noisy_tenant_does_not_hold_up_another_on_postgres() {
    let (address, directory) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    noisy(directory.path(), &["--store", &address]);
}

/// A server that fires and executes nothing, so that runs wait.
fn without_worker(data: &Path, store: &[&str]) -> Server {
    Server::start_with(data, &[store, &["--roles", "api,scheduler"]].concat())
}

/// One that has little room.
fn with_worker(data: &Path, store: &[&str]) -> Server {
    Server::start_with(data, &[store, &["--concurrency", "4"]].concat())
}

fn lanes(data: &Path, store: &[&str]) {
    let server = without_worker(data, store);
    // In turns, so that whoever goes by age gives each lane a third.
    let jobs = (0..OF_A_LANE).flat_map(|_| LANES).map(|(lane, _)| {
        format!(
            r#"{{"schedule":{{"now":true}},"target":{{"discard":{{}}}},"lane":"{lane}","type":"{lane}"}}"#
        )
    });
    import(&server, "default", jobs);
    server.stop();
    let server = with_worker(data, store);
    done(&server, "default");
    let starts = LANES.map(|(lane, _)| starts(&server, "default", &format!("type={lane}")));
    // Until the first lane was through, runs waited in all.
    let until = starts.iter().filter_map(|lane| lane.last()).min().unwrap();
    let counts = starts.each_ref().map(|lane| lane.iter().filter(|start| *start <= until).count());
    let all: usize = counts.iter().sum();
    for (count, (lane, owed)) in counts.iter().zip(LANES) {
        let share = *count as f64 * 100.0 / all as f64;
        assert!((share - owed).abs() <= 5.0, "{lane}: {share} of a hundred, not {owed}: {counts:?}");
    }
    assert!(starts.iter().all(|lane| lane.len() == OF_A_LANE), "every run was started");
}

fn noisy(data: &Path, store: &[&str]) {
    let server = without_worker(data, store);
    for tenant in ["noisy", "quiet"] {
        assert_eq!(server.post("/v1/tenants", &format!(r#"{{"name":"{tenant}"}}"#)).status, 201);
    }
    let now = r#"{"schedule":{"now":true},"target":{"discard":{}}}"#;
    import(&server, "noisy", std::iter::repeat_n(now.to_string(), NOISY));
    import(&server, "quiet", [r#"{"schedule":{"every":"1s"},"target":{"discard":{}}}"#.to_string()]);
    server.stop();
    let server = with_worker(data, store);
    done(&server, "noisy");
    let noisy = starts(&server, "noisy", "");
    assert_eq!(noisy.len(), NOISY, "every run was started");
    let begin = noisy[0];
    let mut judged = 0;
    for run in runs(&server, "quiet", "") {
        let (slot, Some(start)) = (time(&run["scheduled_for"]).unwrap(), time(&run["started_at"])) else {
            continue;
        };
        let after = |at: Timestamp| noisy.iter().filter(|start| **start > at).count();
        let (waited, overtaken) = (after(slot), after(start));
        if slot > begin && waited > MANY {
            judged += 1;
            // By age it would have been the last.
            assert!(
                overtaken * 2 > waited,
                "of {waited} that waited, {} went before {run}",
                waited - overtaken
            );
        }
    }
    assert!(judged > 0, "no slot of the quiet tenant came while others waited");
}

fn import(server: &Server, tenant: &str, jobs: impl IntoIterator<Item = String>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for job in jobs {
        writeln!(file, "{job}").unwrap();
    }
    let path = file.path().to_str().unwrap();
    let output = command()
        .args(["job", "import", path, "--tenant", tenant, "--server", &server.url()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn get(server: &Server, tenant: &str, path: &str) -> Value {
    let answer = call(server.address, "GET", path, &[("Punctual-Tenant", tenant)], "").unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

/// Waits until nothing of a tenant waits or runs.
fn done(server: &Server, tenant: &str) {
    let deadline = Instant::now() + PATIENCE;
    let is_open = |state: &str| {
        let page = get(server, tenant, &format!("/v1/runs?state={state}&limit=1"));
        !page["items"].as_array().unwrap().is_empty() || !page["next_cursor"].is_null()
    };
    while is_open("pending") || is_open("running") {
        assert!(Instant::now() < deadline, "runs of {tenant} still wait");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// When runs were started, in order.
fn starts(server: &Server, tenant: &str, filter: &str) -> Vec<Timestamp> {
    let runs = runs(server, tenant, filter);
    let mut starts: Vec<Timestamp> = runs.iter().filter_map(|run| time(&run["started_at"])).collect();
    starts.sort_unstable();
    starts
}

fn runs(server: &Server, tenant: &str, filter: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(server, tenant, &format!("/v1/runs?{filter}&limit=1000{cursor}"));
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().map(|text| text.parse().unwrap())
}
