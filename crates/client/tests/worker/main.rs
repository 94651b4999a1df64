//! A worker against a small server that misbehaves: what the real one says is tested with it.
#![allow(clippy::unwrap_used)]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::{Fake, Route, Seen, Whim};
use punctual_client::worker::{Answer, Failed};
use punctual_client::{Error, Worker};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// A worker for the length of a test.
struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let (stop, told) = oneshot::channel::<()>();
        let stopped = async move { drop(told.await) };
        Running { stop, ended: tokio::spawn(worker.run_until(stopped)) }
    }

    async fn stop(self) {
        drop(self.stop);
        self.ended.await.unwrap().unwrap();
    }
}

/// Handlers that were begun.
type Begun = Arc<AtomicUsize>;

#[tokio::test]
async fn a_late_answer_to_who_it_was_before_takes_nothing_from_a_worker() {
    let fake = Fake::start().await;
    fake.state().beats_a_minute = Some(1);
    let (late, go, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Begun::default());
    fake.next(Route::Heartbeat, Whim::Late(Arc::clone(&late)));
    let (may, begins) = (Arc::clone(&go), Arc::clone(&begun));
    let worker = Worker::new(fake.client(), ["default"]).handler("work", move |_| {
        begins.fetch_add(1, Ordering::SeqCst);
        let may = Arc::clone(&may);
        async move {
            may.notified().await;
            Ok(None)
        }
    });
    let running = Running::start(worker);
    let first = fake
        .wait("a heartbeat", |state| state.seen(Route::Heartbeat).next().map(|seen| seen.worker.clone()))
        .await;
    fake.lose_workers();
    let run = fake.add("work");
    let second = fake.wait_state(&run, "running").await.holder;
    assert_ne!(second, first);
    // Now the first heartbeat is answered: whoever sent it is lost.
    late.notify_one();
    fake.wait("a heartbeat of who it is now", |state| {
        state
            .seen(Route::Heartbeat)
            .find(|seen| seen.worker == second && seen.body["held"][0]["run_id"] == *run)?;
        Some(())
    })
    .await;
    go.notify_one();
    let done = fake.wait_state(&run, "succeeded").await;
    assert_eq!((done.attempt, done.holder), (1, second));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test]
async fn a_worker_that_was_taken_for_dead_does_not_wait_for_its_old_claim() {
    let fake = Fake::start().await;
    let running =
        Running::start(Worker::new(fake.client(), ["default"]).handler("work", |_| async { Ok(None) }));
    fake.wait("a claim that waits", |state| {
        state.seen(Route::Claim).find(|seen| seen.body["worker"].is_string()).map(drop)
    })
    .await;
    fake.next(Route::Claim, Whim::Silence);
    let first = fake.add("work");
    fake.wait_state(&first, "succeeded").await;
    fake.wait("the claim that is not answered", |state| state.seen(Route::Claim).nth(2).map(drop)).await;
    fake.lose_workers();
    let second = fake.add("work");
    fake.wait_state(&second, "succeeded").await;
    running.stop().await;
}

#[tokio::test]
async fn a_heartbeat_that_nobody_answers_is_followed_by_another() {
    let fake = Fake::start().await;
    fake.next(Route::Heartbeat, Whim::Silence);
    fake.next(Route::Heartbeat, Whim::Silence);
    let running = Running::start(Worker::new(fake.client(), ["default"]));
    fake.wait("a third heartbeat", |state| state.seen(Route::Heartbeat).nth(2).map(drop)).await;
    running.stop().await;
}

#[tokio::test]
async fn what_an_attempt_says_never_costs_the_worker_its_sign_of_life() {
    for status in [400, 413, 422] {
        let fake = Fake::start().await;
        fake.state().refuses_notes = Some(status);
        let go = Arc::new(Notify::new());
        let may = Arc::clone(&go);
        let worker = Worker::new(fake.client(), ["default"]).handler("work", move |task| {
            let may = Arc::clone(&may);
            async move {
                task.checkpoint(&serde_json::json!({"row": 7}))?;
                may.notified().await;
                Ok(None)
            }
        });
        let running = Running::start(worker);
        let run = fake.add("work");
        let is_refused = |seen: &Seen| seen.body["held"][0]["checkpoint"]["row"] == 7;
        fake.wait("a heartbeat after the one that is refused", |state| {
            let mut beats = state.seen(Route::Heartbeat).skip_while(|seen| !is_refused(seen)).skip(1);
            assert_eq!(
                beats.next()?.body["held"][0],
                serde_json::json!({"run_id": run, "attempt": 1}),
                "{status}"
            );
            Some(())
        })
        .await;
        go.notify_one();
        fake.wait_state(&run, "succeeded").await;
        running.stop().await;
    }
}

