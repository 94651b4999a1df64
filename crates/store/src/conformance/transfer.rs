//! Moving between stores: what is moved answers as before, and goes on.
//!
//! Not cases, because a move needs two stores: each store's tests tell [`story`], move it, and hold the copy against the
//! original with [`assert_same`] and [`assert_goes_on`]. They also move what every case of the suite leaves behind.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{JobId, OperationId, Sequence, ShardId, TenantId};
use punctual_domain::job::{JobState, Pause};
use punctual_domain::ledger::Fate;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{Backfill, CatchUp, DeadLetters, Event, Kind, Operation};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits, Rule};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::Retention;
use punctual_domain::policy::unknown::Answer;
use punctual_domain::run::{Cause, Limit, Run, RunState, StartBy};

use punctual_domain::{Outcome, Tenant, document};
use punctual_schedule::{Progress, Schedule};

use super::audit::entry;
use super::papers::{saying, speak};
use super::world::{LEASE, World, birth, conclusion, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::record::encode_job;
use crate::store::Store;
use crate::verbs::{
    Answering, Birth, DocumentChange, Due, DueQuery, Effect, Expected, JobFilter, Lapse, OpenRuns,
    OperationFilter, RuleChange, RunFilter, Shards, Step, Stored, Subject, Trigger, ledger_entry,
};

/// The second at which the story ends, and a copy of it may begin.
pub const STORY_ENDS: i64 = 1_800_400_000;

/// Requests of the story.
const REQUESTS: [&str; 2] = ["asked: once", "triggered"];

/// Everything that can be in a store: tenants, jobs in all states, with keys and with older versions, due entries that
/// count and stale ones, open runs in all states, history of all classes, dead letters of which one outlived its
/// partition, late ends, the ledger, operations, requests, jobs to be forgotten.
pub async fn story(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    history(&mut world).await;
    let run = world.running("retried", worker).await;
    let start_by = Some(StartBy { at: world.after(7_200), limit: Limit::RetryFor });
    let retry = Verdict::Retry { available_at: world.after(30), charge: Charge::Attempt, start_by };
    speak(&world, worker, &run).await;
    let report = saying(&world, Outcome::Failed, "not yet", &["ended"]);
    world.try_complete(conclusion(worker, &run, Some(report), retry)).await.expect("recorded");
    let asks = world.running("asks", worker).await;
    world.conclude(worker, &asks, Outcome::Lost, Verdict::Ask { start_by: None }).await.expect("recorded");
    let job = world.register("edited", world.now).await;
    world.try_fire(&job, world.now).await.expect("fired");
    let claimed = world.claim(worker, 1).await;
    assert_eq!(claimed[0].job, job.id);
    speak(&world, worker, &claimed[0]).await;
    let mut edited = job.clone();
    (edited.version, edited.spec.name) = (job.version.next(), "edited twice".into());
    // The entry of the old version stays, stale.
    world.try_put(world.put(edited, Some(world.after(120)))).await.expect("edited");
    jobs(&mut world).await;
    operations(&mut world).await;
    for name in ["waiting", "waiting too"] {
        let mut job = world.job(name);
        (job.spec.queue, job.spec.priority) = ("slow".into(), 7);
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
    }
    limited(&mut world).await;
    queued(&mut world).await;
    assert!(world.now < Timestamp::from_second(STORY_ENDS).expect("in range"));
}

/// A rule, a run that holds a permit of it, and one that waits for it with the permit of its own key.
async fn limited(world: &mut World) {
    let allowance = Allowance { max: Some(NonZeroU32::MIN), rate: None };
    let rule = Rule {
        name: "all".into(),
        tenant: None,
        queue: None,
        kind: None,
        by: Vec::new(),
        allowance,
        holds_retries: false,
        breaker: None,
    };
    let change = RuleChange { name: "all".into(), rule: Some(rule) };
    world.store.put_rules(vec![change], world.now).await.expect("put_rules");
    let holidays = DocumentChange {
        kind: document::Kind::Calendar,
        tenant: TenantId::DEFAULT,
        name: "holidays".into(),
        expect: Expected::Any,
        body: Some(r#"{"exclude":["2027-01-01"]}"#.into()),
        audit: Some(entry(world, 1, "calendar", "holidays", "create")),
    };
    for _ in 0..2 {
        world
            .store
            .put_documents(vec![holidays.clone()], world.now)
            .await
            .expect("put_documents")
            .remove(0)
            .expect("put");
    }
    let mut job = world.job("limited");
    job.spec.queue = "slow".into();
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    for (key, passed) in [(1, 2), (2, 1), (2, 0)] {
        let own = |key: u64, breadth: u8, allowed: Allowed| Limited {
            key: Key(key),
            breadth,
            holds_retries: true,
            allowed,
        };
        let limits = Limits::new(vec![
            own(key, 0, Allowed::Own(allowance)),
            own(u64::MAX, 10, Allowed::Rule("all".into())),
        ]);
        let mut firing = world.firing(&job, world.now);
        firing.births[0].limits = limits;
        assert_eq!(world.try_firing(firing).await.expect("fired")[0].passed, passed);
        world.advance(Duration::from_secs(60));
    }
}

/// Runs that wait for an earlier one of their job, until a time, and a slot that was skipped.
async fn queued(world: &mut World) {
    let mut job = world.job("queued");
    (job.spec.queue, job.spec.policies.overlap) = ("slow".into(), Overlap::QueueAll { max: 2 });
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    for born in [1, 1, 1, 0] {
        let mut firing = world.firing(&job, world.now);
        firing.births[0].start_by = Some(StartBy { at: world.after(7_200), limit: Limit::StartWindow });
        assert_eq!(world.try_firing(firing).await.expect("fired").len(), born);
        world.advance(Duration::from_secs(60));
    }
}

/// Runs that ended, of every class, early and late.
async fn history(world: &mut World) {
    let worker = world.worker();
    for retention in Retention::ALL {
        let mut job = world.job("kept");
        job.spec.policies.retention = retention.into();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let mut slot = world.now;
        let given_up = Verdict::GiveUp(Limit::Deadline);
        for verdict in [Verdict::Succeed, Verdict::Fail, Verdict::TimeOut, Verdict::Cancel, given_up] {
            world.try_fire(&job, slot).await.expect("fired");
            world.advance(Duration::from_secs(60));
            let run = world.claim(worker, 1).await.remove(0);
            let outcome = if verdict == Verdict::Succeed { Outcome::Succeeded } else { Outcome::Failed };
            speak(world, worker, &run).await;
            let report = saying(world, outcome, "an answer", &["ended"]);
            world.try_complete(conclusion(worker, &run, Some(report), verdict)).await.expect("recorded");
            slot = world.now;
        }
        // It ends long after the partition of its birth was closed.
        world.try_fire(&job, slot).await.expect("fired");
        let late = world.claim(worker, 1).await.remove(0);
        world.advance(Duration::from_secs(26 * 3600));
        while world.store.retain(world.now, 3).await.expect("retain") > 0 {}
        world.conclude(worker, &late, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    }
    let dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    let dead = world.store.runs(&dead, PageRequest::first(100)).await.expect("runs").items;
    assert_eq!(dead.len(), 12, "also the oldest, whose partitions are gone");
    world.store.acknowledge(&[dead[0].id()]).await.expect("acknowledge")[0].clone().expect("acknowledged");
    world.store.redrive(&[dead[1].id()], world.now).await.expect("redrive")[0].clone().expect("redriven");
    world.claim(worker, 1).await;
}

/// Jobs in all states.
async fn jobs(world: &mut World) {
    let mut rare = world.job("of another tenant");
    rare.tenant = world.store.put_tenant(&"rare".parse().expect("a name"), world.now).await.expect("put").id;
    rare.spec.key = Some("the-key".into());
    world.try_put(world.put(rare, Some(world.after(45)))).await.expect("registered");
    let mut keyed = world.job("keyed");
    (keyed.spec.key, keyed.spec.kind) = (Some("the-key".into()), Some("report".into()));
    let mut put = world.put(keyed.clone(), Some(world.after(60)));
    put.request = Some(subject(world, REQUESTS[0]));
    world.try_put(put).await.expect("registered");
    keyed.version = keyed.version.next();
    let mut put = world.put(keyed.clone(), Some(world.after(90)));
    put.ledger = vec![ledger_entry(&keyed, &[], Fate::MissedCatchUp, world.now)];
    put.ledger[0].slots = 3;
    world.try_put(put).await.expect("edited");

    let mut paused = world.job("paused");
    let until = Some(world.after(600));
    paused.state = JobState::Paused(Pause { reason: Some("why".into()), by: None, since: world.now, until });
    world.try_put(world.put(paused, until)).await.expect("registered");

    let mut counted = world.job("counted");
    counted.spec.schedule = Schedule::parse("@every 60s from completion").expect("valid");
    world.try_put(world.put(counted.clone(), Some(world.now))).await.expect("registered");
    let mut firing = world.firing(&counted, world.now);
    firing.progress = Some(Progress { fired: 3, last_completion: Some(world.now) });
    firing.next = None;
    world.try_firing(firing).await.expect("fired");

    let mut over = world.job("over");
    over.spec.schedule = Schedule::parse("@at 2020-01-01T00:00:00Z").expect("valid");
    world.try_put(world.put(over.clone(), None)).await.expect("registered");
    // A run outside the schedule keeps a job that is over.
    let trigger = Trigger {
        job: over.id,
        version: over.version,
        birth: Birth { cause: Cause::Trigger, ..birth(&over, world.now) },
        is_over: true,
        request: Some(Subject { result: String::new(), ..subject(world, REQUESTS[1]) }),
        audit: None,
    };
    world.store.trigger(vec![trigger], world.now).await.expect("trigger")[0].clone().expect("triggered");

    let mut deleted = world.register("deleted", world.after(30)).await;
    let unfired = due(&deleted, world.after(30));
    (deleted.version, deleted.state) = (deleted.version.next(), JobState::Deleted);
    let mut put = world.put(deleted, None);
    (put.open_runs, put.unfired) = (OpenRuns::CancelPending, vec![unfired]);
    world.try_put(put).await.expect("deleted");
}

fn subject(world: &World, key: &str) -> Subject {
    Subject {
        tenant: TenantId::DEFAULT,
        key: key.into(),
        fingerprint: [7; 16],
        expires_at: world.after(86_400 * 400),
        result: "made".into(),
    }
}

/// One that runs, and one that has ended.
async fn operations(world: &mut World) {
    let job = world.register("caught up with", world.after(50)).await;
    let schedule = job.spec.schedule;
    let backfill = Backfill {
        job: job.id,
        schedule: schedule.clone(),
        from: world.after(-600),
        to: world.now,
        rate: 5,
        overlap: Some(Overlap::QueueOne),
        part: 7,
    };
    let catch_up = CatchUp { job: job.id, schedule, to: world.now, rate: 1 };
    let start = |number: u16, kind| Step {
        operation: Operation::new(
            OperationId::new(world.now, ShardId(number), 1),
            TenantId::DEFAULT,
            kind,
            world.now,
        ),
        epoch: None,
        effect: Effect::Nothing,
        ledger: Vec::new(),
        request: None,
        audit: None,
    };
    let mut steps =
        vec![start(1, Kind::CatchUp(Box::new(catch_up))), start(2, Kind::Redrive(DeadLetters::default()))];
    steps.push(steps[1].clone());
    steps[2].operation.apply(Event::Succeeded, world.now).expect("running");
    steps.push(start(3, Kind::Backfill(Box::new(backfill))));
    let done = world.store.step(steps, world.now).await.expect("step");
    assert!(done.iter().all(Result::is_ok), "{done:?}");
}

/// Both stores give the same answers to everything that can be asked.
pub async fn assert_same(one: &dyn Store, other: &dyn Store) {
    let (first, second) = (Answers::of(one).await, Answers::of(other).await);
    assert_eq!(first.tenants, second.tenants);
    assert_eq!(first.jobs, second.jobs);
    assert_eq!(first.due, second.due);
    assert_eq!(first.runs, second.runs);
    let difference = first.rest.iter().zip(&second.rest).find(|(one, other)| one != other);
    assert_eq!((difference, first.rest.len()), (None, second.rest.len()));
}

/// What a store says.
struct Answers {
    tenants: Vec<Tenant>,
    jobs: Vec<Stored>,
    due: Vec<Due>,
    runs: Vec<Run>,
    /// Attempts, dead letters, versions, keys, the ledger, operations, requests.
    rest: Vec<String>,
}

impl Answers {
    async fn of(store: &dyn Store) -> Answers {
        let mut rest = Vec::new();
        let jobs = all_jobs(store).await;
        let query = DueQuery { shards: Shards::All, after: None, until: Timestamp::MAX, limit: 100_000 };
        let runs = all_runs(store, &RunFilter::default()).await;
        for run in &runs {
            let detail = store.run(run.id()).await.expect("run").expect("it is listed");
            rest.push(format!("{:?}", detail.attempts));
            if !run.state.is_ended() {
                let version = store.job_versions(&[(run.job, run.version)]).await.expect("job_versions");
                // As it is stored: a schedule remembers how it was written until then.
                let version = version[0].as_ref().expect("kept while a run needs it");
                let record = encode_job(&version.job).expect("encoded");
                rest.push(format!("{} {}", version.job.version, String::from_utf8_lossy(&record)));
            }
        }
        let rules = store.rules().await.expect("rules");
        rest.extend(rules.iter().map(|rule| format!("{rule:?}")));
        for kind in document::Kind::ALL {
            let documents = store.documents(kind, None, None, 1_000).await.expect("documents");
            rest.extend(documents.iter().map(|document| format!("{document:?}")));
        }
        let audit = store.audit(&Default::default(), PageRequest::first(1_000)).await.expect("audit");
        rest.extend(audit.items.iter().map(|entry| format!("{entry:?}")));
        let dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
        rest.extend(all_runs(store, &dead).await.iter().map(|run| format!("dead {}", run.id())));
        let of_jobs: BTreeSet<JobId> = jobs.iter().map(|stored| stored.job.id).collect();
        for stored in &jobs {
            if let Some(key) = &stored.job.spec.key {
                let holder = store.job_by_key(stored.job.tenant, key).await.expect("job_by_key");
                rest.push(format!("{key} {holder:?}"));
            }
        }
        // A store in memory looks for the runs of a job among all.
        for stored in jobs.iter().take(100) {
            let own = RunFilter { job: Some(stored.job.id), ..RunFilter::default() };
            rest.push(format!("{:?}", all_runs(store, &own).await.iter().map(Run::id).collect::<Vec<_>>()));
        }
        let ids: Vec<JobId> = of_jobs.into_iter().take(100).collect();
        rest.push(format!("{:?}", store.have_open_runs(&ids).await.expect("have_open_runs")));
        for id in ids {
            let page = store.ledger(id, PageRequest::first(1_000)).await.expect("ledger");
            rest.extend(page.items.iter().map(|entry| format!("{entry:?}")));
        }
        let operations = store.operations(&OperationFilter::default(), PageRequest::first(1_000)).await;
        rest.extend(operations.expect("operations").items.iter().map(|operation| format!("{operation:?}")));
        for key in REQUESTS {
            let at = Timestamp::from_second(1_800_000_000).expect("in range");
            rest.push(format!("{:?}", store.request(TenantId::DEFAULT, key, at).await.expect("request")));
        }
        let next = store.next_available_at(&Shards::All).await.expect("next_available_at");
        rest.push(format!("{next:?}"));
        Answers {
            tenants: store.tenants().await.expect("tenants"),
            jobs,
            due: store.due(query).await.expect("due").entries,
            runs,
            rest,
        }
    }
}

async fn all_jobs(store: &dyn Store) -> Vec<Stored> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { after, limit: 1_000 };
        let page = store.list_jobs(&JobFilter::default(), page).await.expect("list_jobs");
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

async fn all_runs(store: &dyn Store, filter: &RunFilter) -> Vec<Run> {
    let (mut all, mut after): (Vec<Run>, Option<Sequence>) = (Vec::new(), None);
    loop {
        let page = store.runs(filter, PageRequest { after, limit: 1_000 }).await.expect("runs");
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// A copy of [`story`] goes on: slots fire once each, open runs are lost or claimed, no sequence comes twice, and what
/// is over is forgotten.
pub async fn assert_goes_on(store: Arc<dyn Store>) {
    let before = all_runs(&*store, &RunFilter::default()).await;
    let newest = before.iter().map(|run| run.sequence).max().expect("there are runs");
    // In the millisecond of the newest run, time alone does not keep sequences apart.
    let mut world = World::new_at(store, newest.born_at().as_second()).await;
    let soon = world.register("in the same millisecond", world.now).await;
    let born = world.try_fire(&soon, world.now).await.expect("fired").remove(0);
    assert!(born.sequence > newest, "a sequence that may have been given out");
    world.now = Timestamp::from_second(STORY_ENDS).expect("in range");
    let running = before.iter().filter(|run| matches!(run.state, RunState::Running(_))).count();
    let behind: Vec<&Run> = before.iter().filter(|run| run.is_behind()).collect();
    let pending = before.iter().filter(|run| matches!(run.state, RunState::Pending(_))).count();
    let limited: Vec<&Run> = before.iter().filter(|run| run.is_limited()).collect();
    let asking: Vec<&Run> = before.iter().filter(|run| run.is_asking()).collect();
    let waiting = pending - behind.len() - limited.len() - asking.len();
    assert!(running >= 2 && waiting >= 3 && behind.len() == 2, "{running} running, {waiting} waiting");
    let lost = world.store.expired(LEASE, world.now, 1_000).await.expect("expired");
    assert_eq!(lost.len(), running, "their workers are gone");
    let worker = world.worker();
    let claimed = world.claim(worker, 1_000).await;
    assert_eq!(claimed.len(), waiting + 1);
    // Whoever asks waits for his answer here.
    assert_eq!(asking.len(), 1);
    let (run, answer) = (asking[0].id(), Answer::Retry);
    let answering = Answering { run, answer, successor: None, messages: Vec::new() };
    world.store.answer(vec![answering], world.now).await.expect("answer")[0].clone().expect("asking");
    let again = world.claim(worker, 1_000).await;
    // Others are told because they are too late.
    let leased = again.iter().filter(|run| run.lease().is_some());
    assert_eq!(leased.map(Run::id).collect::<Vec<_>>(), [run]);
    // Who holds the permit came with it, and so did the line.
    let holder =
        claimed.iter().find(|run| limited.iter().any(|one| one.job == run.job)).expect("it was ready");
    world.conclude(worker, holder, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    world.store.advance(&Shards::All, world.now, 100).await.expect("advance");
    let mut going_on = Vec::new();
    for run in &limited {
        going_on.push(!world.detail(run.id()).await.run.is_limited());
    }
    assert_eq!(going_on, [false, true], "newest first: one permit, one run");
    // The one ahead of those that wait is too late by now: it ends, and the oldest of them goes on.
    let is_ahead = |run: &&Run| run.job == behind[0].job && !run.is_behind();
    let ahead = before.iter().find(is_ahead).expect("one is ahead").id();
    let lapse = Lapse { run: ahead, successor: None, messages: Vec::new() };
    world.store.lapse(vec![lapse], world.now).await.expect("lapse")[0].clone().expect("late");
    let mut still = Vec::new();
    for run in &behind {
        still.push(world.detail(run.id()).await.run.is_behind());
    }
    assert_eq!(still, [true, false], "newest first");
    let mut fired = 0;
    for entry in world.due_until(world.now).await {
        let job = world.store.jobs(&[entry.key.job]).await.expect("jobs").remove(0);
        let Some(job) = job.map(|stored| stored.job).filter(|job| job.is_active()) else { continue };
        let firing = world.firing(&job, entry.slot);
        match world.try_firing(firing.clone()).await {
            Ok(runs) => {
                assert!(
                    runs.iter().all(|run| run.sequence > newest),
                    "a sequence that may have been given out"
                );
                assert_eq!(world.try_firing(firing).await, Err(Refused::NotDue), "a slot fires once");
                fired += 1;
            }
            Err(refused) => assert_eq!((refused, entry.version < job.version), (Refused::NotDue, true)),
        }
    }
    assert!(fired >= 8, "{fired} slots");
    let tenant = world.store.put_tenant(&"new".parse().expect("a name"), world.now).await.expect("put");
    assert_eq!(tenant.id, TenantId(3), "its number was not given out before");
    let jobs = all_jobs(&*world.store).await;
    let over = jobs.iter().find(|stored| stored.job.spec.name == "over").expect("it is there").job.clone();
    let run = before.iter().find(|run| run.job == over.id).expect("it was triggered");
    let run = world.store.run(run.id()).await.expect("run").expect("it is there").run;
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    world.advance(Duration::from_secs(5 * 86_400));
    while world.store.retain(world.now, 100).await.expect("retain") > 0 {}
    assert!(world.store.jobs(&[over.id]).await.expect("jobs")[0].is_some(), "its run is there");
    assert!(world.store.run(run.id()).await.expect("run").is_some(), "it ended less than a week ago");
    world.advance(Duration::from_secs(9 * 86_400));
    for _ in 0..4 {
        while world.store.retain(world.now, 100).await.expect("retain") > 0 {}
        world.advance(Duration::from_secs(2 * 86_400));
    }
    assert!(world.store.jobs(&[over.id]).await.expect("jobs")[0].is_none(), "it went with its history");
}
