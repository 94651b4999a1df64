//! What a dump is made of: something in every table, told through the verbs of the store; and how all of it is read.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::id::{OperationId, ShardId, TenantId, Version};
use punctual_domain::job::{JobState, Pause};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{Cursor, DeadLetters, Event, Kind, Operation};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits, Rule};
use punctual_domain::policy::retention::Retention;
use punctual_domain::{Node, Outcome, Roles, document};
use punctual_schedule::Progress;
use punctual_store::conformance::World;
use punctual_store::conformance::papers::speak;
use punctual_store::{
    Attendance, Cancellation, DocumentChange, DueQuery, Effect, Expected, Held, JobFilter, OperationFilter,
    PageRequest, RuleChange, RunFilter, Shards, Step, Store, Subject,
};
use punctual_store_postgres::Postgres;

/// When it begins.
pub(crate) const BEGIN: i64 = 1_800_000_000;

/// A name that all nodes share something under.
const SETTING: &str = "signing-key";

fn request(key: &str, world: &World) -> Subject {
    Subject {
        tenant: TenantId::DEFAULT,
        key: key.into(),
        fingerprint: [7; 16],
        expires_at: world.after(86_400),
        result: "an answer".into(),
    }
}

/// Tells the story to an empty store.
pub(crate) async fn tell(store: &Arc<Postgres>) -> World {
    let mut world = World::new_at(store.clone(), BEGIN).await;
    store.setting(SETTING, b"a secret").await.unwrap();
    Store::put_tenant(&**store, &"acme".parse().unwrap(), world.now).await.unwrap();
    let node = Node {
        id: world.node,
        name: "one".into(),
        address: Some("http://one:7070".into()),
        release: "0.1.0".into(),
        roles: Roles::ALL,
        labels: Default::default(),
        started_at: world.now,
        capacity: 100,
        clock_ahead: SignedDuration::from_millis(3),
    };
    let attendance = Attendance { node, densities: vec![(ShardId(3), 60)] };
    let worker = world.worker();
    history(&mut world).await;
    jobs(&mut world).await;
    open_runs(&mut world).await;
    operations(&mut world).await;
    let asked = vec![request("asked", &world)];
    assert_eq!(Store::remember(&**store, asked, world.now).await.unwrap(), [Ok(())]);
    Store::heartbeat(
        &**store,
        worker,
        vec![Held { sequence: sequence(&world).await, attempt: 1 }],
        world.now,
    )
    .await
    .unwrap();
    // The owner of the shard has not said that it writes here: to it this is news.
    world.register("news", world.after(30)).await;
    Store::attend(&**store, attendance, Duration::from_secs(1_000_000), world.now).await.unwrap();
    limited(&mut world).await;
    world
}

/// The newest run.
async fn sequence(world: &World) -> punctual_domain::Sequence {
    let page = world.store.runs(&RunFilter::default(), PageRequest::first(1)).await.unwrap();
    page.items[0].sequence
}

/// Runs that ended in every way, in every class of retention, one of them late.
async fn history(world: &mut World) {
    let worker = world.worker();
    for (n, retention) in Retention::ALL.into_iter().enumerate() {
        let mut job = world.job(&format!("kept {n}"));
        job.spec.policies.retention = retention.into();
        job.spec.key = Some(format!("key-{n}"));
        job.spec.labels.insert("team".into(), "billing".into());
        world.try_put(world.put(job.clone(), Some(world.now))).await.unwrap();
        let mut slot = world.now;
        for (outcome, verdict) in [
            (Outcome::Succeeded, Verdict::Succeed),
            (Outcome::Failed, Verdict::Fail),
            (Outcome::TimedOut, Verdict::TimeOut),
            (Outcome::Cancelled, Verdict::Cancel),
        ] {
            let mut firing = world.firing(&job, slot);
            firing.progress = Some(Progress { fired: 1 + n as u64, last_completion: Some(slot) });
            world.try_firing(firing).await.unwrap();
            let run = world.claim(worker, 1).await.remove(0);
            world.conclude(worker, &run, outcome, verdict).await.unwrap();
            slot += SignedDuration::from_secs(60);
            world.now = slot;
        }
    }
    let mut job = world.job("late");
    job.spec.policies.retention = Retention::Day.into();
    world.try_put(world.put(job.clone(), Some(world.now))).await.unwrap();
    world.try_fire(&job, world.now).await.unwrap();
    let run = world.claim(worker, 1).await.remove(0);
    world.advance(Duration::from_secs(3 * 3_600));
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.unwrap();
}

