//! Moving the reference store.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use futures_executor::block_on;
use jiff::Timestamp;
use punctual_store::Memory;
use punctual_store::conformance::interrupted::{
    assert_idempotent, assert_resumes, assert_verified, copy_all,
};
use punctual_store::conformance::transfer::{assert_goes_on, assert_same, story};
use punctual_store::conformance::{Case, SHARDS};
use punctual_store::transfer::{CopyError, Transfer, copy};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_400_000).unwrap()
}

fn told() -> Arc<Memory> {
    let store = Arc::new(Memory::new(SHARDS));
    block_on(story(store.clone()));
    store
}

/// What every case of the suite leaves behind is moved, and answers the same.
fn run(case: Case) {
    block_on(async {
        let (from, to) = (Arc::new(Memory::new(SHARDS)), Memory::new(SHARDS));
        case(from.clone()).await;
        copy_all(&*from, &to, 500).await;
        assert_same(&*from, &to).await;
    });
}

mod suite {
    use super::run;
    punctual_store::conformance!(run);
}

#[test]
fn a_copy_answers_the_same_and_goes_on() {
    let (from, to) = (told(), Arc::new(Memory::new(SHARDS)));
    block_on(async {
        copy_all(&*from, &*to, 3).await;
        assert_same(&*from, &*to).await;
        assert_goes_on(to).await;
    });
}

#[test]
fn a_copy_that_stops_anywhere_goes_on() {
    let mut stores: Vec<Arc<Memory>> = Vec::new();
    block_on(assert_resumes(&*told(), |n| {
        if stores.len() <= n {
            stores.resize_with(n + 1, || Arc::new(Memory::new(SHARDS)));
        }
        let store: Arc<dyn Transfer> = stores[n].clone();
        async move { store }
    }));
}

#[test]
fn a_piece_that_comes_twice_is_there_once() {
    block_on(assert_idempotent(&*told(), &Memory::new(SHARDS)));
}

#[test]
fn a_copy_that_lost_something_is_refused() {
    block_on(assert_verified(&*told(), |_| async {
        let store: Arc<dyn Transfer> = Arc::new(Memory::new(SHARDS));
        store
    }));
}

#[test]
fn only_an_empty_store_of_as_many_shards_takes_a_copy() {
    let (from, full) = (told(), told());
    block_on(async {
        let refused = copy(&*from, &Memory::new(SHARDS * 2), 100, now(), &mut |_| {}).await;
        assert!(matches!(refused, Err(CopyError::Shards { from: SHARDS, .. })), "{refused:?}");
        let refused = copy(&*from, &*full, 100, now(), &mut |_| {}).await;
        assert!(matches!(refused, Err(CopyError::NotEmpty { .. })), "{refused:?}");
    });
}

#[test]
fn what_was_used_since_is_not_gone_on_with() {
    use punctual_domain::WorkerId;
    use punctual_store::transfer::Note;
    use punctual_store::{Shards, Store};
    let (from, to) = (told(), Memory::new(SHARDS));
    block_on(async {
        to.begin(&Note::new(from.identity().await.unwrap(), now())).await.unwrap();
        let refused = copy(&to, &Memory::new(SHARDS), 100, now(), &mut |_| {}).await;
        assert!(matches!(refused, Err(CopyError::Unfinished { .. })), "{refused:?}");
        let later = Timestamp::from_second(2_000_000_000).unwrap();
        let node = WorkerId::new(later, 5);
        from.acquire(node, Shards::All, std::time::Duration::from_secs(9), later).await.unwrap();
        let refused = copy(&*from, &to, 100, now(), &mut |_| {}).await;
        assert!(matches!(refused, Err(CopyError::Used { .. })), "{refused:?}");
        let refused = copy(&Memory::new(SHARDS), &to, 100, now(), &mut |_| {}).await;
        assert!(matches!(refused, Err(CopyError::Used { .. } | CopyError::OtherCopy { .. })), "{refused:?}");
    });
}
