//! Attempts of which nobody knows what they did, with the real binary, on both stores: under `skip` a receiver sees a run at most once,
//! through kill -9, resets and timeouts in the middle of a request; under `ask` somebody is asked, and answers.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_testing::Postgres;
use serde_json::Value;

use crate::support::hook::Hook;
use crate::support::server::{Server, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the server is killed in the middle of requests.
const KILLS: usize = 3;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn register(server: &Server, url: &str, on_unknown: &str, more: &str) -> String {
    let body = format!(
        r#"{{"name":"u","schedule":{{"now":true}},"target":{{"http":{{"url":"{url}"}}}},"on_unknown":"{on_unknown}",
        "retry":{{"max_attempts":5,"base":"PT0.1S"}}{more}}}"#
    );
    let answer = server.post("/v1/jobs", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The run of a job, with its attempts.
fn run(server: &Server, job: &str) -> Value {
    let runs = server.get(&format!("/v1/jobs/{job}/runs"));
    let id = runs["items"][0]["id"].as_str().unwrap_or_else(|| panic!("no run of {job}")).to_owned();
    server.get(&format!("/v1/runs/{id}"))
}

/// How often each key was seen.
fn seen(hook: &Hook) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for received in hook.received() {
        *seen.entry(received.headers["idempotency-key"].clone()).or_default() += 1;
    }
    seen
}

/// The code of the last attempt's error.
fn code(run: &Value) -> &str {
    run["attempts"].as_array().unwrap().last().unwrap()["error"]["code"].as_str().unwrap_or_default()
}

/// kill -9 while requests are held by their receiver, and again; each key arrives once, and each run says what it is.
fn a_receiver_sees_each_key_once_through_kills(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let mut jobs = Vec::new();
    for _ in 0..KILLS {
        let server = Server::start_with(data, arguments);
        let before = jobs.len();
        for _ in 0..5 {
            jobs.push(register(&server, &format!("{}/hang", hook.url), "skip", ""));
        }
        // One that is tried again, to see that what was lost is.
        jobs.push(register(&server, &format!("{}/hang", hook.url), "retry", ""));
        for job in &jobs[before..] {
            let key = run(&server, job)["idempotency_key"].as_str().unwrap().to_owned();
            wait_until("the request arrives", || seen(&hook).contains_key(&key));
        }
        server.kill();
    }
    let server = Server::start_with(data, arguments);
    let (retried, once): (Vec<_>, Vec<_>) = jobs.iter().enumerate().partition(|(place, _)| place % 6 == 5);
    wait_until("every lost attempt is found", || {
        once.iter().all(|(_, job)| run(&server, job)["state"] == "failed")
            && retried.iter().all(|(_, job)| run(&server, job)["attempt"].as_u64() >= Some(2))
    });
    let seen = seen(&hook);
    for (_, job) in &once {
        let run = run(&server, job);
        assert_eq!((code(&run), run["attempts"].as_array().unwrap().len()), ("unknown", 1), "{run}");
        assert_eq!(seen[run["idempotency_key"].as_str().unwrap()], 1, "{run}");
    }
    for (_, job) in &retried {
        assert!(seen[run(&server, job)["idempotency_key"].as_str().unwrap()] > 1, "nothing was tried again");
    }
    let letters = server.get("/v1/dead-letters?error=unknown");
    assert_eq!(letters["items"].as_array().unwrap().len(), once.len());
}

