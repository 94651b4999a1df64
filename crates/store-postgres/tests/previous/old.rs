//! A node of the previous version, as far as its statements go: it sends what is in `statements.sql`, in the order in
//! which that version's verbs do. Whoever renews the files brings this in line with the verbs of the version they are of.

use std::collections::BTreeMap;

use jiff::Timestamp;
use punctual_domain::attempt::Output;
use punctual_domain::id::{JobId, Sequence, WorkerId};
use punctual_domain::lifecycle::{self, Event, Verdict};
use punctual_domain::{Attempt, Job, Outcome, Report, Run};
use punctual_store::record::{decode_run, encode_job, encode_run};
use punctual_store::{Birth, Due, Parent};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::due::{DueColumns, DueRow, shard, uuid};
use crate::session;
use crate::statements::Statements;

/// Sequences of a block, and blocks of a millisecond.
const BLOCK: i64 = 1_024;
const BLOCKS: i64 = 16;

/// How long what has ended is kept, in these tests.
const WEEK: i64 = 7 * 86_400_000;
const CLASS_OF_A_WEEK: i16 = 1;
const PERIOD: i64 = 12 * 3_600_000;

pub(crate) struct Old {
    client: Client,
    statements: Statements,
    pub(crate) id: WorkerId,
    /// The shards it owns.
    pub(crate) epochs: BTreeMap<i16, i64>,
}

/// A run that it holds: with its attempts and its revision.
pub(crate) struct Leased {
    pub(crate) run: Run,
    attempts: Vec<Attempt>,
    revision: i32,
}

impl Old {
    pub(crate) async fn connect(address: &str, id: WorkerId) -> Old {
        let client = session(address).await;
        Old { client, statements: Statements::read(), id, epochs: BTreeMap::new() }
    }

    fn me(&self) -> Uuid {
        Uuid::from_bytes(*self.id.as_bytes())
    }

    async fn query(
        &self,
        words: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.client.query(self.statements.find(words), values).await
    }

    /// A transaction, again if another was in its way.
    async fn transact<T>(&self, work: impl AsyncFn() -> Result<T, Error>) -> T {
        loop {
            self.client.batch_execute("begin").await.unwrap();
            match work().await {
                Ok(value) => {
                    self.client.batch_execute("commit").await.unwrap();
                    return value;
                }
                Err(error) => {
                    let is_deadlock =
                        error.code() == Some(&tokio_postgres::error::SqlState::T_R_DEADLOCK_DETECTED);
                    assert!(is_deadlock, "{error:?}");
                    self.client.batch_execute("rollback").await.unwrap();
                }
            }
        }
    }

    /// Makes the partition of history in which what is born now ends, and the next.
    pub(crate) async fn make_partitions(&self, now: Timestamp) {
        let start = now.as_millisecond().div_euclid(PERIOD) * PERIOD;
        for from in [start, start + PERIOD] {
            let first = |at| Sequence::first_at(Timestamp::from_millisecond(at).unwrap(), 0).as_i64();
            let (first, last) = (first(from), first(from + PERIOD));
            let (class, name) = (CLASS_OF_A_WEEK, format!("history_{CLASS_OF_A_WEEK}_{from}"));
            let make = format!(
                "create table {name} (like history_{class} including defaults); \
                 alter table history_{class} attach partition {name} for values from ({first}) to ({last})"
            );
            self.transact(async || {
                self.query("select pg_advisory_xact_lock($1)", &[&0x5061_7274_6974_696f_i64]).await?;
                self.query("insert into partitions", &[&class, &first, &last]).await?;
                self.client.batch_execute(&make).await
            })
            .await;
        }
    }

    pub(crate) async fn acquire(&mut self, shards: &[i16], ttl_ms: i64) {
        self.query("order by shard for no key update", &[&self.me(), &ttl_ms, &None::<i64>]).await.unwrap();
        let values: [&(dyn ToSql + Sync); 4] = [&self.me(), &Some(shards), &ttl_ms, &None::<i64>];
        self.query("where owner is distinct from $1 and", &values).await.unwrap();
        let rows =
            self.query("select shard, epoch from shards where owner = $1", &[&self.me()]).await.unwrap();
        self.epochs = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    }

