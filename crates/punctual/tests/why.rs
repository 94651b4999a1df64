//! `punctual job why` with the real binary, on both stores: what the guide shows is what it prints.

use std::time::{Duration, Instant};

use punctual_testing::Postgres;

use crate::support::hook::Hook;
use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// By then, jobs of every second have had several slots.
const SETTLED: Duration = Duration::from_secs(3);

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/why.md");
const BEGIN: &str = "<!-- printed -->";
const END: &str = "<!-- end -->";

#[test]
fn the_guide_shows_what_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    told(&Server::start(&directory.path().join("data")), std::env::var_os("UPDATE_GUIDE").is_some());
}

#[test]
fn the_guide_shows_what_is_printed_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        return; // The other one writes it.
    }
    told(&Server::start_with(directory.path(), &["--store", &address]), false);
}

fn told(server: &Server, updates: bool) {
    let hook = Hook::start();
    let url = |path: &str| format!("{}/{path}", hook.url);
    let create = |arguments: &[&str]| {
        let mut all = vec!["job", "create"];
        all.extend(arguments);
        let printed = punctual(server, &all);
        printed.split(' ').nth(2).unwrap().to_string()
    };
    let tick = create(&["tick", "--every", "1s", "--discard"]);
    let report = create(&["report", "--cron", "0 9 * * MON-FRI", "--tz", "Europe/Paris", "--discard"]);
    let fails = create(&["fails", "--now", "--url", &url("fail"), "--max-attempts", "1"]);
    let retries = create(&["retries", "--now", "--url", &url("fail"), "--retry-delays", "1h"]);
    let picky = create(&["picky", "--now", "--require", "gpu=true", "--start-window", "10m", "--discard"]);
    let busy = create(&["busy", "--every", "1s", "--overlap", "skip", "--url", &url("hold")]);
    let nightly = create(&["nightly", "--cron", "30 2 * * *", "--tz", "Europe/Paris", "--discard"]);
    let paused = create(&["paused", "--every", "1s", "--discard"]);
    let gone = create(&["gone", "--every", "1s", "--discard"]);
    punctual(server, &["job", "pause", &paused, "--by", "ada", "--reason", "database move"]);
    punctual(server, &["job", "delete", &gone]);

    let reason = |job: &str, at: &str| {
        let query = if at.is_empty() { String::new() } else { format!("?at={at}") };
        server.get(&format!("/v1/jobs/{job}/why{query}"))["reason"].as_str().unwrap().to_string()
    };
    let text = std::fs::read_to_string(GUIDE).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let mut anew = String::new();
    for (title, job, at, wanted) in [
        ("It ran:", &tick, "", "ran_on_time"),
        ("It failed, and is tried again:", &retries, "", "retrying"),
        ("It failed for good:", &fails, "", "failed"),
        ("No worker may take it:", &picky, "", "waiting_for_labels"),
        ("An earlier run was still open:", &busy, "", "skipped_overlap"),
        ("Somebody paused it:", &paused, "", "paused"),
        ("The time is no slot:", &report, "2100-01-02T09:00", "not_a_slot"),
        ("The clock leaves the time out:", &nightly, "2100-03-28T02:30", "dst_gap"),
        ("It was registered later:", &report, "2026-01-03T09:00", "before_the_job"),
        ("It is deleted:", &gone, "", "deleted"),
    ] {
        // A slot of a second is late once in a while on a busy machine, and the next one is not.
        let begun = Instant::now();
        let printed = loop {
            assert!(begun.elapsed() < PATIENCE, "job {job}: {} is not {wanted}", reason(job, at));
            std::thread::sleep(Duration::from_millis(50));
            if reason(job, at) != wanted {
                continue;
            }
            let mut arguments = vec!["job", "why", job];
            arguments.extend(if at.is_empty() { vec![] } else { vec!["--at", at] });
            let printed = punctual(server, &arguments);
            let is_shown = pattern(shown).contains(&pattern(&printed));
            // Several slots make a range of them; which is what the guide shows.
            let is_settled = begun.elapsed() > SETTLED;
            match is_shown || (is_settled && updates) {
                true => break printed,
                false => assert!(begun.elapsed() < PATIENCE / 2, "the guide does not show\n{printed}"),
            }
        };
        anew.push_str(&format!("{title}\n\n```text\n{printed}```\n\n"));
    }
    if updates {
        std::fs::write(GUIDE, format!("{before}{BEGIN}\n\n{anew}{END}{after}")).unwrap();
    }
    let groups = punctual(server, &["dead-letter", "groups"]);
    assert!(groups.contains("http_status 500") && groups.lines().count() == 2, "{groups}");
    let ledger = punctual(server, &["job", "ledger", &busy]);
    assert!(
        ledger.contains("skipped") && ledger.contains("overlap") && ledger.contains("running"),
        "{ledger}"
    );
    let ledger = punctual(server, &["job", "ledger", &gone]);
    assert!(ledger.contains("deleted"), "{ledger}");
    hook.release();
}

fn punctual(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A text without what differs from one time to the next: words with a digit in them.
fn pattern(text: &str) -> String {
    let word = |word: &str| {
        let is_plain = !word.chars().any(|c| c.is_ascii_digit());
        if is_plain { word.to_string() } else { "#".into() }
    };
    // Lengths such as `1h 59m` have one or two words.
    let mut words: Vec<String> = text.split_whitespace().map(word).collect();
    words.dedup_by(|a, b| a == "#" && b == "#");
    words.join(" ")
}
