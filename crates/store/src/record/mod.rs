//! The persisted forms, shared by the stores that write to disk.
//!
//! Jobs and operations are JSON with short names, so that a row can be read with any tool and a field can be added without
//! touching old rows. Runs, of which there are thousands a second, and what their attempts say are bytes behind a form byte. Promise: what was
//! written by any version reads back; what equals the default is not written; the payload keeps every byte it was
//! given with.

mod alert;
mod attempt;
pub(crate) mod bytes;
mod calendar;
mod fate;
mod job;
mod key;
mod limit;
mod node;
mod operation;
mod overlap;
mod papers;
mod policies;
mod run;
mod tenant;
mod worker;

pub use alert::{decode_alarm, decode_alert, encode_alarm, encode_alert};
pub use attempt::{decode_attempts, encode_attempts};
pub use calendar::{decode_calendar, encode_calendar};
pub use fate::{fate_code, fate_of};
pub use job::{PlannedReader, decode_job, encode_job};
pub use key::{decode_key, decode_key_use, encode_key, encode_key_use};
pub use limit::{decode_rule, encode_rule};
pub use node::{decode_attendance, encode_attendance};
pub use operation::{decode_operation, encode_operation};
pub use papers::{decode_papers, encode_papers};
pub use run::{RunHead, decode_run, encode_run};
pub use tenant::{decode_standing, encode_standing};
pub use worker::{decode_about, encode_about};

use jiff::Timestamp;

use crate::error::Error;

/// Times are milliseconds since 1970.
fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

fn timestamp(millis: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(millis).map_err(|_| damaged(format!("{millis} is not a time")))
}

fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged { what: what.into() }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
