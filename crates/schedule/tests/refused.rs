//! What is refused, and whether the message names the field, the place and the way out.

use punctual_schedule::cron::Dialect;
use punctual_schedule::{Binding, Code, Schedule, Tzdb};

#[test]
fn every_error_case_names_the_field_the_position_and_the_way_out() {
    let rows: Vec<&str> =
        include_str!("../testdata/errors.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for row in &rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        let [text, code, field, position, part] = columns[..] else { panic!("columns of {row}") };
        let error = match Schedule::parse(text) {
            Err(error) => error,
            Ok(schedule) => panic!("`{text}` was read as `{schedule}`"),
        };
        let message = error.to_string();
        assert_eq!(error.code().as_str(), code, "{row}\n{message}");
        assert_eq!(error.field_name().unwrap_or("-"), field, "{row}\n{message}");
        let shown = error.span().map_or("-".into(), |span| (span.start + 1).to_string());
        assert_eq!(shown, position, "{row}\n{message}");
        assert!(message.contains(part), "{row}\n{message}");
        assert!(error.way_out().is_some(), "no way out: {message}");
        assert_eq!(error.caret(text).is_some(), position != "-", "{row}");
    }
    println!("errors: {} rows", rows.len());
}

#[test]
fn text_that_no_schedule_contains_is_refused_at_once() {
    let megabyte = "x".repeat(1 << 20);
    let cases = [
        ("0 9 * *\0 *", Code::BadCharacter),
        ("\u{663} 9 * * *", Code::BadCharacter),
        ("\u{ff11} 9 * * *", Code::BadCharacter),
        ("0 9 * *\n *", Code::BadCharacter),
        ("0\u{a0}9 * * *", Code::BadCharacter),
        (&megabyte, Code::TooLong),
        (&megabyte[..257], Code::TooLong),
        ("", Code::Empty),
        ("   ", Code::Empty),
    ];
    for (text, code) in cases {
        let error = Schedule::parse(text).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().len() < 200, "the message repeats the garbage");
    }
    // The same bytes behind every word that starts another grammar.
    for prefix in ["@every ", "@at ", "@after ", "R/", "R5/2026-01-01T00:00Z/", "PT"] {
        assert_eq!(Schedule::parse(&format!("{prefix}{megabyte}")).unwrap_err().code(), Code::TooLong);
        assert!(Schedule::parse(&format!("{prefix}\u{663}")).is_err());
    }
}

