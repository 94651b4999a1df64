//! Operations: a step is done once, together with its cursor.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::bulk::Left;
use punctual_domain::id::{Epoch, OperationId, ShardId, TenantId, Version};
use punctual_domain::job::{Job, JobState, Pause};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::{self, CatchUp, Cursor, DeadLetters, Event, Kind, Operation};
use punctual_domain::run::{Cause, Run, RunState};
use punctual_domain::{Outcome, RunId, Sequence};

use super::world::{World, birth, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{
    Cancellation, Effect, OperationFilter, Put, RunFilter, Shards, Step, Stepped, Subject, Successor,
};

/// A new operation, its shard chosen by `number`.
fn redrive(world: &World, number: u16) -> Operation {
    let id = OperationId::new(world.now, ShardId(number), number.into());
    Operation::new(id, TenantId::DEFAULT, Kind::Redrive(DeadLetters::default()), world.now)
}

fn step(operation: &Operation, effect: Effect) -> Step {
    Step { operation: operation.clone(), epoch: None, effect, ledger: Vec::new(), request: None, audit: None }
}

/// The operation after an event.
fn after(world: &World, operation: &Operation, event: Event) -> Operation {
    let mut next = operation.clone();
    next.apply(event, world.now).expect("running");
    next
}

fn stepped(cursor: Cursor, resume_at: Timestamp) -> Event {
    Event::Stepped { cursor, resume_at }
}

async fn try_step(world: &World, step: Step) -> Result<Stepped, Refused> {
    let mut answers = world.store.step(vec![step], world.now).await.expect("step");
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

async fn start(world: &World, operation: &Operation) {
    let started = try_step(world, step(operation, Effect::Nothing)).await.expect("started");
    assert_eq!(started, Stepped { operation: operation.clone(), runs: Vec::new() });
}

async fn read(world: &World, operation: &Operation) -> Operation {
    world.store.operation(operation.id).await.expect("operation").expect("it is there")
}

async fn runnable(world: &World) -> Vec<OperationId> {
    let found = world.store.runnable(&Shards::All, world.now, 100).await.expect("runnable");
    found.operations.iter().map(|operation| operation.id).collect()
}

/// Dead runs, oldest first.
async fn dead(world: &mut World, count: usize) -> Vec<RunId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let worker = world.worker();
        let run = world.running(&format!("dead-{n}"), worker).await;
        world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("ended");
        ids.push(run.id());
    }
    ids
}

async fn dead_letters(world: &World) -> Vec<Run> {
    let filter = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    world.store.runs(&filter, PageRequest::first(100)).await.expect("runs").items
}

/// Every field of every kind reads back; an id that was never given out is not there.
pub async fn an_operation_is_there_when_it_is_started(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("caught up with", world.after(60)).await;
    let which = DeadLetters {
        job: Some(job.id),
        kind: Some("report".into()),
        queue: Some("slow".into()),
        born_from: Some(world.after(-60)),
        born_before: Some(world.after(60)),
        error: Some("dns_failed".into()),
        label: Some(("team".into(), "a".into())),
    };
    let schedule = job.spec.schedule.clone();
    let catch_up = Box::new(CatchUp { job: job.id, schedule, to: world.after(-60), rate: 3 });
    let kinds = [Kind::Redrive(which.clone()), Kind::Acknowledge(which), Kind::CatchUp(catch_up)];
    for (number, kind) in kinds.into_iter().enumerate() {
        let mut operation = Operation { kind, ..redrive(&world, number as u16) };
        operation.total = Some(9);
        operation.cursor = Cursor::Slot(world.after(-600));
        start(&world, &operation).await;
        assert_eq!(read(&world, &operation).await, operation);
        let again = try_step(&world, step(&operation, Effect::Nothing)).await;
        assert_eq!(again, Err(Refused::StaleStep), "an id is taken once");
    }
    assert_eq!(store.operation(redrive(&world, 9).id).await.expect("operation"), None);
}

