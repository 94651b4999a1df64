//! Events in every order, against what they must leave.

use super::*;
use crate::id::{JobId, Sequence, ShardId, TenantId, Version};
use crate::invariants;
use crate::job::Lane;
use crate::policy::limit::{Allowance, Allowed, Key, Limited, Limits};
use crate::run::Cause;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("in range")
}

fn worker(n: u64) -> WorkerId {
    WorkerId::new(at(0), n << 52 | n)
}

pub(crate) fn pending() -> Run {
    Run {
        sequence: Sequence::first_at(at(0), 0),
        job: JobId::new(at(0), ShardId(0), 1),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        cause: Cause::Schedule,
        scheduled_for: at(0),
        part: 0,
        state: RunState::Pending(WaitingFor::Capacity),
        available_at: at(0),
        start_by: None,
        attempt: 0,
        charged: 0,
        lost: 0,
        kind: None,
        queue: "default".into(),
        requires: crate::Labels::NONE,
        retention: Default::default(),
        lane: Lane::Standard,
        priority: 0,
        started_at: None,
        finished_at: None,
        reason: None,
        redriven_at: None,
        turn_at: None,
        is_cancel_requested: false,
        limits: Limits::NONE,
        passed: 0,
        parts: None,
        correlation_id: None,
        payload: None,
        caused_by: None,
    }
}

/// With so many limits, of which the first half holds retries.
fn limited(count: u8) -> Run {
    let limited = |n: u8| Limited {
        key: Key(n.into()),
        breadth: n,
        holds_retries: n < count / 2,
        allowed: Allowed::Own(Allowance::default()),
    };
    Run { limits: Limits::new((0..count).map(limited).collect()), ..pending() }
}

pub(crate) fn running() -> Run {
    let mut run = pending();
    apply(&mut run, Event::Claimed { worker: worker(1), at: at(1) }).expect("claimable");
    run
}

fn concluded(worker: WorkerId, attempt: u32, verdict: Verdict) -> Event {
    Event::Concluded { worker, attempt, started_at: Some(at(1)), verdict, at: at(2) }
}

#[test]
fn a_run_that_was_lost_three_times_is_tried_alone_until_somebody_asks_for_it_anew() {
    let mut run = Run { requires: "zone=eu".parse().expect("labels"), ..pending() };
    let retry = |charge| Verdict::Retry { available_at: at(2), charge, start_by: None };
    for (attempt, charge, is_alone) in [
        (1, Charge::Lost, false),
        (2, Charge::Attempt, false),
        (3, Charge::Lost, false),
        (4, Charge::Lost, true),
        (5, Charge::Nothing, true),
        (6, Charge::Attempt, true),
        (7, Charge::Lost, true),
    ] {
        apply(&mut run, Event::Claimed { worker: worker(1), at: at(3) }).expect("claimable");
        apply(&mut run, concluded(worker(1), attempt, retry(charge))).expect("current");
        assert_eq!(run.requires.are_alone(), is_alone, "after attempt {attempt}");
    }
    apply(&mut run, Event::Claimed { worker: worker(1), at: at(3) }).expect("claimable");
    apply(&mut run, concluded(worker(1), 8, Verdict::Fail)).expect("current");
    apply(&mut run, Event::Redriven { at: at(4), is_behind: false }).expect("dead");
    assert_eq!((run.requires.as_str(), run.lost), ("zone=eu", 0));
}

#[test]
fn a_result_counts_only_under_the_current_lease() {
    let mut run = running();
    let retry = Verdict::Retry { available_at: at(2), charge: Charge::Lost, start_by: None };
    apply(&mut run, concluded(worker(1), 1, retry)).expect("current");
    apply(&mut run, Event::Claimed { worker: worker(2), at: at(3) }).expect("claimable");
    let before = run.clone();
    for stale in [
        concluded(worker(1), 1, Verdict::Succeed),
        concluded(worker(1), 2, Verdict::Succeed),
        concluded(worker(2), 1, Verdict::Succeed),
    ] {
        assert!(matches!(apply(&mut run, stale), Err(Refused::StaleLease { .. })));
        assert_eq!(run, before, "a refused event changes nothing");
    }
    apply(&mut run, concluded(worker(2), 2, Verdict::Succeed)).expect("current");
    assert_eq!((run.state, run.attempt, run.lost), (RunState::Succeeded, 2, 1));
    assert!(apply(&mut run, concluded(worker(2), 2, Verdict::Fail)).is_err(), "one outcome is recorded");
}

