//! A worker of the Rust client as a process of its own, which a test may signal and kill: the test's own program, told to be one.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use punctual_client::worker::{Failed, Task};
use punctual_client::{Client, Options, Worker};
use serde_json::json;

/// Where a child finds its server; a test that finds none is not a child.
const SERVER: &str = "PUNCTUAL_CHILD_SERVER";
const QUEUE: &str = "PUNCTUAL_CHILD_QUEUE";
const IS_GRPC: &str = "PUNCTUAL_CHILD_GRPC";

/// Nothing here takes nearly so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A worker as a process, which ends with the test.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(url: &str, queue: &str) -> Program {
        Program::spawn(url, queue, false)
    }

    pub(crate) fn start_grpc(url: &str, queue: &str) -> Program {
        Program::spawn(url, queue, true)
    }

    fn spawn(url: &str, queue: &str, is_grpc: bool) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "support::program::child_is_a_worker", "--nocapture"])
            .env(SERVER, url)
            .env(QUEUE, queue);
        if is_grpc {
            command.env(IS_GRPC, "true");
        }
        Program(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Is a worker until it is told to stop, if this process is a child.
#[test]
fn child_is_a_worker() {
    let Ok(url) = std::env::var(SERVER) else { return };
    let client = Client::new(url.parse().unwrap(), &Options::default()).unwrap();
    let mut worker = Worker::new(client, [std::env::var(QUEUE).unwrap()])
        .name("child")
        .concurrency(50)
        .grace(Duration::from_secs(60))
        .handler("poison", poison)
        .handler("quick", |task| async move { Ok(Some(format!("did {}", task.payload()))) })
        .handler("steps", steps)
        .handler("endless", |task| async move {
            task.progress(1, "begun");
            std::future::pending::<()>().await;
            Ok(None)
        });
    if std::env::var(IS_GRPC).is_ok() {
        worker = worker.grpc();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(worker.run()).unwrap();
}

/// The payload `"poison"` kills the process; every other takes so long that it is there when that happens.
async fn poison(task: Task) -> Result<Option<String>, Failed> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    if task.payload() == "poison" {
        let me = std::process::id().to_string();
        // Whatever comes of it, this process is not to go on.
        let _ = Command::new("kill").args(["-KILL", &me]).status();
        std::process::abort();
    }
    Ok(None)
}

/// Takes as many steps as the payload says, a tenth of a second each, and goes on with the one after the last that is known.
async fn steps(task: Task) -> Result<Option<String>, Failed> {
    let all = task.payload()["steps"].as_u64().unwrap_or(1);
    let begun_at = task.last_checkpoint()["step"].as_u64().unwrap_or(0);
    for step in begun_at..all {
        tokio::time::sleep(Duration::from_millis(100)).await;
        task.checkpoint(&json!({ "step": step + 1 }))?;
        task.progress((step * 100 / all) as u8, format!("step {step}"));
    }
    Ok(Some(format!("{begun_at} to {all}")))
}
