//! The trait, in the order of a run's life.

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::audit::{self, EntryId};
use punctual_domain::document;
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::policy::backlog::Pending;
use punctual_domain::policy::limit::Rule;
use punctual_domain::work::{About, Presence};
use punctual_domain::{Document, Labels, LedgerEntry, Note, Operation, Placement, Run, Tenant, TenantName};

use crate::attendance::Attendance;
use crate::detail::RunDetail;
use crate::error::{Error, Refused};
use crate::figures::Figures;
use crate::health::Health;
use crate::lists::Lists;
use crate::page::{Page, PageRequest};
use crate::queues::Queue;
use crate::verbs::{
    Advanced, Answering, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due, DuePage, DueQuery,
    Firing, Heartbeat, Held, Home, JobFilter, Lapse, Lapsed, MoveStep, Moved, OperationFilter, Planned, Put,
    RuleChange, RunFilter, Runnable, Shards, Step, Stepped, Stored, Subject, Trigger,
};

/// How far ahead a node may look in a store that others write to as well. What they make due sooner than this, it
/// is told by [`Store::news`]; it finds the rest when it looks again.
pub const LOOK_AHEAD: SignedDuration = SignedDuration::from_secs(600);

/// What another node says there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// News of something due.
    Due,
    /// Shards that were given away.
    Placement,
}