    pub(crate) async fn put_jobs(&self, jobs: &[(Job, Due)]) {
        let ids: Vec<Uuid> = jobs.iter().map(|(job, _)| uuid(job.id)).collect();
        let tenants: Vec<i32> = jobs.iter().map(|(job, _)| job.tenant.0 as i32).collect();
        let versions: Vec<i32> = jobs.iter().map(|(job, _)| job.version.0 as i32).collect();
        let states = vec![0_i16; jobs.len()];
        let record = |job: &Job| String::from_utf8(encode_job(job).unwrap()).unwrap();
        let records: Vec<String> = jobs.iter().map(|(job, _)| record(job)).collect();
        let mut shards: Vec<i16> = jobs.iter().map(|(job, _)| shard(job.id)).collect();
        let due = DueColumns::of(jobs.iter().map(|(_, due)| due));
        shards.sort_unstable();
        shards.dedup();
        self.transact(async || {
            let held = self.query("order by shard for key share", &[&shards]).await?;
            let known = self.query("select id, version from jobs where id = any($1)", &[&ids]).await?;
            assert!(known.is_empty());
            let values: [&(dyn ToSql + Sync); 5] = [&ids, &tenants, &versions, &states, &records];
            self.query(
                "insert into jobs (id, tenant, version, state, fired, completed_at, record)\nselect",
                &values,
            )
            .await?;
            self.query("insert into due\nselect", &due.values()).await?;
            let is_others = |row: &&tokio_postgres::Row| {
                row.get::<_, Option<Uuid>>(1).is_some_and(|owner| owner != self.me())
            };
            let told: Vec<i16> = held.iter().filter(is_others).map(|row| row.get(0)).collect();
            let at = due.at.iter().copied().min().unwrap_or_default();
            self.query("insert into news", &[&told, &vec![at; told.len()]]).await?;
            Ok(())
        })
        .await;
    }

    /// Whether there are news for it.
    pub(crate) async fn news(&self) -> bool {
        let rows = self.query("with told as", &[&self.me()]).await.unwrap();
        rows[0].get::<_, Option<i64>>(0).is_some()
    }

    /// What is due in its shards.
    pub(crate) async fn due(&self) -> Vec<DueRow> {
        let shards: Vec<i16> = self.epochs.keys().copied().collect();
        let words = "where d.shard = s.shard order by";
        let rows = self.query(words, &[&Some(shards), &100_i64]).await.unwrap();
        rows.iter()
            .map(|row| DueRow {
                at: row.get(1),
                lane: row.get(2),
                tenant: row.get(3),
                job: JobId::from_bytes(*row.get::<_, Uuid>(4).as_bytes()),
                version: row.get(5),
                slot: row.get(6),
            })
            .collect()
    }

