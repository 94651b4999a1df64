//! The embedded store: the suite that defines every store, and what only a store on disk must do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_domain::attempt::Output;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::run::Cause;
use punctual_domain::{Outcome, Report, Run, WorkerId};
use punctual_store::conformance::papers::saying;
use punctual_store::conformance::{Case, SHARDS, World};
use punctual_store::record::encode_run;
use punctual_store::{Birth, Claim, Conclusion, Held, Shards, Store, Trigger};
use punctual_store_embedded::{Embedded, OpenError, Opening, Options, check};
use rusqlite::{Connection, params};

fn options(directory: &tempfile::TempDir) -> Options {
    Options { directory: directory.path().join("data"), shards: Some(SHARDS) }
}

fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
    futures_executor::block_on(case(store));
}

punctual_store::conformance!(run);

/// The suite with an index of births that is written all the time.
mod in_small_segments {
    use super::*;

    fn run(case: Case) {
        let directory = tempfile::tempdir().unwrap();
        let opening = Opening { segment_births: 3, is_same_process: false };
        let store = Embedded::open_as(&options(&directory), opening).unwrap();
        futures_executor::block_on(case(Arc::new(store)));
    }

    punctual_store::conformance!(run);
}

/// Format 6 kept an output in the record of its run, open or ended, and knew of no other papers.
#[test]
fn what_an_older_format_kept_in_records_is_read_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let mut world = World::new(store.clone()).await;
        let worker = world.worker();
        let mut details = Vec::new();
        for verdict in [Verdict::Fail, retry(world.now)] {
            let run = world.running("job", worker).await;
            let report = Some(saying(&world, Outcome::Failed, "an answer", &[]));
            world.try_complete(conclusion(worker, &run, report, verdict)).await.unwrap();
            details.push(world.detail(run.id()).await);
        }
        let now = world.now;
        drop((world, store));
        let connection = Connection::open(options(&directory).directory.join("punctual.db")).unwrap();
        for (detail, table) in details.iter().zip(["history_1", "waiting_runs"]) {
            let record = encode_run(&detail.run, &detail.attempts);
            let sql = format!("update {table} set record = ?2 where seq = ?1");
            assert_eq!(connection.execute(&sql, params![detail.run.sequence.as_i64(), record]).unwrap(), 1);
        }
        let older = "drop table open_papers; alter table history_0 drop column papers;
            alter table history_1 drop column papers; drop table audit; pragma user_version = 6";
        connection.execute_batch(older).unwrap();
        drop(connection);
        let checked = check(&options(&directory).directory, now).unwrap();
        assert_eq!((checked.format, checked.findings), (6, vec![]));

        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        for detail in &details {
            let found = store.run(detail.run.id()).await.unwrap();
            assert_eq!(found.as_ref(), Some(detail));
            assert!(detail.attempts[0].report.as_ref().unwrap().output.is_some());
        }
        let ids: Vec<_> = details.iter().map(|detail| detail.run.id()).collect();
        assert!(store.redrive(&ids[..1], now).await.unwrap()[0].is_ok());
        let claim =
            Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 9 };
        let again = store.claim(claim, now).await.unwrap();
        let ends = again.iter().map(|run| {
            let report = Report { outcome: Outcome::Succeeded, error: None, ..Report::lost(now, now) };
            let output = Some(Output { bytes: b"another".to_vec(), is_truncated: false });
            conclusion(worker, run, Some(Report { output, ..report }), Verdict::Succeed)
        });
        let ended = store.complete(ends.collect(), now).await.unwrap();
        assert!(ended.len() == 2 && ended.iter().all(Result::is_ok), "{ended:?}");
        for id in ids {
            let detail = store.run(id).await.unwrap().unwrap();
            let output = |place: usize| detail.attempts[place].report.as_ref()?.output.as_ref();
            assert_eq!(output(0).map(|output| &*output.bytes), Some(&b"an answer"[..]));
            assert_eq!(output(1).map(|output| &*output.bytes), Some(&b"another"[..]));
        }
    });
}

fn retry(at: Timestamp) -> Verdict {
    Verdict::Retry { available_at: at, charge: Charge::Attempt, start_by: None }
}

fn conclusion(worker: WorkerId, run: &Run, report: Option<Report>, verdict: Verdict) -> Conclusion {
    let held = Held::from(run);
    Conclusion { worker, held, report, verdict, successor: None, messages: Vec::new(), limits: None }
}

#[test]
fn a_second_process_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let first = Embedded::open(&options(&directory)).unwrap();
    let error = Embedded::open(&options(&directory)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { pid: Some(_), .. }), "{error}");
    let directory_and_pid =
        (options(&directory).directory.display().to_string(), std::process::id().to_string());
    let text = error.to_string();
    assert!(text.contains(&directory_and_pid.0) && text.contains(&directory_and_pid.1), "{text}");
    drop(first);
    Embedded::open(&options(&directory)).unwrap();
}

