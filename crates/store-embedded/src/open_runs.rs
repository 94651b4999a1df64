//! What the writer keeps in memory: owners, workers, running attempts, who waits for an earlier run or for a permit.
//!
//! It grows with what runs and with what is ordered, not with what waits; see [`crate::waits`]. All of it can be read from the database, and is when the store is opened or a transaction failed;
//! signs of life are the exception, of workers and of owners of shards, and everybody has a lease's time to give one
//! anew; and whose turn was the last, where turns begin anew.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use punctual_domain::id::{Epoch, JobId, Sequence, WorkerId};
use punctual_domain::policy::limit::Key;
use punctual_domain::run::Run;
use punctual_domain::work::About;
use punctual_store::{Backlog, Error, Gates, Kinds, Liveness, Waiting};
use rusqlite::Connection;

use crate::births::Recent;
use crate::error::failed;
use crate::origin::Origin;
use crate::partition::Partitions;
use crate::row::{self, COLUMNS, Entry, damaged, millis, timestamp};
use crate::waits::{self, Changes};
use crate::write::load_workers;

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) shards: Vec<Shard>,
    pub(crate) partitions: Partitions,
    /// Runs with a lease, whole: ending one need not read it.
    pub(crate) running: HashMap<Sequence, Entry>,
    /// Those of them whose attempt has said something already.
    pub(crate) noted: HashSet<Sequence>,
    /// Runs with a lease by job: overlap, cancel and delete ask for them.
    pub(crate) running_of: HashMap<JobId, Vec<Sequence>>,
    /// Runs that wait for an earlier run of their job, oldest slot first.
    pub(crate) behind: HashMap<JobId, BTreeSet<(i64, Sequence)>>,
    /// Who holds permits, and how many wait for one.
    pub(crate) gates: Gates,
    /// Runs in the line, by lane.
    pub(crate) waiting: Waiting,
    /// What changed in the counts of what waits.
    pub(crate) changes: Changes,
    /// What waits, as it was read and not told yet.
    pub(crate) backlog: Option<Backlog>,
    /// Whose turn it is.
    pub(crate) kinds: Kinds,
    /// Jobs of which older versions are kept.
    pub(crate) versioned: HashSet<JobId>,
    pub(crate) liveness: Liveness,
    /// What workers elsewhere told of themselves, as the database knows it.
    pub(crate) told: HashMap<WorkerId, About>,
    /// Workers of this process, as the database knows them.
    pub(crate) locals: HashSet<WorkerId>,
    /// Memory and disk differ: no more writes.
    pub(crate) has_failed: Option<Error>,
    last: Sequence,
    /// Another one after every restore, so that what the original gave out since the backup is not given out again.
    database: u8,
}

/// Who owns a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard {
    pub(crate) owner: Option<WorkerId>,
    pub(crate) epoch: Epoch,
    pub(crate) expires_at: Timestamp,
}

