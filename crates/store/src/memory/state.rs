//! The maps, and what several verbs need of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::audit::{self, EntryId};
use punctual_domain::document;
use punctual_domain::id::{Epoch, JobId, OperationId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::job::Lane;
use punctual_domain::policy::limit::Key;
use punctual_domain::policy::retention::Retention;
use punctual_domain::run::{Run, RunState};
use punctual_domain::{
    Attempt, Document, LedgerEntry, Operation, Ownership, Papers, Placement, Tenant, TenantName,
};

use crate::attendance::Attendances;
use crate::backlog::Backlog;
use crate::detail::RunDetail;
use crate::error::Refused;
use crate::gates::Gates;
use crate::kinds::Kinds;
use crate::liveness::Liveness;
use crate::store::LOOK_AHEAD;
use crate::verbs::{Due, DueKey, Shards, Stored, Subject, Successor};

#[derive(Debug)]
pub(super) struct State {
    pub(super) shards: Vec<Shard>,
    pub(super) tenants: Vec<Tenant>,
    /// Current versions.
    pub(super) jobs: BTreeMap<JobId, Stored>,
    /// Older versions, while open runs keep them.
    pub(super) old_versions: BTreeMap<(JobId, Version), Stored>,
    pub(super) keys: HashMap<(TenantId, String), JobId>,
    pub(super) requests: HashMap<(TenantId, String), Subject>,
    pub(super) due: BTreeMap<(DueKey, Version), Timestamp>,
    pub(super) open: BTreeMap<Sequence, Entry>,
    /// Waiting runs whose time has come, those of a tenant in the order of claiming.
    pub(super) ready: BTreeSet<Turn>,
    /// Whose turn it is.
    pub(super) kinds: Kinds,
    /// Waiting runs whose time has not come.
    pub(super) delayed: BTreeSet<(Timestamp, Sequence)>,
    /// Waiting runs that may start until a time, by that.
    pub(super) lapses: BTreeSet<(Timestamp, Sequence)>,
    pub(super) gates: Gates,
    /// Waiting runs in the lines of their limits.
    pub(super) lines: BTreeSet<(Key, Place)>,
    pub(super) liveness: Liveness,
    pub(super) attendances: Attendances,
    pub(super) history: BTreeMap<Sequence, Ended>,
    pub(super) ledger: BTreeMap<(JobId, Timestamp), LedgerEntry>,
    pub(super) operations: BTreeMap<OperationId, Operation>,
    pub(super) documents: BTreeMap<(document::Kind, TenantId, String), Document>,
    pub(super) audit: BTreeMap<EntryId, audit::Entry>,
    /// Jobs that are over or deleted, by when they are looked at to be forgotten.
    pub(super) ended_jobs: BTreeSet<(Timestamp, JobId, Version)>,
    pub(super) last: Option<Sequence>,
    /// Of a copy into this store that is not finished.
    pub(super) note: Option<String>,
}

/// A run, its attempts so far and what they said.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) run: Run,
    pub(super) attempts: Vec<Attempt>,
    pub(super) papers: Papers,
}

impl Entry {
    pub(super) fn detail(&self) -> RunDetail {
        RunDetail::of(self.run.clone(), self.attempts.clone(), self.papers.clone())
    }
}

impl From<RunDetail> for Entry {
    fn from(detail: RunDetail) -> Self {
        let (run, attempts, papers) = detail.apart();
        Entry { run, attempts, papers }
    }
}

/// A run that ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) entry: Entry,
    pub(super) keep_until: Timestamp,
    /// Failed for good, and neither redriven nor acknowledged.
    pub(super) is_dead_letter: bool,
}

/// Where a run waits: in a lane, among its tenant's, by priority, time and birth.
pub(super) type Turn = (Lane, TenantId, std::cmp::Reverse<i16>, Timestamp, Sequence);

/// The order inside the line of a limit: lane, priority, slot, birth.
pub(super) type Place = (Lane, std::cmp::Reverse<i16>, Timestamp, Sequence);

#[derive(Clone, Copy, Debug)]
pub(super) struct Shard {
    owner: Option<WorkerId>,
    epoch: Epoch,
    expires_at: Timestamp,
    /// The earliest entry that its owner was not told of, in a shared store.
    news: Option<Timestamp>,
}

impl State {
    pub(super) fn new(shards: u16) -> Self {
        let shard = Shard { owner: None, epoch: Epoch(0), expires_at: Timestamp::MIN, news: None };
        let name = TenantName::DEFAULT.parse().unwrap_or_else(|_| unreachable!("a valid name"));
        State {
            shards: vec![shard; shards.into()],
            tenants: vec![Tenant { id: TenantId::DEFAULT, name, created_at: Timestamp::UNIX_EPOCH }],
            jobs: BTreeMap::new(),
            old_versions: BTreeMap::new(),
            keys: HashMap::new(),
            requests: HashMap::new(),
            due: BTreeMap::new(),
            open: BTreeMap::new(),
            ready: BTreeSet::new(),
            kinds: Kinds::default(),
            delayed: BTreeSet::new(),
            lapses: BTreeSet::new(),
            gates: Gates::default(),
            lines: BTreeSet::new(),
            liveness: Liveness::default(),
            attendances: Attendances::default(),
            history: BTreeMap::new(),
            ledger: BTreeMap::new(),
            operations: BTreeMap::new(),
            documents: BTreeMap::new(),
            audit: BTreeMap::new(),
            ended_jobs: BTreeSet::new(),
            last: None,
            note: None,
        }
    }

