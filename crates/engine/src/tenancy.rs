//! How tenants stand: quotas, suspended, deleted; what they use.
//!
//! Changed when an administrator asks; asked for from memory, at every request and before every birth of a run. The duty keeps what a node
//! knows no older than a second where others may change it. Promise: from a second after a tenant was suspended no run of it is born on any
//! node and each of its slots is accounted for; a change is a compare-and-set, so that of two who change a tenant at once, one is told; what a
//! tenant has goes in bounded steps, as operations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::bulk::{self, CancelRuns, ChangeJobs};
use punctual_domain::document::Kind;
use punctual_domain::id::TenantId;
use punctual_domain::job::Spec;
use punctual_domain::operation::{self, Operation};
use punctual_domain::policy::backlog::Caps;
use punctual_domain::policy::limit::{Allowance, Rate, Rule};
use punctual_domain::tenant::{Exceeded, Quotas, Standing, State};
use punctual_store::record::{decode_standing, encode_standing};
use punctual_store::{DocumentChange, Expected, JobFilter, PageRequest};

use crate::engine::Engine;
use crate::error::Error;
use crate::pass::{Duty, Next};

/// The name of the document.
const NAME: &str = "standing";

/// Documents that are read at a time.
const PAGE: usize = 1_000;

/// How often the duty reads how tenants stand, where others may change it.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(1);

/// A count of jobs is believed for so long, with what this node has registered since.
const COUNTED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Nobody is refused by a count that is older.
const REFUSED_BY: SignedDuration = SignedDuration::from_secs(1);

/// Jobs of a page of a count.
const COUNT_PAGE: usize = 5_000;

/// Pages of the report of a tenant: what it has more is said to be more.
const REPORT_PAGES: usize = 40;

/// What is told to whoever saw a tenant as it was.
const CHANGED: Error = Error::Changed { what: "the tenant" };

/// How tenants stand that are not simply active, and their versions.
type Known = HashMap<TenantId, (Standing, u64)>;

/// What a node knows of tenants.
#[derive(Debug, Default)]
pub(crate) struct Tenancies {
    known: Mutex<Arc<Known>>,
    /// When jobs were counted, and how many there were, with those registered since.
    counts: Mutex<HashMap<TenantId, (Timestamp, u64)>>,
}

impl Tenancies {
    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_active(&self, tenant: TenantId) -> bool {
        self.known().get(&tenant).is_none_or(|(standing, _)| standing.state == State::Active)
    }

    /// A job of a tenant was registered.
    fn count_one(&self, tenant: TenantId) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, jobs)) = counts.get_mut(&tenant) {
            *jobs += 1;
        }
    }
}

/// What a tenant uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its jobs.
    pub jobs: u64,
    /// It has more than were counted.
    pub has_more_jobs: bool,
    /// Its runs that wait.
    pub pending_runs: u64,
    /// Its runs that are executed now.
    pub running_runs: u64,
    /// Slots of the next quarter of an hour.
    pub planned_slots: u64,
}

// What administrators ask for.
impl Engine {
    /// How a tenant stands, as this node knows it.
    pub fn standing(&self, tenant: TenantId) -> Standing {
        self.tenancies.known().get(&tenant).map(|(standing, _)| standing.clone()).unwrap_or_default()
    }

    /// How a tenant stands, as the store has it, and its version.
    pub async fn read_standing(&self, tenant: TenantId) -> Result<(Standing, u64), Error> {
        match self.store.document(Kind::Tenant, tenant, NAME).await? {
            Some(document) => Ok((decode_standing(&document)?, document.version)),
            None => Ok((Standing::default(), 0)),
        }
    }

    /// Sets the quotas of a tenant; only if it is at this version, if one is given. The answer is its version.
    pub async fn put_quotas(
        &self,
        tenant: TenantId,
        quotas: Quotas,
        expected: Option<u64>,
    ) -> Result<u64, Error> {
        let (standing, version) = self.read_standing(tenant).await?;
        if expected.is_some_and(|expected| expected != version) {
            return Err(CHANGED);
        }
        // Before it counts: a limit that is too strict for a moment is better than none.
        self.put_quota_rule(tenant, &quotas).await?;
        self.put_standing(tenant, &Standing { quotas, ..standing }, version).await
    }

    /// Suspends a tenant: from now on no run of it is born, and those that are open end, as an operation.
    pub async fn suspend_tenant(&self, tenant: TenantId, reason: Option<String>) -> Result<Operation, Error> {
        self.leave(tenant, State::Suspended, reason).await?;
        self.end_runs(tenant).await
    }

