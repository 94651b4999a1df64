//! How long the slowest call takes, over schedules and calendars made to be slow. Prints, never judges: a time
//! says as much about the machine as about the code. The budget is 5 ms a call in a release build.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_schedule::calendar::{Calendar, Calendars, DATES_MAX, OnExcluded, Parts, WINDOWS_MAX};
use punctual_schedule::{Binding, Progress, Schedule, Tzdb, dst};

const TEXTS: [&str; 22] = [
    "* * * * * *",
    "0 9 * * *",
    "0-58 0-58 2 * * *",
    "0-58 1-59 0-22 1-30,L,LW,15W,3B * +1-6,7L,2#3",
    "0 0 31 2 *",
    "0 0 29 2 +MON",
    "59 59 23 31 12 +5#5 2199",
    "*/7,*/11,*/13 */7,*/11,*/13 */5,*/7 L-2,LW,15W,3B,*/5 */5 +1#5,2L,3#4",
    "0 0 1B,2B,3B,4B,5B,6B,7B,8B,9B,LB * *",
    "@every 1s",
    "@every 1001ms",
    "@every 7m13s phase 17ms",
    "@every 24h",
    "@every 86399s",
    "@every 4000h",
    "R/1970-01-01T02:30/P1D",
    "R/1970-01-01T02:30/P1DT1S",
    "R/1970-01-31T02:30/P1M",
    "R/1970-01-31T02:30/P1M1DT0.007S",
    "R/1970-01-01T00:00Z/PT1S",
    "R/1970-01-01T00:00Z/PT1.013S",
    "@every 5m from completion",
];

