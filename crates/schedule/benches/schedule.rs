//! How long the questions take, and croner beside us.
//!
//! `cargo bench -p punctual-schedule`: first percentiles over every row of the table, then divan's
//! comparison on the expressions both can do.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use divan::Bencher;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{Binding, Schedule, Timetable, Tzdb};

fn main() {
    report();
    divan::main();
}

/// Expressions and zones that both libraries answer.
const COMPARED: [(&str, &str); 5] = [
    ("0 9 * * *", "America/New_York"),
    ("0 0 29 2 *", "UTC"),
    ("0 0 L * *", "UTC"),
    ("30 2 * * *", "America/New_York"),
    ("*/15 * * * *", "Europe/Paris"),
];

const NEVER: [&str; 3] = ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 6 +MON"];

/// Texts that make the parser and the searches work hardest.
const HARDEST: [&str; 6] = [
    "0 0 29 2 +MON",
    "59 59 23 31 12 +5#5 2199",
    "*/7,*/11,*/13 */7,*/11,*/13 */5,*/7 L-2,LW,15W,3B,*/5 */5 +1#5,2L,3#4",
    "0-58 0-58 2 * * *",
    "1,3,7,11,13,17,19,23,29,31,37,41,43,47,53,59 1,3,7,11,13,17,19,23,29,31,37,41,43,47,53,59 2 * * *",
    "0 0 31 2,4,6,9,11 +1,2,3,4,5",
];

fn timetable(tzdb: &Tzdb, text: &str, zone: &str) -> Timetable {
    let mut schedule = Schedule::parse(text).unwrap();
    schedule.timezone = zone.into();
    schedule.timetable(tzdb, &Binding::default()).unwrap()
}

/// Instants over four years, so that DST and leap days come up.
fn instants() -> Vec<Timestamp> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    (0..1_000).map(|n| start + SignedDuration::from_secs(n * 126_227)).collect()
}

fn report() {
    let tzdb = Tzdb::bundled();
    let mut worst = Duration::ZERO;
    let mut all = Vec::new();
    let table = include_str!("../testdata/table.txt").lines().filter(|line| !line.starts_with('#'));
    for row in table {
        let columns: Vec<&str> = row.split(" | ").collect();
        let timetable = timetable(&tzdb, columns[0], columns[1]);
        let times = measure(&instants(), |at| timetable.next_after(at));
        worst = worst.max(percentile(&times, 0.99));
        all.extend(times);
    }
    all.sort_unstable();
    line("next_after, table, all rows", &all);
    println!("next_after, table, worst row's p99 {worst:>10.1?}");

    let never = instants();
    let mut times = Vec::new();
    for text in NEVER {
        let timetable = timetable(&tzdb, text, "America/New_York");
        times.extend(measure(&never, |at| timetable.next_after(at)));
    }
    line("next_after, never fires", &times);

    let texts: Vec<&str> = COMPARED.iter().map(|(text, _)| *text).chain(NEVER).chain(HARDEST).collect();
    let times: Vec<Duration> =
        texts.iter().flat_map(|text| measure(&instants()[..200], |_| Schedule::parse(text))).collect();
    line("parse", &times);

    let (from, to) = ("1970-01-01T00:00:00Z".parse().unwrap(), "2199-12-31T23:59:59Z".parse().unwrap());
    let mut asked = Vec::new();
    let mut counted = Vec::new();
    for text in HARDEST.into_iter().chain(NEVER) {
        for zone in ["UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe"] {
            let timetable = timetable(&tzdb, text, zone);
            asked.extend(measure(&instants()[..100], |at| {
                (timetable.next_after(at), timetable.previous_before(at))
            }));
            counted.extend(measure(&instants()[..10], |_| timetable.count(from, to)));
        }
    }
    line("next_after + previous_before, hardest", &asked);
    line("count 1970 to 2199, hardest", &counted);

    let mut loads = Vec::new();
    for name in Tzdb::bundled().names() {
        let tzdb = Tzdb::bundled();
        let start = Instant::now();
        black_box(tzdb.zone(&name).unwrap());
        loads.push(start.elapsed());
    }
    line("load a zone", &loads);
    println!();
}

fn measure<T>(instants: &[Timestamp], mut ask: impl FnMut(Timestamp) -> T) -> Vec<Duration> {
    for at in instants {
        black_box(ask(*at)); // Warm.
    }
    instants
        .iter()
        .map(|at| {
            let start = Instant::now();
            black_box(ask(black_box(*at)));
            start.elapsed()
        })
        .collect()
}

fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn line(what: &str, times: &[Duration]) {
    println!(
        "{what:<40} p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}  ({} calls)",
        percentile(times, 0.5),
        percentile(times, 0.99),
        percentile(times, 1.0),
        times.len()
    );
}

#[divan::bench(args = 0..COMPARED.len())]
fn next_punctual(bencher: Bencher<'_, '_>, case: usize) {
    let (text, zone) = COMPARED[case];
    let timetable = timetable(&Tzdb::bundled(), text, zone);
    let instants = instants();
    let mut turn = instants.iter().cycle();
    bencher.bench_local(|| timetable.next_after(black_box(*turn.next().unwrap())));
}

#[divan::bench(args = 0..COMPARED.len())]
fn next_croner(bencher: Bencher<'_, '_>, case: usize) {
    let (text, zone) = COMPARED[case];
    let cron: croner::Cron = text.parse().unwrap();
    let tz = TimeZone::get(zone).unwrap();
    let instants: Vec<jiff::Zoned> = instants().iter().map(|at| at.to_zoned(tz.clone())).collect();
    let mut turn = instants.iter().cycle();
    bencher.bench_local(|| cron.find_next_occurrence(black_box(turn.next().unwrap()), false).unwrap());
}

#[divan::bench(args = 0..COMPARED.len())]
fn parse_punctual(bencher: Bencher<'_, '_>, case: usize) {
    bencher.bench_local(|| Schedule::parse(black_box(COMPARED[case].0)).unwrap());
}

#[divan::bench(args = 0..COMPARED.len())]
fn parse_croner(bencher: Bencher<'_, '_>, case: usize) {
    bencher.bench_local(|| black_box(COMPARED[case].0).parse::<croner::Cron>().unwrap());
}
