//! What runs look like on disk: written, read back, damaged, and passed over by readers that know less.

use punctual_domain::id::ShardId;
use punctual_domain::run::NEVER;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + millis).expect("in range")
}

fn running() -> (Run, Vec<Attempt>) {
    let worker = WorkerId::new(at(0), 9);
    let run = Run {
        sequence: Sequence::first_at(at(0), 0).next(),
        job: JobId::new(at(-5), ShardId(7), 77),
        tenant: TenantId(3),
        version: Version(2),
        cause: Cause::Schedule,
        scheduled_for: at(-1),
        part: 0,
        state: RunState::Running(Lease { worker, attempt: 1, claimed_at: at(2) }),
        available_at: at(-1),
        start_by: None,
        attempt: 1,
        charged: 0,
        lost: 0,
        kind: None,
        queue: "default".into(),
        requires: Labels::NONE,
        retention: Retention::Week.into(),
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
    };
    (run, vec![Attempt { number: 1, worker, claimed_at: at(2), report: None }])
}

fn cases() -> Vec<(Run, Vec<Attempt>)> {
    let (born, attempts) = running();
    let pending = Run { state: RunState::Pending(WaitingFor::Time), attempt: 0, ..born.clone() };
    let mut succeeded = attempts.clone();
    succeeded[0].report = Some(plain(at(3), at(1_000)));
    let ended = Run {
        state: RunState::Succeeded,
        started_at: Some(at(3)),
        finished_at: Some(at(1_001)),
        ..born.clone()
    };
    let mut twice = succeeded.clone();
    twice.push(Attempt { number: 2, worker: WorkerId::new(at(1), 1), claimed_at: at(9), report: None });
    twice[0].report = Some(Report::lost(at(3), at(8)));
    let full = Run {
        cause: Cause::Link,
        part: 70_000,
        state: RunState::TimedOut,
        attempt: 2,
        charged: 3,
        lost: 4,
        kind: Some("report".into()),
        queue: "slow".into(),
        requires: "zone=eu,gpu=true".parse().expect("labels"),
        retention: Keep::Failures(Retention::Year),
        lane: Lane::Batch,
        priority: -700,
        is_cancel_requested: true,
        correlation_id: Some("corr".into()),
        payload: Some(r#"{"n": 1.50}"#.into()),
        caused_by: Some(CausedBy { run: RunId::new(Sequence::first_at(at(3), 9), ShardId(511)), depth: 31 }),
        scheduled_for: at(-86_400_000_000),
        reason: Some(Limit::Deadline),
        redriven_at: Some(at(7)),
        ..ended.clone()
    };
    let limited =
        Run { start_by: Some(StartBy { at: at(60_000), limit: Limit::StartWindow }), ..pending.clone() };
    let missed = Run {
        state: RunState::Missed,
        finished_at: Some(at(60_001)),
        reason: Some(Limit::StartWindow),
        ..limited.clone()
    };
    let behind = Run { state: RunState::Pending(WaitingFor::EarlierRun), ..pending.clone() };
    let limited_behind = Run { start_by: limited.start_by, ..behind.clone() };
    let backfilled = Run { cause: Cause::Backfill, turn_at: Some(at(9)), ..limited_behind.clone() };
    let redriven = Run { attempt: 2, ..behind.clone() };
    let waiting = Run {
        state: RunState::Pending(WaitingFor::Limit),
        limits: super::super::limit::tests::limits(),
        passed: 2,
        requires: full.requires.clone(),
        ..limited.clone()
    };
    let early = Run { state: RunState::Pending(WaitingFor::Time), passed: 0, ..waiting.clone() };
    let through = Run { state: RunState::Pending(WaitingFor::Capacity), passed: 4, ..waiting.clone() };
    let retried = Run { state: RunState::Pending(WaitingFor::Retry), passed: 1, ..waiting.clone() };
    let asking = Run {
        state: RunState::Pending(WaitingFor::Answer),
        available_at: NEVER,
        attempt: 2,
        ..waiting.clone()
    };
    let plainly_asking = Run { limits: Limits::NONE, passed: 0, start_by: None, ..asking.clone() };
    let mut cases = vec![(pending, Vec::new()), (born, attempts), (ended, succeeded)];
    cases.extend([(asking, twice.clone()), (plainly_asking, twice.clone())]);
    cases.extend([(full, twice.clone()), (behind, Vec::new()), (redriven, twice)]);
    cases.extend([limited, missed, limited_behind, backfilled].map(|run| (run, Vec::new())));
    let part = Run { part: 7, parts: Some(9), ..waiting.clone() };
    let plain_part = Run {
        part: 1_000,
        parts: Some(1_000),
        requires: Labels::NONE,
        limits: Limits::NONE,
        passed: 0,
        state: RunState::Pending(WaitingFor::Capacity),
        ..waiting.clone()
    };
    cases.extend([waiting, early, through, retried, part, plain_part].map(|run| (run, Vec::new())));
    cases
}

/// The bytes of a run with limits as a reader takes them that knows nothing of limits.
#[test]
fn what_few_records_have_is_at_the_end_and_can_be_passed_over() {
    for (run, attempts) in cases() {
        let plain = Run {
            start_by: None,
            reason: None,
            redriven_at: None,
            turn_at: None,
            requires: Labels::NONE,
            limits: Limits::NONE,
            passed: 0,
            payload: None,
            caused_by: None,
            parts: None,
            state: match run.is_asking() {
                true => RunState::Pending(WaitingFor::Retry),
                false => run.state,
            },
            ..run.clone()
        };
        let (record, mut without) = (encode_run(&run, &attempts), encode_run(&plain, &attempts));
        without[4] |= record[4] & ((MORE | REQUIRES) >> 8) as u8;
        assert!(record.starts_with(&without));
    }
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    for (run, attempts) in cases() {
        let record = encode_run(&run, &attempts);
        let head = RunHead::of(&record).expect("decodes");
        assert_eq!((head.job, head.tenant, head.retention), (run.job, run.tenant, run.retention));
        assert!(head.is_in(run.state.as_str()));
        assert_eq!(decode_run(run.sequence, &record).expect("decodes"), (run, attempts));
    }
}

#[test]
fn a_plain_run_is_small() {
    let sizes: Vec<usize> = cases().iter().map(|(run, attempts)| encode_run(run, attempts).len()).collect();
    assert_eq!(sizes[..3], [26, 43, 48], "waiting, running, succeeded");
}

#[test]
fn damaged_records_are_refused() {
    for (run, attempts) in cases() {
        let record = encode_run(&run, &attempts);
        for cut in 0..record.len() {
            assert!(decode_run(run.sequence, &record[..cut]).is_err(), "cut at {cut}");
        }
        for (index, byte) in [(0, 9), (1, 99), (2, 0xff)] {
            let mut wrong = record.clone();
            wrong[index] = byte;
            assert!(decode_run(run.sequence, &wrong).is_err(), "byte {index}");
        }
    }
}
