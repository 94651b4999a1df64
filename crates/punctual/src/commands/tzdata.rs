//! Which time zone database a command uses.

use std::path::Path;

use punctual_schedule::Tzdb;

use crate::failure::Failure;

/// The one that is named: a directory, or `bundled` for the copy inside the binary; else the system's.
pub(crate) fn open(named: Option<&Path>) -> Result<Tzdb, Failure> {
    match named {
        Some(word) if word.as_os_str() == "bundled" => Ok(Tzdb::bundled()),
        directory => Tzdb::open(directory).map_err(|error| Failure::Input(error.to_string())),
    }
}
