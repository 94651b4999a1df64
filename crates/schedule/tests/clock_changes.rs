//! Where a change of the clock meets something that happens once: which pass, which day, which note.

use crate::support::plan::{Plan, at};
use punctual_schedule::DstNote;
use punctual_schedule::dst::{Gap, Overlap};

const NEW_YORK: &str = "America/New_York";

#[test]
fn what_happens_once_takes_the_first_pass_unless_the_last_is_asked_for() {
    // 01:30 on 1 November 2026 comes twice.
    for (overlap, passed) in [
        (Overlap::First, "2026-11-01T01:30-04:00"),
        (Overlap::Both, "2026-11-01T01:30-04:00"),
        (Overlap::Last, "2026-11-01T01:30-05:00"),
    ] {
        let plan = |text: &str| Plan::new(text, NEW_YORK).policy(Gap::After, overlap);
        let from = "2026-10-01T00:00Z";
        plan("@at 2026-11-01T01:30").expect(from, &format!("{passed} end"));
        plan("R3/2026-10-31T01:30/P1D")
            .expect(from, &format!("2026-10-31T01:30-04:00 {passed} 2026-11-02T01:30-05:00 end"));
        plan("R2/2026-11-01T01:30/P1D").expect(from, &format!("{passed} 2026-11-02T01:30-05:00 end"));
        plan("@every 24h anchor 2026-11-01T01:30").expect(from, passed);
        let mut tomorrow = plan("@after P1D");
        tomorrow.binding.registered_at = at("2026-10-31T01:30-04:00");
        tomorrow.expect(from, &format!("{passed} end"));
    }
}

#[test]
fn a_start_with_an_offset_is_that_instant_and_its_days_follow_the_zones_clock() {
    for (text, slots) in [
        // The second pass was named: slot 0 is there, not an hour before.
        (
            "R3/2026-11-01T01:30-05:00/P1D",
            "2026-11-01T01:30-05:00 2026-11-02T01:30-05:00 2026-11-03T01:30-05:00 end",
        ),
        ("R2/2026-11-01T06:30:00.500Z/P1M", "2026-11-01T06:30:00.500Z 2026-12-01T06:30:00.500Z end"),
        // Nine o'clock in New York, whatever it is called.
        (
            "R3/2026-03-07T14:00Z/P1D",
            "2026-03-07T09:00-05:00 2026-03-08T09:00-04:00 2026-03-09T09:00-04:00 end",
        ),
        (
            "R3/2026-03-07T15:00+01:00/P1D",
            "2026-03-07T09:00-05:00 2026-03-08T09:00-04:00 2026-03-09T09:00-04:00 end",
        ),
        // The evening of the 30th there, the 31st in UTC.
        (
            "R3/2026-01-31T03:00Z/P1M",
            "2026-01-30T22:00-05:00 2026-02-28T22:00-05:00 2026-03-30T22:00-04:00 end",
        ),
    ] {
        Plan::new(text, NEW_YORK).expect("2026-01-01T00:00Z", slots);
    }
}

/// Casey's clock went from 00:00 to 03:00 on 22 October 2016: the longest jump that is a gap.
#[test]
fn a_jump_of_three_hours_is_a_gap_and_told_as_one() {
    let casey = Plan::new("30 1 * * *", "Antarctica/Casey");
    casey.expect("2016-10-20T17:00Z", "2016-10-21T01:30+08:00 2016-10-22T03:00+11:00 2016-10-23T01:30+11:00");
    let timetable = casey.bind().unwrap();
    let from = at("2016-10-01T00:00Z");
    let described = timetable.describe(from);
    let told = "on 22 October 2016 that time does not exist: runs at 03:00";
    assert!(described.contains(told), "{described}");
    let warnings = timetable.warnings(from);
    assert!(warnings.iter().any(|w| w.contains("in a DST gap on 22 October 2016")), "{warnings:?}");
    let note = timetable.dst_note(at("2016-10-22T03:00+11:00"));
    assert_eq!(note, Some(DstNote::Moved { from: "01:30".into() }));

    // A whole day is not a gap: nothing stands for it, and it is told as a day that does not exist.
    let samoa = Plan::new("0 9 * * *", "Pacific/Apia").bind().unwrap();
    let from = at("2011-12-01T00:00Z");
    assert!(!samoa.describe(from).contains("runs at"), "{}", samoa.describe(from));
    let warnings = samoa.warnings(from);
    assert!(warnings.iter().all(|w| w.contains("30 December 2011") && !w.contains("gap")), "{warnings:?}");
    assert_eq!(samoa.dst_note(at("2011-12-31T09:00+14:00")), None);
}

#[test]
fn a_note_names_the_missing_time_also_when_the_gap_touches_midnight() {
    // In Nuuk 23:00 on 28 March 2026 is midnight; in Cairo midnight on 24 April 2026 is 01:00.
    for (text, zone, slot, from) in [
        ("@at 2026-03-28T23:30", "America/Nuuk", "2026-03-29T00:00-01:00", "23:30"),
        ("R9/2026-03-25T23:30/P1D", "America/Nuuk", "2026-03-29T00:00-01:00", "23:30"),
        ("30 23 * * *", "America/Nuuk", "2026-03-29T00:00-01:00", "23:30"),
        ("@at 2026-04-24T00:30", "Africa/Cairo", "2026-04-24T01:00+03:00", "00:30"),
        ("R9/2026-04-20T00:30/P1D", "Africa/Cairo", "2026-04-24T01:00+03:00", "00:30"),
        ("30 0 * * *", "Africa/Cairo", "2026-04-24T01:00+03:00", "00:30"),
    ] {
        let timetable = Plan::new(text, zone).bind().unwrap();
        let slot = at(slot);
        let day_before = slot - jiff::SignedDuration::from_hours(20);
        assert_eq!(timetable.next_after(day_before), Some(slot), "{text} in {zone}");
        let note = timetable.dst_note(slot);
        assert_eq!(note, Some(DstNote::Moved { from: from.into() }), "{text} in {zone}");
    }
    // The same times on a day without a change have no note.
    let quiet = Plan::new("R9/2026-03-25T23:30/P1D", "America/Nuuk").bind().unwrap();
    assert_eq!(quiet.dst_note(at("2026-03-27T23:30-02:00")), None);
}