/// kill -9 at random moments while runs begin and end: no key arrives twice, and no run is left open.
fn no_key_arrives_twice_under_load(data: &Path, arguments: &[&str], kills: usize) {
    let hook = Hook::start();
    let mut random = fastrand::Rng::with_seed(11);
    let mut jobs = 0;
    for life in 0..kills {
        let server = Server::start_with(data, arguments);
        let until = Instant::now() + Duration::from_millis(random.u64(50..400));
        // So many however slow the machine is; and all of them are on one page when they are looked at.
        let (least, most) = (jobs + 10, jobs + 900 / kills);
        while jobs < least || (Instant::now() < until && jobs < most) {
            // Half of them are fired by the schedule, in the middle of a later life perhaps.
            let when = if random.bool() { r#"{"now":true}"# } else { r#"{"after":"PT0.3S"}"# };
            let path = random.choice(["ok", "ok", "slow", "hang"]).unwrap();
            let body = format!(
                r#"{{"name":"u","schedule":{when},"target":{{"http":{{"url":"{}/{path}"}}}},"on_unknown":"skip"}}"#,
                hook.url
            );
            let answer = server.post("/v1/jobs", &body);
            assert_eq!(answer.status, 201, "{}", answer.body);
            jobs += 1;
        }
        if life == 0 {
            // One at least is under way.
            let job = register(&server, &format!("{}/hang", hook.url), "skip", "");
            jobs += 1;
            wait_until("the request arrives", || {
                let runs = server.get(&format!("/v1/jobs/{job}/runs"));
                let key = runs["items"][0]["idempotency_key"].as_str();
                key.is_some_and(|key| seen(&hook).contains_key(key))
            });
        }
        // The moment is the point: anything may be under way.
        server.kill();
    }
    let server = Server::start_with(data, arguments);
    wait_until("what can end has ended", || {
        let all = server.get("/v1/runs?limit=1000")["items"].as_array().unwrap().clone();
        let is_open = |run: &&Value| ["pending", "running"].contains(&run["state"].as_str().unwrap());
        // What hangs in the last life is under way until its timeout.
        let path = |run: &&Value| seen_path(&hook, run["idempotency_key"].as_str().unwrap());
        all.len() == jobs && all.iter().filter(is_open).all(|run| path(&run).as_deref() == Some("/hang"))
    });
    let twice: Vec<_> = seen(&hook).into_iter().filter(|(_, count)| *count > 1).collect();
    assert_eq!(twice, [], "of {jobs} runs");
    let letters = server.get("/v1/dead-letters?error=unknown&limit=1000")["items"].as_array().unwrap().len();
    println!("unknown: {kills} kills, {jobs} runs, {letters} unknown, each key at most once");
    assert!(letters > 0 && letters < jobs, "{letters} of {jobs}");
}

/// Where a run was received, if it was.
fn seen_path(hook: &Hook, key: &str) -> Option<String> {
    let received = hook.received();
    received.into_iter().find(|one| one.headers["idempotency-key"] == key).map(|one| one.path)
}

/// A worker that pulls and is never heard of again: what it was given is not given to another.
fn a_silent_worker_takes_its_run_along(data: &Path, arguments: &[&str]) {
    let server = Server::start_with(data, arguments);
    let body = r#"{"name":"u","schedule":{"now":true},"queue":"q","target":{"worker":{"handler":"x"}},"on_unknown":"skip"}"#;
    let job = server.post("/v1/jobs", body).json()["id"].as_str().unwrap().to_owned();
    let claim = || {
        let answer = server.post("/v1/claims", r#"{"queues":["q"],"capacity":5,"wait":"PT0.2S"}"#);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["attempts"].as_array().unwrap().len()
    };
    wait_until("it is given", || claim() == 1);
    wait_until("it is given up", || run(&server, &job)["state"] == "failed");
    assert_eq!((code(&run(&server, &job)), claim()), ("unknown", 0));
}

/// A receiver that reads a request and closes the connection without an answer, the bytes of it remembered by key.
struct Resetting {
    url: String,
    seen: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Resetting {
    fn start() -> Resetting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let seen: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().flatten().enumerate() {
                reset(stream, count, &all);
            }
        });
        Resetting { url, seen }
    }
}

/// Every other time something of an answer is sent.
fn reset(mut stream: TcpStream, count: usize, seen: &Mutex<BTreeMap<String, usize>>) {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(read) => text.extend_from_slice(&piece[..read]),
        }
    }
    let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
    let key = text.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap().to_owned();
    *seen.lock().unwrap().entry(key).or_default() += 1;
    if count % 2 == 1 {
        // What comes of it is the other side's affair.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nnot all");
    }
}