/// The request is remembered in the same commit, and refuses a second operation.
pub async fn an_operation_is_started_once_per_request(store: Arc<dyn Store>) {
    let world = World::new(store.clone()).await;
    let request = Subject {
        tenant: TenantId::DEFAULT,
        key: "asked".into(),
        fingerprint: [7; 16],
        expires_at: world.after(60),
        result: "an answer".into(),
    };
    let asked =
        |operation: &Operation| Step { request: Some(request.clone()), ..step(operation, Effect::Nothing) };
    // The same request goes to the same shard.
    let first = redrive(&world, 1);
    let second = Operation { id: OperationId::new(world.now, first.id.shard(), 2), ..first.clone() };
    try_step(&world, asked(&first)).await.expect("started");
    assert_eq!(try_step(&world, asked(&second)).await, Err(Refused::Repeated));
    assert_eq!(store.operation(second.id).await.expect("operation"), None);
    let known = store.request(TenantId::DEFAULT, "asked", world.now).await.expect("request");
    assert_eq!(known, Some(request));
}

/// Newest first, in pages, of one tenant and in one state.
pub async fn operations_are_listed_newest_first_in_pages(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let other = store.put_tenant(&"other".parse().expect("a name"), world.now).await.expect("tenant").id;
    let mut started = Vec::new();
    for number in 0..9 {
        let tenant = if number % 3 == 0 { other } else { TenantId::DEFAULT };
        let mut operation = Operation { tenant, ..redrive(&world, number) };
        start(&world, &operation).await;
        if number % 2 == 0 {
            operation = after(&world, &operation, Event::Succeeded);
            try_step(&world, step(&operation, Effect::Nothing)).await.expect("ended");
        }
        started.insert(0, operation);
        world.advance(Duration::from_millis(2));
    }
    let filter = |tenant, state| OperationFilter { tenant, state };
    for filter in [
        filter(None, None),
        filter(Some(TenantId::DEFAULT), None),
        filter(Some(other), None),
        filter(None, Some(operation::State::Running)),
        filter(Some(TenantId::DEFAULT), Some(operation::State::Succeeded)),
        filter(Some(other), Some(operation::State::Failed)),
    ] {
        let mut found = Vec::new();
        let mut page = PageRequest::first(2);
        loop {
            let part = store.operations(&filter, page.clone()).await.expect("operations");
            assert!(part.items.len() <= 2);
            found.extend(part.items);
            match part.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        let expected: Vec<Operation> =
            started.iter().filter(|operation| filter.matches(operation)).cloned().collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// Two nodes plan the same step: one does it, and nothing of the other's is done.
pub async fn a_step_is_done_once(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let ids = dead(&mut world, 2).await;
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let next = after(&world, &operation, stepped(Cursor::Run(ids[0].sequence()), world.now));
    let first = step(&next, Effect::Redrive(vec![ids[0]]));
    let second = step(&next, Effect::Redrive(vec![ids[1]]));
    let answers = store.step(vec![first, second], world.now).await.expect("step");
    assert_eq!(answers[0].as_ref().map(|stepped| stepped.operation.done), Ok(1));
    assert_eq!(answers[1], Err(Refused::StaleStep));
    assert_eq!(dead_letters(&world).await.iter().map(Run::id).collect::<Vec<_>>(), [ids[1]]);
    let skipping = Operation { version: Version(9), ..next };
    assert_eq!(try_step(&world, step(&skipping, Effect::Nothing)).await, Err(Refused::StaleStep));
    let unknown = Operation { version: Version(2), ..redrive(&world, 2) };
    assert_eq!(try_step(&world, step(&unknown, Effect::Nothing)).await, Err(Refused::StaleStep));
}

/// A node that lost the shard does no step; whoever asks without an epoch may.
pub async fn a_step_needs_the_current_epoch(store: Arc<dyn Store>) {
    let world = World::new(store.clone()).await;
    let operation = redrive(&world, 3);
    start(&world, &operation).await;
    let next = after(&world, &operation, stepped(Cursor::Start, world.now));
    let under = |epoch| Step { epoch, ..step(&next, Effect::Nothing) };
    let current = world.epochs[3];
    assert_eq!(try_step(&world, under(Some(Epoch(current.0 + 1)))).await, Err(Refused::StaleEpoch));
    assert_eq!(try_step(&world, under(Some(Epoch(0)))).await, Err(Refused::StaleEpoch));
    assert_eq!(read(&world, &operation).await, operation);
    try_step(&world, under(Some(current))).await.expect("owned");
    let last = after(&world, &next, Event::Cancelled { reason: None });
    try_step(&world, step(&last, Effect::Nothing)).await.expect("cancelled by anybody");
}

/// Cancelled between two steps: the next one is refused with all it would do.
pub async fn an_ended_operation_takes_no_step(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let ids = dead(&mut world, 1).await;
    for (number, end) in [Event::Succeeded, Event::Cancelled { reason: None }].into_iter().enumerate() {
        let operation = redrive(&world, number as u16);
        start(&world, &operation).await;
        let ended = after(&world, &operation, end);
        try_step(&world, step(&ended, Effect::Nothing)).await.expect("ended");
        assert!(runnable(&world).await.is_empty());
        let more = Operation { version: ended.version.next(), ..operation };
        let answer = try_step(&world, step(&more, Effect::Redrive(ids.clone()))).await;
        assert_eq!(answer, Err(Refused::StaleStep));
        assert_eq!(read(&world, &ended).await, ended);
    }
    assert_eq!(dead_letters(&world).await.len(), 1);
}

/// By the time from which they may go on, in some shards, at most so many; and when to look again.
pub async fn the_longest_waiting_operation_is_next(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let none = store.runnable(&Shards::All, world.now, 10).await.expect("runnable");
    assert_eq!((none.operations.len(), none.next_at), (0, None));
    let mut ids = Vec::new();
    for number in 0..4 {
        let operation = redrive(&world, number);
        ids.push(operation.id);
        start(&world, &operation).await;
        let resume_at = world.after(10 - i64::from(number));
        let next = after(&world, &operation, stepped(Cursor::Start, resume_at));
        try_step(&world, step(&next, Effect::Nothing)).await.expect("stepped");
    }
    let early = store.runnable(&Shards::All, world.now, 10).await.expect("runnable");
    assert_eq!((early.operations.len(), early.next_at), (0, Some(world.after(7))));
    world.advance(Duration::from_secs(9));
    assert_eq!(runnable(&world).await, [ids[3], ids[2], ids[1]]);
    let page = store.runnable(&Shards::All, world.now, 2).await.expect("runnable");
    assert_eq!((page.operations.len(), page.next_at), (2, Some(world.now)), "cut short by the limit");
    let shards = Shards::Some(vec![ShardId(0), ShardId(2)]);
    let own = store.runnable(&shards, world.now, 10).await.expect("runnable");
    assert_eq!(own.operations.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[2]]);
    assert_eq!(own.next_at, Some(world.after(1)));
}

/// Runs that can go on do, the others are counted, and all of it is saved with the cursor.
pub async fn a_step_redrives_with_its_cursor(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let ids = dead(&mut world, 3).await;
    store.redrive(&ids[..1], world.now).await.expect("redrive").remove(0).expect("dead");
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let cursor = Cursor::Run(ids[0].sequence());
    let next = after(&world, &operation, stepped(cursor, world.after(1)));
    let unknown = RunId::new(Sequence::first_at(world.after(-900), 0), ShardId(0));
    let effect = Effect::Redrive(vec![ids[2], unknown, ids[1], ids[0]]);
    let answer = try_step(&world, step(&next, effect)).await.expect("stepped");
    assert_eq!(answer.operation, Operation { done: 2, failed: 2, ..next });
    assert_eq!(answer.runs.iter().map(Run::id).collect::<Vec<_>>(), [ids[2], ids[1]]);
    assert!(answer.runs.iter().all(|run| matches!(run.state, RunState::Pending(_))));
    assert_eq!(read(&world, &operation).await, answer.operation);
    assert_eq!(dead_letters(&world).await, []);
    let worker = world.worker();
    assert_eq!(world.claim(worker, 10).await.len(), 3);
}

/// The same for taking runs out of the dead letters.
pub async fn a_step_acknowledges_with_its_cursor(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let ids = dead(&mut world, 2).await;
    store.acknowledge(&ids[..1]).await.expect("acknowledge").remove(0).expect("dead");
    let kind = Kind::Acknowledge(DeadLetters::default());
    let operation = Operation { kind, ..redrive(&world, 1) };
    start(&world, &operation).await;
    let next = after(&world, &operation, Event::Succeeded);
    let answer = try_step(&world, step(&next, Effect::Acknowledge(ids.clone()))).await.expect("stepped");
    assert_eq!(answer, Stepped { operation: Operation { done: 1, failed: 1, ..next }, runs: Vec::new() });
    assert_eq!(dead_letters(&world).await, []);
    assert_eq!(world.detail(ids[1]).await.run.state, RunState::Failed);
}

/// Each job for itself, once; those that were changed or fired since are left for the next step.
pub async fn a_step_changes_jobs_with_its_cursor(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let at = world.now;
    let mut jobs = Vec::new();
    for name in ["due", "fired since", "changed since", "also due"] {
        jobs.push(world.register(name, at).await);
    }
    jobs.push(world.job("unknown"));
    let pause = |job: &Job| {
        let mut paused = Job { version: job.version.next(), ..job.clone() };
        paused.state = JobState::Paused(Pause { reason: None, by: None, since: at, until: None });
        Put { unfired: vec![due(job, at)], ..world.put(paused, None) }
    };
    let puts: Vec<Put> = jobs.iter().map(pause).collect();
    world.try_fire(&jobs[1], at).await.expect("fired");
    let changed = Job { version: Version(2), ..jobs[2].clone() };
    world.try_put(world.put(changed, Some(world.after(60)))).await.expect("changed");
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let next = after(&world, &operation, stepped(Cursor::Job(jobs[3].id), world.now));
    let answer = try_step(&world, step(&next, Effect::Change(puts.clone()))).await.expect("stepped");
    let left = vec![Left::Job(jobs[1].id), Left::Job(jobs[2].id)];
    assert_eq!(answer.operation, Operation { done: 2, left, ..next.clone() });
    assert_eq!(read(&world, &operation).await, answer.operation);
    let again = try_step(&world, step(&next, Effect::Change(puts))).await;
    assert_eq!(again, Err(Refused::StaleStep));
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let found = store.jobs(&ids).await.expect("jobs");
    let seen: Vec<_> = found.iter().flatten().map(|one| (one.job.version.0, one.job.is_active())).collect();
    assert_eq!(seen, [(2, false), (1, true), (2, true), (2, false)]);
    let due: Vec<_> = world.due_until(world.after(60)).await.iter().map(|due| due.key.job).collect();
    assert!(!due.contains(&ids[0]) && !due.contains(&ids[3]), "what is paused is not due");
    assert!(due.contains(&ids[1]) && due.contains(&ids[2]));
    let ended = after(&world, &answer.operation, Event::Succeeded);
    try_step(&world, step(&ended, Effect::Change(Vec::new()))).await.expect("stepped");
}

/// Waiting runs end and running ones are asked to stop; those whose job was changed since are left for the next step.
pub async fn a_step_cancels_runs_with_its_cursor(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let ended = dead(&mut world, 1).await[0];
    let worker = world.worker();
    let running = world.running("running", worker).await;
    let waiting = world.fired("waiting").await;
    let of_changed = world.fired("changed since").await;
    let unknown = RunId::new(Sequence::first_at(world.after(-900), 0), ShardId(0));
    let cancel = |run: RunId| Cancellation { run, successor: None };
    let stale = Successor { version: Version(9), due: None, over: None };
    let effect = Effect::Cancel(vec![
        cancel(waiting.id()),
        cancel(ended),
        Cancellation { run: of_changed.id(), successor: Some(stale) },
        cancel(running.id()),
        cancel(unknown),
    ]);
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let next = after(&world, &operation, stepped(Cursor::Run(waiting.sequence), world.now));
    let answer = try_step(&world, step(&next, effect.clone())).await.expect("stepped");
    let left = vec![Left::Run(of_changed.id())];
    assert_eq!(answer.operation, Operation { done: 2, failed: 2, left, ..next.clone() });
    assert_eq!(answer.runs.iter().map(Run::id).collect::<Vec<_>>(), [waiting.id(), running.id()]);
    assert_eq!(read(&world, &operation).await, answer.operation);
    assert_eq!(try_step(&world, step(&next, effect)).await, Err(Refused::StaleStep));
    assert_eq!(world.detail(waiting.id()).await.run.state, RunState::Cancelled);
    assert!(world.detail(running.id()).await.run.is_cancel_requested);
    assert!(matches!(world.detail(of_changed.id()).await.run.state, RunState::Pending(_)));
    let open = RunFilter { is_open: true, ..RunFilter::default() };
    let open = store.runs(&open, PageRequest::first(10)).await.expect("runs").items;
    assert_eq!(open.iter().map(Run::id).collect::<Vec<_>>(), [of_changed.id(), running.id()]);
}

fn births(job: &Job, slots: &[Timestamp]) -> Effect {
    let births = slots.iter().map(|slot| birth(job, *slot)).collect();
    Effect::Births { job: job.id, version: job.version, births, is_over: false }
}

/// Runs of the job's current version, paused or not, or nothing at all.
pub async fn a_step_gives_birth_with_its_cursor(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("caught up with", world.after(600)).await;
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let slots = [world.after(-120), world.after(-60)];
    let next = after(&world, &operation, stepped(Cursor::Slot(world.now), world.now));
    let answer = try_step(&world, step(&next, births(&job, &slots))).await.expect("stepped");
    assert_eq!((answer.operation.done, answer.operation.cursor), (2, Cursor::Slot(world.now)));
    assert_eq!(answer.runs.iter().map(|run| run.scheduled_for).collect::<Vec<_>>(), slots);
    assert!(answer.runs.iter().all(|run| (run.job, run.cause) == (job.id, Cause::Schedule)));
    // The job changes: what was planned for the old version is refused whole.
    let stale = births(&job, &[world.now]);
    job.version = Version(2);
    job.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until: None });
    world.try_put(world.put(job.clone(), None)).await.expect("paused");
    let last = after(&world, &answer.operation, Event::Succeeded);
    let refused = try_step(&world, step(&last, stale)).await;
    assert_eq!(refused, Err(Refused::WrongVersion { current: Version(2) }));
    assert_eq!(read(&world, &operation).await, answer.operation);
    let ended = try_step(&world, step(&last, births(&job, &[world.now]))).await.expect("stepped");
    assert_eq!((ended.operation.done, ended.runs[0].version), (3, Version(2)));
    let unknown = world.job("unknown");
    let other = redrive(&world, 2);
    let refused = try_step(&world, step(&other, births(&unknown, &[world.now]))).await;
    assert_eq!(refused, Err(Refused::NoJob));
    assert_eq!(store.operation(other.id).await.expect("operation"), None);
}

