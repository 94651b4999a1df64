//! Every stage of a breaker as a table of events.

use super::*;
use crate::attempt::Failure;
use crate::lifecycle::tests::at;

fn of() -> Of {
    Of::Destination("http api.example.com".into())
}

fn breaker(stage: Stage, changed: i64) -> Breaker {
    Breaker { of: of(), since: at(0), changed_at: at(changed), stage, cause: None }
}

fn host() -> Option<Threshold> {
    NonZeroU32::new(FAILURES).map(|failures| Threshold { failures, span: SPAN })
}

fn open(seconds: u64) -> Stage {
    Stage::Open { interval: Duration::from_secs(seconds), asking: NonZeroU32::MIN }
}

fn crowded(max: u32) -> Stage {
    Stage::Crowded { max: NonZeroU32::new(max).expect("some"), is_guess: false }
}

fn tried(seen: Seen, started: i64, was_let_through: bool) -> Tried {
    Tried { seen, started_at: at(started), was_let_through }
}

/// Attempts that end at these seconds, `-` for a failure and `+` for an answer: when the breaker opens.
fn opens(events: &[(i64, char)]) -> Option<i64> {
    let mut watch = Watch::default();
    events.iter().find_map(|(second, mark)| {
        let seen = if *mark == '-' { Seen::Unwell } else { Seen::Well };
        let change = watch.note(None, tried(seen, *second, false), host(), at(*second));
        change.map(|change| {
            assert_eq!(change, Change::Set(open(5)));
            *second
        })
    })
}

#[test]
fn it_opens_after_ten_failures_one_after_the_other_that_are_not_one_event() {
    let failures = |seconds: &[i64]| -> Vec<(i64, char)> { seconds.iter().map(|at| (*at, '-')).collect() };
    assert_eq!(opens(&failures(&[0, 1, 2, 3, 4, 5, 6, 7, 8])), None, "nine");
    assert_eq!(opens(&failures(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])), Some(9));
    assert_eq!(opens(&failures(&[0; 5_000])), None, "a restart under load is one event");
    let mut later = failures(&[0; 5_000]);
    later.push((1, '-'));
    assert_eq!(opens(&later), None);
    later.push((2, '-'));
    assert_eq!(opens(&later), Some(2), "it is still failing");
    let mut between = failures(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    between.push((9, '+'));
    between.extend(failures(&[10, 11, 12, 13, 14, 15, 16, 17, 18]));
    assert_eq!(opens(&between), None, "an answer begins anew");
}

#[test]
fn a_job_opens_at_its_own_number_and_closes_when_it_has_none_any_more() {
    let threshold = Some(Threshold { failures: NonZeroU32::MIN, span: SignedDuration::ZERO });
    let failed = tried(Seen::Unwell, 0, false);
    let mut watch = Watch::default();
    assert_eq!(watch.note(None, failed, threshold, at(0)), Some(Change::Set(open(5))));
    let known = breaker(open(5), 0);
    assert_eq!(watch.note(Some(&known), failed, None, at(1)), Some(Change::Close));
    assert_eq!(watch.note(None, failed, None, at(1)), None);
}

#[test]
fn probes_become_rarer_and_only_probes_count() {
    let mut interval = 5;
    for _ in 0..10 {
        let known = breaker(open(interval), 100);
        let longer = (interval * 2).min(300);
        for (started, was_let_through, expected) in
            [(100, true, Some(Change::Set(open(longer)))), (99, true, None), (150, false, None)]
        {
            let failed = tried(Seen::Unwell, started, was_let_through);
            assert_eq!(Watch::default().note(Some(&known), failed, host(), at(160)), expected);
        }
        interval = longer;
    }
    assert_eq!(interval, 300);
    let known = breaker(open(300), 100);
    assert_eq!(known.asks_by(), Some(at(400)));
    let answered = tried(Seen::Well, 50, false);
    let widened = Watch::default().note(Some(&known), answered, host(), at(160));
    assert_eq!(widened, Some(Change::Set(widening(16))), "whoever is answered: it is there");
    let nothing = tried(Seen::Nothing, 150, true);
    assert_eq!(Watch::default().note(Some(&known), nothing, host(), at(160)), None);
}

