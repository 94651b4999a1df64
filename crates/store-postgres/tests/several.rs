//! Several databases as one store: the suite that defines every store, with half of the shards in a second database.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{Epoch, OperationId, ShardId};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::Cause;
use punctual_domain::{Outcome, Run};
use punctual_store::conformance::papers::{saying, speak};
use punctual_store::conformance::{Case, SHARDS, World, birth};
use punctual_store::{
    Birth, Conclusion, DueQuery, Error, Held, JobFilter, MoveState, MoveStep, PageRequest, RunDetail, Shards,
    Store, Trigger,
};
use punctual_store_postgres::{Hints, OpenError, Options, Several, Time};
use punctual_testing::Postgres as Server;

fn options() -> Options {
    Options {
        shards: Some(SHARDS),
        connections: 4,
        time: Time::Caller,
        hints: Hints::Off,
        ..Options::new(Server::shared().database())
    }
}

/// Moves shards, all steps at once.
async fn move_all(store: &Several, shards: Vec<ShardId>, to: u8) {
    let operation = OperationId::new(Timestamp::now(), ShardId(0), fastrand::u64(..));
    let step = MoveStep { operation, epoch: Epoch(1), shards, to };
    while store.move_shards(step.clone()).await.unwrap().state != MoveState::Done {}
}

fn run(case: Case) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Several::open(&[options(), options()]).await.unwrap();
        move_all(&store, (0..SHARDS).filter(|shard| shard % 2 == 1).map(ShardId).collect(), 1).await;
        case(Arc::new(store)).await;
    });
}

punctual_store::conformance!(run);

/// Shards as a store sees them, by database.
fn homes(store: &Several) -> Vec<Vec<u16>> {
    Store::homes(store).iter().map(|home| home.shards.iter().map(|shard| shard.0).collect()).collect()
}

async fn names(store: &Several) -> Vec<String> {
    let page = store.list_jobs(&JobFilter::default(), PageRequest::first(500)).await.unwrap();
    page.items.iter().map(|stored| stored.job.spec.name.clone()).collect()
}

/// One who does steps of a move with another's job in between: a new one at every step, as after a crash.
#[tokio::test]
async fn a_move_is_gone_on_with_by_others_and_whoever_was_overtaken_does_nothing_more() {
    let databases = [options(), options()];
    let store = Arc::new(Several::open(&databases).await.unwrap());
    let mut world = World::new(store.clone()).await;
    let mut expected = Vec::new();
    for n in 0..64 {
        let name = format!("job-{n:02}");
        world.register(&name, world.after(n)).await;
        expected.push(name);
    }
    let shards: Vec<ShardId> = (0..SHARDS / 2).map(ShardId).collect();
    let operation = OperationId::new(world.now, ShardId(0), 7);
    let step = |epoch| MoveStep { operation, epoch: Epoch(epoch), shards: shards.clone(), to: 1 };
    let mut epoch = 1;
    loop {
        let node = Several::open(&databases).await.unwrap();
        let moved = node.move_shards(step(epoch)).await.unwrap();
        let name = format!("meanwhile-{epoch:02}");
        world.register(&name, world.after(100)).await;
        expected.push(name);
        if moved.state == MoveState::Done {
            break;
        }
        epoch += 1;
        assert!(epoch < 100, "it does not end");
    }
    let half: Vec<u16> = (0..SHARDS / 2).collect();
    assert_eq!(homes(&Several::open(&databases).await.unwrap())[1], half);
    expected.sort();
    let mut found = names(&store).await;
    found.sort();
    assert_eq!(found, expected);
    // Everything is due as it was, under the epochs that the shards have there.
    let world = World::new_at(store.clone(), world.now.as_second() + 2_000_000).await;
    assert_eq!(world.due_until(world.now).await.len(), expected.len());

    let back = OperationId::new(world.now, ShardId(0), 8);
    let back = |epoch| MoveStep { operation: back, epoch: Epoch(epoch), shards: shards.clone(), to: 0 };
    let fence = store.move_shards(back(20)).await.unwrap();
    assert_eq!(fence.state, MoveState::Moving);
    let stale = store.move_shards(MoveStep { to: 0, ..back(19) }).await;
    let is_over = homes(&store)[1].is_empty();
    assert!(is_over || matches!(stale, Err(Error::Unavailable { .. })), "{stale:?}");
}

