//! Directories that are in use, too new, not ours, incomplete or damaged: refused by name, or reported; never a panic,
//! never taken for empty.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{
    acknowledged, assert_all_there, child, child_directory, free, lines, open, options, puts, say, write_one,
};
use futures_executor::block_on;
use punctual_store::conformance::World;
use punctual_store::{JobFilter, PageRequest, RunFilter, Store};
use punctual_store_embedded::{Embedded, OpenError, check};

#[test]
fn child_opens_the_store() {
    let Some(directory) = child_directory() else { return };
    say(&format!("refused {}", Embedded::open(&options(&directory)).unwrap_err()));
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let said = lines(&child(&["env"], "damage::child_opens_the_store", directory.path()));
    let refused = said.iter().find(|line| line.starts_with("refused ")).unwrap();
    assert!(refused.contains(&directory.path().display().to_string()), "{refused}");
    assert!(refused.contains(&format!("(pid {})", std::process::id())), "{refused}");
    drop(store);
    open(directory.path());
}

/// Ends without closing anything, as kill -9 does.
#[test]
fn child_dies_after_writing() {
    let Some(directory) = child_directory() else { return };
    let store = open(&directory);
    let mut world = block_on(World::new(store.clone()));
    for put in puts(&mut world, 40, 500) {
        assert!(write_one(&store, put));
    }
    std::process::exit(0);
}

