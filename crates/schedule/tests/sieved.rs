//! Calendars on any clock, against the plainest reading of them: every bare slot judged by itself.

use std::slice::from_ref;
use std::sync::Arc;

use fastrand::Rng;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use punctual_schedule::calendar::{Calendar, Calendars, Parts};
use punctual_schedule::{Binding, DstNote, Schedule, Timetable, Tzdb, dst};

const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "+13:45",
];

const TEXTS: [&str; 18] = [
    "0 9 * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "0-58/7 2,3 * * *",
    "15,45 */5 1-20 * MON-FRI",
    "0 0 L,15W * *",
    "@every 1h",
    "@every 7m",
    "@every 61m",
    "@every 23h",
    "@every 1001s phase 250ms",
    "@every 100h",
    "R/2026-01-01T02:30/P1D",
    "R/2026-01-01T20:00/P1DT1H",
    "R/2026-01-31T01:30/P1M",
    "R/2026-01-01T00:00Z/PT7H",
    "R300/2026-01-01T00:00:00.5Z/PT50M",
    "R50/2025-11-30T02:30/P1D",
];

#[test]
fn next_previous_and_count_see_what_a_plain_reading_sees() {
    let tzdb = Tzdb::bundled();
    let mut rng = Rng::with_seed(20_261_116);
    let (mut slots_seen, mut excluded_seen, cases) = (0, 0, 3_000);
    for case in 0..cases {
        let text = TEXTS[rng.usize(..TEXTS.len())];
        let zone = ZONES[rng.usize(..ZONES.len())];
        let parts: Vec<Parts> = (0..rng.usize(1..=3)).map(|n| calendar(&mut rng, n)).collect();
        let mut schedule = Schedule::parse(text).unwrap();
        schedule.timezone = zone.into();
        schedule.dst = policy(&mut rng);
        let bare = schedule.timetable(&tzdb, &Binding::default()).unwrap();
        let timetable = bind(&schedule, &parts, &tzdb);
        let from: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let from = from + SignedDuration::from_secs(rng.i64(0..500 * 86_400));
        let to = from + SignedDuration::from_secs(rng.i64(1..60 * 86_400));
        let place =
            || format!("case {case}: {text} in {zone}, {:?}, from {from} to {to}: {parts:#?}", schedule.dst);

        let all: Vec<Timestamp> = bare.upcoming(from).take_while(|slot| *slot < to).collect();
        let is_own = |parts: &Parts| {
            let clock = parts.timezone.as_deref().unwrap_or(zone);
            tzdb.zone(clock).unwrap().is_same_clock(bare.zone())
        };
        if parts.iter().any(is_own) && is_moved(&bare, &all) {
            continue;
        }
        let clocks: Vec<TimeZone> =
            parts.iter().map(|parts| clock(parts.timezone.as_deref().unwrap_or(zone))).collect();
        let is_open =
            |slot: &Timestamp| parts.iter().zip(&clocks).all(|(parts, clock)| allows(parts, *slot, clock));
        let open: Vec<Timestamp> = all.iter().copied().filter(is_open).collect();
        slots_seen += open.len();
        excluded_seen += all.len() - open.len();

        let just_after = from + SignedDuration::from_nanos(1);
        assert_eq!(bare.count(just_after, to), all.len() as u64, "bare count, {}", place());
        assert_eq!(timetable.count(just_after, to), open.len() as u64, "count, {}", place());
        let next: Vec<Timestamp> = timetable.upcoming(from).take_while(|slot| *slot < to).take(200).collect();
        assert_eq!(next, open[..open.len().min(200)], "next, {}", place());
        let mut back = Vec::new();
        let mut at = to;
        while let Some(slot) = timetable.previous_before(at).filter(|slot| *slot > from && back.len() < 200) {
            back.push(slot);
            at = slot;
        }
        let expected: Vec<Timestamp> = open.iter().rev().take(200).copied().collect();
        assert_eq!(back, expected, "previous, {}", place());
    }
    println!("sieved: {cases} schedules, {slots_seen} slots, {excluded_seen} excluded");
    assert!(slots_seen > 20_000 && excluded_seen > 20_000);
}

