//! Scenarios of `punctual bench` in which runs wait, short ones: every slot audited, and who had which turns.

use std::process::Command;

use punctual_testing::Postgres;
use serde_json::Value;

/// Runs a scenario whose runs take a few milliseconds and whose worker has little room.
fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .arg("bench")
        .args(arguments)
        .args(["--target", "sleep", "--sleep-ms", "2", "--concurrency", "16", "-o", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check_lanes(account: &Value) {
    assert_eq!(
        (account["completed"].as_u64(), account["missed"].as_u64()),
        (Some(2_400), Some(0)),
        "{account}"
    );
    let shares = account["lane_shares_percent"].as_array().unwrap();
    for (share, owed) in shares.iter().zip([70.0, 25.0, 5.0]) {
        assert!((share.as_f64().unwrap() - owed).abs() <= 5.0, "{account}");
    }
}

#[test]
fn lanes_have_their_shares_in_a_data_directory() {
    check_lanes(&bench(&["lanes", "--runs", "800"]));
}

#[test]
fn lanes_have_their_shares_on_postgres() {
    let database = Postgres::shared().database();
    check_lanes(&bench(&["lanes", "--runs", "800", "--store", &database]));
}

/// Audited, not judged by its lateness: the machine may be busy.
#[test]
fn others_have_their_slots_beside_a_black_hole() {
    let output = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args([
            "bench",
            "black-hole",
            "--jobs",
            "500",
            "--over",
            "2",
            "--rate",
            "10",
            "--seconds",
            "4",
            "--concurrency",
            "100",
        ])
        .args(["-o", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let account: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((account["completed"].as_u64(), account["missed"].as_u64()), (Some(80), Some(0)), "{account}");
    assert!(account["others_beside_ms"]["max"].is_i64(), "{account}");
}

#[test]
fn a_quiet_tenant_has_its_slots_beside_one_whose_runs_wait() {
    let account = bench(&["noisy", "--waiting", "--jobs", "4000", "--seconds", "3"]);
    assert_eq!(
        (account["completed"].as_u64(), account["missed"].as_u64()),
        (Some(4_003), Some(0)),
        "{account}"
    );
    assert!(account["quiet_lateness_ms"]["max"].is_i64(), "{account}");
}

/// As many wait as were asked for, also when the store is opened again; more is not promised of a busy machine.
#[test]
fn runs_that_wait_are_there_when_the_store_is_opened_again() {
    let database = Postgres::shared().database();
    for store in ["embedded", &database] {
        let pending = bench(&["pending", "--runs", "3000", "--store", store]);
        assert_eq!(pending["runs"], 3_000, "{pending}");
        let points: Vec<u64> =
            pending["rss_mb"].as_array().unwrap().iter().map(|point| point[0].as_u64().unwrap()).collect();
        assert_eq!(points, [300, 1_500, 3_000]);
        assert!(pending["open_ms"].is_u64() && pending["first_page_ms"].is_u64(), "{pending}");
    }
}

/// Every run ends once, whichever way workers pull it; how fast is not judged here.
#[test]
fn workers_that_pull_drain_what_was_due() {
    for transport in ["grpc", "rest"] {
        let arguments = ["pull", "--runs", "600", "--transport", transport];
        let account = bench(&arguments);
        assert_eq!(
            (account["completed"].as_u64(), account["missed"].as_u64(), account["duplicates"].as_u64()),
            (Some(600), Some(0), Some(0)),
            "{account}"
        );
    }
}

#[test]
fn an_idle_server_is_measured_beside_its_disk() {
    for transport in ["grpc", "rest"] {
        let idle = bench(&["idle", "--samples", "3", "--transport", transport]);
        assert_eq!(idle["samples"], 3, "{idle}");
        assert!(idle["fsync_ms"]["p50"].is_f64() && idle["now_ms"]["p99"].is_f64(), "{idle}");
        assert!(idle["trigger_ms"]["p50"].is_f64(), "{idle}");
    }
}
