//! Backup while the store is in use, and restore.
//!
//! A backup is a directory with a copy of the database as of one commit and a manifest that says what it is and how
//! it sums up. The manifest is written last, under its name only when all else is on stable storage: with it, a
//! backup is whole; without it, it is none.
//!
//! The copy is made page by page from one read transaction, so writers go on and the copy is of one moment. What is
//! written meanwhile stays in the log until the copy is done. The copy is synced every few megabytes: one sync of
//! gigabytes at the end would make every commit on the same disk wait for it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use serde::{Deserialize, Serialize};

use crate::directory::{Directory, MANIFEST, RESTORING, sync_directory};
use crate::embedded::Embedded;
use crate::error::OpenError;
use crate::open_runs::last_sequence;
use crate::origin::Origin;
use crate::partition::{KEPT, Partitions};
use crate::schema::{self, FORMAT};

const DATABASE: &str = "punctual.db";
const PARTIAL: &str = "punctual.db.partial";
const UNNAMED: &str = "backup.json.partial";

/// Pages copied at a time: 1 MB, after which progress is told.
const STEP_PAGES: i32 = 256;

/// Steps between two syncs of the copy.
const SYNC_STEPS: u64 = 16;

/// How far a backup or a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How many bytes of it are done.
    pub done: u64,
    /// Of how many.
    pub total: u64,
}

/// What a backup or a restore is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Copying the database.
    Copying,
    /// Reading the copy back.
    Verifying,
}

/// What a backup says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format of the database.
    pub format: i64,
    /// The version of Punctual that made it.
    pub version: String,
    /// When it was made: the copy is of this moment or a little later.
    #[serde(with = "text")]
    pub made_at: Timestamp,
    /// The length of the database file.
    pub bytes: u64,
    /// The BLAKE3 hash of the database file.
    pub blake3: String,
    /// What is in it.
    pub counts: Counts,
}

/// A time as people write it.
mod text {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// How many rows of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Jobs, deleted ones too.
    pub jobs: u64,
    /// Due entries, stale ones too.
    pub due: u64,
    /// Runs that have not ended.
    pub open_runs: u64,
    /// Runs that have ended.
    pub history: u64,
    /// Partitions of history.
    pub partitions: u64,
}

/// A backup or a restore that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is something in the way.
    #[error("{0} is not empty; choose an empty directory or one that does not exist")]
    NotEmpty(PathBuf),
    /// Another backup is being written there.
    #[error("another process is writing a backup to {0}")]
    Busy(PathBuf),
    /// There is no manifest, so it is no backup, or not a whole one.
    #[error("{0} is not a whole backup: it has no backup.json")]
    NotABackup(PathBuf),
    /// It is not what was written.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {path}: {reason}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why, in the words of the system.
        reason: String,
    },
    /// The data directory or the backup cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Embedded {
    /// Copies the store into a directory, which must be empty or not exist, while it is in use. Blocks until the
    /// backup is whole and on stable storage.
    pub fn backup(
        &self,
        to: &Path,
        now: Timestamp,
        mut progress: impl FnMut(Progress),
    ) -> Result<Manifest, BackupError> {
        back_up(&self.database(), to, now, &mut progress)
    }
}

