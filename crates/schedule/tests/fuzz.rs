//! The parsers against garbage: no panic, short errors, and what is read prints and reads again.
//!
//! A short random run with every test run; `cargo bolero test` drives the same targets with a
//! coverage-guided fuzzer for as long as one likes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bolero::check;
use punctual_schedule::cron::Dialect;
use punctual_schedule::{Binding, Kind, Schedule, Timetable, Tzdb};

/// Pieces of every grammar, so that random choices often make almost valid texts.
const PIECES: [&str; 64] = [
    "0",
    "1",
    "5",
    "7",
    "15",
    "23",
    "29",
    "30",
    "31",
    "59",
    "60",
    "99",
    "2026",
    "2199",
    "*",
    "*/",
    "/",
    "-",
    ",",
    " ",
    " ",
    " ",
    " ",
    "?",
    "L",
    "LW",
    "L-",
    "W",
    "B",
    "#",
    "+",
    "H",
    "H(",
    ")",
    "(",
    "MON",
    "fri",
    "JAN",
    "dec",
    "@every ",
    "@at ",
    "@after ",
    "@daily",
    "@now",
    "R",
    "R5/",
    "P",
    "PT",
    "T",
    "Z",
    ":",
    "D",
    "M",
    "S",
    "Y",
    "[",
    "]",
    "Europe/Paris",
    " phase ",
    " anchor ",
    " from completion",
    "\0",
    "\u{663}",
    "2026-03-08T02:30",
];

#[test]
fn random_bytes_never_panic() {
    check!().with_iterations(50_000).for_each(|bytes: &[u8]| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            read_in_every_dialect(text);
        }
    });
}

#[test]
fn random_pieces_of_the_grammar_never_panic_and_print_what_they_read() {
    let tzdb = Tzdb::bundled();
    let read = AtomicU32::new(0);
    check!().with_iterations(100_000).with_max_len(40).for_each(|bytes: &[u8]| {
        let text: String = bytes.iter().map(|b| PIECES[usize::from(*b) % PIECES.len()]).collect();
        for schedule in read_in_every_dialect(&text) {
            read.fetch_add(1, Relaxed);
            let Ok(timetable) = schedule.timetable(&tzdb, &Binding::default()) else {
                continue;
            };
            ask_everything(&timetable);
        }
    });
    println!("fuzz: {} schedules read from random pieces", read.load(Relaxed));
    assert!(read.load(Relaxed) > 20, "the pieces make too few schedules: {}", read.load(Relaxed));
}

#[test]
fn random_fields_of_valid_items_read_and_print_the_same() {
    const TIME: [&str; 12] = ["*", "*/5", "*/7", "0", "1", "3", "4-9", "2-12/3", "5/2", "H", "H/3", "H(1-5)"];
    const DAY: [&str; 12] = ["*", "*/3", "1", "29-31", "5/4", "H", "L", "L-3", "LW", "3W", "2B", "LB"];
    const MONTH: [&str; 12] =
        ["*", "*", "*/5", "1", "2", "4-9", "2-12/3", "JAN", "Dec", "3-5", "H", "H(1-6)/2"];
    const WEEKDAY: [&str; 12] =
        ["*", "?", "1", "7", "1-5", "FRI-SUN", "*/2", "1#2", "5#5", "5L", "MON#L", "H"];
    const YEAR: [&str; 12] = [
        "*",
        "2026",
        "2030-2040",
        "*/4",
        "1970",
        "2199",
        "2026/7",
        "2100-2199/9",
        "2027",
        "2028",
        "*/9",
        "*",
    ];
    let tzdb = Tzdb::bundled();
    let read = AtomicU32::new(0);
    check!().with_iterations(100_000).with_max_len(24).for_each(|bytes: &[u8]| {
        let mut bytes = bytes.iter().map(|b| usize::from(*b)).chain(std::iter::repeat(0));
        let mut byte = || bytes.next().unwrap();
        let pools: &[&[&str; 12]] = match byte() % 3 {
            0 => &[&TIME, &TIME, &DAY, &MONTH, &WEEKDAY],
            1 => &[&TIME, &TIME, &TIME, &DAY, &MONTH, &WEEKDAY],
            _ => &[&TIME, &TIME, &TIME, &DAY, &MONTH, &WEEKDAY, &YEAR],
        };
        let fields: Vec<String> = pools
            .iter()
            .map(|pool| {
                let items: Vec<&str> = (0..=byte() % 3).map(|_| pool[byte() % 12]).collect();
                items.join(",")
            })
            .collect();
        for schedule in read_in_every_dialect(&fields.join(" ")) {
            read.fetch_add(1, Relaxed);
            ask_everything(&schedule.timetable(&tzdb, &Binding::default()).unwrap());
        }
    });
    println!("fuzz: {} schedules read from random fields", read.load(Relaxed));
    assert!(read.load(Relaxed) > 10_000, "the items make too few schedules: {}", read.load(Relaxed));
}

