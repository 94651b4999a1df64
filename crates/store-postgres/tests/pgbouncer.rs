//! The store behind PgBouncer in transaction mode: the suite that defines every store, and what is different there.
//!
//! There are fewer connections to the database than the store has to PgBouncer, so that they change hands all the time.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::WorkerId;
use punctual_store::conformance::{Case, SHARDS};
use punctual_store::{Error, Fault, Shards, Store};
use punctual_store_postgres::{Hints, OpenError, Options, Postgres, Schema, Time};
use punctual_testing::{PgBouncer, Postgres as Server};
use tokio_postgres::NoTls;

/// Connections of the bouncer to a database, and of a store to the bouncer.
const SHARED: usize = 4;
const OWN: usize = 10;

/// The address of a new database through the bouncer, and at the server itself.
fn database() -> (String, String) {
    static BOUNCER: OnceLock<PgBouncer> = OnceLock::new();
    let server = Server::shared();
    let bouncer = BOUNCER.get_or_init(|| PgBouncer::start(server, SHARED));
    let address = server.database();
    (bouncer.through(&address), address)
}

fn options(address: &str) -> Options {
    Options { shards: Some(SHARDS), connections: OWN, hints: Hints::Off, ..Options::new(address) }
}

fn run(case: Case) {
    let (address, _) = database();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options { time: Time::Caller, ..options(&address) };
        case(Arc::new(Postgres::open(&options).await.unwrap())).await;
    });
}

punctual_store::conformance!(run);

fn worker(number: u64) -> WorkerId {
    WorkerId::new(Timestamp::from_second(1_700_000_000).unwrap(), number)
}

/// Takes all shards: a statement that locks many rows in order.
async fn acquire(store: &Postgres) -> Result<usize, Error> {
    let taken =
        Store::acquire(store, worker(1), Shards::All, Duration::from_secs(60), Timestamp::now()).await;
    taken.map(|taken| taken.len())
}

fn fault(store: &Postgres, kind: &str) -> Fault {
    store.figures().faults.into_iter().find(|fault| fault.kind == kind).unwrap()
}