#[test]
fn those_who_may_ask_and_tell_nothing_keep_nobody_else_from_asking() {
    let asking = |interval: u64, asking: u32| Stage::Open {
        interval: Duration::from_secs(interval),
        asking: NonZeroU32::new(asking).expect("some"),
    };
    for (stage, second, expected) in [
        (asking(5, 1), 29, None),
        (asking(5, 1), 30, Some(Change::Set(asking(5, 2)))),
        (asking(5, 2), 59, None),
        (asking(5, 2), 60, Some(Change::Set(asking(5, 4)))),
        (asking(300, 1), 299, None),
        (asking(300, 1), 300, Some(Change::Set(asking(300, 2)))),
        (asking(5, 1_024), 1_000_000, None),
        (widening(16), 29, None),
        (widening(16), 30, Some(Change::Set(widening(64)))),
        (widening(256), 30, Some(Change::Close)),
        (crowded(8), 1_000, None),
    ] {
        assert_eq!(stalled(&breaker(stage, 0), at(second)), expected, "{stage:?} after {second} s");
    }
    let failed = tried(Seen::Unwell, 40, true);
    let known = breaker(asking(5, 4), 0);
    let more = Watch::default().note(Some(&known), failed, host(), at(60));
    assert_eq!(more, Some(Change::Set(asking(10, 4))), "those who tell nothing are still there");
}

#[test]
fn it_closes_in_steps_and_a_failure_in_one_opens_it_again() {
    for (max, next) in
        [(16, Change::Set(widening(64))), (64, Change::Set(widening(256))), (256, Change::Close)]
    {
        let known = breaker(widening(max), 100);
        let answered = tried(Seen::Well, 100, true);
        let mut watch = Watch::default();
        for _ in 1..max / 2 {
            assert_eq!(watch.note(Some(&known), answered, host(), at(101)), None);
        }
        assert_eq!(watch.note(Some(&known), answered, host(), at(101)), Some(next), "half of them");
        assert!(watch.is_quiet());
        assert_eq!(watch.note(Some(&known), answered, host(), at(102)), Some(next), "or two seconds");
        for (started, was_let_through, expected) in
            [(100, true, Some(Change::Set(open(5)))), (99, true, None), (100, false, None)]
        {
            let failed = tried(Seen::Unwell, started, was_let_through);
            assert_eq!(watch.note(Some(&known), failed, host(), at(101)), expected);
        }
    }
}

#[test]
fn what_is_not_the_targets_fault_counts_for_jobs_alone() {
    let report = |outcome: Outcome, code: &str, status: Option<i32>| {
        let failure =
            Failure { code: code.into(), message: "x".into(), is_retryable: true, retry_after: None };
        let error = (outcome != Outcome::Succeeded).then_some(failure);
        Report { outcome, status, error, ..Report::lost(at(0), at(1)) }
    };
    let job = Of::Job(JobId::new(at(0), crate::id::ShardId(1), 1));
    for (outcome, code, status, host, of_job) in [
        (Outcome::Succeeded, "", Some(200), Seen::Well, Seen::Well),
        (Outcome::Failed, "connect_failed", None, Seen::Unwell, Seen::Unwell),
        (Outcome::Failed, "dns_failed", None, Seen::Unwell, Seen::Unwell),
        (Outcome::Failed, "connection_closed", None, Seen::Unwell, Seen::Unwell),
        (Outcome::TimedOut, "timed_out", None, Seen::Unwell, Seen::Unwell),
        (Outcome::Failed, "http_status", Some(429), Seen::Unwell, Seen::Unwell),
        (Outcome::Failed, "http_status", Some(503), Seen::Unwell, Seen::Unwell),
        (Outcome::Failed, "http_status", Some(500), Seen::Well, Seen::Unwell),
        (Outcome::Failed, "http_status", Some(404), Seen::Well, Seen::Unwell),
        (Outcome::Failed, "target_refused", None, Seen::Nothing, Seen::Unwell),
        (Outcome::TimedOut, "deadline", None, Seen::Nothing, Seen::Unwell),
        (Outcome::Lost, "lost", None, Seen::Nothing, Seen::Nothing),
        (Outcome::Cancelled, "cancelled", None, Seen::Nothing, Seen::Nothing),
    ] {
        let report = report(outcome, code, status);
        assert_eq!((of().judge(&report), job.judge(&report)), (host, of_job), "{code} {status:?}");
        let spares = |stage: Stage| breaker(stage, 0).spares(&report);
        let is_spared = host == Seen::Unwell;
        let stands_back = |seconds| is_spared.then(|| Duration::from_secs(seconds));
        assert_eq!(spares(open(5)), stands_back(10), "until after the next probe: {code} {status:?}");
        assert_eq!(spares(open(300)), stands_back(300));
        assert_eq!(spares(widening(16)), stands_back(5), "{code} {status:?}");
        assert_eq!(spares(crowded(8)), None);
    }
    for of in [of(), job] {
        assert_eq!(Of::named(&of.name()), Some(of));
    }
    assert_eq!(Of::named("job x"), None);
}

