//! Backup under load and restore: whole, refused when not, and nothing that was given out is given out again.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{open, options, puts};
use futures_executor::block_on;
use punctual_domain::Run;
use punctual_store::conformance::World;
use punctual_store::{JobFilter, PageRequest, RunFilter, Store};
use punctual_store_embedded::{BackupError, Embedded, Manifest, OpenError, Phase, restore};

const START: i64 = 1_800_000_000;

/// A store with jobs, a slot that is due, a waiting and a running run, and some history.
fn populated(directory: &Path) -> (Arc<Embedded>, World) {
    let store = open(directory);
    let mut world = block_on(World::new(store.clone()));
    block_on(async {
        for name in ["a", "b", "c"] {
            let worker = world.worker();
            let run = world.running(name, worker).await;
            world
                .conclude(
                    worker,
                    &run,
                    punctual_domain::Outcome::Succeeded,
                    punctual_domain::lifecycle::Verdict::Succeed,
                )
                .await
                .unwrap();
        }
        world.fired("waiting").await;
    });
    (store, world)
}

fn all_runs(store: &Embedded) -> Vec<Run> {
    let page = PageRequest { after: None, limit: 10_000 };
    block_on(store.runs(&RunFilter::default(), page)).unwrap().items
}

fn all_jobs(store: &Embedded) -> Vec<punctual_store::Stored> {
    let page = PageRequest { after: None, limit: 10_000 };
    block_on(store.list_jobs(&JobFilter::default(), page)).unwrap().items
}

#[test]
fn a_backup_of_a_quiet_store_restores_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    let (store, world) = populated(&directory.path().join("data"));
    let mut phases = Vec::new();
    let made = store.backup(&backup, world.now, |progress| {
        assert!(progress.done <= progress.total);
        phases.push(progress.phase);
    });
    let made = made.unwrap();
    assert!(phases.contains(&Phase::Copying) && phases.contains(&Phase::Verifying));
    assert_eq!(made, Manifest::read(&backup).unwrap());
    assert_eq!((made.counts.jobs, made.counts.open_runs, made.counts.history), (4, 1, 3));
    let mut files: Vec<_> = fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["backup.json", "punctual.db"]);
    restore(&backup, &restored, world.now, |_| {}).unwrap();
    let copy = open(&restored);
    assert_eq!(all_runs(&copy), all_runs(&store));
    assert_eq!(all_jobs(&copy), all_jobs(&store));
    let error = Embedded::open(&options(&backup)).unwrap_err();
    assert!(matches!(error, OpenError::IsBackup(_)), "{error}");
}

