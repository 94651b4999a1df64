//! Backlog: what waits is counted by tenant, and births that may not wait are born running or accounted for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Outcome;
use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::job::Job;
use punctual_domain::ledger::Fate;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::policy::backlog::{Cap, Pending};
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Run};
use punctual_schedule::Progress;

use super::limit::{at_most, only, own};
use super::world::{World, birth, due};
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Birth, Cancellation, Firing, OpenRuns, Otherwise, Put, Trigger};

/// How many of the default tenant wait, and in all; counted anew it is the same.
async fn pending(world: &World) -> (u64, u64) {
    let Pending { tenant, all } = world.store.pending(TenantId::DEFAULT);
    let most = world.store.count_pending().await.expect("counted");
    assert_eq!(most.all, all, "counted anew");
    assert_eq!(world.store.pending(TenantId::DEFAULT), Pending { tenant, all }, "counted anew");
    assert_eq!(world.store.figures().pending, all);
    (tenant, all)
}

/// Registers a job of a tenant that is due now, and fires it.
async fn fired_of(world: &mut World, tenant: TenantId, worker: Option<WorkerId>, limits: Limits) -> Run {
    let job = Job { tenant, ..world.job_of("backlog", "one of many") };
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let mut firing = world.firing(&job, world.now);
    firing.births[0].claimed_by = worker;
    firing.births[0].limits = limits;
    world.try_firing(firing).await.expect("fired").remove(0)
}

async fn waiting(world: &mut World) -> Run {
    fired_of(world, TenantId::DEFAULT, None, Limits::NONE).await
}

async fn cancel(world: &World, run: &Run) {
    let cancellation = Cancellation { run: run.id(), successor: None };
    world.store.cancel(vec![cancellation], world.now).await.expect("cancel").remove(0).expect("cancelled");
}

