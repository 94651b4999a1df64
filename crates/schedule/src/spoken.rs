//! Periods as people say them: `5 minutes`, `every hour`, `1d`.
//!
//! Not a grammar of ours. Read only when nothing else could be, to say what to write instead.

/// A number of units.
pub(crate) struct Spoken {
    count: u64,
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

const UNITS: [(&[&str], Unit); 7] = [
    (&["s", "sec", "secs", "second", "seconds"], Unit::Second),
    (&["m", "min", "mins", "minute", "minutes"], Unit::Minute),
    (&["h", "hr", "hrs", "hour", "hours"], Unit::Hour),
    (&["d", "day", "days"], Unit::Day),
    (&["w", "wk", "week", "weeks"], Unit::Week),
    (&["month", "months"], Unit::Month),
    (&["y", "year", "years"], Unit::Year),
];

impl Spoken {
    /// Reads `5 minutes`, `every 5 minutes`, `every minute`, `5m`; not a unit alone.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let rest = lower.strip_prefix("every ").map(str::trim_start);
        let phrase = rest.unwrap_or(&lower);
        let digits = phrase.bytes().take_while(u8::is_ascii_digit).count();
        let count = match digits {
            0 if rest.is_some() => 1,
            _ => phrase[..digits].parse().ok().filter(|count| (1..=1_000_000).contains(count))?,
        };
        let name = phrase[digits..].trim();
        let (_, unit) = UNITS.iter().find(|(names, _)| names.contains(&name))?;
        Some(Spoken { count, unit: *unit })
    }

    /// Counted in days or longer, which differ in length.
    pub(crate) fn is_in_days(&self) -> bool {
        match self.unit {
            Unit::Second | Unit::Minute | Unit::Hour => false,
            Unit::Day | Unit::Week | Unit::Month | Unit::Year => true,
        }
    }

    /// What to write.
    pub(crate) fn way_out(&self) -> String {
        let count = self.count;
        let cron = |fields: &str, each: &str| format!("`{fields}` for every {each}");
        match (self.unit, count) {
            (Unit::Second, _) => format!("write `@every {count}s`"),
            (Unit::Minute, _) => format!("write `@every {count}m`"),
            (Unit::Hour, _) => format!("write `@every {count}h`"),
            (Unit::Day, 1) => format!("write `@every 24h`, or {}", cron("0 0 * * *", "day")),
            (Unit::Day, _) => {
                format!("write `@every {}h`, or `R/<start>/P{count}D` for calendar days", count * 24)
            }
            (Unit::Week, 1) => format!("write `@every 168h`, or {}", cron("0 0 * * MON", "Monday")),
            (Unit::Week, _) => {
                format!("write `@every {}h`, or `R/<start>/P{count}W` for calendar weeks", count * 168)
            }
            (Unit::Month, 1) => format!("write {}", cron("0 0 1 * *", "month, on its first day")),
            (Unit::Month, _) => format!("write `R/<start>/P{count}M`"),
            (Unit::Year, 1) => format!("write {}", cron("0 0 1 1 *", "year, on its first day")),
            (Unit::Year, _) => format!("write `R/<start>/P{count}Y`"),
        }
    }
}
