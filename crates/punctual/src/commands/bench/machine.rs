//! What the process used: CPU, memory, disk.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// What this process has used since it started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    pub(super) written: u64,
}

/// `sysconf(_SC_CLK_TCK)` is 100 on every Linux.
const TICKS_PER_SECOND: u64 = 100;

impl Usage {
    /// Now. Zero where there is no `/proc`.
    pub(super) fn now() -> Usage {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name in parentheses may contain anything; what follows are numbers.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let cpu = Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / TICKS_PER_SECOND);
        Usage { cpu, written: field("/proc/self/io", "write_bytes:") }
    }

    /// What was used since an earlier time.
    pub(super) fn since(self, earlier: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(earlier.cpu), written: self.written - earlier.written }
    }
}

/// Memory of this process that is in RAM.
pub(super) fn rss_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:") * 1_024
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Bytes of all files of a directory.
pub(super) fn size_of(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        bytes += match kind.is_dir() {
            true => size_of(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

/// How long the disk takes to make 4 KB durable, the second time: the first makes the file.
pub(super) fn fsync_once(directory: &Path) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(directory).context("a file for the fsync test")?;
    let mut write = || file.write_all(&[7; 4_096]).and_then(|()| file.sync_data()).context("fsync");
    write()?;
    let begun = Instant::now();
    write()?;
    Ok(begun.elapsed())
}

/// How long the disk takes to make 4 KB durable: the median of a few.
pub(super) fn fsync(directory: &Path) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(directory).context("a file for the fsync test")?;
    let mut times = Vec::new();
    for _ in 0..21 {
        let begun = Instant::now();
        file.write_all(&[7; 4_096]).and_then(|()| file.sync_data()).context("fsync")?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
