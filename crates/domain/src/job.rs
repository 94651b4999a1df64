//! What is registered: a schedule, a target, a payload and policies.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::Timestamp;
use punctual_schedule::Schedule;

use crate::id::{JobId, TenantId, Version};
use crate::labels::Labels;
use crate::policy::Policies;

/// A job as stored: what its owner asked for, and what the server keeps about it. A run keeps the version it
/// was fired with.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its id, which also says its shard.
    pub id: JobId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Counts its changes.
    pub version: Version,
    /// Whether it fires.
    pub state: JobState,
    /// What its owner asked for.
    pub spec: Spec,
    /// When it was first registered.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// A slot that was due and not fired when it was last changed: it is owed, though the schedule may not name it.
    pub carried: Option<Carried>,
}

/// A slot that outlives the version it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// When it was to be fired.
    pub at: Timestamp,
    /// The slot.
    pub slot: Timestamp,
}

/// What a user asks for: a job without what the server decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Free text for people.
    pub name: String,
    /// Chosen by the client, unique in the tenant.
    pub key: Option<String>,
    /// Groups jobs, for limits and metrics.
    pub kind: Option<String>,
    /// For filters and routing.
    pub labels: BTreeMap<String, String>,
    /// Who executes: workers that serve this queue.
    pub queue: Arc<str>,
    /// What it requires of the worker that executes it.
    pub requires: Labels,
    /// How urgent, coarsely.
    pub lane: Lane,
    /// How urgent inside tenant and lane; higher first.
    pub priority: i16,
    /// When.
    pub schedule: Schedule,
    /// Where.
    pub target: Target,
    /// What is sent, as the JSON text it was given; never parsed again.
    pub payload: Option<Box<str>>,
    /// How, in every other respect.
    pub policies: Policies,
    /// Given to every run that has none of its own.
    pub correlation_id: Option<Arc<str>>,
}

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

impl Spec {
    /// A job with the defaults in every other respect.
    pub fn new(name: impl Into<String>, schedule: Schedule, target: Target) -> Self {
        Spec {
            name: name.into(),
            key: None,
            kind: None,
            labels: BTreeMap::new(),
            queue: DEFAULT_QUEUE.into(),
            requires: Labels::NONE,
            lane: Lane::default(),
            priority: 0,
            schedule,
            target,
            payload: None,
            policies: Policies::default(),
            correlation_id: None,
        }
    }
}

/// Whether a job fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It fires.
    Active,
    /// It does not, until resumed.
    Paused(Pause),
    /// Its schedule has no more slots.
    Ended,
    /// It is gone; its history stays until it expires.
    Deleted,
}

impl JobState {
    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            JobState::Active => "active",
            JobState::Paused(_) => "paused",
            JobState::Ended => "ended",
            JobState::Deleted => "deleted",
        }
    }
}

/// Why and since when a job is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Why, in the words of whoever paused it.
    pub reason: Option<String>,
    /// Who.
    pub by: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// When it resumes by itself.
    pub until: Option<Timestamp>,
}

/// How urgent a job is, coarsely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// First.
    Critical,
    /// Most.
    #[default]
    Standard,
    /// When there is room.
    Batch,
}

impl Lane {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// All lanes, most urgent first.
    pub const ALL: [Lane; Lane::COUNT] = [Lane::Critical, Lane::Standard, Lane::Batch];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Critical => "critical",
            Lane::Standard => "standard",
            Lane::Batch => "batch",
        }
    }

    /// Its place in an ordering key.
    pub fn rank(self) -> u8 {
        match self {
            Lane::Critical => 0,
            Lane::Standard => 1,
            Lane::Batch => 2,
        }
    }
}

/// Where runs of a job are executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An HTTP callback.
    Http(Http),
    /// A handler registered in the process that uses Punctual as a library.
    Function {
        /// The handler's name.
        name: String,
    },
    /// Succeeds at once.
    Discard,
}

impl Target {
    /// The word, as in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Target::Http(_) => "http",
            Target::Function { .. } => "function",
            Target::Discard => "discard",
        }
    }

    /// Where its runs go, coarsely: what jobs that load the same thing share. `http api.example.com`, `function report`,
    /// `discard`.
    pub fn destination(&self) -> String {
        match self {
            Target::Http(http) => format!("http {}", host(&http.url)),
            Target::Function { name } => format!("function {name}"),
            Target::Discard => "discard".into(),
        }
    }
}

/// The host of a URL, and its port if it names one.
pub fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase()
}

/// An HTTP callback, as registered. The worker checks the address again at every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where to.
    pub url: String,
    /// `POST` unless said otherwise.
    pub method: Method,
    /// The owner's headers, in order.
    pub headers: Vec<(String, String)>,
}

/// The methods a callback may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// With the payload as body.
    #[default]
    Post,
    /// With the payload as body.
    Put,
    /// With the payload as body.
    Patch,
    /// Without a body.
    Get,
    /// Without a body.
    Delete,
}

impl Method {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Get => "GET",
            Method::Delete => "DELETE",
        }
    }
}

impl Job {
    /// Whether its slots become runs.
    pub fn is_active(&self) -> bool {
        matches!(self.state, JobState::Active)
    }

    /// At most so many fires, if the schedule says.
    pub fn max_fires(&self) -> Option<NonZeroU64> {
        self.spec.schedule.bounds.max_fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_what_jobs_that_load_the_same_share() {
        for (url, wanted) in [
            ("https://api.example.com/v1/hook?x=1", "api.example.com"),
            ("http://API.Example.com", "api.example.com"),
            ("http://user:pass@host:8080#there", "host:8080"),
            ("http://[::1]:7171/", "[::1]:7171"),
            ("https://a.example?b=c://d/e", "a.example"),
        ] {
            assert_eq!(host(url), wanted, "{url}");
            let http = Http { url: url.into(), method: Method::Post, headers: Vec::new() };
            assert_eq!(Target::Http(http).destination(), format!("http {wanted}"));
        }
        assert_eq!(Target::Function { name: "report".into() }.destination(), "function report");
        assert_eq!(Target::Discard.destination(), "discard");
    }
}
