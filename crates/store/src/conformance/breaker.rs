//! Breakers: runs that meet one get in its line, whatever they held, and go on as it lets them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Outcome;
use punctual_domain::id::WorkerId;
use punctual_domain::job::Job;
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::policy::breaker::{Breaker, Of, Stage};
use punctual_domain::policy::limit::Limits;
use punctual_domain::run::{Cause, Run, RunState, WaitingFor};

use super::limit::{READY, WAITING, at_most, end, only, own, state};
use super::world::{World, birth, conclusion};
use crate::store::Store;
use crate::verbs::{Birth, Conclusion, RuleChange, Shards, Trigger};

fn breaker(world: &World, stage: Stage) -> Breaker {
    let of = Of::Destination("http api.example.com".into());
    Breaker { of, since: world.now, changed_at: world.now, stage, cause: Some("connect_failed".into()) }
}

/// One at a time, one in ten seconds.
fn open(world: &World) -> Breaker {
    breaker(world, Stage::Open { interval: Duration::from_secs(10), asking: NonZeroU32::MIN })
}

fn crowded(world: &World, max: u32) -> Breaker {
    breaker(world, Stage::Crowded { max: NonZeroU32::new(max).expect("some"), is_guess: false })
}

async fn set(world: &World, breaker: &Breaker) {
    let change = RuleChange { name: breaker.of.rule_name(), rule: Some(breaker.clone().rule()) };
    world.store.put_rules(vec![change], world.now).await.expect("put_rules");
}

async fn advance(world: &World) -> Option<Timestamp> {
    world.store.advance(&Shards::All, world.now, 1_000).await.expect("advance").next_at
}

async fn registered(world: &mut World, name: &str) -> Job {
    let job = world.job_of("limited", name);
    world.try_put(world.put(job.clone(), None)).await.expect("registered");
    job
}

async fn born(world: &World, job: &Job, part: u32, limits: &Limits) -> Run {
    let slot = world.after(i64::from(part) - 100);
    let birth = Birth { cause: Cause::Trigger, part, limits: limits.clone(), ..birth(job, slot) };
    let trigger =
        Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None };
    world.store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("born")
}

/// A claimed run gets in the line of a breaker that it had not met, as if it had not been taken.
async fn put_back(world: &World, worker: WorkerId, run: &Run, breaker: &Breaker) -> Run {
    let back = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    let limits = Some(run.limits.with_breakers([breaker]));
    let conclusion = Conclusion { limits, ..conclusion(worker, run, None, back) };
    world.try_complete(conclusion).await.expect("recorded")
}

/// Three runs were claimed before the breaker was set. Put back, one goes through to ask; it fails, gets in line again, and the
/// next asks when its time has come.
pub async fn a_claimed_run_is_put_back_into_the_line_of_a_breaker(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "unwell").await;
    for part in 0..3 {
        born(&world, &job, part, &Limits::NONE).await;
    }
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    let breaker = open(&world);
    set(&world, &breaker).await;
    let mut back = Vec::new();
    for run in &claimed {
        back.push(put_back(&world, worker, run, &breaker).await);
    }
    assert_eq!(back.iter().map(|run| run.state).collect::<Vec<_>>(), [READY, WAITING, WAITING]);
    assert_eq!(back[1].waits_for_breaker(), Some("http api.example.com"));
    assert_eq!((back[1].charged, back[1].lost, back[1].attempt), (0, 0, 1));
    let probe = world.claim(worker, 9).await;
    assert_eq!(probe.iter().map(Run::id).collect::<Vec<_>>(), [back[0].id()]);
    let failed = world.report(Outcome::Failed);
    let again = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    let limits = Some(probe[0].limits.clone());
    let conclusion = Conclusion { limits, ..conclusion(worker, &probe[0], Some(failed), again) };
    let waits = world.try_complete(conclusion).await.expect("recorded");
    assert_eq!((waits.state, waits.passed), (WAITING, 0), "it does not keep what it had");
    let next_at = advance(&world).await.expect("a time");
    assert_eq!(next_at, world.after(10));
    assert_eq!(world.claim(worker, 9).await, []);
    world.advance(Duration::from_secs(10));
    advance(&world).await;
    let probe = world.claim(worker, 9).await;
    assert_eq!(probe.iter().map(Run::id).collect::<Vec<_>>(), [back[0].id()], "the oldest asks");
    end(&world, worker, &probe[0], Verdict::Succeed).await;
    // Gone, it lets everybody go on.
    let gone = RuleChange { name: breaker.of.rule_name(), rule: None };
    world.store.put_rules(vec![gone], world.now).await.expect("put_rules");
    advance(&world).await;
    assert_eq!(world.claim(worker, 9).await.len(), 2);
}

