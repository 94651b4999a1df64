//! Limits: runs pass the gates of their keys before they may be claimed, and wait in line where one is closed.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::Outcome;
use punctual_domain::id::{OperationId, RunId, TenantId, Version, WorkerId};
use punctual_domain::job::{Job, JobState, Lane};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{DeadLetters, Kind, Operation};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits, Rate, Rule};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::{Cause, Limit, Run, RunState, StartBy, WaitingFor};

use super::world::{LEASE, World, at_once, at_once_two, birth, conclusion};
use crate::store::Store;
use crate::verbs::{Birth, Cancellation, Effect, Lapse, OpenRuns, Put, RuleChange, Shards, Step, Trigger};

pub(super) const WAITING: RunState = RunState::Pending(WaitingFor::Limit);
pub(super) const READY: RunState = RunState::Pending(WaitingFor::Capacity);

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("positive")
}

pub(super) fn at_most(max: u32) -> Allowance {
    Allowance { max: Some(number(max)), rate: None }
}

fn rate(limit: u32, seconds: u64, burst: u32) -> Allowance {
    let per = Duration::from_secs(seconds);
    Allowance { max: None, rate: Some(Rate { limit: number(limit), per, burst: number(burst) }) }
}

pub(super) fn own(key: u64, allowance: Allowance) -> Limited {
    Limited { key: Key(key), breadth: 0, holds_retries: true, allowed: Allowed::Own(allowance) }
}

pub(super) fn only(limited: Limited) -> Limits {
    Limits::new(vec![limited])
}

/// The key of a rule, the widest of all.
fn of_rule(name: &str) -> Limited {
    Limited { key: Key(9_999), breadth: 10, holds_retries: false, allowed: Allowed::Rule(name.into()) }
}

async fn set_rule(world: &World, name: &str, allowance: Option<Allowance>) {
    let rule = allowance.map(|allowance| Rule {
        name: name.into(),
        tenant: None,
        queue: None,
        kind: None,
        by: Vec::new(),
        allowance,
        holds_retries: false,
        breaker: None,
    });
    let change = RuleChange { name: name.into(), rule };
    world.store.put_rules(vec![change], world.now).await.expect("put_rules");
}

async fn advance(world: &World) -> Option<Timestamp> {
    world.store.advance(&Shards::All, world.now, 1_000).await.expect("advance").next_at
}

/// A job that is registered and due at no time. All of them are in one shard: limits that are wider are counted in each database.
pub(super) async fn registered(world: &mut World, name: &str) -> Job {
    let job = world.job_of("limited", name);
    world.try_put(world.put(job.clone(), None)).await.expect("registered");
    job
}

/// A run for a slot so many seconds from now.
fn slot(world: &World, job: &Job, seconds: i64, limits: &Limits) -> Birth {
    let at = world.after(seconds);
    let part = u32::try_from(seconds.rem_euclid(86_400)).expect("small");
    Birth { cause: Cause::Trigger, part, limits: limits.clone(), ..birth(job, at) }
}

async fn give_birth(world: &World, job: &Job, birth: Birth) -> Run {
    let trigger =
        Trigger { job: job.id, version: job.version, birth, is_over: false, request: None, audit: None };
    world.store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("born")
}

pub(super) async fn born(world: &World, job: &Job, seconds: i64, limits: &Limits) -> Run {
    give_birth(world, job, slot(world, job, seconds, limits)).await
}

pub(super) async fn state(world: &World, run: &Run) -> RunState {
    world.detail(run.id()).await.run.state
}

pub(super) async fn end(world: &World, worker: WorkerId, run: &Run, verdict: Verdict) -> Run {
    let outcome = if verdict == Verdict::Succeed { Outcome::Succeeded } else { Outcome::Failed };
    world.conclude(worker, run, outcome, verdict).await.expect("recorded")
}

fn retry_at(at: Timestamp) -> Verdict {
    Verdict::Retry { available_at: at, charge: Charge::Attempt, start_by: None }
}

