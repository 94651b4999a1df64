//! Jobs that are over: they stay as long as their history, and go with it.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::job::{Job, JobState, Pause};
use punctual_domain::ledger::Fate;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::Run;
use punctual_domain::{Outcome, TenantId, Version, WorkerId};

use super::world::{World, birth, conclusion, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Successor, Trigger, ledger_entry};

const HOUR: Duration = Duration::from_secs(3600);

/// Longer than a class of a day keeps anything.
const DAYS: Duration = Duration::from_secs(3 * 86_400);

/// A job that is kept for a day after it is over, due now.
async fn short(world: &mut World, name: &str) -> Job {
    let mut job = world.job(name);
    job.spec.policies.retention = Retention::Day.into();
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    job
}

/// Fires the last slot of a job, for a worker to run.
async fn fire_last(world: &World, job: &Job, worker: WorkerId) -> Run {
    let mut firing = world.firing(job, world.now);
    (firing.next, firing.over) = (None, Some(job.spec.policies.retention.keep.at_birth()));
    world.try_firing(firing).await.expect("fired");
    world.claim(worker, 1).await.remove(0)
}

/// A job whose last run has ended.
async fn ended(world: &mut World, name: &str, verdict: Verdict) -> (Job, Run) {
    let worker = world.worker();
    let job = short(world, name).await;
    let run = fire_last(world, &job, worker).await;
    let outcome = if verdict == Verdict::Succeed { Outcome::Succeeded } else { Outcome::Failed };
    (job, world.conclude(worker, &run, outcome, verdict).await.expect("recorded"))
}

/// Time passes, and what is old is forgotten.
async fn pass(world: &mut World, time: Duration) {
    world.advance(time);
    while world.store.retain(world.now, 2).await.expect("retain") > 0 {}
}

/// Whether a job is in the store at all, in this version, deleted or not.
async fn is_stored(world: &World, job: &Job) -> bool {
    world.store.job_versions(&[(job.id, job.version)]).await.expect("job_versions")[0].is_some()
}

/// A job goes with all that belongs to it, when its history goes, by its own class; others stay.
pub async fn a_job_that_is_over_goes_with_its_history(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let far = world.register("far", world.after(10_000_000)).await;
    let mut jobs = Vec::new();
    for (n, retention) in
        [Retention::Day, Retention::Day, Retention::Day, Retention::Week].into_iter().enumerate()
    {
        let mut job = world.job("once");
        job.spec.key = Some(format!("key-{n}"));
        job.spec.policies.retention = retention.into();
        let mut put = world.put(job.clone(), Some(world.now));
        put.ledger = vec![ledger_entry(&job, &[due(&job, world.now)], Fate::MissedCatchUp, world.now)];
        world.try_put(put).await.expect("registered");
        let run = fire_last(&world, &job, worker).await;
        world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        jobs.push(job);
    }
    pass(&mut world, HOUR * 12).await;
    assert!(is_stored(&world, &jobs[0]).await, "not before its time");
    pass(&mut world, DAYS).await;
    let found: Vec<bool> = store
        .jobs(&jobs.iter().map(|job| job.id).collect::<Vec<_>>())
        .await
        .expect("jobs")
        .iter()
        .map(Option::is_some)
        .collect();
    assert_eq!(found, [false, false, false, true]);
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "key-0").await.expect("by key"), None);
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "key-3").await.expect("by key"), Some(jobs[3].id));
    assert_eq!(store.ledger(jobs[0].id, PageRequest::first(9)).await.expect("ledger").items, []);
    assert_eq!(store.ledger(jobs[3].id, PageRequest::first(9)).await.expect("ledger").items.len(), 1);
    pass(&mut world, DAYS * 3).await;
    assert!(!is_stored(&world, &jobs[3]).await);
    assert!(is_stored(&world, &far).await, "it has a slot to come");
    let mut again = world.job("again");
    again.spec.key = Some("key-0".into());
    world.try_put(world.put(again, Some(world.after(60)))).await.expect("the key is free");
}

/// A job with a run from its registration and no slot is over from the beginning.
pub async fn a_now_job_goes_too(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let mut job = world.job("now");
    job.spec.policies.retention = Retention::Day.into();
    let mut put = world.put(job.clone(), None);
    put.birth = Some(birth(&job, world.now));
    world.try_put(put).await.expect("registered");
    let run = world.claim(worker, 1).await.remove(0);
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &job).await);
}

/// A run that has not ended keeps its job, and its history keeps it when it has.
pub async fn an_open_run_keeps_its_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = short(&mut world, "long").await;
    let run = fire_last(&world, &job, worker).await;
    pass(&mut world, DAYS).await;
    assert!(is_stored(&world, &job).await);
    assert_eq!(store.have_open_runs(&[job.id]).await.expect("open"), [true]);
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(store.have_open_runs(&[job.id]).await.expect("open"), [false]);
    pass(&mut world, HOUR).await;
    assert!(is_stored(&world, &job).await);
    pass(&mut world, DAYS).await;
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &job).await);
}

/// A dead letter keeps its job, so that it can be redriven; acknowledged, it keeps nothing.
pub async fn a_dead_letter_keeps_its_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (job, run) = ended(&mut world, "dead", Verdict::Fail).await;
    pass(&mut world, DAYS).await;
    assert!(is_stored(&world, &job).await);
    assert!(store.redrive(&[run.id()], world.now).await.expect("redrive")[0].is_ok());
    let worker = world.worker();
    let again = world.claim(worker, 1).await.remove(0);
    world.conclude(worker, &again, Outcome::Failed, Verdict::Fail).await.expect("recorded");
    pass(&mut world, DAYS).await;
    assert!(is_stored(&world, &job).await);
    assert_eq!(store.acknowledge(&[run.id()]).await.expect("acknowledge"), [Ok(())]);
    pass(&mut world, DAYS).await;
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &job).await);
}

