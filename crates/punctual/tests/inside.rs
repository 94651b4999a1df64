//! Punctual inside a program: what handlers say is kept, and the next attempt goes on with it, also after a restart.

use std::sync::Arc;
use std::time::Duration;

use punctual::function::{Call, Failed};
use punctual::{Punctual, Schedule, Spec, Target};
use punctual_domain::{RunId, TenantId};
use tokio::sync::{Semaphore, mpsc};

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it happens")
}

/// What an attempt was given: its number, its key, where it goes on, and its run.
type Given = (u32, String, serde_json::Value, RunId);

/// A scheduler with a handler that tells how it was called and then does what the test lets it.
async fn start(
    data: &std::path::Path,
    told: mpsc::UnboundedSender<Given>,
    go_on: Arc<Semaphore>,
) -> Punctual {
    let handler = move |call: Call| {
        let (told, go_on) = (told.clone(), Arc::clone(&go_on));
        async move {
            let row = call.last_checkpoint()["row"].as_u64().unwrap_or(0);
            call.log(format!("attempt {} begins with row {row}", call.attempt));
            call.progress(row as u8, format!("row {row}"));
            call.checkpoint(&serde_json::json!({ "row": row + 10 }))?;
            let key = call.idempotency_key.to_string();
            told.send((call.attempt, key, call.last_checkpoint(), call.run_id)).unwrap();
            tokio::select! {
                go_on = go_on.acquire() => go_on.unwrap().forget(),
                () = call.cancelled() => return Err(Failed::new("told to stop")),
            }
            match call.attempt {
                1 | 2 => Err(Failed::new("again").retry_after(Duration::ZERO)),
                _ => Ok(Some(format!("ended with row {row}"))),
            }
        }
    };
    Punctual::builder(data).function("rows", handler).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_goes_on_where_the_attempt_before_stopped_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (told, mut given) = mpsc::unbounded_channel();
    let go_on = Arc::new(Semaphore::new(0));
    let punctual = start(directory.path(), told.clone(), Arc::clone(&go_on)).await;
    let target = Target::Function { name: "rows".into() };
    let mut spec = Spec::new("rows", Schedule::parse("@now").unwrap(), target);
    spec.policies.retry.max_attempts = 5;
    punctual.schedule(spec).await.unwrap();
    let first = within(given.recv()).await.unwrap();
    assert_eq!((first.0, &first.2), (1, &serde_json::Value::Null));
    // It fails: the next attempt has its checkpoint.
    go_on.add_permits(1);
    let second = within(given.recv()).await.unwrap();
    assert_eq!((second.0, &second.1), (2, &first.1));
    assert_eq!(second.2["row"], 10);
    // The program ends in the middle of it, and gives it back.
    let stopped = punctual.stop(Duration::ZERO).await.unwrap();
    assert_eq!((stopped.released, stopped.left), (1, 0));
    let punctual = start(directory.path(), told, Arc::clone(&go_on)).await;
    let third = within(given.recv()).await.unwrap();
    assert_eq!((third.0, &third.1), (3, &first.1));
    assert_eq!(third.2["row"], 20);
    go_on.add_permits(1);
    let detail = ended(&punctual, first.3).await;
    assert_eq!(detail.run.state.as_str(), "succeeded");
    for (attempt, row) in [(1, 0), (2, 10), (3, 20)] {
        let said = detail.papers.of(attempt).unwrap();
        let texts: Vec<_> = said.log.lines.iter().map(|line| line.text.clone()).collect();
        assert_eq!(texts, [format!("attempt {attempt} begins with row {row}")]);
        let progress = said.progress.clone().unwrap();
        assert_eq!((progress.percent, progress.message), (Some(row), Some(format!("row {row}"))));
    }
    punctual.stop(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_hears_that_its_run_was_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let (told, mut given) = mpsc::unbounded_channel();
    let punctual = start(directory.path(), told, Arc::new(Semaphore::new(0))).await;
    let target = Target::Function { name: "rows".into() };
    let spec = Spec::new("rows", Schedule::parse("@now").unwrap(), target);
    punctual.schedule(spec).await.unwrap();
    let (_, _, _, run) = within(given.recv()).await.unwrap();
    punctual.engine().cancel(TenantId::DEFAULT, run).await.unwrap();
    let detail = ended(&punctual, run).await;
    assert_eq!(detail.run.state.as_str(), "cancelled");
    let report = detail.attempts[0].report.clone().unwrap();
    assert_eq!(report.error.unwrap().message, "told to stop");
    punctual.stop(Duration::from_secs(5)).await.unwrap();
}

async fn ended(punctual: &Punctual, run: RunId) -> punctual_store::RunDetail {
    let looking = async {
        loop {
            let detail = punctual.engine().run(TenantId::DEFAULT, run).await.unwrap();
            if detail.run.state.is_ended() {
                return detail;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(looking).await
}
