//! The check: nothing to find after anything the suite does, and something to find after every kind of damage.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::open;
use futures_executor::block_on;
use jiff::Timestamp;
use punctual_domain::id::{JobId, OperationId, Sequence, ShardId, TenantId, Version};
use punctual_domain::job::{JobState, Pause};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::operation::{CatchUp, DeadLetters, Event, Kind};
use punctual_domain::policy::limit::{Allowance, Allowed, Key, Limited, Limits};
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Limit, Run, RunState, StartBy, WaitingFor};
use punctual_domain::{Attempt, Job, Operation, Outcome};
use punctual_schedule::Schedule;
use punctual_store::conformance::papers::speak;
use punctual_store::conformance::{Case, SHARDS, World};
use punctual_store::record::{decode_run, encode_run};
use punctual_store::{Effect, PageRequest, RunFilter, Step};
use punctual_store_embedded::{Checked, Embedded, OpenError, Opening, Options, check};
use rusqlite::{Connection, params};

/// A segment of the index of births is written after so many: the fewest of which one is not everywhere.
const SEGMENT_BIRTHS: usize = 16;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn open_small(directory: &Path) -> Arc<Embedded> {
    let options = Options { directory: directory.into(), shards: Some(SHARDS) };
    let opening = Opening { segment_births: SEGMENT_BIRTHS, is_same_process: false };
    Arc::new(Embedded::open_as(&options, opening).unwrap())
}

/// Every story of the suite leaves a sound directory behind.
fn run(case: Case) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    block_on(case(open_small(&data)));
    let mut checked = check(&data, now()).unwrap();
    // The suite registers jobs without due entries, where a case is not about slots.
    checked.findings.retain(|finding| !finding.what.contains("but no entry"));
    assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
}

punctual_store::conformance!(run);