    /// Fires entries, each into a run that is its job's last. Returns the jobs that were fired.
    pub(crate) async fn fire(&self, entries: &[DueRow], birth: &Birth, now: Timestamp) -> Vec<JobId> {
        let count = entries.len() as i64;
        let values: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &1_i64, &BLOCKS];
        let block: i64 = self.query("update sequences set block", &values).await.unwrap()[0].get(0);
        assert!(count <= BLOCK);
        let born_at = Timestamp::from_millisecond(block / BLOCKS).unwrap();
        let first = Sequence::first_at(born_at, 0).as_i64() + block % BLOCKS * BLOCK;
        let mut due = DueColumns::default();
        entries.iter().for_each(|entry| due.push(entry));
        let epochs: Vec<i64> =
            due.shard.iter().map(|shard| self.epochs.get(shard).copied().unwrap_or(-1)).collect();
        let places: Vec<i64> = (1..=count).collect();
        let sequences: Vec<i64> = (first..first + count).collect();
        let mut records = Vec::new();
        for (entry, sequence) in entries.iter().zip(&sequences) {
            let of = Parent {
                job: entry.job,
                tenant: punctual_domain::TenantId(entry.tenant as u32),
                version: punctual_domain::Version(entry.version as u32),
            };
            let slot = Timestamp::from_millisecond(entry.slot).unwrap();
            let birth = Birth { scheduled_for: slot, available_at: slot, ..birth.clone() };
            let (run, attempts) = birth.into_run(of, Sequence::from_i64(*sequence), now);
            records.push(encode_run(&run, &attempts));
        }
        let next = DueColumns::default();
        let (ready, zeros) = (vec![1_i16; entries.len()], vec![0_i32; entries.len()]);
        let nobody = vec![None::<Uuid>; entries.len()];
        let always = vec![None::<i64>; entries.len()];
        let queues = vec!["default"; entries.len()];
        let forget_at = vec![Some(now.as_millisecond() + WEEK); entries.len()];
        let mut shards = due.shard.clone();
        shards.sort_unstable();
        shards.dedup();
        let mut values: Vec<&(dyn ToSql + Sync)> = due.values().into();
        let none = Vec::<i64>::new();
        values.extend([&epochs as &(dyn ToSql + Sync), &forget_at, &shards, &None::<i64>, &none]);
        values.extend(next.values());
        values.extend([&places as &(dyn ToSql + Sync), &sequences, &due.shard, &ready, &due.lane, &zeros]);
        values.extend([&due.at as &(dyn ToSql + Sync), &due.tenant, &due.job, &nobody, &queues, &records]);
        values.push(&always);
        let refused = self
            .transact(async || {
                self.query("order by shard for key share", &[&shards]).await?;
                self.query("with owned as materialized", &values).await
            })
            .await;
        let refused: Vec<i64> = refused.iter().map(|row| row.get(0)).collect();
        let is_fired = |place: &i64| !refused.contains(place);
        places.iter().filter(|place| is_fired(place)).map(|place| entries[*place as usize - 1].job).collect()
    }

    pub(crate) async fn claim(&self, limit: i64, now: Timestamp) -> Vec<Leased> {
        self.transact(async || {
            self.query("update open_runs o set line = case", &[&now.as_millisecond()]).await?;
            let (lanes, above, upto) = (vec![0_i16, 1, 2], vec![-1; 3], vec![i32::MAX; 3]);
            let values: [&(dyn ToSql + Sync); 4] = [&lanes, &above, &upto, &limit];
            let waiters = self.query("with recursive who as (\n    select c.lane, c.upto", &values).await?;
            let lanes: Vec<i16> = waiters.iter().map(|row| row.get(0)).collect();
            let tenants: Vec<i32> = waiters.iter().map(|row| row.get(1)).collect();
            let most = vec![limit; waiters.len()];
            let values: [&(dyn ToSql + Sync); 6] =
                [&lanes, &tenants, &most, &None::<Vec<i16>>, &self.me(), &None::<i64>];
            let rows = self.query("o.record, o.line, punctual_now($6) from unnest", &values).await?;
            let mut leased = Vec::new();
            for row in rows.iter().take(limit as usize) {
                let (mut run, mut attempts) =
                    decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(2)).unwrap();
                lifecycle::apply(&mut run, Event::Claimed { worker: self.id, at: now }).unwrap();
                attempts.push(Attempt {
                    number: run.attempt,
                    worker: self.id,
                    claimed_at: now,
                    report: None,
                });
                leased.push(Leased { run, attempts, revision: row.get::<_, i32>(1) + 1 });
            }
            let sequences: Vec<i64> = leased.iter().map(|one| one.run.sequence.as_i64()).collect();
            let revisions: Vec<i32> = leased.iter().map(|one| one.revision).collect();
            let records: Vec<Vec<u8>> =
                leased.iter().map(|one| encode_run(&one.run, &one.attempts)).collect();
            let values: [&(dyn ToSql + Sync); 5] =
                [&self.me(), &None::<i64>, &sequences, &revisions, &records];
            self.query("update open_runs o set line = 2", &values).await?;
            Ok(leased)
        })
        .await
    }

    /// Whether it is alive, and which of the runs that it lists are its own.
    pub(crate) async fn heartbeat(&self, held: &[Leased]) -> Option<usize> {
        let sequences: Vec<i64> = held.iter().map(|one| one.run.sequence.as_i64()).collect();
        let attempts: Vec<i32> = held.iter().map(|one| one.run.attempt as i32).collect();
        let values: [&(dyn ToSql + Sync); 4] = [&self.me(), &None::<i64>, &sequences, &attempts];
        if self.query("insert into workers values", &values).await.unwrap().is_empty() {
            return None;
        }
        let rows =
            self.query("where seq = any($1) and worker = $2", &[&sequences, &self.me()]).await.unwrap();
        Some(rows.len())
    }

    /// Ends runs with success. Returns those of which this was the end.
    pub(crate) async fn complete(&self, held: Vec<Leased>, now: Timestamp) -> Vec<JobId> {
        let mut jobs = BTreeMap::new();
        let (mut tenants, mut ids, mut records) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sequences, mut revisions) = (Vec::new(), Vec::new());
        for Leased { mut run, mut attempts, revision } in held {
            let mut report = Report::lost(now, now);
            (report.outcome, report.error) = (Outcome::Succeeded, None);
            // It keeps the answer in the record.
            report.output = Some(Output { bytes: b"of the old one".to_vec(), is_truncated: false });
            let verdict = Verdict::Succeed;
            let (attempt, started_at) = (run.attempt, Some(now));
            let event = Event::Concluded { worker: self.id, attempt, started_at, verdict, at: now };
            lifecycle::apply(&mut run, event).unwrap();
            attempts.last_mut().unwrap().report = Some(report);
            jobs.insert(run.sequence.as_i64(), run.job);
            tenants.push(run.tenant.0 as i32);
            ids.push(uuid(run.job));
            records.push(encode_run(&run, &attempts));
            sequences.push(run.sequence.as_i64());
            revisions.push(revision);
        }
        let (classes, states) = (vec![CLASS_OF_A_WEEK; ids.len()], vec![10_i16; ids.len()]);
        let keep = vec![now.as_millisecond() + WEEK; ids.len()];
        let (none, no_tenants, no_jobs) = (Vec::<i64>::new(), Vec::<i32>::new(), Vec::<Uuid>::new());
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&classes, &states, &tenants, &sequences];
        values.extend([&ids as &(dyn ToSql + Sync), &keep, &records, &revisions]);
        values.extend([&none as &(dyn ToSql + Sync), &no_tenants, &no_jobs]);
        let words = ") select x.seq from unnest($4::bigint[]) x (seq) where x.seq not in";
        let refused = self.query(words, &values).await.unwrap();
        for row in refused {
            jobs.remove(&row.get::<_, i64>(0));
        }
        jobs.into_values().collect()
    }
}
