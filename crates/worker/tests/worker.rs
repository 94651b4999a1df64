//! The worker against a made-up engine: what it takes, reports, keeps and gives back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Spec, Target};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::retention::Keep;
use punctual_domain::policy::unknown::OnUnknown;
use punctual_domain::run::{Cause, Run, RunState, WaitingFor};
use punctual_domain::work::{Finished, Heartbeat, Held, Leased};
use punctual_domain::{Lane, Note, Outcome};
use punctual_schedule::Schedule;
use punctual_worker::targets::function::{Call, Failed, Functions};
use punctual_worker::targets::http::{Client, Options as HttpOptions};
use punctual_worker::transport::Unreachable;
use punctual_worker::{Options, Session, Targets, Transport, Worker};
use tokio::sync::Notify;

/// An engine that gives what the test puts in, and remembers what comes back.
#[derive(Default)]
struct Engine {
    lives: AtomicUsize,
    room: AtomicUsize,
    work: Mutex<VecDeque<Leased>>,
    finished: Mutex<Vec<Finished>>,
    notes: Mutex<Vec<Note>>,
    is_down: AtomicBool,
    answer: Mutex<Heartbeat>,
    beats: AtomicUsize,
    changed: Notify,
}

struct Life {
    engine: Arc<Engine>,
    worker: WorkerId,
    is_closed: AtomicBool,
}

struct ToEngine(Arc<Engine>);

#[async_trait]
impl Transport for ToEngine {
    async fn open(&self) -> Result<Arc<dyn Session>, Unreachable> {
        let life = self.0.lives.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        let worker = WorkerId::new(Timestamp::UNIX_EPOCH, life);
        Ok(Arc::new(Life { engine: Arc::clone(&self.0), worker, is_closed: AtomicBool::new(false) }))
    }
}

#[async_trait]
impl Session for Life {
    fn worker(&self) -> WorkerId {
        self.worker
    }

    fn grant(&self, attempts: usize) {
        self.engine.room.fetch_add(attempts, Ordering::SeqCst);
        self.engine.changed.notify_waiters();
    }

    async fn next(&self) -> Vec<Leased> {
        loop {
            let changed = self.engine.changed.notified();
            if self.is_closed.load(Ordering::SeqCst) {
                return Vec::new();
            }
            let room = self.engine.room.load(Ordering::SeqCst);
            let given: Vec<Leased> = {
                let mut work = self.engine.work.lock().unwrap();
                let count = work.len().min(room);
                work.drain(..count).collect()
            };
            if !given.is_empty() {
                self.engine.room.fetch_sub(given.len(), Ordering::SeqCst);
                return given;
            }
            changed.await;
        }
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.engine.changed.notify_waiters();
    }

    async fn heartbeat(&self, _held: Vec<Held>) -> Result<Heartbeat, Unreachable> {
        self.engine.beats.fetch_add(1, Ordering::SeqCst);
        Ok(std::mem::take(&mut self.engine.answer.lock().unwrap()))
    }

    async fn note(&self, notes: Vec<Note>) -> Result<(), Unreachable> {
        if self.engine.is_down.load(Ordering::SeqCst) {
            return Err(Unreachable("down on purpose".into()));
        }
        let finished = self.engine.finished.lock().unwrap();
        let is_held = |note: &Note| finished.iter().all(|one| Held::from(&one.run) != note.held);
        self.engine.notes.lock().unwrap().extend(notes.into_iter().filter(is_held));
        Ok(())
    }

    async fn complete(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, String>>, Unreachable> {
        if self.engine.is_down.load(Ordering::SeqCst) {
            return Err(Unreachable("down on purpose".into()));
        }
        let runs = finished.iter().map(|one| Ok(one.run.clone())).collect();
        self.engine.finished.lock().unwrap().extend(finished);
        self.engine.changed.notify_waiters();
        Ok(runs)
    }
}

impl Engine {
    fn give(&self, leased: Leased) {
        self.work.lock().unwrap().push_back(leased);
        self.changed.notify_waiters();
    }

    /// Waits until so many attempts have come back.
    async fn finished(&self, count: usize) -> Vec<Finished> {
        self.until(|| self.finished.lock().unwrap().len() >= count).await;
        self.finished.lock().unwrap().clone()
    }