async fn cancel(world: &World, run: &Run) -> Run {
    let cancellation = Cancellation { run: run.id(), successor: None };
    world.store.cancel(vec![cancellation], world.now).await.expect("cancel").remove(0).expect("cancelled")
}

fn ids(runs: &[Run]) -> Vec<RunId> {
    runs.iter().map(Run::id).collect()
}

/// Claims and ends what can be, so many at once at most, until nothing is left. Returns what ran, in order.
pub(super) async fn drain(world: &mut World, at_most: usize) -> Vec<RunId> {
    let worker = world.worker();
    let mut ran = Vec::new();
    loop {
        let claimed = world.claim(worker, 100).await;
        if claimed.is_empty() {
            return ran;
        }
        assert!(claimed.len() <= at_most, "{} at once", claimed.len());
        for run in claimed {
            ran.push(run.id());
            end(world, worker, &run, Verdict::Succeed).await;
        }
    }
}

/// Two permits: two runs are claimed, the third waits, and goes on in the commit that ends one of them.
pub async fn no_more_than_are_allowed_go_on_at_once(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(2)));
    let mut runs = Vec::new();
    for n in 0..4 {
        runs.push(born(&world, &job, n - 10, &limits).await);
    }
    assert_eq!(runs.iter().map(|run| run.state).collect::<Vec<_>>(), [READY, READY, WAITING, WAITING]);
    assert_eq!(runs.iter().map(|run| run.passed).collect::<Vec<_>>(), [1, 1, 0, 0]);
    let (worker, free) = (world.worker(), registered(&mut world, "free").await);
    let other = born(&world, &free, -5, &Limits::NONE).await;
    let claimed = world.claim(worker, 9).await;
    assert_eq!(ids(&claimed), [runs[0].id(), runs[1].id(), other.id()], "others do not wait for them");
    end(&world, worker, &claimed[0], Verdict::Succeed).await;
    assert_eq!((state(&world, &runs[2]).await, state(&world, &runs[3]).await), (READY, WAITING));
    let next = world.claim(worker, 9).await;
    assert_eq!(ids(&next), [runs[2].id()]);
    for run in [&claimed[1], &claimed[2], &next[0]] {
        end(&world, worker, run, Verdict::Succeed).await;
    }
    assert_eq!(drain(&mut world, 2).await, [runs[3].id()]);
}

/// One permit for a key that several jobs share: its runs go on one after the other, by slot, whoever was born first.
pub async fn a_limit_of_one_is_strict_order_by_slot(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let limits = only(own(7, at_most(1)));
    let first = registered(&mut world, "first").await;
    let begun = born(&world, &first, -100, &limits).await;
    let mut expected = Vec::new();
    for (n, seconds) in [-5, -50, -20, -40, -30, -10].into_iter().enumerate() {
        let job = registered(&mut world, &format!("job-{n}")).await;
        expected.push((seconds, born(&world, &job, seconds, &limits).await.id()));
    }
    expected.sort_unstable_by_key(|(seconds, _)| *seconds);
    let mut order = vec![begun.id()];
    order.extend(expected.iter().map(|(_, id)| *id));
    assert_eq!(drain(&mut world, 1).await, order);
}

/// A run that waits for its next attempt keeps its place.
pub async fn a_retry_that_holds_lets_nobody_pass(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(1)));
    let (first, second) = (born(&world, &job, -20, &limits).await, born(&world, &job, -10, &limits).await);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    let again = world.after(60);
    let waits = end(&world, worker, &claimed[0], retry_at(again)).await;
    assert_eq!((waits.state, waits.passed), (RunState::Pending(WaitingFor::Retry), 1));
    advance(&world).await;
    assert_eq!((world.claim(worker, 9).await, state(&world, &second).await), (Vec::new(), WAITING));
    world.advance(Duration::from_secs(60));
    assert_eq!(drain(&mut world, 1).await, [first.id(), second.id()]);
}