/// A directory whose process died, and what it had acknowledged, in order.
fn not_closed(directory: &Path) -> Vec<punctual_domain::JobId> {
    let said = lines(&child(&["env"], "damage::child_dies_after_writing", directory));
    acknowledged(&said)
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn refusal(directory: &Path) -> OpenError {
    free(|| Embedded::open(&options(directory))).expect_err("it is refused")
}

#[test]
fn a_newer_format_and_a_foreign_database_are_refused_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let file = directory.path().join("punctual.db");
    let set = |sql: &str| rusqlite::Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    set("pragma journal_mode = delete; pragma user_version = 99");
    let before = fs::read(&file).unwrap();
    let error = refusal(directory.path());
    assert!(matches!(error, OpenError::NewerFormat { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("run the newer version"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::remove_file(&file).unwrap();
    set("create table letters (text); insert into letters values ('dear')");
    let before = fs::read(&file).unwrap();
    let error = refusal(directory.path());
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn what_is_missing_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    let ids = not_closed(&whole);
    let fresh = || copy(&whole, &data);
    let refused = |what: &str| {
        let error = refusal(&data);
        assert!(matches!(error, OpenError::Damaged { .. }), "{what}: {error}");
        assert!(error.to_string().contains("punctual.db"), "{what}: {error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    };
    let file = |name: &str| -> PathBuf { data.join(name) };
    fresh();
    fs::remove_file(file("punctual.db-wal")).unwrap();
    refused("the last process did not close the store");
    fs::write(file("punctual.lock"), "closed").unwrap();
    drop(open(&data));
    fresh();
    fs::remove_file(file("punctual.db")).unwrap();
    refused("its log is there");
    fs::remove_file(file("punctual.db-wal")).unwrap();
    refused("missing from a directory that had it");
    fresh();
    fs::write(file("punctual.db"), b"").unwrap();
    refused("empty");
    fresh();
    fs::write(file("punctual.db"), vec![0x5a; 20_000]).unwrap();
    refused("malformed");
    fresh();
    fs::write(file("punctual.db.restoring"), b"half").unwrap();
    refused("a restore into this directory was interrupted");
    fresh();
    let store = open(&data);
    assert_all_there(&store, &ids);
    drop(store);
    // Closed: nothing is in the log, and whoever removes it loses nothing.
    assert_eq!(fs::metadata(file("punctual.db-wal")).unwrap().len(), 0);
    fs::remove_file(file("punctual.db-wal")).unwrap();
    assert_all_there(&open(&data), &ids);
}

#[test]
fn a_flipped_bit_in_the_log_does_not_silently_undo_what_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    let ids = not_closed(&whole);
    let log = fs::read(whole.join("punctual.db-wal")).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut refused, mut last_only) = (0, 0);
    for case in 0..400 {
        let at = if case < 32 { case } else { rng.usize(..log.len()) };
        let mut bytes = log.clone();
        bytes[at] ^= 1 << rng.u8(..8);
        copy(&whole, &data);
        fs::write(data.join("punctual.db-wal"), &bytes).unwrap();
        match free(|| Embedded::open(&options(&data))) {
            Err(error) => {
                assert!(error.to_string().contains("punctual.db-wal"), "{error}");
                refused += 1;
            }
            // As after a torn write: only the very last transaction may be gone.
            Ok(store) => {
                assert_all_there(&store, &ids[..ids.len() - 1]);
                last_only += 1;
            }
        }
    }
    // Torn at any place: what was synced before is there.
    for _ in 0..50 {
        copy(&whole, &data);
        let length = rng.usize(log.len() - 5_000..log.len());
        fs::write(data.join("punctual.db-wal"), &log[..length]).unwrap();
        assert_all_there(&open(&data), &ids[..ids.len() - 1]);
    }
    assert!(refused > 350, "{refused} refused, {last_only} lost at most the last transaction");
    println!("damaged log: {refused} refused, {last_only} lost at most the last transaction");
}

/// Everything a reader can see, or the first thing that cannot be read.
fn read_all(store: &Embedded) -> Result<String, punctual_store::Error> {
    block_on(async {
        let jobs = store.list_jobs(&JobFilter::default(), PageRequest { after: None, limit: 10_000 }).await?;
        let runs = store.runs(&RunFilter::default(), PageRequest { after: None, limit: 10_000 }).await?;
        let mut details = Vec::new();
        for run in &runs.items {
            details.push(store.run(run.id()).await?);
        }
        let query = punctual_store::DueQuery {
            shards: punctual_store::Shards::All,
            after: None,
            until: jiff::Timestamp::MAX,
            limit: 10_000,
        };
        let due = store.due(query).await?;
        Ok(format!("{:?} {:?} {details:?} {due:?} {:?}", jobs.items, runs.items, store.tenants().await?))
    })
}

#[test]
fn flipped_bits_in_the_database_never_panic_and_never_empty_it() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let store = open(&whole);
    let mut world = block_on(World::new(store.clone()));
    block_on(async {
        for number in 0..60 {
            let worker = world.worker();
            let run = world.running(&format!("job {number}"), worker).await;
            let verdict = punctual_domain::lifecycle::Verdict::Fail;
            world.conclude(worker, &run, punctual_domain::Outcome::Failed, verdict).await.unwrap();
            world.fired(&format!("open {number}")).await;
            world.claim(worker, 1).await;
        }
    });
    let before = read_all(&store).unwrap();
    drop((world, store));
    let file = fs::read(whole.join("punctual.db")).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut refused, mut reported, mut found, mut harmless, mut silent) = (0, 0, 0, 0, 0);
    for case in 0..250 {
        let mut bytes = file.clone();
        match case % 10 {
            0 => bytes.truncate(rng.usize(..file.len())),
            1 => bytes[rng.usize(..file.len() / 4096) * 4096..][..4096].fill(rng.u8(..)),
            2 => bytes[..100].iter_mut().for_each(|byte| *byte = rng.u8(..)),
            _ => bytes[rng.usize(..file.len())] ^= 1 << rng.u8(..8),
        }
        if bytes == file {
            continue;
        }
        copy(&whole, &data);
        fs::write(data.join("punctual.db"), &bytes).unwrap();
        let checked = free(|| check(&data, now));
        let is_found = checked.as_ref().map_or(true, |checked| !checked.is_sound());
        match free(|| Embedded::open(&options(&data))) {
            Err(OpenError::Damaged { .. } | OpenError::NewerFormat { .. } | OpenError::Shards { .. }) => {
                refused += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(store) => match read_all(&store) {
                Err(punctual_store::Error::Damaged { .. }) => reported += 1,
                Err(error) => panic!("{error}"),
                Ok(after) if after == before => harmless += 1,
                Ok(after) => {
                    assert!(after.len() > before.len() / 2, "taken for empty");
                    if is_found { found += 1 } else { silent += 1 }
                }
            },
        }
    }
    assert!(refused > 40 && reported > 10, "{refused} {reported}");
    println!(
        "damaged database: {refused} refused, {reported} reported when read, {found} found by the check, \
         {harmless} harmless, {silent} another valid value"
    );
}
