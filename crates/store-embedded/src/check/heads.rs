//! What open runs say about themselves, in a temporary table: their jobs, their lines and their order ask for it.

use punctual_domain::run::RunState;
use punctual_store::{Error, line_of};
use rusqlite::{Connection, params};

use super::Checked;
use crate::error::failed;
use crate::row::{self, COLUMNS, millis};
use crate::waits;

/// Fills `temp.heads`. A run that cannot be read is not in it, and is found where runs are walked.
pub(super) fn fill(checked: &mut Checked, connection: &Connection) {
    checked.attempt("open_runs", |_| collect(connection));
}

fn collect(connection: &Connection) -> Result<(), Error> {
    connection
        .execute_batch(
            "create temp table heads (seq integer primary key, job blob not null, version integer not null, \
             tenant integer not null, is_running integer not null, available_at integer not null, \
             queue text not null, shard integer not null, lapses_after integer, waits_on integer, scheduled_for integer, \
             lane integer not null, kind integer not null)",
        )
        .map_err(failed)?;
    let transaction = connection.unchecked_transaction().map_err(failed)?;
    let mut insert = transaction
        .prepare("insert into temp.heads values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)")
        .map_err(failed)?;
    super::tables::each(connection, &format!("select {COLUMNS} from open_runs order by seq"), |row| {
        let Ok(entry) = row::read(row) else { return Ok(()) };
        let run = entry.run;
        insert
            .execute(params![
                run.sequence.as_i64(),
                run.job.as_bytes(),
                run.version.0,
                run.tenant.0,
                matches!(run.state, RunState::Running(_)),
                millis(run.available_at),
                &*line_of(&run),
                run.job.shard().0,
                run.lapses_after().map(millis),
                run.next_limit().filter(|_| run.is_limited()).map(|limited| limited.key.0 as i64),
                millis(run.scheduled_for),
                run.lane.rank(),
                waits::kind(&run)
            ])
            .map(|_| ())
            .map_err(failed)
    })?;
    drop(insert);
    transaction.commit().map_err(failed)
}