/// One that gives its permit back lets others pass, and gets in line when its time comes.
pub async fn a_retry_that_does_not_hold_gets_in_line_again(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(Limited { holds_retries: false, ..own(7, at_most(1)) });
    let (first, second) = (born(&world, &job, -20, &limits).await, born(&world, &job, -10, &limits).await);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    let again = world.after(60);
    let waits = end(&world, worker, &claimed[0], retry_at(again)).await;
    assert_eq!((waits.state, waits.passed), (RunState::Pending(WaitingFor::Retry), 0));
    let next = world.claim(worker, 9).await;
    assert_eq!(ids(&next), [second.id()]);
    world.advance(Duration::from_secs(60));
    advance(&world).await;
    assert_eq!(world.claim(worker, 9).await, [], "its time has come, and the permit is another's");
    assert_eq!(state(&world, &first).await, WAITING);
    end(&world, worker, &next[0], Verdict::Succeed).await;
    assert_eq!(drain(&mut world, 1).await, [first.id()]);
    // Given back unfinished, it goes on as if it had not been taken.
    let third = born(&world, &job, -5, &limits).await;
    let fourth = born(&world, &job, -4, &limits).await;
    let claimed = world.claim(worker, 9).await;
    let back = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    let kept = world.try_complete(conclusion(worker, &claimed[0], None, back)).await.expect("recorded");
    assert_eq!((kept.state, kept.passed), (READY, 1));
    assert_eq!(drain(&mut world, 1).await, [third.id(), fourth.id()]);
}

/// One a customer, two in all: who has passed the narrow one waits at the wide one with its permit.
pub async fn a_run_passes_all_its_limits_narrow_ones_first(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    set_rule(&world, "all", Some(at_most(2))).await;
    let job = registered(&mut world, "limited").await;
    let limits = |customer: u64| Limits::new(vec![of_rule("all"), own(customer, at_most(1))]);
    let mut runs = Vec::new();
    for (n, customer) in [1, 1, 2, 2, 3, 3].into_iter().enumerate() {
        runs.push(born(&world, &job, n as i64 - 60, &limits(customer)).await);
    }
    let passed: Vec<u8> = runs.iter().map(|run| run.passed).collect();
    assert_eq!(passed, [2, 0, 2, 0, 1, 0], "the third customer waits for all of them");
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(ids(&claimed), [runs[0].id(), runs[2].id()]);
    end(&world, worker, &claimed[0], Verdict::Succeed).await;
    // The first customer's next comes to the wide line in the same commit, and its slot is the oldest there.
    let states = [state(&world, &runs[1]).await, state(&world, &runs[4]).await];
    assert_eq!(states, [READY, WAITING]);
    assert_eq!(world.detail(runs[4].id()).await.run.passed, 1);
    end(&world, worker, &claimed[1], Verdict::Succeed).await;
    let ran = drain(&mut world, 2).await;
    assert_eq!(ran.len(), 4, "{ran:?}");
}