/// Runs that wait for each other move with their shard, in the middle of it all, and go on there.
#[tokio::test]
async fn runs_that_wait_for_each_other_go_on_where_their_shard_went() {
    let store = Arc::new(Several::open(&[options(), options()]).await.unwrap());
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut job = world.job("queued");
    job.spec.policies.overlap = Overlap::QueueAll { max: 9 };
    world.try_put(world.put(job.clone(), Some(world.now))).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.try_fire(&job, world.now).await.unwrap()[0].id());
        world.advance(Duration::from_secs(60));
    }
    let mut held = world.claim(worker, 9).await;
    for (place, to) in [1, 0, 1, 0, 1].into_iter().enumerate() {
        assert_eq!(held.iter().map(Run::id).collect::<Vec<_>>(), [ids[place]], "at {place}");
        // It was claimed in one database, and ends in the other.
        move_all(&store, vec![job.id.shard()], to).await;
        let ended = world.conclude(worker, &held[0], Outcome::Succeeded, Verdict::Succeed).await;
        assert_eq!(ended.unwrap().id(), ids[place]);
        held = world.claim(worker, 9).await;
    }
    assert_eq!(held, []);
}

/// What attempts said goes along, of a run that is open and of one that has ended; and more is added where they went.
#[tokio::test]
async fn what_attempts_said_goes_with_their_shard() {
    let store = Arc::new(Several::open(&[options(), options()]).await.unwrap());
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let (ended, open) = (world.running("ended", worker).await, world.running("open", worker).await);
    speak(&world, worker, &ended).await;
    let report = saying(&world, Outcome::Failed, "an answer", &["last"]);
    let held = Held::from(&ended);
    let end = Conclusion {
        worker,
        held,
        report: Some(report),
        verdict: Verdict::Fail,
        successor: None,
        messages: Vec::new(),
        limits: None,
    };
    world.try_complete(end).await.unwrap();
    speak(&world, worker, &open).await;
    let before = [world.detail(ended.id()).await, world.detail(open.id()).await];
    assert!(before.iter().all(|detail| detail.papers.checkpoint.is_some()));
    move_all(&store, vec![ended.job.shard(), open.job.shard()], 1).await;
    assert_eq!([world.detail(ended.id()).await, world.detail(open.id()).await], before);
    speak(&world, worker, &open).await;
    let checkpoints = store.checkpoints(&[open.id(), ended.id()]).await.unwrap();
    assert_eq!(checkpoints, [before[1].papers.checkpoint.clone(), None]);
    world.conclude(worker, &open, Outcome::Failed, Verdict::Fail).await.unwrap();
    let lines = |detail: &RunDetail| detail.log(1).map_or(0, |log| log.lines.len());
    assert_eq!(lines(&world.detail(open.id()).await), 2);
}