/// Jobs with and without keys, edited and paused ones, one that is over, open runs of all kinds, history, dead letters, one of which
/// has outlived its partition, a segment of births, the ledger, a running and an ended operation.
fn populate(directory: &Path) {
    let store = open_small(directory);
    let mut world = block_on(World::new(store.clone()));
    let polled = block_on(async {
        let worker = world.worker();
        let mut kept = world.job("kept");
        kept.spec.policies.retention = Retention::Day.into();
        world.try_put(world.put(kept.clone(), Some(world.now))).await.unwrap();
        world.try_fire(&kept, world.now).await.unwrap();
        let run = world.claim(worker, 1).await.remove(0);
        world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.unwrap();
        world.advance(Duration::from_secs(3 * 86_400));
        while world.store.retain(world.now, 10).await.unwrap() > 0 {}
        let often = world.register("often", world.now).await;
        for _ in 0..9 {
            world.try_fire(&often, world.now).await.unwrap();
            let run = world.claim(worker, 1).await.remove(0);
            world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.unwrap();
            world.advance(Duration::from_secs(60));
        }
        for (number, verdict) in [Verdict::Succeed, Verdict::Fail, Verdict::TimeOut].into_iter().enumerate() {
            let worker = world.worker();
            let run = world.running(&format!("ended {number}"), worker).await;
            let outcome = if number == 0 { Outcome::Succeeded } else { Outcome::Failed };
            world.conclude(worker, &run, outcome, verdict).await.unwrap();
        }
        let worker = world.worker();
        let run = world.running("retried", worker).await;
        let start_by = Some(StartBy { at: world.after(600), limit: Limit::RetryFor });
        let retry = Verdict::Retry { available_at: world.after(30), charge: Charge::Attempt, start_by };
        world.conclude(worker, &run, Outcome::Failed, retry).await.unwrap();
        let run = world.running("running", worker).await;
        speak(&world, worker, &run).await;
        world.fired("waiting").await;
        let mut rare = world.job("rare");
        rare.tenant = world.store.put_tenant(&"rare".parse().unwrap(), world.now).await.unwrap().id;
        world.try_put(world.put(rare.clone(), Some(world.now))).await.unwrap();
        world.try_fire(&rare, world.now).await.unwrap();
        let mut keyed = world.job("keyed");
        keyed.spec.key = Some("the-key".into());
        world.try_put(world.put(keyed.clone(), Some(world.after(60)))).await.unwrap();
        keyed.version = keyed.version.next();
        let mut put = world.put(keyed.clone(), Some(world.after(90)));
        put.ledger = vec![punctual_store::ledger_entry(
            &keyed,
            &[],
            punctual_domain::ledger::Fate::MissedCatchUp,
            world.now,
        )];
        put.ledger[0].slots = 1;
        world.try_put(put).await.unwrap();
        let schedule = keyed.spec.schedule.clone();
        let catch_up = CatchUp { job: keyed.id, schedule, to: world.now, rate: 1 };
        let start = |number: u16, kind| Step {
            operation: Operation::new(
                OperationId::new(world.now, ShardId(number), 1),
                TenantId::DEFAULT,
                kind,
                world.now,
            ),
            epoch: None,
            effect: Effect::Nothing,
            ledger: Vec::new(),
            request: None,
            audit: None,
        };
        let mut steps = vec![
            start(1, Kind::CatchUp(Box::new(catch_up))),
            start(2, Kind::Redrive(DeadLetters::default())),
        ];
        steps.push(steps[1].clone());
        steps[2].operation.apply(Event::Succeeded, world.now).unwrap();
        assert!(world.store.step(steps, world.now).await.unwrap().iter().all(Result::is_ok));
        let mut polled = world.job("polled");
        polled.spec.schedule = Schedule::parse("@every 60s from completion").unwrap();
        world.try_put(world.put(polled.clone(), Some(world.after(60)))).await.unwrap();
        let mut over = world.job("over");
        over.spec.schedule = Schedule::parse("@at 2020-01-01T00:00:00Z").unwrap();
        world.try_put(world.put(over, None)).await.unwrap();
        let mut paused = world.job("paused");
        let until = Some(world.after(600));
        paused.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until });
        world.try_put(world.put(paused, until)).await.unwrap();
        let mut limited = world.job("limited");
        limited.spec.queue = "slow".into();
        world.try_put(world.put(limited.clone(), Some(world.now))).await.unwrap();
        for _ in 0..2 {
            let mut firing = world.firing(&limited, world.now);
            firing.births[0].limits = one_at_once();
            world.try_firing(firing).await.unwrap();
            world.advance(Duration::from_secs(60));
        }
        let mut queued = world.job("queued");
        queued.spec.policies.overlap = Overlap::QueueOne;
        world.try_put(world.put(queued.clone(), Some(world.now))).await.unwrap();
        for _ in 0..2 {
            let mut firing = world.firing(&queued, world.now);
            firing.births[0].start_by = Some(StartBy { at: world.after(600), limit: Limit::StartWindow });
            world.try_firing(firing).await.unwrap();
            world.advance(Duration::from_secs(60));
        }
        polled.id
    });
    let connection = Connection::open(directory.join("punctual.db")).unwrap();
    // The job that counts from completion ended two runs, a second apart: the entry of the first is superseded.
    let two_ends = "insert into due select at - 1000, lane, tenant, job, version, slot - 1000 from due where job = ?1;
                    update jobs set completed_at = (select max(slot) - 60000 from due where job = ?1) where id = ?1";
    for statement in two_ends.split(';') {
        assert_eq!(connection.execute(statement, params![polled.as_bytes()]).unwrap(), 1);
    }
    while connection.query_row("select count(*) from segments", [], |row| row.get::<_, i64>(0)).unwrap() == 0
    {
        std::thread::yield_now();
    }
}

#[test]
fn a_sound_directory_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    populate(directory.path());
    let checked = check(directory.path(), now()).unwrap();
    let expected = Checked {
        format: checked.format,
        shards: 16,
        tenants: 2,
        jobs: 15,
        due: 14,
        due_stale: 2,
        open_runs: 8,
        running: 1,
        history: 13,
        partitions: 1,
        dead_letters: 3,
        ledger: 1,
        operations: 2,
        findings: Vec::new(),
        wrong: 0,
    };
    assert_eq!(checked, expected);
    // It changed nothing, and the directory is free again.
    let store = open(directory.path());
    let error = check(directory.path(), now()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { pid: Some(_), .. }), "{error}");
    let backup = directory.path().join("backup");
    store.backup(&backup, now(), |_| {}).unwrap();
    assert_eq!(check(&backup, now()).unwrap(), expected, "a backup can be checked as it is");
    assert_eq!(std::fs::read_dir(&backup).unwrap().count(), 2, "and is left as it is");
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(check(&missing, now()), Err(OpenError::Unusable { .. })));
    assert!(!missing.exists());
    let error = check(directory.path(), now()).unwrap_err();
    assert!(error.to_string().contains("no punctual.db"), "{error}");
}

