//! Start, end, completion and spread: the edges of a schedule, to the millisecond.

use std::time::Duration;

use crate::support::plan::{Plan, at};
use jiff::Timestamp;
use punctual_schedule::calendar::OnExcluded;
use punctual_schedule::{Progress, Seed};

/// Three ways to say "every day at nine".
const DAILY: [&str; 3] = ["0 9 * * *", "@every 24h anchor 2026-01-01T09:00Z", "R/2026-01-01T09:00/P1D"];

#[test]
fn a_slot_at_the_end_counts_and_one_after_it_does_not() {
    for text in DAILY {
        let mut daily = Plan::new(text, "UTC");
        daily.schedule.bounds.end = Some(at("2026-01-03T09:00Z"));
        daily.expect("2026-01-01T12:00Z", "2026-01-02T09:00Z 2026-01-03T09:00Z end");
        daily.schedule.bounds.end = Some("2026-01-03T08:59:59.999999999Z".parse().unwrap());
        daily.expect("2026-01-01T12:00Z", "2026-01-02T09:00Z end");
        daily.schedule.bounds.end = Some("2026-01-03T09:00:00.000000001Z".parse().unwrap());
        daily.expect("2026-01-01T12:00Z", "2026-01-02T09:00Z 2026-01-03T09:00Z end");
    }
}

#[test]
fn a_slot_at_the_start_counts_and_one_before_it_does_not() {
    for text in DAILY {
        let mut daily = Plan::new(text, "UTC");
        daily.schedule.bounds.start = Some(at("2026-01-03T09:00Z"));
        daily.expect("2026-01-01T12:00Z", "2026-01-03T09:00Z 2026-01-04T09:00Z");
        daily.schedule.bounds.start = Some("2026-01-03T09:00:00.000000001Z".parse().unwrap());
        daily.expect("2026-01-01T12:00Z", "2026-01-04T09:00Z 2026-01-05T09:00Z");
        assert_eq!(daily.bind().unwrap().previous_before(at("2026-01-04T09:00Z")), None, "{text}");
    }
}

/// The slot of `@every 5m from completion` after a run that ended at `completed`.
fn after_completion(plan: &Plan, completed: &str) -> Option<Timestamp> {
    let progress = Progress { fired: 1, last_completion: Some(at(completed)) };
    plan.bind().unwrap().next_given(at(completed), progress)
}

#[test]
fn a_period_from_completion_waits_for_the_start() {
    let mut delay = Plan::new("@every 5m from completion", "UTC");
    delay.schedule.bounds.start = Some(at("2026-01-01T12:00Z"));
    for (completed, expected) in [
        ("2026-01-01T11:00Z", "2026-01-01T12:00Z"),
        ("2026-01-01T11:55Z", "2026-01-01T12:00Z"),
        ("2026-01-01T11:55:00.001Z", "2026-01-01T12:00:00.001Z"),
    ] {
        assert_eq!(after_completion(&delay, completed), Some(at(expected)), "{completed}");
    }
}

#[test]
fn a_slot_from_completion_is_superseded_by_the_next_completion() {
    let delay = Plan::new("@every 5m from completion", "UTC");
    for (completed, slot, expected) in [
        (Some("2026-01-01T12:00Z"), "2026-01-01T12:04:59.999Z", true),
        (Some("2026-01-01T12:00Z"), "2026-01-01T12:05Z", false),
        (Some("2026-01-01T12:00Z"), "2026-01-01T13:00Z", false),
        (None, "2026-01-01T12:00Z", false),
    ] {
        let progress = Progress { fired: 1, last_completion: completed.map(at) };
        let superseded = delay.bind().unwrap().is_superseded(at(slot), progress);
        assert_eq!(superseded, expected, "{completed:?} {slot}");
    }
}