    pub(super) fn acquire(
        &mut self,
        owner: WorkerId,
        wanted: &Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Vec<(ShardId, Epoch)> {
        let expires_at = now + SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let mut taken = Vec::new();
        for (index, shard) in self.shards.iter_mut().enumerate() {
            let id = ShardId(index as u16);
            let is_free = shard.owner.is_none() || shard.expires_at < now;
            if shard.owner != Some(owner) && !(wanted.contains(id) && is_free) {
                continue;
            }
            // Renewing keeps the epoch; taking over starts a new one, which fences the old owner.
            if shard.owner != Some(owner) {
                shard.epoch.0 += 1;
            }
            shard.owner = Some(owner);
            shard.expires_at = expires_at;
            taken.push((id, shard.epoch));
        }
        taken
    }

    pub(super) fn hand_over(
        &mut self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) {
        let expires_at = now + SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        for (id, heir) in shards {
            let shard = &mut self.shards[usize::from(id.0)];
            if shard.owner == Some(owner) {
                let expires_at = self.attendances.until(heir).unwrap_or(expires_at);
                let epoch = Epoch(shard.epoch.0 + 1);
                *shard = Shard { owner: Some(heir), epoch, expires_at, news: None };
            }
        }
    }

    pub(super) fn leave(&mut self, node: WorkerId, now: Timestamp) {
        self.attendances.leave(node);
        for shard in self.shards.iter_mut().filter(|shard| shard.owner == Some(node)) {
            shard.owner = None;
            shard.expires_at = now;
        }
    }

    pub(super) fn placement(&mut self, now: Timestamp) -> Placement {
        let nodes = self.attendances.live(now);
        let shards = self.shards.iter().enumerate().map(|(index, shard)| Ownership {
            shard: ShardId(index as u16),
            owner: shard.owner,
            epoch: shard.epoch,
            expires_at: shard.expires_at,
            density: self.attendances.density(ShardId(index as u16)),
        });
        Placement { at: now, nodes, shards: shards.collect() }
    }

    /// The earliest entry in the owner's shards that it was not told of.
    pub(super) fn news(&mut self, owner: WorkerId) -> Option<Timestamp> {
        let owned = self.shards.iter_mut().filter(|shard| shard.owner == Some(owner));
        owned.filter_map(|shard| shard.news.take()).min()
    }

    /// The epochs of all shards.
    pub(super) fn epochs(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.epoch.0).collect()
    }

    pub(super) fn is_current(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(|s| s.owner.is_some() && s.epoch == epoch)
    }

    pub(super) fn put_tenant(&mut self, name: &TenantName, now: Timestamp) -> Tenant {
        if let Some(tenant) = self.tenants.iter().find(|tenant| tenant.name == *name) {
            return tenant.clone();
        }
        let id = TenantId(self.tenants.len() as u32 + 1);
        let tenant = Tenant { id, name: name.clone(), created_at: now };
        self.tenants.push(tenant.clone());
        tenant
    }

    pub(super) fn insert_due(&mut self, due: Due) {
        self.due.insert((due.key, due.version), due.slot);
    }

    /// An entry that the shard's owner may not know of.
    pub(super) fn announce_due(&mut self, due: Due, now: Timestamp) {
        self.insert_due(due);
        if due.key.at <= now + LOOK_AHEAD {
            let news = &mut self.shards[usize::from(due.key.job.shard().0)].news;
            *news = Some(news.map_or(due.key.at, |at| at.min(due.key.at)));
        }
    }

    /// Puts a waiting run in its line. One that waits for an earlier run stands in none. One whose time has come passes the
    /// gates of its limits first.
    pub(super) fn enqueue(&mut self, run: &mut Run, now: Timestamp) {
        if !matches!(run.state, RunState::Pending(_)) {
            return;
        }
        if !run.is_behind() && run.available_at <= now && !run.has_passed() {
            self.gates.arrive(run, now);
        }
        self.stand(run, now);
    }

    /// Puts a waiting run where it stands.
    pub(super) fn stand(&mut self, run: &Run, now: Timestamp) {
        self.lapses.extend(run.lapses_after().map(|at| (at, run.sequence)));
        if run.is_behind() {
            return;
        }
        // One that has not come to its gates yet comes to them when it is promoted.
        let is_early = run.available_at > now || !run.has_passed() && !run.is_limited();
        match (run.next_limit(), is_early) {
            (_, true) => {
                self.delayed.insert((run.available_at, run.sequence));
            }
            (Some(limited), false) => {
                self.lines.insert((limited.key, place(run)));
            }
            (None, false) => {
                self.ready.insert(turn(run));
            }
        }
    }

