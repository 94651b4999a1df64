//! What is kept of a job's runs: failures longer than successes, and how many of them are read.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::job::Job;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::retention::{Keep, Retention};
use punctual_domain::run::{Run, RunState};
use punctual_domain::{Outcome, RunId, WorkerId};

use super::world::World;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::RunFilter;

const HOUR: Duration = Duration::from_secs(3600);

/// Longer than a class of a day keeps anything, and shorter than one of a week.
const DAYS: Duration = Duration::from_secs(3 * 86_400);

/// Longer than a class of a week keeps anything.
const WEEKS: Duration = Duration::from_secs(9 * 86_400);

/// A job whose failures are kept for a week and whose successes for a day, due now.
async fn registered(world: &mut World, name: &str) -> Job {
    let mut job = world.job(name);
    job.spec.policies.retention.keep = Keep::Failures(Retention::Week);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    job
}

/// Runs a slot of a job to its end. The next one is a minute later, and it is that time.
async fn run(world: &mut World, job: &Job, worker: WorkerId, verdict: Verdict) -> Run {
    world.try_fire(job, world.now).await.expect("fired");
    let run = world.claim(worker, 1).await.remove(0);
    world.advance(Duration::from_secs(60));
    conclude(world, worker, &run, verdict).await
}

async fn conclude(world: &World, worker: WorkerId, run: &Run, verdict: Verdict) -> Run {
    let outcome = if verdict == Verdict::Succeed { Outcome::Succeeded } else { Outcome::Failed };
    world.conclude(worker, run, outcome, verdict).await.expect("recorded")
}

/// Time passes, and what is old is forgotten, a little at a time.
async fn pass(world: &mut World, time: Duration) {
    world.advance(time);
    while world.store.retain(world.now, 1).await.expect("retain") > 0 {}
}

/// The runs that a filter shows, in pages of a size.
async fn in_pages(world: &World, filter: &RunFilter, limit: usize) -> Vec<RunId> {
    let (mut runs, mut page) = (Vec::new(), PageRequest::first(limit));
    loop {
        let found = world.store.runs(filter, page).await.expect("runs");
        assert!(found.items.len() <= limit);
        runs.extend(found.items.iter().map(Run::id));
        match found.next {
            Some(after) => page = PageRequest { after: Some(after), limit },
            None => return runs,
        }
    }
}

/// The runs of a job, from its own list, its tenant's and that of everything, which must agree; each is there by its id too.
async fn all_of(world: &World, job: &Job) -> Vec<RunId> {
    let of_job = RunFilter { job: Some(job.id), ..RunFilter::default() };
    let runs = in_pages(world, &of_job, 2).await;
    let of_tenant = RunFilter { tenant: Some(job.tenant), ..RunFilter::default() };
    for filter in [of_tenant, RunFilter::default()] {
        let listed = in_pages(world, &filter, 100).await;
        assert_eq!(listed.iter().filter(|id| runs.contains(id)).count(), runs.len());
    }
    for id in &runs {
        assert!(world.store.run(*id).await.expect("run").is_some());
    }
    runs
}

/// However a run ends: only what succeeded goes after a day.
pub async fn successes_go_after_a_day_where_failures_are_kept(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = registered(&mut world, "fragile").await;
    let mut runs = Vec::new();
    for verdict in [Verdict::Succeed, Verdict::Fail, Verdict::TimeOut, Verdict::Cancel, Verdict::Succeed] {
        runs.push(run(&mut world, &job, worker, verdict).await.id());
    }
    let [first, failed, timed_out, cancelled, last] = runs[..] else { panic!("five of them") };
    assert_eq!(store.acknowledge(&[failed]).await.expect("acknowledge"), [Ok(())]);
    assert_eq!(all_of(&world, &job).await, [last, cancelled, timed_out, failed, first]);
    pass(&mut world, HOUR * 12).await;
    assert_eq!(all_of(&world, &job).await, [last, cancelled, timed_out, failed, first]);
    pass(&mut world, DAYS).await;
    assert_eq!(all_of(&world, &job).await, [cancelled, timed_out, failed]);
    for gone in [first, last] {
        assert_eq!(store.run(gone).await.expect("run"), None);
    }
    let dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    assert_eq!(in_pages(&world, &dead, 9).await, [timed_out]);
    pass(&mut world, WEEKS).await;
    assert_eq!(all_of(&world, &job).await, [timed_out], "it is a dead letter");
    assert_eq!(store.acknowledge(&[timed_out]).await.expect("acknowledge"), [Ok(())]);
    pass(&mut world, WEEKS).await;
    assert_eq!(all_of(&world, &job).await, []);
}

