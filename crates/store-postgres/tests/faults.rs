//! What the store does when the database is slow, busy, restarted or gone: real faults on a real server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::WorkerId;
use punctual_store::conformance::World;
use punctual_store::{Error, Fault, Shards, Store};
use punctual_store_postgres::{Options, Postgres};
use punctual_testing::Postgres as Server;
use tokio_postgres::NoTls;

const SHARDS: u16 = 16;

fn options(address: &str) -> Options {
    Options { shards: Some(SHARDS), connections: 4, ..Options::new(address) }
}

async fn open(options: &Options) -> Arc<Postgres> {
    Arc::new(Postgres::open(options).await.unwrap())
}

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

/// The process of the store's that waits for a lock, as soon as there is one.
async fn waiting(session: &tokio_postgres::Client) -> i32 {
    let sql = "select pid from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'punctual' \
        and datname = current_database()";
    for _ in 0..3_000 {
        if let Some(row) = session.query_opt(sql, &[]).await.unwrap() {
            return row.get(0);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody waits for a lock");
}

#[tokio::test]
async fn a_deadlock_is_tried_again_and_counted() {
    let server = Server::start(&["fsync=off", "deadlock_timeout=2s"]);
    let address = server.database();
    let store = open(&options(&address)).await;
    let (other, watcher) = (session(&address).await, session(&address).await);
    // The store is to be the one that finds it.
    other
        .batch_execute("set deadlock_timeout = '60s'; begin; select from shards where shard = 9 for update")
        .await
        .unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    waiting(&watcher).await;
    // The store holds this one and waits for the other.
    other.batch_execute("select from shards where shard = 3 for update; commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    // The second try may meet the other one again.
    let deadlocks = fault(&store, "deadlock");
    assert!(deadlocks.retried >= 1 && deadlocks.failed == 0, "{deadlocks:?}");
}

#[tokio::test]
async fn a_serialization_failure_is_tried_again_and_counted() {
    let server = Server::shared();
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    server
        .psql(name, &format!("alter database {name} set default_transaction_isolation = 'repeatable read'"));
    let store = open(&options(&address)).await;
    let (other, watcher) = (session(&address).await, session(&address).await);
    other.batch_execute("begin; update shards set expires_at = 0 where shard = 9").await.unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    waiting(&watcher).await;
    other.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    assert_eq!(fault(&store, "serialization"), Fault { kind: "serialization", retried: 1, failed: 0 });
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_tried_once_more_and_then_refused() {
    let address = Server::shared().database();
    let options = Options { statement_timeout: Duration::from_millis(300), ..options(&address) };
    let store = open(&options).await;
    let other = session(&address).await;
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let Err(Error::Unavailable { reason }) = acquire(&store).await else { panic!("it waited") };
    assert!(reason.contains("statement timeout"), "{reason}");
    assert_eq!(
        fault(&store, "statement_timeout"),
        Fault { kind: "statement_timeout", retried: 1, failed: 1 }
    );
    assert!(store.health().writable, "the database is there");
    other.batch_execute("commit").await.unwrap();
    assert_eq!(acquire(&store).await, Ok(usize::from(SHARDS)));
}

#[tokio::test]
async fn a_call_that_finds_all_connections_in_use_is_refused_in_time() {
    let address = Server::shared().database();
    let options = Options { connections: 1, wait: Duration::from_millis(200), ..options(&address) };
    let store = open(&options).await;
    let (other, watcher) = (session(&address).await, session(&address).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    waiting(&watcher).await;
    let Err(Error::Unavailable { reason }) = Store::tenants(&*store).await else { panic!("it waited") };
    assert!(reason.contains("in use"), "{reason}");
    assert_eq!(fault(&store, "pool"), Fault { kind: "pool", retried: 0, failed: 1 });
    assert!(store.figures().waits.seconds() >= 0.2, "{:?}", store.figures().waits);
    other.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    assert_eq!(Store::tenants(&*store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_statement_whose_connection_is_ended_is_tried_on_another() {
    let address = Server::shared().database();
    let store = open(&options(&address)).await;
    let (other, watcher) = (session(&address).await, session(&address).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    let first = waiting(&watcher).await;
    watcher.execute("select pg_terminate_backend($1)", &[&first]).await.unwrap();
    while waiting(&watcher).await == first {}
    other.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    assert_eq!(fault(&store, "terminated"), Fault { kind: "terminated", retried: 1, failed: 0 });
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_given_up_and_found_again() {
    let address = Server::shared().database();
    let options = Options { connections: 1, patience: Duration::from_millis(500), ..options(&address) };
    let store = open(&options).await;
    let watcher = session(&address).await;
    let sql = "select pid from pg_stat_activity where application_name = 'punctual' and datname = current_database()";
    let pid: i32 = watcher.query_one(sql, &[]).await.unwrap().get(0);
    let stopped = Stopped::new(pid);
    let Err(Error::Unavailable { reason }) = Store::tenants(&*store).await else { panic!("it answered") };
    assert!(reason.contains("did not answer"), "{reason}");
    assert_eq!(fault(&store, "stalled").failed, 1);
    assert!(!store.health().writable, "and says so");
    // That connection stays as it is; the next call gets another.
    assert_eq!(Store::tenants(&*store).await.unwrap().len(), 1);
    assert!(store.health().writable);
    drop(stopped);
}

/// A process that does nothing until this is dropped, however the test ends: a server cannot stop without it.
struct Stopped(String);

impl Stopped {
    fn new(pid: i32) -> Stopped {
        signal("-STOP", &pid.to_string());
        Stopped(pid.to_string())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", &self.0);
    }
}

fn signal(name: &str, pid: &str) {
    assert!(std::process::Command::new("kill").args([name, pid]).status().unwrap().success());
}

#[tokio::test]
async fn nobody_is_taken_for_dead_until_a_lease_after_the_database_is_back() {
    const LEASE: Duration = Duration::from_secs(2);
    let server = Server::start(&["fsync=off"]);
    let address = server.database();
    let store = open(&options(&address)).await;
    let now = Timestamp::now;
    Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap();
    server.crash();
    let down = std::time::Instant::now();
    while down.elapsed() < LEASE * 2 {
        let error = Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(!store.health().writable);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.start_again();
    // Others come before the worker is heard of again: this node, and one that was just started.
    let newcomer = open(&options(&address)).await;
    for node in [&store, &newcomer] {
        assert_eq!(Store::expired(&**node, LEASE, now(), 100).await, Ok(Vec::new()));
    }
    let answer = Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap();
    assert!(!answer.is_refused, "the worker was taken for dead, though nobody could hear it");
    assert!(store.health().writable);
    // One that stays silent is dead after all.
    loop {
        Store::expired(&*newcomer, LEASE, now(), 100).await.unwrap();
        let sql = "select is_dead from workers";
        if server.psql(address.rsplit('/').next().unwrap(), sql) == "t" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let answer = Store::heartbeat(&*store, worker(1), Vec::new(), now()).await.unwrap();
    assert!(answer.is_refused);
}

/// Every row of a table that is written makes its commit take a minute.
fn slow_commits(server: &Server, address: &str, table: &str) {
    let sql = format!(
        "create function wait() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return null; end $$; \
         create constraint trigger slow after insert on {table} deferrable initially deferred \
         for each row execute function wait()"
    );
    server.psql(address.rsplit('/').next().unwrap(), &sql);
}

/// Ends the connection that is in its commit.
async fn end_the_commit(watcher: &tokio_postgres::Client) {
    let sql = "select pg_terminate_backend(pid) from pg_stat_activity \
        where wait_event = 'PgSleep' and datname = current_database()";
    while watcher.query(sql, &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_tried_again() {
    let server = Server::shared();
    let address = server.database();
    let store = open(&options(&address)).await;
    let mut world = World::new(store.clone()).await;
    let put = {
        let job = world.job("a");
        world.put(job, None)
    };
    slow_commits(server, &address, "jobs");
    let watcher = session(&address).await;
    let (answer, ()) = tokio::join!(Store::put_jobs(&*store, vec![put], world.now), end_the_commit(&watcher));
    let Err(Error::Unavailable { reason }) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("not known"), "{reason}");
    assert_eq!(fault(&store, "terminated"), Fault { kind: "terminated", retried: 0, failed: 1 });
}

#[tokio::test]
async fn a_fire_whose_answer_is_lost_is_not_tried_again() {
    let server = Server::shared();
    let address = server.database();
    let store = open(&options(&address)).await;
    let mut world = World::new(store.clone()).await;
    let at = world.now;
    let job = world.register("a", at).await;
    let firing = world.firing(&job, at);
    slow_commits(server, &address, "open_runs");
    let watcher = session(&address).await;
    let (answer, ()) = tokio::join!(Store::fire(&*store, vec![firing], world.now), end_the_commit(&watcher));
    let Err(Error::Unavailable { reason }) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("not known"), "{reason}");
    assert_eq!(fault(&store, "terminated"), Fault { kind: "terminated", retried: 0, failed: 1 });
}

#[tokio::test]
async fn a_promoted_standby_is_followed_though_the_primary_never_says_that_it_is_gone() {
    let primary = Server::start(&["fsync=off"]);
    let name = primary.database().rsplit('/').next().unwrap().to_owned();
    let standby = primary.standby();
    let address =
        format!("postgres://punctual@127.0.0.1:{},127.0.0.1:{}/{name}", primary.port(), standby.port());
    // Nothing ends by itself.
    let long = Duration::from_secs(3_600);
    let store =
        open(&Options { doubt: Duration::from_millis(100), patience: long, ..options(&address) }).await;
    let mut world = World::new(store.clone()).await;
    let put = {
        let job = world.job("a");
        world.put(job, None)
    };
    slow_commits(&primary, &address.replace(&format!(",127.0.0.1:{}", standby.port()), ""), "jobs");
    let watcher = session(&primary.url(&name)).await;
    let (now, job) = (world.now, put.job.id);
    let putting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { Store::put_jobs(&*store, vec![put], now).await }
    });
    let is_committing = "select from pg_stat_activity where wait_event = 'PgSleep'";
    while watcher.query(is_committing, &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let frozen = primary.freeze();
    let reading = tokio::spawn({
        let store = Arc::clone(&store);
        async move { Store::tenants(&*store).await }
    });
    standby.promote();
    // Whether it was done on the old one is not known, and it is not done again on the new one.
    let Err(Error::Unavailable { reason }) = putting.await.unwrap() else { panic!("it was done") };
    assert!(reason.contains("not known"), "{reason}");
    assert_eq!(reading.await.unwrap().unwrap().len(), 1, "what only read is read from the new one");
    assert_eq!(Store::jobs(&*store, &[job]).await.unwrap(), [None]);
    Store::put_tenant(&*store, &"new".parse().unwrap(), now).await.unwrap();
    assert_eq!(standby.psql(&name, "select count(*) from tenants"), "2", "it is written to");
    assert_eq!(fault(&store, "stalled").failed, 0);
    drop(frozen);
}

#[tokio::test]
async fn a_call_that_is_merely_slow_is_waited_for() {
    let server = Server::start(&["fsync=off", "log_connections=on"]);
    let address = server.database();
    let store = open(&Options { doubt: Duration::from_millis(50), ..options(&address) }).await;
    let (other, watcher) = (session(&address).await, session(&address).await);
    other.batch_execute("begin; select from shards where shard = 9 for update").await.unwrap();
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { acquire(&store).await }
    });
    let first = waiting(&watcher).await;
    while server.log().matches("application_name=punctual look").count() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(waiting(&watcher).await, first, "it waits as before");
    other.batch_execute("commit").await.unwrap();
    assert_eq!(taking.await.unwrap(), Ok(usize::from(SHARDS)));
    assert_eq!(fault(&store, "disconnected"), Fault { kind: "disconnected", retried: 0, failed: 0 });
}

#[tokio::test]
async fn a_server_that_takes_no_writes_any_more_is_left() {
    let server = Server::shared();
    let address = server.database();
    let name = address.rsplit('/').next().unwrap();
    let store = open(&Options { connections: 1, ..options(&address) }).await;
    let set = |to: &str| {
        server.psql("postgres", &format!("alter database {name} set default_transaction_read_only = {to}"))
    };
    // The store has a session that takes no writes; a new one would. So it is when another server is behind the address.
    set("on");
    let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
        where application_name = 'punctual' and datname = current_database()";
    server.psql(name, sql);
    assert_eq!(Store::tenants(&*store).await.unwrap().len(), 1);
    set("off");
    assert_eq!(acquire(&store).await, Ok(usize::from(SHARDS)));
    assert_eq!(fault(&store, "read_only"), Fault { kind: "read_only", retried: 1, failed: 0 });
}