/// Resets and timeouts in the middle are unknown; what was never sent is tried again.
fn a_receiver_sees_each_key_once_through_resets_and_timeouts(data: &Path, arguments: &[&str]) {
    let (hook, resetting) = (Hook::start(), Resetting::start());
    let server = Server::start_with(data, arguments);
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    let reset: Vec<String> = (0..4).map(|_| register(&server, &resetting.url, "skip", "")).collect();
    let late = register(&server, &format!("{}/hang", hook.url), "skip", r#","timeout":"PT3S""#);
    let refused = register(&server, &nobody, "skip", "");
    let failed = register(&server, &format!("{}/fail", hook.url), "skip", "");
    let all: Vec<&String> = reset.iter().chain([&late, &refused, &failed]).collect();
    wait_until("every run ends", || all.iter().all(|job| run(&server, job)["state"] == "failed"));
    for job in reset.iter().chain([&late]) {
        let run = run(&server, job);
        assert_eq!((code(&run), run["attempt"].as_u64()), ("unknown", Some(1)), "{run}");
    }
    assert_eq!(resetting.seen.lock().unwrap().values().copied().collect::<Vec<_>>(), [1; 4]);
    let late = run(&server, &late)["idempotency_key"].as_str().unwrap().to_owned();
    assert_eq!(seen(&hook)[&late], 1);
    for (job, expected) in [(&refused, "connect_failed"), (&failed, "http_status")] {
        let run = run(&server, job);
        assert_eq!((code(&run), run["attempt"].as_u64()), (expected, Some(5)), "{run}");
    }
}

/// A server that is stopped in the middle gives back what it has not begun, and nothing else.
fn a_stop_in_the_middle_is_no_retry(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let arguments: Vec<&str> = [arguments, &["--grace", "0"]].concat();
    let server = Server::start_with(data, &arguments);
    let job = register(&server, &format!("{}/hang", hook.url), "skip", "");
    wait_until("the request arrives", || hook.received().len() == 1);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = Server::start_with(data, &arguments);
    wait_until("the run ends", || run(&server, &job)["state"] == "failed");
    let run = run(&server, &job);
    assert_eq!((code(&run), hook.received().len()), ("unknown", 1), "{run}");
}

fn punctual(server: &Server, arguments: &[&str]) -> String {
    let output = command().args(arguments).args(["--server", &server.url()]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Somebody is asked by the list and answers by the command line, also after a restart.
fn somebody_is_asked_and_answers(data: &Path, arguments: &[&str]) {
    let hook = Hook::start();
    let server = Server::start_with(data, arguments);
    let jobs: Vec<String> =
        (0..3).map(|_| register(&server, &format!("{}/hold", hook.url), "ask", "")).collect();
    wait_until("the requests arrive", || hook.received().len() == 3);
    server.kill();
    let server = Server::start_with(data, arguments);
    let asking = || server.get("/v1/runs?waiting_for=answer")["items"].as_array().unwrap().len();
    wait_until("somebody is asked", || asking() == 3);
    let runs: Vec<Value> = jobs.iter().map(|job| run(&server, job)).collect();
    let listed = punctual(&server, &["run", "list", "--waiting-for", "answer"]);
    for (run, job) in runs.iter().zip(&jobs) {
        let id = run["id"].as_str().unwrap();
        assert!(listed.contains(id), "{listed}");
        assert_eq!((&run["waiting_for"], &run["available_at"]), (&Value::from("answer"), &Value::Null));
        let page = punctual(&server, &["run", "get", id]);
        assert!(page.contains("waits for an answer") && page.contains("punctual run answer"), "{page}");
        let why = server.get(&format!("/v1/jobs/{job}/why"));
        assert_eq!(why["reason"], "waiting_for_answer", "{why}");
    }
    let (_, _) = server.stop();
    let server = Server::start_with(data, arguments);
    hook.release();
    let answered: Vec<String> = ["retry", "succeeded", "failed"]
        .iter()
        .zip(&runs)
        .map(|(answer, run)| punctual(&server, &["run", "answer", run["id"].as_str().unwrap(), answer]))
        .collect();
    assert!(answered[0].contains("next attempt is number 2"), "{answered:?}");
    assert!(answered[1].contains("is succeeded") && answered[2].contains("is failed"), "{answered:?}");
    wait_until("the retry succeeds", || run(&server, &jobs[0])["state"] == "succeeded");
    let seen = seen(&hook);
    let counts: Vec<usize> = runs.iter().map(|run| seen[run["idempotency_key"].as_str().unwrap()]).collect();
    assert_eq!(counts, [2, 1, 1]);
    let again =
        server.post(&format!("/v1/runs/{}/answer", runs[1]["id"].as_str().unwrap()), r#"{"answer":"retry"}"#);
    assert_eq!(again.status, 409, "{}", again.body);
}

/// Seconds until what a killed server held is found.
const LEASE: &str = "3";

/// For stories in which nobody is killed: a machine that stalls loses nothing.
const LONG_LEASE: &str = "30";

fn on_embedded(story: impl Fn(&Path, &[&str])) {
    on_embedded_under(LEASE, story);
}

fn on_embedded_under(lease: &str, story: impl Fn(&Path, &[&str])) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    story(&data, &["--lease", lease]);
    let checked = punctual_store_embedded::check(&data, jiff::Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

fn on_postgres(story: impl Fn(&Path, &[&str])) {
    on_postgres_under(LEASE, story);
}

fn on_postgres_under(lease: &str, story: impl Fn(&Path, &[&str])) {
    let address = Postgres::shared().database();
    let directory = tempfile::tempdir().unwrap();
    story(directory.path(), &["--store", &address, "--lease", lease]);
}

#[test]
fn under_skip_a_receiver_sees_each_key_once_through_kills() {
    on_embedded(a_receiver_sees_each_key_once_through_kills);
}

#[test]
fn under_skip_a_receiver_sees_each_key_once_through_kills_on_postgres() {
    on_postgres(a_receiver_sees_each_key_once_through_kills);
}

#[test]
fn under_skip_a_receiver_sees_each_key_once_through_resets_and_timeouts() {
    on_embedded_under(LONG_LEASE, a_receiver_sees_each_key_once_through_resets_and_timeouts);
}

#[test]
fn under_skip_a_receiver_sees_each_key_once_through_resets_and_timeouts_on_postgres() {
    on_postgres_under(LONG_LEASE, a_receiver_sees_each_key_once_through_resets_and_timeouts);
}

#[test]
fn under_skip_no_key_arrives_twice_however_often_the_server_is_killed() {
    on_embedded(|data, arguments| no_key_arrives_twice_under_load(data, arguments, 12));
}

#[test]
fn under_skip_no_key_arrives_twice_however_often_the_server_is_killed_on_postgres() {
    on_postgres(|data, arguments| no_key_arrives_twice_under_load(data, arguments, 4));
}

#[test]
fn under_skip_a_silent_worker_takes_its_run_along() {
    on_embedded(a_silent_worker_takes_its_run_along);
}

#[test]
fn under_skip_a_silent_worker_takes_its_run_along_on_postgres() {
    on_postgres(a_silent_worker_takes_its_run_along);
}

#[test]
fn under_skip_a_stop_in_the_middle_is_no_retry() {
    on_embedded(a_stop_in_the_middle_is_no_retry);
}

#[test]
fn under_skip_a_stop_in_the_middle_is_no_retry_on_postgres() {
    on_postgres(a_stop_in_the_middle_is_no_retry);
}

#[test]
fn under_ask_somebody_answers() {
    on_embedded(somebody_is_asked_and_answers);
}

#[test]
fn under_ask_somebody_answers_on_postgres() {
    on_postgres(somebody_is_asked_and_answers);
}