#[test]
fn a_period_from_completion_stops_at_the_end() {
    let mut delay = Plan::new("@every 5m from completion", "UTC");
    delay.schedule.bounds.end = Some(at("2026-01-01T12:00Z"));
    for (completed, expected) in [
        ("2026-01-01T11:54:59.999Z", Some("2026-01-01T11:59:59.999Z")),
        ("2026-01-01T11:55Z", Some("2026-01-01T12:00Z")),
        ("2026-01-01T11:55:00.001Z", None),
    ] {
        assert_eq!(after_completion(&delay, completed), expected.map(at), "{completed}");
    }
}

#[test]
fn a_period_from_completion_waits_for_its_calendars() {
    // 2 January 2026 is a Friday.
    let mut delay = Plan::new("@every 5m from completion", "UTC").calendars("+MON-FRI +09:00-17:00");
    for (completed, expected) in [
        ("2026-01-01T10:00Z", "2026-01-01T10:05Z"),
        ("2026-01-01T06:00Z", "2026-01-01T09:00Z"),
        ("2026-01-01T16:54:59.999Z", "2026-01-01T16:59:59.999Z"),
        ("2026-01-01T16:55Z", "2026-01-02T09:00Z"),
        ("2026-01-02T16:58Z", "2026-01-05T09:00Z"),
        ("2026-01-03T12:00Z", "2026-01-05T09:00Z"),
    ] {
        assert_eq!(after_completion(&delay, completed), Some(at(expected)), "{completed}");
    }
    delay.schedule.bounds.end = Some(at("2026-01-05T08:59Z"));
    assert_eq!(after_completion(&delay, "2026-01-02T16:54Z"), Some(at("2026-01-02T16:59Z")));
    assert_eq!(after_completion(&delay, "2026-01-02T16:58Z"), None);
    delay.schedule.bounds.end = None;
    delay.schedule.bounds.start = Some(at("2026-01-03T12:00Z"));
    assert_eq!(after_completion(&delay, "2026-01-01T10:00Z"), Some(at("2026-01-05T09:00Z")));
}

#[test]
fn a_moved_time_keeps_its_milliseconds() {
    // 25 December 2026 is a Friday.
    let christmas = "+MON-FRI -12-25";
    for (text, slots) in [
        ("@at 2026-12-25T09:00:00.250", "2026-12-28T09:00:00.250Z end"),
        ("@at 2026-12-25T09:00:00.999Z", "2026-12-28T09:00:00.999Z end"),
        ("R2/2026-12-25T09:00:00.250/P4D", "2026-12-28T09:00:00.250Z 2026-12-29T09:00:00.250Z end"),
    ] {
        let moved = Plan::new(text, "UTC").calendars(christmas).excluded(OnExcluded::Next);
        moved.expect("2026-01-01T00:00Z", slots);
    }
    let mut now = Plan::new("@now", "UTC").calendars(christmas).excluded(OnExcluded::Previous);
    now.binding.registered_at = at("2026-12-25T09:00:00.250Z");
    now.expect("2026-01-01T00:00Z", "2026-12-24T09:00:00.250Z end");
}

/// The same id starts at the same offset in every version: these come from another program, in
/// another language.
#[test]
fn the_spread_of_an_id_never_changes() {
    for (id, offsets_ms) in [
        ("", [432, 432, 1_920_432, 16_320_432]),
        ("job-1", [5, 3_005, 3_303_005, 28_503_005]),
        ("nightly-report", [526, 24_526, 564_526, 43_764_526]),
        ("0192f0c1-7e2a-7000-8000-000000000001", [375, 1_375, 2_341_375, 45_541_375]),
    ] {
        for (window_s, offset_ms) in [1, 60, 3_600, 86_400].into_iter().zip(offsets_ms) {
            let mut plan = Plan::new("0 0 * * *", "UTC");
            plan.binding.seed = Seed::of(id);
            plan.schedule.spread = Some(Duration::from_secs(window_s));
            let offset = plan.bind().unwrap().spread_offset();
            assert_eq!(offset, Duration::from_millis(offset_ms), "`{id}` in {window_s} s");
        }
    }
}