    /// Takes a run out of its line.
    pub(super) fn dequeue(&mut self, run: &Run) {
        self.gates.leave(run);
        self.unstand(run);
    }

    /// Whether a run waits for a worker, and its time has come.
    pub(super) fn is_ready(&self, run: &Run) -> bool {
        self.ready.contains(&turn(run))
    }

    pub(super) fn unstand(&mut self, run: &Run) {
        self.ready.remove(&turn(run));
        self.delayed.remove(&(run.available_at, run.sequence));
        if let Some(limited) = run.next_limit() {
            self.lines.remove(&(limited.key, place(run)));
        }
        if let Some(at) = run.lapses_after() {
            self.lapses.remove(&(at, run.sequence));
        }
    }

    /// Moves an ended run to history.
    pub(super) fn end(&mut self, mut entry: Entry, now: Timestamp) {
        entry.papers = entry.papers.ended(entry.run.state);
        let run = &entry.run;
        let ended = Ended {
            keep_until: keep_until(run.class(), now),
            is_dead_letter: run.state.is_dead(),
            entry: entry.clone(),
        };
        self.history.insert(run.sequence, ended);
        self.forget_old_versions(run.job);
    }

    /// Old versions of a job live as long as an open run keeps them.
    pub(super) fn forget_old_versions(&mut self, job: JobId) {
        if self.old_versions.range((job, Version(0))..=(job, Version(u32::MAX))).next().is_none() {
            return;
        }
        let kept: HashSet<Version> =
            self.open.values().filter(|entry| entry.run.job == job).map(|entry| entry.run.version).collect();
        self.old_versions.retain(|(id, version), _| *id != job || kept.contains(version));
    }

    /// What waits.
    pub(super) fn pending_runs(&self) -> impl Iterator<Item = &Run> {
        let runs = self.open.values().map(|entry| &entry.run);
        runs.filter(|run| matches!(run.state, RunState::Pending(_)))
    }

    /// The same, counted by tenant.
    pub(super) fn backlog(&self) -> Backlog {
        let mut backlog = Backlog::default();
        self.pending_runs().for_each(|run| backlog.add(run.tenant, 1));
        backlog
    }

    /// Above everything stored and above now, so that it is never reused.
    pub(super) fn next_sequence(&mut self, now: Timestamp) -> Sequence {
        let fresh = Sequence::first_at(now, 0);
        let sequence = self.last.map_or(fresh, |last| last.next().max(fresh));
        self.last = Some(sequence);
        sequence
    }

    /// Remembers a request, unless it is remembered already.
    pub(super) fn remember(&mut self, request: Option<Subject>, now: Timestamp) -> Result<(), Refused> {
        let Some(subject) = request else { return Ok(()) };
        let key = (subject.tenant, subject.key.clone());
        if self.requests.get(&key).is_some_and(|known| known.expires_at > now) {
            return Err(Refused::Repeated);
        }
        self.requests.insert(key, subject);
        Ok(())
    }

    /// Whether what the end of a run brings was decided for the job as it is.
    pub(super) fn check_successor(&self, job: JobId, successor: Option<Successor>) -> Result<(), Refused> {
        let Some(successor) = successor else { return Ok(()) };
        match self.jobs.get(&job) {
            Some(stored) if stored.job.version == successor.version => Ok(()),
            Some(stored) => Err(Refused::WrongVersion { current: stored.job.version }),
            None => Err(Refused::NoJob),
        }
    }

    /// Records a completion and what it brings.
    pub(super) fn succeed(&mut self, job: JobId, successor: Option<Successor>, now: Timestamp) {
        let Some(successor) = successor else { return };
        if let Some(stored) = self.jobs.get_mut(&job) {
            stored.progress.last_completion = Some(now);
        }
        if let Some(due) = successor.due {
            self.announce_due(due, now);
        }
        if let Some(retention) = successor.over {
            self.end_job(job, successor.version, retention, now);
        }
    }

    /// A job is over or deleted: it is kept for its class of retention.
    pub(super) fn end_job(&mut self, job: JobId, version: Version, retention: Retention, now: Timestamp) {
        self.ended_jobs.insert((keep_until(retention, now), job, version));
    }
}

pub(super) fn keep_until(retention: Retention, now: Timestamp) -> Timestamp {
    now + SignedDuration::from_hours(24 * i64::from(retention.days()))
}

fn place(run: &Run) -> Place {
    (run.lane, std::cmp::Reverse(run.priority), run.scheduled_for, run.sequence)
}

fn turn(run: &Run) -> Turn {
    (run.lane, run.tenant, std::cmp::Reverse(run.priority), run.available_at, run.sequence)
}
