//! What the routes share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_api::health::{Check, Version};
use punctual_api::limits::{BODY_MAX, PAYLOAD_MAX};
use punctual_api::read::{CheckTarget, Rules};
use punctual_domain::TenantId;
use punctual_engine::Engine;

use crate::access::Access;
use crate::error::Error;

/// What the binary hands to [`crate::router`].
#[derive(Clone)]
pub struct State {
    /// Does everything.
    pub engine: Engine,
    /// Says whether the process can work.
    pub health: Arc<dyn Health>,
    /// Says who calls.
    pub access: Arc<dyn Access>,
    /// What is running.
    pub version: Version,
    /// The metrics, as Prometheus reads them.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Whether a target may be called at all, asked when a job is registered.
    pub check_target: Option<Arc<CheckTarget>>,
    /// Whether its workers can send mail.
    pub has_mail: bool,
    /// How much of everything.
    pub limits: Limits,
}

/// Says whether the process can work: the store takes writes, the clock is believed, it is not draining.
pub trait Health: Send + Sync {
    /// Every check. Called for each `/readyz`, so it must be quick.
    fn ready(&self) -> Vec<Check>;
}

/// How much of everything a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body.
    pub body_max: usize,
    /// Bytes of the body of a bulk request.
    pub bulk_max: usize,
    /// Bytes of a line of an import.
    pub line_max: usize,
    /// Bytes of a payload.
    pub payload_max: usize,
    /// Bytes of all headers together.
    pub headers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body_max: BODY_MAX,
            bulk_max: 8 * BODY_MAX,
            line_max: BODY_MAX,
            payload_max: PAYLOAD_MAX,
            headers_max: 32 << 10,
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("version", &self.version)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The state as the routes hold it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) given: State,
    tenants: Mutex<HashMap<TenantId, Arc<str>>>,
}

impl std::ops::Deref for Shared {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.given
    }
}

impl Shared {
    pub(crate) fn new(given: State) -> Self {
        Shared(Arc::new(Inner { given, tenants: Mutex::default() }))
    }

    /// What a job is checked against.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules {
            tzdb: self.engine.tzdb(),
            payload_max: self.limits.payload_max,
            check_target: self.check_target.as_deref(),
        }
    }

    /// The tenant with a name. Tenants are never renamed, so what was read once stays true.
    pub(crate) async fn tenant(&self, name: &str) -> Result<TenantId, Error> {
        let known = |tenants: &HashMap<TenantId, Arc<str>>| {
            tenants.iter().find(|(_, known)| ***known == *name).map(|(id, _)| *id)
        };
        if let Some(id) = known(&self.tenants()) {
            return Ok(id);
        }
        self.read_tenants().await?;
        known(&self.tenants()).ok_or_else(|| {
            Error::Engine(punctual_engine::Error::TenantNotFound(name.chars().take(64).collect()))
        })
    }

    /// The name of a tenant.
    pub(crate) async fn tenant_name(&self, id: TenantId) -> Result<Arc<str>, Error> {
        if let Some(name) = self.tenants().get(&id) {
            return Ok(Arc::clone(name));
        }
        self.read_tenants().await?;
        Ok(self.tenants().get(&id).cloned().unwrap_or_else(|| "unknown".into()))
    }

    /// The same, if it was read before.
    pub(crate) fn known_name(&self, id: TenantId) -> Option<Arc<str>> {
        self.tenants().get(&id).cloned()
    }

    async fn read_tenants(&self) -> Result<(), Error> {
        let tenants = self.engine.tenants().await?;
        self.tenants().extend(tenants.into_iter().map(|tenant| (tenant.id, tenant.name.as_str().into())));
        Ok(())
    }

    fn tenants(&self) -> std::sync::MutexGuard<'_, HashMap<TenantId, Arc<str>>> {
        self.0.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