impl Memory {
    /// Reads everything from the database.
    pub(crate) fn load(connection: &Connection, recent: &Recent) -> Result<Self, Error> {
        let (backlog, waiting) = waits::counts(connection)?;
        let mut memory = Memory {
            shards: load_shards(connection)?,
            partitions: Partitions::load(connection)?,
            running: HashMap::new(),
            noted: load_noted(connection)?,
            running_of: HashMap::new(),
            behind: HashMap::new(),
            gates: load_gates(connection)?,
            waiting,
            changes: Changes::default(),
            backlog: Some(backlog),
            kinds: Kinds::default(),
            versioned: load_versioned(connection)?,
            liveness: Liveness::default(),
            told: load_workers(connection)?,
            locals: load_locals(connection)?,
            has_failed: None,
            last: last_sequence(connection)?,
            database: Origin::load(connection)?.database,
        };
        for (worker, about) in &memory.told {
            memory.liveness.recall(*worker, about.clone());
        }
        recent.load(connection, &memory.partitions)?;
        memory.partitions.count(recent);
        let mut statement =
            connection.prepare(&format!("select {COLUMNS} from running_runs")).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let entry = row::read(row)?;
            memory.recall(&entry.run);
            memory.start(entry);
        }
        waits::each_of_a_kind(connection, |run| memory.recall(run))?;
        Ok(memory)
    }

    /// Notes what others wait for: who is behind, and who has permits or stands in line for one.
    fn recall(&mut self, run: &Run) {
        if run.is_behind() {
            self.stand_behind(run);
        }
        if !run.limits.is_empty() {
            // Its line is looked at as soon as anybody asks.
            self.gates.recall(run, Timestamp::UNIX_EPOCH);
        }
    }

    /// Reads everything anew, keeping what only memory knows.
    pub(crate) fn reload(&self, connection: &Connection, recent: &Recent) -> Result<Self, Error> {
        let mut fresh = Memory::load(connection, recent)?;
        fresh.liveness = self.liveness.clone();
        fresh.kinds = self.kinds.clone();
        for (shard, known) in fresh.shards.iter_mut().zip(&self.shards) {
            if (shard.owner, shard.epoch) == (known.owner, known.epoch) {
                shard.expires_at = known.expires_at;
            }
        }
        fresh.last = fresh.last.max(self.last);
        Ok(fresh)
    }

    /// The process before this one is gone, since a data directory has one: what its own workers held is lost, and
    /// nobody owns a shard. Workers elsewhere may live on, and have a lease's time to say so.
    pub(crate) fn succeed_process(&mut self, connection: &Connection) {
        let held: HashSet<WorkerId> =
            self.running.values().filter_map(|entry| entry.run.lease()).map(|lease| lease.worker).collect();
        let locals = std::mem::take(&mut self.locals);
        let forgotten: Vec<WorkerId> =
            locals.iter().filter(|worker| !held.contains(*worker)).copied().collect();
        for worker in locals {
            self.liveness.bury(worker);
        }
        let pulled = self.running.values().filter(|entry| entry.run.requires.are_pulling());
        for worker in pulled.filter_map(|entry| entry.run.lease()).map(|lease| lease.worker) {
            self.liveness.await_sign(worker);
        }
        for shard in &mut self.shards {
            shard.owner = None;
        }
        // A full disk must not keep the store from being read; the next process finds the same and does the same.
        if let Err(error) = write_succession(connection, &forgotten) {
            tracing::warn!(%error, "what the process before held was not taken from it on disk, only in memory");
        }
    }

    /// A sequence above everything stored and above now, so that it is never reused.
    pub(crate) fn next_sequence(&mut self, now: Timestamp) -> Sequence {
        self.last = self.unborn(now);
        self.last
    }

    /// The newest sequence.
    pub(crate) fn last_sequence(&self) -> Sequence {
        self.last
    }

    /// Not below any sequence that was given out, nor below now.
    pub(crate) fn newest_sequence(&self, now: Timestamp) -> Sequence {
        self.last.max(Sequence::first_at(now, self.database))
    }

    /// The sequence that would be next.
    pub(crate) fn unborn(&self, now: Timestamp) -> Sequence {
        let next = self.last.next().max(Sequence::first_at(now, self.database));
        self.partitions.floor().map_or(next, |floor| floor.max(next))
    }

    /// A run has a lease: from now on, or as before.
    pub(crate) fn start(&mut self, entry: Entry) {
        let (job, sequence) = (entry.run.job, entry.run.sequence);
        if self.running.insert(sequence, entry).is_none() {
            self.running_of.entry(job).or_default().push(sequence);
        }
    }

    /// A run has a lease no more.
    pub(crate) fn stop(&mut self, run: &Run) {
        self.running.remove(&run.sequence);
        if let Some(runs) = self.running_of.get_mut(&run.job) {
            runs.retain(|one| *one != run.sequence);
            if runs.is_empty() {
                self.running_of.remove(&run.job);
            }
        }
    }

    /// Takes an ended run out.
    pub(crate) fn forget(&mut self, run: &Run) {
        self.stop(run);
        self.leave_line(run);
    }

    /// A run waits for an earlier one.
    pub(crate) fn stand_behind(&mut self, run: &Run) {
        let place = (millis(run.scheduled_for), run.sequence);
        self.behind.entry(run.job).or_default().insert(place);
    }

    /// Takes a run out of those that wait for an earlier one.
    pub(crate) fn leave_line(&mut self, run: &Run) {
        if let Some(behind) = self.behind.get_mut(&run.job) {
            behind.remove(&(millis(run.scheduled_for), run.sequence));
            if behind.is_empty() {
                self.behind.remove(&run.job);
            }
        }
    }
}

