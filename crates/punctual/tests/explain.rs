//! `punctual explain` with the real binary: every row of the table, and what people see.

use std::process::{Command, Output};

use jiff::Timestamp;
use serde_json::Value;

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_punctual"))
        .arg("explain")
        .args(arguments)
        .env_remove("PUNCTUAL_TZDATA")
        .output()
        .unwrap()
}

/// The JSON answer, with the tests' own database instead of the system's.
fn json(arguments: &[&str]) -> Value {
    let output = explain(&[arguments, &["-o", "json", "--tzdata", "bundled"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn instant(text: &str) -> Timestamp {
    // The table leaves out seconds, which RFC 3339 wants.
    let (head, tail) = text.split_at(16);
    let with_seconds = match tail.starts_with(':') {
        true => text.to_string(),
        false => format!("{head}:00{tail}"),
    };
    with_seconds.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn rows(data: &str) -> Vec<Vec<&str>> {
    data.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" | ").map(str::trim).collect())
        .collect()
}

#[test]
fn every_row_of_the_tables_has_the_expected_slots_in_json() {
    let tables = [
        include_str!("../../schedule/testdata/table.txt"),
        include_str!("../../schedule/testdata/variants.txt"),
        include_str!("../../schedule/testdata/intervals.txt"),
    ];
    let mut count = 0;
    for row in tables.iter().flat_map(|table| rows(table)) {
        let (policy, after, slots) = match row[..] {
            [_, _, after, slots] => ("after first", after, slots),
            [_, _, policy, after, slots] => (policy, after, slots),
            _ => panic!("columns of {row:?}"),
        };
        let (gap, overlap) = policy.split_once(' ').unwrap();
        let words: Vec<&str> = slots.split_whitespace().collect();
        let expected: Vec<&&str> = words.iter().filter(|word| **word != "end").collect();
        // One more than listed where nothing may follow.
        let asked = expected.len() + usize::from(words.last() == Some(&"end"));
        let from = instant(after).to_string();
        let asked = asked.to_string();
        let answer = json(&[
            row[0],
            "--tz",
            row[1],
            "--from",
            &from,
            "--count",
            &asked,
            "--dst-gap",
            gap,
            "--dst-overlap",
            overlap,
        ]);
        let shown: Vec<&str> =
            answer["slots"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
        assert_eq!(shown.len(), expected.len(), "{row:?}: {shown:?}");
        for (shown, expected) in shown.iter().zip(expected) {
            assert_eq!(instant(shown), instant(expected), "{row:?}");
            // The offset is the local one, not just any that names the instant.
            let same_clock =
                shown.starts_with(&expected[..16]) || expected.ends_with('Z') || row[1] != answer["timezone"];
            assert!(same_clock, "{row:?}: {shown} is not {expected}");
        }
        assert_eq!(answer["expression"], row[0]);
        count += 1;
    }
    println!("explain: {count} rows through the binary");
}

#[test]
fn json_has_the_documented_shape() {
    let answer =
        json(&["30 2 * * *", "--tz", "America/New_York", "--from", "2026-03-07T12:00:00Z", "--count", "3"]);
    assert_eq!(answer["expression"], "30 2 * * *");
    assert_eq!(answer["timezone"], "America/New_York");
    assert_eq!(answer["kind"], "fixed");
    assert_eq!(
        answer["description"],
        "At 02:30 every day, in New York; on 8 March 2026 that time does not exist: runs at 03:00"
    );
    let slots = ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"];
    assert_eq!(answer["slots"], serde_json::json!(slots));
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
    for (expression, kind) in [
        ("*/5 * * * *", "wildcard"),
        ("@every 90s", "interval"),
        ("R/2026-01-01T00:00Z/P1D", "interval"),
        ("2030-01-01T00:00Z", "once"),
        ("@now", "once"),
    ] {
        assert_eq!(json(&[expression])["kind"], kind, "{expression}");
    }
}

#[test]
fn people_see_the_description_a_table_and_dst_notes() {
    let arguments = [
        "30 1 * * *",
        "--tz",
        "America/New_York",
        "--from",
        "2026-10-31T12:00:00Z",
        "--count",
        "3",
        "--dst-overlap",
        "both",
        "--tzdata",
        "bundled",
    ];
    let output = explain(&arguments);
    let page = text(&output.stdout);
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(
        lines[0],
        "At 01:30 every day, in New York; on 1 November 2026 that time comes twice: runs both times"
    );
    assert!(
        page.contains(
            "Sun 2026-11-01T01:30:00-04:00  2026-11-01T05:30:00Z  DST: this time comes twice, first pass"
        ),
        "{page}"
    );
    assert!(
        page.contains(
            "Sun 2026-11-01T01:30:00-05:00  2026-11-01T06:30:00Z  DST: this time comes twice, second pass"
        ),
        "{page}"
    );
    assert!(page.contains("tzdata 20"), "{page}");
}

#[test]
fn bad_input_is_told_on_stderr_with_a_caret_and_exit_code_2() {
    let output = explain(&["0 9 * * 8"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert_eq!(
        text(&output.stderr),
        "error: weekday field: 8 is not between 0 and 7 (position 9); it takes 0 to 7 or SUN to SAT, lists `a,b`, \
         ranges `a-b` and steps `*/n`\n  0 9 * * 8\n          ^\n"
    );
    for arguments in [
        &["-1 * * * *"][..],
        &[""],
        &["0 9 * * *", "--tz", "Mars/Phobos"],
        &["0 9 * * *", "--tz", "EST"],
        &["0 9 * * *", "--from", "yesterday"],
        &["0 9 * * *", "--dialect", "quartz"],
        &["0 9 * * *", "--tzdata", "/does/not/exist"],
        &["0 9 * * *", "--count", "1000000"],
    ] {
        let output = explain(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let garbage = "x".repeat(100_000);
    let output = explain(&[&garbage]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stderr.len() < 200, "the garbage is repeated");
}

#[test]
fn a_date_alone_is_its_midnight_in_utc() {
    let slots = |from: &str| json(&["0 * * * *", "--from", from, "--count", "1"])["slots"][0].clone();
    assert_eq!(slots("2026-11-01"), "2026-11-01T01:00:00+00:00");
    assert_eq!(slots("2026-11-01T00:00:00-05:00"), "2026-11-01T06:00:00+00:00");
    for wrong in ["2026-11-31", "2026-11-01T00:00", "1 November", "2026-11-01 00:00"] {
        let output = explain(&["0 * * * *", "--from", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(text(&output.stderr).contains("`2026-11-01` for midnight UTC"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_schedule_that_never_fires_is_no_error_but_a_warning() {
    let answer = json(&["0 0 30 2 *"]);
    assert_eq!(answer["slots"], serde_json::json!([]));
    assert!(answer["warnings"][0].as_str().unwrap().starts_with("never fires"));
}

#[test]
fn dialects_and_job_ids_are_options() {
    let answer = json(&["0 0 12 ? * 2-6", "--dialect", "quartz"]);
    assert_eq!(answer["canonical"], "0 12 * * 1-5");
    assert!(answer["warnings"][0].as_str().unwrap().contains("MON,TUE,WED,THU,FRI"));
    let slots =
        |id: &str| json(&["H H * * *", "--job-id", id, "--from", "2026-01-01T00:00:00Z"])["slots"].clone();
    assert_eq!(slots("a"), slots("a"));
    assert_ne!(slots("a"), slots("b"));
    assert!(json(&["H H * * *"])["warnings"][0].as_str().unwrap().contains("--job-id"));
}

#[test]
fn the_system_database_is_the_default_and_a_directory_overrides_it() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../schedule/testdata/tzdata/");
    let next = |version: &str| {
        let directory = format!("{directory}{version}");
        let output = explain(&[
            "0 0 * * *",
            "--tz",
            "America/Havana",
            "--from",
            "2026-11-01T04:00:00Z",
            "--count",
            "1",
            "-o",
            "json",
            "--tzdata",
            &directory,
        ]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["tzdata"], version);
        answer["slots"][0].as_str().unwrap().to_string()
    };
    assert_eq!(next("2025b"), "2026-11-02T00:00:00-05:00");
    assert_eq!(next("2026f"), "2026-11-02T00:00:00-04:00");
    assert!(explain(&["0 9 * * *", "--tz", "Europe/Paris"]).status.success());
}
