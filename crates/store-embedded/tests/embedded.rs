//! The embedded store: the suite that defines every store, and what only a store on disk must do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::Run;
use punctual_store::conformance::{Case, SHARDS, World};
use punctual_store::{Held, Store};
use punctual_store_embedded::{Embedded, OpenError, Opening, Options};

fn options(directory: &tempfile::TempDir) -> Options {
    Options { directory: directory.path().join("data"), shards: SHARDS }
}

fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
    futures_executor::block_on(case(store));
}

punctual_store::conformance!(run);

/// The suite with an index of births that is written all the time.
mod in_small_segments {
    use super::*;

    fn run(case: Case) {
        let directory = tempfile::tempdir().unwrap();
        let opening = Opening { segment_births: 3, is_same_process: false };
        let store = Embedded::open_as(&options(&directory), opening).unwrap();
        futures_executor::block_on(case(Arc::new(store)));
    }

    punctual_store::conformance!(run);
}

#[test]
fn a_second_process_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let first = Embedded::open(&options(&directory)).unwrap();
    let error = Embedded::open(&options(&directory)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { pid: Some(_), .. }), "{error}");
    let directory_and_pid =
        (options(&directory).directory.display().to_string(), std::process::id().to_string());
    let text = error.to_string();
    assert!(text.contains(&directory_and_pid.0) && text.contains(&directory_and_pid.1), "{text}");
    drop(first);
    Embedded::open(&options(&directory)).unwrap();
}

/// A data directory has one process: whoever opens it knows that the one before is gone. Workers elsewhere are not.
#[test]
fn what_the_process_before_held_is_lost_at_once() {
    let directory = tempfile::tempdir().unwrap();
    futures_executor::block_on(async {
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let mut world = World::new(store.clone()).await;
        let job = world.register("born running", world.now).await;
        let mut firing = world.firing(&job, world.now);
        firing.births[0].claimed_by = Some(world.node);
        let own = world.try_firing(firing).await.unwrap().remove(0);
        let elsewhere = world.worker();
        let others = world.running("claimed from elsewhere", elsewhere).await;
        let (now, node) = (world.now, world.node);
        drop((world, store));

        // It was killed, say; and so is the next, before it did anything.
        drop(Embedded::open(&options(&directory)).unwrap());
        let store = Arc::new(Embedded::open(&options(&directory)).unwrap());
        let lease = Duration::from_secs(30);
        let lost = store.expired(lease, now, 10).await.unwrap();
        assert_eq!(lost.iter().map(Run::id).collect::<Vec<_>>(), [own.id()]);
        assert!(store.heartbeat(node, Vec::new(), now).await.unwrap().is_refused);
        let held = Held { sequence: others.sequence, attempt: 1 };
        let reply = store.heartbeat(elsewhere, vec![held], now).await.unwrap();
        assert!(!reply.is_refused && reply.not_held.is_empty());
        // Shards are free, under new epochs.
        let world = World::new(store).await;
        assert!(world.epochs.iter().all(|epoch| epoch.0 == 2));
    });
}

#[test]
fn what_is_not_ours_or_damaged_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = options(&directory).directory.join("punctual.db");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, b"this is not a database, it is a letter to somebody").unwrap();
    let error = Embedded::open(&options(&directory)).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    std::fs::remove_file(&file).unwrap();
    drop(Embedded::open(&options(&directory)).unwrap());
    let other = Options { shards: SHARDS * 2, ..options(&directory) };
    let error = Embedded::open(&other).unwrap_err();
    assert!(matches!(error, OpenError::Shards { found: SHARDS, .. }), "{error}");
}