/// Births, claims, retries, ends, cancellations, redrives; in all kinds of lines.
pub async fn runs_that_wait_are_counted_by_tenant(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let other = store.put_tenant(&"acme".parse().expect("a name"), world.now).await.expect("made").id;
    assert_eq!(pending(&world).await, (0, 0));
    let worker = world.worker();
    let running = fired_of(&mut world, TenantId::DEFAULT, Some(worker), Limits::NONE).await;
    assert_eq!(pending(&world).await, (0, 0), "one that is born running does not wait");
    waiting(&mut world).await;
    waiting(&mut world).await;
    fired_of(&mut world, other, None, Limits::NONE).await;
    assert_eq!(pending(&world).await, (2, 3));
    assert_eq!(store.pending(other), Pending { tenant: 1, all: 3 });
    let claimed = world.claim(worker, 9).await;
    assert_eq!((claimed.len(), pending(&world).await), (3, (0, 0)));
    // A retry waits for its time.
    let again = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    world.conclude(worker, &running, Outcome::Failed, again).await.expect("recorded");
    assert_eq!(pending(&world).await, (1, 1));
    for run in &claimed {
        world.conclude(worker, run, Outcome::Failed, Verdict::Fail).await.expect("recorded");
    }
    assert_eq!(pending(&world).await, (1, 1));
    store.redrive(&[claimed[0].id()], world.now).await.expect("redrive").remove(0).expect("goes on");
    assert_eq!(store.pending(TenantId::DEFAULT).all, 2);
    world.advance(Duration::from_secs(60));
    let claimed = world.claim(worker, 9).await;
    assert_eq!((claimed.len(), pending(&world).await), (2, (0, 0)));
    for run in &claimed {
        world.conclude(worker, run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    }
    let (one, two) = (waiting(&mut world).await, waiting(&mut world).await);
    cancel(&world, &one).await;
    cancel(&world, &two).await;
    assert_eq!(pending(&world).await, (0, 0));
}

/// Those that wait for an earlier run, for a limit, for their time; edits and deletions.
pub async fn whatever_a_run_waits_for_it_is_counted(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let limits = only(own(7, at_most(1)));
    let first = fired_of(&mut world, TenantId::DEFAULT, Some(worker), limits.clone()).await;
    assert!(first.lease().is_some(), "the gate was open");
    let second = fired_of(&mut world, TenantId::DEFAULT, Some(worker), limits.clone()).await;
    fired_of(&mut world, TenantId::DEFAULT, None, limits.clone()).await;
    assert!(second.is_limited());
    assert_eq!(pending(&world).await, (2, 2), "in the line of a limit");
    world.conclude(worker, &first, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(pending(&world).await, (2, 2), "one went on, and waits for a worker");
    cancel(&world, &second).await;
    assert_eq!(pending(&world).await, (1, 1));
    // A trigger into the same line, and one that comes to its gates later.
    let mut job = world.job_of("backlog", "asked for");
    job.spec.policies.overlap = Overlap::QueueAll { max: 9 };
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    for (part, seconds) in [(1, 0), (2, 30)] {
        let available_at = world.after(seconds);
        let base = birth(&job, world.now);
        let birth = Birth { cause: Cause::Trigger, part, available_at, limits: limits.clone(), ..base };
        let trigger =
            Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None };
        store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("born");
        assert_eq!(pending(&world).await.0, 1 + u64::from(part), "the second waits for the first");
    }
    // Waiting runs take another version and stay as many; those of a job that is deleted end.
    job.version = job.version.next();
    let put = world.put(job.clone(), None);
    world.try_put(Put { open_runs: OpenRuns::Update, ..put }).await.expect("changed");
    assert_eq!(pending(&world).await, (3, 3));
    job.version = job.version.next();
    job.state = punctual_domain::job::JobState::Deleted;
    let put = world.put(job.clone(), None);
    world.try_put(Put { open_runs: OpenRuns::CancelPending, ..put }).await.expect("deleted");
    assert_eq!(pending(&world).await, (1, 1));
    // A job that runs now is born waiting.
    let job = world.job("now");
    let born = birth(&job, world.now);
    world.try_put(Put { birth: Some(born), ..world.put(job, None) }).await.expect("registered");
    assert_eq!(pending(&world).await, (2, 2));
    assert_eq!(world.claim(worker, 9).await.len(), 2);
    assert_eq!(pending(&world).await, (0, 0));
}

/// A firing of a job by a cap that leaves no room.
fn full(world: &World, job: &Job, cap: Cap, worker: Option<WorkerId>) -> Firing {
    let mut firing = world.firing(job, world.now);
    firing.births[0].full = Some(cap);
    firing.births[0].claimed_by = worker;
    firing
}

async fn ledger(world: &World, job: &Job) -> Vec<(Timestamp, Timestamp, u64, Fate)> {
    let entries = world.store.ledger(job.id, PageRequest::first(100)).await.expect("ledger").items;
    entries.iter().map(|entry| (entry.from, entry.to, entry.slots, entry.fate)).collect()
}

/// The schedule goes on; slots that follow each other share an entry, and those of another cap have their own.
pub async fn a_slot_over_a_cap_is_accounted_for(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("throttled", world.now).await;
    let first = world.now;
    for cap in [Cap::Tenant, Cap::Tenant, Cap::Tenant, Cap::All] {
        let fired = world.try_firing(full(&world, &job, cap, None)).await.expect("fired");
        assert_eq!(fired, [], "no run may wait");
        world.advance(Duration::from_secs(60));
    }
    let of_tenant = (first, first + Duration::from_secs(120), 3, Fate::Throttled(Cap::Tenant));
    let at = first + Duration::from_secs(180);
    let of_all = (at, at, 1, Fate::Throttled(Cap::All));
    assert_eq!(ledger(&world, &job).await, [of_all, of_tenant]);
    // With room at a worker it is born running; when there is room in the backlog, waiting.
    let worker = world.worker();
    let ran = world.try_firing(full(&world, &job, Cap::All, Some(worker))).await.expect("fired");
    assert!(ran[0].lease().is_some(), "{ran:?}");
    world.advance(Duration::from_secs(60));
    assert_eq!(world.try_fire(&job, world.now).await.expect("fired").len(), 1);
    assert_eq!(ledger(&world, &job).await.len(), 2);
    assert_eq!(pending(&world).await, (1, 1));
}

/// Where an overlap policy or a limit would let it wait, there is no run.
pub async fn a_run_that_may_not_wait_is_born_running_or_not_at_all(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut queued = world.job_of("backlog", "queued");
    queued.spec.policies.overlap = Overlap::QueueAll { max: 9 };
    let mut skipping = world.job_of("backlog", "skipping");
    skipping.spec.policies.overlap = Overlap::Skip;
    let mut replacing = world.job_of("backlog", "replacing");
    replacing.spec.policies.overlap = Overlap::CancelRunning;
    let limited = world.job_of("backlog", "limited");
    let jobs = [queued, skipping, replacing, limited];
    for job in &jobs {
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    }
    let firing = |world: &World, at: usize| {
        let mut firing = full(world, &jobs[at], Cap::Tenant, Some(worker));
        if at == 3 {
            firing.births[0].limits = only(own(3, at_most(1)));
        }
        firing
    };
    let mut running = Vec::new();
    for at in 0..jobs.len() {
        let fired = world.try_firing(firing(&world, at)).await.expect("fired");
        assert!(fired[0].lease().is_some(), "{at}: nothing is in its way");
        running.extend(fired);
    }
    world.advance(Duration::from_secs(60));
    for (at, fate) in [
        (0, Fate::Throttled(Cap::Tenant)),
        (1, Fate::SkippedOverlap),
        (2, Fate::Throttled(Cap::Tenant)),
        (3, Fate::Throttled(Cap::Tenant)),
    ] {
        assert_eq!(world.try_firing(firing(&world, at)).await.expect("fired"), [], "{at}");
        let expected = (world.now, world.now, 1, fate);
        assert_eq!(ledger(&world, &jobs[at]).await, [expected], "{at}");
        let run = world.detail(running[at].id()).await.run;
        assert!(run.lease().is_some() && !run.is_cancel_requested, "{at}: what runs is left alone");
    }
    assert_eq!(pending(&world).await, (0, 0));
}

/// A job that counts its fires has one more to come, and goes on.
pub async fn a_throttled_slot_is_no_fire(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("twice", world.now).await;
    let counted = |fired| Progress { fired, last_completion: None };
    let mut firing = full(&world, &job, Cap::All, None);
    firing.progress = Some(counted(1));
    let next = firing.next.take();
    // With a run it would have been the last.
    firing.over = Some(job.spec.policies.retention.keep.at_birth());
    firing.otherwise = Some(Otherwise { next, over: None });
    assert_eq!(world.try_firing(firing).await.expect("fired"), []);
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.progress.fired, 0);
    let slot = world.after(60);
    assert_eq!(world.due_until(slot).await, [due(&job, slot)], "the schedule goes on");
}