    async fn until(&self, is_true: impl Fn() -> bool) {
        let waiting = async {
            while !is_true() {
                // Everything else runs on this thread or on handlers' own.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it happens");
    }
}

fn leased(number: u64, target: Target) -> Leased {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    let id = JobId::new(at, ShardId(0), number);
    let mut spec = Spec::new("job", Schedule::parse("@now").unwrap(), target);
    spec.policies.timeouts.attempt = Duration::from_secs(20);
    let job = Job {
        id,
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec,
        created_at: at,
        updated_at: at,
        carried: None,
        changes: Vec::new(),
    };
    let mut run = Run {
        sequence: Sequence::from_i64(number as i64 + 1),
        job: id,
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        cause: Cause::Schedule,
        scheduled_for: at,
        part: 0,
        state: RunState::Pending(WaitingFor::Capacity),
        available_at: at,
        start_by: None,
        attempt: 0,
        charged: 0,
        lost: 0,
        queue: "default".into(),
        requires: Default::default(),
        kind: None,
        retention: Keep::default(),
        lane: Lane::default(),
        priority: 0,
        started_at: None,
        finished_at: None,
        reason: None,
        redriven_at: None,
        turn_at: None,
        is_cancel_requested: false,
        limits: Default::default(),
        passed: 0,
        parts: None,
        correlation_id: None,
        payload: None,
        caused_by: None,
    };
    let worker = WorkerId::new(Timestamp::UNIX_EPOCH, 1);
    lifecycle::apply(&mut run, Event::Claimed { worker, at }).unwrap();
    Leased { run, job: Arc::new(job), checkpoint: None }
}

fn function(name: &str) -> Target {
    Target::Function { name: name.into() }
}

fn start(engine: &Arc<Engine>, functions: Functions, concurrency: usize) -> Worker {
    let targets = Targets {
        http: Client::new(HttpOptions::default()).unwrap(),
        secrets: [].into(),
        vault: None,
        networks: None,
        functions,
        reports: None,
        now: Arc::new(Timestamp::now),
    };
    let options = Options { concurrency, heartbeat_every: Duration::from_millis(10) };
    Worker::start(Arc::new(ToEngine(Arc::clone(engine))), targets, options)
}

fn outcome(finished: &Finished) -> Option<(Outcome, Option<&str>)> {
    let report = finished.report.as_ref()?;
    Some((report.outcome, report.error.as_ref().map(|error| error.code.as_str())))
}

/// The same, of a run that is due now and has so long in all.
fn leased_until(number: u64, target: Target, deadline: Duration) -> Leased {
    let mut leased = leased(number, target);
    leased.run.scheduled_for = Timestamp::now();
    let mut job = Job::clone(&leased.job);
    job.spec.policies.timeouts.deadline = Some(deadline);
    Leased { job: Arc::new(job), ..leased }
}

#[tokio::test]
async fn an_attempt_has_what_is_left_of_its_runs_deadline() {
    let engine = Arc::new(Engine::default());
    let (calls, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut functions = Functions::default();
    let (count, gate) = (Arc::clone(&calls), Arc::clone(&release));
    functions.insert("waits", move |_| {
        let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            while !gate.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(None)
        }
    });
    let worker = start(&engine, functions, 10);
    let mut over = leased_until(2, function("waits"), Duration::from_millis(1));
    over.run.scheduled_for -= SignedDuration::from_secs(60);
    engine.give(leased_until(0, function("waits"), Duration::from_millis(50)));
    engine.give(leased_until(1, Target::Discard, Duration::from_secs(3_600)));
    engine.give(over);
    let mut finished = engine.finished(3).await;
    finished.sort_by_key(|one| one.run.sequence);
    let outcomes: Vec<_> = finished.iter().map(outcome).collect();
    let cut_off = Some((Outcome::TimedOut, Some("deadline")));
    assert_eq!(outcomes, [cut_off, Some((Outcome::Succeeded, None)), cut_off]);
    assert!(calls.load(Ordering::SeqCst) <= 1, "without time there is no call");
    release.store(true, Ordering::SeqCst);
    worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn handlers_succeed_fail_and_panic_each_for_their_own_run() {
    let engine = Arc::new(Engine::default());
    let mut functions = Functions::default();
    functions.insert("works", |call| async move { Ok(Some(format!("attempt {}", call.attempt))) });
    functions.insert("fails", |_| async { Err(Failed::for_good("no such customer")) });
    functions.insert("panics", |_| async { panic!("at the disco") });
    let worker = start(&engine, functions, 10);
    for (number, name) in ["works", "fails", "panics", "unknown"].into_iter().enumerate() {
        engine.give(leased(number as u64, function(name)));
    }
    let mut finished = engine.finished(4).await;
    finished.sort_by_key(|one| one.run.sequence);
    let outcomes: Vec<_> = finished.iter().map(outcome).collect();
    assert_eq!(outcomes[0], Some((Outcome::Succeeded, None)));
    assert_eq!(outcomes[1], Some((Outcome::Failed, Some("function_failed"))));
    assert_eq!(outcomes[2], Some((Outcome::Failed, Some("function_panicked"))));
    assert_eq!(outcomes[3], Some((Outcome::Failed, Some("function_unknown"))));
    let report = |index: usize| finished[index].report.clone().unwrap();
    assert_eq!(report(0).output.unwrap().bytes, b"attempt 1");
    assert!(!report(1).error.unwrap().is_retryable);
    assert!(report(2).error.unwrap().message.contains("at the disco"));
    assert_eq!(worker.stop(Duration::from_secs(5)).await.released, 0);
}

#[tokio::test]
async fn an_answer_is_kept_as_far_as_its_job_says() {
    let engine = Arc::new(Engine::default());
    let mut functions = Functions::default();
    functions.insert("talks", |_| async { Ok(Some("x".repeat(100_000))) });
    let worker = start(&engine, functions, 10);
    let most = [0, 10, 65_536, 200_000];
    for (number, most) in most.into_iter().enumerate() {
        let mut leased = leased(number as u64, function("talks"));
        Arc::make_mut(&mut leased.job).spec.policies.retention.output_max = most;
        engine.give(leased);
    }
    let mut finished = engine.finished(most.len()).await;
    finished.sort_by_key(|one| one.run.sequence);
    let outputs = finished.into_iter().map(|one| one.report.unwrap().output.unwrap());
    let kept: Vec<_> = outputs.map(|output| (output.bytes.len(), output.is_truncated)).collect();
    assert_eq!(kept, [(0, true), (10, true), (65_536, true), (100_000, false)]);
    worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn handlers_that_block_hold_up_nobody_else() {
    let engine = Arc::new(Engine::default());
    let (blocked, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut functions = Functions::default();
    let (count, gate) = (Arc::clone(&blocked), Arc::clone(&release));
    functions.insert("blocks", move |_| {
        let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            while !gate.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1)); // What a handler must not do, and some do.
            }
            Ok(None)
        }
    });
    let worker = start(&engine, functions, 20);
    for number in 0..8 {
        engine.give(leased(number, function("blocks")));
    }
    engine.until(|| blocked.load(Ordering::SeqCst) == 8).await;
    engine.give(leased(100, Target::Discard));
    assert_eq!(engine.finished(1).await[0].run.sequence, Sequence::from_i64(101));
    release.store(true, Ordering::SeqCst);
    assert_eq!(engine.finished(9).await.len(), 9);
    worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn no_more_attempts_at_a_time_than_its_concurrency() {
    let engine = Arc::new(Engine::default());
    let worker = start(&engine, Functions::default(), 3);
    for number in 0..50 {
        engine.give(leased(number, Target::Discard));
    }
    assert_eq!(engine.finished(50).await.len(), 50);
    engine.until(|| worker.held() == 0).await;
    assert_eq!(engine.room.load(Ordering::SeqCst), 3, "all room is back");
    worker.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_cannot_be_reported_is_kept_and_reported_later() {
    let engine = Arc::new(Engine::default());
    engine.is_down.store(true, Ordering::SeqCst);
    let worker = start(&engine, Functions::default(), 3);
    engine.give(leased(1, Target::Discard));
    engine.until(|| engine.beats.load(Ordering::SeqCst) > 20).await;
    assert_eq!((worker.held(), engine.finished.lock().unwrap().len()), (1, 0));
    engine.is_down.store(false, Ordering::SeqCst);
    assert_eq!(outcome(&engine.finished(1).await[0]), Some((Outcome::Succeeded, None)));
    worker.stop(Duration::from_secs(5)).await;
}

/// A handler that never ends, but can be stopped.
fn endless() -> Functions {
    let mut functions = Functions::default();
    functions.insert("endless", |_| std::future::pending());
    functions
}

#[tokio::test]
async fn a_cancelled_attempt_is_stopped_and_reported_as_such() {
    let engine = Arc::new(Engine::default());
    let worker = start(&engine, endless(), 3);
    let given = leased(1, function("endless"));
    let held = Held::from(&given.run);
    engine.give(given);
    engine.until(|| worker.held() == 1).await;
    *engine.answer.lock().unwrap() = Heartbeat { cancelled: vec![held], ..Heartbeat::default() };
    assert_eq!(outcome(&engine.finished(1).await[0]), Some((Outcome::Cancelled, None)));
    worker.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_handler_that_listens_hears_of_its_end_and_has_the_last_word() {
    let engine = Arc::new(Engine::default());
    let mut functions = Functions::default();
    let listening = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&listening);
    functions.insert("listens", move |call: Call| {
        let is_cancelled = call.is_cancelled();
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(!is_cancelled);
            call.cancelled().await;
            call.checkpoint(&serde_json::json!({"row": 7}))?;
            Err(Failed::new("stopped where it was"))
        }
    });
    let count = Arc::clone(&listening);
    functions.insert("finishes", move |call: Call| {
        let is_cancelled = call.is_cancelled();
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(!is_cancelled);
            call.cancelled().await;
            Ok(Some("done all the same".into()))
        }
    });
    let worker = start(&engine, functions, 3);
    let (one, two) = (leased(1, function("listens")), leased(2, function("finishes")));
    let cancelled = vec![Held::from(&one.run), Held::from(&two.run)];
    engine.give(one);
    engine.give(two);
    engine.until(|| listening.load(Ordering::SeqCst) == 2).await;
    *engine.answer.lock().unwrap() = Heartbeat { cancelled, ..Heartbeat::default() };
    let mut finished = engine.finished(2).await;
    finished.sort_by_key(|one| one.run.sequence);
    assert_eq!(outcome(&finished[0]), Some((Outcome::Failed, Some("function_failed"))));
    assert_eq!(outcome(&finished[1]), Some((Outcome::Succeeded, None)));
    let notes = engine.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 1);
    assert_eq!(notes[0].checkpoint.as_deref(), Some(r#"{"row":7}"#));
    worker.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_a_handler_says_is_told_while_it_runs_and_before_its_end() {
    let engine = Arc::new(Engine::default());
    let go_on = Arc::new(Notify::new());
    let mut functions = Functions::default();
    let gate = Arc::clone(&go_on);
    functions.insert("talks", move |call: Call| {
        let gate = Arc::clone(&gate);
        async move {
            assert_eq!(call.last_checkpoint()["row"], 3);
            call.progress(40, "page 4 of 10");
            call.log("page 4");
            gate.notified().await;
            call.checkpoint(&serde_json::json!({"row": 4}))?;
            call.log("the network went away");
            Err(Failed::new("no network"))
        }
    });
    functions.insert("only_logs", |call: Call| async move {
        call.log("one");
        Ok(None)
    });
    let worker = start(&engine, functions, 3);
    let given = Leased { checkpoint: Some(r#"{"row":3}"#.into()), ..leased(1, function("talks")) };
    engine.give(given);
    engine.until(|| !engine.notes.lock().unwrap().is_empty()).await;
    // What cannot be told now is told later, and the end after it.
    engine.is_down.store(true, Ordering::SeqCst);
    go_on.notify_one();
    let beats = engine.beats.load(Ordering::SeqCst);
    engine.until(|| engine.beats.load(Ordering::SeqCst) > beats + 20).await;
    engine.is_down.store(false, Ordering::SeqCst);
    let finished = engine.finished(1).await;
    assert_eq!(outcome(&finished[0]), Some((Outcome::Failed, Some("function_failed"))));
    let notes = engine.notes.lock().unwrap().clone();
    let lines: Vec<_> = notes.iter().flat_map(|note| &note.lines).map(|line| &*line.text).collect();
    assert_eq!(lines, ["page 4", "the network went away"]);
    let progress = notes.iter().find_map(|note| note.progress.clone()).unwrap();
    assert_eq!((progress.percent, progress.message.as_deref()), (Some(40), Some("page 4 of 10")));
    assert_eq!(notes.last().unwrap().checkpoint.as_deref(), Some(r#"{"row":4}"#));
    engine.give(leased(2, function("only_logs")));
    let finished = engine.finished(2).await;
    let lines = &finished[1].report.as_ref().unwrap().lines;
    let told = engine.notes.lock().unwrap().len();
    assert_eq!(lines.len() + told - notes.len(), 1, "with its report, or told before: once");
    worker.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_is_given_back_leaves_its_checkpoint() {
    let engine = Arc::new(Engine::default());
    let mut functions = Functions::default();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    functions.insert("long", move |call: Call| {
        let begun = Arc::clone(&counted);
        async move {
            call.checkpoint(&serde_json::json!([1, 2]))?;
            begun.fetch_add(1, Ordering::SeqCst);
            call.cancelled().await;
            Ok(None)
        }
    });
    let worker = start(&engine, functions, 3);
    engine.give(leased(1, function("long")));
    engine.until(|| begun.load(Ordering::SeqCst) == 1).await;
    let stopped = worker.stop(Duration::ZERO).await;
    assert_eq!((stopped.released, stopped.left), (1, 0));
    assert_eq!(engine.finished(1).await[0].report, None);
    let notes = engine.notes.lock().unwrap().clone();
    assert_eq!(notes.iter().find_map(|note| note.checkpoint.clone()).as_deref(), Some("[1,2]"));
}

#[tokio::test]
async fn an_attempt_that_was_taken_away_is_not_reported() {
    let engine = Arc::new(Engine::default());
    let worker = start(&engine, endless(), 3);
    let given = leased(1, function("endless"));
    let held = Held::from(&given.run);
    engine.give(given);
    engine.until(|| worker.held() == 1).await;
    *engine.answer.lock().unwrap() = Heartbeat { not_held: vec![held], ..Heartbeat::default() };
    engine.until(|| worker.held() == 0).await;
    assert_eq!(engine.room.load(Ordering::SeqCst), 3, "its room is back");
    assert!(engine.finished.lock().unwrap().is_empty());
    worker.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_worker_taken_for_dead_begins_another_life() {
    let engine = Arc::new(Engine::default());
    let worker = start(&engine, endless(), 3);
    engine.give(leased(1, function("endless")));
    engine.until(|| worker.held() == 1).await;
    engine.room.store(0, Ordering::SeqCst);
    *engine.answer.lock().unwrap() = Heartbeat { is_refused: true, ..Heartbeat::default() };
    engine.until(|| engine.lives.load(Ordering::SeqCst) == 2).await;
    engine.give(leased(2, Target::Discard));
    let finished = engine.finished(1).await;
    assert_eq!(finished[0].worker, WorkerId::new(Timestamp::UNIX_EPOCH, 2));
    assert_eq!(finished.len(), 1, "what the first life held is not reported");
    worker.stop(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn stopping_gives_back_what_does_not_end_in_time() {
    let engine = Arc::new(Engine::default());
    let worker = start(&engine, endless(), 3);
    engine.give(leased(1, function("endless")));
    engine.until(|| worker.held() == 1).await;
    let stopped = worker.stop(Duration::from_millis(50)).await;
    assert_eq!((stopped.released, stopped.left), (1, 0));
    assert_eq!(engine.finished(1).await[0].report, None, "given back, not reported");
}

#[tokio::test]
async fn what_has_begun_is_given_back_only_if_it_may_happen_twice() {
    for (on_unknown, expected) in [
        (OnUnknown::Retry, None),
        (OnUnknown::Skip, Some((Outcome::Failed, Some("unknown")))),
        (OnUnknown::Ask, Some((Outcome::Failed, Some("unknown")))),
    ] {
        let engine = Arc::new(Engine::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let mut functions = Functions::default();
        let count = Arc::clone(&begun);
        functions.insert("waits", move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<Option<String>, Failed>>()
        });
        let worker = start(&engine, functions, 10);
        let mut one = leased(1, function("waits"));
        let mut job = Job::clone(&one.job);
        job.spec.policies.on_unknown = on_unknown;
        one.job = Arc::new(job);
        engine.give(one);
        engine.until(|| begun.load(Ordering::SeqCst) == 1).await;
        let stopped = worker.stop(Duration::ZERO).await;
        assert_eq!((stopped.released, stopped.left), (usize::from(expected.is_none()), 0));
        let finished = engine.finished(1).await;
        assert_eq!(outcome(&finished[0]), expected, "{on_unknown:?}");
    }
}