/// Copies a data directory as [`Embedded::backup`] does, from outside: whether a process has it open or not. If one
/// has, it goes on undisturbed; if none has, none may open it meanwhile.
pub fn backup(
    data: &Path,
    to: &Path,
    now: Timestamp,
    mut progress: impl FnMut(Progress),
) -> Result<Manifest, BackupError> {
    let database = data.join(DATABASE);
    let held = match Directory::take_existing(data) {
        Ok(directory) if directory.verify()? => Some(directory),
        Ok(_) => {
            let reason = "there is no punctual.db in it".into();
            return Err(OpenError::Unusable { path: data.into(), reason }.into());
        }
        Err(OpenError::InUse { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let made = back_up(&database, to, now, &mut progress);
    drop(held);
    made
}

fn back_up(
    database: &Path,
    to: &Path,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Manifest, BackupError> {
    let existed = to.exists();
    fs::create_dir_all(to).map_err(|error| io(to, &error))?;
    let handle = File::open(to).map_err(|error| io(to, &error))?;
    handle.try_lock().map_err(|_| BackupError::Busy(to.into()))?;
    require_empty(to, &[PARTIAL, UNNAMED])?;
    let made = make(database, to, now, progress);
    if made.is_err() {
        for name in [PARTIAL, DATABASE, UNNAMED, MANIFEST] {
            let _ = fs::remove_file(to.join(name)); // It may not have come that far.
        }
        if !existed {
            let _ = fs::remove_dir(to);
        }
    }
    made
}

fn make(
    database: &Path,
    to: &Path,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Manifest, BackupError> {
    let partial = to.join(PARTIAL);
    let unreadable =
        |error: rusqlite::Error| BackupError::Damaged { path: database.into(), reason: error.to_string() };
    let unwritable =
        |error: rusqlite::Error| BackupError::Io { path: partial.clone(), reason: error.to_string() };
    if partial.exists() {
        fs::remove_file(&partial).map_err(|error| io(&partial, &error))?; // Of a process that died.
    }
    let source = schema::open_reader(database).map_err(unreadable)?;
    // One transaction, one moment. Without it, every commit would make the copy begin anew.
    source.execute_batch("begin; select * from meta").map_err(unreadable)?;
    copy(&source, &partial, progress).map_err(unwritable)??;

    source.execute_batch("commit").map_err(unreadable)?;
    drop(source);

    let connection = Connection::open(&partial).map_err(unwritable)?;
    // A plain file, readable where nothing can be written.
    connection.execute_batch("pragma journal_mode = delete").map_err(unwritable)?;
    let verdict: String =
        connection.query_row("pragma quick_check(1)", [], |row| row.get(0)).map_err(unreadable)?;
    if verdict != "ok" {
        return Err(BackupError::Damaged { path: database.into(), reason: verdict });
    }
    let format = schema::verify(&connection, &partial)?;
    let counts = count(&connection)
        .map_err(|error| BackupError::Damaged { path: database.into(), reason: error.to_string() })?;
    drop(connection);

    let file = File::open(&partial).map_err(|error| io(&partial, &error))?;
    file.sync_all().map_err(|error| io(&partial, &error))?;
    let (bytes, blake3) = sum(&file, &partial, std::io::sink(), Phase::Verifying, progress)?;
    let version = env!("CARGO_PKG_VERSION").into();
    let manifest = Manifest { format, version, made_at: now, bytes, blake3, counts };
    rename(&partial, &to.join(DATABASE))?;
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| BackupError::Io { path: to.join(MANIFEST), reason: error.to_string() })?;
    let unnamed = to.join(UNNAMED);
    let written = File::create(&unnamed).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| sync_directory(to)).map_err(|error| io(&unnamed, &error))?;
    rename(&unnamed, &to.join(MANIFEST))?;
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        sync_directory(parent).map_err(|error| io(parent, &error))?;
    }
    Ok(manifest)
}

/// Copies all pages of a database in a transaction. The outer error is SQLite's.
fn copy(
    source: &Connection,
    to: &Path,
    progress: &mut dyn FnMut(Progress),
) -> rusqlite::Result<Result<(), BackupError>> {
    let page_size = source.query_row("pragma page_size", [], |row| row.get::<_, u32>(0))?;
    let mut copy = Connection::open(to)?;
    // Nobody reads it before it is whole, and it is synced here.
    copy.execute_batch("pragma journal_mode = off; pragma synchronous = off;")?;
    let file = match File::open(to) {
        Ok(file) => file,
        Err(error) => return Ok(Err(io(to, &error))),
    };
    let backup = Backup::new(source, &mut copy)?;
    for step in 1.. {
        let result = backup.step(STEP_PAGES)?;
        if step % SYNC_STEPS == 0
            && let Err(error) = file.sync_data()
        {
            return Ok(Err(io(to, &error)));
        }
        let pages = backup.progress();
        let total = pages.pagecount.max(0) as u64 * u64::from(page_size);
        let left = pages.remaining.max(0) as u64 * u64::from(page_size);
        progress(Progress { phase: Phase::Copying, done: total - left, total });
        match result {
            StepResult::Done => break,
            StepResult::More => {}
            // Nobody else knows the copy, and a reader in WAL mode waits for nobody.
            _ => {
                return Ok(Err(BackupError::Io { path: to.into(), reason: "the database is locked".into() }));
            }
        }
    }
    Ok(Ok(()))
}

pub(crate) fn count(connection: &Connection) -> Result<Counts, punctual_store::Error> {
    let rows = |table: &str| -> Result<u64, punctual_store::Error> {
        let sql = format!("select count(*) from {table}");
        let counted = connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
        counted.map(i64::unsigned_abs).map_err(crate::error::failed)
    };
    let partitions = Partitions::load(connection)?;
    let mut history = rows(&format!("history_{KEPT}"))?;
    for partition in partitions.iter() {
        history += rows(&format!("history_{}", partition.id))?;
    }
    Ok(Counts {
        jobs: rows("jobs")?,
        due: rows("due")?,
        open_runs: rows("open_runs")?,
        history,
        partitions: partitions.iter().count() as u64,
    })
}

impl Manifest {
    /// Reads the manifest of a backup.
    pub fn read(backup: &Path) -> Result<Self, BackupError> {
        let path = backup.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BackupError::NotABackup(backup.into()));
            }
            Err(error) => return Err(io(&path, &error)),
        };
        serde_json::from_slice(&text)
            .map_err(|error| BackupError::Damaged { path, reason: error.to_string() })
    }

    /// Whether a database file is the one that was backed up.
    fn matches(&self, path: &Path, bytes: u64, blake3: &str) -> Result<(), BackupError> {
        let reason = if bytes != self.bytes {
            format!("it has {bytes} bytes, and {} were backed up", self.bytes)
        } else if blake3 != self.blake3 {
            "its checksum is not that of the manifest".into()
        } else {
            return Ok(());
        };
        Err(BackupError::Damaged { path: path.into(), reason })
    }
}