#[test]
fn a_destination_is_crowded_only_if_it_really_hangs() {
    let load =
        |under_way, hanging, answers| Load { under_way, hanging, answers, is_known: true, room: 4_096 };
    for (load, expected) in [
        (load(4_096, 0, 0), None),
        (load(4_096, 1_024, 0), None),
        (load(4_096, 1_025, 0), Some(8)),
        (load(4_096, 4_096, 10), Some(30)),
        // Busy, or slow, and answering: 4,096 at 137 a second take 30 seconds each.
        (load(4_096, 4_096, 1_364), Some(4_092)),
        (load(4_096, 4_096, 1_366), None),
        (Load { is_known: false, ..load(2_048, 2_048, 0) }, None),
        (Load { is_known: false, ..load(2_049, 2_049, 0) }, Some(8)),
        (Load { room: 63, ..load(60, 60, 0) }, None),
    ] {
        let expected = expected.map(|max| Change::Set(crowded(max)));
        assert_eq!(crowd(None, &load, at(0)), expected, "{load:?}");
    }
    // One that has opened, or is closing, is judged by what it answers.
    assert_eq!(crowd(Some(&breaker(open(5), 0)), &load(4_096, 4_096, 0), at(60)), None);
}

#[test]
fn what_a_crowded_destination_may_take_follows_what_it_answers() {
    let load =
        |under_way, hanging, answers| Load { under_way, hanging, answers, is_known: true, room: 4_096 };
    let known = |max| breaker(crowded(max), 0);
    for (max, load, second, expected) in [
        // It does not get better.
        (100, load(100, 100, 0), 9, None),
        (100, load(100, 100, 0), 10, Some(Change::Set(crowded(8)))),
        // Who sees it hang says so now and then.
        (8, load(8, 8, 0), 29, None),
        (8, load(8, 8, 0), 30, Some(Change::Set(crowded(8)))),
        // It answers again, and is asked more.
        (8, load(8, 0, 100), 1, None),
        (8, load(8, 0, 100), 2, Some(Change::Set(crowded(16)))),
        (1_024, load(1_024, 0, 10_000), 2, Some(Change::Close)),
        (64, load(3, 0, 100), 2, Some(Change::Close)),
        (64, load(64, 1, 21), 2, None),
        (64, load(64, 64, 22), 2, Some(Change::Set(crowded(128)))),
        // Nobody asks.
        (8, load(0, 0, 0), 59, None),
        (8, load(0, 0, 0), 60, Some(Change::Close)),
    ] {
        assert_eq!(crowd(Some(&known(max)), &load, at(second)), expected, "{max} {load:?} {second}");
    }
}

#[test]
fn nobody_gets_more_than_half_of_the_room_before_it_has_answered() {
    let load = |under_way, answers| Load { under_way, answers, room: 4_096, ..Load::default() };
    let max =
        |load: Load, more| guess(&load, more).and_then(|stage| stage.allowance().max).map(NonZeroU32::get);
    assert_eq!(max(load(1_000, 0), 1_000), None);
    assert_eq!(max(load(2_000, 0), 1_000), Some(48));
    assert_eq!(max(load(0, 0), 10_000), Some(2_048));
    assert_eq!(max(load(4_000, 0), 1), Some(8));
    assert_eq!(max(load(4_000, 1), 96), None, "it answers");
    assert_eq!(max(Load { room: 10, ..load(9, 0) }, 1), None);
    let guessed = Breaker { changed_at: at(0), ..breaker(guess(&load(2_000, 0), 1_000).expect("some"), 0) };
    let answering = Load { is_known: true, hanging: 0, ..load(2_048, 9_000) };
    assert_eq!(crowd(Some(&guessed), &answering, at(1)), Some(Change::Close), "at once, it was a guess");
    let answer = tried(Seen::Well, 0, true);
    let host_of = |breaker: &Breaker| Watch::default().note(Some(breaker), answer, host(), at(0));
    assert_eq!(host_of(&guessed), Some(Change::Close), "with the first answer");
    assert_eq!(host_of(&breaker(crowded(8), 0)), None, "one answer is not enough where it was seen to hang");
    let hanging = Load { hanging: 2_000, ..load(2_048, 0) };
    assert_eq!(crowd(Some(&guessed), &hanging, at(6)), Some(Change::Set(crowded(8))));
}
