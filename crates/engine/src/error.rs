//! Why the engine did not do what it was asked.

use std::sync::Arc;

use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::policy::backlog::{Cap, Full};
use punctual_domain::tenant::Exceeded;
use punctual_domain::{JobId, Version};
use punctual_store::Subject;

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such job, or it is another tenant's.
    #[error("job `{0}` not found")]
    JobNotFound(String),
    /// There is no such run, or it is another tenant's.
    #[error("run `{0}` not found")]
    RunNotFound(String),
    /// There is no such worker, or it is another tenant's.
    #[error("worker `{0}` not found")]
    WorkerNotFound(String),
    /// A broadcast that nobody would hear.
    #[error("no worker that serves the queue `{0}` and has what the job requires lives now")]
    NoWorker(String),
    /// The worker was taken for dead, or was never of this tenant.
    #[error("worker {0} is not heard any more: it was silent for longer than a lease, or has gone")]
    WorkerLost(WorkerId),
    /// The attempt is not the worker's.
    #[error(
        "attempt {attempt} of run {run} is not held by this worker: it was given to another, or has ended"
    )]
    LeaseLost {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: u32,
    },
    /// Whoever reports has no right to it.
    #[error(transparent)]
    Token(#[from] punctual_domain::token::Refused),
    /// The token is for another run than the request.
    #[error("the token was given out for another run than {0}")]
    TokenOfAnotherRun(RunId),
    /// The attempt that a token names does not go on any more.
    #[error("attempt {attempt} of run {run} is over: the run is {state}")]
    AttemptOver {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: u32,
        /// How the run stands.
        state: &'static str,
    },
    /// There is no such operation, or it is another tenant's.
    #[error("operation `{0}` not found")]
    OperationNotFound(String),
    /// There is no such alert.
    #[error("alert `{0}` not found")]
    AlertNotFound(String),
    /// The tenant has as many alerts as it may.
    #[error("a tenant has at most {} alerts", crate::alerts::PAGE)]
    TooManyAlerts,
    /// There is no such tenant.
    #[error("tenant `{0}` not found")]
    TenantNotFound(String),
    /// There is no such calendar, or it is another tenant's.
    #[error("calendar `{0}` not found")]
    CalendarNotFound(String),
    /// The calendar changed since it was read.
    #[error("the calendar is at version {current}, not {expected}")]
    CalendarChanged {
        /// What the caller had seen.
        expected: u64,
        /// What it is.
        current: u64,
    },
    /// Jobs use the calendar, or may use it: there are too many jobs to look at all of them.
    #[error("calendar `{name}` is used by {}, so {what}", some_jobs(jobs))]
    CalendarInUse {
        /// Its name.
        name: String,
        /// What was asked for.
        what: &'static str,
        /// Some of the jobs.
        jobs: Vec<JobId>,
    },
    /// There is no such key, or it is another tenant's.
    #[error("key `{0}` not found")]
    KeyNotFound(String),
    /// Whoever asks may not give out such a key.
    #[error(transparent)]
    KeyBeyond(#[from] punctual_domain::key::Beyond),
    /// A key that somebody brings is not good.
    #[error(transparent)]
    KeyRefused(#[from] punctual_domain::key::Refused),
    /// A key that somebody brings may too little.
    #[error("key {id} is there already, with the role {role} or for one tenant alone")]
    KeyTooWeak {
        /// Which.
        id: punctual_domain::KeyId,
        /// What it may.
        role: &'static str,
    },
    /// The key is over.
    #[error("a key that is {state} cannot be rotated")]
    KeyOver {
        /// How it stands.
        state: &'static str,
    },
    /// There are as many keys as may be.
    #[error("an installation has at most {} keys", crate::keys::KEYS_MAX)]
    TooManyKeys,
    /// No secret can be made.
    #[error("no secret can be made: {0}")]
    NoEntropy(String),
    /// No such batch.
    #[error("batch `{0}` not found")]
    BatchNotFound(String),
    /// The id of a batch was used for something else.
    #[error("the id `{0}` was used before with another body, or is the key of another job")]
    BatchTaken(String),
    /// Another job has the key.
    #[error("the key `{key}` is taken by job {by}")]
    KeyTaken {
        /// The key.
        key: String,
        /// Who has it.
        by: JobId,
    },
    /// The job changed since it was read.
    #[error("the job is at version {current}, not {expected}")]
    VersionConflict {
        /// What the caller had seen.
        expected: Version,
        /// What it is.
        current: Version,
    },
    /// What somebody wrote changed since it was read, or is not there any more.
    #[error("{what} changed since it was read, or is not there")]
    Changed {
        /// What: "the alert".
        what: &'static str,
    },
    /// The same `Idempotency-Key` was used before; this is what came of it.
    #[error("the request was made before")]
    Repeated(Box<Subject>),
    /// The schedule cannot be used.
    #[error("schedule: {0}")]
    Schedule(#[from] punctual_schedule::Error),
    /// The job is not in a state for this.
    #[error("a {state} job cannot be {action}")]
    WrongState {
        /// What it is.
        state: &'static str,
        /// What was tried.
        action: &'static str,
    },
    /// Runs of the job are open, and its overlap policy has no place for another.
    #[error("a run of the job is open, and its overlap policy is `{policy}`")]
    Overlap {
        /// The policy.
        policy: &'static str,
    },
    /// The type is the system's own.
    #[error(
        "types that begin with `{}` are the system's own: such a job is neither created nor edited",
        punctual_domain::message::RESERVED
    )]
    ReservedType,
    /// A link to a job that is not there.
    #[error("the job `{job}` of the link is not there, neither by id nor by key")]
    LinkMissing {
        /// Which of the links.
        place: usize,
        /// What it names.
        job: String,
    },
    /// A link that leads back to its own job.
    #[error("the link closes a cycle: {path}")]
    LinkCycle {
        /// Which of the links.
        place: usize,
        /// The way there and back.
        path: String,
    },
    /// Links lead to too many jobs to look at.
    #[error("the links lead to more than {0} jobs, too many to look for a cycle; leave some out")]
    TooManyLinked(usize),
    /// A link that cannot be followed.
    #[error("{0}")]
    Link(String),
    /// As many runs wait as may.
    #[error("{}", too_many_pending(tenant, full))]
    TooManyPending {
        /// Whose run it would be.
        tenant: Arc<str>,
        /// Which cap leaves no room.
        full: Full,
    },
    /// The tenant is suspended, or deleted.
    #[error("tenant `{tenant}` is {state}{}", because(reason.as_deref()))]
    TenantSuspended {
        /// Which.
        tenant: Arc<str>,
        /// How it stands.
        state: &'static str,
        /// Why.
        reason: Option<String>,
    },
    /// The tenant was deleted.
    #[error("tenant `{0}` was deleted, and its name is not given to another while its history is kept")]
    TenantGone(String),
    /// The tenant that always exists is neither suspended nor deleted.
    #[error("tenant `default` is always there and cannot be {0}")]
    TenantKept(&'static str),
    /// A quota of the tenant would be exceeded.
    #[error("{}", too_much(tenant, exceeded))]
    QuotaExceeded {
        /// Whose.
        tenant: Arc<str>,
        /// Which, and by how much.
        exceeded: Exceeded,
    },
    /// Too many limits would be for one run.
    #[error("at most {} limits may be for the same run", punctual_domain::policy::limit::RULES_MAX)]
    TooManyLimits,
    /// Slots of the past cannot be run.
    #[error(transparent)]
    Backfill(#[from] crate::backfill::Refusal),
    /// An edit would leave a job that is not valid.
    #[error("{0}")]
    Edit(String),
    /// The operation has ended.
    #[error("a {state} operation cannot be cancelled")]
    OperationEnded {
        /// How.
        state: &'static str,
    },
    /// The run is not in a state for this.
    #[error(transparent)]
    Run(#[from] punctual_domain::lifecycle::Refused),
    /// The store cannot do it.
    #[error(transparent)]
    Store(#[from] punctual_store::Error),
}

fn some_jobs(jobs: &[JobId]) -> String {
    match jobs {
        [] => "some of very many jobs, perhaps".into(),
        [one] => format!("job {one}"),
        some => {
            let some: Vec<String> = some.iter().map(JobId::to_string).collect();
            format!("jobs such as {}", some.join(", "))
        }
    }
}

impl Error {
    /// Whether the same may work later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Store(punctual_store::Error::Unavailable { .. }))
    }

    /// Whether a link that was not followed because of it may be followed later.
    pub fn is_mendable(&self) -> bool {
        self.is_passing() || matches!(self, Error::TooManyPending { .. } | Error::Overlap { .. })
    }

    /// Whether what was read contradicts itself: trying again does not help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Store(punctual_store::Error::Damaged { .. }))
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn too_much(tenant: &str, exceeded: &Exceeded) -> String {
    let Exceeded { quota, most, asked } = exceeded;
    format!("tenant `{tenant}` may have {most} ({quota} of its quotas), and this makes {asked}")
}

fn too_many_pending(tenant: &str, full: &Full) -> String {
    let Full { cap, most, pending } = full;
    match cap {
        Cap::Tenant => {
            format!("{pending} runs of tenant `{tenant}` wait, and at most {most} may ({cap} of the server)")
        }
        Cap::Suspended => format!("tenant `{tenant}` is suspended"),
        Cap::All => format!(
            "{pending} runs of all tenants wait, and at most {most} may ({cap} of the server), so that none of \
             tenant `{tenant}` is added"
        ),
    }
}
