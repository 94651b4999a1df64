//! A clock that is off, for programs that tests start: libfaketime, told by a file how far.
//!
//! Promise: what a program reads as the time of day is off by what the file says when the program starts; how long things take
//! (the monotonic clock) is as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How far the clocks of some programs are off.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is off by so many seconds; the file is in this folder.
    ///
    /// # Panics
    /// If libfaketime is not installed.
    pub fn off_by(seconds: i64, folder: &Path) -> Clock {
        let library = library().expect("libfaketime is installed (Debian: apt-get install faketime)");
        let clock = Clock { file: folder.join("clock"), library };
        clock.set(seconds);
        clock
    }

    /// Programs that start from now on are off by so much.
    pub fn set(&self, seconds: i64) {
        std::fs::write(&self.file, format!("{seconds:+}\n")).expect("a file");
    }

    /// Gives a program this clock.
    pub fn give<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.settings())
    }

    /// What a shell writes before a program to give it this clock. Who starts a program as another user does it so: what libfaketime
    /// shares among the processes of a program belongs to the user of the first.
    pub(crate) fn before(&self) -> String {
        let settings = self.settings().map(|(name, value)| format!("{name}={} ", value.display()));
        format!("env {}", settings.concat())
    }

    fn settings(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// Where libfaketime is, if it is installed.
pub fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut places = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    places.find(|place| place.exists())
}
