//! Every question at the ends of time: an answer or none, never a panic.

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{Binding, Schedule, Tzdb};

#[test]
fn the_ends_of_time_are_answered() {
    let tzdb = Tzdb::bundled();
    let year_9000: Timestamp = "9000-01-01T00:00:00Z".parse().unwrap();
    let instants = [
        Timestamp::MIN,
        Timestamp::MIN + SignedDuration::from_nanos(1),
        "-000100-01-01T00:00:00Z".parse().unwrap(),
        "1969-12-31T23:59:59.999999999Z".parse().unwrap(),
        Timestamp::UNIX_EPOCH,
        "2199-12-31T23:59:59.999Z".parse().unwrap(),
        "2200-01-01T00:00:00Z".parse().unwrap(),
        year_9000,
        Timestamp::MAX,
    ];
    let texts: Vec<&str> = [include_str!("../testdata/table.txt"), include_str!("../testdata/intervals.txt")]
        .iter()
        .flat_map(|table| table.lines())
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(" | ").next().unwrap())
        .chain([
            "@every 5m from completion",
            "@after P200Y",
            "R/2199-12-31T23:59:59Z/P1D",
            "@now",
            "@after 1s",
        ])
        .collect();
    let mut asked = 0;
    for text in texts {
        for zone in ["UTC", "America/New_York", "Pacific/Apia", "+18:00", "-18:00"] {
            for registered_at in [Timestamp::UNIX_EPOCH, Timestamp::MIN, Timestamp::MAX] {
                let mut schedule = Schedule::parse(text).unwrap();
                schedule.timezone = zone.into();
                let binding = Binding { registered_at, ..Binding::default() };
                let timetable = schedule.timetable(&tzdb, &binding).unwrap();
                for at in instants {
                    assert!(timetable.next_after(at).is_none_or(|next| next > at), "{text} {zone} {at}");
                    assert!(timetable.previous_before(at).is_none_or(|last| last < at), "{text} {zone} {at}");
                    timetable
                        .next_given(at, punctual_schedule::Progress { fired: 1, last_completion: Some(at) });
                    timetable.dst_note(at);
                    timetable.describe(at);
                    timetable.warnings(at);
                    let until = |to| timetable.count(at, to);
                    let in_our_time = until("2200-01-02T00:00:00Z".parse().unwrap());
                    assert_eq!(
                        until(Timestamp::MAX),
                        in_our_time,
                        "{text} {zone} {at}: nothing lies after 2199"
                    );
                    asked += 1;
                }
            }
        }
    }
    println!("extremes: {asked} schedules and instants");
}
