//! Attempts whose receivers answer first and report later, with a moved clock: reports, silence, cancels, kills and lost answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, engine, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::WorkerId;
use punctual_domain::job::{Http, Method, Spec, Target};
use punctual_domain::policy::completion::Completion;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::unknown::OnUnknown;
use punctual_domain::run::{Limit, Run, RunState, WaitingFor};
use punctual_domain::token::{self, Key, Token};
use punctual_domain::work::{Finished, Held};
use punctual_domain::{Labels, Outcome, Receiver, Report};
use punctual_engine::entrust::{Heard, Saying};
use punctual_engine::pull::End;
use punctual_engine::{Clock as _, Engine, Error};
use punctual_store::{Claim, Refused, Shards, Store as _};

const LEASE: Duration = Duration::from_secs(15);
const RETRYING: RunState = RunState::Pending(WaitingFor::Retry);

fn key() -> Key {
    Key::new([3; 32])
}

fn world() -> World {
    let world = World::new();
    world.engine.set_token_key(key());
    world
}

/// A job whose receiver reports, within ten minutes and so often.
fn by_token(heartbeat: Option<u64>) -> Spec {
    let mut spec = spec("@now");
    let url = "http://hook.example.com/".into();
    spec.target = Target::Http(Http { url, method: Method::Post, headers: Vec::new(), tls: None });
    spec.policies.timeouts.attempt = Duration::from_secs(600);
    spec.policies.completion = Completion::Token { heartbeat: heartbeat.map(Duration::from_secs) };
    spec
}

