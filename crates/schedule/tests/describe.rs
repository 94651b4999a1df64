//! What people read: descriptions, warnings and notes.

use jiff::Timestamp;
use punctual_schedule::{Binding, Schedule, Timetable, Tzdb, dst};

fn timetable(text: &str, zone: &str, policy: dst::Policy) -> Timetable {
    let mut schedule = Schedule::parse(text).unwrap();
    schedule.timezone = zone.into();
    schedule.dst = policy;
    schedule.timetable(&Tzdb::bundled(), &Binding::default()).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn descriptions_say_what_the_slots_are() {
    let rows: Vec<&str> =
        include_str!("../testdata/descriptions.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for row in &rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        let [text, zone, from, description] = columns[..] else { panic!("columns of {row}") };
        let timetable = timetable(text, zone, dst::Policy::default());
        assert_eq!(timetable.describe(at(from)), description, "{row}");
    }
    println!("descriptions: {} rows", rows.len());
}

#[test]
fn the_description_follows_the_dst_policy() {
    let january = at("2026-01-01T00:00:00Z");
    let describe = |text: &str, gap, overlap| {
        let page = timetable(text, "America/New_York", dst::Policy { gap, overlap }).describe(january);
        page.split("; ").nth(1).unwrap().to_string()
    };
    let gap = |gap| describe("30 2 * * *", gap, dst::Overlap::First);
    assert_eq!(gap(dst::Gap::Skip), "on 8 March 2026 that time does not exist: is skipped");
    assert_eq!(gap(dst::Gap::Shift), "on 8 March 2026 that time does not exist: runs at 03:30");
    let overlap = |overlap| describe("30 1 * * *", dst::Gap::After, overlap);
    assert_eq!(overlap(dst::Overlap::Both), "on 1 November 2026 that time comes twice: runs both times");
    assert_eq!(overlap(dst::Overlap::Last), "on 1 November 2026 that time comes twice: runs the second time");
}

#[test]
fn warnings_name_every_doubt_and_nothing_else() {
    let january = at("2026-01-01T00:00:00Z");
    let warnings =
        |text: &str, zone: &str| timetable(text, zone, dst::Policy::default()).warnings(january).join("\n");
    assert!(warnings("0 0 13 * FRI", "UTC").starts_with("day-of-month and weekday are both set"));
    assert!(warnings("* * * * * *", "UTC").starts_with("runs every second"));
    assert!(warnings("30 2 * * *", "America/New_York").starts_with("falls in a DST gap on 8 March 2026"));
    let gap = "falls in a DST gap on 8 March 2026 (dst_gap = after";
    assert!(warnings("R/2026-01-01T02:30/P1D", "America/New_York").starts_with(gap));
    assert!(warnings("2026-03-08T02:30", "America/New_York").starts_with(gap));
    assert!(warnings("2026-03-08T02:30[America/New_York]", "UTC").starts_with(gap));
    for text in ["@every 1s", "PT1S", "R/2026-01-01T00:00Z/PT1S"] {
        assert_eq!(warnings(text, "UTC"), "runs every second, 86,400 times a day", "{text}");
    }
    let minutes = "runs every second of the minutes it names";
    assert_eq!(warnings("* * 9-17 * * *", "UTC"), format!("{minutes}, 32,400 times a day"));
    assert_eq!(warnings("* 30 9 * * *", "UTC"), format!("{minutes}, 60 times a day"));
    assert!(warnings("0 0 30 2 *", "UTC").starts_with("never fires"));
    assert!(warnings("0 0 0 1 1 * 1999", "UTC").starts_with("never fires"));
    assert!(warnings("0/15 * * * *", "UTC").contains("read as `0-59/15`"));
    assert!(warnings("0 9 * * *", "Etc/GMT+5").contains("it is UTC-5"));
    for (text, zone) in [
        ("0 0 13 * +FRI", "UTC"),
        ("0 0 * * FRI", "UTC"),
        ("*/30 * * * *", "America/New_York"),
        ("30 1 * * *", "America/New_York"),
        ("30 2 * * *", "America/Phoenix"),
        ("0 0 29 2 *", "UTC"),
        ("@every 2s", "UTC"),
        ("R5/2026-01-01T00:00Z/PT1S", "UTC"),
        ("R/2026-01-01T02:30/PT24H", "America/New_York"),
        ("@every 5m from completion", "UTC"),
    ] {
        assert_eq!(warnings(text, zone), "", "{text} {zone}");
    }
}

#[test]
fn a_single_time_that_does_not_exist_says_why_it_never_fires() {
    let skip = dst::Policy { gap: dst::Gap::Skip, ..dst::Policy::default() };
    let january = at("2026-01-01T00:00:00Z");
    let gap = timetable("2026-03-08T02:30", "America/New_York", skip);
    let why = "02:30 does not exist on 8 March 2026 in America/New_York, and dst_gap = skip";
    assert_eq!(gap.warnings(january), [format!("never fires: {why}")]);
    assert!(gap.must_fire_after(january).unwrap_err().to_string().contains(why));
    let lost = timetable("2011-12-30T09:00", "Pacific/Apia", dst::Policy::default());
    let spring = at("2011-04-01T00:00:00Z");
    assert_eq!(lost.warnings(spring), ["never fires: 30 December 2011 does not exist in Pacific/Apia"]);
    let daily = timetable("0 9 * * *", "Pacific/Apia", dst::Policy::default());
    assert_eq!(
        daily.warnings(at("2011-12-01T00:00:00Z")),
        ["30 December 2011 does not exist in Pacific/Apia: nothing runs"]
    );
}

#[test]
fn every_slot_that_dst_touched_has_a_note() {
    let note = |text: &str, gap, overlap, slot: &str| {
        let timetable = timetable(text, "America/New_York", dst::Policy { gap, overlap });
        let slot = at(slot);
        let just_before = slot - jiff::SignedDuration::from_nanos(1);
        assert_eq!(timetable.next_after(just_before), Some(slot), "{text}: not a slot");
        timetable.dst_note(slot).map(|note| note.to_string()).unwrap_or_default()
    };
    let (after, shift) = (dst::Gap::After, dst::Gap::Shift);
    let (first, both, last) = (dst::Overlap::First, dst::Overlap::Both, dst::Overlap::Last);
    assert_eq!(
        note("30 2 * * *", after, first, "2026-03-08T03:00:00-04:00"),
        "DST: 02:30 does not exist on this day"
    );
    assert_eq!(
        note("30 2 * * *", shift, first, "2026-03-08T03:30:00-04:00"),
        "DST: 02:30 does not exist on this day"
    );
    assert_eq!(note("30 2 * * *", after, first, "2026-03-09T02:30:00-04:00"), "");
    assert_eq!(note("30 2,3 * * *", after, first, "2026-03-08T03:30:00-04:00"), "");
    assert_eq!(
        note("30 1 * * *", after, first, "2026-11-01T01:30:00-04:00"),
        "DST: this time comes twice, first pass"
    );
    assert_eq!(
        note("30 1 * * *", after, both, "2026-11-01T01:30:00-05:00"),
        "DST: this time comes twice, second pass"
    );
    assert_eq!(
        note("30 1 * * *", after, last, "2026-11-01T01:30:00-05:00"),
        "DST: this time comes twice, second pass"
    );
    assert_eq!(
        note("0 * * * *", after, first, "2026-11-01T01:00:00-05:00"),
        "DST: this time comes twice, second pass"
    );
    assert_eq!(note("0 * * * *", after, first, "2026-03-08T03:00:00-04:00"), "");
    assert_eq!(
        note("R/2026-03-07T02:30/P1D", after, first, "2026-03-08T03:00:00-04:00"),
        "DST: 02:30 does not exist on this day"
    );
    assert_eq!(
        note("2026-03-08T02:30", after, first, "2026-03-08T03:00:00-04:00"),
        "DST: 02:30 does not exist on this day"
    );
    assert_eq!(note("@every 1h", after, first, "2026-11-01T01:00:00-05:00"), "");
}
