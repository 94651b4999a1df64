//! Opening the database: settings, format, migrations.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::error::OpenError;

/// The format this version writes.
pub(crate) const FORMAT: i64 = 1;

/// Marks the file as ours (`PRAGMA application_id`): "Pctl".
const APPLICATION: i64 = 0x5063_746c;

/// Opens the connection that writes, creating the schema if the file is new.
pub(crate) fn open_writer(path: &Path, shards: u16) -> Result<Connection, OpenError> {
    let damaged =
        |error: rusqlite::Error| OpenError::Damaged { path: path.into(), reason: error.to_string() };
    let connection = Connection::open(path).map_err(damaged)?;
    // FULL: a commit is on stable storage when it returns. Checkpoints are ours to schedule. Nothing is written
    // before the commit, so that a full disk or a failed fsync shows there and nowhere else.
    connection
        .execute_batch(
            "pragma journal_mode = wal; pragma synchronous = full; pragma secure_delete = off; \
             pragma wal_autocheckpoint = 0; pragma cache_size = -262144; pragma foreign_keys = off; \
             pragma temp_store = memory; pragma mmap_size = 0; pragma cache_spill = off;",
        )
        .map_err(damaged)?;
    connection.set_prepared_statement_cache_capacity(256);
    let application: i64 =
        connection.query_row("pragma application_id", [], |row| row.get(0)).map_err(damaged)?;
    let tables: i64 =
        connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).map_err(damaged)?;
    match (application, tables) {
        (0, 0) => create(&connection, shards).map_err(damaged)?,
        (APPLICATION, _) => {}
        _ => {
            let reason = "it is another program's database".into();
            return Err(OpenError::Damaged { path: path.into(), reason });
        }
    }
    let found: i64 = connection.query_row("pragma user_version", [], |row| row.get(0)).map_err(damaged)?;
    if found > FORMAT {
        return Err(OpenError::NewerFormat { path: path.into(), found, known: FORMAT });
    }
    let count: Option<u16> = connection
        .query_row("select count(*) from shards", [], |row| row.get(0))
        .optional()
        .map_err(damaged)?;
    match count {
        Some(found) if found == shards => Ok(connection),
        found => Err(OpenError::Shards { found: found.unwrap_or(0), wanted: shards }),
    }
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch("pragma query_only = on; pragma cache_size = -65536;")?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

fn create(connection: &Connection, shards: u16) -> rusqlite::Result<()> {
    connection.execute_batch("begin immediate")?;
    connection.execute_batch(include_str!("schema.sql"))?;
    connection.execute("insert into tenants values (1, 'default', 0)", [])?;
    for shard in 0..shards {
        connection.execute("insert into shards values (?1, null, 0, 0)", [shard])?;
    }
    crate::partition::create_table(connection, 0)?;
    connection.execute_batch(&format!(
        "pragma application_id = {APPLICATION}; pragma user_version = {FORMAT}; commit;"
    ))
}

/// Opens the connection that only moves the log. It waits for nobody: while it waited for a long reader (a backup),
/// the writer would wait for it.
pub(crate) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection
        .execute_batch("pragma synchronous = full; pragma cache_size = -2048; pragma busy_timeout = 0;")?;
    Ok(connection)
}