#[test]
fn shifted_times_are_counted_once_in_gaps_of_any_length() {
    let tzdb = Tzdb::bundled();
    let hours = Parts {
        include_windows: vec!["00:10:20-01:29:40".into(), "02:30:30-03:31".into()],
        ..Parts::default()
    };
    // Liberia's gap was 44 minutes and 30 seconds long, Lord Howe's are half an hour, Nuuk's end at midnight.
    for (zone, around) in [
        ("Africa/Monrovia", "1972-01-07T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T12:00:00Z"),
        ("America/New_York", "2026-03-08T00:00:00Z"),
        ("America/Nuuk", "2026-03-28T12:00:00Z"),
        ("Antarctica/Troll", "2026-03-29T00:00:00Z"),
    ] {
        let from: Timestamp = around.parse().unwrap();
        let to = from + SignedDuration::from_hours(24);
        let foreign = Parts { timezone: Some("Asia/Kathmandu".into()), ..hours.clone() };
        let open = Parts { include_windows: vec!["00:01-23:58".into()], ..foreign.clone() };
        for text in ["0-58 0-58 0-22 * * *", "7,20,45 1-59 1-23 * * *", "0-29 0-29 0,2,22,23 * * SAT"] {
            for calendars in [&[][..], from_ref(&hours), from_ref(&foreign), from_ref(&open)] {
                for gap in [dst::Gap::After, dst::Gap::Shift] {
                    let mut schedule = Schedule::parse(text).unwrap();
                    schedule.timezone = zone.into();
                    schedule.dst.gap = gap;
                    let timetable = bind(&schedule, calendars, &tzdb);
                    let slots = timetable.upcoming(from).take_while(|slot| *slot < to).count();
                    let just_after = from + SignedDuration::from_nanos(1);
                    assert_eq!(timetable.count(just_after, to), slots as u64, "{text} in {zone}");
                }
            }
        }
    }
}

#[test]
fn counts_over_centuries_add_up_from_their_parts() {
    let tzdb = Tzdb::bundled();
    let mut rng = Rng::with_seed(7);
    for _ in 0..300 {
        let text = TEXTS[rng.usize(..TEXTS.len())];
        let parts: Vec<Parts> = (0..rng.usize(1..=3)).map(|n| calendar(&mut rng, n)).collect();
        let mut schedule = Schedule::parse(text).unwrap();
        schedule.timezone = ZONES[rng.usize(..ZONES.len())].into();
        schedule.dst = policy(&mut rng);
        let timetable = bind(&schedule, &parts, &tzdb);
        let mut cuts: Vec<Timestamp> =
            (0..20).map(|_| Timestamp::from_millisecond(rng.i64(0..7_258_118_400_000)).unwrap()).collect();
        cuts.sort_unstable();
        let whole = timetable.count(cuts[0], cuts[19]);
        let sum: u64 = cuts.windows(2).map(|pair| timetable.count(pair[0], pair[1])).sum();
        assert_eq!(whole, sum, "{text} in {}: {parts:#?}", schedule.timezone);
        let (all, ours) =
            (timetable.count(Timestamp::MIN, Timestamp::MAX), timetable.count(cuts[0], cuts[19]));
        let before = timetable.count(Timestamp::MIN, cuts[0]);
        assert_eq!(all, before + ours + timetable.count(cuts[19], Timestamp::MAX), "{text}");
        let first = timetable.next_after(Timestamp::MIN);
        let last = timetable.previous_before(Timestamp::MAX);
        assert_eq!((first.is_some(), last.is_some()), (all > 0, all > 0), "{text}");
        if let (Some(first), Some(last)) = (first, last) {
            assert_eq!(timetable.count(first, last), all - 1, "{text}");
        }
    }
}

#[test]
fn a_slot_that_calendars_let_through_once_in_a_century_is_found() {
    // Two calendars that exclude each other's days, except for one day of 2150.
    let even = Parts {
        timezone: Some("Asia/Tokyo".into()),
        exclude_dates: (1..=12).flat_map(|m| (1..=31).step_by(2).filter_map(move |d| date(m, d))).collect(),
        ..Parts::default()
    };
    let odd = Parts {
        timezone: Some("+09:30".into()),
        exclude_dates: (1..=12).flat_map(|m| (2..=31).step_by(2).filter_map(move |d| date(m, d))).collect(),
        ..Parts::default()
    };
    let tzdb = Tzdb::bundled();
    let from: Timestamp = "1970-01-02T00:00:00Z".parse().unwrap();
    for text in ["0 3 * * *", "@every 24h phase 3h", "R/1970-01-01T03:00Z/P1D", "R/1970-01-01T03:00Z/PT24H"] {
        let schedule = Schedule::parse(text).unwrap();
        assert_eq!(bind(&schedule, &[even.clone(), odd.clone()], &tzdb).next_after(from), None, "{text}");
        let mut odd = odd.clone();
        odd.exclude_dates.retain(|date| date != "06-14");
        for year in 1970..2200 {
            if year != 2150 {
                odd.exclude_dates.push(format!("{year}-06-14"));
            }
        }
        let timetable = bind(&schedule, &[even.clone(), odd], &tzdb);
        let once = Some("2150-06-14T03:00:00Z".parse().unwrap());
        assert_eq!(timetable.next_after(from), once, "{text}");
        assert_eq!(timetable.previous_before("2199-12-30T00:00:00Z".parse().unwrap()), once, "{text}");
    }
}

