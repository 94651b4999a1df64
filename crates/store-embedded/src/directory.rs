//! The data directory: one process at a time, and nothing missing from it.
//!
//! | file | what it is |
//! |---|---|
//! | `punctual.db` | the database; made under another name and renamed, so it is never there half |
//! | `punctual.db-wal` | its log: commits that are not in it yet. Ours stays when the store is closed, emptied |
//! | `punctual.lock` | locked by the process that has the directory open; says who, or that it was closed |
//!
//! Promise: a directory that had a database and lacks it, or was not closed and lacks its log, is refused.
//! It is never taken for a new one.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::OpenError;
use crate::log;

/// The manifest of a backup. A directory that has one is a backup and not a data directory.
pub(crate) const MANIFEST: &str = "backup.json";

/// A database that is being restored.
pub(crate) const RESTORING: &str = "punctual.db.restoring";

const LOCK: &str = "punctual.lock";
const CLOSED: &str = "closed";

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked as long as it is open; the system unlocks it when the process ends, however it ends.
    lock: Mutex<File>,
}

impl Directory {
    /// Takes a directory, creating it if need be.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        fs::create_dir_all(path).map_err(|error| unusable(path, &error))?;
        let lock = File::options().create(true).truncate(false).read(true).write(true).open(path.join(LOCK));
        Directory::lock(path, lock.map_err(|error| unusable(path, &error))?)
    }

    /// Takes a directory that must be there, to read it.
    pub(crate) fn take_existing(path: &Path) -> Result<Self, OpenError> {
        if !path.is_dir() {
            return Err(OpenError::Unusable {
                path: path.into(),
                reason: "there is no such directory".into(),
            });
        }
        // A lock needs no permission to write. A backup has no lock file; its directory is as good.
        let file = path.join(LOCK);
        let lock = File::open(if file.exists() { &file } else { path });
        Directory::lock(path, lock.map_err(|error| unusable(path, &error))?)
    }

    fn lock(path: &Path, lock: File) -> Result<Self, OpenError> {
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.into(), lock: Mutex::new(lock) }),
            Err(TryLockError::WouldBlock) => {
                let pid = said(&lock).and_then(|said| said.strip_prefix("open ")?.trim().parse().ok());
                Err(OpenError::InUse { path: path.into(), pid })
            }
            Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
        }
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("punctual.db")
    }

    /// Whether there is a database, and whether everything that belongs to it is there and whole.
    pub(crate) fn verify(&self) -> Result<bool, OpenError> {
        let database = self.database();
        let wal = log_of(&database);
        let said = said(&self.lock.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default();
        let damaged =
            |path: &Path, reason: &str| Err(OpenError::Damaged { path: path.into(), reason: reason.into() });
        if self.path.join(MANIFEST).exists() {
            return Err(OpenError::IsBackup(self.path.clone()));
        }
        if self.path.join(RESTORING).exists() {
            return damaged(&self.path.join(RESTORING), "a restore into this directory was interrupted");
        }
        let Some(length) = length(&database) else {
            return match (said.is_empty(), length(&wal).unwrap_or(0)) {
                (true, 0) => Ok(false),
                (false, 0) => damaged(&database, "the file is missing from a directory that had it"),
                _ => damaged(&database, "the file is missing, though its log is there"),
            };
        };
        if length == 0 {
            return damaged(&database, "the file is empty");
        }
        if said.starts_with("open ") && !wal.exists() {
            // The last commits were in there.
            return damaged(
                &wal,
                "the file is missing, and the last process did not close the store; if you know that \
                 nothing is lost, write `closed` into punctual.lock",
            );
        }
        log::verify(&wal).map_err(|reason| OpenError::Damaged { path: wal, reason })?;
        Ok(true)
    }

    /// Says who has it open. From now on a missing log is noticed.
    pub(crate) fn mark_open(&self) -> Result<(), OpenError> {
        // First the log itself must be found after a power cut.
        let marked =
            sync_directory(&self.path).and_then(|()| self.say(&format!("open {}\n", std::process::id())));
        marked.map_err(|error| unusable(&self.path, &error))
    }

    /// Says that everything is in the database and the log is empty.
    pub(crate) fn mark_closed(&self) {
        if let Err(error) = self.say(CLOSED) {
            tracing::warn!(%error, "cannot write that the store was closed");
        }
    }

    fn say(&self, words: &str) -> std::io::Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        lock.set_len(0)?;
        lock.rewind()?;
        // Not synced: words that a power cut takes back make us notice less, never refuse wrongly.
        lock.write_all(words.as_bytes())
    }
}

/// What the lock file says.
fn said(mut lock: &File) -> Option<String> {
    let mut text = String::new();
    lock.rewind().ok()?;
    // A few words; anything longer is not ours.
    lock.take(100).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The log of a database.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.len())
}

fn unusable(path: &Path, error: &std::io::Error) -> OpenError {
    OpenError::Unusable { path: path.into(), reason: error.to_string() }
}
