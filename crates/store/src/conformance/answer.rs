//! Answer: a run of which nobody knows what it did waits until somebody says.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::lifecycle::{self, Verdict};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::unknown::Answer;
use punctual_domain::run::{Limit, NEVER, Run, RunState, StartBy, WaitingFor};
use punctual_domain::{Job, Outcome};

use super::limit::{READY, WAITING, at_most, born, only, own, registered, state};
use super::world::{World, birth, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{
    Answering, Birth, Cancellation, Firing, Lapse, OpenRuns, Put, RunFilter, Shards, Successor, Trigger,
};

const ASKING: RunState = RunState::Pending(WaitingFor::Answer);

/// The attempt is unknown.
async fn ask(world: &World, worker: WorkerId, run: &Run, start_by: Option<StartBy>) -> Run {
    world.conclude(worker, run, Outcome::Lost, Verdict::Ask { start_by }).await.expect("recorded")
}

async fn try_answer(world: &World, run: RunId, answer: Answer) -> Result<Run, Refused> {
    let answering = Answering { run, answer, successor: None, messages: Vec::new() };
    world.store.answer(vec![answering], world.now).await.expect("answer").remove(0)
}

/// The runs that wait for an answer.
async fn asking(world: &World) -> Vec<RunId> {
    let filter = RunFilter { waiting_for: Some(WaitingFor::Answer), ..RunFilter::default() };
    let page = world.store.runs(&filter, PageRequest::first(9)).await.expect("runs");
    page.items.iter().map(Run::id).collect()
}

fn is_wrong_state(answer: &Result<Run, Refused>) -> bool {
    matches!(answer, Err(Refused::Lifecycle(lifecycle::Refused::WrongState { .. })))
}

/// Nobody claims it, however long it waits, and its late worker has no say; after `retry` it has its next attempt.
pub async fn a_run_waits_for_its_answer_and_is_tried_again(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("asks", worker).await;
    assert!(is_wrong_state(&try_answer(&world, run.id(), Answer::Retry).await), "nobody asked");
    let asked = ask(&world, worker, &run, None).await;
    assert_eq!((asked.state, asked.available_at, asked.charged, asked.lost), (ASKING, NEVER, 0, 0));
    assert_eq!(world.detail(run.id()).await.run, asked);
    assert_eq!(asking(&world).await, [run.id()]);
    assert_eq!(store.have_open_runs(&[run.job]).await.expect("open"), [true]);
    assert_eq!(store.pending(run.tenant).tenant, 1);
    world.advance(Duration::from_secs(400 * 86_400));
    assert_eq!(world.claim(worker, 9).await, []);
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").runs, []);
    let late = world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await;
    let stale = lifecycle::Refused::StaleLease { attempt: 1 };
    assert_eq!(late, Err(Refused::Lifecycle(stale)));
    let goes_on = try_answer(&world, run.id(), Answer::Retry).await.expect("asking");
    assert_eq!((goes_on.state, goes_on.available_at), (READY, world.now));
    assert!(is_wrong_state(&try_answer(&world, run.id(), Answer::Failed).await), "the first answer counts");
    assert_eq!(
        (asking(&world).await, store.next_available_at(&Shards::All).await.expect("next")),
        (vec![], Some(world.now))
    );
    let again = world.claim(worker, 9).await;
    assert_eq!((again.len(), again[0].id(), again[0].attempt), (1, run.id(), 2));
    world.conclude(worker, &again[0], Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(world.detail(run.id()).await.attempts.len(), 2);
    assert!(is_wrong_state(&try_answer(&world, run.id(), Answer::Retry).await), "it has ended");
    let unknown = RunId::new(run.sequence.next(), run.job.shard());
    assert_eq!(try_answer(&world, unknown, Answer::Retry).await, Err(Refused::NoRun));
}

/// `succeeded` and `failed` end it, the one in history, the other among the dead letters, from where it may be redriven.
pub async fn an_answer_ends_a_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    for (answer, ended) in [(Answer::Succeeded, RunState::Succeeded), (Answer::Failed, RunState::Failed)] {
        let run = world.running(answer.as_str(), worker).await;
        ask(&world, worker, &run, None).await;
        world.advance(Duration::from_secs(60));
        let answered = try_answer(&world, run.id(), answer).await.expect("asking");
        assert_eq!((answered.state, answered.finished_at), (ended, Some(world.now)));
        let detail = world.detail(run.id()).await;
        assert_eq!((&detail.run, detail.attempts.len()), (&answered, 1));
        let report = detail.attempts[0].report.as_ref().expect("reported");
        assert_eq!(report.outcome, Outcome::Lost, "what the attempt did is as unknown as before");
        assert_eq!((store.pending(run.tenant).tenant, asking(&world).await), (0, vec![]));
        let dead = RunFilter { is_dead: Some(true), job: Some(run.job), ..RunFilter::default() };
        let dead = store.runs(&dead, PageRequest::first(9)).await.expect("runs").items;
        assert_eq!(dead.len(), usize::from(answer == Answer::Failed));
        let redriven = store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0);
        assert_eq!(redriven.is_ok(), answer == Answer::Failed);
        if redriven.is_ok() {
            let again = world.claim(worker, 9).await.remove(0);
            assert_eq!((again.id(), again.attempt), (run.id(), 2));
        }
    }
}