/// A run is kept as it ended last: as a success at once, much later, or after its failure has outlived everything else.
pub async fn a_redriven_failure_that_succeeds_is_kept_as_a_success(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    for wait in [Duration::ZERO, HOUR * 30, WEEKS] {
        let job = registered(&mut world, "mended").await;
        let (kept, mended) = (
            run(&mut world, &job, worker, Verdict::Fail).await.id(),
            run(&mut world, &job, worker, Verdict::Fail).await.id(),
        );
        pass(&mut world, wait).await;
        assert_eq!(all_of(&world, &job).await, [mended, kept]);
        store.redrive(&[mended], world.now).await.expect("redrive")[0].clone().expect("redriven");
        assert_eq!(all_of(&world, &job).await, [mended, kept]);
        let again = world.claim(worker, 1).await.remove(0);
        assert_eq!(again.id(), mended);
        conclude(&world, worker, &again, Verdict::Succeed).await;
        assert_eq!(world.detail(mended).await.run.state, RunState::Succeeded);
        assert_eq!(all_of(&world, &job).await, [mended, kept]);
        pass(&mut world, DAYS).await;
        assert_eq!(all_of(&world, &job).await, [kept], "{wait:?}");
        assert_eq!(store.acknowledge(&[kept]).await.expect("acknowledge"), [Ok(())]);
    }
}

/// Nothing is left of where it was as a failure: a job that is over goes when the success does.
pub async fn a_job_goes_with_a_failure_that_was_mended(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let job = registered(&mut world, "once").await;
        let mut firing = world.firing(&job, world.now);
        (firing.next, firing.over) = (None, Some(job.spec.policies.retention.keep.at_birth()));
        world.try_firing(firing).await.expect("fired");
        let failed = world.claim(worker, 1).await.remove(0);
        let failed = conclude(&world, worker, &failed, Verdict::Fail).await;
        store.redrive(&[failed.id()], world.now).await.expect("redrive")[0].clone().expect("redriven");
        let again = world.claim(worker, 1).await.remove(0);
        conclude(&world, worker, &again, Verdict::Succeed).await;
        assert_eq!(all_of(&world, &job).await, [failed.id()]);
        jobs.push(job);
        // The second is there when the story ends.
        if jobs.len() == 1 {
            pass(&mut world, DAYS).await;
            assert_eq!(store.kept_jobs(&[jobs[0].id]).await.expect("kept_jobs"), [None]);
        }
    }
}

/// From its end on, whenever that is.
pub async fn a_late_failure_is_kept_for_its_class(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = registered(&mut world, "slow").await;
    let mut claimed = Vec::new();
    for _ in 0..2 {
        world.try_fire(&job, world.now).await.expect("fired");
        claimed.push(world.claim(worker, 1).await.remove(0));
        world.advance(Duration::from_secs(60));
    }
    pass(&mut world, WEEKS).await;
    let [failed, succeeded] = &claimed[..] else { panic!("two of them") };
    assert_eq!(all_of(&world, &job).await, [succeeded.id(), failed.id()], "they are running");
    conclude(&world, worker, failed, Verdict::Cancel).await;
    conclude(&world, worker, succeeded, Verdict::Succeed).await;
    pass(&mut world, HOUR * 12).await;
    assert_eq!(all_of(&world, &job).await, [succeeded.id(), failed.id()]);
    pass(&mut world, DAYS).await;
    assert_eq!(all_of(&world, &job).await, [failed.id()]);
    pass(&mut world, WEEKS).await;
    assert_eq!(all_of(&world, &job).await, []);
}