/// However a run ends, the next goes on.
pub async fn every_end_gives_its_permits_back(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let limits = only(own(7, at_most(1)));
    let worker = world.worker();
    let verdicts = [
        Verdict::Succeed,
        Verdict::Fail,
        Verdict::TimeOut,
        Verdict::Cancel,
        Verdict::GiveUp(Limit::Deadline),
    ];
    let job = registered(&mut world, "limited").await;
    let mut holder = born(&world, &job, -1_000, &limits).await;
    let mut seconds = -999;
    let mut follow = async |world: &World| {
        seconds += 1;
        born(world, &job, seconds, &limits).await
    };
    for verdict in verdicts {
        let next = follow(&world).await;
        assert_eq!(next.state, WAITING);
        let claimed = world.claim(worker, 9).await;
        assert_eq!(ids(&claimed), [holder.id()]);
        end(&world, worker, &claimed[0], verdict).await;
        assert_eq!(state(&world, &next).await, READY, "{verdict:?}");
        holder = next;
    }
    // Cancelled before it was claimed.
    let next = follow(&world).await;
    cancel(&world, &holder).await;
    assert_eq!(state(&world, &next).await, READY);
    cancel(&world, &next).await;
    // Lapsed.
    let start_by = Some(StartBy { at: world.after(5), limit: Limit::StartWindow });
    let birth = Birth { start_by, ..slot(&world, &job, -90, &limits) };
    let holder = give_birth(&world, &job, birth).await;
    assert_eq!(holder.state, READY);
    let next = follow(&world).await;
    world.advance(Duration::from_secs(6));
    let lapse = Lapse { run: holder.id(), successor: None, messages: Vec::new() };
    world.store.lapse(vec![lapse], world.now).await.expect("lapse").remove(0).expect("lapsed");
    assert_eq!(state(&world, &next).await, READY);
    cancel(&world, &next).await;
    // Its job is deleted.
    let mut gone = registered(&mut world, "gone").await;
    let holder = born(&world, &gone, -80, &limits).await;
    assert_eq!(holder.state, READY);
    let next = follow(&world).await;
    gone.version = gone.version.next();
    gone.state = JobState::Deleted;
    let put = Put { open_runs: OpenRuns::CancelPending, ..world.put(gone, None) };
    world.try_put(put).await.expect("deleted");
    assert_eq!(state(&world, &next).await, READY);
    cancel(&world, &next).await;
    // It makes way for a newer run of its job.
    let ruled = registered(&mut world, "ruled").await;
    let replacing = |seconds: i64| {
        let birth = slot(&world, &ruled, seconds, &limits);
        Birth { overlap: Overlap::CancelRunning, ..birth }
    };
    let (old, new) = (replacing(-70), replacing(-60));
    let old = give_birth(&world, &ruled, old).await;
    let next = follow(&world).await;
    let new = give_birth(&world, &ruled, new).await;
    assert_eq!((state(&world, &old).await, state(&world, &next).await), (RunState::Cancelled, READY));
    assert_eq!(state(&world, &new).await, WAITING, "it stands behind who waited");
    assert_eq!(drain(&mut world, 1).await, [next.id(), new.id()]);
}

/// A worker that is gone gives its permits back when its run is reclaimed: to the run itself if it holds them.
pub async fn a_dead_workers_permits_come_back(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(Limited { holds_retries: false, ..own(7, at_most(1)) });
    let (first, second) = (born(&world, &job, -20, &limits).await, born(&world, &job, -10, &limits).await);
    let worker = world.worker();
    world.store.heartbeat(worker, Vec::new(), world.now).await.expect("heartbeat");
    let claimed = world.claim(worker, 9).await;
    assert_eq!(ids(&claimed), [first.id()]);
    world.advance(LEASE + Duration::from_secs(1));
    world.store.expired(LEASE, world.now, 9).await.expect("expired");
    world.advance(LEASE + Duration::from_secs(1));
    let lost = world.store.expired(LEASE, world.now, 9).await.expect("expired");
    assert_eq!(ids(&lost), [first.id()]);
    let again = Verdict::Retry { available_at: world.after(60), charge: Charge::Lost, start_by: None };
    world.try_complete(conclusion(worker, &lost[0], None, again)).await.expect("reclaimed");
    assert_eq!(state(&world, &second).await, READY);
    assert_eq!(drain(&mut world, 1).await, [second.id()]);
}

/// A hundred runs at ten a second take ten seconds.
pub async fn a_rate_is_kept_over_time(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(Limited { holds_retries: false, ..own(7, rate(10, 1, 1)) });
    for n in 0..120 {
        born(&world, &job, n - 500, &limits).await;
    }
    let (worker, start) = (world.worker(), world.now);
    let mut ran = Vec::new();
    let end_at = start + SignedDuration::from_secs(10);
    loop {
        let claimed = world.claim(worker, 100).await;
        assert!(claimed.len() <= 1, "there is no burst");
        for run in claimed {
            ran.push(run.scheduled_for);
            end(&world, worker, &run, Verdict::Succeed).await;
        }
        let next_at = advance(&world).await.expect("there are more");
        if next_at <= world.now {
            continue;
        }
        if next_at >= end_at {
            break;
        }
        world.now = next_at;
        advance(&world).await;
    }
    assert!((96..=101).contains(&ran.len()), "{} in ten seconds", ran.len());
    assert!(ran.is_sorted(), "in the order of their slots");
}