/// Where jobs and runs live.
///
/// Every verb that writes is durable when it returns, does each item of its list whole or not at
/// all, and never fails the list for one item. `now` is the caller's clock; a store with a clock of
/// its own judges leases by that one. Answers come in the order of the questions.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// How many shards jobs are spread over; fixed when the store is created.
    fn shard_count(&self) -> u16;

    /// Whether it takes writes.
    fn health(&self) -> Health {
        Health::default()
    }

    /// What it has counted.
    fn figures(&self) -> Figures {
        Figures::default()
    }

    /// How many runs of a tenant wait, whatever for, and how many in all. Asking costs nothing and touches no disk. Where
    /// others write too, it is what was last counted, and what this process did since.
    fn pending(&self, tenant: TenantId) -> Pending;

    /// Counts what waits anew, where others write too. Says how many of the tenant that has most, and in all.
    async fn count_pending(&self) -> Result<Pending, Error>;

    /// Whether other processes may write to it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Its databases, if it may have several.
    fn homes(&self) -> Vec<Home> {
        Vec::new()
    }

    /// Where lists for people are read, if not from the store itself: from copies of it that may be some seconds behind.
    fn lists(&self) -> Option<&dyn Lists> {
        None
    }

    /// Takes the move of shards to another of its databases on by a step.
    async fn move_shards(&self, step: MoveStep) -> Result<Moved, Error> {
        let _ = step;
        Err(Error::Unavailable { reason: "this store has no databases to move shards between".into() })
    }

    // Placement.

    /// A node's sign of life: it is live for `ttl`.
    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error>;

    /// Live nodes, and the owners of all shards.
    async fn placement(&self, now: Timestamp) -> Result<Placement, Error>;

    /// Takes shards that nobody holds, under a new epoch each, and keeps what the owner has, all for `ttl`. Returns
    /// everything that it owns now.
    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error>;

    /// Gives shards of an owner to other nodes, under a new epoch each: for `ttl`, or for as long as the other is live if
    /// that is known.
    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// A node goes: it is not live any more, and its shards are free at once.
    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error>;

    /// When the earliest entry is due that others put into the owner's shards since it last asked, if that is within
    /// [`LOOK_AHEAD`].
    async fn news(&self, owner: WorkerId, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let _ = (owner, now);
        Ok(None)
    }

    /// Waits until another node hints that there is something to look at. Hints may be lost.
    async fn hint(&self) -> Hint {
        std::future::pending().await
    }

    // Register.

    /// Creates and changes jobs.
    async fn put_jobs(&self, puts: Vec<Put>, now: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        Ok(self.put_born(puts, now).await?.into_iter().map(|answer| answer.map(drop)).collect())
    }

    /// The same; returns the run that was born with each, for those that are new.
    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error>;

    /// Jobs by id. Deleted ones are not there.
    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error>;

    /// Jobs by id, deleted ones too until [`Store::retain`] forgets them with the last of their history.
    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error>;

    /// Jobs in the versions that open runs were fired with.
    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error>;

    /// The job with a client-chosen key.
    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error>;

    /// Jobs in the order of their ids. Deleted ones are not there.
    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error>;

    /// Active jobs in the order of their ids, with what decides when and where they run.
    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error>;

    /// Whether jobs have runs that have not ended.
    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error>;

    /// What a request under an `Idempotency-Key` was for, if it is remembered.
    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error>;

    /// Remembers requests that were done elsewhere, unless they are remembered already.
    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error>;

    /// Runs outside the schedule, unless the job's overlap policy has no place for them. A request that is remembered without a result gets the run's id.
    /// Parts of one request follow each other ([`Trigger::goes_with`]): where the first is refused, all are, for its reason.
    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error>;

    // Due and fire.

    /// Due entries in the order of firing.
    async fn due(&self, query: DueQuery) -> Result<DuePage, Error>;

    /// How many due entries lie in `from..to`, counted up to `limit`. Stale ones may be among them.
    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error>;

    /// Whether due entries are still there: what was due then and is not now has been fired.
    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error>;

    /// Fires due entries: a compare-and-set per entry on exactly this slot, epoch and version. Births are decided against
    /// the open runs of their job: one that is not to be is an entry of the ledger.
    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error>;

    // Claim, execute, complete, reclaim.

    /// Leases claimable runs to a worker, in turns: lanes by their shares, in a lane the tenants that have runs for it one
    /// after the other, of a tenant the first by priority, time and birth. Those whose turn it is and that may not start any
    /// more come back among them without a lease, for the caller to end.
    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error>;

    /// When the first waiting run may be claimed.
    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error>;

    /// A worker's sign of life, with everything it holds.
    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error>;

    /// Which of these attempts of a worker somebody asked to stop. No sign of life, unlike [`Store::heartbeat`].
    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error>;

    /// Keeps what attempts say while they run, apart from their runs. Refused with `StaleLease` unless the worker holds the attempt.
    async fn note(&self, notes: Vec<Note>, now: Timestamp) -> Result<Vec<Result<(), Refused>>, Error>;

    /// Where the next attempts of open runs go on, if earlier ones said: the last checkpoint of each.
    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error>;

    /// A worker that pulls tells of itself, which is a sign of life; what it holds stays as it was. Says whether it lives and is of this
    /// tenant: nothing is taken from one that was taken for dead, nor from one that lives and is nobody's.
    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error>;

    /// Workers that have told of themselves and live, of one tenant or of all, by their ids. Few: one for each process that pulls.
    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error>;

    /// A worker goes: it is taken for dead.
    async fn dismiss(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error>;

    /// What waits in queues and runs from them, of one tenant or of all, by tenant and name. Bounded: see [`crate::queues`].
    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error>;

    /// What runs require that wait for one worker alone, or to be tried alone, each set of labels once; some of them, if there are very many.
    async fn addressed(&self) -> Result<Vec<Labels>, Error>;

    /// Who holds a run that is tried alone now, once for each such run. As it is when it is asked, never from a copy that is behind.
    async fn suspected(&self) -> Result<Vec<WorkerId>, Error>;

    /// Records the ends of attempts, and apart from their runs what they said. Where that ends a run, the next that waited for it goes on in the same commit; the messages that tell of
    /// that end are registered in it.
    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error>;

    /// Running runs whose worker is dead, or does not list them, for longer than `lease`. The worker is
    /// marked dead first.
    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error>;

    /// Ends waiting runs and asks running ones to stop. The end of one lets the next go on, as in [`Store::complete`].
    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error>;

    /// Waiting runs that may not start any more, and when the next one may not.
    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error>;

    /// Ends waiting runs that may not start any more. A dead letter has its messages, as in [`Store::complete`].
    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error>;

    /// Says what became of runs that wait for an answer. One that ended by it lets the next go on, and a dead letter has its message, as in
    /// [`Store::complete`].
    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error>;

    // Limits.

    /// Sets and takes away rules of administrators. Runs that are in line go on by them when [`Store::advance`] is called next.
    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error>;

    /// All rules of administrators, by name.
    async fn rules(&self) -> Result<Vec<Rule>, Error>;

    /// Lets at most so many runs go on to whom something has come with time: tokens, another rule, or their own time, with which
    /// they come to their gates. Of gates and runs in these shards.
    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error>;

    // History and dead letters.

    /// A run with its attempts and what they said, wherever it is. Nothing else reads what was said.
    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error>;

    /// Runs, newest first.
    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error>;

    /// The account of a job's slots that did not simply run, newest first.
    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error>;

    /// Dead runs go on: the same run, the next attempt. Where runs must not overlap, one waits for its turn.
    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error>;

    /// Dead runs stay as they are and leave the dead letters.
    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error>;

    /// Forgets what is older than its retention, ended operations too; at most `limit` rows or partitions. Returns how many.
    /// Jobs that are over or deleted go when nothing is left of their history.
    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error>;

    // Operations.

    /// Starts operations and takes them on: a compare-and-set per step on the operation's version, whose effect is
    /// in the same commit. So a step is done once, however many nodes race.
    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error>;

    /// Running operations whose next step may be done now, the longest waiting first.
    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error>;

    /// An operation by its id, ended ones too until [`Store::retain`] forgets them.
    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error>;

    /// Operations, newest first.
    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error>;

    // Documents.

    /// Writes and takes away documents: a compare-and-set on each one's version. Returns them as they are now, nothing for one that was
    /// taken away.
    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error>;

    /// A document.
    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error>;

    /// Documents of a kind, of one tenant or of all, by tenant and name; at most so many, after this one.
    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error>;

    // Audit.

    /// Appends entries to the audit that no change carries: they are there before what they tell of is done.
    async fn append_audit(&self, entries: Vec<audit::Entry>) -> Result<(), Error>;

    /// Entries of the audit, newest first. A page may be empty and still have a next one.
    async fn audit(
        &self,
        filter: &audit::Filter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<audit::Entry, EntryId>, Error>;

    // Tenants.

    /// Creates a tenant, or finds the one of that name.
    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error>;

    /// All tenants.
    async fn tenants(&self) -> Result<Vec<Tenant>, Error>;
}