/// The slowest call of each kind and what it was asked of.
#[derive(Default)]
struct Worst(BTreeMap<&'static str, (Duration, String)>);

impl Worst {
    fn time<T>(&mut self, call: &'static str, what: impl Fn() -> String, mut ask: impl FnMut() -> T) -> T {
        let known = self.0.entry(call).or_default();
        let mut took = Duration::MAX;
        // The best of many where it would be the worst: one call may meet a cold cache or another process.
        for _ in 0..20 {
            let start = Instant::now();
            let answer = black_box(ask());
            took = took.min(start.elapsed());
            if took <= known.0 {
                return answer;
            }
        }
        *known = (took, what());
        ask()
    }
}

#[test]
fn print_the_slowest_calls() {
    let tzdb = Tzdb::bundled();
    tzdb.load_all();
    let mut worst = Worst::default();
    let shift = dst::Policy { gap: dst::Gap::Shift, overlap: dst::Overlap::Both };
    let skip = dst::Policy { gap: dst::Gap::Skip, overlap: dst::Overlap::Last };
    let clocks = [
        ("UTC", dst::Policy::default()),
        ("America/New_York", dst::Policy::default()),
        ("America/New_York", skip),
        ("Africa/Casablanca", shift),
        ("Antarctica/Troll", shift),
    ];
    worst.time("unknown zone", || "Europe/Pariss".into(), || tzdb.zone("Europe/Pariss").unwrap_err());
    let sets = calendar_sets(&mut worst);
    let mut asked = 0;
    for text in TEXTS {
        worst.time("parse", || text.into(), || Schedule::parse(text).unwrap());
        for (zone, policy) in clocks {
            for (name, calendars) in &sets {
                for on_excluded in [OnExcluded::Skip, OnExcluded::Next, OnExcluded::Previous] {
                    let mut schedule = Schedule::parse(text).unwrap();
                    schedule.timezone = zone.into();
                    schedule.dst = policy;
                    schedule.on_excluded = on_excluded;
                    schedule.calendars = calendars.keys().cloned().collect();
                    if calendars.is_empty() && on_excluded != OnExcluded::Skip {
                        continue;
                    }
                    let what = || format!("{text} | {zone} | {policy:?} | {name} | {on_excluded:?}");
                    asked += ask(&mut worst, what, &schedule, calendars, &tzdb);
                }
            }
        }
    }
    for (call, (took, what)) in &worst.0 {
        println!("worst: {call:<16} {:>9.3} ms  {what}", took.as_secs_f64() * 1e3);
    }
    assert!(asked > 1_000, "only {asked} timetables were asked");
}

fn ask(
    worst: &mut Worst,
    what: impl Fn() -> String,
    schedule: &Schedule,
    calendars: &Arc<Calendars>,
    tzdb: &Tzdb,
) -> u32 {
    let binding = Binding { calendars: Arc::clone(calendars), ..Binding::default() };
    let Ok(timetable) = worst.time("timetable", &what, || schedule.timetable(tzdb, &binding)) else {
        return 0;
    };
    let at = |text: &str| -> Timestamp { text.parse().unwrap() };
    let (first, now, last) =
        (at("1970-01-01T00:00:00Z"), at("2026-03-08T06:59:59Z"), at("2199-12-31T23:59:59Z"));
    worst.time("count", &what, || timetable.count(first, last));
    worst.time("count all time", &what, || timetable.count(Timestamp::MIN, Timestamp::MAX));
    for from in [Timestamp::MIN, first, now, last, Timestamp::MAX] {
        let next = worst.time("next_after", &what, || timetable.next_after(from));
        worst.time("previous_before", &what, || timetable.previous_before(from));
        let progress = Progress { fired: 1, last_completion: Some(from) };
        worst.time("next_given", &what, || timetable.next_given(from, progress));
        worst.time("describe", &what, || timetable.describe(from));
        worst.time("warnings", &what, || timetable.warnings(from));
        worst.time("dst_note", &what, || timetable.dst_note(next.unwrap_or(from)));
    }
    1
}

/// As many and as large as they may be.
fn calendar_sets(worst: &mut Worst) -> Vec<(&'static str, Arc<Calendars>)> {
    let windows = |offset: usize| -> Vec<String> {
        (0..WINDOWS_MAX)
            .map(|n| format!("{n:02}:{:02}:01-{n:02}:{:02}:59", offset % 29, 30 + offset % 29))
            .collect()
    };
    // All in the hour that DST leaves out.
    let gap_windows: Vec<String> =
        (0..WINDOWS_MAX).map(|n| format!("02:{:02}:03-02:{:02}:57", 2 * n, 2 * n + 1)).collect();
    let alternate: Vec<String> = (1..=12)
        .flat_map(|month| (1..=31).step_by(2).map(move |day| format!("{month:02}-{day:02}")))
        .filter(|date| Calendar::new().exclude_date(date).is_ok())
        .collect();
    let many: Vec<String> = (0..)
        .map(|n| format!("{}-{:02}-{:02}", 1970 + n / 24 % 230, n % 12 + 1, n / 12 % 2 * 9 + 1 + n % 5))
        .take(DATES_MAX)
        .collect();
    let part = |zone: Option<&str>, windows: Vec<String>, dates: &[String]| Parts {
        timezone: zone.map(str::to_string),
        exclude_dates: dates.to_vec(),
        exclude_weekdays: vec!["SUN".into()],
        include_windows: windows,
        ..Parts::default()
    };
    let foreign = [Some("Australia/Lord_Howe"), Some("Europe/London")];
    let both = |windows: &dyn Fn(usize) -> Vec<String>, dates: &[String]| -> Vec<Parts> {
        (0..8).map(|n| part([None, foreign[0], foreign[1]][n % 3], windows(n), dates)).collect()
    };
    let one = |parts: Parts| vec![parts];
    let sets: Vec<(&'static str, Vec<Parts>)> = vec![
        ("none", Vec::new()),
        ("one", one(part(None, Vec::new(), &many))),
        ("one day in 2150", one(Parts { include_dates: vec!["2150-06-14".into()], ..Parts::default() })),
        ("leap days", one(Parts { include_dates: vec!["02-29".into()], ..Parts::default() })),
        ("nothing", one(Parts { exclude_weekdays: vec!["*".into()], ..Parts::default() })),
        ("own, 8 of them", (0..8).map(|n| part(None, windows(n), &alternate)).collect()),
        ("own gap windows", one(part(None, gap_windows.clone(), &alternate))),
        ("foreign", one(part(foreign[0], windows(3), &[]))),
        ("foreign, alternate days", one(part(foreign[0], windows(3), &alternate))),
        ("three clocks", both(&windows, &[])),
        ("three clocks, many dates", both(&windows, &many)),
        ("three clocks, alternate days", both(&windows, &alternate)),
        ("three clocks, gap windows", both(&|_| gap_windows.clone(), &[])),
        (
            "foreign day in 2150",
            one(Parts {
                timezone: foreign[1].map(str::to_string),
                include_dates: vec!["2150-06-14".into()],
                ..Parts::default()
            }),
        ),
    ];
    sets.into_iter()
        .map(|(name, parts)| {
            let mut calendars = Calendars::new();
            for (n, parts) in parts.iter().enumerate() {
                let calendar =
                    worst.time("from_parts", || name.into(), || Calendar::from_parts(parts).unwrap());
                worst.time("parts", || name.into(), || calendar.parts());
                calendars.insert(format!("c{n}"), Arc::new(calendar));
            }
            (name, Arc::new(calendars))
        })
        .collect()
}
