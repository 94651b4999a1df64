//! History, ledger, dead letters, retention.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{RunState, WaitingFor};
use punctual_domain::{Outcome, Run, RunId, ShardId, TenantId, WorkerId, invariants};

use super::world::{World, birth};
use crate::error::Refused;
use crate::page::{EXAMINED_MAX, PageRequest};
use crate::store::Store;
use crate::verbs::{JobFilter, Put, RunFilter};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn dead(world: &mut World, worker: WorkerId, name: &str) -> Run {
    let run = world.running(name, worker).await;
    world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("recorded")
}

async fn all(world: &World, filter: &RunFilter) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut page = PageRequest::first(3);
    loop {
        let found = world.store.runs(filter, page).await.expect("runs");
        assert!(found.items.len() <= 3);
        runs.extend(found.items);
        match found.next {
            Some(after) => page = PageRequest { after: Some(after), limit: 3 },
            None => return runs,
        }
    }
}

/// Open or ended, a run is found by its id, and not by one that only looks like it.
pub async fn a_run_is_found_by_its_id(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let open = world.fired("open").await;
    assert_eq!(world.detail(open.id()).await.run, open);
    let claimed = world.claim(worker, 1).await.remove(0);
    world.conclude(worker, &claimed, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(world.detail(open.id()).await.run.state, RunState::Succeeded);
    let elsewhere = RunId::new(open.sequence, ShardId((open.job.shard().0 + 1) % 16));
    assert_eq!(store.run(elsewhere).await.expect("run"), None);
    assert_eq!(store.run(RunId::new(open.sequence.next(), open.job.shard())).await.expect("run"), None);
}

/// Open and ended ones together, each once.
pub async fn runs_are_listed_newest_first_in_pages(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let mut expected = Vec::new();
    for n in 0..10 {
        let run = world.running(&format!("job-{n}"), worker).await;
        if n % 3 != 0 {
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        }
        expected.insert(0, run.id());
        world.advance(Duration::from_millis(7));
    }
    let listed = all(&world, &RunFilter::default()).await;
    assert_eq!(listed.iter().map(Run::id).collect::<Vec<_>>(), expected);
    for run in &listed {
        assert_eq!(invariants::check(run), Ok(()));
    }
}

/// By job, state, tenant, time and death.
pub async fn filters_narrow_the_list(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let failed = dead(&mut world, worker, "failed").await;
    world.advance(Duration::from_secs(100));
    let halfway = world.now;
    let good = world.running("good", worker).await;
    world.conclude(worker, &good, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    world.advance(Duration::from_millis(1));
    let waiting = world.fired("waiting").await;
    let cases = [
        (RunFilter { job: Some(good.job), ..RunFilter::default() }, vec![good.id()]),
        (RunFilter { state: Some("failed"), ..RunFilter::default() }, vec![failed.id()]),
        (RunFilter { state: Some("pending"), ..RunFilter::default() }, vec![waiting.id()]),
        (RunFilter { is_dead: Some(true), ..RunFilter::default() }, vec![failed.id()]),
        (RunFilter { is_dead: Some(false), ..RunFilter::default() }, vec![waiting.id(), good.id()]),
        (RunFilter { born_from: Some(halfway), ..RunFilter::default() }, vec![waiting.id(), good.id()]),
        (RunFilter { born_before: Some(halfway), ..RunFilter::default() }, vec![failed.id()]),
        (
            RunFilter { tenant: Some(TenantId::DEFAULT), ..RunFilter::default() },
            vec![waiting.id(), good.id(), failed.id()],
        ),
        (RunFilter { tenant: Some(TenantId(42)), ..RunFilter::default() }, vec![]),
    ];
    for (filter, expected) in cases {
        let ids: Vec<_> = all(&world, &filter).await.iter().map(Run::id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
}

/// What the job says of itself is asked of its runs, open and ended, and what waits is asked for its reason.
pub async fn runs_are_found_by_type_queue_and_what_they_wait_for(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut runs = Vec::new();
    for (kind, queue) in
        [(Some("report"), "slow"), (None, "slow"), (Some("report"), "fast"), (Some("mail"), "fast")]
    {
        let mut job = world.job("grouped");
        job.spec.kind = kind.map(String::from);
        job.spec.queue = queue.into();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let run = world.try_fire(&job, world.now).await.expect("fired").remove(0);
        assert_eq!(run.kind.as_deref(), kind);
        runs.push(run);
        world.advance(Duration::from_millis(1));
    }
    let [ended, retried, running, waiting] = &runs[..] else { unreachable!("four of them") };
    let claimed = world.claim(worker, 3).await;
    world.conclude(worker, &claimed[0], Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    let retry = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    world.conclude(worker, &claimed[1], Outcome::Failed, retry).await.expect("recorded");
    let job = world.register("later", world.now).await;
    let mut later = world.firing(&job, world.now);
    later.births[0].available_at = world.after(3600);
    let delayed = world.try_firing(later).await.expect("fired").remove(0);
    let of_kind = |kind: &str| RunFilter { kind: Some(kind.into()), ..RunFilter::default() };
    let of_queue = |queue: &str| RunFilter { queue: Some(queue.into()), ..RunFilter::default() };
    let waits_for = |what| RunFilter { waiting_for: Some(what), ..RunFilter::default() };
    for (filter, expected) in [
        (of_kind("report"), vec![running.id(), ended.id()]),
        (of_kind("mail"), vec![waiting.id()]),
        (of_kind("none such"), vec![]),
        (of_queue("slow"), vec![retried.id(), ended.id()]),
        (of_queue("fast"), vec![waiting.id(), running.id()]),
        (RunFilter { queue: Some("slow".into()), ..of_kind("report") }, vec![ended.id()]),
        (waits_for(WaitingFor::Retry), vec![retried.id()]),
        (waits_for(WaitingFor::Capacity), vec![waiting.id()]),
        (waits_for(WaitingFor::Time), vec![delayed.id()]),
    ] {
        let ids: Vec<_> = all(&world, &filter).await.iter().map(Run::id).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    let detail = world.detail(ended.id()).await;
    assert_eq!((detail.run.kind.as_deref(), &*detail.run.queue), (Some("report"), "slow"));
}

/// Open and ended, newest first, of any time, and nobody else's.
pub async fn the_history_of_a_job_is_its_own(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let jobs = [world.register("one", world.now).await, world.register("two", world.now).await];
    let mut born: [Vec<RunId>; 2] = Default::default();
    let mut times = Vec::new();
    for n in 0..20 {
        times.push(world.now);
        for (job, born) in jobs.iter().zip(&mut born) {
            let run = world.try_fire(job, world.now).await.expect("fired").remove(0);
            born.insert(0, run.id());
        }
        for run in world.claim(worker, 2).await {
            match n % 4 {
                0 => {} // It stays open.
                1 => {
                    let dead =
                        world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("recorded");
                    store.redrive(&[dead.id()], world.now).await.expect("redrive")[0]
                        .as_ref()
                        .expect("redriven");
                    let again = world.claim(worker, 1).await.remove(0);
                    world
                        .conclude(worker, &again, Outcome::Succeeded, Verdict::Succeed)
                        .await
                        .expect("recorded");
                }
                2 => drop(
                    world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("recorded"),
                ),
                _ => drop(
                    world
                        .conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed)
                        .await
                        .expect("recorded"),
                ),
            }
        }
        world.advance(Duration::from_secs(60));
    }
    for (job, born) in jobs.iter().zip(&born) {
        let of_job = RunFilter { job: Some(job.id), ..RunFilter::default() };
        let found: Vec<_> = all(&world, &of_job).await.iter().map(Run::id).collect();
        assert_eq!(found, *born);
        // The newest five are of the last five minutes; ten are older than the tenth.
        let before = RunFilter { born_before: Some(times[10]), ..of_job.clone() };
        let found: Vec<_> = all(&world, &before).await.iter().map(Run::id).collect();
        assert_eq!(found, born[10..]);
        let between = RunFilter { born_from: Some(times[5]), ..before };
        let found: Vec<_> = all(&world, &between).await.iter().map(Run::id).collect();
        assert_eq!(found, born[10..15]);
        let failed = RunFilter { state: Some("failed"), ..of_job.clone() };
        assert_eq!(all(&world, &failed).await.len(), 5);
        let of_tenant = RunFilter { tenant: Some(job.tenant), ..of_job.clone() };
        assert_eq!(all(&world, &of_tenant).await.len(), 20);
        let of_other = RunFilter { tenant: Some(TenantId(42)), ..of_job };
        assert_eq!(all(&world, &of_other).await, []);
    }
    assert_eq!(all(&world, &RunFilter { state: Some("failed"), ..RunFilter::default() }).await.len(), 10);
}

/// Each tenant sees its own, however few among however many.
pub async fn the_history_of_a_tenant_is_its_own(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let rare = store.put_tenant(&"rare".parse().expect("a name"), world.now).await.expect("put_tenant").id;
    let mut born = Vec::new();
    for n in 0..60 {
        let mut job = world.job("of a tenant");
        job.tenant = if n % 20 == 7 { rare } else { TenantId::DEFAULT };
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
        let run = world.claim(worker, 1).await.remove(0);
        if n % 3 != 0 {
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        }
        born.insert(0, run);
        world.advance(Duration::from_millis(1));
    }
    for tenant in [rare, TenantId::DEFAULT, TenantId(42)] {
        let expected: Vec<_> = born.iter().filter(|run| run.tenant == tenant).map(Run::id).collect();
        let of_tenant = RunFilter { tenant: Some(tenant), ..RunFilter::default() };
        let found: Vec<_> = all(&world, &of_tenant).await.iter().map(Run::id).collect();
        assert_eq!(found, expected);
    }
}

/// A run that outlives its class of retention, and a dead letter that does, stay in the history of their job.
pub async fn what_outlives_its_retention_stays_its_jobs(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut jobs = Vec::new();
    for name in ["long", "dead"] {
        let mut job = world.job(name);
        job.spec.policies.retention = Retention::Day.into();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
        jobs.push(job);
    }
    let claimed = world.claim(worker, 2).await;
    world.conclude(worker, &claimed[1], Outcome::Failed, Verdict::Fail).await.expect("recorded");
    world.advance(DAY * 3);
    while store.retain(world.now, 10).await.expect("retain") > 0 {}
    let of = |n: usize| RunFilter { job: Some(jobs[n].id), ..RunFilter::default() };
    assert_eq!(all(&world, &of(0)).await.len(), 1, "it is running");
    assert_eq!(all(&world, &of(1)).await.len(), 1, "it is a dead letter");
    world.conclude(worker, &claimed[0], Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(all(&world, &of(0)).await[0].state, RunState::Succeeded);
    assert_eq!(world.detail(claimed[0].id()).await.run.state, RunState::Succeeded);
    assert_eq!(all(&world, &RunFilter::default()).await.len(), 2);
    assert_eq!(store.acknowledge(&[claimed[1].id()]).await.expect("acknowledge"), [Ok(())]);
    world.advance(DAY * 3);
    while store.retain(world.now, 10).await.expect("retain") > 0 {}
    assert_eq!(all(&world, &of(1)).await, [], "nothing keeps it any more");
}

/// Retention counts from the end of a run, not from its birth, give or take the period of a partition.
pub async fn a_run_that_ends_late_is_kept_as_long_as_any_other(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let hour = Duration::from_secs(3_600);
    let worker = world.worker();
    let mut runs = Vec::new();
    for ends_after in [0, 3, 20, 26, 70] {
        let mut job = world.job("late");
        job.spec.policies.retention = Retention::Day.into();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
        runs.push((ends_after, world.claim(worker, 1).await.remove(0)));
    }
    for passed in 0..=100 {
        for (ends_after, run) in &runs {
            if passed == *ends_after {
                world.conclude(worker, run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
            }
            let of_job = RunFilter { job: Some(run.job), ..RunFilter::default() };
            let of_tenant = RunFilter { tenant: Some(run.tenant), ..RunFilter::default() };
            let listed = [all(&world, &of_job).await, all(&world, &of_tenant).await];
            let places = listed.map(|listed| listed.iter().filter(|one| one.id() == run.id()).count());
            let is_there = store.run(run.id()).await.expect("run").is_some();
            let expected = match passed - ends_after {
                ..=22 => Some((true, [1, 1])),
                27.. => Some((false, [0, 0])),
                _ => None,
            };
            let seen = (is_there, places);
            assert_eq!(expected.unwrap_or(seen), seen, "{passed} h, ended after {ends_after} h");
        }
        world.advance(hour);
        while store.retain(world.now, 10).await.expect("retain") > 0 {}
    }
}

/// What no index serves is looked for in bounded steps, and found all the same.
pub async fn a_search_examines_a_bounded_number_of_rows(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut puts = Vec::new();
    for n in 0..=EXAMINED_MAX {
        let mut job = world.job_of("one of them", "hay");
        // Jobs are listed from the oldest, runs from the newest: the needle is at the far end of each.
        job.spec.kind = (n == 0).then(|| "first".into());
        if n == EXAMINED_MAX {
            job.spec.labels.insert("last".into(), "yes".into());
        }
        let birth = birth(&job, world.now);
        puts.push(Put { birth: Some(birth), ..world.put(job, None) });
        if n % 64 == 0 || n + 1 == EXAMINED_MAX {
            world.advance(Duration::from_millis(1));
        }
    }
    let answers = store.put_jobs(puts, world.now).await.expect("put_jobs");
    assert!(answers.iter().all(Result::is_ok));
    let runs = RunFilter { kind: Some("first".into()), ..RunFilter::default() };
    let page = store.runs(&runs, PageRequest::first(10)).await.expect("runs");
    assert_eq!(page.items, []);
    let page = store.runs(&runs, PageRequest { after: Some(page.next.expect("more")), limit: 10 }).await;
    let page = page.expect("runs");
    assert_eq!((page.items.len(), page.next), (1, None));
    let jobs = JobFilter { labels: [("last".into(), "yes".into())].into(), ..JobFilter::default() };
    let page = store.list_jobs(&jobs, PageRequest::first(10)).await.expect("list");
    assert_eq!(page.items, []);
    let page = store.list_jobs(&jobs, PageRequest { after: Some(page.next.expect("more")), limit: 10 }).await;
    let page = page.expect("list");
    assert_eq!((page.items.len(), page.next), (1, None));
}

/// Newest first, each range one entry, only of the job asked for.
pub async fn the_ledger_keeps_ranges(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (job, other) = (world.job("job"), world.job("other"));
    let entry = |job: &punctual_domain::Job, from: i64, slots: u64| LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from: world.after(from),
        to: world.after(from + 60 * (slots as i64 - 1)),
        slots,
        fate: Fate::SkippedPause,
        decided_at: world.now,
    };
    let entries = vec![entry(&job, 0, 10), entry(&job, 10_000, 1), entry(&job, 20_000, 500)];
    let mut put = world.put(job.clone(), None);
    put.ledger = entries.clone();
    let mut put_other = world.put(other.clone(), None);
    put_other.ledger = vec![entry(&other, 5, 3)];
    world.try_put(put).await.expect("registered");
    world.try_put(put_other).await.expect("registered");
    let first = store.ledger(job.id, PageRequest::first(2)).await.expect("ledger");
    assert_eq!(first.items, [entries[2].clone(), entries[1].clone()]);
    let rest = store.ledger(job.id, PageRequest { after: first.next, limit: 2 }).await.expect("ledger");
    assert_eq!((rest.items, rest.next), (vec![entries[0].clone()], None));
}

/// The same run goes on with the next attempt; its past stays with it.
pub async fn dead_letters_are_redriven_as_the_same_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = dead(&mut world, worker, "failed").await;
    world.advance(Duration::from_secs(3600));
    let redriven = store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("redriven");
    assert!(matches!(redriven.state, RunState::Pending(_)));
    assert_eq!(all(&world, &RunFilter { is_dead: Some(true), ..RunFilter::default() }).await, []);
    assert!(store.redrive(&[run.id()], world.now).await.expect("redrive")[0].is_err(), "only what is dead");
    let again = world.claim(worker, 1).await.remove(0);
    assert_eq!((again.id(), again.attempt), (run.id(), 2));
    world.conclude(worker, &again, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    assert_eq!((detail.run.state, detail.attempts.len()), (RunState::Succeeded, 2));
    assert_eq!(all(&world, &RunFilter::default()).await.len(), 1, "one run, not two");
    let unknown = RunId::new(run.sequence.next(), run.job.shard());
    assert_eq!(store.redrive(&[unknown], world.now).await.expect("redrive"), [Err(Refused::NoRun)]);
}

/// Acknowledged, a run stays failed but is nobody's to do.
pub async fn dead_letters_are_acknowledged(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = dead(&mut world, worker, "failed").await;
    assert_eq!(store.acknowledge(&[run.id()]).await.expect("acknowledge"), [Ok(())]);
    assert_eq!(all(&world, &RunFilter { is_dead: Some(true), ..RunFilter::default() }).await, []);
    assert_eq!(world.detail(run.id()).await.run.state, RunState::Failed);
    assert!(store.acknowledge(&[run.id()]).await.expect("acknowledge")[0].is_err(), "once");
}

/// History goes by its class; what is open or dead stays.
pub async fn retention_forgets_what_is_old(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let mut ended = Vec::new();
    for retention in [Retention::Day, Retention::Week] {
        let mut job = world.job("kept");
        job.spec.policies.retention = retention.into();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
        let run = world.claim(worker, 1).await.remove(0);
        world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        ended.push(run.id());
    }
    let failed = dead(&mut world, worker, "dead").await.id();
    let open = world.fired("open").await.id();
    let left = |world: &World| {
        let (store, ids) = (world.store.clone(), [ended[0], ended[1], failed, open]);
        async move {
            let mut left = Vec::new();
            for id in ids {
                left.push(store.run(id).await.expect("run").is_some());
            }
            left
        }
    };
    assert_eq!(store.retain(world.now, 1_000).await.expect("retain"), 0);
    world.advance(DAY * 3);
    while store.retain(world.now, 1).await.expect("retain") > 0 {}
    assert_eq!(left(&world).await, [false, true, true, true]);
    world.advance(DAY * 10);
    while store.retain(world.now, 1_000).await.expect("retain") > 0 {}
    assert_eq!(left(&world).await, [false, false, true, true]);
}

/// Also when the clock steps back.
pub async fn ids_follow_time_and_never_repeat(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut sequences = Vec::new();
    for name in ["first", "second"] {
        let job = world.job_of("one of them", name);
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        sequences.push(world.try_fire(&job, world.now).await.expect("fired").remove(0).sequence);
        // The clock goes back.
        world.now = world.after(-3600);
    }
    assert_eq!(sequences[0].born_at(), world.after(7200));
    assert!(sequences[1] > sequences[0]);
}