/// Reads a backup and compares it with its manifest.
pub(crate) fn verify(backup: &Path) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(backup)?;
    let path = backup.join(DATABASE);
    let file = File::open(&path).map_err(|error| io(&path, &error))?;
    let (bytes, blake3) = sum(&file, &path, std::io::sink(), Phase::Verifying, &mut |_| {})?;
    manifest.matches(&path, bytes, &blake3)?;
    Ok(manifest)
}

/// Makes a data directory of a backup. The directory must be empty or not exist; it is whole when this returns, and
/// refused by [`Embedded::open`] until then.
///
/// Runs born from now on have other sequences than any the original has given out, also since the backup. Slots that
/// were due but not fired when the backup was made are due again and, being the same slots, get the same idempotency
/// keys. Attempts that were running are lost to their workers and tried again as the same runs.
pub fn restore(
    from: &Path,
    to: &Path,
    now: Timestamp,
    mut progress: impl FnMut(Progress),
) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(from)?;
    let database = from.join(DATABASE);
    if manifest.format > FORMAT {
        let (found, known) = (manifest.format, FORMAT);
        return Err(OpenError::NewerFormat { path: database, found, known }.into());
    }
    let directory = Directory::take(to)?;
    require_empty(to, &["punctual.lock", RESTORING])?;
    let restoring = to.join(RESTORING);
    let source = File::open(&database).map_err(|error| io(&database, &error))?;
    let target = File::create(&restoring).map_err(|error| io(&restoring, &error))?;
    let (bytes, blake3) = sum(&source, &database, &target, Phase::Copying, &mut progress)?;
    drop(target);
    if let Err(error) = manifest.matches(&database, bytes, &blake3) {
        fs::remove_file(&restoring).map_err(|error| io(&restoring, &error))?;
        return Err(error);
    }
    begin_anew(&restoring, manifest.made_at, now)?;
    let synced = File::open(&restoring).and_then(|file| file.sync_all());
    synced.map_err(|error| io(&restoring, &error))?;
    directory.mark_closed();
    rename(&restoring, &directory.database())?;
    sync_directory(to).map_err(|error| io(to, &error))?;
    Ok(manifest)
}

/// Sets a restored database apart from its original: other sequences, no owners.
fn begin_anew(path: &Path, backup_at: Timestamp, now: Timestamp) -> Result<(), BackupError> {
    let damaged = |reason: String| BackupError::Damaged { path: path.into(), reason };
    let connection = Connection::open(path).map_err(|error| damaged(error.to_string()))?;
    schema::verify(&connection, path)?;
    let newest = last_sequence(&connection).map_err(|error| damaged(error.to_string()))?;
    let origin = Origin::load(&connection).map_err(|error| damaged(error.to_string()))?;
    connection
        .execute_batch(
            "pragma synchronous = full; begin immediate; update shards set owner = null, expires_at = 0",
        )
        .and_then(|()| origin.after_restore(newest, backup_at, now).save(&connection))
        .and_then(|()| connection.execute_batch("commit"))
        .map_err(|error| damaged(error.to_string()))
}

/// Reads a file to its end, writes it elsewhere, and sums it up: its length and hash.
fn sum(
    mut file: &File,
    path: &Path,
    mut to: impl Write,
    phase: Phase,
    progress: &mut dyn FnMut(Progress),
) -> Result<(u64, String), BackupError> {
    let total = file.metadata().map_err(|error| io(path, &error))?.len();
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        let read = file.read(&mut buffer).map_err(|error| io(path, &error))?;
        if read == 0 {
            return Ok((done, hasher.finalize().to_hex().to_string()));
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read]).map_err(|error| io(path, &error))?;
        done += read as u64;
        progress(Progress { phase, done, total });
    }
}

/// Refuses a directory with anything else in it. File systems put `lost+found` at their top.
fn require_empty(directory: &Path, but: &[&str]) -> Result<(), BackupError> {
    for entry in fs::read_dir(directory).map_err(|error| io(directory, &error))? {
        let name = entry.map_err(|error| io(directory, &error))?.file_name();
        if name != "lost+found" && !but.iter().any(|one| name == **one) {
            return Err(BackupError::NotEmpty(directory.into()));
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), BackupError> {
    fs::rename(from, to).map_err(|error| io(to, &error))
}

fn io(path: &Path, error: &std::io::Error) -> BackupError {
    BackupError::Io { path: path.into(), reason: error.to_string() }
}