fn date(month: u32, day: u32) -> Option<String> {
    let text = format!("{month:02}-{day:02}");
    Calendar::new().exclude_date(&text).is_ok().then_some(text)
}

fn bind(schedule: &Schedule, parts: &[Parts], tzdb: &Tzdb) -> Timetable {
    let mut schedule = schedule.clone();
    let mut calendars = Calendars::new();
    for (n, parts) in parts.iter().enumerate() {
        schedule.calendars.push(n.to_string());
        calendars.insert(n.to_string(), Arc::new(Calendar::from_parts(parts).unwrap()));
    }
    schedule.timetable(tzdb, &Binding { calendars: Arc::new(calendars), ..Binding::default() }).unwrap()
}

fn policy(rng: &mut Rng) -> dst::Policy {
    dst::Policy {
        gap: [dst::Gap::After, dst::Gap::Skip, dst::Gap::Shift][rng.usize(..3)],
        overlap: [dst::Overlap::First, dst::Overlap::Both, dst::Overlap::Last][rng.usize(..3)],
    }
}

/// At most two clocks beside the schedule's: the third calendar has none of its own.
fn calendar(rng: &mut Rng, number: usize) -> Parts {
    let clock = |rng: &mut Rng| {
        let hour = rng.u32(0..24);
        format!("{hour:02}:{:02}:{:02}", rng.u32(0..60), [0, 0, 30][rng.usize(..3)])
    };
    let windows = |rng: &mut Rng, most: usize| -> Vec<String> {
        (0..rng.usize(..=most))
            .map(|_| format!("{}-{}", clock(rng), clock(rng)))
            .filter(|w| w[..8] != w[9..])
            .collect()
    };
    let weekdays = |rng: &mut Rng| match rng.u8(..4) {
        0 => vec!["SAT,SUN".to_string()],
        1 => vec!["MON".to_string(), "WED".to_string()],
        _ => Vec::new(),
    };
    let dates = |rng: &mut Rng, most: usize| {
        (0..rng.usize(..=most))
            .map(|_| format!("2026-{:02}-{:02}", rng.u32(1..=12), rng.u32(1..=28)))
            .collect()
    };
    Parts {
        timezone: (number < 2 && rng.bool()).then(|| ZONES[rng.usize(..ZONES.len())].to_string()),
        include_dates: if rng.u8(..4) == 0 { dates(rng, 30) } else { Vec::new() },
        exclude_dates: dates(rng, 30),
        include_weekdays: Vec::new(),
        exclude_weekdays: weekdays(rng),
        include_windows: windows(rng, 4),
        exclude_windows: windows(rng, 3),
    }
}

/// A slot that a gap moved is judged by the time it was meant for if the calendar is on the schedule's
/// clock; those cases are in `calendars.rs`.
fn is_moved(bare: &Timetable, slots: &[Timestamp]) -> bool {
    slots.iter().any(|slot| matches!(bare.dst_note(*slot), Some(DstNote::Moved { .. })))
}

fn clock(name: &str) -> TimeZone {
    match name.strip_prefix('+') {
        Some(offset) => {
            let (hours, minutes) = offset.split_once(':').unwrap();
            let seconds = hours.parse::<i32>().unwrap() * 3600 + minutes.parse::<i32>().unwrap() * 60;
            TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).unwrap())
        }
        None => TimeZoneDatabase::bundled().get(name).unwrap(),
    }
}

/// A calendar, read plainly.
fn allows(parts: &Parts, slot: Timestamp, zone: &TimeZone) -> bool {
    let local = zone.to_datetime(slot);
    let (day, time) = (local.date().to_string(), local.time().strftime("%H:%M:%S").to_string());
    let is_named = |dates: &[String]| dates.iter().any(|date| *date == day || *date == day[5..]);
    let weekday = local.strftime("%a").to_string().to_uppercase();
    let has_weekday = |days: &[String]| days.iter().any(|list| list.split(',').any(|name| name == weekday));
    let by_weekday = if !parts.exclude_weekdays.is_empty() {
        !has_weekday(&parts.exclude_weekdays)
    } else {
        parts.include_dates.is_empty()
    };
    let inside = |window: &String| {
        let (from, to) = window.split_once('-').unwrap();
        let time = time.as_str();
        if from < to { from <= time && time < to } else { from <= time || time < to }
    };
    let day_is_open = !is_named(&parts.exclude_dates) && (is_named(&parts.include_dates) || by_weekday);
    let windows_open = parts.include_windows.is_empty() || parts.include_windows.iter().any(inside);
    day_is_open && windows_open && !parts.exclude_windows.iter().any(inside)
}