#[test]
fn a_run_is_not_claimed_before_its_time_nor_twice() {
    let mut early = Run { available_at: at(10), ..pending() };
    assert!(apply(&mut early, Event::Claimed { worker: worker(1), at: at(9) }).is_err());
    let mut run = running();
    assert!(apply(&mut run, Event::Claimed { worker: worker(2), at: at(9) }).is_err());
}

#[test]
fn cancelling_ends_a_waiting_run_and_asks_a_running_one() {
    let mut waiting = pending();
    apply(&mut waiting, Event::Cancelled { at: at(5) }).expect("open");
    assert_eq!((waiting.state, waiting.finished_at), (RunState::Cancelled, Some(at(5))));
    assert!(apply(&mut waiting, Event::Cancelled { at: at(6) }).is_err());
    let mut run = running();
    apply(&mut run, Event::Cancelled { at: at(5) }).expect("open");
    assert!(run.is_cancel_requested && run.lease().is_some());
}

#[test]
fn a_redriven_run_goes_on_with_the_next_attempt() {
    let mut run = running();
    let redriven = Event::Redriven { at: at(5), is_behind: false };
    assert!(apply(&mut run, redriven).is_err());
    apply(&mut run, concluded(worker(1), 1, Verdict::Fail)).expect("current");
    assert!(run.state.is_dead());
    apply(&mut run, redriven).expect("dead");
    apply(&mut run, Event::Claimed { worker: worker(2), at: at(6) }).expect("claimable");
    assert_eq!((run.attempt, run.charged, run.finished_at), (2, 0, None));
    assert_eq!(run.counts_from(), at(5), "its age counts anew");
}

fn by(second: i64, limit: Limit) -> Option<StartBy> {
    Some(StartBy { at: at(second), limit })
}

#[test]
fn a_run_that_waits_too_long_is_missed_and_never_starts() {
    for limit in Limit::ALL {
        let mut run = Run { start_by: by(5, limit), ..pending() };
        let early = apply(&mut run, Event::Lapsed { at: at(5) });
        assert!(early.is_err(), "at the limit it may still start");
        assert!(apply(&mut run.clone(), Event::Claimed { worker: worker(1), at: at(5) }).is_ok());
        assert!(apply(&mut run.clone(), Event::Claimed { worker: worker(1), at: at(6) }).is_err());
        apply(&mut run, Event::Lapsed { at: at(6) }).expect("late");
        assert_eq!((run.state, run.reason), (RunState::Missed, Some(limit)));
        assert_eq!((run.finished_at, run.attempt), (Some(at(6)), 0));
        assert!(apply(&mut run, Event::Lapsed { at: at(7) }).is_err());
        let redriven = Event::Redriven { at: at(7), is_behind: false };
        assert!(apply(&mut run, redriven).is_err(), "it is no dead letter");
    }
    assert!(apply(&mut pending(), Event::Lapsed { at: at(1_000_000) }).is_err(), "there is no limit");
}

#[test]
fn a_run_that_was_given_back_unstarted_is_still_in_its_window() {
    let mut run = Run { start_by: by(5, Limit::StartWindow), ..pending() };
    apply(&mut run, Event::Claimed { worker: worker(1), at: at(1) }).expect("claimable");
    assert!(apply(&mut run, Event::Lapsed { at: at(9) }).is_err(), "it has a lease");
    let start_by = run.start_by;
    let verdict = Verdict::Retry { available_at: at(2), charge: Charge::Nothing, start_by };
    let back = Event::Concluded { worker: worker(1), attempt: 1, started_at: None, verdict, at: at(2) };
    apply(&mut run, back).expect("current");
    apply(&mut run, Event::Lapsed { at: at(6) }).expect("late");
    assert_eq!((run.state, run.attempt), (RunState::Missed, 1));
}