/// It can be cancelled, and lapses at its deadline, with what that brings.
pub async fn a_run_without_an_answer_is_cancelled_or_lapses(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let cancelled = world.running("cancelled", worker).await;
    ask(&world, worker, &cancelled, None).await;
    let cancellation = Cancellation { run: cancelled.id(), successor: None };
    let answer = store.cancel(vec![cancellation], world.now).await.expect("cancel").remove(0).expect("open");
    assert_eq!(answer.state, RunState::Cancelled);
    let late = world.running("late", worker).await;
    let by = StartBy { at: world.after(30), limit: Limit::Deadline };
    ask(&world, worker, &late, Some(by)).await;
    let lapsed = || async { store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed") };
    assert_eq!((lapsed().await.runs.len(), lapsed().await.next_at), (0, Some(by.at)));
    world.advance(Duration::from_millis(30_001));
    let found = store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").runs;
    assert_eq!(found.iter().map(Run::id).collect::<Vec<_>>(), [late.id()]);
    let lapse = Lapse { run: late.id(), successor: None, messages: Vec::new() };
    let ended = store.lapse(vec![lapse], world.now).await.expect("lapse").remove(0).expect("late");
    assert_eq!((ended.state, ended.reason), (RunState::TimedOut, Some(Limit::Deadline)));
    let gone = store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed");
    assert_eq!((gone.runs, gone.next_at), (vec![], None));
    // Answered in time, it may start until then, and not later.
    let by = StartBy { at: world.after(30), limit: Limit::Deadline };
    let other = world.running("in time", worker).await;
    ask(&world, worker, &other, Some(by)).await;
    try_answer(&world, other.id(), Answer::Retry).await.expect("asking");
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").next_at, Some(by.at));
    assert!(world.claim(worker, 9).await[0].lease().is_some());
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").next_at, None);
}

/// It is open: the next of its job waits for it, and goes on in the commit of the answer.
pub async fn a_run_that_asks_lets_nobody_pass(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    for answer in [Answer::Succeeded, Answer::Failed, Answer::Retry] {
        let mut job = world.job(answer.as_str());
        job.spec.policies.overlap = Overlap::QueueOne;
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let worker = world.worker();
        let first = world.try_fire(&job, world.now).await.expect("fired").remove(0);
        let held = world.claim(worker, 9).await.remove(0);
        assert_eq!(held.id(), first.id());
        ask(&world, worker, &held, None).await;
        let second = trigger(&world, &job).await;
        assert!(second.is_behind());
        assert_eq!(world.claim(worker, 9).await, []);
        try_answer(&world, first.id(), answer).await.expect("asking");
        let next = world.claim(worker, 9).await;
        let expected = if answer == Answer::Retry { first.id() } else { second.id() };
        assert_eq!(next.iter().map(Run::id).collect::<Vec<_>>(), [expected], "{answer:?}");
        world.conclude(worker, &next[0], Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        for run in world.claim(worker, 9).await {
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        }
    }
}

async fn trigger(world: &World, job: &Job) -> Run {
    let birth = Birth { cause: punctual_domain::Cause::Trigger, ..birth(job, world.now) };
    let trigger =
        Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None };
    world.store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("born")
}

/// It keeps the permits that a retry keeps and gives the others back; after `retry` it comes to its gates anew.
pub async fn a_run_that_asks_keeps_what_a_retry_keeps(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    for holds in [true, false] {
        let job = registered(&mut world, "limited").await;
        let mut limited = own(7 + u64::from(holds), at_most(1));
        limited.holds_retries = holds;
        let limits = only(limited);
        let (first, second) =
            (born(&world, &job, -20, &limits).await, born(&world, &job, -10, &limits).await);
        let worker = world.worker();
        let held = world.claim(worker, 9).await.remove(0);
        assert_eq!((held.id(), state(&world, &second).await), (first.id(), WAITING));
        let asked = ask(&world, worker, &held, None).await;
        assert_eq!(asked.passed, u8::from(holds));
        let claimed = world.claim(worker, 9).await;
        assert_eq!(
            claimed.iter().map(Run::id).collect::<Vec<_>>(),
            if holds { vec![] } else { vec![second.id()] }
        );
        let goes_on = try_answer(&world, first.id(), Answer::Retry).await.expect("asking");
        assert_eq!(goes_on.state, if holds { READY } else { WAITING });
        for run in claimed {
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        }
        while let Some(run) = world.claim(worker, 1).await.pop() {
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
        }
        for run in [&first, &second] {
            assert_eq!(state(&world, run).await, RunState::Succeeded);
        }
    }
}

/// A job that counts from completion goes on with the answer; one that was changed since is computed anew.
pub async fn an_answer_is_a_completion(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let job = world.register("from completion", world.now).await;
    let firing = Firing { next: None, ..world.firing(&job, world.now) };
    world.try_firing(firing).await.expect("fired");
    let run = world.claim(worker, 1).await.remove(0);
    ask(&world, worker, &run, None).await;
    let next = due(&job, world.after(500));
    let answering = |version| Answering {
        run: run.id(),
        answer: Answer::Succeeded,
        successor: Some(Successor { version, due: Some(next), over: None }),
        messages: Vec::new(),
    };
    let stale = store.answer(vec![answering(job.version.next())], world.now).await.expect("answer").remove(0);
    assert_eq!(stale, Err(Refused::WrongVersion { current: job.version }));
    assert_eq!(asking(&world).await, [run.id()], "nothing was done");
    let ended = store.answer(vec![answering(job.version)], world.now).await.expect("answer").remove(0);
    assert_eq!(ended.expect("asking").state, RunState::Succeeded);
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.progress.last_completion, Some(world.now));
    assert!(world.due_until(world.after(600)).await.contains(&next));
}

/// An edit that waiting runs follow leaves it waiting, and deleting its job cancels it.
pub async fn a_run_that_asks_follows_its_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let run = world.running("edited", worker).await;
    ask(&world, worker, &run, None).await;
    let mut job = Job::clone(&world.jobs_of(std::slice::from_ref(&run)).await.remove(0));
    job.version = job.version.next();
    job.spec.policies.timeouts.deadline = Some(Duration::from_secs(90));
    let edit = Put { open_runs: OpenRuns::Update, ..world.put(job.clone(), None) };
    world.try_put(edit).await.expect("edited");
    let edited = world.detail(run.id()).await.run;
    let by = StartBy { at: run.scheduled_for + Duration::from_secs(90), limit: Limit::Deadline };
    assert_eq!((edited.state, edited.version, edited.start_by), (ASKING, job.version, Some(by)));
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").next_at, Some(by.at));
    job.version = job.version.next();
    let delete = Put { open_runs: OpenRuns::CancelPending, ..world.put(job, None) };
    world.try_put(delete).await.expect("deleted");
    assert_eq!(state(&world, &run).await, RunState::Cancelled);
    assert_eq!(store.lapsed(&Shards::All, world.now, 9).await.expect("lapsed").next_at, None);
}