/// After a quiet time a burst goes on together, and no more.
pub async fn a_burst_comes_after_a_quiet_time(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, rate(1, 10, 3)));
    let mut states = Vec::new();
    for n in 0..5 {
        states.push(born(&world, &job, n - 50, &limits).await.state);
    }
    assert_eq!(states, [READY, READY, READY, WAITING, WAITING]);
    // Ends bring nothing back: tokens come with time.
    assert_eq!(drain(&mut world, 3).await.len(), 3);
    assert_eq!(advance(&world).await, Some(world.after(10)));
    world.advance(Duration::from_secs(10));
    assert_eq!(advance(&world).await, Some(world.after(10)));
    assert_eq!(drain(&mut world, 1).await.len(), 1);
    world.advance(Duration::from_secs(10));
    assert_eq!(advance(&world).await, None);
    assert_eq!(drain(&mut world, 1).await.len(), 1);
    world.advance(Duration::from_secs(3_600));
    for n in 0..4 {
        born(&world, &job, n - 40, &limits).await;
    }
    assert_eq!(drain(&mut world, 3).await.len(), 3, "an hour saves up no more than a burst");
    cancel_all(&mut world).await;
}

async fn cancel_all(world: &mut World) {
    world.advance(Duration::from_secs(86_400));
    advance(world).await;
    drain(world, 100).await;
}

/// An administrator's rule: who waits goes on by the rule as it is then.
pub async fn a_rule_counts_as_soon_as_it_is_changed(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    set_rule(&world, "all", Some(at_most(1))).await;
    let named = world.store.rules().await.expect("rules");
    assert_eq!(
        named.iter().map(|rule| (&*rule.name, rule.allowance)).collect::<Vec<_>>(),
        [("all", at_most(1))]
    );
    let job = registered(&mut world, "limited").await;
    let limits = only(of_rule("all"));
    let mut runs = Vec::new();
    for n in 0..6 {
        runs.push(born(&world, &job, n - 50, &limits).await);
    }
    let ready = async |world: &World| {
        let mut ready = 0;
        for run in &runs {
            ready += usize::from(state(world, run).await == READY);
        }
        ready
    };
    assert_eq!(ready(&world).await, 1);
    set_rule(&world, "all", Some(at_most(3))).await;
    advance(&world).await;
    assert_eq!(ready(&world).await, 3);
    set_rule(&world, "all", Some(at_most(1))).await;
    advance(&world).await;
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.len(), 3, "nobody is sent back");
    end(&world, worker, &claimed[0], Verdict::Succeed).await;
    end(&world, worker, &claimed[1], Verdict::Succeed).await;
    assert_eq!(ready(&world).await, 0, "one of them still holds the only permit");
    // A rate instead: one goes on now, the next a minute later.
    set_rule(&world, "all", Some(rate(1, 60, 1))).await;
    assert_eq!(advance(&world).await, Some(world.after(60)));
    assert_eq!(ready(&world).await, 1);
    set_rule(&world, "all", Some(rate(1, 2, 1))).await;
    assert_eq!(advance(&world).await, Some(world.after(2)), "a quicker one counts at once");
    assert_eq!(ready(&world).await, 1);
    set_rule(&world, "all", None).await;
    assert_eq!(advance(&world).await, None);
    assert_eq!(ready(&world).await, 3, "without a rule there is no limit");
    assert_eq!(world.store.rules().await.expect("rules"), []);
    end(&world, worker, &claimed[2], Verdict::Succeed).await;
    assert_eq!(drain(&mut world, 3).await.len(), 3);
}