/// What is done to a sound database.
#[derive(Debug)]
enum Wrong {
    Sql(&'static str),
    /// To every run of a table in a state, or in any.
    Runs(&'static str, &'static str, fn(&mut Run)),
    /// To the records of such runs.
    Bytes(&'static str, &'static str, fn(&mut Vec<u8>)),
    /// A run like the first of a table is added to it.
    Add(&'static str, fn(&mut Run)),
    /// To the largest bucket.
    Marks(fn(&mut Vec<u8>)),
}

use Wrong::{Add, Bytes, Marks, Runs, Sql};

impl Wrong {
    fn do_to(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            Sql(sql) => connection.execute_batch(sql),
            Runs(table, state, change) => {
                for (mut run, attempts) in runs(connection, table, state)? {
                    change(&mut run);
                    write(connection, table, &run, &encode_run(&run, &attempts))?;
                }
                Ok(())
            }
            Bytes(table, state, change) => {
                for (run, attempts) in runs(connection, table, state)? {
                    let mut record = encode_run(&run, &attempts);
                    change(&mut record);
                    write(connection, table, &run, &record)?;
                }
                Ok(())
            }
            Add(table, change) => {
                let (mut run, attempts) = runs(connection, table, "")?.remove(0);
                change(&mut run);
                write(connection, table, &run, &encode_run(&run, &attempts))
            }
            Marks(change) => {
                let sql = "select bucket, marks from marks order by length(marks) desc limit 1";
                let (bucket, mut marks): (i64, Vec<u8>) =
                    connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
                change(&mut marks);
                connection
                    .execute("update marks set marks = ?2 where bucket = ?1", params![bucket, marks])?;
                Ok(())
            }
        }
    }
}

fn runs(connection: &Connection, table: &str, state: &str) -> rusqlite::Result<Vec<(Run, Vec<Attempt>)>> {
    let mut statement = connection.prepare(&format!("select seq, record from {table} order by seq"))?;
    let rows = statement.query_map([], |row| {
        let record: Vec<u8> = row.get(1)?;
        Ok(decode_run(Sequence::from_i64(row.get(0)?), &record).unwrap())
    })?;
    let mut runs: Vec<(Run, Vec<Attempt>)> = rows.collect::<Result<_, _>>()?;
    runs.retain(|(run, _)| state.is_empty() || run.state.as_str() == state);
    Ok(runs)
}

fn write(connection: &Connection, table: &str, run: &Run, record: &[u8]) -> rusqlite::Result<()> {
    if table == "open_runs" {
        // It is in one of the two.
        for table in ["running_runs", "waiting_runs"] {
            let sql = format!("update {table} set record = ?2 where seq = ?1");
            connection.execute(&sql, params![run.sequence.as_i64(), record])?;
        }
        return Ok(());
    }
    let sql = format!("insert or replace into {table} (seq, record) values (?1, ?2)");
    connection.execute(&sql, params![run.sequence.as_i64(), record]).map(|_| ())
}

fn one_at_once() -> Limits {
    let allowed = Allowed::Own(Allowance { max: Some(NonZeroU32::MIN), rate: None });
    Limits::new(vec![Limited { key: Key(7), breadth: 0, holds_retries: true, allowed }])
}

fn no_job() -> JobId {
    JobId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0])
}