#[tokio::test]
async fn a_checkpoint_that_no_server_takes_is_the_failure_of_its_handler_alone() {
    let fake = Fake::start().await;
    let worker = Worker::new(fake.client(), ["default"]).handler("work", |task| async move {
        task.checkpoint(&serde_json::json!("x".repeat(64 << 10)))?;
        Ok(None)
    });
    let running = Running::start(worker);
    let run = fake.add("work");
    let failed = fake.wait_state(&run, "failed").await;
    assert!(failed.result["error"]["message"].as_str().unwrap().contains("too large"), "{failed:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_handler_that_says_much_is_heard_in_part() {
    let fake = Fake::start().await;
    let go = Arc::new(Notify::new());
    let may = Arc::clone(&go);
    let worker = Worker::new(fake.client(), ["default"]).handler("work", move |task| {
        let may = Arc::clone(&may);
        async move {
            (0..20_000).for_each(|number| task.log(format!("{number} {}", "x".repeat(500))));
            may.notified().await;
            Ok(None)
        }
    });
    let running = Running::start(worker);
    let run = fake.add("work");
    let log =
        fake.wait("its log", |state| Some(state.runs[&run].log.clone()).filter(|log| !log.is_empty())).await;
    assert!(log[0].ends_with("lines are left out)"), "{}", log[0]);
    assert!(log.last().unwrap().starts_with("19999 "));
    go.notify_one();
    fake.wait_state(&run, "succeeded").await;
    running.stop().await;
}

/// A worker whose handlers say how often they were begun, and answer what each was given for its turn.
fn answering(fake: &Fake, begun: &Begun, answers: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Worker {
    let (begins, answers) = (Arc::clone(begun), Arc::new(answers));
    Worker::new(fake.client(), ["default"]).handler("work", move |task| {
        begins.fetch_add(1, Ordering::SeqCst);
        let answer = answers(&task.attempt().run_id);
        async move { answer }
    })
}

#[tokio::test]
async fn a_result_that_is_put_off_is_reported_again() {
    let (fake, begun) = (Fake::start().await, Begun::default());
    fake.state().put_off = 2;
    let runs = [fake.add("work"), fake.add("work"), fake.add("work")];
    let running = Running::start(answering(&fake, &begun, |_| Ok(None)));
    for run in &runs {
        assert_eq!(fake.wait_state(run, "succeeded").await.attempt, 1);
    }
    assert_eq!(begun.load(Ordering::SeqCst), 3);
    running.stop().await;
}

#[tokio::test]
async fn results_outlast_refusals_of_who_reports_them_or_when() {
    let (fake, begun) = (Fake::start().await, Begun::default());
    for whim in [Whim::Refuse(401), Whim::Refuse(403), Whim::Page(429), Whim::Refuse(503)] {
        fake.next(Route::Results, whim);
    }
    let run = fake.add("work");
    let running = Running::start(answering(&fake, &begun, |_| Ok(Some("done".into()))));
    assert_eq!(fake.wait_state(&run, "succeeded").await.result["output"], "done");
    assert_eq!((begun.load(Ordering::SeqCst), fake.state().seen(Route::Results).count()), (1, 5));
    running.stop().await;
}

#[tokio::test]
async fn one_result_that_is_refused_does_not_lose_those_beside_it() {
    let (fake, begun, late) = (Fake::start().await, Begun::default(), Arc::new(Notify::new()));
    fake.state().unwelcome = Some("bad".into());
    fake.next(Route::Results, Whim::Late(Arc::clone(&late)));
    let first = fake.add("work");
    let bad = Arc::new(std::sync::OnceLock::<String>::new());
    let of = Arc::clone(&bad);
    let running = Running::start(answering(&fake, &begun, move |run| {
        let is_bad = of.get().is_some_and(|bad| bad == run);
        Ok(Some(if is_bad { "bad" } else { "good" }.into()))
    }));
    fake.wait("a report", |state| state.seen(Route::Results).next().map(drop)).await;
    // While the first waits for its answer the others come together.
    bad.set(fake.add("work")).unwrap();
    let beside = [fake.add("work"), fake.add("work")];
    let is_listed = |seen: &&Seen| seen.body["held"].as_array().is_some_and(|held| held.len() == 4);
    fake.wait("heartbeats with all four", |state| {
        state.seen(Route::Heartbeat).filter(is_listed).nth(2).map(drop)
    })
    .await;
    late.notify_one();
    for run in [&first, &beside[0], &beside[1]] {
        assert_eq!(fake.wait_state(run, "succeeded").await.result["output"], "good");
    }
    let refused = fake.wait_state(bad.get().unwrap(), "failed").await.result;
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["is_retryable"]),
        (&"result_refused".into(), &false.into())
    );
    let together =
        fake.state().seen(Route::Results).map(|seen| seen.body["results"].as_array().unwrap().len()).max();
    assert_eq!((begun.load(Ordering::SeqCst), together), (4, Some(3)));
    running.stop().await;
}

