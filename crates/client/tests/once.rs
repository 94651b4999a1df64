//! Handlers that take effect once, with the store in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_client::once::{Memory, Store, Transaction, once};
use punctual_client::worker::{Failed, Task};
use serde_json::json;

#[tokio::test]
async fn a_key_is_given_to_one_at_a_time_and_keeps_its_record() {
    let store = Memory::default();
    let first = store.begin("a").await.unwrap();
    assert_eq!(first.recorded(), None);
    let waits = {
        let store = store.clone();
        tokio::spawn(async move { store.begin("a").await.unwrap().recorded() })
    };
    assert!(store.begin("b").await.unwrap().recorded().is_none(), "another key is free");
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    first.commit("\"done\"".into()).await.unwrap();
    assert_eq!(waits.await.unwrap().as_deref(), Some("\"done\""));
}

#[tokio::test]
async fn what_is_dropped_is_not_recorded() {
    let store = Memory::default();
    drop(store.begin("a").await.unwrap());
    assert_eq!(store.begin("a").await.unwrap().recorded(), None);
}

#[tokio::test]
async fn the_oldest_keys_are_forgotten() {
    let store = Memory::new(2);
    for key in ["a", "b", "c"] {
        store.begin(key).await.unwrap().commit(key.into()).await.unwrap();
    }
    assert_eq!(store.begin("a").await.unwrap().recorded(), None);
    assert_eq!(store.begin("c").await.unwrap().recorded().as_deref(), Some("c"));
}

#[tokio::test]
async fn many_who_want_a_key_do_it_once() {
    let (store, done) = (Memory::default(), Arc::new(AtomicUsize::new(0)));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (store, done) = (store.clone(), Arc::clone(&done));
        all.spawn(async move {
            let transaction = store.begin("a").await.unwrap();
            if transaction.recorded().is_none() {
                done.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                transaction.commit("1".into()).await.unwrap();
            }
        });
    }
    while all.join_next().await.is_some() {}
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

fn task(key: &str, attempt: u32) -> Task {
    let attempt = json!({"run_id": "r", "attempt": attempt, "job_id": "j", "job_name": "charge", "handler": "charge",
        "queue": "default", "scheduled_for": "2026-11-18T09:00:00Z", "idempotency_key": key, "timeout": "PT5M"});
    Task::new(serde_json::from_value(attempt).unwrap())
}

#[tokio::test]
async fn a_run_that_is_delivered_again_gets_its_recorded_answer() {
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let charge = once(Memory::default(), move |task, transaction| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            match task.attempt().attempt {
                1 => Err(Failed::new("the card reader was off")),
                number => Ok((transaction, Some(format!("charged by attempt {number}")))),
            }
        }
    });
    assert!(charge(task("a", 1)).await.is_err(), "what fails is not recorded");
    assert_eq!(charge(task("a", 2)).await.unwrap().as_deref(), Some("charged by attempt 2"));
    assert_eq!(charge(task("a", 3)).await.unwrap().as_deref(), Some("charged by attempt 2"));
    assert_eq!(done.load(Ordering::SeqCst), 2);
    assert_eq!(charge(task("b", 2)).await.unwrap().as_deref(), Some("charged by attempt 2"));
    assert_eq!(done.load(Ordering::SeqCst), 3, "another run is another key");
}

#[tokio::test]
async fn an_answer_of_nothing_is_an_answer() {
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let quiet = once(Memory::default(), move |_, transaction| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Ok((transaction, None)) }
    });
    for attempt in 1..4 {
        assert_eq!(quiet(task("a", attempt)).await, Ok(None));
    }
    assert_eq!(done.load(Ordering::SeqCst), 1);
}
