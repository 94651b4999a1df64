//! Moving data directories.

use std::path::Path;
use std::sync::Arc;

use crate::support::{free, open};
use futures_executor::block_on;
use jiff::Timestamp;
use punctual_store::conformance::interrupted::{
    assert_idempotent, assert_resumes, assert_verified, copy_all,
};
use punctual_store::conformance::transfer::{STORY_ENDS, assert_goes_on, assert_same, story};
use punctual_store::conformance::{Case, SHARDS};
use punctual_store::transfer::{Note, Transfer};
use punctual_store::{Memory, Store};
use punctual_store_embedded::{Embedded, OpenError, Options, Side, check};
use tempfile::TempDir;

fn from(directory: &Path) -> Side {
    free(|| Side::from(directory)).unwrap()
}

fn to(directory: &Path) -> Side {
    free(|| Side::to(directory, SHARDS)).unwrap()
}

/// A directory with the story in it.
fn told() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    block_on(story(open(directory.path())));
    directory
}

/// Whether a directory is sound, but for jobs that a story has left without their slots.
fn assert_sound(directory: &Path) {
    let now = Timestamp::from_second(STORY_ENDS).unwrap();
    let mut checked = free(|| check(directory, now)).unwrap();
    checked.findings.retain(|finding| !finding.what.contains("but no entry"));
    assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
}

/// What every case of the suite leaves behind is moved, answers the same, and is sound.
fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (directory.path().join("one"), directory.path().join("other"));
    block_on(async {
        case(open(&one)).await;
        copy_all(&from(&one), &to(&other), 500).await;
        assert_sound(&other);
        assert_same(&*open(&one), &*open(&other)).await;
    });
}

mod suite {
    use super::run;
    punctual_store::conformance!(run);
}

#[test]
fn a_copy_answers_the_same_and_goes_on() {
    let (one, other) = (told(), tempfile::tempdir().unwrap());
    block_on(async {
        copy_all(&from(one.path()), &to(other.path()), 3).await;
        assert_sound(other.path());
        assert_same(&*open(one.path()), &*open(other.path())).await;
        assert_goes_on(open(other.path())).await;
        assert_sound(other.path());
    });
}

#[test]
fn the_reference_store_is_moved_here_and_back() {
    let directory = tempfile::tempdir().unwrap();
    block_on(async {
        let (one, back) = (Arc::new(Memory::new(SHARDS)), Arc::new(Memory::new(SHARDS)));
        story(one.clone()).await;
        copy_all(&*one, &to(directory.path()), 100).await;
        assert_sound(directory.path());
        assert_same(&*one, &*open(directory.path())).await;
        copy_all(&from(directory.path()), &*back, 100).await;
        assert_same(&*one, &*back).await;
        assert_goes_on(back).await;
        assert_goes_on(open(directory.path())).await;
    });
}

#[test]
fn a_copy_that_stops_anywhere_goes_on() {
    let (one, others) = (told(), tempfile::tempdir().unwrap());
    block_on(assert_resumes(&from(one.path()), |n| {
        let side: Arc<dyn Transfer> = Arc::new(to(&others.path().join(n.to_string())));
        async move { side }
    }));
    assert_sound(&others.path().join("7"));
}

#[test]
fn a_piece_that_comes_twice_is_there_once() {
    let (one, other) = (told(), tempfile::tempdir().unwrap());
    block_on(assert_idempotent(&from(one.path()), &to(other.path())));
}

#[test]
fn a_copy_that_lost_something_is_refused() {
    let (one, others) = (told(), tempfile::tempdir().unwrap());
    block_on(assert_verified(&from(one.path()), |n| {
        let side: Arc<dyn Transfer> = Arc::new(to(&others.path().join(n.to_string())));
        async move { side }
    }));
}

#[test]
fn a_directory_in_use_is_not_moved_and_an_unfinished_copy_is_not_served() {
    let (one, other) = (told(), tempfile::tempdir().unwrap());
    let store = open(one.path());
    assert!(matches!(Side::from(one.path()), Err(OpenError::InUse { .. })));
    assert!(matches!(Side::to(one.path(), SHARDS), Err(OpenError::InUse { .. })));
    drop(store);
    block_on(async {
        let note = Note::new(from(one.path()).identity().await.unwrap(), Timestamp::UNIX_EPOCH);
        to(other.path()).begin(&note).await.unwrap();
    });
    let options = Options { directory: other.path().into(), shards: None };
    let refused = free(|| Embedded::open(&options)).unwrap_err();
    assert!(matches!(&refused, OpenError::Unfinished { .. }), "{refused}");
    assert!(refused.to_string().contains("punctual copy"), "{refused}");
    let checked = free(|| check(other.path(), Timestamp::UNIX_EPOCH)).unwrap();
    assert!(checked.findings.iter().any(|finding| finding.what.contains("not finished")));
}

#[test]
fn a_directory_keeps_the_number_of_its_shards() {
    let directory = tempfile::tempdir().unwrap();
    drop(free(|| Side::to(directory.path(), 256)).unwrap());
    let options = Options { directory: directory.path().into(), shards: None };
    let store = free(|| Embedded::open(&options)).unwrap();
    assert_eq!(Store::shard_count(&store), 256);
    drop(store);
    let wanted = Options { shards: Some(64), ..options };
    assert!(matches!(free(|| Embedded::open(&wanted)), Err(OpenError::Shards { found: 256, wanted: 64 })));
}
