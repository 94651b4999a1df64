//! Writes an expression in its canonical form.
//!
//! Promise: parsing what is printed gives the same expression. Names become numbers, lists are
//! ordered, seconds and years appear only when they say something.

use std::fmt;

use super::{Days, Expression, Field, Weekdays, Years};
use crate::civil::YEAR_MIN;

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_years = self.years != Years::ALL;
        let on_the_minute = Field { bits: 1, ..Field::default() };
        if with_years || self.seconds != on_the_minute {
            write!(f, "{} ", time_field(&self.seconds, 59))?;
        }
        write!(f, "{} ", time_field(&self.minutes, 59))?;
        write!(f, "{} ", time_field(&self.hours, 23))?;
        write!(f, "{} ", day_field(&self.days))?;
        write!(f, "{} ", plain_field(&self.months, 1, 12))?;
        f.write_str(&weekday_field(&self.weekdays))?;
        if with_years {
            let years: Vec<u32> = (0..230u32)
                .filter(|y| self.years.contains(YEAR_MIN + *y as i32))
                .map(|y| YEAR_MIN as u32 + y)
                .collect();
            write!(f, " {}", list(&years, YEAR_MIN as u32, YEAR_MIN as u32 + 229, true).join(","))?;
        }
        Ok(())
    }
}

/// Seconds, minutes and hours: a star means more than its values, so it is printed if and only
/// if it was written.
fn time_field(field: &Field, max: u32) -> String {
    let all = values(field.bits);
    if !field.star {
        return with_hashed(list(&all, 0, max, false), field, 0, max);
    }
    // Some `*/n` is in the set, because a star was written; print the densest one.
    let step = (1..=max)
        .find(|step| (0..=max).step_by(*step as usize).all(|v| field.bits >> v & 1 == 1))
        .unwrap_or(1);
    let rest: Vec<u32> = all.iter().copied().filter(|v| v % step != 0).collect();
    let mut items = vec![if step == 1 { "*".into() } else { format!("*/{step}") }];
    items.extend(cover(&rest, &all, max).iter().map(|run| run.print(0, max, false)));
    with_hashed(items, field, 0, max)
}

fn plain_field(field: &Field, min: u32, max: u32) -> String {
    with_hashed(list(&values(field.bits), min, max, true), field, min, max)
}

fn day_field(days: &Days) -> String {
    if days.field.star {
        return "*".into();
    }
    let mut items = list(&values(days.field.bits), 1, 31, false);
    items.extend(hashed(&days.field, 1, 28));
    items.extend(values(days.last.into()).into_iter().map(|n| match n {
        0 => "L".into(),
        n => format!("L-{n}"),
    }));
    items.extend(values(days.nearest.into()).into_iter().map(|n| format!("{n}W")));
    items.extend(values(days.nearest_last.into()).into_iter().map(|n| match n {
        0 => "LW".into(),
        n => format!("L-{n}W"),
    }));
    items.extend(values(days.business.into()).into_iter().map(|n| match n {
        0 => "LB".into(),
        n => format!("{n}B"),
    }));
    items.join(",")
}

fn weekday_field(weekdays: &Weekdays) -> String {
    if weekdays.field.star {
        return "*".into();
    }
    let mut items = list(&values(weekdays.field.bits), 0, 6, false);
    items.extend(hashed(&weekdays.field, 0, 6));
    items.extend(values(weekdays.nth).into_iter().map(|bit| format!("{}#{}", bit / 5, bit % 5 + 1)));
    items.extend(values(weekdays.last.into()).into_iter().map(|day| format!("{day}L")));
    format!("{}{}", if weekdays.and { "+" } else { "" }, items.join(","))
}

fn values(bits: u64) -> Vec<u32> {
    (0..64).filter(|v| bits >> v & 1 == 1).collect()
}

/// A set as list items: `*`, or the longest steps and ranges that cover it, lowest first.
fn list(values: &[u32], min: u32, max: u32, star: bool) -> Vec<String> {
    cover(values, values, max).into_iter().map(|run| run.print(min, max, star)).collect()
}

/// Evenly spaced values: `first`, `first + step`, ... `last`.
struct Run {
    first: u32,
    last: u32,
    step: u32,
    len: usize,
}

impl Run {
    fn print(&self, min: u32, max: u32, star: bool) -> String {
        let open = star && self.first == min && self.last + self.step > max && self.len > 1;
        match (self.len, self.step, open) {
            (1, ..) => self.first.to_string(),
            (_, 1, true) => "*".into(),
            (_, step, true) => format!("*/{step}"),
            (_, 1, false) => format!("{}-{}", self.first, self.last),
            (_, step, false) => format!("{}-{}/{step}", self.first, self.last),
        }
    }
}

/// Covers `wanted` with runs inside `all` (both ordered), so that a union of steps prints as short
/// as it was written.
fn cover(wanted: &[u32], all: &[u32], max: u32) -> Vec<Run> {
    let has = |value: u32| all.binary_search(&value).is_ok();
    let mut open = wanted.to_vec();
    let mut runs = Vec::new();
    while let Some(&first) = open.first() {
        let mut best = Run { first, last: first, step: 1, len: 1 };
        let mut best_new = 2; // A run must save something over naming two values.
        for step in 1..=max.saturating_sub(first) {
            let mut run = Run { first, last: first, step, len: 1 };
            let mut new = 1;
            while run.last + step <= max && has(run.last + step) {
                run.last += step;
                run.len += 1;
                new += usize::from(open.binary_search(&run.last).is_ok());
            }
            if new > best_new {
                (best, best_new) = (run, new);
            }
        }
        open.retain(|&v| v > best.last || (v - first) % best.step != 0);
        runs.push(best);
    }
    runs
}

fn hashed(field: &Field, min: u32, max: u32) -> Vec<String> {
    field
        .hashed
        .iter()
        .map(|h| {
            let range = if u32::from(h.lo) == min && u32::from(h.hi) == max {
                String::new()
            } else {
                format!("({}-{})", h.lo, h.hi)
            };
            match h.step {
                0 => format!("H{range}"),
                step => format!("H{range}/{step}"),
            }
        })
        .collect()
}

fn with_hashed(mut items: Vec<String>, field: &Field, min: u32, max: u32) -> String {
    items.extend(hashed(field, min, max));
    items.join(",")
}