/// A run is kept as its job was when it was born.
pub async fn an_edit_of_what_is_kept_counts_for_what_is_born_later(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut job = registered(&mut world, "edited").await;
    let before = run(&mut world, &job, worker, Verdict::Succeed).await.id();
    job.version = job.version.next();
    job.spec.policies.retention = Retention::Week.into();
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("edited");
    let after = run(&mut world, &job, worker, Verdict::Succeed).await.id();
    assert_eq!(all_of(&world, &job).await, [after, before]);
    pass(&mut world, DAYS).await;
    assert_eq!(all_of(&world, &job).await, [after]);
}

/// A job that is over goes with the last of its history, be that a success or a failure.
pub async fn a_job_that_keeps_failures_goes_with_its_last_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut jobs = Vec::new();
    for verdict in [Verdict::Succeed, Verdict::Cancel] {
        let job = registered(&mut world, "once").await;
        let mut firing = world.firing(&job, world.now);
        (firing.next, firing.over) = (None, Some(job.spec.policies.retention.keep.at_birth()));
        world.try_firing(firing).await.expect("fired");
        let run = world.claim(worker, 1).await.remove(0);
        conclude(&world, worker, &run, verdict).await;
        jobs.push(job);
    }
    let ids = [jobs[0].id, jobs[1].id];
    let are_kept = async |store: &Arc<dyn Store>| {
        let kept = store.kept_jobs(&ids).await.expect("kept_jobs");
        [kept[0].is_some(), kept[1].is_some()]
    };
    pass(&mut world, HOUR * 12).await;
    assert_eq!(are_kept(&store).await, [true, true]);
    pass(&mut world, DAYS).await;
    assert_eq!(are_kept(&store).await, [false, true]);
    assert_eq!(all_of(&world, &jobs[1]).await.len(), 1);
    for _ in 0..10 {
        pass(&mut world, HOUR * 24).await;
    }
    assert_eq!(are_kept(&store).await, [false, false]);
}

/// Of those that have ended, the newest; of those that have not, all. Whatever else is asked, and however large the pages are.
pub async fn a_list_may_be_limited_to_the_newest_runs_of_a_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = registered(&mut world, "talkative").await;
    let other = registered(&mut world, "other").await;
    // The oldest is still running.
    world.try_fire(&job, world.now).await.expect("fired");
    let open = world.claim(worker, 1).await.remove(0).id();
    world.advance(Duration::from_secs(60));
    let mut ended = Vec::new();
    for n in 0..7 {
        let verdict = if n % 2 == 0 { Verdict::Fail } else { Verdict::Succeed };
        let slot = world.now;
        world.try_fire(&job, slot).await.expect("fired");
        let claimed = world.claim(worker, 1).await.remove(0);
        world.advance(Duration::from_secs(60));
        ended.insert(0, conclude(&world, worker, &claimed, verdict).await.id());
    }
    let mut firing = world.firing(&other, other.created_at);
    firing.next = None;
    world.try_firing(firing).await.expect("fired");
    let claimed = world.claim(worker, 1).await.remove(0);
    conclude(&world, worker, &claimed, Verdict::Succeed).await;

    for last in [1, 3, 6, 7, 8, 100] {
        let all = RunFilter { job: Some(job.id), last: NonZeroU32::new(last), ..RunFilter::default() };
        let newest = &ended[..ended.len().min(last as usize)];
        let expected = [newest, &[open]].concat();
        for limit in [1, 2, 3, 50] {
            assert_eq!(in_pages(&world, &all, limit).await, expected, "the last {last}, {limit} at a time");
        }
        let failed = RunFilter { state: Some("failed"), ..all.clone() };
        let expected: Vec<RunId> = newest.iter().copied().step_by(2).collect();
        assert_eq!(in_pages(&world, &failed, 2).await, expected, "failures among the last {last}");
        let running = RunFilter { state: Some("running"), ..all };
        assert_eq!(in_pages(&world, &running, 2).await, [open]);
    }
    let oldest = *ended.last().expect("seven of them");
    assert!(store.run(oldest).await.expect("run").is_some(), "it is kept all the same");
}
