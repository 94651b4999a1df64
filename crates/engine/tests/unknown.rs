//! Attempts of which nobody knows what they did, with a moved clock: lost workers and broken requests under `retry`, `skip` and `ask`.

use std::time::Duration;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::WorkerId;
use punctual_domain::job::Spec;
use punctual_domain::lifecycle;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::unknown::{Answer, OnUnknown};
use punctual_domain::run::{Limit, Run, RunState, WaitingFor};
use punctual_domain::work::Finished;
use punctual_domain::{Labels, Outcome, Report};
use punctual_engine::{Clock as _, Error};
use punctual_store::{Claim, PageRequest, RunFilter, Shards, Store as _};

use crate::support::world::{TENANT, World, at, spec};

const LEASE: Duration = Duration::from_secs(15);
const ASKING: RunState = RunState::Pending(WaitingFor::Answer);

fn under(on_unknown: OnUnknown, schedule: &str) -> Spec {
    let mut spec = spec(schedule);
    spec.policies.on_unknown = on_unknown;
    spec
}

/// The run of a job that a worker holds.
fn held(world: &World, spec: Spec) -> Run {
    world.try_register(spec).unwrap();
    world.fire(None);
    claim(world, 1).remove(0)
}

fn worker(world: &World, n: u64) -> WorkerId {
    WorkerId::new(world.clock.now(), n << 52 | n)
}