/// Fire and claim are one write where the gates are open, and only there.
pub async fn a_run_whose_gates_are_open_is_born_running(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = world.register("limited", world.now).await;
    let limits = only(own(7, at_most(1)));
    let worker = world.worker();
    let mut firing = world.firing(&job, world.now);
    firing.births[0] = Birth { claimed_by: Some(worker), limits: limits.clone(), ..firing.births[0].clone() };
    let first = world.try_firing(firing).await.expect("fired").remove(0);
    assert!(first.lease().is_some_and(|lease| lease.worker == worker) && first.passed == 1, "{first:?}");
    world.advance(Duration::from_secs(60));
    let mut firing = world.firing(&job, world.now);
    firing.births[0] = Birth { claimed_by: Some(worker), limits, ..firing.births[0].clone() };
    let second = world.try_firing(firing).await.expect("fired").remove(0);
    assert_eq!(second.state, WAITING);
    end(&world, worker, &first, Verdict::Succeed).await;
    let detail = world.detail(first.id()).await;
    assert_eq!((detail.run.passed, detail.attempts.len()), (0, 1));
    assert_eq!(drain(&mut world, 1).await, [second.id()]);
}

/// A run in line is cancelled like any other; who was behind it is next.
pub async fn a_cancelled_run_leaves_its_line(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    set_rule(&world, "all", Some(at_most(1))).await;
    let job = registered(&mut world, "limited").await;
    let limits = |customer: u64| Limits::new(vec![own(customer, at_most(1)), of_rule("all")]);
    let first = born(&world, &job, -50, &limits(1)).await;
    // The second holds its customer's permit while it waits for the rule's; the third waits for the customer's.
    let (second, third) =
        (born(&world, &job, -40, &limits(2)).await, born(&world, &job, -30, &limits(2)).await);
    let fourth = born(&world, &job, -20, &limits(3)).await;
    assert_eq!((second.passed, third.passed, fourth.passed), (1, 0, 1));
    assert_eq!(cancel(&world, &second).await.state, RunState::Cancelled);
    assert_eq!(world.detail(third.id()).await.run.passed, 1);
    let last = cancel(&world, &fourth).await;
    assert_eq!((last.state, last.passed), (RunState::Cancelled, 0));
    assert_eq!(drain(&mut world, 1).await, [first.id(), third.id()]);
}

/// A dead run that goes on passes its gates anew.
pub async fn a_redriven_run_gets_in_line(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(1)));
    let (dead, next) = (born(&world, &job, -50, &limits).await, born(&world, &job, -40, &limits).await);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    end(&world, worker, &claimed[0], Verdict::Fail).await;
    let redriven = world.store.redrive(&[dead.id()], world.now).await.expect("redrive").remove(0);
    let redriven = redriven.expect("redriven");
    assert_eq!((redriven.id(), redriven.state), (dead.id(), WAITING));
    assert_eq!(drain(&mut world, 1).await, [next.id(), dead.id()]);
    // Where nobody waits it goes on at once.
    let dead = born(&world, &job, -30, &limits).await;
    let claimed = world.claim(worker, 9).await;
    end(&world, worker, &claimed[0], Verdict::Fail).await;
    world.store.redrive(&[dead.id()], world.now).await.expect("redrive").remove(0).expect("redriven");
    assert_eq!((state(&world, &dead).await, drain(&mut world, 1).await), (READY, vec![dead.id()]));
}