/// What is done to a sound database, and words of what must be found.
const WRONGS: &[(Wrong, &str)] = &[
    (Sql("delete from due where version = 2"), "is active and has slots to come, but no entry"),
    (
        Sql("insert into due select at + 1000, lane, tenant, job, version, slot from due where version = 2"),
        "has 2 entries",
    ),
    (
        Sql("update due set version = 9 where version = 1 and at = (select min(at) from due)"),
        "newer than the job's",
    ),
    (Sql("update due set lane = 2 - lane * 2 where version = 2"), "in another lane"),
    (Sql("update due set tenant = 5 where version = 2"), "another tenant"),
    (Sql("update due set slot = at + 1 where version = 2"), "for the slot"),
    (Sql("update due set job = x'00000000000070008000000000000000' where version = 2"), "which is not there"),
    (
        Sql(
            "insert into due select at + 9, lane, tenant, x'ffffffffffff70ff8000000000000000', 1, slot from due where version = 2",
        ),
        "an entry of job ffffffff-ffff-70ff-8000-000000000000, which is not there",
    ),
    (Sql("update jobs set record = '{}' where version = 2"), "the record of job"),
    (Sql("update jobs set state = 1 where version = 2"), "has state 1 in its column"),
    (Sql("update jobs set tenant = 7 where version = 2"), "has tenant 7"),
    (Sql("delete from job_keys"), "does not lead to job"),
    (Sql("update job_keys set key = 'another'"), "another key"),
    (Sql("insert into job_keys values (1, 'x', x'00000000000070008000000000000000')"), "leads to job"),
    (Sql("delete from due where job in (select id from jobs where state = 1)"), "but no entry ends it"),
    (
        Sql("update due set at = at + 1, slot = slot + 1 where job in (select id from jobs where state = 1)"),
        "is paused and has an entry",
    ),
    (Sql("delete from ended_jobs"), "is over, and would never be forgotten"),
    (
        Sql("update ended_jobs set jobs = cast(substr(jobs, 1, 16) || x'00000009' as blob)"),
        "ended_jobs: an entry of job",
    ),
    (Sql("update ended_jobs set retention = 12"), "is of 12 days, which is no class"),
    (Sql("update ended_jobs set jobs = substr(jobs, 2)"), "has 19 bytes"),
    (
        Sql(
            "insert into ended_jobs select 7, 1, cast(id || x'00000002' as blob) from jobs where version = 2",
        ),
        "is due, and would be forgotten",
    ),
    (
        Sql("delete from due where job in (select id from jobs where state = 1); \
             insert into ended_jobs select 7, 1, cast(id || x'00000001' as blob) from jobs where state = 1"),
        "is paused, and would be forgotten",
    ),
    (Sql("update shards set shard = 99 where shard = 3"), "numbered 0 to 99"),
    (Sql("delete from shards where shard > 1"), "in shard"),
    (Sql("update tenants set name = 'Not A Name!' where id = 1"), "has the name"),
    (Runs("open_runs", "", |run| run.job = no_job()), "a run of job"),
    (Runs("open_runs", "running", |run| run.version = Version(5)), "has version 5"),
    (Runs("open_runs", "running", |run| run.tenant = TenantId(5)), "another tenant"),
    (Runs("open_runs", "running", |run| run.state = RunState::Succeeded), "an ended run has an end"),
    (Bytes("open_runs", "running", |record| record[1] = 77), "run state 77"),
    (Runs("open_runs", "running", |run| run.lost = 9), "attempts that count are attempts"),
    (Runs("open_runs", "running", |run| run.attempt = 4), "attempts, and not 1 to 4"),
    (Sql("delete from ready"), "waits in 0 lines"),
    (
        Runs("open_runs", "pending", |run| run.state = RunState::Pending(WaitingFor::EarlierRun)),
        "waits for an earlier run and in a line",
    ),
    (
        Runs("open_runs", "pending", |run| run.state = RunState::Pending(WaitingFor::EarlierRun)),
        "wait for an earlier run, and there is none",
    ),
    // The newest run waits for the one that was born before it.
    (
        Sql("delete from ready where seq = (select max(seq) from ready); \
             delete from lapses where seq = (select min(seq) from (select seq from open_runs order by seq desc limit 2)); \
             delete from waiting_runs where seq = (select min(seq) from (select seq from open_runs order by seq desc limit 2))"),
        "wait for an earlier run, and there is none",
    ),
    (
        Sql("delete from lapses where seq = (select max(seq) from open_runs)"),
        "may start until a time and is not listed",
    ),
    (
        Bytes("open_runs", "running", |record| record[4] |= 1 << 5),
        "a run that is not pending and waits for an earlier one",
    ),
    (
        Runs("open_runs", "pending", |run| run.turn_at = Some(run.available_at)),
        "only what was asked for has a turn of its own",
    ),
    (Sql("insert into delayed select available_at, seq, shard from ready"), "waits in 2 lines"),
    (
        Sql(
            "insert into ready select 1, 1, 0, 5, seq, 0, 'default' from open_runs where substr(record, 2, 1) = x'01'",
        ),
        "waits and is running",
    ),
    (Sql("insert into delayed values (1, 2, 3)"), "waits and is not open"),
    (Sql("insert into running_runs select seq, record from history_1 limit 1"), "is also in"),
    (Sql("insert into history_0 select * from history_1 limit 1"), "is also in history_"),
    (
        Add("history_1", |run| run.sequence = Sequence::from_i64(run.sequence.as_i64() + 5_000_000)),
        "are for the same slot of the same job",
    ),
    (
        Runs("history_1", "", |run| {
            (run.state, run.finished_at) = (RunState::Pending(WaitingFor::Capacity), None);
        }),
        "and in history",
    ),
    (Runs("history_1", "", |run| run.retention = Retention::Day.into()), "not as this partition"),
    (Runs("history_1", "", |run| run.finished_at = None), "an ended run has an end"),
    (Bytes("history_1", "failed", |record| record.truncate(40)), "history_1: run"),
    (Sql("update history_1 set seq = -seq where substr(record, 2, 1) = x'0a'"), "does not give out"),
    (Sql("insert into meta values ('database', 3), ('floor', 5)"), "does not give out"),
    (Sql("insert into meta values ('database', 300)"), "out of range"),
    (Sql("update history_1 set papers = x'09'"), "papers of form 9"),
    (Sql("update history_1 set papers = x'0100010700'"), "has words of attempt 7, which it has not had"),
    (
        Sql("update history_1 set papers = x'0101013700' where substr(record, 2, 1) = x'0a'"),
        "has a checkpoint and no attempt to come",
    ),
    (Sql("update open_papers set seq = seq - 1000"), "is of a run that is not open"),
    (Sql("update open_papers set record = x'00'"), "papers of form 0"),
    (Sql("update open_papers set attempt = 7 where attempt = 1"), "is of another attempt"),
    (Sql("update open_papers set attempt = 8 where attempt = 0"), "is of another attempt"),
    (
        Sql("update open_papers set record = x'0100010700' where attempt = 1"),
        "has words of attempt 7, which it has not had",
    ),
    (Sql("update partitions set retention = 12"), "a partition of 12 days"),
    (Sql("insert into partitions select 2, retention, from_seq - 5, null from partitions"), "overlap"),
    (
        Sql("insert into partitions select 2, 1, from_seq, from_seq - 1 from partitions"),
        "ends before it begins",
    ),
    (
        Sql("insert into partitions select 2, 1, from_seq, null from partitions"),
        "the table history_2 is not there",
    ),
    (Sql("create table history_9 (seq)"), "the table history_9 belongs to no partition"),
    (Sql("insert into dead_letters values (5)"), "dead_letters: run 5 is not there"),
    (
        Sql("insert into dead_letters select seq from history_1 where substr(record, 2, 1) = x'0a'"),
        "and is a dead letter",
    ),
    (Sql("update ledger set fate = 99"), "has no fate"),
    (Sql("update ledger set to_slot = from_slot - 1"), "no range"),
    (Sql("update ledger set tenant = 4"), "of another tenant"),
    (Sql("update operations set record = '{}'"), "operations: the store is damaged: operation"),
    (Sql("update operations set tenant = 7"), "has tenant 7, which is not there"),
    (Sql("update operations set finished_at = 5"), "is not where its state says"),
    (Sql("update operations set resume_at = null"), "is not where its state says"),
    (Sql("update operations set resume_at = 5 where resume_at is null"), "is not where its state says"),
    (Sql("update operations set tenant = 2 where resume_at is not null"), "is for job"),
    (
        Sql("update operations set id = x'000000000000700f8fffffffffffffff' where finished_at is null; \
             delete from shards where shard = 15"),
        "is in shard 15, which is not there",
    ),
    (
        Sql("insert into job_versions select id, 7, tenant, record from jobs where version = 2"),
        "has no version after 7",
    ),
    (Sql("update ready set shard = shard + 1"), "waits in another shard"),
    (Sql("update ready set queue = 'x'"), "waits in another queue"),
    (Sql("update ready set lane = lane + 8"), "waits in 0 lines"),
    (Sql("update ready set tenant = tenant + 1"), "waits in 0 lines"),
    (Sql("update ready set tenant = tenant + 1"), "waits among another tenant's"),
    (Sql("update delayed set shard = shard + 1"), "waits in another shard"),
    (Sql("update delayed set available_at = available_at + 1"), "waits for another time"),
    (Sql("delete from limited"), "waits for a limit and does not stand in its line"),
    (Sql("update limited set key = 8"), "stands in line for a limit that it does not wait for"),
    (Sql("update limited set scheduled_for = 5"), "stands in line for a limit that it does not wait for"),
    (Sql("insert into limited values (7, 1, 0, 5, 6)"), "run 6 stands in line for a limit"),
    (
        Sql("insert into waiting_runs select * from running_runs; delete from running_runs"),
        "runs and is among those that wait",
    ),
    (
        Sql("insert into running_runs select * from waiting_runs; delete from waiting_runs"),
        "waits and is among those that run",
    ),
    (Sql("delete from waits"), "waits and is not noted"),
    (Sql("update waits set kind = 1 - kind where kind < 2"), "is noted and does not wait like that"),
    (Sql("insert into waits values (x'00000000000070008000000000000000', 5, 0)"), "run 5 is noted"),
    (Sql("update backlog set runs = runs + 3"), "3 too many runs are counted"),
    (Sql("update backlog set ready = ready - 2"), "and -2 for a worker"),
    (Sql("update backlog set tenant = tenant + 7"), "backlog: of tenant 8"),
    (Sql("insert into rules values ('x', x'79')"), "limit x"),
    (
        Sql("insert into documents values ('poem', 1, 'x', 1, '{}', 0)"),
        "the document `x` is of the unknown kind `poem`",
    ),
    (
        Sql("insert into audit values (9000000000000000000, 1, 1, 'job', 'x', 'edit', null, 'ci', null, null, null, null)"),
        "9000000000000000000 is not a time",
    ),
    (Runs("open_runs", "pending", |run| run.passed = 9), "the limits of a run"),
    (Sql("delete from lapses"), "may start until a time and is not listed"),
    (Sql("update lapses set start_by = start_by + 1"), "may start until a time and is not listed"),
    (Sql("update lapses set shard = shard + 1"), "is listed and does not wait until then"),
    (
        Sql("insert into lapses select 1, seq, 0 from open_runs where substr(record, 2, 1) = x'01'"),
        "is listed and does not wait until then",
    ),
    (Sql("insert into lapses values (1, 2, 3)"), "run 2 is listed and does not wait until then"),
    (Sql("delete from failures"), "is failed and is not listed"),
    (
        Sql("insert into failures select seq from history_1 where substr(record, 2, 1) = x'0a'"),
        "is succeeded and is listed",
    ),
    (Sql("insert into failures select seq from open_runs"), "is running and is listed"),
    (Sql("insert into failures values (7)"), "failures: run 7 is not there"),
    (
        Sql("insert into failures values (9223372036854775807)"),
        "failures: run 9223372036854775807 is not there",
    ),
    (Sql("delete from strays"), "is not where it was born and not listed"),
    (Sql("insert into strays select 7, job, 0 from strays"), "strays: run 7 is not there"),
    (Sql("update strays set partition = 1"), "is not in partition 1"),
    (Sql("update strays set job = x'00000000000070008000000000000000'"), "is listed under job 00000000-"),
    (Sql("update strays set job = x'00'"), "strays: "),
    (Sql("insert into local_workers values (x'01')"), "local_workers: "),
    (Sql("update segments set partition = 9"), "segments: partition 9 is not there"),
    (Sql("update segments set number = 1"), "segment 1 of partition 1 is not number 0"),
    (
        Sql("insert into segments select partition, 1, first, last, common from segments"),
        "begins before the one before ends",
    ),
    (Sql("update segments set first = first + 1"), "does not begin and end with its marks"),
    (Sql("update segments set last = last + 1"), "does not begin and end with its marks"),
    (Sql("update segments set common = x'01'"), "a list of tenants that is none"),
    (Sql("update segments set common = x''"), "is not in segment 0 of partition 1 by its tenant"),
    (Sql("delete from marks"), "is not in segment 0 of partition 1 by its job"),
    (Sql("update marks set number = 9"), "is not in segment 0 of partition 1 by its job"),
    (Sql("update marks set marks = substr(marks, 2)"), "has 11 bytes"),
    (
        Sql("update marks set marks = zeroblob(3145740) where bucket = (select min(bucket) from marks)"),
        "has more than 262144",
    ),
    (
        Sql("update marks set bucket = bucket + 1 where bucket = (select max(bucket) from marks)"),
        "has marks of another",
    ),
    (Marks(|marks| marks.rotate_left(12)), "is not in order"),
    (Marks(|marks| marks.truncate(12)), "is not in segment 0 of partition 1 by its job"),
    (Marks(|marks| marks[16] ^= 1), "in segment 0 of partition 1 is not there"),
    (
        Sql("delete from history_1 where seq = (select min(seq) from history_1)"),
        "in segment 0 of partition 1 is not there",
    ),
    (Runs("history_1", "failed", |run| run.job = no_job()), "in segment 0 of partition 1 by another's tag"),
];

