//! What is registered: a schedule, a target, a payload and policies.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::every::Origin;
use punctual_schedule::{Kind, Schedule};

use crate::batch::Batch;
use crate::id::{JobId, TenantId, Version};
use crate::labels::Labels;
use crate::link::Link;
use crate::parts::Parts;
use crate::policy::Policies;
use crate::secret;

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
    /// What it was before, oldest first: the newest [`CHANGES_MAX`] changes that its past slots are explained by.
    pub changes: Vec<Change>,
}

/// So many changes of a job are remembered: enough for a pause a week over half a year, at most a few kilobytes in its row.
pub const CHANGES_MAX: usize = 32;

/// A change of a job that tells what became of slots before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// The version that it ended.
    pub version: Version,
    /// What was there until then.
    pub until: Before,
}

/// What a change ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// Another schedule.
    Schedule(Box<Schedule>),
    /// A pause.
    Pause(Pause),
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
    /// How each slot becomes several runs, if it does.
    pub parts: Option<Parts>,
    /// What is done at each slot, if that is a list of items.
    pub batch: Option<Arc<Batch>>,
    /// How urgent, coarsely.
    pub lane: Lane,
    /// How urgent inside tenant and lane; higher first.
    pub priority: i16,
    /// When.
    pub schedule: Schedule,
    /// Where.
    pub target: Target,
    /// Where it is told that a run is a dead letter, if anywhere.
    pub dead_letter_target: Option<Target>,
    /// Other jobs that are triggered when a run ends.
    pub links: Vec<Link>,
    /// What is sent, as the JSON text it was given; never parsed again. A run may have a payload of its own instead.
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
            parts: None,
            batch: None,
            lane: Lane::default(),
            priority: 0,
            schedule,
            target,
            dead_letter_target: None,
            links: Vec::new(),
            payload: None,
            policies: Policies::default(),
            correlation_id: None,
        }
    }

    /// The same as a tenant's job has it: what is pulled requires those who pull for the tenant.
    #[must_use]
    pub fn of(mut self, tenant: TenantId) -> Self {
        let given = self.requires.without_own();
        self.requires = match self.target {
            Target::Worker { .. } => given.pulling(tenant),
            Target::Http(_) | Target::Function { .. } | Target::Discard => given,
        };
        self
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
    /// A worker that pulls it: a program that asks for runs of the job's queue.
    Worker {
        /// The worker's own word for what is to be done.
        handler: String,
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
            Target::Worker { .. } => "worker",
            Target::Discard => "discard",
        }
    }

    /// Where its runs go, coarsely: what jobs that load the same thing share. `http api.example.com`, `function report`,
    /// `discard`.
    pub fn destination(&self) -> String {
        match self {
            Target::Http(http) => format!("http {}", host(&http.url)),
            Target::Function { name } => format!("function {name}"),
            Target::Worker { handler } => format!("worker {handler}"),
            Target::Discard => "discard".into(),
        }
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> BTreeSet<String> {
        let Target::Http(http) = self else { return BTreeSet::new() };
        let texts =
            std::iter::once(http.url.as_str()).chain(http.headers.iter().map(|(_, value)| value.as_str()));
        let tls = http.tls.iter().flat_map(|tls| tls.secrets().cloned());
        texts.flat_map(secret::names).chain(tls).collect()
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
    /// What TLS is spoken with, if not with the public authorities and nobody's certificate.
    pub tls: Option<Box<Tls>>,
}

/// What TLS is spoken with: the names of secrets, each in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who must have signed the target's certificate, instead of the public authorities.
    pub ca: Option<String>,
    /// The certificate that is shown to the target, and those above it.
    pub client_cert: Option<String>,
    /// Its key.
    pub client_key: Option<String>,
}