/// `pending=update`: waiting runs get the limits of the new version, whatever they held before.
pub async fn an_edit_may_give_waiting_runs_other_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let mut job = registered(&mut world, "limited").await;
    let other = registered(&mut world, "other").await;
    let one = only(own(7, at_most(1)));
    let (first, second) = (born(&world, &job, -50, &one).await, born(&world, &job, -40, &one).await);
    let beside = born(&world, &other, -30, &one).await;
    let later = Birth { available_at: world.after(100), ..slot(&world, &job, 100, &one) };
    let later = give_birth(&world, &job, later).await;
    let change = async |world: &World, job: &mut Job, limits: &Limits, open_runs: OpenRuns| {
        job.version = job.version.next();
        let put = Put { open_runs, limits: limits.clone(), ..world.put(job.clone(), None) };
        world.try_put(put).await.expect("changed");
    };
    let two = only(own(8, at_most(2)));
    change(&world, &mut job, &two, OpenRuns::Keep).await;
    assert_eq!(state(&world, &second).await, WAITING, "it keeps what it was born with");
    change(&world, &mut job, &two, OpenRuns::Update).await;
    assert_eq!((state(&world, &first).await, state(&world, &second).await), (READY, READY));
    assert_eq!(state(&world, &beside).await, READY, "the other job has the permit now");
    assert_eq!(world.detail(later.id()).await.run.limits, two);
    // The same limits again: nobody loses his place.
    change(&world, &mut job, &two, OpenRuns::Update).await;
    assert_eq!((state(&world, &first).await, state(&world, &second).await), (READY, READY));
    change(&world, &mut job, &only(own(9, at_most(1))), OpenRuns::Update).await;
    let states = [state(&world, &first).await, state(&world, &second).await];
    assert!(states == [READY, WAITING] || states == [WAITING, READY], "{states:?}");
    change(&world, &mut job, &Limits::NONE, OpenRuns::Update).await;
    let mut ran = drain(&mut world, 3).await;
    ran.sort_unstable();
    let mut expected = vec![first.id(), second.id(), beside.id()];
    expected.sort_unstable();
    assert_eq!(ran, expected);
    world.advance(Duration::from_secs(100));
    assert_eq!(drain(&mut world, 1).await, [later.id()]);
}

/// A run whose time has not come holds nothing and stands in no line.
pub async fn a_run_comes_to_its_gates_with_its_time(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(1)));
    let early = Birth { available_at: world.after(30), ..slot(&world, &job, 30, &limits) };
    let early = give_birth(&world, &job, early).await;
    assert_eq!((early.state, early.passed), (RunState::Pending(WaitingFor::Time), 0));
    let first = born(&world, &job, -10, &limits).await;
    assert_eq!(first.state, READY, "nobody has the permit yet");
    world.advance(Duration::from_secs(30));
    advance(&world).await;
    assert_eq!((state(&world, &early).await, state(&world, &first).await), (WAITING, READY));
    assert_eq!(drain(&mut world, 1).await, [first.id(), early.id()]);
    let late = Birth { available_at: world.after(30), ..slot(&world, &job, 60, &limits) };
    let late = give_birth(&world, &job, late).await;
    world.advance(Duration::from_secs(30));
    advance(&world).await;
    assert_eq!(drain(&mut world, 1).await, [late.id()]);
}

/// A run behind an earlier one of its job has passed nothing, so that others go on.
pub async fn overlap_comes_before_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (job, other) = (registered(&mut world, "ruled").await, registered(&mut world, "other").await);
    let limits = only(own(7, at_most(1)));
    let queued = |world: &World, seconds: i64| {
        let birth = slot(world, &job, seconds, &limits);
        Birth { overlap: Overlap::QueueAll { max: 9 }, ..birth }
    };
    let first = give_birth(&world, &job, queued(&world, -50)).await;
    let behind = give_birth(&world, &job, queued(&world, -45)).await;
    assert_eq!((behind.state, behind.passed), (RunState::Pending(WaitingFor::EarlierRun), 0));
    let beside = born(&world, &other, -40, &limits).await;
    assert_eq!(beside.state, WAITING);
    let worker = world.worker();
    let claimed = world.claim(worker, 9).await;
    assert_eq!(ids(&claimed), [first.id()]);
    end(&world, worker, &claimed[0], Verdict::Succeed).await;
    // It comes to the line in the commit that lets it go on, and its slot is the older one.
    let ran = drain(&mut world, 1).await;
    assert_eq!(ran, [behind.id(), beside.id()]);
}