#[test]
fn writes_go_on_during_a_backup_and_the_copy_is_of_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    let (store, mut world) = populated(&directory.path().join("data"));
    let many: Vec<_> = puts(&mut world, 3_000, 2_000);
    let answers = block_on(store.put_jobs(many, world.now)).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    let (is_over, pairs) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut made_meanwhile = 0;
    std::thread::scope(|scope| {
        let (store, is_over, pairs, mut writing) =
            (&store, &is_over, &pairs, puts(&mut world, 4_000, 1_000).into_iter());
        let now = world.now;
        scope.spawn(move || {
            // Two jobs in each commit: a copy has both or none.
            while !is_over.load(Ordering::Relaxed)
                && let (Some(one), Some(two)) = (writing.next(), writing.next())
            {
                block_on(store.put_jobs(vec![one, two], now)).unwrap();
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut steps = 0;
        store
            .backup(&backup, now, |progress| {
                // The backup is in the middle of its copy, and a write is taken. It waits for one now and then.
                steps += 1;
                if progress.phase == Phase::Copying && steps <= 10 {
                    let before = pairs.load(Ordering::Relaxed);
                    while pairs.load(Ordering::Relaxed) == before {
                        std::thread::yield_now();
                    }
                    made_meanwhile += 1;
                }
            })
            .unwrap();
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(made_meanwhile >= 5, "{made_meanwhile}");
    restore(&backup, &restored, world.now, |_| {}).unwrap();
    let copied = all_jobs(&open(&restored)).len();
    let there = all_jobs(&store).len();
    assert!(copied >= 3_004 && copied < there, "{copied} of {there}");
    assert_eq!(copied % 2, 0, "commits are whole in the copy");
    println!(
        "backup under load: {made_meanwhile} steps waited for a commit, {copied} of {there} jobs copied"
    );
}

#[test]
fn what_is_in_the_way_or_not_whole_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (backup, target) = (directory.path().join("backup"), directory.path().join("target"));
    let (store, world) = populated(&directory.path().join("data"));
    fs::create_dir(&backup).unwrap();
    fs::write(backup.join("letter"), "dear").unwrap();
    let error = store.backup(&backup, world.now, |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error}");
    assert_eq!(fs::read_dir(&backup).unwrap().count(), 1, "and left as it was");
    fs::remove_file(backup.join("letter")).unwrap();
    // What a backup that died left behind is no hindrance, and no backup.
    fs::write(backup.join("punctual.db.partial"), "half").unwrap();
    let error = restore(&backup, &target, world.now, |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NotABackup(_)), "{error}");
    let made = store.backup(&backup, world.now, |_| {}).unwrap();
    let error = store.backup(&backup, world.now, |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error}");

    let file = backup.join("punctual.db");
    let whole = fs::read(&file).unwrap();
    let mut rng = fastrand::Rng::with_seed(8);
    let mut refused = 0;
    for case in 0..60 {
        let mut bytes = whole.clone();
        match case % 3 {
            0 => bytes.truncate(rng.usize(..whole.len())),
            1 => bytes.extend([0; 100]),
            _ => bytes[rng.usize(..whole.len())] ^= 1 << rng.u8(..8),
        }
        fs::write(&file, &bytes).unwrap();
        let error = restore(&backup, &target, world.now, |_| {}).unwrap_err();
        assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("punctual.db"), "{error}");
        refused += 1;
    }
    fs::write(&file, &whole).unwrap();
    let newer = Manifest { format: 99, ..made };
    let manifest = fs::read(backup.join("backup.json")).unwrap();
    fs::write(backup.join("backup.json"), serde_json::to_string(&newer).unwrap()).unwrap();
    let error = restore(&backup, &target, world.now, |_| {}).unwrap_err();
    assert!(error.to_string().contains("run the newer version"), "{error}");
    fs::write(backup.join("backup.json"), &manifest[..40]).unwrap();
    let error = restore(&backup, &target, world.now, |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
    fs::write(backup.join("backup.json"), &manifest).unwrap();

    // A restore that died left half a file: the directory is refused until the restore is done again.
    fs::write(target.join("punctual.db.restoring"), &whole[..5_000]).unwrap();
    let error = Embedded::open(&options(&target)).unwrap_err();
    assert!(error.to_string().contains("a restore into this directory was interrupted"), "{error}");
    restore(&backup, &target, world.now, |_| {}).unwrap();
    drop(open(&target));
    let error = restore(&backup, &target, world.now, |_| {}).unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error}");
    println!("damaged backups: {refused} refused");
}

#[test]
fn after_a_restore_a_slot_keeps_its_key_and_no_sequence_is_given_out_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    let (store, mut world) = populated(&directory.path().join("data"));
    let slot = world.now;
    let due = block_on(world.register("in flight", slot));
    let worker = world.worker();
    let claimed = block_on(world.claim(worker, 1)).remove(0);
    store.backup(&backup, world.now, |_| {}).unwrap();
    // The original goes on: it fires the slot, and gives out sequences.
    let original = block_on(world.try_fire(&due, slot)).unwrap().remove(0);
    world.advance(Duration::from_millis(1));
    let mut given: Vec<_> = all_runs(&store).iter().map(|run| run.sequence).collect();
    for number in 0..50 {
        given.push(block_on(world.fired(&format!("later {number}"))).sequence);
    }
    // The clock of the machine it is restored on is behind the original's, and stands still.
    restore(&backup, &restored, world.after(-5), |_| {}).unwrap();
    let copy = open(&restored);
    let before: Vec<_> = all_runs(&copy).iter().map(|run| run.sequence).collect();
    // Its owner is gone with the original, and does not have to be waited for.
    let mut after = block_on(World::new_at(copy.clone(), START - 5));
    let again = block_on(async {
        let entries = after.due_until(slot).await;
        assert!(entries.iter().any(|entry| entry.key.job == due.id), "the slot is due again");
        after.now = world.now; // To the millisecond when the original gave out its last ones.
        after.try_fire(&due, slot).await.unwrap().remove(0)
    });
    assert_eq!(again.idempotency_key(), original.idempotency_key(), "the receiver recognises it");
    assert_ne!(again.id(), original.id(), "though it is another run");
    for number in 0..200 {
        let born = block_on(after.fired(&format!("new {number}"))).sequence;
        assert!(!given.contains(&born) && !before.contains(&born), "{born:?} was given out before");
        given.push(born);
    }
    // The run that was being tried goes on as the same run.
    after.advance(Duration::from_secs(60));
    let lost = block_on(copy.expired(Duration::from_secs(10), after.now, 10)).unwrap();
    assert_eq!(lost.iter().map(Run::id).collect::<Vec<_>>(), [claimed.id()]);
    assert_eq!(lost[0].idempotency_key(), claimed.idempotency_key());
    // The numbers hold when the restored store is opened again, and for a restore of a backup of it.
    let second = directory.path().join("second");
    copy.backup(&second, after.now, |_| {}).unwrap();
    let target = directory.path().join("restored again");
    restore(&second, &target, after.after(-100), |_| {}).unwrap();
    let third = open(&target);
    let mut last = block_on(World::new_at(third.clone(), START));
    last.advance(Duration::from_millis(7));
    for number in 0..50 {
        let born = block_on(last.fired(&format!("third {number}"))).sequence;
        assert!(!given.contains(&born), "{born:?} was given out before");
        given.push(born);
    }
    assert_eq!(given.last().unwrap().database(), 2);
}
