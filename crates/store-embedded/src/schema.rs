//! Opening the database: settings, format, migrations.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};

use crate::directory::sync_directory;
use crate::error::OpenError;
use crate::{papers, waits};

/// What came after the first format, in order.
const MIGRATIONS: [&str; 7] = [
    include_str!("migrations/0002_lapses.sql"),
    include_str!("migrations/0003_turns.sql"),
    include_str!("migrations/0004_limits.sql"),
    include_str!("migrations/0005_documents.sql"),
    BACKLOG,
    PAPERS,
    include_str!("migrations/0008_audit.sql"),
];

/// After this one, what waits is noted and counted.
pub(crate) const BACKLOG: &str = include_str!("migrations/0006_backlog.sql");

/// After this one, history has a column more.
const PAPERS: &str = include_str!("migrations/0007_papers.sql");

/// The format this version writes.
pub(crate) const FORMAT: i64 = 1 + MIGRATIONS.len() as i64;

/// Marks the file as ours (`PRAGMA application_id`): "Pctl".
const APPLICATION: i64 = 0x5063_746c;

/// Opens the connection that writes, creating the database if there is none.
/// A new one gets `default` shards, unless another number is wanted; one that is there must have the number that is.
pub(crate) fn open_writer(path: &Path, wanted: Option<u16>, default: u16) -> Result<Connection, OpenError> {
    let damaged = |error: rusqlite::Error| damaged(path, &error);
    if !path.exists() {
        create(path, wanted.unwrap_or(default))
            .map_err(|error| OpenError::Unusable { path: path.into(), reason: error.to_string() })?;
    }
    let connection = Connection::open(path).map_err(damaged)?;
    // Before anything is written: it may not be ours to touch.
    let found = verify(&connection, path)?;
    // FULL: a commit is on stable storage when it returns. Checkpoints are ours to schedule. Nothing is written
    // before the commit, so that a full disk or a failed fsync shows there and nowhere else.
    connection
        .execute_batch(
            "pragma journal_mode = wal; pragma synchronous = full; pragma secure_delete = off; \
             pragma wal_autocheckpoint = 0; pragma foreign_keys = off; pragma temp_store = memory; \
             pragma mmap_size = 0; pragma cache_spill = off;",
        )
        .and_then(|()| keep_log(&connection))
        .and_then(|()| fit_cache(&connection))
        .and_then(|()| migrate(&connection, found))
        .map_err(damaged)?;
    connection.set_prepared_statement_cache_capacity(256);
    let count: Option<u16> = connection
        .query_row("select count(*) from shards", [], |row| row.get(0))
        .optional()
        .map_err(damaged)?;
    match count {
        Some(found) if wanted.is_none_or(|wanted| found == wanted) => Ok(connection),
        found => Err(OpenError::Shards { found: found.unwrap_or(0), wanted: wanted.unwrap_or(default) }),
    }
}