#[test]
fn a_retry_that_cannot_start_in_time_ends_as_its_limit_says() {
    for (limit, state) in [(Limit::RetryFor, RunState::Failed), (Limit::Deadline, RunState::TimedOut)] {
        let mut run = running();
        let start_by = by(5, limit);
        let retry = Verdict::Retry { available_at: at(3), charge: Charge::Attempt, start_by };
        apply(&mut run, concluded(worker(1), 1, retry)).expect("current");
        let mut waiting = run.clone();
        apply(&mut waiting, Event::Lapsed { at: at(6) }).expect("late");
        assert_eq!((waiting.state, waiting.reason, waiting.charged), (state, Some(limit), 1));
        apply(&mut waiting, Event::Redriven { at: at(9), is_behind: false }).expect("dead");
        assert_eq!((waiting.start_by, waiting.reason), (None, None), "more attempts were asked for");
        apply(&mut run, Event::Claimed { worker: worker(2), at: at(5) }).expect("in time");
        apply(&mut run, concluded(worker(2), 2, Verdict::GiveUp(limit))).expect("current");
        assert_eq!((run.state, run.reason), (state, Some(limit)));
    }
}

#[test]
fn a_run_behind_others_is_not_claimed_until_it_is_released() {
    let mut run = Run { state: RunState::Pending(WaitingFor::EarlierRun), ..pending() };
    let claimed = Event::Claimed { worker: worker(1), at: at(9) };
    assert!(apply(&mut run, claimed).is_err());
    let mut early = Run { available_at: at(20), ..run.clone() };
    apply(&mut early, Event::Released { at: at(9) }).expect("behind");
    assert_eq!(early.state, RunState::Pending(WaitingFor::Time));
    apply(&mut run, Event::Released { at: at(9) }).expect("behind");
    assert!(apply(&mut run, Event::Released { at: at(9) }).is_err(), "once");
    apply(&mut run, claimed).expect("claimable");
}

#[test]
fn a_run_that_was_asked_to_stop_is_not_tried_again() {
    let mut run = running();
    apply(&mut run, Event::Cancelled { at: at(2) }).expect("open");
    for charge in [Charge::Attempt, Charge::Lost, Charge::Nothing] {
        let retry = Verdict::Retry { available_at: at(2), charge, start_by: None };
        assert_eq!(apply(&mut run, concluded(worker(1), 1, retry)), Err(Refused::AskedToStop));
    }
    for verdict in [Verdict::Fail, Verdict::TimeOut, Verdict::GiveUp(Limit::Deadline)] {
        assert_eq!(apply(&mut run, concluded(worker(1), 1, verdict)), Err(Refused::AskedToStop));
    }
    apply(&mut run.clone(), concluded(worker(1), 1, Verdict::Succeed)).expect("it was done all the same");
    apply(&mut run, concluded(worker(1), 1, Verdict::Cancel)).expect("current");
    assert_eq!(run.state, RunState::Cancelled);
}