/// What an operation leaves undone is in the ledger with its end.
pub async fn a_step_accounts_for_slots(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("caught up with", world.after(600)).await;
    let operation = redrive(&world, 1);
    start(&world, &operation).await;
    let ended = after(&world, &operation, Event::Cancelled { reason: Some("deleted".into()) });
    let entry = LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from: world.after(-600),
        to: world.after(-60),
        slots: 10,
        fate: Fate::SkippedCancel,
        decided_at: world.now,
    };
    let last = Step { ledger: vec![entry.clone()], ..step(&ended, Effect::Nothing) };
    try_step(&world, last.clone()).await.expect("cancelled");
    let mut again = last;
    again.ledger[0].from = world.after(-700);
    assert_eq!(try_step(&world, again).await, Err(Refused::StaleStep));
    let ledger = store.ledger(job.id, PageRequest::first(10)).await.expect("ledger");
    assert_eq!(ledger.items, [entry]);
}

/// The operation is there if and only if the slot was fired.
pub async fn a_firing_starts_an_operation(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("late", world.now).await;
    let firing = |operation: &Operation| {
        let mut firing = world.firing(&job, world.now);
        firing.births.clear();
        firing.operation = Some(operation.clone());
        firing
    };
    let (first, second) = (redrive(&world, 1), redrive(&world, 2));
    assert_eq!(world.try_firing(firing(&first)).await, Ok(Vec::new()));
    assert_eq!(read(&world, &first).await, first);
    assert_eq!(world.try_firing(firing(&second)).await, Err(Refused::NotDue));
    assert_eq!(store.operation(second.id).await.expect("operation"), None);
    assert_eq!(runnable(&world).await, [first.id]);
}

/// Some days after their end; running ones never.
pub async fn ended_operations_are_forgotten(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (running, ended) = (redrive(&world, 1), redrive(&world, 2));
    start(&world, &running).await;
    start(&world, &ended).await;
    world.advance(Duration::from_secs(3_600));
    let ended = after(&world, &ended, Event::Succeeded);
    try_step(&world, step(&ended, Effect::Nothing)).await.expect("ended");
    world.now += operation::KEPT;
    store.retain(world.now, 10).await.expect("retain");
    assert_eq!(read(&world, &ended).await, ended);
    world.advance(Duration::from_secs(1));
    assert_eq!(store.retain(world.now, 10).await, Ok(1));
    assert_eq!(store.operation(ended.id).await.expect("operation"), None);
    assert_eq!(read(&world, &running).await, running);
}
