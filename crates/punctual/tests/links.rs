//! Links, end to end: the real binary on both stores, killed while ends are followed; each end makes one linked run, with the output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::{Hook, Received};
use crate::support::server::{Server, command};

/// Runs that are triggered, a third of which fail.
const RUNS: usize = 24;

/// The server is killed so often while they are under way.
const KILLS: usize = 2;

#[test]
fn each_end_makes_one_linked_run_through_kills() {
    let directory = tempfile::tempdir().unwrap();
    follow(directory.path(), &["--log", "warn", "--lease", "3"]);
    let checked = command().arg("check").arg(directory.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn each_end_makes_one_linked_run_through_kills_on_postgres() {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    // A node that is for other queues follows links, too.
    let arguments =
        ["--log", "warn", "--lease", "3", "--shard-lease", "3", "--queues", "default", "--store", &address];
    follow(directory.path(), &arguments);
}

fn says(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A job that runs when it is triggered, by its key and what is more.
fn create(server: &Server, key: &str, url: &str, more: &[&str]) -> String {
    let arguments = ["job", "create", key, "--key", key, "--at", "2199-01-01T00:00:00Z", "--url", url];
    let attempts = ["--max-attempts", "1", "-o", "json"];
    let job: Value = serde_json::from_str(&says(server, &[&arguments, more, &attempts].concat())).unwrap();
    job["id"].as_str().unwrap().to_string()
}

/// All runs of a job, newest first.
fn runs(server: &Server, job: &str) -> Vec<Value> {
    server.get(&format!("/v1/jobs/{job}/runs?limit=1000"))["items"].as_array().unwrap().clone()
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn follow(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let heard = |path: &str| -> Vec<Received> {
        hook.received().into_iter().filter(|received| received.path == path).collect()
    };
    let mut server = Server::start_with(data, arguments);
    let (report, alarm) = (format!("{}/report", hook.url), format!("{}/alarm", hook.url));
    let after = create(&server, "report", &report, &["--payload", r#"{"table": "sales"}"#]);
    let failed = create(&server, "alarm", &alarm, &[]);
    let links = ["--on-success", "report", "--on-failure", "key:alarm"];
    let well = create(&server, "load", &format!("{}/load", hook.url), &links);
    let ill = create(&server, "broken", &format!("{}/fail", hook.url), &links);
    assert!(says(&server, &["job", "get", "key:load"]).contains("succeeded -> report, failed -> alarm"));
    // A cycle is refused, by name.
    let cycle = ["job", "update", "key:report", "--on-finish", "load", "--server", &server.url()];
    let refused = command().args(cycle).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("report -> load -> report"), "{told}");

    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..RUNS {
        let job = if n % 3 == 0 { &ill } else { &well };
        let body = format!(r#"{{"payload":{{"n":{n}}}}}"#);
        let answer = server.post(&format!("/v1/jobs/{job}/trigger"), &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        asked.insert(answer.json()["id"].as_str().unwrap().into(), n);
        if n % (RUNS / (KILLS + 1)) == RUNS / (KILLS + 1) - 1 && n + 1 < RUNS {
            // Something is under way: ends that are not followed, links that are not delivered, runs that are not ended.
            server.kill();
            server = Server::start_with(data, arguments);
        }
    }
    let ends = RUNS / 3;
    let is_over = |runs: &[Value], count: usize| {
        runs.len() >= count && runs.iter().all(|run| !run["finished_at"].is_null())
    };
    let mut last = String::new();
    wait_for("every end is followed", || {
        let (reports, alarms) = (runs(&server, &after), runs(&server, &failed));
        let now = format!("{} of {} reports, {} of {ends} alarms", reports.len(), RUNS - ends, alarms.len());
        if now != last {
            println!("{now}");
            last = now;
        }
        is_over(&reports, RUNS - ends) && is_over(&alarms, ends)
    });
    let waiting = || server.get("/v1/runs?type=system.link&state=pending")["items"].as_array().unwrap().len();
    wait_for("all links are delivered", || waiting() == 0);

    for (job, state, count) in [(&after, "succeeded", RUNS - ends), (&failed, "failed", ends)] {
        let made = runs(&server, job);
        assert_eq!(made.len(), count, "one for each end");
        let causes: BTreeSet<&str> =
            made.iter().map(|run| run["caused_by"]["run_id"].as_str().unwrap()).collect();
        assert_eq!(causes.len(), count, "each for another");
        assert!(causes.iter().all(|cause| asked.contains_key(*cause)), "{causes:?}");
        for run in &made {
            assert_eq!((&run["cause"], &run["state"]), (&"link".into(), &"succeeded".into()), "{run}");
            let detail = server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()));
            assert_eq!(detail["payload"]["run"]["id"], run["caused_by"]["run_id"]);
            assert_eq!(
                (&detail["payload"]["run"]["state"], &detail["payload"]["output"]),
                (&state.into(), &"ok".into())
            );
        }
    }
    // Receivers were told the same, each under the key of its run: a repeated delivery is recognised.
    let told = heard("/report");
    let keys: BTreeSet<&str> = told.iter().map(|one| &*one.headers["idempotency-key"]).collect();
    assert_eq!(keys.len(), RUNS - ends);
    for one in &told {
        let body: Value = serde_json::from_str(&one.body).unwrap();
        assert_eq!((&body["kind"], &body["output"]), (&"link".into(), &"ok".into()), "{body}");
        assert_eq!(
            (&body["job"]["key"], &body["payload"]["table"]),
            (&"load".into(), &"sales".into()),
            "{body}"
        );
    }
    // What they were triggered with reached them, too.
    let sent: BTreeSet<String> = heard("/load").into_iter().map(|one| one.body).collect();
    assert_eq!(sent.len(), RUNS - ends);
    assert!(sent.contains(r#"{"n":1}"#), "{sent:?}");
    let run = &runs(&server, &after)[0];
    let why = says(&server, &["run", "get", run["id"].as_str().unwrap()]);
    assert!(why.contains(run["caused_by"]["run_id"].as_str().unwrap()), "{why}");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}
