//! The previous version and this one on the same database: what it left is read right, and its nodes work on beside ours.
//!
//! `schema.sql` and `statements.sql` are of the previous version: a dump with something in every table, and every
//! statement that its verbs send. `UPDATE_PREVIOUS=1 cargo test --release -p punctual-store-postgres --test previous` writes those
//! of this version, for the next one to be held against; see CONTRIBUTING.md.
#![allow(clippy::unwrap_used, reason = "tests")]

mod due;
mod old;
mod renew;
mod side_by_side;
mod statements;
mod story;

use std::sync::Arc;

use punctual_domain::job::JobState;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::Event;
use punctual_domain::{Outcome, Run, RunState};
use punctual_store::conformance::{SHARDS, World};
use punctual_store::{Effect, Firing, OperationFilter, PageRequest, Refused, RunFilter, Shards, Step, Store};
use punctual_store_postgres::{Options, Postgres, Schema, Time};
use punctual_testing::Postgres as Server;
use tokio_postgres::NoTls;

use crate::statements::{Statement, Statements};

fn options(address: &str) -> Options {
    Options { shards: Some(SHARDS), connections: 4, time: Time::Caller, ..Options::new(address) }
}

/// A session beside the store.
async fn session(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A database as the previous version left it.
async fn restored() -> String {
    let address = Server::shared().database();
    session(&address).await.batch_execute(include_str!("schema.sql")).await.unwrap();
    address
}

/// The same story told to this version, and what the previous one left, brought up to date.
async fn worlds() -> [(Arc<Postgres>, World); 2] {
    let told = Arc::new(Postgres::open(&options(&Server::shared().database())).await.unwrap());
    let world = story::tell(&told).await;
    let options = options(&restored().await);
    let found = Schema::bring_up(&options).await.unwrap();
    assert!(found.found > 0 && found.found <= found.known, "{found:?}");
    let left = Arc::new(Postgres::open(&options).await.unwrap());
    let mut same = World::new_at(left.clone(), story::BEGIN).await;
    same.now = world.now;
    [(told, world), (left, same)]
}

#[tokio::test]
async fn what_the_previous_version_left_is_read_right() {
    let [(told, world), (left, same)] = worlds().await;
    let (expected, found) = (story::read(&told, &world).await, story::read(&left, &same).await);
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
    assert_eq!(expected.len(), found.len());
    let news = [told.news(world.node, world.now).await, left.news(same.node, same.now).await];
    assert!(matches!(news[0], Ok(Some(_))) && news[0] == news[1], "{news:?}");
}

#[tokio::test]
async fn what_the_previous_version_left_goes_on() {
    let [_, (store, mut world)] = worlds().await;
    fire_all(&mut world).await;
    // What runs is ended by whoever held it, what waits is claimed.
    let running = runs(&world, "running").await;
    assert!(!running.is_empty());
    for run in running {
        let RunState::Running(lease) = &run.state else { panic!("{run:?}") };
        world.conclude(lease.worker, &run, Outcome::Cancelled, Verdict::Cancel).await.unwrap();
    }
    let worker = world.worker();
    world.now = world.after(1_000_000);
    let mut ended = 0;
    loop {
        // One waits for the permit of another.
        let claimed = world.claim(worker, 1_000).await;
        for run in &claimed {
            world.conclude(worker, run, Outcome::Succeeded, Verdict::Succeed).await.unwrap();
        }
        ended += claimed.len();
        if claimed.is_empty() {
            break;
        }
    }
    assert!(ended > 5, "{ended}");
    assert_eq!(runs(&world, "pending").await, []);
    // Dead letters, operations and requests.
    let is_dead = RunFilter { is_dead: Some(true), ..RunFilter::default() };
    let dead = world.store.runs(&is_dead, PageRequest::first(100)).await.unwrap().items;
    assert_eq!(dead.len(), 8);
    let ids: Vec<_> = dead.iter().map(Run::id).collect();
    assert!(world.store.redrive(&ids, world.now).await.unwrap().iter().all(Result::is_ok));
    let all = OperationFilter::default();
    let operations = world.store.operations(&all, PageRequest::first(100)).await.unwrap().items;
    let mut steps = 0;
    for mut operation in operations {
        let is_running = operation.is_running();
        if is_running {
            operation.apply(Event::Succeeded, world.now).unwrap();
        }
        let (effect, ledger) = (Effect::Nothing, Vec::new());
        let step = Step { operation, epoch: None, effect, ledger, request: None, audit: None };
        let answer = world.store.step(vec![step], world.now).await.unwrap().remove(0);
        assert_eq!(answer.is_ok(), is_running, "{answer:?}");
        steps += usize::from(is_running);
    }
    assert_eq!(steps, 1);
    store.retain(world.now, 1_000).await.unwrap();
}

/// Fires every entry that is due, and finds that it can be done once.
async fn fire_all(world: &mut World) {
    let entries = world.due_until(world.after(1_000_000)).await;
    let mut fired = 0;
    for due in entries {
        let stored = world.store.jobs(&[due.key.job]).await.unwrap().remove(0);
        let Some(stored) = stored else { continue };
        let is_current = stored.job.version == due.version && stored.job.state == JobState::Active;
        let firing = Firing { next: None, due, ..world.firing(&stored.job, due.slot) };
        for is_first in [true, false] {
            match world.try_firing(firing.clone()).await {
                Ok(runs) => {
                    assert!(is_first && is_current && runs.len() == 1, "{due:?}");
                    assert_eq!((runs[0].job, runs[0].scheduled_for), (due.key.job, due.slot));
                    fired += 1;
                }
                Err(refused) => {
                    assert_eq!(refused, Refused::NotDue);
                    assert!(!is_first || !is_current, "{due:?}");
                }
            }
        }
    }
    assert!(fired > 5, "{fired} entries were fired");
    // Whatever was stale is gone as well, except for jobs that are.
    for due in world.due_until(world.after(1_000_000)).await {
        assert_eq!(world.store.jobs(&[due.key.job]).await.unwrap(), [None]);
    }
    assert!(world.store.next_available_at(&Shards::All).await.unwrap().is_some());
}

async fn runs(world: &World, state: &'static str) -> Vec<Run> {
    let filter = RunFilter { state: Some(state), ..RunFilter::default() };
    world.store.runs(&filter, PageRequest::first(1_000)).await.unwrap().items
}

#[tokio::test]
async fn every_statement_of_the_previous_version_still_prepares_with_the_same_types() {
    let address = Server::shared().database();
    Schema::bring_up(&options(&address)).await.unwrap();
    let client = session(&address).await;
    let statements = Statements::read().0;
    for Statement { text, types } in &statements {
        match client.prepare(text).await {
            Ok(prepared) => assert_eq!(&statements::types(&prepared), types, "{text}"),
            Err(error) => panic!("{:?}: {text}", error.as_db_error()),
        }
    }
    assert!(statements.len() > 100, "{} statements", statements.len());
}
