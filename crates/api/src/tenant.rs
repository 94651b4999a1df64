//! Tenants on the wire.

use std::num::NonZeroU32;

use jiff::Timestamp;
use punctual_domain::tenant::{Quotas, Standing, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::{CONCURRENCY_MAX, RATE_MAX};
use crate::read::{At, Errors, Unread};

/// Names the tenant of a request.
pub const HEADER: &str = "punctual-tenant";

object! {
    /// A new tenant.
    pub struct TenantSpec {
        /// 1 to 63 lower-case letters, digits and hyphens.
        #[schema(example = "acme", required = true)]
        pub name: String,
    }

    /// How much of everything a tenant may have; what is left out is not limited beyond what holds for all.
    pub struct TenantQuotas {
        /// Jobs.
        #[schema(example = 1000)]
        pub jobs: u64,
        /// Runs that wait; beyond that requests for a run are refused, and slots are throttled.
        pub pending_runs: u64,
        /// Runs that start in a second, 1 to 1000000; the others wait.
        #[schema(example = 50)]
        pub runs_per_second: u32,
        /// Runs at the same time, 1 to 1000000; the others wait.
        #[schema(example = 20)]
        pub concurrency: u32,
        /// Bytes of a payload.
        pub payload_bytes: u64,
        /// Days for which runs may be kept, 1 to 400.
        #[schema(example = 30)]
        pub history_days: u32,
    }

    /// Why a tenant is suspended.
    pub struct TenantSuspension {
        /// In the words of whoever does it, at most 500 characters; its callers are told.
        #[schema(example = "the invoice of March is unpaid")]
        pub reason: String,
    }
}

/// Characters of a reason.
const REASON_MAX: usize = 500;

impl TenantQuotas {
    /// As they hold, or everything that is wrong.
    pub fn to_domain(&self) -> Result<Quotas, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let mut some = |name: &'static str, number: Option<u32>, most: u32| {
            let number = number?;
            let found = NonZeroU32::new(number).filter(|number| number.get() <= most);
            if found.is_none() {
                errors.add(&at.member(name), "out_of_range", format!("write 1 to {most}, or leave it out"));
            }
            found
        };
        let runs_per_second = some("runs_per_second", self.runs_per_second, RATE_MAX);
        let concurrency = some("concurrency", self.concurrency, CONCURRENCY_MAX);
        let history_days = some("history_days", self.history_days, HISTORY_DAYS_MAX);
        match errors.is_empty() {
            true => Ok(Quotas {
                jobs: self.jobs,
                pending_runs: self.pending_runs,
                runs_per_second,
                concurrency,
                payload_bytes: self.payload_bytes,
                history_days: history_days.and_then(|days| u16::try_from(days.get()).ok()),
            }),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

/// The longest that runs are kept.
const HISTORY_DAYS_MAX: u32 = 400;

impl From<&Quotas> for TenantQuotas {
    fn from(quotas: &Quotas) -> Self {
        TenantQuotas {
            jobs: quotas.jobs,
            pending_runs: quotas.pending_runs,
            runs_per_second: quotas.runs_per_second.map(NonZeroU32::get),
            concurrency: quotas.concurrency.map(NonZeroU32::get),
            payload_bytes: quotas.payload_bytes,
            history_days: quotas.history_days.map(u32::from),
        }
    }
}

impl TenantSuspension {
    /// The reason, or what is wrong with it.
    pub fn to_domain(&self) -> Result<Option<String>, Unread> {
        let reason = self.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        let mut errors = Errors::default();
        if reason.is_some_and(|reason| reason.chars().count() > REASON_MAX) {
            let detail = format!("a reason has at most {REASON_MAX} characters");
            errors.add(&At::ROOT.member("reason"), "too_long", detail);
            return Err(Unread::Wrong(errors.into_vec()));
        }
        Ok(reason.map(str::to_string))
    }
}

/// What a tenant uses now, and what it may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantUsage {
    /// Its name.
    pub tenant: String,
    /// When this was so.
    pub as_of: Timestamp,
    /// Its jobs.
    pub jobs: u64,
    /// It has more than were counted, which are 200000 at most.
    pub has_more_jobs: bool,
    /// Its runs that wait, whatever for.
    pub pending_runs: u64,
    /// Its runs that are executed now.
    pub running_runs: u64,
    /// Its slots of the next quarter of an hour.
    pub planned_slots: u64,
    /// How much of everything it may have.
    pub quotas: TenantQuotas,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// How many of its runs wait, whatever for; as this node knows it.
    #[serde(default)]
    pub pending_runs: u64,
    /// How many may, before no more are taken: `tenant_pending_max` of the server.
    #[serde(default)]
    pub pending_max: u64,
    /// `active`, `suspended` or `deleted`.
    #[serde(default = "active")]
    pub state: String,
    /// Why it is not active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

fn active() -> String {
    State::Active.as_str().into()
}

impl Tenant {
    /// A tenant, how it stands, how many of its runs wait and how many may.
    pub fn new(
        tenant: &punctual_domain::Tenant,
        standing: &Standing,
        pending_runs: u64,
        pending_max: u64,
    ) -> Self {
        Tenant {
            name: tenant.name.to_string(),
            created_at: tenant.created_at,
            pending_runs,
            pending_max: standing.quotas.pending_runs.map_or(pending_max, |most| most.min(pending_max)),
            state: standing.state.as_str().into(),
            reason: standing.reason.clone(),
            since: standing.since,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::read::read;

    #[test]
    fn quotas_are_read_and_shown_alike_or_every_wrong_one_is_named() {
        let text = r#"{"jobs":5,"runs_per_second":10,"concurrency":2,"payload_bytes":100,"history_days":7}"#;
        let quotas: TenantQuotas = read(text).unwrap();
        assert_eq!(TenantQuotas::from(&quotas.to_domain().unwrap()), quotas);
        assert_eq!(read::<TenantQuotas>("{}").unwrap().to_domain(), Ok(Quotas::default()));
        let wrong: TenantQuotas =
            read(r#"{"runs_per_second":0,"concurrency":2000000,"history_days":401}"#).unwrap();
        let Err(Unread::Wrong(errors)) = wrong.to_domain() else { panic!("taken") };
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["/runs_per_second", "/concurrency", "/history_days"]);
    }
}