/// Runs that an operation makes pass gates like any other.
pub async fn a_step_gives_birth_into_lines(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(2)));
    let births: Vec<Birth> = [-500, -400, -100, -200, -300]
        .map(|at| Birth { cause: Cause::Backfill, ..slot(&world, &job, at, &limits) })
        .into();
    let kind = Kind::Redrive(DeadLetters { job: Some(job.id), ..DeadLetters::default() });
    let id = OperationId::new(world.now, job.id.shard(), 7);
    let operation = Operation::new(id, TenantId::DEFAULT, kind, world.now);
    let step = Step {
        operation,
        epoch: None,
        effect: Effect::Births { job: job.id, version: Version::FIRST, births, is_over: false },
        ledger: Vec::new(),
        request: None,
        audit: None,
    };
    let stepped = world.store.step(vec![step], world.now).await.expect("step").remove(0).expect("stepped");
    let states: Vec<RunState> = stepped.runs.iter().map(|run| run.state).collect();
    assert_eq!(states, [READY, READY, WAITING, WAITING, WAITING]);
    let ran = drain(&mut world, 2).await;
    assert_eq!(ran.len(), 5);
    assert_eq!(
        ran[2..],
        [stepped.runs[4].id(), stepped.runs[3].id(), stepped.runs[2].id()],
        "oldest slot first"
    );
}

/// In a line the lane comes first, then the priority.
pub async fn urgent_runs_stand_before_others(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(7, at_most(1)));
    let first = born(&world, &job, -100, &limits).await;
    let mut expected = Vec::new();
    for (lane, priority, seconds, place) in [
        (Lane::Batch, 9, -50, 4),
        (Lane::Standard, 0, -40, 3),
        (Lane::Standard, 5, -30, 1),
        (Lane::Critical, -5, -20, 0),
        (Lane::Standard, 5, -10, 2),
    ] {
        let birth = Birth { lane, priority, ..slot(&world, &job, seconds, &limits) };
        expected.push((place, give_birth(&world, &job, birth).await.id()));
    }
    expected.sort_unstable_by_key(|(place, _)| *place);
    let order: Vec<RunId> = expected.into_iter().map(|(_, id)| id).collect();
    let ran = drain(&mut world, 1).await;
    assert_eq!((ran[0], &ran[1..]), (first.id(), order.as_slice()));
}

/// Births and ends race; the limit holds and nobody is left in line.
pub async fn births_and_ends_at_once_keep_the_limit(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    set_rule(&world, "all", Some(at_most(5))).await;
    let mut jobs = Vec::new();
    for n in 0..8 {
        jobs.push(registered(&mut world, &format!("job-{n}")).await);
    }
    let limits = |customer: u64| Limits::new(vec![own(customer, at_most(1)), of_rule("all")]);
    let worker = world.worker();
    let (mut born, mut ended) = (0, 0);
    let mut held: Vec<Run> = Vec::new();
    for round in 0..12 {
        let births = jobs.iter().enumerate().map(|(n, job)| {
            let birth = slot(&world, job, round - 500, &limits(n as u64 % 4));
            let trigger = Trigger {
                job: job.id,
                version: job.version,
                birth,
                is_over: false,
                request: None,
                audit: None,
            };
            world.store.trigger(vec![trigger], world.now)
        });
        let ends = held.drain(..).map(|run| {
            let report = Some(world.report(Outcome::Succeeded));
            world.store.complete(vec![conclusion(worker, &run, report, Verdict::Succeed)], world.now)
        });
        let (births, ends): (Vec<_>, Vec<_>) = (births.collect(), ends.collect());
        let (gave, took) = (async { at_once(births).await }, async { at_once(ends).await });
        let both = at_once_two(gave, took).await;
        born += both.0.into_iter().map(|answers| answers.expect("trigger").len()).sum::<usize>();
        for answers in both.1 {
            for answer in answers.expect("complete") {
                answer.expect("recorded");
                ended += 1;
            }
        }
        held = world.claim(worker, 100).await;
        assert!(held.len() <= 4, "a customer has one at once: {}", held.len());
    }
    for run in std::mem::take(&mut held) {
        end(&world, worker, &run, Verdict::Succeed).await;
        ended += 1;
    }
    ended += drain(&mut world, 4).await.len();
    assert_eq!((born, ended), (96, 96), "nobody is left in line");
}