/// A data directory has one process: whoever opens it knows that the one before is gone. Workers elsewhere are not.
#[test]
fn what_the_process_before_held_is_lost_at_once() {
    let directory = tempfile::tempdir().unwrap();
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let mut world = World::new(store.clone()).await;
        let job = world.register("born running", world.now).await;
        let mut firing = world.firing(&job, world.now);
        firing.births[0].claimed_by = Some(world.node);
        let own = world.try_firing(firing).await.unwrap().remove(0);
        let elsewhere = world.worker();
        let others = world.running("claimed from elsewhere", elsewhere).await;
        let (now, node) = (world.now, world.node);
        drop((world, store));

        // It was killed, say; and so is the next, before it did anything.
        drop(Embedded::open(&options(&directory)).unwrap());
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let lease = Duration::from_secs(30);
        let lost = store.expired(lease, now, 10).await.unwrap();
        assert_eq!(lost.iter().map(Run::id).collect::<Vec<_>>(), [own.id()]);
        assert!(store.heartbeat(node, Vec::new(), now).await.unwrap().is_refused);
        let held = Held { sequence: others.sequence, attempt: 1 };
        let reply = store.heartbeat(elsewhere, vec![held], now).await.unwrap();
        assert!(!reply.is_refused && reply.not_held.is_empty());
        // Shards are free, under new epochs.
        let world = World::new(store).await;
        assert!(world.epochs.iter().all(|epoch| epoch.0 == 2));
    });
}

/// Signs of life, claims that find nothing, and retention that has nothing to do are not written.
#[test]
fn an_idle_node_leaves_the_files_alone() {
    let directory = tempfile::tempdir().unwrap();
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let mut world = World::new(store.clone()).await;
        let due = world.after(1_000_000);
        world.register("far", due).await;
        let files = || {
            let read = |name: &str| std::fs::read(options(&directory).directory.join(name)).unwrap();
            (read("punctual.db-wal"), read("punctual.lock"))
        };
        let before = files();
        let (worker, lease) = (world.worker(), Duration::from_secs(15));
        for _ in 0..20 {
            world.advance(Duration::from_secs(5));
            let renewed = store.acquire(world.node, Shards::All, lease, world.now).await.unwrap();
            assert_eq!(renewed.len(), usize::from(SHARDS));
            store.heartbeat(worker, Vec::new(), world.now).await.unwrap();
            assert_eq!(store.expired(lease, world.now, 10).await.unwrap(), []);
            assert_eq!(world.claim(worker, 10).await, []);
            assert_eq!(store.retain(world.now, 10).await.unwrap(), 0);
        }
        assert!(files() == before, "something was written");
        assert_eq!(store.figures().commits.count(), 2, "the shards, and the job");
    });
}

/// Whoever serves one queue finds its run behind any number of others: the line of a queue has an index.
#[test]
fn a_queue_is_found_behind_a_hundred_thousand_runs_of_another() {
    let directory = tempfile::tempdir().unwrap();
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let mut world = World::new(store.clone()).await;
        let run = world.fired("the other one").await;
        let job = store.jobs(&[run.job]).await.unwrap().remove(0).unwrap().job;
        let trigger = |part: u32, queue: &str| Trigger {
            job: job.id,
            version: job.version,
            birth: Birth {
                cause: Cause::Trigger,
                part,
                queue: queue.into(),
                requires: Default::default(),
                ..world.firing(&job, world.now).births.remove(0)
            },
            is_over: false,
            request: None,
            audit: None,
        };
        for hundred in 0..100 {
            let triggers = (0..1_000).map(|part| trigger(hundred * 1_000 + part, "a")).collect();
            store.trigger(triggers, world.now).await.unwrap();
        }
        store.trigger(vec![trigger(0, "b")], world.now).await.unwrap();
        let worker = world.worker();
        for queue in ["b", "a"] {
            let claim = Claim {
                worker,
                queues: vec![queue.into()],
                labels: Default::default(),
                shards: Shards::All,
                limit: 1,
            };
            let begun = Instant::now();
            let claimed = store.claim(claim, world.now).await.unwrap();
            println!("claimed from queue {queue} of 100,001 waiting runs in {:?}", begun.elapsed());
            assert_eq!(claimed.iter().map(|run| &*run.queue).collect::<Vec<_>>(), [queue]);
        }
    });
}

/// A run that ended long after its birth is where the check and the index of births expect it.
#[test]
fn what_ended_late_is_sound_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let opening = Opening { segment_births: 3, is_same_process: false };
    let mut now = None;
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open_as(&options(&directory), opening).unwrap());
        let mut world = World::new(store.clone()).await;
        let worker = world.worker();
        let mut late = Vec::new();
        // The default class is kept a week and longer; a day passes between two ends.
        for day in 0..60 {
            late.push(world.running(&format!("run {day}"), worker).await);
            world.fired(&format!("waits {day}")).await;
            world.claim(worker, 1).await;
            world.advance(Duration::from_secs(86_400));
            while store.retain(world.now, 10).await.unwrap() > 0 {}
            if day % 3 == 2 {
                let run = late.remove(0);
                world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.unwrap();
                assert_eq!(world.detail(run.id()).await.run.id(), run.id());
            }
        }
        now = Some(world.now);
    });
    let checked = check(&options(&directory).directory, now.unwrap()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
    assert!(checked.history >= 2, "{checked:?}");
}

#[test]
fn what_is_not_ours_or_damaged_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = options(&directory).directory.join("punctual.db");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, b"this is not a database, it is a letter to somebody").unwrap();
    let error = Embedded::open(&options(&directory)).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    std::fs::remove_file(&file).unwrap();
    drop(Embedded::open(&options(&directory)).unwrap());
    let other = Options { shards: Some(SHARDS * 2), ..options(&directory) };
    let error = Embedded::open(&other).unwrap_err();
    assert!(matches!(error, OpenError::Shards { found: SHARDS, .. }), "{error}");
}