/// A job in every state, one of them with an older version that a run needs.
async fn jobs(world: &mut World) {
    let mut job = world.register("before", world.now).await;
    world.try_fire(&job, world.now).await.unwrap();
    job.version = Version(2);
    job.spec.name = "after".into();
    world.try_put(world.put(job, Some(world.after(600)))).await.unwrap();

    let mut paused = world.register("paused", world.after(600)).await;
    paused.version = Version(2);
    paused.state = JobState::Paused(Pause {
        reason: Some("holidays".into()),
        by: Some("ada".into()),
        since: world.now,
        until: Some(world.after(3_600)),
    });
    let mut put = world.put(paused.clone(), Some(world.after(3_600)));
    put.ledger = vec![LedgerEntry {
        job: paused.id,
        tenant: paused.tenant,
        from: world.after(600),
        to: world.after(3_540),
        slots: 50,
        fate: Fate::SkippedPause,
        decided_at: world.now,
    }];
    put.request = Some(request("pause", world));
    world.try_put(put).await.unwrap();

    let mut deleted = world.register("deleted", world.after(600)).await;
    (deleted.version, deleted.state) = (Version(2), JobState::Deleted);
    world.try_put(world.put(deleted, None)).await.unwrap();

    let over = world.register("over", world.now).await;
    let mut firing = world.firing(&over, world.now);
    (firing.next, firing.over) = (None, Some(Retention::Week));
    world.try_firing(firing).await.unwrap();
}

