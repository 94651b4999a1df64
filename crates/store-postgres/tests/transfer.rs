//! Moving databases.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::Timestamp;
use punctual_store::conformance::interrupted::{
    assert_idempotent, assert_resumes, assert_verified, copy_all,
};
use punctual_store::conformance::transfer::{assert_goes_on, assert_same, story};
use punctual_store::conformance::{Case, SHARDS};
use punctual_store::transfer::{Note, Transfer};
use punctual_store::{Memory, Store};
use punctual_store_postgres::{Hints, OpenError, Options, Postgres, Side, Time};
use punctual_testing::Postgres as Server;

fn options(address: &str) -> Options {
    Options { connections: 4, time: Time::Caller, hints: Hints::Off, ..Options::new(address) }
}

/// After every story, so that nobody in it is live any more.
fn later() -> Timestamp {
    Timestamp::from_second(4_000_000_000).unwrap()
}

async fn open(address: &str) -> Arc<Postgres> {
    Arc::new(Postgres::open(&options(address)).await.unwrap())
}

/// A new store of as many shards as the stories need.
async fn fresh() -> (String, Arc<Postgres>) {
    let address = Server::shared().database();
    let options = Options { shards: Some(SHARDS), ..options(&address) };
    (address, Arc::new(Postgres::open(&options).await.unwrap()))
}

async fn from(address: &str) -> Side {
    Side::from(&options(address), later()).await.unwrap()
}

async fn to(address: &str) -> Side {
    Side::to(&options(address), SHARDS, later()).await.unwrap()
}

/// The address of a database with the story in it.
async fn told() -> String {
    let (address, store) = fresh().await;
    story(store).await;
    address
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

/// What every case of the suite leaves behind is moved, and answers the same.
fn run(case: Case) {
    block_on(async {
        let (one, store) = fresh().await;
        case(store).await;
        let other = Server::shared().database();
        copy_all(&from(&one).await, &to(&other).await, 500).await;
        assert_same(&*open(&one).await, &*open(&other).await).await;
    });
}

mod suite {
    use super::run;
    punctual_store::conformance!(run);
}

#[test]
fn a_copy_answers_the_same_and_goes_on() {
    block_on(async {
        let (one, other) = (told().await, Server::shared().database());
        copy_all(&from(&one).await, &to(&other).await, 3).await;
        assert_same(&*open(&one).await, &*open(&other).await).await;
        assert_goes_on(open(&other).await).await;
    });
}

#[test]
fn the_reference_store_is_moved_here_and_back() {
    block_on(async {
        let (one, back) = (Arc::new(Memory::new(SHARDS)), Arc::new(Memory::new(SHARDS)));
        story(one.clone()).await;
        let address = Server::shared().database();
        copy_all(&*one, &to(&address).await, 100).await;
        assert_same(&*one, &*open(&address).await).await;
        copy_all(&from(&address).await, &*back, 100).await;
        assert_same(&*one, &*back).await;
        assert_goes_on(back).await;
        assert_goes_on(open(&address).await).await;
    });
}

#[test]
fn a_copy_that_stops_anywhere_goes_on() {
    block_on(async {
        let one = told().await;
        let mut others: Vec<String> = Vec::new();
        assert_resumes(&from(&one).await, |n| {
            if others.len() <= n {
                others.resize_with(n + 1, || Server::shared().database());
            }
            let address = others[n].clone();
            async move { Arc::new(to(&address).await) as Arc<dyn Transfer> }
        })
        .await;
    });
}

#[test]
fn a_piece_that_comes_twice_is_there_once() {
    block_on(async {
        let (one, other) = (told().await, Server::shared().database());
        assert_idempotent(&from(&one).await, &to(&other).await).await;
    });
}

#[test]
fn a_copy_that_lost_something_is_refused() {
    block_on(async {
        let one = told().await;
        assert_verified(&from(&one).await, |_| async {
            Arc::new(to(&Server::shared().database()).await) as Arc<dyn Transfer>
        })
        .await;
    });
}

#[test]
fn a_database_in_use_is_not_moved_and_an_unfinished_copy_is_not_served() {
    use punctual_domain::id::WorkerId;
    use punctual_domain::{Node, Roles};
    use punctual_store::Attendance;
    block_on(async {
        let (one, store) = fresh().await;
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let node = Node {
            id: WorkerId::new(now, 1),
            name: "one".into(),
            address: None,
            release: "0".into(),
            roles: Roles::ALL,
            labels: Default::default(),
            started_at: now,
            capacity: 1,
            clock_ahead: jiff::SignedDuration::ZERO,
        };
        let sign = Attendance { node, densities: Vec::new() };
        Store::attend(&*store, sign, std::time::Duration::from_secs(5), now).await.unwrap();
        let refused = Side::from(&options(&one), now).await.err().unwrap();
        assert!(matches!(refused, OpenError::InUse { nodes: 1 }), "{refused}");
        let side = from(&one).await;
        // While it is copied, nobody writes to it.
        let locks = "select count(distinct relation) from pg_locks join pg_class c on c.oid = relation
            where c.relname in ('jobs', 'due', 'open_runs', 'history') and mode = 'ShareLock' and granted";
        let name = one.rsplit_once('/').unwrap().1;
        assert_eq!(Server::shared().psql(name, locks), "4");
        let other = Server::shared().database();
        let target = to(&other).await;
        let rival = to(&other).await;
        let note = Note::new(side.identity().await.unwrap(), now);
        target.begin(&note).await.unwrap();
        let refused = rival.begin(&note).await.unwrap_err();
        assert!(refused.to_string().contains("another copy"), "{refused}");
        let rival = to(&other).await;
        target.import(Vec::new(), &Note { cursor: None, ..note.clone() }).await.unwrap();
        let refused = rival.import(Vec::new(), &note).await.unwrap_err();
        assert!(refused.to_string().contains("another copy"), "{refused}");
        let refused = Postgres::open(&options(&other)).await.unwrap_err();
        assert!(matches!(refused, OpenError::Unfinished { .. }), "{refused}");
        assert!(refused.to_string().contains("punctual copy"), "{refused}");
    });
}