/// Brings a database of an older format up to date, all of it or nothing.
fn migrate(connection: &Connection, found: i64) -> rusqlite::Result<()> {
    if found == FORMAT {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    bring_up(&transaction, found)?;
    transaction.commit()?;
    tracing::info!(found, format = FORMAT, "the database was brought up to date");
    Ok(())
}

fn bring_up(connection: &Connection, found: i64) -> rusqlite::Result<()> {
    for (migration, format) in MIGRATIONS.iter().zip(2..) {
        if found < format {
            connection.execute_batch(migration)?;
            if *migration == BACKLOG {
                waits::fill(connection)?;
            }
            if *migration == PAPERS {
                papers::fill(connection)?;
            }
        }
    }
    connection.pragma_update(None, "user_version", FORMAT)
}

/// Gives the connection that writes a cache that fits the size of the database.
pub(crate) fn fit_cache(connection: &Connection) -> rusqlite::Result<()> {
    let pages = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    connection.pragma_update(None, "cache_size", -cache_kb(pages))
}

/// While the file is shorter than the place of SQLite's lock, at 1 GB, a commit after the split of a page walks the
/// whole cache: the split parks a page under the number of the lock's page, and the commit looks for pages behind the
/// end of the file. So the cache is small until then. See decision 11.
fn cache_kb(pages: i64) -> i64 {
    const LOCK_PAGE: i64 = (1 << 30) / 4_096;
    if pages <= LOCK_PAGE { 32 << 10 } else { 256 << 10 }
}

/// Whether a database is ours and of a format we know; returns the format.
pub(crate) fn verify(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let pragma = |name: &str| -> Result<i64, OpenError> {
        connection
            .query_row(&format!("pragma {name}"), [], |row| row.get(0))
            .map_err(|error| damaged(path, &error))
    };
    if pragma("application_id")? != APPLICATION {
        return Err(OpenError::Damaged {
            path: path.into(),
            reason: "it is not a database of Punctual".into(),
        });
    }
    match pragma("user_version")? {
        found if found > FORMAT => Err(OpenError::NewerFormat { path: path.into(), found, known: FORMAT }),
        found => Ok(found),
    }
}

fn damaged(path: &Path, error: &rusqlite::Error) -> OpenError {
    OpenError::Damaged { path: path.into(), reason: error.to_string() }
}

/// The log stays when the last connection is closed, so that a missing one is known to be lost.
pub(crate) fn keep_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(|_| ())
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch("pragma query_only = on; pragma cache_size = -65536;")?;
    keep_log(&connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// Makes the database under another name: it is there whole, or not at all.
fn create(path: &Path, shards: u16) -> Result<(), Box<dyn std::error::Error>> {
    let new = path.with_extension("db.new");
    if new.exists() {
        std::fs::remove_file(&new)?; // Of a process that did not get far.
    }
    fill(&Connection::open(&new)?, shards)?;
    std::fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_directory)?;
    Ok(())
}

fn fill(connection: &Connection, shards: u16) -> rusqlite::Result<()> {
    connection.execute_batch("pragma synchronous = full; begin immediate")?;
    connection.execute_batch(include_str!("schema.sql"))?;
    connection.execute("insert into tenants values (1, 'default', 0)", [])?;
    for shard in 0..shards {
        connection.execute("insert into shards values (?1, null, 0, 0)", [shard])?;
    }
    crate::partition::create_table(connection, 0)?;
    bring_up(connection, 1)?;
    connection.execute_batch(&format!("pragma application_id = {APPLICATION}; commit;"))
}

/// Opens the connection that only moves the log. It waits for nobody: while it waited for a long reader (a backup),
/// the writer would wait for it.
pub(crate) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection
        .execute_batch("pragma synchronous = full; pragma cache_size = -2048; pragma busy_timeout = 0;")?;
    keep_log(&connection)?;
    Ok(connection)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Runs that wait are among those that run, and not counted.
    const NO_BACKLOG: &str = "drop view open_runs; alter table running_runs rename to open_runs;
        insert into open_runs select seq, record from waiting_runs;
        drop table waiting_runs; drop table waits; drop table backlog;";

    /// Nor is there what came with the fourth format and the fifth.
    const NO_LIMITS: &str = "drop table limited; drop table tokens; drop table rules; drop table documents;";

    /// Nor what attempts said, nor who changed what.
    const NO_PAPERS: &str =
        "drop table audit; drop table open_papers; alter table history_0 drop column papers;";

    /// The line of waiting runs as the first two formats had it.
    const OLD_READY: &str = "drop table ready; create table ready (
            lane integer not null, urgency integer not null, available_at integer not null, seq integer not null,
            shard integer not null, queue text not null, primary key (lane, urgency, available_at, seq)
        ) without rowid;
        create index ready_by_queue on ready (queue, lane, urgency, available_at, seq, shard);";

    /// A database as the first format left it.
    #[test]
    fn an_older_format_is_brought_up_to_date_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("punctual.db");
        let first = open_writer(&path, None, 4).unwrap();
        first
            .execute_batch(&format!(
                "drop table lapses; {NO_PAPERS} {NO_BACKLOG} {NO_LIMITS} {OLD_READY} pragma user_version = 1;"
            ))
            .unwrap();
        drop(first);
        for _ in 0..2 {
            let connection = open_writer(&path, None, 4).unwrap();
            assert_eq!(verify(&connection, &path).unwrap(), FORMAT);
            assert_eq!(connection.execute("insert into lapses values (1, 2, 3)", []).unwrap(), 1);
            connection.execute("delete from lapses", []).unwrap();
            let papers = "select count(papers) from history_0";
            assert_eq!(connection.query_row(papers, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        }
    }

    #[test]
    fn runs_that_wait_in_an_older_format_wait_on_among_those_of_their_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("punctual.db");
        let second = open_writer(&path, None, 4).unwrap();
        second.execute_batch(&format!("{NO_PAPERS} {NO_BACKLOG} {NO_LIMITS} {OLD_READY}")).unwrap();
        // The ids of two jobs begin at the sixth byte of their runs' records; the third run is damaged.
        second
            .execute_batch(
                "insert into jobs values (x'00112233445566778899aabbccddeeff', 7, 1, 0, x'', 0, null, null),
                    (x'ff112233445566778899aabbccddeeff', 8, 1, 0, x'', 0, null, null);
                insert into open_runs values (1, x'010300000000112233445566778899aabbccddeeff07'),
                    (2, x'0103000000ff112233445566778899aabbccddeeff08'), (3, x'01');
                insert into ready values (0, -5, 10, 1, 3, 'a'), (1, 0, 20, 2, 2, 'b'), (9, 0, 30, 3, 1, 'c');
                pragma user_version = 2;",
            )
            .unwrap();
        drop(second);
        let connection = open_writer(&path, None, 4).unwrap();
        let sql = "select lane, tenant, urgency, available_at, seq, shard, queue from ready order by seq";
        let mut statement = connection.prepare(sql).unwrap();
        let numbers = |row: &rusqlite::Row<'_>| (0..6).map(|column| row.get(column)).collect();
        let rows: Vec<Vec<i64>> = statement.query_map([], numbers).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, [[0, 7, -5, 10, 1, 3], [1, 8, 0, 20, 2, 2], [9, 1, 0, 30, 3, 1]]);
    }

    #[test]
    fn the_cache_is_small_until_a_commit_need_not_walk_it() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open_writer(&directory.path().join("punctual.db"), None, 4).unwrap();
        let pragma =
            |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((pragma("page_size"), pragma("cache_size")), (4_096, -32_768));
        assert_eq!([262_144, 262_145].map(cache_kb), [32_768, 262_144]);
    }
}
