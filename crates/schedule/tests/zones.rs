//! Where a zone comes from: offsets, the system's files, versions, and zones that only one database has.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::plan::{Plan, at};
use punctual_schedule::{Source, Tzdb, ZoneChange};

/// A directory of zone files, removed in the end.
struct Directory(PathBuf);

impl Directory {
    /// Zones of a version in `testdata/tzdata`.
    fn of(name: &str, version: &str, zones: &[&str]) -> Self {
        let path = std::env::temp_dir().join(format!("punctual-zones-{name}-{}", std::process::id()));
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tzdata").join(version);
        for zone in zones {
            let to = path.join(zone);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from.join(zone), to).unwrap();
        }
        Directory(path)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn open(&self) -> Tzdb {
        Tzdb::open(Some(&self.0)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_offset_counts_hours_and_minutes_the_same_way() {
    for (zone, nine) in [
        ("+05:30", "2026-01-01T03:30Z"),
        ("-05:30", "2026-01-01T14:30Z"),
        ("+0530", "2026-01-01T03:30Z"),
        ("-0930", "2026-01-01T18:30Z"),
        ("-00:30", "2026-01-01T09:30Z"),
        ("-08", "2026-01-01T17:00Z"),
        ("+14", "2025-12-31T19:00Z"),
        ("-18:00", "2026-01-02T03:00Z"),
        ("+18:00", "2025-12-31T15:00Z"),
    ] {
        let plan = Plan::new("0 0 9 1 1 * 2026", zone);
        plan.expect("2025-12-01T00:00Z", &format!("{nine} end"));
    }
}

#[test]
fn a_difference_already_in_force_starts_now() {
    // Havana differs from 1 November 2026 to 14 March 2027, and no clock changes in between.
    let old = Directory::of("before", "2025b", &["America/Havana"]);
    let new = Directory::of("after", "2026f", &["America/Havana"]);
    let (old, new) = (old.open(), new.open());
    for (from, differs) in [
        ("2026-01-01T00:00Z", Some("2026-11-01T05:00Z")),
        ("2026-11-01T05:00Z", Some("2026-11-01T05:00Z")),
        ("2026-12-24T12:00Z", Some("2026-12-24T12:00Z")),
        ("2027-03-14T04:59Z", Some("2027-03-14T04:59Z")),
        ("2027-03-14T05:00Z", None),
    ] {
        for (one, other) in [(&old, &new), (&new, &old)] {
            let found: Vec<_> = one.changes_to(other, at(from)).iter().map(|change| change.from).collect();
            assert_eq!(found, differs.map(at).into_iter().collect::<Vec<_>>(), "from {from}");
        }
    }
}

#[test]
fn a_zone_that_only_one_database_has_is_a_change() {
    let both = Directory::of("both", "2026f", &["America/Havana", "Europe/Paris"]);
    let paris = Directory::of("paris", "2026f", &["Europe/Paris"]);
    let (both, paris) = (both.open(), paris.open());
    let from = at("2026-01-01T00:00Z");
    let lost = [ZoneChange { zone: "America/Havana".into(), from }];
    assert_eq!(both.changes_to(&paris, from), lost);
    assert_eq!(paris.changes_to(&both, from), lost);
    assert_eq!(paris.changes_to(&paris, from), []);
}

#[test]
fn the_version_is_read_from_whichever_file_has_it() {
    let directory = Directory::of("version", "2026f", &["Europe/Paris"]);
    assert_eq!(directory.open().version(), None);
    // From the least to the most trusted: each file stands above the ones before.
    for (file, text, version) in [
        ("version", "2026c\n", "2026c"),
        ("+VERSION", "2026d\n", "2026d"),
        ("tzdata.zi", "# version 2026e\n# This zic input file is in the public domain.\n", "2026e"),
    ] {
        directory.write(file, text);
        assert_eq!(directory.open().version(), Some(version), "{file}");
    }
    directory.write("tzdata.zi", "R d 1916 o - Jun 14 23s 1 S\n");
    assert_eq!(directory.open().version(), Some("2026d"), "a tzdata.zi that does not say");
}

#[test]
fn without_a_directory_the_systems_database_is_used_where_there_is_one() {
    let opened = Tzdb::open(None).unwrap();
    match Tzdb::system() {
        Some(system) => {
            assert!(matches!(opened.source(), Source::System(_)), "{:?}", opened.source());
            assert_eq!(opened.source(), system.source());
            assert_eq!(opened.version(), system.version());
        }
        None => assert_eq!(opened.source(), &Source::Bundled),
    }
    // What the system leaves out comes from the binary.
    for name in Tzdb::bundled().names() {
        opened.zone(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
