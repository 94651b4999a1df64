//! A schedule in plain English.
//!
//! For people who read a job's page or `punctual explain`. Promise: it says what the slots are,
//! with `H` and numbers resolved; DST is told apart, by [`crate::explain`].

use crate::civil::{Wall, date_from_days, split};
use crate::cron::Expression;
use crate::every::Origin;
use crate::interval::Step;
use crate::schedule::{Kind, Schedule};
use crate::seed::Seed;

pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// More times of day than this are told as minutes and hours, not one by one.
const TIMES_LISTED_MAX: u32 = 6;

/// What the schedule says, without DST.
pub(crate) fn describe(schedule: &Schedule, seed: Seed, zone: &str) -> String {
    let mut text = match &schedule.kind {
        Kind::Now => "Once, when it is registered".into(),
        Kind::At(moment) => format!("Once, at {moment}"),
        Kind::After(period) => format!("Once, {} after it is registered", period.describe()),
        Kind::Every(every) => {
            let period = every.period().describe_each();
            match every.origin() {
                Origin::Completion => {
                    format!("{} after each run has ended", every.period().describe())
                }
                Origin::Clock { anchor, phase_ms } => {
                    let anchor = anchor.as_ref().map_or(String::new(), |a| format!(", counted from {a}"));
                    let phase = match phase_ms {
                        0 => String::new(),
                        ms => format!(", {ms} ms later"),
                    };
                    format!("Every {period}{anchor}{phase}")
                }
            }
        }
        Kind::Interval(interval) => {
            let step = match &interval.step {
                Step::Period(period) => format!("Every {}", period.describe_each()),
                Step::Until(end) => format!("At the distance from {} to {end}", interval.start),
            };
            let times = match interval.repeats {
                None => String::new(),
                Some(1) => ", once".into(),
                Some(n) => format!(", {n} times"),
            };
            format!("{step} from {}{times}", interval.start)
        }
        Kind::Cron(expression) => Cron::new(expression, seed).describe(),
    };
    if let Some(place) = place(&schedule.kind, zone) {
        text.push_str(&format!(", {place}"));
    }
    if !schedule.calendars.is_empty() {
        let names: Vec<String> = schedule.calendars.iter().map(|name| format!("`{name}`")).collect();
        text.push_str(&format!(", on days allowed by {}", and(&names)));
    }
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// `in New York`, `in UTC`, `at UTC+05:30`; nothing where the zone does not matter.
fn place(kind: &Kind, zone: &str) -> Option<String> {
    match kind {
        Kind::Now | Kind::After(_) | Kind::Every(_) => return None,
        Kind::At(moment) if moment.zone_name().is_some() => return None,
        Kind::Interval(interval) if interval.start.zone_name().is_some() => return None,
        Kind::At(_) | Kind::Interval(_) | Kind::Cron(_) => {}
    }
    Some(match zone {
        "UTC" | "Etc/UTC" => "in UTC".into(),
        _ if zone.starts_with(['+', '-']) => format!("at UTC{zone}"),
        _ if zone.starts_with("Etc/") => format!("in {zone}"),
        _ => format!("in {}", city(zone)),
    })
}

fn city(zone: &str) -> String {
    zone.rsplit('/').next().unwrap_or(zone).replace('_', " ")
}

/// The fields of an expression with `H` resolved.
struct Cron<'a> {
    expression: &'a Expression,
    seconds: Values,
    minutes: Values,
    hours: Values,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// The values of a time field.
struct Values {
    bits: u64,
    max: u32,
}

impl Values {
    fn list(&self) -> Vec<u32> {
        bits(self.bits)
    }

    fn is_full(&self) -> bool {
        self.bits.count_ones() == self.max + 1
    }

    /// n, if the values are 0, n, 2n and so on, around the whole field without a seam.
    fn step(&self) -> Option<u32> {
        let list = self.list();
        let step = *list.get(1)?;
        let even = list.iter().enumerate().all(|(index, value)| *value == index as u32 * step);
        (even && (self.max + 1).is_multiple_of(step) && list.len() as u32 * step == self.max + 1 && step > 1)
            .then_some(step)
    }

    /// `minute 5`, `minutes 0, 15 and 30`, `minutes 0 to 29`.
    fn named(&self, unit: &str) -> String {
        let list = self.list();
        match list.as_slice() {
            [one] => format!("{unit} {one}"),
            _ => format!("{unit}s {}", and(&ranges(&list, |v| v.to_string()))),
        }
    }
}

impl<'a> Cron<'a> {
    fn new(expression: &'a Expression, seed: Seed) -> Self {
        Cron {
            expression,
            seconds: Values { bits: expression.seconds.resolve(0, seed), max: 59 },
            minutes: Values { bits: expression.minutes.resolve(1, seed), max: 59 },
            hours: Values { bits: expression.hours.resolve(2, seed), max: 23 },
            days: expression.days.field.resolve(3, seed),
            months: expression.months.resolve(4, seed),
            weekdays: expression.weekdays.field.resolve(5, seed),
        }
    }

    fn describe(&self) -> String {
        let years = self.years();
        let days = self.dates();
        let times = self.times();
        let around_the_clock = self.hours.is_full() || self.hours.step().is_some();
        let days = match (days.as_str(), times.starts_with("Every")) {
            // "Every 15 minutes" already says that it is every day.
            ("every day", _) if around_the_clock => String::new(),
            (_, true) => format!(", {days}"),
            (_, false) => format!(" {days}"),
        };
        format!("{times}{days}{years}")
    }

    fn times(&self) -> String {
        let on_the_minute = self.seconds.bits == 1;
        let (seconds, minutes, hours) = (&self.seconds, &self.minutes, &self.hours);
        let times = seconds.bits.count_ones() * minutes.bits.count_ones() * hours.bits.count_ones();
        if times <= TIMES_LISTED_MAX {
            let mut listed = Vec::new();
            for hour in hours.list() {
                for minute in minutes.list() {
                    for second in seconds.list() {
                        listed.push(clock(hour * 3600 + minute * 60 + second));
                    }
                }
            }
            return format!("At {}", and(&listed));
        }
        let of_hours = match (hours.is_full(), hours.step()) {
            (true, _) => "of every hour".into(),
            (false, Some(step)) => format!("of every {} hour", ordinal(step)),
            (false, None) => format!("of {}", hours.named("hour")),
        };
        if on_the_minute {
            return match (minutes.is_full(), minutes.step(), hours.is_full(), hours.step()) {
                (true, _, true, _) => "Every minute".into(),
                (true, _, false, _) => format!("Every minute {of_hours}"),
                (_, Some(step), true, _) => format!("Every {step} minutes"),
                (_, Some(step), false, _) => format!("Every {step} minutes {of_hours}"),
                _ if minutes.bits == 1 && hours.is_full() => "Every hour, on the hour".into(),
                (_, _, _, Some(step)) if minutes.bits == 1 => {
                    format!("Every {step} hours, on the hour")
                }
                _ => format!("At {} {of_hours}", minutes.named("minute")),
            };
        }
        let of_minutes = match (minutes.is_full(), minutes.step()) {
            (true, _) => "of every minute".into(),
            (false, Some(step)) => format!("of every {} minute", ordinal(step)),
            (false, None) => format!("of {}", minutes.named("minute")),
        };
        let every = match (seconds.is_full(), seconds.step()) {
            (true, _) => "Every second".into(),
            (false, Some(step)) => format!("Every {step} seconds"),
            (false, None) => format!("At {}", seconds.named("second")),
        };
        match (every.starts_with("Every"), minutes.is_full() && hours.is_full()) {
            (true, true) => every,
            _ => format!("{every} {of_minutes} {of_hours}"),
        }
    }

    fn dates(&self) -> String {
        let (days, weekdays) = (&self.expression.days, &self.expression.weekdays);
        let all_months = self.months == 0b1_1111_1111_1110;
        let months = and(&ranges(&bits(self.months), |month| MONTHS[month as usize - 1].into()));
        let of_month = if all_months { "of the month".into() } else { format!("of {months}") };
        let in_months = if all_months { String::new() } else { format!(" in {months}") };
        let by_date = || format!("on {} {of_month}", and(&self.date_names()));
        let by_weekday = || {
            let (plain, special) = self.weekday_names();
            let mut parts = Vec::new();
            if !plain.is_empty() {
                parts.push(plain);
            }
            if !special.is_empty() {
                parts.push(format!("on {} {of_month}", and(&special)));
            }
            match special.is_empty() {
                true => format!("{}{in_months}", parts.join(" and ")),
                false => parts.join(" and "),
            }
        };
        match (days.field.star, weekdays.field.star) {
            (true, true) => format!("every day{in_months}"),
            (false, true) => by_date(),
            (true, false) => by_weekday(),
            (false, false) if weekdays.and => {
                let mut names = match bits(self.weekdays).as_slice() {
                    [] => Vec::new(),
                    [0, 6] => vec!["a Saturday".into(), "Sunday".into()],
                    list if list.len() == 7 => vec!["any day".into()],
                    list => ranges(list, |day| WEEKDAYS[day as usize].into()),
                };
                if let Some(first) = names.first_mut().filter(|first| !first.starts_with("a")) {
                    first.insert_str(0, "a ");
                }
                names.extend(self.weekday_names().1);
                format!("{} when it is {}", by_date(), listed(&names, "or"))
            }
            (false, false) => format!("{}, and also {}", by_date(), by_weekday()),
        }
    }

    fn date_names(&self) -> Vec<String> {
        let days = &self.expression.days;
        let mut names: Vec<String> =
            ranges(&bits(self.days), ordinal).iter().map(|d| format!("the {d}")).collect();
        names.extend(bits(days.last.into()).into_iter().map(|n| match n {
            0 => "the last day".into(),
            1 => "the day before the last".into(),
            n => format!("the {} day before the last", ordinal(n)),
        }));
        names.extend(
            bits(days.nearest.into())
                .into_iter()
                .map(|n| format!("the weekday nearest to the {}", ordinal(n))),
        );
        names.extend(bits(days.nearest_last.into()).into_iter().map(|n| match n {
            0 => "the last weekday".into(),
            1 => "the weekday nearest to the day before the last".into(),
            n => format!("the weekday nearest to the {} day before the last", ordinal(n)),
        }));
        names.extend(bits(days.business.into()).into_iter().map(|n| match n {
            0 => "the last business day".into(),
            n => format!("the {} business day", ordinal(n)),
        }));
        names
    }

    /// The plain weekdays as one phrase, and those that come once a month.
    fn weekday_names(&self) -> (String, Vec<String>) {
        let weekdays = &self.expression.weekdays;
        let name = |day: u32| WEEKDAYS[day as usize].to_string();
        let plain = match bits(self.weekdays).as_slice() {
            [] => String::new(),
            [1, 2, 3, 4, 5] => "from Monday to Friday".into(),
            [0, 6] => "on Saturday and Sunday".into(),
            list if list.len() == 7 => "every day".into(),
            list => format!("on {}", and(&ranges(list, name))),
        };
        let nth = bits(weekdays.nth)
            .into_iter()
            .map(|bit| format!("the {} {}", ordinal(bit % 5 + 1), name(bit / 5)));
        let last = bits(weekdays.last.into()).into_iter().map(|day| format!("the last {}", name(day)));
        (plain, nth.chain(last).collect())
    }

    fn years(&self) -> String {
        let years: Vec<u32> =
            (1970..=2199).filter(|year| self.expression.years.contains(*year as i32)).collect();
        match years.len() {
            230 => String::new(),
            0..=12 => format!(", in {}", and(&ranges(&years, |y| y.to_string()))),
            _ => format!(", in {} of the years to 2199", years.len()),
        }
    }
}

fn bits(set: u64) -> Vec<u32> {
    (0..64).filter(|bit| set >> bit & 1 == 1).collect()
}

/// Runs of three and more as `a to b`.
fn ranges(values: &[u32], name: impl Fn(u32) -> String) -> Vec<String> {
    let mut items = Vec::new();
    let mut rest = values;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|(value, expected)| *value == expected).count();
        match run {
            1 | 2 => items.extend(rest[..run].iter().map(|v| name(*v))),
            _ => items.push(format!("{} to {}", name(first), name(rest[run - 1]))),
        }
        rest = &rest[run..];
    }
    items
}

/// `a`, `a and b`, `a, b and c`.
fn and(items: &[String]) -> String {
    listed(items, "and")
}

fn listed(items: &[String], word: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} {word} {last}", head.join(", ")),
    }
}

fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (1, 11) | (2, 12) | (3, 13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

/// `02:30`, or `02:30:15` when it has seconds.
pub(crate) fn clock(second_of_day: u32) -> String {
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

/// `8 March 2026`.
pub(crate) fn date(at: Wall) -> String {
    let (year, month, day) = date_from_days(split(at).0);
    format!("{day} {} {year}", MONTHS[month as usize - 1])
}
