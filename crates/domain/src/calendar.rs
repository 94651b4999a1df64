//! A calendar under its name, with what it said before.
//!
//! Schedules name calendars, and these change under their names. Where a due entry was put, and why a slot of the past got no run,
//! goes by what a calendar said then: so its last changes are remembered. Promise: bounded, however often and however much it is
//! changed.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_schedule::calendar::Calendar;

/// A calendar of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Counts its changes, from 1.
    pub version: u64,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// What it says.
    pub calendar: Arc<Calendar>,
    /// What it said before, oldest first.
    pub before: Vec<Was>,
}

/// What a calendar said until it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Was {
    /// When it was changed.
    pub until: Timestamp,
    /// What it said.
    pub calendar: Arc<Calendar>,
}

/// Changes that are remembered: more than are made while the jobs that use a calendar are planned anew.
pub const CHANGES_MAX: usize = 16;

/// Dates that are remembered: a calendar with its changes is read whole, and often.
pub const DATES_MAX: usize = 20_000;

impl Named {
    /// What it said at a time. Of the very moment of a change, what it said before.
    pub fn at(&self, at: Timestamp) -> &Arc<Calendar> {
        let was = self.before.iter().find(|was| at <= was.until);
        was.map_or(&self.calendar, |was| &was.calendar)
    }

    /// What is to be remembered when it is changed now.
    pub fn remembered(&self, now: Timestamp) -> Vec<Was> {
        let mut before = self.before.clone();
        before.push(Was { until: now, calendar: Arc::clone(&self.calendar) });
        let mut dates: usize = before.iter().map(|was| was.calendar.dates()).sum();
        // The last one is always kept: it says where due entries are.
        while before.len() > 1 && (before.len() > CHANGES_MAX || dates > DATES_MAX) {
            dates -= before.remove(0).calendar.dates();
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::at;

    fn closed_on(dates: impl Iterator<Item = String>) -> Arc<Calendar> {
        let closed =
            dates.fold(Calendar::new(), |calendar, date| calendar.exclude_date(&date).expect("a date"));
        Arc::new(closed)
    }

    fn changed(old: &Named, second: i64, calendar: Arc<Calendar>) -> Named {
        Named {
            version: old.version + 1,
            updated_at: at(second),
            before: old.remembered(at(second)),
            calendar,
            ..old.clone()
        }
    }

    fn empty() -> Named {
        let (name, calendar) = ("holidays".into(), Arc::new(Calendar::new()));
        Named { name, version: 1, updated_at: at(0), calendar, before: Vec::new() }
    }

    #[test]
    fn a_calendar_knows_what_it_said_at_any_time() {
        let first = empty();
        let second = changed(&first, 100, closed_on(["12-25".to_string()].into_iter()));
        let third = changed(&second, 200, closed_on(["12-26".to_string()].into_iter()));
        for (time, wanted) in [(50, &first), (100, &first), (101, &second), (200, &second), (201, &third)] {
            assert_eq!(third.at(at(time)), &wanted.calendar, "{time}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_last_is_always_there() {
        let mut often = empty();
        for second in 1..=CHANGES_MAX as i64 + 5 {
            often = changed(&often, second, closed_on([format!("2026-01-{second:02}")].into_iter()));
        }
        assert_eq!((often.before.len(), often.before[0].until), (CHANGES_MAX, at(6)));
        let years =
            |first: i32| {
                let days = (0..330).flat_map(move |day| (0..12).map(move |year| (day, year)));
                closed_on(days.map(move |(day, year)| {
                    format!("{}-{:02}-{:02}", first + year, day % 12 + 1, day / 12 + 1)
                }))
            };
        let mut large = changed(&empty(), 1, years(2000));
        assert!(large.calendar.dates() > 3_000);
        for second in 2..20 {
            large = changed(&large, second, years(2000 + second as i32));
        }
        let dates: usize = large.before.iter().map(|was| was.calendar.dates()).sum();
        assert!((DATES_MAX - 4_000..=DATES_MAX).contains(&dates), "{dates}");
        assert_eq!(large.before.last().map(|was| was.until), Some(at(19)));
    }
}