fn write_succession(connection: &Connection, forgotten: &[WorkerId]) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    for worker in forgotten {
        transaction.execute("delete from local_workers where id = ?1", [worker.as_bytes()])?;
    }
    transaction.execute("update shards set owner = null where owner is not null", [])?;
    transaction.commit()
}

/// Rules and tokens; permits are in the runs that hold them.
fn load_gates(connection: &Connection) -> Result<Gates, Error> {
    let mut gates = Gates::written();
    for rule in crate::read::rules(connection)? {
        gates.recall_rule(rule);
    }
    let mut statement = connection.prepare("select key, full_at from tokens").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let key: i64 = row.get(0).map_err(failed)?;
        gates.recall_tokens(Key(key as u64), row.get(1).map_err(failed)?);
    }
    Ok(gates)
}

fn load_noted(connection: &Connection) -> Result<HashSet<Sequence>, Error> {
    let sql = "select seq from running_runs r where exists (select 1 from open_papers p where p.seq = r.seq)";
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let noted = statement.query_map([], |row| Ok(Sequence::from_i64(row.get(0)?))).map_err(failed)?;
    noted.collect::<Result<_, _>>().map_err(failed)
}

fn load_versioned(connection: &Connection) -> Result<HashSet<JobId>, Error> {
    let mut statement = connection.prepare("select distinct id from job_versions").map_err(failed)?;
    let ids = statement.query_map([], |row| Ok(JobId::from_bytes(row.get(0)?))).map_err(failed)?;
    ids.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn load_locals(connection: &Connection) -> Result<HashSet<WorkerId>, Error> {
    let mut statement = connection.prepare("select id from local_workers").map_err(failed)?;
    let ids = statement.query_map([], |row| Ok(WorkerId::from_bytes(row.get(0)?))).map_err(failed)?;
    ids.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn load_shards(connection: &Connection) -> Result<Vec<Shard>, Error> {
    let mut statement =
        connection.prepare("select owner, epoch, expires_at from shards order by shard").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut shards = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let owner: Option<[u8; 16]> = row.get(0).map_err(failed)?;
        let epoch: i64 = row.get(1).map_err(failed)?;
        let expires_at: i64 = row.get(2).map_err(failed)?;
        shards.push(Shard {
            owner: owner.map(WorkerId::from_bytes),
            epoch: Epoch(u64::try_from(epoch).map_err(|_| damaged("a negative epoch"))?),
            expires_at: timestamp(expires_at)?,
        });
    }
    Ok(shards)
}

/// The newest sequence that is stored.
pub(crate) fn last_sequence(connection: &Connection) -> Result<Sequence, Error> {
    let newest = |table: &str| -> Result<i64, Error> {
        let query = format!("select coalesce(max(seq), 0) from {table}");
        connection.query_row(&query, [], |row| row.get(0)).map_err(failed)
    };
    let mut last = newest("running_runs")?.max(newest("waiting_runs")?);
    for partition in Partitions::load(connection)?.iter() {
        last = last.max(newest(&format!("history_{}", partition.id))?).max(partition.from.as_i64());
    }
    let last = Sequence::from_i64(last.max(newest("history_0")?));
    Ok(last.max(Origin::load(connection)?.floor))
}