    /// Lets a suspended tenant go on, with the slots to come.
    pub async fn resume_tenant(&self, tenant: TenantId) -> Result<Standing, Error> {
        let (standing, version) = self.read_standing(tenant).await?;
        match standing.state {
            State::Active => return Ok(standing),
            State::Deleted => return Err(Error::TenantGone(self.tenant_name(tenant).await?.to_string())),
            State::Suspended => {}
        }
        let active = Standing { state: State::Active, reason: None, since: None, ..standing };
        self.put_standing(tenant, &active, version).await?;
        Ok(active)
    }

    /// Deletes a tenant: nobody may ask for anything of it any more, its keys are revoked, its runs end and its jobs go, as operations.
    /// Its history stays until it expires, and its name is not given to another.
    pub async fn delete_tenant(&self, tenant: TenantId) -> Result<Operation, Error> {
        self.leave(tenant, State::Deleted, None).await?;
        let mut after = None;
        loop {
            let page = self.keys(Some(tenant), PageRequest { after, limit: PAGE }).await?;
            for listed in page.items.iter().filter(|listed| listed.key.revoked_at.is_none()) {
                self.revoke_key(Some(tenant), &listed.key.id.to_string()).await?;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.end_runs(tenant).await?;
        let all = ChangeJobs { which: bulk::Jobs::default(), change: bulk::Change::Delete };
        self.start_operation(tenant, operation::Kind::ChangeJobs(Box::new(all)), None, |_, _| ()).await
    }

    /// What a tenant uses now.
    pub async fn usage(&self, tenant: TenantId) -> Result<Usage, Error> {
        let (jobs, has_more_jobs) = self.count_jobs(tenant, (COUNT_PAGE * REPORT_PAGES) as u64).await?;
        let queues = self.queues(Some(tenant)).await?.queues;
        Ok(Usage {
            jobs,
            has_more_jobs,
            pending_runs: self.pending(tenant).tenant,
            running_runs: queues.iter().map(|queue| queue.counted.running).sum(),
            planned_slots: queues.iter().map(|queue| queue.planned).sum(),
        })
    }

    /// Takes a tenant out of use.
    async fn leave(&self, tenant: TenantId, state: State, reason: Option<String>) -> Result<(), Error> {
        if tenant == TenantId::DEFAULT {
            return Err(Error::TenantKept(state.as_str()));
        }
        let (standing, version) = self.read_standing(tenant).await?;
        if standing.state == State::Deleted && state != State::Deleted {
            return Err(Error::TenantGone(self.tenant_name(tenant).await?.to_string()));
        }
        let since = standing.since.filter(|_| standing.state == state).or(Some(self.clock.now()));
        let reason = reason.or_else(|| standing.reason.clone().filter(|_| standing.state == state));
        self.put_standing(tenant, &Standing { state, reason, since, ..standing }, version).await?;
        tracing::info!(tenant = tenant.0, state = state.as_str(), "tenant out of use");
        Ok(())
    }

    /// Ends the open runs of a tenant, as an operation.
    async fn end_runs(&self, tenant: TenantId) -> Result<Operation, Error> {
        let kind = operation::Kind::CancelRuns(CancelRuns::default());
        self.start_operation(tenant, kind, None, |_, _| ()).await
    }

    async fn put_standing(&self, tenant: TenantId, standing: &Standing, version: u64) -> Result<u64, Error> {
        let expect = if version == 0 { Expected::Absent } else { Expected::Version(version) };
        let body = Some(encode_standing(standing)?);
        let change = DocumentChange { kind: Kind::Tenant, tenant, name: NAME.into(), expect, body };
        let answer = self.heard(self.store.put_documents(vec![change], self.clock.now())).await?;
        self.read_tenancies().await?;
        match answer.into_iter().next() {
            Some(Ok(Some(document))) => Ok(document.version),
            _ => Err(CHANGED),
        }
    }

    /// How many run at once and how fast is a limit like another, under a name that says whose.
    async fn put_quota_rule(&self, tenant: TenantId, quotas: &Quotas) -> Result<(), Error> {
        let name = format!("tenant:{}", self.tenant_name(tenant).await?);
        let rate = quotas.runs_per_second.map(|limit| Rate {
            limit,
            per: Duration::from_secs(1),
            // A second's worth at once: slots come together at the top of a minute.
            burst: limit,
        });
        let allowance = Allowance { max: quotas.concurrency, rate };
        if allowance == Allowance::default() {
            self.delete_rule(&name, None).await?;
            return Ok(());
        }
        let rule = Rule {
            name: name.into(),
            tenant: Some(tenant),
            queue: None,
            kind: None,
            by: Vec::new(),
            allowance,
            holds_retries: false,
            breaker: None,
        };
        self.put_rule(rule, None).await?;
        Ok(())
    }

    /// Reads how tenants stand anew. One that cannot be read is said so, and stands as it did.
    pub async fn read_tenancies(&self) -> Result<(), Error> {
        let (before, mut known, mut after) = (self.tenancies.known(), Known::new(), None);
        loop {
            let page = self.store.documents(Kind::Tenant, None, after, PAGE).await?;
            after = page.last().map(|last| (last.tenant, last.name.clone()));
            for document in &page {
                match decode_standing(document) {
                    Ok(standing) => drop(known.insert(document.tenant, (standing, document.version))),
                    Err(error) => {
                        tracing::warn!(tenant = document.tenant.0, %error, "how a tenant stands cannot be read");
                        if let Some(was) = before.get(&document.tenant) {
                            known.insert(document.tenant, was.clone());
                        }
                    }
                }
            }
            if page.len() < PAGE {
                break;
            }
        }
        *self.tenancies.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(())
    }
}

// What other steps ask.
impl Engine {
    /// How many runs of a tenant may wait, and how many in all.
    pub(crate) fn caps_of(&self, tenant: TenantId) -> Caps {
        let caps = self.caps();
        match self.tenancies.known().get(&tenant).and_then(|(standing, _)| standing.quotas.pending_runs) {
            Some(most) => Caps { tenant: caps.tenant.min(most), ..caps },
            None => caps,
        }
    }

    /// Refuses a job, or a change of one, that is beyond what its tenant may have.
    pub(crate) async fn check_quotas(&self, tenant: TenantId, spec: &Spec) -> Result<(), Error> {
        let quotas = self.standing(tenant).quotas;
        let days = spec.policies.retention.keep.class().days();
        match quotas.check(spec.payload.as_deref(), days) {
            Ok(()) => Ok(()),
            Err(exceeded) => Err(self.exceeded(tenant, exceeded).await?),
        }
    }

    /// Refuses one more job than a tenant may have, as of a moment ago; what is registered at the same time elsewhere is not known yet.
    pub(crate) async fn check_room_for_job(&self, tenant: TenantId) -> Result<(), Error> {
        let quotas = self.standing(tenant).quotas;
        let Some(most) = quotas.jobs else { return Ok(()) };
        let now = self.clock.now();
        let counted = {
            let counts = self.tenancies.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.get(&tenant).copied()
        };
        let is_good = |(at, jobs): &(Timestamp, u64)| {
            let age = now.duration_since(*at);
            let most_age = if *jobs >= most { REFUSED_BY } else { COUNTED_FOR };
            !age.is_negative() && age < most_age
        };
        let jobs = match counted.filter(is_good) {
            Some((_, jobs)) => jobs,
            None => {
                let (jobs, _) = self.count_jobs(tenant, most).await?;
                let mut counts = self.tenancies.counts.lock().unwrap_or_else(PoisonError::into_inner);
                counts.insert(tenant, (now, jobs));
                jobs
            }
        };
        match quotas.check_jobs(jobs) {
            Ok(()) => {
                self.tenancies.count_one(tenant);
                Ok(())
            }
            Err(exceeded) => Err(self.exceeded(tenant, exceeded).await?),
        }
    }

    async fn exceeded(&self, tenant: TenantId, exceeded: Exceeded) -> Result<Error, Error> {
        Ok(Error::QuotaExceeded { tenant: self.tenant_name(tenant).await?, exceeded })
    }

    /// Counts the jobs of a tenant, up to so many; and whether there are more.
    async fn count_jobs(&self, tenant: TenantId, most: u64) -> Result<(u64, bool), Error> {
        let filter = JobFilter { tenant: Some(tenant), ..JobFilter::default() };
        let (mut jobs, mut after) = (0, None);
        loop {
            let page = self.store.list_jobs(&filter, PageRequest { after, limit: COUNT_PAGE }).await?;
            jobs += page.items.len() as u64;
            after = page.next;
            if after.is_none() || jobs >= most {
                return Ok((jobs, after.is_some()));
            }
        }
    }
}

/// The duty that reads how tenants stand.
pub(crate) struct Standings {
    pub(crate) engine: Arc<Engine>,
}

#[async_trait]
impl Duty for Standings {
    const NAME: &'static str = "tenants";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        self.engine.read_tenancies().await?;
        // Where nobody else changes it, this node knows what it did.
        Ok(if self.engine.store.is_shared() { Next::At(now + LOOK_EVERY) } else { Next::Woken })
    }
}
