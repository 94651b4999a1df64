//! Forecasts and hints, end to end: the real binary against a real server.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::support::server::{Server, command};

struct Remote {
    server: Server,
    _directory: tempfile::TempDir,
}

impl Remote {
    fn start(flags: &[&str]) -> Remote {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start_with(&directory.path().join("data"), flags);
        Remote { server, _directory: directory }
    }

    /// The exit code, and what it says.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = command().args(arguments).args(["--server", &self.server.url()]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }

    fn says(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[arguments, &["-o", "json"]].concat())).unwrap()
    }
}

/// The midnight after the next, UTC, so many hours later.
fn midnight(hours: i64) -> String {
    let day = SignedDuration::from_hours(24);
    let today = Timestamp::from_second(Timestamp::now().as_second() / 86_400 * 86_400).unwrap();
    (today + day + day + SignedDuration::from_hours(hours)).to_string()
}

#[test]
fn a_forecast_shows_when_it_gets_crowded_and_why() {
    let remote = Remote::start(&["--log", "warn"]);
    for _ in 0..3 {
        remote.says(&[
            "job",
            "create",
            "--cron",
            "0 9 * * *",
            "--url",
            "http://127.0.0.1:9009/x",
            "--type",
            "mail",
        ]);
    }
    remote.says(&["job", "create", "--cron", "30 10 * * *", "--discard"]);
    remote.says(&["tenant", "create", "acme"]);
    remote.says(&["job", "create", "--cron", "0 9 * * *", "--discard", "--tenant", "acme"]);
    let (from, to) = (midnight(8), midnight(12));
    let range = ["forecast", "--from", &from, "--to", &to, "--resolution", "1h"];
    let page = remote.says(&range);
    assert!(page.starts_with("4 slots from "), "{page}");
    assert!(page.contains("\nat most 3 in PT1H, "), "{page}");
    let bars: Vec<usize> =
        page.lines().filter(|line| line.contains(":00:00 ")).map(|line| line.matches('#').count()).collect();
    assert_eq!(bars[bars.len() - 4..], [0, 40, 14, 0], "{page}");

    let page = remote.says(&[&range[..], &["--by", "type,target"]].concat());
    let lines: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[lines.len() - 3..],
        [
            vec!["TYPE", "TARGET", "SLOTS", "AT", "MOST"],
            vec!["mail", "http", "127.0.0.1:9009", "3", "3"],
            vec!["-", "discard", "1", "1"]
        ]
    );
    let page = remote.says(&[&range[..], &["--by", "tenant", "--all-tenants", "--groups", "1"]].concat());
    let lines: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[lines.len() - 2..], [vec!["default", "4", "3"], vec!["others", "1", "1"]]);

    let forecast = remote.json(&[&range[..], &["--by", "tenant", "--all-tenants"]].concat());
    assert_eq!(
        (&forecast["slots"], &forecast["jobs"], &forecast["is_exact"]),
        (&5.into(), &5.into(), &true.into())
    );
    assert_eq!(forecast["groups"][0]["buckets"], serde_json::json!([0, 3, 1, 0]));
    assert_eq!(remote.json(&["forecast"])["is_complete"], true, "of the next hour, without a wish");
    let (code, said) = remote.run(&["forecast", "--resolution", "1ms"]);
    assert!(code == 2 && said.contains("write whole seconds"), "{code} {said}");
}

#[test]
fn a_job_of_a_crowded_second_is_told_so() {
    let remote = Remote::start(&["--log", "warn", "--hot-second", "2"]);
    let create = ["job", "create", "--cron", "0 9 1 1 *", "--discard"];
    for _ in 0..3 {
        remote.says(&create);
    }
    let (told, spread) = (remote.says(&create), [&create[..], &["--spread", "PT10S"]].concat());
    assert!(told.contains("3 jobs are due at ") && told.contains("`spread` of `PT10S`"), "{told}");
    assert!(!remote.says(&spread).contains("are due at"), "as it was told");
}
