//! Calendars row by row: windows that overlap, weekdays both ways, leap days, moves over months and years,
//! clock changes inside a stretch.

use crate::support::plan::{Plan, rows};
use punctual_schedule::calendar::OnExcluded;

#[test]
fn the_calendar_table_holds() {
    let rows = rows(include_str!("../testdata/calendars.txt"));
    for [text, zone, calendars, on_excluded, after, slots] in &rows {
        let on_excluded = match *on_excluded {
            "skip" => OnExcluded::Skip,
            "next" => OnExcluded::Next,
            "previous" => OnExcluded::Previous,
            other => panic!("unknown way out of an excluded day: {other}"),
        };
        Plan::new(text, zone).calendars(calendars).excluded(on_excluded).expect(after, slots);
    }
    println!("calendars: {} rows", rows.len());
}