fn claim(world: &World, n: u64) -> Vec<Run> {
    let (queues, labels) = (Vec::new(), Labels::NONE);
    let claim = Claim { worker: worker(world, n), queues, labels, shards: Shards::All, limit: 9 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

/// The worker is silent for longer than a lease.
fn lose(world: &World) -> Vec<Run> {
    assert_eq!(block_on(world.engine.reclaim(LEASE)).unwrap(), [], "it has a lease");
    world.clock.advance(SignedDuration::from_secs(31));
    let mut lost = block_on(world.engine.reclaim(LEASE)).unwrap();
    if lost.is_empty() {
        // Workers that were never heard get a lease from the first look on.
        world.clock.advance(SignedDuration::from_secs(31));
        lost = block_on(world.engine.reclaim(LEASE)).unwrap();
    }
    lost
}

fn report(world: &World, run: &Run, report: Report) -> Run {
    let worker = run.lease().unwrap().worker;
    let finished = Finished { worker, run: run.clone(), job: world.job_of(run), report: Some(report) };
    block_on(world.engine.complete(vec![finished])).unwrap().remove(0).unwrap()
}

fn broken(world: &World, code: &str, is_unknown: bool) -> Report {
    let now = world.clock.now();
    let error =
        Failure { code: code.into(), message: "it ended".into(), is_retryable: true, retry_after: None };
    Report { outcome: Outcome::Failed, error: Some(error), is_unknown, ..Report::lost(now, now) }
}

fn now(world: &World, run: &Run) -> Run {
    block_on(world.engine.run(TENANT, run.id())).unwrap().run
}

fn code(world: &World, run: &Run) -> String {
    let attempts = block_on(world.engine.run(TENANT, run.id())).unwrap().attempts;
    attempts.last().unwrap().report.as_ref().unwrap().error.as_ref().unwrap().code.clone()
}

fn dead(world: &World) -> usize {
    let filter = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    block_on(world.store.runs(&filter, PageRequest::first(9))).unwrap().items.len()
}

fn answer(world: &World, run: &Run, answer: Answer) -> Result<Run, Error> {
    block_on(world.engine.answer(TENANT, run.id(), answer))
}

#[test]
fn a_lost_attempt_is_followed_by_what_the_job_wants() {
    for (on_unknown, state, said, letters) in [
        (OnUnknown::Retry, RunState::Pending(WaitingFor::Retry), "lost", 0),
        (OnUnknown::Skip, RunState::Failed, "unknown", 1),
        (OnUnknown::Ask, ASKING, "unknown", 0),
    ] {
        let world = World::new();
        let run = held(&world, under(on_unknown, "@now"));
        assert_eq!(lose(&world).iter().map(|run| run.state).collect::<Vec<_>>(), [state]);
        assert_eq!((code(&world, &run).as_str(), dead(&world)), (said, letters), "{on_unknown:?}");
        world.clock.advance(SignedDuration::from_hours(24));
        assert_eq!(claim(&world, 2).len(), usize::from(on_unknown == OnUnknown::Retry), "{on_unknown:?}");
    }
}

#[test]
fn only_a_request_that_may_have_arrived_is_unknown() {
    for (error, is_unknown, expected) in [
        ("connection_closed", true, RunState::Failed),
        ("connect_failed", false, RunState::Pending(WaitingFor::Retry)),
        ("http_status", false, RunState::Pending(WaitingFor::Retry)),
    ] {
        let world = World::new();
        let run = held(&world, under(OnUnknown::Skip, "@now"));
        assert_eq!(report(&world, &run, broken(&world, error, is_unknown)).state, expected, "{error}");
    }
}

#[test]
fn what_was_given_back_unbegun_is_known() {
    for on_unknown in OnUnknown::ALL {
        let world = World::new();
        let run = held(&world, under(on_unknown, "@now"));
        let worker = run.lease().unwrap().worker;
        let finished = Finished { worker, run: run.clone(), job: world.job_of(&run), report: None };
        let back = block_on(world.engine.complete(vec![finished])).unwrap().remove(0).unwrap();
        assert_eq!((back.state, claim(&world, 2).len()), (RunState::Pending(WaitingFor::Capacity), 1));
    }
}

#[test]
fn the_first_answer_counts() {
    for (said, state, letters) in [
        (Answer::Succeeded, RunState::Succeeded, 0),
        (Answer::Failed, RunState::Failed, 1),
        (Answer::Retry, RunState::Pending(WaitingFor::Capacity), 0),
    ] {
        let world = World::new();
        let run = held(&world, under(OnUnknown::Ask, "@now"));
        let too_early = answer(&world, &run, said);
        assert!(matches!(
            too_early,
            Err(Error::Run(lifecycle::Refused::WrongState { state: "running", .. }))
        ));
        lose(&world);
        assert_eq!(answer(&world, &run, said).unwrap().state, state);
        assert_eq!(dead(&world), letters);
        for again in Answer::ALL {
            assert!(matches!(answer(&world, &run, again), Err(Error::Run(_))), "{said:?}, then {again:?}");
        }
        let elsewhere = punctual_domain::TenantId(99);
        let other = block_on(world.engine.answer(elsewhere, run.id(), said));
        assert!(matches!(other, Err(Error::RunNotFound(_))), "another tenant's");
    }
}

#[test]
fn a_question_outlives_its_node_and_ends_with_the_deadline() {
    let world = World::new();
    let mut spec = under(OnUnknown::Ask, "@now");
    spec.policies.timeouts.deadline = Some(Duration::from_secs(600));
    spec.policies.retry.retry_for = Some(Duration::from_secs(60));
    let run = held(&world, spec);
    lose(&world);
    let world = world.killed_and_started(9);
    assert_eq!(now(&world, &run).state, ASKING);
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap();
    assert_eq!((lapsed.runs, lapsed.next_at), (vec![], Some(at("12:10:00"))), "retry_for asks nobody");
    let left = at("12:10:00").duration_since(world.clock.now());
    world.clock.advance(left + SignedDuration::from_millis(1));
    let lapsed = block_on(world.engine.lapse(&world.epochs)).unwrap().runs;
    assert_eq!((lapsed[0].state, lapsed[0].reason), (RunState::TimedOut, Some(Limit::Deadline)));
    assert!(answer(&world, &run, Answer::Succeeded).is_err());
}

#[test]
fn a_question_is_open_for_overlap_and_completion() {
    let world = World::new();
    let mut spec = under(OnUnknown::Ask, "@every 60s");
    spec.policies.overlap = Overlap::Skip;
    world.try_register(spec).unwrap();
    assert_eq!(world.advance(SignedDuration::from_secs(60)).runs.len(), 1);
    let run = claim(&world, 1).remove(0);
    lose(&world);
    assert_eq!(now(&world, &run).state, ASKING);
    let skipped = world.advance(SignedDuration::from_secs(120));
    assert_eq!(skipped.runs.len(), 0, "it is open");
    answer(&world, &run, Answer::Succeeded).unwrap();
    assert_eq!(world.advance(SignedDuration::from_secs(60)).runs.len(), 1);
}

#[test]
fn a_question_can_be_withdrawn() {
    let world = World::new();
    let run = held(&world, under(OnUnknown::Ask, "@now"));
    lose(&world);
    assert_eq!(block_on(world.engine.cancel(TENANT, run.id())).unwrap().state, RunState::Cancelled);
    assert!(answer(&world, &run, Answer::Retry).is_err());
}

#[test]
fn why_says_that_somebody_is_asked() {
    let world = World::new();
    let run = held(&world, under(OnUnknown::Ask, "@now"));
    lose(&world);
    let why = block_on(world.engine.why(TENANT, run.job, punctual_engine::why::When::Latest)).unwrap();
    let text = format!("{why:?}");
    assert!(text.contains("WaitsForAnswer") && text.contains("punctual run answer"), "{text}");
}
