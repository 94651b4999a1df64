//! The embedded store: the suite that defines every store, and what only a store on disk must do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use punctual_store::conformance::{Case, SHARDS};
use punctual_store_embedded::{Embedded, OpenError, Options};

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
        let store = Embedded::open_with_segments(&options(&directory), 3).unwrap();
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