/// Permits and lines of a limit go with the shard of the runs: while it moves back and forth the next goes on when one has ended, and
/// no sooner. Runs of another shard under the same limit are counted where they are.
#[tokio::test]
async fn runs_in_the_line_of_a_limit_go_on_where_their_shard_went() {
    let store = Arc::new(Several::open(&[options(), options()]).await.unwrap());
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let one = NonZeroU32::new(1);
    let limited = |key| Limited {
        key: Key(key),
        breadth: 0,
        holds_retries: true,
        allowed: Allowed::Own(Allowance { max: one, rate: None }),
    };
    let (job, stays) = (world.job_of("moves", "a"), world.job_of("stays", "b"));
    assert_ne!(job.id.shard(), stays.id.shard());
    for job in [&job, &stays] {
        world.try_put(world.put(job.clone(), None)).await.unwrap();
    }
    let mut runs = Vec::new();
    for (n, job) in [&job, &job, &job, &stays, &stays].into_iter().enumerate() {
        let cause = Cause::Trigger;
        let limits = Limits::new(vec![limited(if job.id == stays.id { 8 } else { 7 })]);
        let birth = Birth { cause, part: n as u32, limits, ..birth(job, world.now) };
        let trigger =
            Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None };
        runs.push(store.trigger(vec![trigger], world.now).await.unwrap().remove(0).unwrap().id());
    }
    let mut held = world.claim(worker, 9).await;
    assert_eq!(held.iter().map(Run::id).collect::<BTreeSet<_>>(), BTreeSet::from([runs[0], runs[3]]));
    held.retain(|run| run.job == job.id);
    for (place, to) in [1, 0, 1].into_iter().enumerate() {
        assert_eq!(held.iter().map(Run::id).collect::<Vec<_>>(), [runs[place]], "at {place}");
        move_all(&store, vec![job.id.shard()], to).await;
        store.advance(&Shards::All, world.now, 100).await.unwrap();
        assert_eq!(world.claim(worker, 9).await, [], "its permit came with it");
        world.conclude(worker, &held[0], Outcome::Succeeded, Verdict::Succeed).await.unwrap();
        held = world.claim(worker, 9).await;
    }
    assert_eq!(held, []);
}

#[tokio::test]
async fn a_move_that_was_cancelled_leaves_nothing_behind() {
    let databases = [options(), options()];
    let store = Arc::new(Several::open(&databases).await.unwrap());
    let mut world = World::new(store.clone()).await;
    // More than are copied in one step.
    for round in 0..22 {
        let puts = (0..1_000).map(|_| {
            let job = world.job(&format!("job-{round}"));
            world.put(job, Some(world.now))
        });
        let puts: Vec<_> = puts.collect();
        store.put_jobs(puts, world.now).await.unwrap();
    }
    let step = MoveStep {
        operation: OperationId::new(world.now, ShardId(0), 7),
        epoch: Epoch(1),
        shards: (0..SHARDS).map(ShardId).collect(),
        to: 1,
    };
    assert_eq!(store.move_shards(step.clone()).await.unwrap().state, MoveState::Moving);
    // There is no such operation that goes on: what it brought is taken away again.
    while store.retain(world.now, 100_000).await.unwrap() > 0 {}
    assert_eq!(homes(&store)[1], [0_u16; 0]);
    let other = MoveStep { operation: OperationId::new(world.now, ShardId(0), 8), ..step };
    while store.move_shards(other.clone()).await.unwrap().state != MoveState::Done {}
    assert_eq!(homes(&store)[1].len(), usize::from(SHARDS));
    assert_eq!(count_due(&store, world.now).await, 22_000);
}

/// How many entries are due, read page by page.
async fn count_due(store: &Several, until: Timestamp) -> usize {
    let (mut count, mut after) = (0, None);
    loop {
        let page = store.due(DueQuery { shards: Shards::All, after, until, limit: 1_000 }).await.unwrap();
        count += page.entries.len();
        match page.entries.last() {
            Some(last) if page.next_at.is_some_and(|at| at <= until) => after = Some(last.key),
            _ => return count,
        }
    }
}

#[tokio::test]
async fn databases_belong_together_for_good() {
    let [one, two, three] = [options(), options(), options()];
    drop(Several::open(&[one.clone(), two.clone()]).await.unwrap());
    drop(Several::open(&[two.clone(), one.clone()]).await.unwrap());
    let twice = Several::open(&[one.clone(), one.clone()]).await.err().unwrap();
    assert!(matches!(twice, OpenError::Twice { .. }), "{twice}");
    let alone = Several::open(std::slice::from_ref(&two)).await.err().unwrap();
    assert!(matches!(alone, OpenError::Missing { missing: 16, .. }), "{alone}");
    let other = Several::open(&[three.clone(), options()]).await.unwrap();
    let mut world = World::new(Arc::new(other)).await;
    world.register("somebody's", world.now).await;
    let foreign = Several::open(&[one, two, three]).await.err().unwrap();
    assert!(matches!(foreign, OpenError::Foreign { .. }), "{foreign}");
}