#[test]
fn a_run_that_waits_for_an_answer_goes_on_by_it_alone() {
    let answered = |answer| Event::Answered { answer, at: at(7) };
    let mut run = limited(2);
    assert!(apply(&mut run, answered(Answer::Retry)).is_err(), "nobody asked");
    apply(&mut run, Event::Passed { gates: 2, at: at(0) }).expect("pending");
    apply(&mut run, Event::Claimed { worker: worker(1), at: at(1) }).expect("claimable");
    let ask = Verdict::Ask { start_by: by(9, Limit::Deadline) };
    apply(&mut run, concluded(worker(1), 1, ask)).expect("current");
    assert!(run.is_asking());
    assert_eq!((run.passed, run.charged, run.lost), (1, 0, 0), "it keeps what waits for a retry keep");
    assert!(apply(&mut run, Event::Claimed { worker: worker(2), at: at(8) }).is_err());
    assert!(apply(&mut run, Event::Passed { gates: 2, at: at(8) }).is_err());
    assert!(apply(&mut run, concluded(worker(1), 1, Verdict::Succeed)).is_err(), "its lease is over");
    for (answer, state) in [(Answer::Succeeded, RunState::Succeeded), (Answer::Failed, RunState::Failed)] {
        let mut ended = run.clone();
        apply(&mut ended, answered(answer)).expect("asking");
        assert_eq!((ended.state, ended.finished_at, ended.passed), (state, Some(at(7)), 0));
        assert!(apply(&mut ended, answered(answer)).is_err(), "once");
    }
    let mut cancelled = run.clone();
    apply(&mut cancelled, Event::Cancelled { at: at(7) }).expect("open");
    assert_eq!(cancelled.state, RunState::Cancelled);
    let mut late = run.clone();
    assert!(apply(&mut late, Event::Lapsed { at: at(9) }).is_err(), "it may still be answered");
    apply(&mut late, Event::Lapsed { at: at(10) }).expect("late");
    assert_eq!((late.state, late.reason), (RunState::TimedOut, Some(Limit::Deadline)));
    apply(&mut run, answered(Answer::Retry)).expect("asking");
    apply(&mut run, Event::Passed { gates: 2, at: at(8) }).expect("pending");
    apply(&mut run, Event::Claimed { worker: worker(2), at: at(8) }).expect("claimable");
    assert_eq!((run.attempt, run.charged), (2, 0));
}

#[test]
fn what_was_asked_for_has_its_time_from_its_turn_on() {
    let behind = Run {
        state: RunState::Pending(WaitingFor::EarlierRun),
        start_by: by(5, Limit::StartWindow),
        ..pending()
    };
    assert_eq!(behind.lapses_after(), Some(at(5)), "a slot has its own time, whoever is ahead");
    let mut slot = behind.clone();
    apply(&mut slot, Event::Released { at: at(3) }).expect("behind");
    assert_eq!((slot.start_by, slot.turn_at), (behind.start_by, None));
    let mut old = Run { cause: Cause::Backfill, turn_at: Some(at(0)), ..behind };
    assert_eq!(old.lapses_after(), None);
    assert!(apply(&mut old, Event::Lapsed { at: at(1_000) }).is_err(), "its time has not begun");
    apply(&mut old, Event::Released { at: at(1_000) }).expect("behind");
    assert_eq!((old.lapses_after(), old.counts_from()), (Some(at(1_005)), at(1_000)));
    apply(&mut old, Event::Lapsed { at: at(1_006) }).expect("late");
    let mut dead = running();
    apply(&mut dead, concluded(worker(1), 1, Verdict::Fail)).expect("current");
    apply(&mut dead, Event::Redriven { at: at(50), is_behind: true }).expect("dead");
    assert_eq!(dead.counts_from(), at(50));
    apply(&mut dead, Event::Released { at: at(90) }).expect("behind");
    assert_eq!((dead.counts_from(), dead.redriven_at, dead.start_by), (at(90), Some(at(50)), None));
}