/// Who waits for a breaker holds nothing that others wait for.
pub async fn a_run_that_is_put_back_gives_back_what_it_held(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(u64::MAX / 3, at_most(1)));
    let breaker = crowded(&world, 1);
    set(&world, &breaker).await;
    let first = born(&world, &job, 0, &limits).await;
    let second = born(&world, &job, 1, &limits).await;
    let asking = born(&world, &job, 2, &Limits::NONE.with_breakers([&breaker])).await;
    assert_eq!([first.state, second.state, asking.state], [READY, WAITING, READY]);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.len(), 2);
    let (held, probe): (Vec<Run>, Vec<Run>) = claimed.into_iter().partition(|run| run.id() == first.id());
    let back = put_back(&world, worker, &held[0], &breaker).await;
    assert_eq!((back.state, back.passed, back.limits.len()), (WAITING, 0, 2));
    assert!(back.waits_for_breaker().is_some(), "the breaker comes first");
    assert_eq!(state(&world, &second).await, READY);
    let claimed = world.claim(worker, 9).await;
    end(&world, worker, &claimed[0], Verdict::Succeed).await;
    assert_eq!(state(&world, &back).await, WAITING);
    end(&world, worker, &probe[0], Verdict::Succeed).await;
    assert_eq!(state(&world, &back).await, READY);
}

/// A retry meets the breaker when its time comes.
pub async fn a_retry_may_get_other_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "unwell").await;
    let breaker = crowded(&world, 1);
    set(&world, &breaker).await;
    born(&world, &job, 0, &Limits::NONE).await;
    let worker = world.worker();
    let run = world.claim(worker, 9).await.remove(0);
    let at = world.after(30);
    let retry = Verdict::Retry { available_at: at, charge: Charge::Attempt, start_by: None };
    let failed = Some(world.report(Outcome::Failed));
    let limits = Some(Limits::NONE.with_breakers([&breaker]));
    let conclusion = Conclusion { limits, ..conclusion(worker, &run, failed, retry) };
    let waits = world.try_complete(conclusion).await.expect("recorded");
    assert_eq!((waits.state, waits.charged), (RunState::Pending(WaitingFor::Retry), 1));
    let asking = born(&world, &job, 1, &Limits::NONE.with_breakers([&breaker])).await;
    assert_eq!(asking.state, READY);
    let asking = world.claim(worker, 9).await.remove(0);
    world.advance(Duration::from_secs(30));
    advance(&world).await;
    assert_eq!((world.claim(worker, 9).await, state(&world, &waits).await), (Vec::new(), WAITING));
    end(&world, worker, &asking, Verdict::Succeed).await;
    assert_eq!(world.claim(worker, 9).await.remove(0).id(), waits.id());
}

/// A rule that is a breaker is read as it was set, and changes like another.
pub async fn a_breaker_is_a_rule(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let breaker = open(&world);
    set(&world, &breaker).await;
    assert_eq!(world.store.rules().await.expect("rules"), [breaker.clone().rule()]);
    let job = registered(&mut world, "unwell").await;
    let limits = Limits::NONE.with_breakers([&breaker]);
    let mut runs = Vec::new();
    for part in 0..4 {
        runs.push(born(&world, &job, part, &limits).await);
    }
    assert_eq!(runs.iter().map(|run| run.state).collect::<Vec<_>>(), [READY, WAITING, WAITING, WAITING]);
    // It is well: three at once.
    set(&world, &Breaker { stage: crowded(&world, 3).stage, ..breaker }).await;
    advance(&world).await;
    let worker = world.worker();
    assert_eq!(world.claim(worker, 9).await.len(), 3);
    assert_eq!(state(&world, &runs[3]).await, WAITING);
}