#[test]
fn zones_are_named_in_full_or_refused_with_the_way_out() {
    let tzdb = Tzdb::bundled();
    let refusals = [
        ("Mars/Phobos", "IANA name"),
        ("EST", "America/New_York"),
        ("ist", "Asia/Kolkata"),
        ("CET", "Europe/Paris"),
        ("New York", "America/New_York"),
        ("america/new york", "America/New_York"),
        ("Europe/Pars", "Europe/Paris"),
        ("", "IANA name"),
        ("+25:00", "18 hours"),
        ("+18:59", "18 hours"),
        ("+5", "+05:30"),
        ("right/UTC", "IANA name"),
        ("Localtime", "IANA name"),
        ("FACTORY", "IANA name"),
        ("etc/unknown", "IANA name"),
        ("SAST", "IANA name"),
        ("Europe/Paris\0", "Europe/Paris"),
        (&"x".repeat(1 << 20), "IANA name"),
    ];
    for (name, part) in refusals {
        let error = tzdb.zone(name).unwrap_err();
        assert_eq!(error.code(), Code::Timezone, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    for name in [
        "UTC",
        "Etc/UTC",
        "GMT",
        "Europe/Paris",
        "europe/paris",
        "US/Eastern",
        "Asia/Calcutta",
        "+05:30",
        "-08",
        "+0530",
        "EST5EDT",
        "Etc/GMT+5",
    ] {
        tzdb.zone(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(tzdb.zone("europe/paris").unwrap().name(), "Europe/Paris");
    let same = |a: &str, b: &str| tzdb.zone(a).unwrap().is_same_clock(&tzdb.zone(b).unwrap());
    assert!(same("US/Eastern", "America/New_York"));
    assert!(!same("Europe/Paris", "Europe/London"));
}

#[test]
fn impossible_dates_parse_but_a_registration_refuses_them() {
    let tzdb = Tzdb::bundled();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    for text in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 0 1 1 * 1999",
        "0 0 31 6 +MON",
        "0 0 L-30 2 *",
        "0 0 * 2 1#5 ",
    ] {
        let schedule = Schedule::parse(text).unwrap();
        let timetable = schedule.timetable(&tzdb, &Binding::default()).unwrap();
        let first = timetable.must_fire_after(now);
        if text.contains("1#5") {
            // A fifth Monday in February needs a leap year that starts on one: rare, not never.
            assert_eq!(first.unwrap(), "2044-02-29T00:00:00Z".parse().unwrap());
            continue;
        }
        assert_eq!(first.unwrap_err().code(), Code::NeverFires, "{text}");
        assert_eq!(
            timetable.previous_before("2199-12-31T00:00:00Z".parse().unwrap()).is_some(),
            text.contains("1999")
        );
        assert!(timetable.warnings(now).iter().any(|w| w.starts_with("never fires")), "{text}");
    }
}

#[test]
fn dialects_never_guess() {
    let quartz = |text| Schedule::parse_dialect(text, Dialect::Quartz).unwrap_err().to_string();
    let aws = |text| Schedule::parse_dialect(text, Dialect::Aws).unwrap_err().to_string();
    assert!(quartz("0 9 * * ?").contains("6 (seconds minute"));
    assert!(quartz("0 0 9 1 * MON").contains("must be `?`"));
    assert!(quartz("0 0 9 ? * ?").contains("both day fields are `?`"));
    assert!(quartz("0 0 9 ? * 0").contains("Sunday is 1"));
    assert!(quartz("0 0 9 ? * 8").contains("between 1 and 7"));
    assert!(quartz("0 0 9 ? * +MON").contains("our own sign"));
    assert!(quartz("0 H 9 ? * MON").contains("not a minute"));
    assert!(quartz("0 0 12 * * ? 2030-2026").contains("runs backwards"));
    assert!(quartz("@daily").contains("leave the dialect out"));
    assert!(aws("0 9 * * MON").contains("year"));
    assert!(aws("rate(5 fortnights)").contains("rate(5 minutes)"));
    assert!(aws("rate(0 minutes)").contains("not a rate"));
    let renumbered = Schedule::parse_dialect("0 0 9 ? * 1-5", Dialect::Quartz).unwrap();
    let timetable = renumbered.timetable(&Tzdb::bundled(), &Binding::default()).unwrap();
    let warnings = timetable.warnings("2026-01-01T00:00:00Z".parse().unwrap());
    assert!(warnings[0].contains("SUN,MON,TUE,WED,THU"), "{warnings:?}");
}

#[test]
fn what_is_found_wrong_when_binding_points_into_the_text() {
    let tzdb = Tzdb::bundled();
    for (text, pointed, code) in [
        ("2026-12-24T18:00[Europe/Pari]", "Europe/Pari", Code::Timezone),
        ("  @at 2026-12-24T18:00[Mars/Phobos]", "Mars/Phobos", Code::Timezone),
        ("R5/2026-01-31T09:00[EST]/P1M", "EST", Code::Timezone),
        ("R/2026-01-31T09:00Z/2026-02-01T09:00[Mars/Phobos]", "Mars/Phobos", Code::Timezone),
        ("@every 1h anchor 2026-01-01T00:00[Mars/Phobos]", "Mars/Phobos", Code::Timezone),
        ("@at 2026-07-24T18:00+01:00[Europe/Paris]", "2026-07-24T18:00+01:00[Europe/Paris]", Code::Conflict),
        (
            "R/2026-07-24T18:00+01:00[Europe/Paris]/P1D",
            "2026-07-24T18:00+01:00[Europe/Paris]",
            Code::Conflict,
        ),
    ] {
        let error = Schedule::parse(text).unwrap().timetable(&tzdb, &Binding::default()).unwrap_err();
        assert_eq!(error.code(), code, "{text}: {error}");
        assert_eq!(error.span().map(|span| &text[span]), Some(pointed), "{text}: {error}");
    }
    // The zone beside the text has no place in it.
    let mut schedule = Schedule::parse("2026-12-24T18:00").unwrap();
    schedule.timezone = "Mars/Phobos".into();
    assert_eq!(schedule.timetable(&tzdb, &Binding::default()).unwrap_err().span(), None);
}
