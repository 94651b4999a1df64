//! A child process that writes to a store and says on stdout what it was told, so that a parent can let it fail.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use futures_executor::block_on;
use punctual_domain::JobId;
use punctual_store::conformance::{SHARDS, World};
use punctual_store::{Put, Store};
use punctual_store_embedded::{Embedded, OpenError, Options};

/// Where a child finds its data directory; a test that finds none is not a child.
const DIRECTORY: &str = "PUNCTUAL_CHILD_DIRECTORY";

/// The directory, if this process is a child.
pub(crate) fn child_directory() -> Option<PathBuf> {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from)?;
    say(""); // The test harness has begun a line.
    Some(directory)
}

/// Runs one test of this binary as a child, behind `wrapper` (strace and the like).
pub(crate) fn child(wrapper: &[&str], test: &str, directory: &Path) -> Output {
    let me = std::env::current_exe().unwrap();
    let mut words: Vec<&std::ffi::OsStr> = wrapper.iter().map(std::ffi::OsStr::new).collect();
    words.push(me.as_os_str());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    command.env(DIRECTORY, directory);
    command.output().unwrap_or_else(|error| {
        panic!("cannot start `{}`: {error}; `cargo xtask test` installs what is missing", words[0].display())
    })
}

/// What a child said, by line.
pub(crate) fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_string).collect()
}

pub(crate) fn options(directory: &Path) -> Options {
    Options { directory: directory.into(), shards: Some(SHARDS) }
}

pub(crate) fn open(directory: &Path) -> Arc<Embedded> {
    Arc::new(free(|| Embedded::open(&options(directory))).unwrap())
}

/// Asks again while the directory is in use: a child that another test is just starting has our open files until it
/// becomes another program, and with them the lock of a store that we have closed.
pub(crate) fn free<T>(ask: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 0..1_000 {
        match ask() {
            Err(OpenError::InUse { .. }) => std::thread::sleep(std::time::Duration::from_millis(5)),
            answer => return answer,
        }
    }
    ask()
}

/// Says one line, with one write.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("{line}\n").as_bytes()).unwrap();
    stdout.flush().unwrap();
}

/// Writes one job and says what the store answered: `ack <name> <id>` or `refused <name> <why>`.
pub(crate) fn write_one(store: &Embedded, put: Put) -> bool {
    let (name, id, now) = (put.job.spec.name.clone(), put.job.id, put.job.created_at);
    match block_on(store.put_jobs(vec![put], now)) {
        Ok(answers) => {
            assert_eq!(answers, [Ok(())]);
            say(&format!("ack {name} {id}"));
            true
        }
        Err(error) => {
            say(&format!("refused {name} {error}"));
            false
        }
    }
}

/// Jobs to write, each with its name in its row.
pub(crate) fn puts(world: &mut World, count: usize, payload: usize) -> Vec<Put> {
    let text: Box<str> = format!("\"{}\"", "x".repeat(payload)).into();
    let made = (0..count).map(|number| {
        let mut job = world.job(&format!("mark-{number:04}-"));
        job.spec.payload = Some(text.clone());
        let due = world.after(60);
        world.put(job, Some(due))
    });
    made.collect()
}

/// The ids of what was acknowledged.
pub(crate) fn acknowledged(lines: &[String]) -> Vec<JobId> {
    let ids = lines.iter().filter_map(|line| line.strip_prefix("ack "));
    ids.map(|rest| rest.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

/// Everything that was acknowledged is in the store.
pub(crate) fn assert_all_there(store: &Embedded, ids: &[JobId]) {
    let found = block_on(store.jobs(ids)).unwrap();
    let missing = found.iter().filter(|job| job.is_none()).count();
    assert_eq!(missing, 0, "acknowledged and not there, of {}", ids.len());
}