#[test]
fn every_kind_of_wrong_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let (whole, data) = (directory.path().join("whole"), directory.path().join("data"));
    populate(&whole);
    let mut missed = Vec::new();
    for (wrong, words) in WRONGS {
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(whole.join("punctual.db"), data.join("punctual.db")).unwrap();
        let connection = Connection::open(data.join("punctual.db")).unwrap();
        wrong.do_to(&connection).unwrap_or_else(|error| panic!("{wrong:?}: {error}"));
        let changed: i64 = connection.query_row("select total_changes()", [], |row| row.get(0)).unwrap();
        let is_made = matches!(wrong, Sql(sql) if sql.starts_with("create"));
        assert!(changed > 0 || is_made, "{wrong:?} changes nothing");
        drop(connection);
        let checked = check(&data, now()).unwrap();
        let found = checked.findings.iter().any(|finding| finding.to_string().contains(words));
        if !found {
            missed.push(format!("{wrong:?}: `{words}` is not among {:#?}", checked.findings));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    println!("checks: {} kinds of wrong found", WRONGS.len());
}

/// The last births of a segment may have been undone with their transaction: marks are hints.
#[test]
fn a_segment_may_know_births_that_never_came_to_be() {
    let directory = tempfile::tempdir().unwrap();
    populate(directory.path());
    let connection = Connection::open(directory.path().join("punctual.db")).unwrap();
    for table in ["waiting_runs", "waits", "ready"] {
        let sql = format!("delete from {table} where seq = (select last from segments)");
        assert_eq!(connection.execute(&sql, []).unwrap(), 1);
    }
    let sql = "update backlog set runs = runs - 1, ready = ready - 1 where tenant = 2 and lane = 1";
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    drop(connection);
    assert_eq!(check(directory.path(), now()).unwrap().findings, []);
}

/// Runs that are open while their partitions go, one after the other.
#[test]
fn what_outlives_two_partitions_is_still_listed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open_small(directory.path());
    let mut world = block_on(World::new(store.clone()));
    block_on(async {
        let worker = world.worker();
        let mut jobs = Vec::new();
        for name in ["first", "second", "redriven"] {
            let mut job = world.job(name);
            job.spec.policies.retention = Retention::Day.into();
            world.try_put(world.put(job.clone(), Some(world.now))).await.unwrap();
            world.try_fire(&job, world.now).await.unwrap();
            jobs.push(job);
        }
        let runs = world.claim(worker, 3).await;
        let days = Duration::from_secs(3 * 86_400);
        world.advance(days);
        while world.store.retain(world.now, 10).await.unwrap() > 0 {}
        // Their partition is gone; they end in one that is made for the first of them.
        for run in &runs[..2] {
            world.conclude(worker, run, Outcome::Succeeded, Verdict::Succeed).await.unwrap();
        }
        world.conclude(worker, &runs[2], Outcome::Failed, Verdict::Fail).await.unwrap();
        assert_eq!(listed(&world, &jobs).await, [1, 1, 1], "all have ended late");
        // That one goes too, while the last of them is open once more.
        assert!(world.store.redrive(&[runs[2].id()], world.now).await.unwrap()[0].is_ok());
        world.advance(days);
        while world.store.retain(world.now, 10).await.unwrap() > 0 {}
        assert_eq!(listed(&world, &jobs).await, [0, 0, 1], "only the open one is left");
    });
    drop((world, store));
    assert_eq!(check(directory.path(), now()).unwrap().findings, []);
}

/// How many runs of each job a list finds.
async fn listed(world: &World, jobs: &[Job]) -> Vec<usize> {
    let mut counts = Vec::new();
    for job in jobs {
        let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
        counts.push(world.store.runs(&filter, PageRequest::first(10)).await.unwrap().items.len());
    }
    counts
}