#[tokio::test]
async fn a_failure_is_told_in_words_that_servers_take() {
    let (fake, begun) = (Fake::start().await, Begun::default());
    let run = fake.add("work");
    let running = Running::start(answering(&fake, &begun, |_| {
        let failed = Failed::new("no ".repeat(10_000)).code("no such b\u{f6}x").retry_after(Duration::ZERO);
        Err(failed)
    }));
    let error = &fake.wait_state(&run, "failed").await.result["error"];
    assert_eq!((&error["code"], &error["retry_after"]), (&"no_such_b_x".into(), &"PT0.001S".into()));
    assert_eq!(error["message"].as_str().unwrap().len(), 4 << 10);
    running.stop().await;
}

#[tokio::test]
async fn what_is_longer_than_a_server_reads_is_told_in_part() {
    let (fake, begun) = (Fake::start().await, Begun::default());
    let run = fake.add("work");
    let running = Running::start(answering(&fake, &begun, |_| Ok(Some("x".repeat(9 << 20)))));
    let result = fake.wait_state(&run, "succeeded").await.result;
    assert_eq!(result["output"].as_str().unwrap().len(), (256 << 10) + 4);
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test]
async fn what_something_in_between_refuses_is_reported_with_less() {
    let fake = Fake::start().await;
    fake.next(Route::Results, Whim::Page(413));
    let run = fake.add("work");
    let running =
        Running::start(Worker::new(fake.client(), ["default"]).handler("work", |task| async move {
            task.log("much");
            Ok(Some("done".into()))
        }));
    let done = fake.wait_state(&run, "succeeded").await;
    assert_eq!((&done.result["output"], done.log), (&"done".into(), Vec::new()));
    running.stop().await;
}

#[tokio::test]
async fn an_attempt_that_has_a_next_one_is_not_reported_before_its_checkpoint() {
    let fake = Fake::start().await;
    fake.state().refuses_notes = Some(503);
    let run = fake.add("work");
    let running =
        Running::start(Worker::new(fake.client(), ["default"]).handler("work", |task| async move {
            task.checkpoint(&serde_json::json!({"row": 7}))?;
            Err(Failed::new("not yet"))
        }));
    let is_refused = |seen: &&Seen| seen.body["held"][0]["checkpoint"]["row"] == 7;
    fake.wait("heartbeats that are refused", |state| {
        state.seen(Route::Heartbeat).filter(is_refused).nth(2).map(drop)
    })
    .await;
    assert_eq!(fake.state().seen(Route::Results).count(), 0);
    fake.state().refuses_notes = None;
    assert_eq!(fake.wait_state(&run, "failed").await.checkpoint["row"], 7);
    running.stop().await;
}
