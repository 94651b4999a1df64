//! Lists from standbys: which are used, and that nothing else ever is.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{Epoch, OperationId, ShardId};
use punctual_store::conformance::{SHARDS, World, cases};
use punctual_store::{JobFilter, MoveState, MoveStep, PageRequest, Replica, RunFilter, Store};
use punctual_store_postgres::{Hints, Options, Role, Several, Time};
use punctual_testing::Postgres as Server;

const HOUR: Duration = Duration::from_secs(3_600);

fn database(address: &str) -> Options {
    let options =
        Options { shards: Some(SHARDS), time: Time::Caller, hints: Hints::Off, ..Options::new(address) };
    Options { connections: 2, ..options }
}

fn replica(address: &str, lag_max: Duration) -> Options {
    Options { role: Role::Replica { lag_max }, ..Options::replica(address) }
}

fn figures(store: &Several) -> Vec<Replica> {
    store.figures().replicas
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..1_200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} does not happen");
}

async fn until_used(store: &Several, expected: &[bool]) {
    until("it", async || figures(store).iter().map(|one| one.is_used).collect::<Vec<_>>() == expected).await;
}

/// The names of all jobs: in the database, and in the list for people.
async fn names(store: &Several) -> (Vec<String>, Vec<String>) {
    let (filter, page) = (JobFilter::default(), PageRequest::first(500));
    let kept = Store::list_jobs(store, &filter, page.clone()).await.unwrap();
    let listed = store.lists().unwrap().list_jobs(&filter, page).await.unwrap();
    let names = |page: punctual_store::Page<punctual_store::Stored, _>| {
        page.items.iter().map(|stored| stored.job.spec.name.clone()).collect()
    };
    (names(kept), names(listed))
}

/// Everything is decided right beside replicas that stopped when there was nothing yet, and that are used all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_beside_replicas_that_know_nothing() {
    let server = Server::start(&["fsync=off"]);
    let follower = server.follower();
    // A few at a time: each store looks at both servers every second.
    for cases in cases().chunks(8) {
        let mut stores = Vec::new();
        for (name, case) in cases {
            let address = server.database();
            let behind = follower.url(address.rsplit('/').next().unwrap());
            let store = Several::open(&[database(&address), replica(&behind, HOUR)]).await.unwrap();
            stores.push((name, case, Arc::new(store)));
        }
        for (_, _, store) in &stores {
            until_used(store, &[true]).await;
        }
        follower.pause_replay(true);
        for (name, case, store) in stores {
            case(store.clone()).await;
            let before = figures(&store)[0].reads;
            until("a list comes from the replica", async || {
                let (filter, page) = (RunFilter::default(), PageRequest::first(9));
                let runs = store.lists().unwrap().runs(&filter, page).await.unwrap();
                let is_read = figures(&store)[0].reads > before;
                assert!(!is_read || runs.items.is_empty(), "{name}: what it knows is nothing");
                is_read
            })
            .await;
        }
        follower.pause_replay(false);
    }
}

#[tokio::test]
async fn a_replica_is_used_while_it_is_near_and_the_database_otherwise() {
    let server = Server::start(&["fsync=off"]);
    let follower = server.follower();
    let address = server.database();
    let near = Duration::from_secs(4);
    let behind = replica(&follower.url(address.rsplit('/').next().unwrap()), near);
    let store = Arc::new(Several::open(&[database(&address), behind]).await.unwrap());
    let mut world = World::new(store.clone()).await;
    world.register("a", world.now).await;
    until_used(&store, &[true]).await;
    until("the replica has it", async || names(&store).await.1 == ["a"] && figures(&store)[0].reads > 0)
        .await;

    // It stops where it is: soon it is too far behind.
    follower.pause_replay(true);
    world.register("b", world.now).await;
    assert_eq!(names(&store).await.0, ["a", "b"]);
    until("it is too far behind", async || {
        let replica = figures(&store).remove(0);
        assert!(!replica.is_used || replica.lag.is_some_and(|lag| lag <= near));
        replica.lag.is_some_and(|lag| lag > near)
    })
    .await;
    assert_eq!(names(&store).await.1, ["a", "b"], "from the database");
    follower.pause_replay(false);
    until_used(&store, &[true]).await;
    assert_eq!(names(&store).await.1, ["a", "b"]);

    // It goes, without a word and then with one: nobody waits for it for long, and nobody sees an error.
    let frozen = follower.freeze();
    assert_eq!(names(&store).await.1, ["a", "b"]);
    until_used(&store, &[false]).await;
    drop(frozen);
    until_used(&store, &[true]).await;
    follower.crash();
    assert_eq!(names(&store).await.1, ["a", "b"]);
    until_used(&store, &[false]).await;
    assert!(store.health().writable);
    follower.start_again();
    until_used(&store, &[true]).await;

    // It is promoted: what is written to it is not ours.
    follower.promote();
    follower.psql(address.rsplit('/').next().unwrap(), "delete from jobs");
    until_used(&store, &[false]).await;
    assert_eq!(names(&store).await.1, ["a", "b"]);
}

