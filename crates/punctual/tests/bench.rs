//! Scenarios of `punctual bench` in which runs wait, short ones: every slot audited, and who had which turns.
#![allow(clippy::unwrap_used, reason = "tests")]

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