#[test]
fn random_schedules_that_are_not_cron_read_and_print_the_same() {
    const DATES: [&str; 8] = [
        "2026-03-08",
        "2026-11-01",
        "1970-01-01",
        "2199-12-31",
        "2024-02-29",
        "2026-01-31",
        "2150-06-15",
        "2026-02-30", // No such day.
    ];
    const TIMES: [&str; 8] =
        ["T02:30", "T00:00:00", "T23:59:59.999", "t01:30:15.5", "T02:30:60", "T12", " 18:00", "T24:00"];
    const CLOCKS: [&str; 10] = [
        "",
        "Z",
        "z",
        "+05:30",
        "-10:00",
        "[Europe/Paris]",
        "[america/new_york]",
        "Z[UTC]",
        "+01:00[+01:00]",
        "[Mars/Phobos]",
    ];
    const EXACT: [&str; 12] = [
        "90s",
        "1h30m",
        "500ms",
        "PT5S",
        "PT1.5S",
        "PT36H",
        "pt1h",
        "2 hours 5 minutes",
        "1h 1s",
        "PT1H0.007S",
        "1d",
        "0s",
    ];
    const PERIODS: [&str; 12] = [
        "P1D",
        "P1M",
        "P1Y2M3DT4H5M6.007S",
        "P2W",
        "PT24H",
        "P1DT0.5S",
        "p1m1d",
        "P230Y",
        "PT1S",
        "PT0.5S",
        "P0D",
        "P13M",
    ];
    let tzdb = Tzdb::bundled();
    let read: [AtomicU32; 5] = Default::default();
    check!().with_iterations(60_000).with_max_len(24).for_each(|bytes: &[u8]| {
        let mut bytes = bytes.iter().map(|b| usize::from(*b)).chain(std::iter::repeat(0));
        let mut byte = || bytes.next().unwrap();
        let moment = |byte: &mut dyn FnMut() -> usize| {
            format!("{}{}{}", DATES[byte() % 8], TIMES[byte() % 8], CLOCKS[byte() % 10])
        };
        let text = match byte() % 8 {
            0 => moment(&mut byte),
            1 => format!("@at {}", moment(&mut byte)),
            2 => {
                format!("@after {}", if byte() % 2 == 0 { EXACT[byte() % 12] } else { PERIODS[byte() % 12] })
            }
            3 => format!("@every {}", EXACT[byte() % 12]),
            4 => {
                let mut text = format!("@EVERY  {}", EXACT[byte() % 12]);
                for _ in 0..byte() % 3 {
                    text += &match byte() % 5 {
                        0 | 1 => format!(" phase {}", EXACT[byte() % 7]),
                        2 | 3 => format!(" Anchor {}", moment(&mut byte)),
                        _ => " from completion".into(),
                    };
                }
                text
            }
            5 => format!("rate({} {})", byte() % 9, ["minutes", "hour", "days"][byte() % 3]),
            _ => {
                let repeats = ["", "1", "5", "999999999999", "0"][byte() % 5];
                let start = moment(&mut byte);
                let step = if byte() % 4 == 0 { moment(&mut byte) } else { PERIODS[byte() % 12].into() };
                format!("R{repeats}/{start}/{step}")
            }
        };
        for schedule in read_in_every_dialect(&text) {
            let kind = match &schedule.kind {
                Kind::At(_) => 0,
                Kind::After(_) => 1,
                Kind::Every(_) => 2,
                Kind::Interval(_) => 3,
                Kind::Now | Kind::Cron(_) => 4,
            };
            read[kind].fetch_add(1, Relaxed);
            if let Ok(timetable) = schedule.timetable(&tzdb, &Binding::default()) {
                ask_everything(&timetable);
            }
        }
    });
    let read = read.map(AtomicU32::into_inner);
    println!("fuzz: {read:?} schedules of at, after, every and interval read and printed");
    assert!(read[..4].iter().all(|count| *count > 2_000), "too few of a kind: {read:?}");
}

/// What could be read. Errors must be short, point into the text and say something.
fn read_in_every_dialect(text: &str) -> Vec<Schedule> {
    let mut read = Vec::new();
    for dialect in [Dialect::Standard, Dialect::Quartz, Dialect::Aws] {
        match Schedule::parse_dialect(text, dialect) {
            Ok(schedule) => {
                let printed = schedule.to_string();
                let again =
                    Schedule::parse(&printed).unwrap_or_else(|e| panic!("{text:?} -> {printed:?}: {e}"));
                assert_eq!(again, schedule, "{text:?} -> {printed:?}");
                assert_eq!(again.to_string(), printed, "{text:?}");
                read.push(schedule);
            }
            Err(error) => {
                assert!(error.to_string().len() < 1_000, "{text:?}: {error}");
                if let Some(span) = error.span() {
                    assert!(span.start <= span.end && span.end <= text.len() + 1, "{text:?}: {span:?}");
                }
                error.caret(text);
            }
        }
    }
    read
}

/// Every question once, in a zone with DST and from odd instants.
fn ask_everything(timetable: &Timetable) {
    for from in ["1970-01-01T00:00:00Z", "2026-03-08T06:59:59.999Z", "2199-12-31T23:59:59Z"] {
        let from = from.parse().unwrap();
        let next = timetable.next_after(from);
        assert!(next.is_none_or(|next| next > from));
        assert!(timetable.previous_before(from).is_none_or(|previous| previous < from));
        timetable.describe(from);
        timetable.warnings(from);
        if let Some(next) = next {
            timetable.dst_note(next);
            assert_eq!(
                timetable.previous_before(next).and_then(|p| timetable.next_after(p)).unwrap_or(next),
                next
            );
        }
    }
}
