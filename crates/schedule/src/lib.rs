//! When a job is due.
//!
//! Text, zone and instant in; slots out. Pure and synchronous: the only outside it touches is the
//! time zone database. Read in this order: [`Schedule`] is what a user registers, [`Timetable`]
//! is a schedule bound to a job and a database and answers every question, [`dst`] decides what
//! happens to wall times that do not exist or exist twice.
//!
//! ```
//! use punctual_schedule::{Binding, Schedule, Tzdb};
//!
//! let mut schedule = Schedule::parse("30 2 * * *")?;
//! schedule.timezone = "America/New_York".into();
//! let timetable = schedule.timetable(&Tzdb::bundled(), &Binding::default())?;
//!
//! // On 8 March 2026 the clock jumps from 02:00 to 03:00: the slot is right after the gap.
//! let slot = timetable.next_after("2026-03-07T12:00:00Z".parse()?);
//! assert_eq!(slot, Some("2026-03-08T03:00:00-04:00".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod calendar;
pub mod cron;
pub mod dst;
pub mod every;
pub mod interval;

mod civil;
mod dayset;
mod describe;
mod error;
mod explain;
mod filter;
mod length;
mod moment;
mod period;
mod schedule;
mod seed;
mod sieve;
mod spoken;
mod timetable;
mod tzdb;
mod zone;

pub use error::{Code, Error};
pub use explain::DstNote;
pub use length::length;
pub use moment::Moment;
pub use period::Period;
pub use schedule::{Bounds, Kind, Schedule};
pub use seed::Seed;
pub use timetable::{Binding, Nature, Progress, Timetable};
pub use tzdb::{Source, Tzdb, ZoneChange};
pub use zone::Zone;

/// No schedule needs more text; a longer one is refused before it is read.
pub const TEXT_MAX: usize = 256;

/// Refuses at once what no schedule can contain, so that parsers see short printable ASCII.
fn check_text(text: &str) -> Result<(), Error> {
    if text.len() > TEXT_MAX {
        return Err(Error::new(Code::TooLong, format!("{} bytes are too long for a schedule", text.len()))
            .hint(format!("a schedule has at most {TEXT_MAX} bytes")));
    }
    for (at, character) in text.char_indices() {
        if character == '\t' || (' '..='~').contains(&character) {
            continue;
        }
        let error = match character {
            '\0' => Error::new(Code::BadCharacter, "there is a NUL byte"),
            c if c.is_numeric() => {
                Error::new(Code::BadCharacter, format!("`{c}` is not one of the digits 0 to 9"))
                    .hint("write plain ASCII digits")
            }
            c if c.is_control() => {
                Error::new(Code::BadCharacter, format!("there is a control character U+{:04X}", c as u32))
                    .hint("write the schedule on one line")
            }
            c => {
                Error::new(Code::BadCharacter, format!("`{c}` has no meaning here")).hint("write plain ASCII")
            }
        };
        return Err(error.at(at..at + character.len_utf8()));
    }
    Ok(())
}