#[tokio::test]
async fn a_replica_is_known_by_what_it_says_it_is() {
    let (server, other) = (Server::start(&["fsync=off"]), Server::start(&["fsync=off"]));
    let (follower, stranger) = (server.follower(), other.follower());
    let (one, two, foreign) = (server.database(), server.database(), server.database());
    drop(Several::open(&[database(&foreign)]).await.unwrap());
    let of = |address: &str| replica(&follower.url(address.rsplit('/').next().unwrap()), HOUR);
    let elsewhere = other.database();
    drop(Several::open(&[database(&elsewhere)]).await.unwrap());
    let nowhere = replica("postgres://punctual@127.0.0.1:1/nowhere", HOUR);
    let all = [
        database(&one),
        database(&two),
        // In another order than the databases.
        of(&two),
        of(&one),
        of(&foreign),
        replica(&stranger.url(elsewhere.rsplit('/').next().unwrap()), HOUR),
        replica(&one, HOUR),
        nowhere,
    ];
    let store = Arc::new(Several::open(&all).await.unwrap());
    until_used(&store, &[true, true, false, false, false, false]).await;
    let operation = OperationId::new(Timestamp::now(), ShardId(0), 7);
    let shards = (0..SHARDS).filter(|shard| shard % 2 == 1).map(ShardId).collect();
    let step = MoveStep { operation, epoch: Epoch(1), shards, to: 1 };
    while store.move_shards(step.clone()).await.unwrap().state != MoveState::Done {}
    let mut world = World::new(store.clone()).await;
    for number in 0..20 {
        world.register(&format!("job {number:02}"), world.now).await;
    }
    until("both replicas have it all", async || names(&store).await.1.len() == 20).await;
    until("both were read", async || {
        names(&store).await;
        figures(&store)[..2].iter().all(|one| one.reads > 0)
    })
    .await;
    assert_eq!(names(&store).await.0, names(&store).await.1);
    assert!(figures(&store)[2..].iter().all(|one| one.reads == 0));
}

#[tokio::test]
async fn a_replica_with_an_older_schema_is_not_read() {
    let server = Server::start(&["fsync=off"]);
    let follower = server.follower();
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let store = Several::open(&[database(&address), replica(&follower.url(name), HOUR)]).await.unwrap();
    until_used(&store, &[true]).await;
    // As if it had stopped before the last step of the schema, and that step had been the database's.
    let last = "delete from schema_versions where version = (select max(version) from schema_versions)";
    server.psql(name, last);
    until_used(&store, &[false]).await;
    assert_eq!(names(&store).await, (vec![], vec![]));
}

#[tokio::test]
async fn a_role_without_rights_is_enough_for_a_replica() {
    let server = Server::start(&["fsync=off"]);
    let follower = server.follower();
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    drop(Several::open(&[database(&address)]).await.unwrap());
    server.psql(name, "create role reader login; grant select on all tables in schema public to reader");
    let reader = follower.url(name).replace("punctual@", "reader@");
    let store = Arc::new(Several::open(&[database(&address), replica(&reader, HOUR)]).await.unwrap());
    let mut world = World::new(store.clone()).await;
    world.register("a", world.now).await;
    until_used(&store, &[true]).await;
    until("the reader sees it", async || names(&store).await.1 == ["a"] && figures(&store)[0].reads > 0)
        .await;
}