impl Tls {
    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        [&self.ca, &self.client_cert, &self.client_key].into_iter().flatten()
    }
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

    /// From when on slots of its schedule are its own: those after its registration; the registration itself, where that is the slot.
    pub fn owns_from(&self) -> Timestamp {
        let created =
            Timestamp::from_millisecond(self.created_at.as_millisecond()).unwrap_or(self.created_at);
        match &self.spec.schedule.kind {
            Kind::At(_) => Timestamp::MIN, // One that had just passed is taken.
            Kind::Now | Kind::After(_) => created,
            Kind::Every(every) if *every.origin() == Origin::Completion => created,
            Kind::Every(_) | Kind::Interval(_) | Kind::Cron(_) => created + SignedDuration::from_millis(1),
        }
    }

    /// Remembers what a change of an older version ended: its schedule, its pause.
    pub fn remember(&mut self, old: &Job) {
        let (at, version) = (self.updated_at, old.version);
        if let JobState::Paused(pause) = &old.state
            && !matches!(self.state, JobState::Paused(_))
        {
            self.changes.push(Change { at, version, until: Before::Pause(pause.clone()) });
        }
        if old.spec.schedule != self.spec.schedule {
            let schedule = Box::new(old.spec.schedule.clone());
            self.changes.push(Change { at, version, until: Before::Schedule(schedule) });
        }
        let many = self.changes.len().saturating_sub(CHANGES_MAX);
        self.changes.drain(..many);
    }

    /// The schedule that it had at a time, and when that ended. None if that is not remembered any more. A new schedule names slots after
    /// the change, so one of the very moment is the old one's.
    pub fn schedule_at(&self, at: Timestamp) -> Option<(&Schedule, Option<Timestamp>)> {
        if self.changes.len() >= CHANGES_MAX && self.changes.first().is_some_and(|oldest| at <= oldest.at) {
            return None; // An older change may have been forgotten.
        }
        let ended =
            self.changes.iter().filter(|change| at <= change.at).find_map(|change| match &change.until {
                Before::Schedule(schedule) => Some((&**schedule, Some(change.at))),
                Before::Pause(_) => None,
            });
        Some(ended.unwrap_or((&self.spec.schedule, None)))
    }

    /// The pause that was decided on at a time or held then, and when it ended.
    pub fn pause_at(&self, at: Timestamp) -> Option<(&Pause, Option<Timestamp>)> {
        let ended = self.changes.iter().find_map(|change| match &change.until {
            Before::Pause(pause) if pause.since <= at && at <= change.at => Some((pause, Some(change.at))),
            _ => None,
        });
        ended.or(match &self.state {
            JobState::Paused(pause) if pause.since <= at => Some((pause, None)),
            _ => None,
        })
    }

    /// Whether it may get slots that its schedule does not have now, because its calendars may come to allow them. `fired` is how
    /// often it has fired, if that is counted.
    pub fn waits_for_calendars(&self, fired: u64, now: Timestamp) -> bool {
        let schedule = &self.spec.schedule;
        let is_once = match schedule.kind {
            Kind::Now | Kind::At(_) | Kind::After(_) => true,
            Kind::Every(_) | Kind::Interval(_) | Kind::Cron(_) => false,
        };
        let is_bound = schedule.bounds.end.is_some_and(|end| end <= now)
            || self.max_fires().is_some_and(|most| fired >= most.get());
        self.is_active() && !schedule.calendars.is_empty() && !is_once && !is_bound
    }

    /// At most so many fires, if the schedule says.
    pub fn max_fires(&self) -> Option<NonZeroU64> {
        self.spec.schedule.bounds.max_fires
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ShardId;
    use crate::lifecycle::tests::at;

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
            let http = Http { url: url.into(), method: Method::Post, headers: Vec::new(), tls: None };
            assert_eq!(Target::Http(http).destination(), format!("http {wanted}"));
        }
        assert_eq!(Target::Function { name: "report".into() }.destination(), "function report");
        assert_eq!(Target::Worker { handler: "mail".into() }.destination(), "worker mail");
        assert_eq!(Target::Discard.destination(), "discard");
    }

    #[test]
    fn what_is_pulled_requires_those_who_pull_for_its_tenant() {
        let schedule = Schedule::parse("0 * * * *").expect("valid");
        let worker = Spec::new("j", schedule, Target::Worker { handler: "mail".into() }).of(TenantId(3));
        assert_eq!(worker.requires, Labels::NONE.pulling(TenantId(3)));
        assert_eq!(worker.clone().of(TenantId(3)), worker);
        let called = Spec { target: Target::Discard, ..worker }.of(TenantId(3));
        assert_eq!(called.requires, Labels::NONE, "nobody pulls it any more");
    }

    fn job() -> Job {
        let schedule = Schedule::parse("0 * * * *").expect("valid");
        Job {
            id: JobId::new(at(0), ShardId(1), 1),
            tenant: TenantId::DEFAULT,
            version: Version::FIRST,
            state: JobState::Active,
            spec: Spec::new("j", schedule, Target::Discard),
            created_at: at(0),
            updated_at: at(0),
            carried: None,
            changes: Vec::new(),
        }
    }

    fn changed(old: &Job, second: i64, change: impl Fn(&mut Job)) -> Job {
        let mut new = Job { version: old.version.next(), updated_at: at(second), ..old.clone() };
        change(&mut new);
        new.remember(old);
        new
    }

    #[test]
    fn a_job_knows_its_schedule_and_its_pause_of_any_time() {
        let first = job();
        let pause = Pause { reason: None, by: Some("ada".into()), since: at(100), until: None };
        let paused = changed(&first, 100, |job| job.state = JobState::Paused(pause.clone()));
        assert_eq!(paused.pause_at(at(150)), Some((&pause, None)));
        assert_eq!((paused.changes.len(), paused.pause_at(at(99))), (0, None));
        let resumed = changed(&paused, 200, |job| job.state = JobState::Active);
        assert_eq!(resumed.pause_at(at(150)), Some((&pause, Some(at(200)))));
        assert_eq!(resumed.pause_at(at(201)), None);
        let hourly = first.spec.schedule.clone();
        let daily = Schedule::parse("0 9 * * *").expect("valid");
        let moved = changed(&resumed, 300, |job| job.spec.schedule = daily.clone());
        assert_eq!(moved.schedule_at(at(300)), Some((&hourly, Some(at(300)))));
        assert_eq!(moved.schedule_at(at(301)), Some((&daily, None)));
        let renamed = changed(&moved, 400, |job| job.spec.name = "k".into());
        assert_eq!(renamed.changes, moved.changes, "a name explains no slot");
    }

    #[test]
    fn what_was_forgotten_is_not_guessed() {
        let schedules = ["0 1 * * *", "0 2 * * *"].map(|text| Schedule::parse(text).expect("valid"));
        let mut now = job();
        for second in 1..=CHANGES_MAX as i64 + 5 {
            now = changed(&now, second, |job| job.spec.schedule = schedules[second as usize % 2].clone());
        }
        assert_eq!(now.changes.len(), CHANGES_MAX);
        assert_eq!(now.schedule_at(at(6)), None);
        assert!(now.schedule_at(at(7)).is_some());
    }
}
