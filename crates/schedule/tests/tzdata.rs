//! A new version of the time zone database: what changes, and nothing else.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use punctual_schedule::{Binding, Code, Schedule, Source, Tzdb};

fn version(name: &str) -> Tzdb {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tzdata").join(name);
    Tzdb::open(Some(&directory)).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_cancelled_clock_change_moves_the_next_slot_once() {
    let (old, new) = (version("2025b"), version("2026f"));
    let mut schedule = Schedule::parse("0 0 * * *").unwrap();
    schedule.timezone = "America/Havana".into();
    let before = schedule.timetable(&old, &Binding::default()).unwrap();
    let after = schedule.timetable(&new, &Binding::default()).unwrap();

    let fired = at("2026-11-01T00:00:00-04:00");
    assert_eq!(before.next_after(fired), Some(at("2026-11-02T00:00:00-05:00")));
    assert_eq!(after.next_after(fired), Some(at("2026-11-02T00:00:00-04:00")));
    // Recomputed from the last slot fired, each day still has one slot and none comes twice.
    let days: Vec<Timestamp> = after.upcoming(fired).take(3).collect();
    assert_eq!(
        days,
        ["2026-11-02T00:00:00-04:00", "2026-11-03T00:00:00-04:00", "2026-11-04T00:00:00-04:00"].map(at)
    );
    // What was due an hour later under the old rules is not a slot of the new ones.
    assert_eq!(after.count(at("2026-11-02T04:00:01Z"), at("2026-11-02T05:00:01Z")), 0);
}

#[test]
fn only_zones_that_differ_from_now_on_are_named() {
    let (old, new) = (version("2025b"), version("2026f"));
    assert_eq!((old.version(), new.version()), (Some("2025b"), Some("2026f")));
    let changes = old.changes_to(&new, at("2026-10-28T00:00:00Z"));
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].zone, "America/Havana");
    assert_eq!(changes[0].from, at("2026-11-01T05:00:00Z"));
    // Once the difference is past, the zone need not be recomputed.
    assert_eq!(old.changes_to(&new, at("2028-01-01T00:00:00Z")), []);
    assert_eq!(new.changes_to(&new, at("1970-01-01T00:00:00Z")), []);
}

#[test]
fn a_database_that_was_read_stays_as_it_was_when_its_files_change() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tzdata");
    let directory = std::env::temp_dir().join(format!("punctual-tzdata-{}", std::process::id()));
    let install = |version: &str| {
        for file in ["tzdata.zi", "America/Havana", "Europe/Paris"] {
            let to = directory.join(file);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(base.join(version).join(file), to).unwrap();
        }
        Tzdb::open(Some(&directory)).unwrap()
    };
    let old = install("2025b");
    old.load_all();
    let new = install("2026f");
    let changes = old.changes_to(&new, at("2026-10-28T00:00:00Z"));
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].zone, "America/Havana");
}

#[test]
fn a_directory_is_taken_at_its_word_and_must_hold_zones() {
    let old = version("2025b");
    assert!(matches!(old.source(), Source::Directory(_)));
    assert_eq!(old.zone("America/New_York").unwrap_err().code(), Code::Timezone);
    for wrong in [
        "/does/not/exist",
        concat!(env!("CARGO_MANIFEST_DIR"), "/src"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    ] {
        let error = Tzdb::open(Some(&PathBuf::from(wrong))).unwrap_err();
        assert_eq!(error.code(), Code::Tzdata);
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

#[test]
fn the_bundled_database_has_a_version_and_every_zone_loads() {
    let tzdb = Tzdb::bundled();
    assert!(tzdb.version().is_some_and(|v| v >= "2026e"), "{:?}", tzdb.version());
    let names = tzdb.names();
    assert!(names.len() > 500, "{}", names.len());
    for name in &names {
        tzdb.zone(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    println!("zones: {} in tzdata {:?}", names.len(), tzdb.version());
}

/// The engine looks at one change of the clock at a time. That is right as long as no two of them
/// since 1970 are closer than the longest gap that is made up for.
#[test]
fn no_two_clock_changes_since_1970_are_within_six_hours() {
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let mut changes = 0;
    for name in database.available() {
        let tz = database.get(name.as_str()).unwrap();
        let mut last: Option<Timestamp> = None;
        for change in tz
            .following(at("1970-01-01T00:00:00Z"))
            .take_while(|c| c.timestamp() < at("2200-01-01T00:00:00Z"))
        {
            let apart = last.map_or(i64::MAX, |last| change.timestamp().as_second() - last.as_second());
            assert!(apart > 6 * 3600, "{}: {:?}", name.as_str(), change.timestamp());
            last = Some(change.timestamp());
            changes += 1;
        }
    }
    println!("clock changes looked at: {changes}");
}
