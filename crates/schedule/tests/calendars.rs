//! Calendars, bounds and spread: what narrows or moves the slots of a schedule.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::calendar::{Calendar, Calendars, OnExcluded};
use punctual_schedule::{Binding, Code, Error, Progress, Schedule, Seed, Timetable, Tzdb};

/// A schedule with calendars by name.
struct Plan {
    schedule: Schedule,
    binding: Binding,
}

fn plan(text: &str, zone: &str) -> Plan {
    let mut schedule = Schedule::parse(text).unwrap();
    schedule.timezone = zone.into();
    Plan { schedule, binding: Binding::default() }
}

impl Plan {
    fn with(mut self, name: &str, calendar: Calendar) -> Self {
        let mut calendars: Calendars = (*self.binding.calendars).clone();
        calendars.insert(name.into(), Arc::new(calendar));
        self.binding.calendars = Arc::new(calendars);
        self.schedule.calendars.push(name.into());
        self
    }

    fn excluded(mut self, on_excluded: OnExcluded) -> Self {
        self.schedule.on_excluded = on_excluded;
        self
    }

    fn bind(&self) -> Result<Timetable, Error> {
        self.schedule.timetable(&Tzdb::bundled(), &self.binding)
    }

    /// Compares the next slots, then checks that previous and count agree with them.
    #[track_caller]
    fn expect(&self, from: &str, expected: &[&str]) {
        let timetable = self.bind().unwrap();
        let from = at(from);
        let slots: Vec<Timestamp> = timetable.upcoming(from).take(expected.len()).collect();
        let expected: Vec<Timestamp> = expected.iter().map(|text| at(text)).collect();
        assert_eq!(slots, expected);
        for pair in slots.windows(2) {
            assert_eq!(timetable.previous_before(pair[1]), Some(pair[0]));
        }
        let nanosecond = SignedDuration::from_nanos(1);
        if let Some(last) = slots.last() {
            assert_eq!(timetable.count(from + nanosecond, *last + nanosecond), slots.len() as u64);
        }
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn business() -> Calendar {
    Calendar::weekdays().exclude_date("01-01").unwrap().exclude_date("2026-12-25").unwrap()
}

#[test]
fn excluded_days_are_skipped() {
    plan("0 9 * * *", "Europe/Paris").with("work", business()).expect(
        "2025-12-31T12:00:00Z",
        &["2026-01-02T09:00:00+01:00", "2026-01-05T09:00:00+01:00", "2026-01-06T09:00:00+01:00"],
    );
}

#[test]
fn excluded_days_move_to_the_next_allowed_day_and_collapse() {
    // Thursday 1 January is a holiday: the slot of the 1st moves to the 2nd, those of the weekend
    // of the 3rd and 4th would all be Monday's.
    let new_year = plan("0 9 1,3,4,5 * *", "Europe/Paris").with("work", business());
    new_year.excluded(OnExcluded::Next).expect(
        "2025-12-31T12:00:00Z",
        &[
            "2026-01-02T09:00:00+01:00",
            "2026-01-05T09:00:00+01:00",
            "2026-02-02T09:00:00+01:00",
            "2026-02-03T09:00:00+01:00",
            "2026-02-04T09:00:00+01:00",
            "2026-02-05T09:00:00+01:00",
        ],
    );
}

#[test]
fn a_moved_slot_may_leave_its_month_and_its_year() {
    // 31 May 2026 is a Sunday, 31 October a Saturday.
    let month_end = || plan("0 18 31 * *", "Europe/Paris").with("work", business());
    month_end().excluded(OnExcluded::Next).expect(
        "2026-05-01T00:00:00Z",
        &[
            "2026-06-01T18:00:00+02:00",
            "2026-07-31T18:00:00+02:00",
            "2026-08-31T18:00:00+02:00",
            "2026-11-02T18:00:00+01:00",
        ],
    );
    month_end().excluded(OnExcluded::Previous).expect(
        "2026-05-01T00:00:00Z",
        &[
            "2026-05-29T18:00:00+02:00",
            "2026-07-31T18:00:00+02:00",
            "2026-08-31T18:00:00+02:00",
            "2026-10-30T18:00:00+01:00",
        ],
    );
    let january = || plan("0 0 0 1 1 * 2028", "UTC").with("work", business());
    january().excluded(OnExcluded::Previous).expect("2026-01-01T00:00:00Z", &["2027-12-31T00:00:00Z"]);
    january().excluded(OnExcluded::Next).expect("2026-01-01T00:00:00Z", &["2028-01-03T00:00:00Z"]);
    assert_eq!(
        january().excluded(OnExcluded::Next).bind().unwrap().next_after(at("2028-01-03T00:00:00Z")),
        None
    );
}

#[test]
fn the_third_business_day_of_the_month_counts_allowed_days() {
    plan("0 9 3B * *", "UTC").with("work", business()).expect(
        "2026-01-01T00:00:00Z",
        &["2026-01-06T09:00:00Z", "2026-02-04T09:00:00Z", "2026-03-04T09:00:00Z"],
    );
    plan("0 9 LB * *", "UTC")
        .with("work", business().exclude_date("12-31").unwrap())
        .expect("2026-11-15T00:00:00Z", &["2026-11-30T09:00:00Z", "2026-12-30T09:00:00Z"]);
}

#[test]
fn business_days_are_monday_to_friday_unless_a_calendar_speaks_of_weekdays() {
    // August 2026 starts on a Saturday.
    let holidays = || Calendar::new().exclude_date("08-04").unwrap();
    let third = |calendars: &[Calendar]| {
        let mut third = plan("0 9 3B 8 *", "UTC");
        for (n, calendar) in calendars.iter().enumerate() {
            third = third.with(&n.to_string(), calendar.clone());
        }
        let next = third.bind().unwrap().next_after(at("2026-08-01T00:00:00Z")).unwrap();
        next.to_string()[8..10].to_string()
    };
    assert_eq!(third(&[]), "05");
    assert_eq!(third(&[holidays()]), "06", "weekends are none, the holiday is none");
    assert_eq!(third(&[Calendar::weekdays(), holidays()]), "06");
    let worked_saturday = holidays().include_weekdays("MON-SAT").unwrap();
    assert_eq!(third(std::slice::from_ref(&worked_saturday)), "05", "the calendar says that Saturdays count");
    assert_eq!(third(&[worked_saturday, holidays()]), "05", "one calendar's word is enough");
    let opened = Calendar::new().include_date("2026-08-01").unwrap().exclude_date("08-04").unwrap();
    let listed =
        (3..10).fold(opened, |calendar, day| calendar.include_date(&format!("08-{day:02}")).unwrap());
    assert_eq!(third(&[listed]), "05", "a Saturday included by its date counts");
    // The slot itself still may not be where calendars do not allow it.
    let every_day = Calendar::new().include_weekdays("*").unwrap();
    plan("0 9 24B,31B 8 *", "UTC")
        .with("all", every_day)
        .expect("2026-08-01T00:00:00Z", &["2026-08-24T09:00:00Z", "2026-08-31T09:00:00Z"]);
    assert_eq!(plan("0 9 24B * *", "UTC").bind().unwrap().next_after(at("1970-01-01T00:00:00Z")), None);
}

#[test]
fn an_included_date_opens_a_closed_weekday_and_an_excluded_one_stays_closed() {
    let working_saturday = business().include_date("2026-01-03").unwrap();
    plan("0 9 * * *", "UTC").with("work", working_saturday).expect(
        "2026-01-01T12:00:00Z",
        &["2026-01-02T09:00:00Z", "2026-01-03T09:00:00Z", "2026-01-05T09:00:00Z"],
    );
    let listed = Calendar::new()
        .include_date("2026-03-05")
        .unwrap()
        .include_date("12-24")
        .unwrap()
        .exclude_date("2027-12-24")
        .unwrap();
    plan("0 9 * * *", "UTC").with("listed", listed).expect(
        "2026-01-01T00:00:00Z",
        &["2026-03-05T09:00:00Z", "2026-12-24T09:00:00Z", "2028-12-24T09:00:00Z"],
    );
}

#[test]
fn daily_windows_narrow_the_day() {
    let hours = Calendar::new().include_window("09:00-17:30").unwrap().exclude_window("12:00-13:00").unwrap();
    plan("15 * * * *", "UTC").with("hours", hours).expect(
        "2026-01-01T10:30:00Z",
        &[
            "2026-01-01T11:15:00Z",
            "2026-01-01T13:15:00Z",
            "2026-01-01T14:15:00Z",
            "2026-01-01T15:15:00Z",
            "2026-01-01T16:15:00Z",
            "2026-01-01T17:15:00Z",
            "2026-01-02T09:15:00Z",
        ],
    );
    let night = Calendar::new().include_window("22:00-02:00").unwrap();
    plan("@every 1h", "UTC").with("night", night).expect(
        "2026-01-01T20:30:00Z",
        &[
            "2026-01-01T22:00:00Z",
            "2026-01-01T23:00:00Z",
            "2026-01-02T00:00:00Z",
            "2026-01-02T01:00:00Z",
            "2026-01-02T22:00:00Z",
        ],
    );
    let closed =
        Calendar::new().include_window("09:00-10:00").unwrap().exclude_window("08:00-11:00").unwrap();
    let timetable = plan("* * * * *", "UTC").with("closed", closed).bind().unwrap();
    assert_eq!(timetable.next_after(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(timetable.previous_before(at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn a_calendar_with_its_own_clock_judges_instants() {
    // New York's market hours for a job that thinks in UTC; the clocks change on 8 March.
    let market = Calendar::weekdays().include_window("09:30-16:00").unwrap().in_zone("America/New_York");
    plan("0 * * * *", "UTC").with("market", market.clone()).expect(
        "2026-03-06T19:30:00Z",
        &[
            "2026-03-06T20:00:00Z",
            "2026-03-09T14:00:00Z",
            "2026-03-09T15:00:00Z",
            "2026-03-09T16:00:00Z",
            "2026-03-09T17:00:00Z",
            "2026-03-09T18:00:00Z",
            "2026-03-09T19:00:00Z",
            "2026-03-10T14:00:00Z",
        ],
    );
    let refused = plan("0 9 * * *", "UTC").with("market", market.clone()).excluded(OnExcluded::Next).bind();
    assert_eq!(refused.unwrap_err().code(), Code::Conflict);
    let refused = plan("0 9 3B * *", "UTC").with("market", market).bind();
    assert_eq!(refused.unwrap_err().code(), Code::Conflict);
}

#[test]
fn a_day_in_the_next_century_is_found_from_anywhere() {
    let once = Calendar::new().include_date("2190-03-04").unwrap().in_zone("Asia/Tokyo");
    for text in ["@every 1h", "0 * * * *"] {
        let timetable = plan(text, "UTC").with("once", once.clone()).bind().unwrap();
        let first = Some(at("2190-03-03T15:00:00Z"));
        for from in ["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2150-06-01T00:00:00Z"] {
            assert_eq!(timetable.next_after(at(from)), first, "{text} from {from}");
        }
        assert_eq!(timetable.previous_before(at("2199-12-30T00:00:00Z")), Some(at("2190-03-04T14:00:00Z")));
        assert_eq!(timetable.count(at("1970-01-01T00:00:00Z"), at("2199-12-30T00:00:00Z")), 24);
    }
}

#[test]
fn an_interval_crosses_closed_years_too() {
    let once = Calendar::new().include_date("2190-03-04").unwrap();
    for (on_excluded, text) in [
        (OnExcluded::Skip, "R/2026-01-01T09:00/P1D"),
        (OnExcluded::Next, "R/2026-01-01T09:00/P1D"),
        (OnExcluded::Previous, "R/2026-01-01T09:00/P1M"),
    ] {
        let timetable = plan(text, "UTC").with("once", once.clone()).excluded(on_excluded).bind().unwrap();
        for from in ["1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2150-06-01T00:00:00Z"] {
            assert_eq!(
                timetable.next_after(at(from)),
                Some(at("2190-03-04T09:00:00Z")),
                "{text} from {from}"
            );
        }
        assert_eq!(timetable.previous_before(at("2199-12-30T00:00:00Z")), Some(at("2190-03-04T09:00:00Z")));
    }
    let closed = Calendar::new().include_window("10:00-11:00").unwrap();
    let never = plan("R/2026-01-01T09:00/P1D", "UTC").with("closed", closed).bind().unwrap();
    assert_eq!(never.next_after(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(never.previous_before(at("2199-01-01T00:00:00Z")), None);
    assert_eq!(never.count(at("2026-01-01T00:00:00Z"), at("2199-01-01T00:00:00Z")), 0);
}

#[test]
fn several_calendars_must_all_allow_a_slot() {
    let hours = Calendar::new().include_window("09:00-12:00").unwrap();
    let odd = Calendar::new().exclude_date("2026-01-05").unwrap();
    plan("0 */2 * * *", "UTC")
        .with("work", business())
        .with("hours", hours)
        .with("odd", odd)
        .expect("2026-01-02T11:00:00Z", &["2026-01-06T10:00:00Z", "2026-01-07T10:00:00Z"]);
}

#[test]
fn intervals_of_days_and_single_times_move_too() {
    plan("R4/2026-01-01T09:00/P1D", "UTC")
        .with("work", business())
        .excluded(OnExcluded::Next)
        .expect("2025-12-31T00:00:00Z", &["2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"]);
    plan("R/2026-01-31T09:00/P1M", "UTC").with("work", business()).excluded(OnExcluded::Previous).expect(
        "2026-01-01T00:00:00Z",
        &["2026-01-30T09:00:00Z", "2026-02-27T09:00:00Z", "2026-03-31T09:00:00Z"],
    );
    plan("2026-12-25T09:00", "UTC")
        .with("work", business())
        .excluded(OnExcluded::Next)
        .expect("2026-01-01T00:00:00Z", &["2026-12-28T09:00:00Z"]);
    let hours = plan("@every 7h", "UTC").with("work", business()).excluded(OnExcluded::Next).bind();
    assert_eq!(hours.unwrap_err().code(), Code::Conflict);
}

#[test]
fn a_period_with_hours_is_judged_by_its_slots() {
    // Each slot is a day and an hour later on the clock: the weekend takes out what falls on it.
    plan("R/2026-01-01T20:00/P1DT1H", "UTC").with("work", Calendar::weekdays()).expect(
        "2025-12-31T00:00:00Z",
        &["2026-01-01T20:00:00Z", "2026-01-02T21:00:00Z", "2026-01-06T00:00:00Z", "2026-01-07T01:00:00Z"],
    );
}

#[test]
fn a_calendar_must_exist_and_make_sense() {
    let mut lost = plan("0 9 * * *", "UTC");
    lost.schedule.calendars.push("holidays".into());
    let error = lost.bind().unwrap_err();
    assert_eq!(error.code(), Code::Calendar);
    assert!(error.to_string().contains("`holidays`"));
    for wrong in ["2026-02-29", "13-01", "2026-1", "tomorrow", "1-1-1", ""] {
        assert_eq!(Calendar::new().exclude_date(wrong).unwrap_err().code(), Code::Calendar, "{wrong}");
    }
    for wrong in ["9-17", "09:00", "09:00-25:00", "09:00-09:00", "24:00-01:00", "aa:bb-cc:dd"] {
        assert_eq!(Calendar::new().include_window(wrong).unwrap_err().code(), Code::Calendar, "{wrong}");
    }
    for wrong in ["MON#1", "FUNDAY", "* 1", "5L", "H", "+MON", ""] {
        assert_eq!(Calendar::new().include_weekdays(wrong).unwrap_err().code(), Code::Calendar, "{wrong}");
    }
}

#[test]
fn start_and_end_are_part_of_the_schedule() {
    let mut bounded = plan("0 9 * * *", "UTC");
    bounded.schedule.bounds.start = Some(at("2026-01-03T09:00:00Z"));
    bounded.schedule.bounds.end = Some(at("2026-01-05T09:00:00Z"));
    bounded.expect(
        "2026-01-01T00:00:00Z",
        &["2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", "2026-01-05T09:00:00Z"],
    );
    let timetable = bounded.bind().unwrap();
    assert_eq!(timetable.next_after(at("2026-01-05T09:00:00Z")), None);
    assert_eq!(timetable.previous_before(at("2026-01-03T09:00:00Z")), None);
    assert_eq!(timetable.count(at("2020-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z")), 3);
    bounded.schedule.bounds.end = Some(at("2026-01-01T00:00:00Z"));
    assert_eq!(bounded.bind().unwrap_err().code(), Code::Conflict);
    // Without an anchor, a period counts from the start.
    let mut every = plan("@every 7m", "UTC");
    every.schedule.bounds.start = Some(at("2026-01-01T00:01:00Z"));
    every.expect("2025-01-01T00:00:00Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:08:00Z"]);
}

#[test]
fn a_start_finer_than_a_millisecond_keeps_its_first_slot() {
    let start = "2026-01-01T00:00:00.000000001Z".parse().unwrap();
    for text in ["@every 1h", "@every 1h from completion"] {
        let mut every = plan(text, "UTC");
        every.schedule.bounds.start = Some(start);
        every.expect("2025-01-01T00:00:00Z", &["2026-01-01T00:00:00.001Z"]);
    }
}

#[test]
fn an_anchor_that_does_not_exist_is_refused() {
    let mut every = plan("@every 1h anchor 2026-03-08T02:30", "America/New_York");
    every.schedule.dst.gap = punctual_schedule::dst::Gap::Skip;
    let error = every.bind().unwrap_err();
    assert_eq!(error.code(), Code::NeverFires);
    assert!(error.to_string().contains("anchor"), "{error}");
}

#[test]
fn a_maximum_number_of_fires_stops_the_schedule() {
    let mut limited = plan("0 9 * * *", "UTC");
    limited.schedule.bounds.max_fires = NonZeroU64::new(2);
    let timetable = limited.bind().unwrap();
    let from = at("2026-01-01T00:00:00Z");
    assert_eq!(timetable.upcoming(from).count(), 2);
    let fired = |fired| timetable.next_given(from, Progress { fired, ..Progress::default() });
    assert_eq!(fired(1), Some(at("2026-01-01T09:00:00Z")));
    assert_eq!(fired(2), None);
}

#[test]
fn a_period_from_completion_waits_for_the_completion() {
    let mut delay = plan("@every 5m from completion", "UTC");
    delay.binding.registered_at = at("2026-01-01T00:00:00Z");
    let timetable = delay.bind().unwrap();
    assert_eq!(timetable.next_after(at("2025-12-31T00:00:00Z")), Some(at("2026-01-01T00:00:00Z")));
    assert_eq!(timetable.next_after(at("2026-01-01T00:00:00Z")), None);
    let given = |now: &str, completed: &str| {
        let progress = Progress { fired: 1, last_completion: Some(at(completed)) };
        timetable.next_given(at(now), progress)
    };
    assert_eq!(given("2026-01-01T00:02:00Z", "2026-01-01T00:01:30Z"), Some(at("2026-01-01T00:06:30Z")));
    // Whatever was computed, a slot never lies in the past.
    assert_eq!(given("2026-01-01T02:00:00Z", "2026-01-01T00:01:30Z"), Some(at("2026-01-01T02:00:00.001Z")));
}

#[test]
fn a_first_slot_from_completion_waits_for_its_calendar() {
    // Registered on a Saturday evening: Monday's opening is the first slot.
    let hours = Calendar::weekdays().include_window("09:00-17:00").unwrap();
    for zone in [None, Some("Europe/Paris")] {
        let calendar = zone.map_or(hours.clone(), |zone| hours.clone().in_zone(zone));
        let mut delay = plan("@every 5m from completion", "UTC").with("hours", calendar);
        delay.binding.registered_at = at("2026-01-03T20:00:00.250Z");
        let timetable = delay.bind().unwrap();
        let opens = at(if zone.is_some() { "2026-01-05T08:00:00Z" } else { "2026-01-05T09:00:00Z" });
        assert_eq!(timetable.next_after(at("2026-01-01T00:00:00Z")), Some(opens));
        assert_eq!(timetable.must_fire_after(delay.binding.registered_at).unwrap(), opens);
        assert_eq!(timetable.count(at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")), 1);
    }
    let closed = Calendar::new().exclude_weekdays("*").unwrap();
    let never = plan("@every 5m from completion", "UTC").with("closed", closed).bind().unwrap();
    assert_eq!(never.next_after(at("1969-01-01T00:00:00Z")), None);
}

#[test]
fn what_fires_at_its_registration_may_be_registered() {
    for registered in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000001Z", "1969-12-31T23:59:59.9999Z"]
    {
        let registered_at = at(registered);
        for text in ["@now", "@every 5m from completion"] {
            let mut plan = plan(text, "UTC");
            plan.binding.registered_at = registered_at;
            let first = plan.bind().unwrap().must_fire_after(registered_at).unwrap();
            assert!(
                registered_at.duration_since(first).abs() < SignedDuration::from_millis(1),
                "{text}: {first}"
            );
        }
    }
}

#[test]
fn now_and_after_count_from_the_registration() {
    let once = |text: &str| {
        let mut plan = plan(text, "America/New_York");
        plan.binding.registered_at = at("2026-03-07T18:00:00.250Z");
        plan.bind().unwrap().upcoming(at("2026-01-01T00:00:00Z")).collect::<Vec<_>>()
    };
    assert_eq!(once("@now"), [at("2026-03-07T18:00:00.250Z")]);
    assert_eq!(once("@after 90s"), [at("2026-03-07T18:01:30.250Z")]);
    assert_eq!(once("@after PT24H"), [at("2026-03-08T18:00:00.250Z")]);
    // A day later on the wall clock is 23 hours later when the clocks go forward.
    assert_eq!(once("@after P1D"), [at("2026-03-08T17:00:00.250Z")]);
}

#[test]
fn spread_is_a_stable_offset_inside_its_window() {
    let mut spread = plan("0 0 * * *", "UTC");
    spread.schedule.spread = Some(Duration::from_secs(3600));
    let offset = |id: &str| {
        let binding = Binding { seed: Seed::of(id), ..Binding::default() };
        spread.schedule.timetable(&Tzdb::bundled(), &binding).unwrap().spread_offset()
    };
    assert_eq!(offset("job-1"), offset("job-1"));
    let offsets: std::collections::BTreeSet<Duration> =
        (0..1000).map(|n| offset(&format!("job-{n}"))).collect();
    assert!(offsets.len() > 990, "{} different offsets", offsets.len());
    assert!(offsets.iter().all(|o| *o < Duration::from_secs(3600)));
    let quarters: std::collections::BTreeSet<u64> = offsets.iter().map(|o| o.as_secs() / 900).collect();
    assert_eq!(quarters.len(), 4);
    spread.schedule.spread = None;
    assert_eq!(spread.bind().unwrap().spread_offset(), Duration::ZERO);
}

#[test]
fn h_is_stable_per_job_and_different_between_jobs() {
    let tzdb = Tzdb::bundled();
    let schedule = Schedule::parse("H(0-29)/10 H H * H").unwrap();
    let first = |id: &str| {
        let binding = Binding { seed: Seed::of(id), ..Binding::default() };
        schedule.timetable(&tzdb, &binding).unwrap().next_after(at("2026-01-01T00:00:00Z")).unwrap()
    };
    assert_eq!(first("a"), first("a"));
    let different: std::collections::BTreeSet<Timestamp> =
        (0..100).map(|n| first(&format!("job-{n}"))).collect();
    assert!(different.len() > 80, "{}", different.len());
    for n in 0..200 {
        let binding = Binding { seed: Seed::of(&format!("job-{n}")), ..Binding::default() };
        let timetable = schedule.timetable(&tzdb, &binding).unwrap();
        let minutes: Vec<i64> =
            timetable.upcoming(at("2026-01-01T00:00:00Z")).take(3).map(|t| t.as_second() / 60 % 60).collect();
        assert_eq!(minutes.len(), 3);
        assert!(
            minutes[0] < 10 && minutes[1] == minutes[0] + 10 && minutes[2] == minutes[0] + 20,
            "{minutes:?}"
        );
    }
}