fn claim(world: &World, n: u64) -> Vec<Run> {
    let (queues, labels) = (Vec::new(), Labels::NONE);
    let worker = WorkerId::new(world.clock.now(), n << 52 | n);
    let claim = Claim { worker, queues, labels, shards: Shards::All, limit: 9 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

fn held(world: &World, spec: Spec) -> Run {
    world.try_register(spec).unwrap();
    world.fire(None);
    claim(world, 1).remove(0)
}

/// The token that the call of an attempt has that begins now.
fn token(world: &World, run: &Run) -> String {
    let terms = Receiver::of(&world.job_of(run).spec.policies, run, world.clock.now()).unwrap();
    key().sign(&Token::new(run.id(), run.attempt, terms.id(Held::from(run))))
}

fn answered(world: &World, run: &Run) -> Finished {
    let now = world.clock.now();
    let report = Report { outcome: Outcome::Succeeded, error: None, ..Report::lost(now, now) };
    let worker = run.lease().unwrap().worker;
    Finished { worker, run: run.clone(), job: world.job_of(run), report: Some(report) }
}

/// The receiver answers 202.
fn answer(world: &World, engine: &Engine, run: &Run) -> Result<Run, Refused> {
    block_on(engine.complete(vec![answered(world, run)])).unwrap().remove(0)
}

/// An attempt that was called, and answered; with its token.
fn entrusted(world: &World, spec: Spec) -> (Run, String) {
    let run = held(world, spec);
    let token = token(world, &run);
    (answer(world, &world.engine, &run).unwrap(), token)
}

fn end(outcome: Outcome, output: Option<&str>) -> End {
    let is_failure = outcome == Outcome::Failed;
    let error = is_failure.then(|| Failure {
        code: "worker_failed".into(),
        message: "disk full".into(),
        is_retryable: true,
        retry_after: None,
    });
    let output = output.map(Into::into);
    End { outcome, error, output, lines: Vec::new(), started_at: None, finished_at: None }
}

fn report(engine: &Engine, run: &Run, token: &str, end: End) -> Result<Run, Error> {
    block_on(engine.report_by_token(run.id(), token, end))
}

fn beat(world: &World, run: &Run, token: &str) -> Result<Heard, Error> {
    block_on(world.engine.hear(run.id(), token, Saying::default()))
}

fn reclaim(world: &World) -> Vec<RunState> {
    block_on(world.engine.reclaim(LEASE)).unwrap().iter().map(|run| run.state).collect()
}

fn now(world: &World, run: &Run) -> Run {
    block_on(world.engine.run(TENANT, run.id())).unwrap().run
}

fn is_over(answer: &Result<impl std::fmt::Debug, Error>) -> bool {
    matches!(answer, Err(Error::AttemptOver { .. }))
}

#[test]
fn an_answer_is_not_the_end_and_a_report_is() {
    let world = world();
    let (run, token) = entrusted(&world, by_token(None));
    assert!(run.receiver().is_some() && run.started_at.is_some(), "{run:?}");
    world.clock.advance(SignedDuration::from_mins(9));
    assert_eq!(reclaim(&world), [], "no worker lists it, and nobody takes it away");
    let ended = report(&world.engine, &run, &token, end(Outcome::Succeeded, Some("42 rows"))).unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    let detail = block_on(world.engine.run(TENANT, run.id())).unwrap();
    assert_eq!(detail.attempts.len(), 1);
    let output = detail.attempts[0].report.as_ref().and_then(|report| report.output.as_ref());
    assert_eq!(output.map(|output| &*output.bytes), Some(&b"42 rows"[..]));
    for outcome in [Outcome::Succeeded, Outcome::Failed] {
        let again = report(&world.engine, &run, &token, end(outcome, None));
        assert!(is_over(&again), "a token is used once: {again:?}");
    }
    assert!(is_over(&beat(&world, &run, &token)));
}

#[test]
fn without_the_policy_an_answer_is_a_success() {
    let world = world();
    let mut spec = by_token(None);
    spec.policies.completion = Completion::Answer;
    let run = held(&world, spec);
    assert_eq!(answer(&world, &world.engine, &run).unwrap().state, RunState::Succeeded);
}

#[test]
fn a_failure_that_is_reported_is_retried_and_the_next_attempt_has_its_own_token() {
    let world = world();
    let (run, first) = entrusted(&world, by_token(None));
    let failed = report(&world.engine, &run, &first, end(Outcome::Failed, None)).unwrap();
    assert_eq!((failed.state, failed.charged), (RETRYING, 1));
    world.clock.advance(SignedDuration::from_mins(1));
    let again = claim(&world, 2).remove(0);
    let second = token(&world, &again);
    let again = answer(&world, &world.engine, &again).unwrap();
    assert!(is_over(&report(&world.engine, &run, &first, end(Outcome::Succeeded, None))));
    assert!(is_over(&beat(&world, &run, &first)));
    assert_eq!(now(&world, &run), again, "an old token does nothing to the attempt that goes on");
    let ended = report(&world.engine, &run, &second, end(Outcome::Succeeded, None)).unwrap();
    assert_eq!((ended.state, ended.attempt), (RunState::Succeeded, 2));
}

#[test]
fn whoever_is_silent_has_timed_out_and_counts_as_an_attempt() {
    let world = world();
    let (run, token) = entrusted(&world, by_token(Some(30)));
    world.clock.advance(SignedDuration::from_secs(25));
    let until = world.clock.now() + SignedDuration::from_secs(30);
    assert_eq!(beat(&world, &run, &token), Ok(Heard::Until(until)));
    world.clock.advance(SignedDuration::from_secs(30));
    assert_eq!(reclaim(&world), []);
    world.clock.advance(SignedDuration::from_secs(1));
    assert_eq!(reclaim(&world), [RETRYING]);
    let detail = block_on(world.engine.run(TENANT, run.id())).unwrap();
    let said = detail.attempts[0].report.as_ref().unwrap();
    assert_eq!((said.outcome, detail.run.charged, detail.run.lost), (Outcome::TimedOut, 1, 0));
    assert!(said.error.as_ref().unwrap().message.contains("not heard of for 30s"), "{said:?}");
    assert!(
        is_over(&report(&world.engine, &run, &token, end(Outcome::Succeeded, None))),
        "it comes too late"
    );
}

#[test]
fn signs_of_life_bring_what_the_attempt_says_and_do_not_outlast_its_timeout() {
    let world = world();
    let (run, token) = entrusted(&world, by_token(Some(60)));
    let saying =
        Saying { progress: None, checkpoint: Some("{\"row\":7}".into()), lines: vec!["half way".into()] };
    block_on(world.engine.hear(run.id(), &token, saying)).unwrap();
    for _ in 0..12 {
        world.clock.advance(SignedDuration::from_secs(50));
        assert_eq!(reclaim(&world), []);
        assert!(beat(&world, &run, &token).is_ok());
    }
    world.clock.advance(SignedDuration::from_secs(1));
    let expired = Err(Error::Token(token::Refused::Expired(run.receiver().unwrap().ends_at)));
    assert_eq!(beat(&world, &run, &token), expired);
    assert_eq!(
        report(&world.engine, &run, &token, end(Outcome::Succeeded, None)).map(drop),
        expired.map(drop)
    );
    assert_eq!(reclaim(&world), [RETRYING]);
    world.clock.advance(SignedDuration::from_mins(1));
    let checkpoints = block_on(world.store.checkpoints(&[run.id()])).unwrap();
    assert_eq!(checkpoints[0].as_deref(), Some("{\"row\":7}"), "the next attempt goes on there");
}

#[test]
fn the_deadline_of_the_run_ends_it_for_good() {
    let world = world();
    let mut spec = by_token(None);
    spec.policies.timeouts.deadline = Some(Duration::from_secs(120));
    let (run, _) = entrusted(&world, spec);
    world.clock.advance(SignedDuration::from_secs(121));
    assert_eq!(reclaim(&world), [RunState::TimedOut]);
    assert_eq!(now(&world, &run).reason, Some(Limit::Deadline));
}

#[test]
fn what_nobody_reports_is_unknown() {
    for (on_unknown, state) in
        [(OnUnknown::Skip, RunState::Failed), (OnUnknown::Ask, RunState::Pending(WaitingFor::Answer))]
    {
        let world = world();
        let mut spec = by_token(Some(30));
        spec.policies.on_unknown = on_unknown;
        entrusted(&world, spec);
        world.clock.advance(SignedDuration::from_secs(31));
        assert_eq!(reclaim(&world), [state], "{on_unknown:?}");
    }
}

#[test]
fn a_report_may_be_faster_than_the_answer() {
    let world = world();
    let run = held(&world, by_token(Some(30)));
    let token = token(&world, &run);
    assert!(beat(&world, &run, &token).is_ok(), "the worker still waits for the answer");
    let ended = report(&world.engine, &run, &token, end(Outcome::Succeeded, None)).unwrap();
    assert_eq!(ended.state, RunState::Succeeded);
    assert!(answer(&world, &world.engine, &run).is_err(), "it is over");
    assert_eq!(now(&world, &run), ended);
}

#[test]
fn cancelling_ends_it_and_its_receiver_hears_of_it() {
    let world = world();
    let mut spec = by_token(Some(30));
    spec.policies.overlap = Overlap::QueueOne;
    let (run, token) = entrusted(&world, spec);
    let cancelled = block_on(world.engine.cancel(TENANT, run.id())).unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    assert_eq!(beat(&world, &run, &token), Ok(Heard::Cancelled));
    assert!(is_over(&report(&world.engine, &run, &token, end(Outcome::Succeeded, None))));
    world.clock.advance(SignedDuration::from_hours(1));
    assert_eq!(reclaim(&world), []);
}

#[test]
fn one_that_was_asked_to_stop_before_its_answer_ends_with_it() {
    let world = world();
    let run = held(&world, by_token(None));
    let token = token(&world, &run);
    assert!(block_on(world.engine.cancel(TENANT, run.id())).unwrap().is_cancel_requested);
    assert_eq!(answer(&world, &world.engine, &run).unwrap().state, RunState::Cancelled);
    assert_eq!(beat(&world, &run, &token), Ok(Heard::Cancelled));
}

#[test]
fn a_kill_after_the_request_to_stop_leaves_it_to_the_next_sign_of_life_or_to_the_end() {
    for is_heard in [true, false] {
        let world = world();
        let (run, token) = entrusted(&world, by_token(Some(30)));
        let cancellation = punctual_store::Cancellation { run: run.id(), successor: None };
        block_on(world.store.cancel(vec![cancellation], world.clock.now())).unwrap();
        assert!(now(&world, &run).is_cancel_requested, "the node was killed here");
        if is_heard {
            assert_eq!(beat(&world, &run, &token), Ok(Heard::Cancelled));
        } else {
            world.clock.advance(SignedDuration::from_secs(31));
            assert_eq!(reclaim(&world), [RunState::Cancelled]);
        }
        assert_eq!(now(&world, &run).state, RunState::Cancelled);
    }
}

#[test]
fn tokens_of_others_are_refused() {
    let world = world();
    let (run, token) = entrusted(&world, by_token(None));
    world.clock.advance(SignedDuration::from_secs(1));
    let (other, _) = entrusted(&world, by_token(None));
    let end = || end(Outcome::Succeeded, None);
    assert_eq!(
        report(&world.engine, &other, &token, end()),
        Err(Error::TokenOfAnotherRun(other.id())),
        "a token is for its run alone"
    );
    let stranger = Key::new([9; 32]).sign(&Token::new(run.id(), 1, run.lease().unwrap().worker));
    for wrong in ["", "nonsense", &stranger] {
        let refused = report(&world.engine, &run, wrong, end());
        assert_eq!(refused, Err(Error::Token(token::Refused::Invalid)), "{wrong}");
    }
    assert_eq!((now(&world, &run), now(&world, &other)), (run, other), "nothing happened to either");
}

#[test]
fn nothing_is_lost_with_the_process_or_with_an_answer() {
    for is_lost in [false, true] {
        let world = world();
        let run = held(&world, by_token(Some(30)));
        let token = token(&world, &run);
        if is_lost {
            let between = Arc::new(Between::new(world.store.clone()));
            let unlucky = engine(between.clone(), world.clock.clone(), 77);
            between.loses_answers.store(true, Ordering::SeqCst);
            assert!(block_on(unlucky.complete(vec![answered(&world, &run)])).is_err());
            assert!(
                answer(&world, &world.engine, &run).is_err(),
                "the worker reports it again, and it is done"
            );
        } else {
            answer(&world, &world.engine, &run).unwrap();
        }
        assert!(now(&world, &run).receiver().is_some());
        let world = world.killed_and_started(8);
        world.engine.set_token_key(key());
        assert!(beat(&world, &run, &token).is_ok());
        let ended = report(&world.engine, &run, &token, end(Outcome::Succeeded, None)).unwrap();
        assert_eq!(ended.state, RunState::Succeeded);
    }
}

#[test]
fn a_report_and_the_end_of_the_lease_at_once_have_one_outcome() {
    for report_is_first in [true, false] {
        let world = world();
        let (run, token) = entrusted(&world, by_token(Some(30)));
        world.clock.advance(SignedDuration::from_secs(31));
        // Both have seen that it goes on; one of them writes first.
        let seen = block_on(world.store.expired(LEASE, world.clock.now(), 9)).unwrap();
        assert_eq!(seen.len(), 1);
        if report_is_first {
            report(&world.engine, &run, &token, end(Outcome::Succeeded, None)).unwrap();
            assert_eq!(reclaim(&world), []);
            assert_eq!(now(&world, &run).state, RunState::Succeeded);
        } else {
            assert_eq!(reclaim(&world), [RETRYING]);
            assert!(is_over(&report(&world.engine, &run, &token, end(Outcome::Succeeded, None))));
            assert_eq!(now(&world, &run).state, RETRYING);
        }
        assert_eq!(block_on(world.engine.run(TENANT, run.id())).unwrap().attempts.len(), 1);
    }
}
