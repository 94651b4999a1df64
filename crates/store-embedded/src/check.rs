//! Verifies a data directory or a backup: everything that must be true, read from the files alone.
//!
//! Runs while nobody else has the directory open. Reads every row once or twice, in order, and keeps only what it
//! is looking at: memory does not grow with the data; sorting goes to temporary files. Promise: it changes nothing,
//! and whatever is wrong becomes a finding that names the thing and the place, not an end of the check.
//!
//! [`jobs`] walks jobs with their due entries and open runs side by side, [`runs`] walks open runs and history in the
//! order of births, [`births`] holds the index of births against them, [`tables`] looks at the rest.

mod births;
mod heads;
mod jobs;
mod listed;
mod papers;
mod runs;
mod tables;

use std::path::Path;

use jiff::Timestamp;
use punctual_store::Error;
use punctual_store::check::{Checked, FINDINGS_MAX};
use rusqlite::{Connection, OpenFlags};

use crate::directory::{Directory, MANIFEST};
use crate::error::{OpenError, failed};
use crate::schema;

/// Checks a data directory that no process has open, or a backup. `now` decides which jobs have slots to come.
///
/// Refused while a process has it open: it would keep that process from emptying its log. Check a backup instead.
pub fn check(directory: &Path, now: Timestamp) -> Result<Checked, OpenError> {
    let mut checked = Checked::default();
    let held = Directory::take_existing(directory)?;
    let database = held.database();
    if directory.join(MANIFEST).exists() {
        if let Err(error) = crate::backup::verify(directory) {
            checked.find(MANIFEST, error.to_string());
        }
    } else if !held.verify()? {
        let reason = "there is no punctual.db in it".into();
        return Err(OpenError::Unusable { path: directory.into(), reason });
    }
    let damaged =
        |error: rusqlite::Error| OpenError::Damaged { path: database.clone(), reason: error.to_string() };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&database, flags).map_err(damaged)?;
    // What does not fit is sorted in files.
    connection.execute_batch("pragma temp_store = file; pragma cache_size = -65536;").map_err(damaged)?;
    schema::keep_log(&connection).map_err(damaged)?;
    checked.format = schema::verify(&connection, &database)?;
    checked.attempt("punctual.db", |checked| integrity(checked, &connection));
    checked.attempt("meta", |checked| {
        if let Some(note) = crate::transfer::note(&connection)? {
            checked.find("meta", format!("a copy of {} into it is not finished", note.from.name));
        }
        Ok(())
    });
    heads::fill(&mut checked, &connection);
    tables::check(&mut checked, &connection);
    jobs::check(&mut checked, &connection, now);
    runs::check(&mut checked, &connection);
    papers::check(&mut checked, &connection);
    births::check(&mut checked, &connection);
    Ok(checked)
}

/// What SQLite can tell: pages, trees, order, missing and doubled entries of indexes.
fn integrity(checked: &mut Checked, connection: &Connection) -> Result<(), Error> {
    let sql = format!("pragma integrity_check({FINDINGS_MAX})");
    let mut statement = connection.prepare(&sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let verdict: String = row.get(0).map_err(failed)?;
        for line in verdict.lines().filter(|line| *line != "ok" && !line.starts_with("*** in database")) {
            checked.find("punctual.db", line);
        }
    }
    Ok(())
}
