//! A worker of the Rust client over gRPC, beside the real binary, on both stores: it is given runs on its stream, keeps what it holds
//! through a restart and a kill of the server, is told to stop, and leaves well.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_client::worker::Failed;
use punctual_client::{Client, Options, Worker};
use punctual_testing::Postgres;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::support::server::{Server, call};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A job of a handler, and a run of it.
fn run_of(server: &Server, handler: &str) -> String {
    let body = format!(
        r#"{{"schedule":{{"at": "2190-01-01T00:00:00Z"}},"queue":"streamed","target":{{"worker":{{"handler":"{handler}"}}}},
            "retry":{{"backoff":"fixed","base":"PT0.1S"}},"timeout":"PT1H"}}"#
    );
    let job = server.post("/v1/jobs", &body);
    assert_eq!(job.status, 201, "{}", job.body);
    let run = server.post(&format!("/v1/jobs/{}/trigger", job.json()["id"].as_str().unwrap()), "");
    assert_eq!(run.status, 201, "{}", run.body);
    run.json()["id"].as_str().unwrap().to_string()
}

fn run(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/runs/{id}"))
}

/// The server again, on the port that the worker knows.
fn again(port: u16, data: &Path, arguments: &[&str]) -> Server {
    let server = Server::launch(port, data, arguments);
    wait_until("the server is back", || {
        call(server.address, "GET", "/readyz", &[], "").is_ok_and(|answer| answer.status == 200)
    });
    server
}

fn works_on_a_stream(data: &Path, arguments: &[&str]) {
    let arguments: Vec<&str> = [arguments, &["--lease", "10"]].concat();
    let mut server = Server::start_with(data, &arguments);
    let port = server.address.port();
    let client = Client::new(server.url().parse().unwrap(), &Options::default()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let gate = Arc::new(watch::Sender::new(false));
    let opened = Arc::clone(&gate);
    let worker = Worker::new(client, ["streamed"])
        .grpc()
        .name("streamer")
        .concurrency(5)
        .grace(Duration::from_millis(100))
        .handler("resume", |task| async move {
            task.log(format!("attempt {}", task.attempt().attempt));
            if task.last_checkpoint().is_null() {
                task.checkpoint(&json!({"row": 7}))?;
                return Err(Failed::new("not yet").code("not_yet"));
            }
            Ok(Some(format!("went on at {}", task.last_checkpoint()["row"])))
        })
        .handler("long", move |_| {
            let mut opened = opened.subscribe();
            async move {
                opened.wait_for(|is_open| *is_open).await?;
                Ok(Some("through it all".into()))
            }
        })
        .handler("endless", |task| async move {
            task.progress(1, "begun");
            std::future::pending::<()>().await;
            Ok(None)
        });
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(worker.run_until(async {
            // Whoever stops it drops it at the latest.
            let _ = stopped.await;
        }))
    });
    let [resumed, long, cancelled, left] =
        ["resume", "long", "endless", "endless"].map(|handler| run_of(&server, handler));
    wait_until("the run that goes on", || run(&server, &resumed)["state"] == "succeeded");
    let seen = run(&server, &resumed);
    assert_eq!(seen["attempts"][0]["error"]["code"], "not_yet", "{seen}");
    assert_eq!(seen["attempts"][1]["output"]["text"], "went on at 7", "{seen}");
    assert_eq!(seen["attempts"][1]["log"][0]["text"], "attempt 2", "{seen}");
    wait_until("all that have begun are running", || {
        [&long, &cancelled, &left].iter().all(|id| run(&server, id)["state"] == "running")
    });
    assert_eq!(server.post(&format!("/v1/runs/{cancelled}/cancel"), "").status, 200);
    wait_until("the cancelled run", || run(&server, &cancelled)["state"] == "cancelled");
    // What it holds is its own while the server is away, told to stop or not.
    server.stop();
    server = again(port, data, &arguments);
    server.kill();
    server = again(port, data, &arguments);
    wait_until("the worker is back", || {
        let listed = server.get("/v1/workers");
        listed["items"][0]["held"] == 2 && listed["items"][0]["name"] == "streamer"
    });
    gate.send_replace(true);
    wait_until("the long run", || run(&server, &long)["state"] == "succeeded");
    let seen = run(&server, &long);
    assert_eq!(
        (&seen["attempt"], &seen["attempts"][0]["output"]["text"]),
        (&json!(1), &json!("through it all"))
    );
    let after = run_of(&server, "resume");
    wait_until("a run of the new stream", || run(&server, &after)["state"] == "succeeded");
    stop.send(()).unwrap();
    thread.join().unwrap().unwrap();
    let released = run(&server, &left);
    assert_eq!((&released["state"], &released["attempt"]), (&json!("pending"), &json!(1)), "{released}");
    assert_eq!(server.get("/v1/workers")["items"], json!([]), "it said that it goes");
    server.stop();
}

#[test]
fn a_worker_on_a_stream_keeps_what_it_holds_through_restarts() {
    let data = tempfile::tempdir().unwrap();
    works_on_a_stream(data.path(), &[]);
}

#[test]
fn a_worker_on_a_stream_keeps_what_it_holds_through_restarts_on_postgres() {
    let (address, data) = (Postgres::shared().database(), tempfile::tempdir().unwrap());
    works_on_a_stream(data.path(), &["--store", &address]);
}

/// A first hello that is refused is the worker's end; the reason is that of REST.
#[test]
fn a_worker_that_is_refused_says_why() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_with(data.path(), &[]);
    let client = Client::new(server.url().parse().unwrap(), &Options::default()).unwrap();
    let worker = Worker::new(client.tenant("nobody"), ["streamed"]).grpc();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(worker.run_until(std::future::pending())).unwrap_err();
    assert_eq!(refused.problem().unwrap().code, "tenant_not_found", "{refused}");
    server.stop();
}