/// A session beside the store.
async fn session(address: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until so many of the store's statements wait for a lock, and returns their processes.
async fn waiting(session: &tokio_postgres::Client, count: usize) -> Vec<i32> {
    let sql = "select pid from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'punctual' \
        and datname = current_database()";
    for _ in 0..3_000 {
        let rows = session.query(sql, &[]).await.unwrap();
        if rows.len() == count {
            return rows.iter().map(|row| row.get(0)).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there are not {count} that wait for a lock");
}

#[tokio::test]
async fn nothing_is_left_in_sessions_that_others_get() {
    let (through, direct) = database();
    let options = options(&through);
    Schema::bring_up(&options).await.unwrap();
    Schema::read(&options).await.unwrap();
    let store = Arc::new(Postgres::open(&options).await.unwrap());
    let work = |store: Arc<Postgres>| async move {
        for _ in 0..20 {
            acquire(&store).await.unwrap();
            Store::retain(&*store, Timestamp::now(), 10).await.unwrap();
            Store::tenants(&*store).await.unwrap();
        }
    };
    // A call may take a second connection while it has one.
    let tasks: Vec<_> = (0..OWN / 2).map(|_| tokio::spawn(work(Arc::clone(&store)))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let watcher = session(&direct).await;
    let count = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    let connections: i64 = watcher.query_one(count, &[]).await.unwrap().get(0);
    assert!((1..=SHARED as i64).contains(&connections), "{connections} connections to the database");
    // All connections at once, each held by a transaction: whatever was left is in one of them.
    let mut others = Vec::new();
    for _ in 0..SHARED {
        let other = session(&through).await;
        other.batch_execute("begin").await.unwrap();
        others.push(other);
    }
    // Those that PgBouncer itself keeps for a client are left out.
    let left = "select name from pg_prepared_statements \
        union all select name from pg_settings where source = 'session' \
            and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings') \
        union all select mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() \
        union all select pg_listening_channels()";
    for other in others {
        let messages = other.simple_query(left).await.unwrap();
        let names = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn a_store_that_needs_sessions_is_refused() {
    let (through, direct) = database();
    let refused = |address: &str| {
        let options = Options { hints: Hints::Listen, ..options(address) };
        async move { Postgres::open(&options).await.map(|_| ()) }
    };
    let error = refused(&through).await.unwrap_err();
    assert!(matches!(error, OpenError::NoSession { .. }), "{error}");
    assert!(error.to_string().contains("--wakeups poll"), "{error}");
    refused(&direct).await.unwrap();
}

#[tokio::test]
async fn the_settings_of_a_session_come_with_every_transaction() {
    let (through, direct) = database();
    let options = Options { statement_timeout: Duration::from_millis(300), ..options(&through) };
    let store = Postgres::open(&options).await.unwrap();
    let other = session(&direct).await;
    // A statement by itself, and one in a transaction.
    other.batch_execute("begin; select from shards for update").await.unwrap();
    let Err(Error::Unavailable { reason }) = acquire(&store).await else { panic!("it waited") };
    assert!(reason.contains("statement timeout"), "{reason}");
    other.batch_execute("rollback; begin; lock table ended_jobs").await.unwrap();
    let Err(Error::Unavailable { reason }) = Store::retain(&store, Timestamp::now(), 10).await else {
        panic!("it waited")
    };
    assert!(reason.contains("statement timeout"), "{reason}");
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(acquire(&store).await, Ok(usize::from(SHARDS)));
}

#[tokio::test]
async fn a_statement_whose_server_connection_is_ended_is_tried_on_another() {
    let (through, direct) = database();
    let store = Arc::new(Postgres::open(&options(&through)).await.unwrap());
    let (other, watcher) = (session(&direct).await, session(&direct).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    let first = waiting(&watcher, 1).await[0];
    watcher.execute("select pg_terminate_backend($1)", &[&first]).await.unwrap();
    while waiting(&watcher, 1).await[0] == first {}
    other.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    let (ended, broken) = (fault(&store, "terminated"), fault(&store, "disconnected"));
    assert_eq!((ended.retried + broken.retried, ended.failed + broken.failed), (1, 0));
}

#[tokio::test]
async fn calls_wait_for_each_other_when_all_connections_are_in_use() {
    let (through, direct) = database();
    let store = Arc::new(Postgres::open(&options(&through)).await.unwrap());
    let (other, watcher) = (session(&direct).await, session(&direct).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking: Vec<_> = (0..OWN)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { acquire(&store).await })
        })
        .collect();
    waiting(&watcher, SHARED).await;
    other.batch_execute("commit").await.unwrap();
    for taking in taking {
        assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    }
}

/// The answer, as soon as PgBouncer has found the database again.
async fn found_again<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> T {
    for _ in 0..3_000 {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the database is not found again");
}

#[tokio::test]
async fn a_database_that_is_away_behind_pgbouncer_is_out_of_reach() {
    const LEASE: Duration = Duration::from_secs(2);
    let server = Server::start(&["fsync=off"]);
    let bouncer = PgBouncer::start(&server, SHARED);
    let direct = server.database();
    let store = Arc::new(Postgres::open(&options(&bouncer.through(&direct))).await.unwrap());
    let now = Timestamp::now;
    Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap();
    // It has many connections to PgBouncer, which stay while the database is away.
    let (other, watcher) = (session(&direct).await, session(&direct).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking: Vec<_> = (0..OWN)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { acquire(&store).await })
        })
        .collect();
    waiting(&watcher, SHARED).await;
    other.batch_execute("commit").await.unwrap();
    for taking in taking {
        assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    }
    server.crash();
    let down = std::time::Instant::now();
    while down.elapsed() < LEASE * 2 {
        let error = Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(!store.health().writable, "PgBouncer is there, the database is not");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.start_again();
    // Nobody is taken for dead before a lease has passed.
    let lost = found_again(|| Store::expired(&*store, LEASE, now(), 100)).await;
    assert_eq!(lost, []);
    assert!(store.health().writable);
    let answer = Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap();
    assert!(!answer.is_refused, "the worker was taken for dead, though nobody could hear it");
}