#[test]
fn a_run_is_claimed_when_it_has_passed_all_its_gates() {
    let mut run = limited(2);
    let claimed = Event::Claimed { worker: worker(1), at: at(9) };
    let passed = |gates| Event::Passed { gates, at: at(5) };
    assert!(apply(&mut run, claimed).is_err());
    apply(&mut run, passed(1)).expect("pending");
    assert!(run.is_limited() && apply(&mut run, claimed).is_err());
    assert!(apply(&mut run, passed(0)).is_err() && apply(&mut run, passed(3)).is_err());
    apply(&mut run, passed(2)).expect("pending");
    assert_eq!(run.state, RunState::Pending(WaitingFor::Capacity));
    apply(&mut run, claimed).expect("claimable");
    assert!(apply(&mut run, passed(2)).is_err(), "it is running");
    let retry = Verdict::Retry { available_at: at(9), charge: Charge::Attempt, start_by: None };
    let mut again = run.clone();
    apply(&mut again, concluded(worker(1), 1, retry)).expect("current");
    assert_eq!((again.passed, again.state), (1, RunState::Pending(WaitingFor::Retry)));
    let back = Verdict::Retry { available_at: at(9), charge: Charge::Nothing, start_by: None };
    let mut kept = run.clone();
    apply(&mut kept, concluded(worker(1), 1, back)).expect("current");
    assert_eq!(kept.passed, 2, "it was not begun");
    apply(&mut run, concluded(worker(1), 1, Verdict::Fail)).expect("current");
    assert_eq!(run.passed, 0);
}

#[test]
fn what_was_asked_for_has_its_time_from_the_gate_on() {
    let slot = Run { start_by: by(5, Limit::StartWindow), ..limited(1) };
    let mut old = Run { cause: Cause::Backfill, turn_at: Some(at(0)), ..slot.clone() };
    let mut slot = slot;
    for run in [&mut slot, &mut old] {
        apply(run, Event::Passed { gates: 0, at: at(1) }).expect("pending");
    }
    assert_eq!((slot.lapses_after(), old.lapses_after()), (Some(at(5)), None));
    apply(&mut old, Event::Passed { gates: 1, at: at(100) }).expect("pending");
    assert_eq!(old.lapses_after(), Some(at(105)));
}

#[test]
fn giving_a_run_back_charges_nothing() {
    let mut run = running();
    let back = Verdict::Retry { available_at: at(2), charge: Charge::Nothing, start_by: None };
    apply(&mut run, concluded(worker(1), 1, back)).expect("current");
    assert_eq!((run.charged, run.lost, run.attempt), (0, 0, 1));
}

fn any_limit(rng: &mut fastrand::Rng) -> Option<StartBy> {
    let limit = *rng.choice(&Limit::ALL)?;
    rng.bool().then(|| StartBy { at: at(rng.i64(0..14)), limit })
}

#[test]
fn no_sequence_of_events_breaks_an_invariant() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let mut run = limited(rng.u8(..4));
        run.start_by = any_limit(&mut rng);
        for step in 0..12 {
            let verdict = match rng.u8(..9) {
                0 => Verdict::Succeed,
                1 => Verdict::Fail,
                2 => Verdict::TimeOut,
                3 => Verdict::Cancel,
                4 => Verdict::GiveUp(*rng.choice(&Limit::ALL).expect("some")),
                5 => Verdict::Ask { start_by: any_limit(&mut rng) },
                6 => Verdict::Entrust { receiver: worker(rng.u64(1..3)), started_at: at(step) },
                _ => Verdict::Retry {
                    available_at: at(step),
                    charge: *rng.choice(&[Charge::Attempt, Charge::Lost, Charge::Nothing]).expect("some"),
                    start_by: any_limit(&mut rng),
                },
            };
            let event = match rng.u8(..9) {
                0 => Event::Claimed { worker: worker(rng.u64(1..3)), at: at(step) },
                1 => Event::Cancelled { at: at(step) },
                2 => Event::Redriven { at: at(step), is_behind: rng.bool() },
                3 => Event::Lapsed { at: at(step) },
                4 => Event::Released { at: at(step) },
                7 => Event::Answered { answer: *rng.choice(&Answer::ALL).expect("some"), at: at(step) },
                5 | 6 => Event::Passed { gates: rng.u8(..4), at: at(step) },
                _ => concluded(worker(rng.u64(1..3)), run.attempt, verdict),
            };
            let before = run.clone();
            if apply(&mut run, event).is_err() {
                assert_eq!(run, before);
            }
            assert_eq!(invariants::check(&run), Ok(()), "{before:?} {event:?}");
            assert!(run.attempt >= before.attempt, "attempt numbers never go back");
        }
    }
}