/// Runs that wait for their time, for a retry and for a worker, and some that run.
async fn open_runs(world: &mut World) {
    let worker = world.worker();
    for run in world.claim(worker, 100).await {
        let available_at = world.after(300);
        let verdict = Verdict::Retry { available_at, charge: Charge::Attempt, start_by: None };
        world.conclude(worker, &run, Outcome::Failed, verdict).await.unwrap();
    }
    let running = world.running("running", worker).await;
    world.running("asked to stop", worker).await;
    let asked = world.claim(worker, 1).await;
    assert!(asked.is_empty());
    let cancellation = Cancellation { run: running.id(), successor: None };
    world.store.cancel(vec![cancellation], world.now).await.unwrap().remove(0).unwrap();
    let job = world.register("later", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births[0].available_at = world.after(120);
    firing.births[0].correlation_id = Some("ticket-7".into());
    world.try_firing(firing).await.unwrap();
    world.fired("ready").await;
}

/// What the previous version cannot tell: a document, and what an attempt says. When the files are of a version that can, it is a part of the story.
pub(crate) async fn tell_the_rest(world: &mut World) {
    let change = DocumentChange {
        kind: document::Kind::Calendar,
        tenant: TenantId::DEFAULT,
        name: "holidays".into(),
        expect: Expected::Absent,
        body: Some("{}".into()),
        audit: None,
    };
    world.store.put_documents(vec![change], world.now).await.unwrap().remove(0).unwrap();
    let running = RunFilter { state: Some("running"), ..RunFilter::default() };
    let run = world.store.runs(&running, PageRequest::first(1)).await.unwrap().items.remove(0);
    speak(world, run.lease().unwrap().worker, &run).await;
}

/// A limit, a run that has its permit, and one that waits for it.
async fn limited(world: &mut World) {
    let allowance = Allowance { max: NonZeroU32::new(1), rate: None };
    let rule = Rule {
        name: "one".into(),
        tenant: None,
        queue: None,
        kind: None,
        by: Vec::new(),
        allowance,
        holds_retries: false,
        breaker: None,
    };
    let change = RuleChange { name: "one".into(), rule: Some(rule) };
    world.store.put_rules(vec![change], world.now).await.unwrap();
    let limited =
        Limited { key: Key(1), breadth: 10, holds_retries: false, allowed: Allowed::Rule("one".into()) };
    for name in ["first", "second"] {
        let job = world.register(name, world.now).await;
        let mut firing = world.firing(&job, world.now);
        firing.births[0].limits = Limits::new(vec![limited.clone()]);
        world.try_firing(firing).await.unwrap();
    }
}

/// One that goes on, and one that has ended.
async fn operations(world: &mut World) {
    for (number, event) in [
        (1, Event::Stepped { cursor: Cursor::Slot(world.now), resume_at: world.after(5) }),
        (2, Event::Succeeded),
    ] {
        let id = OperationId::new(world.now, ShardId(number), number.into());
        let which = DeadLetters { kind: Some("report".into()), ..DeadLetters::default() };
        let mut operation = Operation::new(id, TenantId::DEFAULT, Kind::Redrive(which), world.now);
        let step = |operation: &Operation| Step {
            operation: operation.clone(),
            epoch: None,
            effect: Effect::Nothing,
            ledger: Vec::new(),
            request: None,
            audit: None,
        };
        world.store.step(vec![step(&operation)], world.now).await.unwrap().remove(0).unwrap();
        operation.apply(event, world.now).unwrap();
        world.store.step(vec![step(&operation)], world.now).await.unwrap().remove(0).unwrap();
    }
}

/// Everything that the store tells, a line for each thing.
pub(crate) async fn read(store: &Postgres, world: &World) -> Vec<String> {
    let mut lines = vec![format!("setting {:?}", store.setting(SETTING, b"none").await.unwrap())];
    let store: &dyn Store = store;
    lines.push(format!("tenants {:?}", store.tenants().await.unwrap()));
    lines.push(format!("placement {:?}", store.placement(world.now).await.unwrap()));
    let mut jobs = Vec::new();
    let mut page = PageRequest::first(7);
    loop {
        let found = store.list_jobs(&JobFilter::default(), page).await.unwrap();
        jobs.extend(found.items);
        let Some(next) = found.next else { break };
        page = PageRequest { after: Some(next), limit: 7 };
    }
    for stored in &jobs {
        let id = stored.job.id;
        lines.push(format!("job {stored:?}"));
        lines.push(format!("has open runs {:?}", store.have_open_runs(&[id]).await.unwrap()));
        if let Some(key) = &stored.job.spec.key {
            assert_eq!(store.job_by_key(stored.job.tenant, key).await.unwrap(), Some(id));
        }
        let ledger = store.ledger(id, PageRequest::first(100)).await.unwrap();
        lines.extend(ledger.items.iter().map(|entry| format!("ledger {entry:?}")));
        let of_job = RunFilter { job: Some(id), ..RunFilter::default() };
        let runs = store.runs(&of_job, PageRequest::first(100)).await.unwrap().items;
        lines.extend(runs.iter().map(|run| format!("run of the job {:?}", run.id())));
    }
    let runs = store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items;
    for run in &runs {
        lines.push(format!("run {:?}", store.run(run.id()).await.unwrap().unwrap()));
        let version = store.job_versions(&[(run.job, run.version)]).await.unwrap();
        lines.push(format!("of {version:?}"));
    }
    let is_dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    let dead = store.runs(&is_dead, PageRequest::first(1_000)).await.unwrap().items;
    lines.extend(dead.iter().map(|run| format!("dead letter {:?}", run.id())));
    let operations = store.operations(&OperationFilter::default(), PageRequest::first(100)).await.unwrap();
    lines.extend(operations.items.iter().map(|operation| format!("operation {operation:?}")));
    for key in ["asked", "pause"] {
        let request = store.request(TenantId::DEFAULT, key, world.now).await.unwrap();
        lines.push(format!("request {:?}", request.expect("it is remembered")));
    }
    let query = DueQuery { shards: Shards::All, after: None, until: world.after(1_000_000), limit: 1_000 };
    let due = store.due(query).await.unwrap().entries;
    lines.extend(due.iter().map(|due| format!("due {due:?}")));
    lines.push(format!("next available at {:?}", store.next_available_at(&Shards::All).await.unwrap()));
    lines.push(format!("waiting {:?}", store.figures().waiting));
    lines
}