/// A run that is asked for when the job is over keeps it as long as a run of its schedule would.
pub async fn a_later_run_keeps_its_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (job, _) = ended(&mut world, "asked for again", Verdict::Succeed).await;
    let (other, _) = ended(&mut world, "left alone", Verdict::Succeed).await;
    pass(&mut world, HOUR * 20).await;
    let birth = birth(&job, world.now);
    let trigger =
        Trigger { job: job.id, version: job.version, birth, is_over: true, request: None, audit: None };
    store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("triggered");
    let worker = world.worker();
    let run = world.claim(worker, 1).await.remove(0);
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    pass(&mut world, HOUR * 10).await;
    assert!(is_stored(&world, &job).await);
    assert!(!is_stored(&world, &other).await);
    pass(&mut world, DAYS).await;
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &job).await);
}

/// An edit that brings a job back to life keeps it; so does a pause.
pub async fn a_job_that_was_changed_since_stays(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (mut revived, _) = ended(&mut world, "revived", Verdict::Succeed).await;
    let (mut paused, _) = ended(&mut world, "paused", Verdict::Succeed).await;
    let (mut renamed, _) = ended(&mut world, "renamed", Verdict::Succeed).await;
    pass(&mut world, HOUR * 20).await;
    let slot = world.after(10_000_000);
    revived.version = Version(2);
    world.try_put(world.put(revived.clone(), Some(slot))).await.expect("changed");
    paused.version = Version(2);
    paused.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until: None });
    world.try_put(world.put(paused.clone(), None)).await.expect("paused");
    renamed.version = Version(2);
    world.try_put(world.put(renamed.clone(), None)).await.expect("changed");
    pass(&mut world, HOUR * 10).await;
    assert!(is_stored(&world, &renamed).await, "its time counts from the change");
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &renamed).await, "it was over all the same");
    assert!(is_stored(&world, &paused).await);
    assert_eq!(world.due_until(slot).await, [due(&revived, slot)]);
    world.now = slot;
    world.try_fire(&revived, slot).await.expect("fired");
}

/// What is left of a deleted job goes like that of one that is over; its key may have another holder by then.
pub async fn a_deleted_job_goes_with_its_history(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("deleted");
    job.spec.policies.retention = Retention::Day.into();
    job.spec.key = Some("key".into());
    let slot = world.after(10_000_000);
    world.try_put(world.put(job.clone(), Some(slot))).await.expect("registered");
    let old = due(&job, slot);
    (job.version, job.state) = (Version(2), JobState::Deleted);
    let mut put = world.put(job.clone(), None);
    put.unfired = vec![old];
    world.try_put(put).await.expect("deleted");
    assert_eq!(world.due_until(slot).await, [], "its entry goes with it");
    let mut heir = world.job("heir");
    heir.spec.key = Some("key".into());
    world.try_put(world.put(heir.clone(), Some(slot))).await.expect("registered");
    assert!(is_stored(&world, &job).await);
    pass(&mut world, DAYS).await;
    assert!(!is_stored(&world, &job).await);
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "key").await.expect("by key"), Some(heir.id));
    job.version = Version(3);
    assert_eq!(world.try_put(world.put(job, None)).await, Err(Refused::NoJob));
}

/// What it was, and when it was paused, explains its slots as long as they are known.
pub async fn a_deleted_job_is_kept_with_what_it_was(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (job, _) = ended(&mut world, "explained", Verdict::Succeed).await;
    let kept = |id| {
        let store = Arc::clone(&store);
        async move { store.kept_jobs(&[id]).await.expect("kept_jobs").remove(0).map(|stored| stored.job) }
    };
    assert_eq!(kept(job.id).await.as_deref(), Some(&job));
    let pause = Pause { reason: None, by: Some("ada".into()), since: world.now, until: None };
    let paused = Job { version: Version(2), state: JobState::Paused(pause), ..job.clone() };
    world.try_put(world.put(paused.clone(), None)).await.expect("paused");
    let mut deleted = Job { version: Version(3), state: JobState::Deleted, ..paused.clone() };
    deleted.remember(&paused);
    world.try_put(world.put(deleted.clone(), None)).await.expect("deleted");
    assert_eq!(store.jobs(&[job.id]).await.expect("jobs"), [None]);
    let found = kept(job.id).await;
    assert_eq!(found.as_deref(), Some(&deleted));
    assert!(found.is_some_and(|job| job.pause_at(world.now).is_some()));
    pass(&mut world, DAYS).await;
    assert_eq!(kept(job.id).await, None, "it goes with its history");
}

/// Periods from completion: a firing without a next entry is no end; the completion says when it is one.
pub async fn a_period_from_completion_is_over_when_its_last_run_says_so(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut jobs = Vec::new();
    for over in [None, Some(Retention::Day)] {
        let job = short(&mut world, "from completion").await;
        let mut firing = world.firing(&job, world.now);
        firing.next = None;
        world.try_firing(firing).await.expect("fired");
        let run = world.claim(worker, 1).await.remove(0);
        let mut end = conclusion(worker, &run, Some(world.report(Outcome::Succeeded)), Verdict::Succeed);
        let next = over.is_none().then(|| due(&job, world.after(10_000_000)));
        end.successor = Some(Successor { version: job.version, due: next, over });
        world.try_complete(end).await.expect("recorded");
        jobs.push(job);
    }
    pass(&mut world, DAYS).await;
    assert!(is_stored(&world, &jobs[0]).await);
    assert!(!is_stored(&world, &jobs[1]).await);
}
