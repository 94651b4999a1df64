//! The data directory: one process at a time.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked as long as it is open; the system unlocks it when the process ends, however it ends.
    _lock: File,
}

impl Directory {
    /// Takes a directory, creating it if need be.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let unusable =
            |error: std::io::Error| OpenError::Unusable { path: path.into(), reason: error.to_string() };
        fs::create_dir_all(path).map_err(unusable)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("punctual.lock"))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.into())),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("punctual.db")
    }
}
