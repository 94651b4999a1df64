//! Named calendars: days and hours that the schedules of a tenant share.
//!
//! Written when somebody asks, read by every node that binds a schedule which names one. A change starts the operation that plans the
//! jobs anew which use it (`replan.rs`), before the change itself is written: so none is without the other, whoever crashes. Promise: a
//! node knows no calendar that was replaced more than a second ago; a name that is not there is refused where a schedule comes to name
//! it; a calendar that jobs use is not deleted, and keeps its zone.

use std::collections::BTreeSet;

use jiff::Timestamp;
use punctual_domain::calendar::Named;
use punctual_domain::document::Kind;
use punctual_domain::id::{JobId, OperationId, ShardId, TenantId};
use punctual_domain::job::{Before, Job};
use punctual_domain::operation::{self, Operation, Replan};
use punctual_schedule::calendar::Calendar;
use punctual_store::record::{decode_calendar, encode_calendar};
use punctual_store::{DocumentChange, Expected, JobFilter, Page, PageRequest, Refused};

use crate::audit::{Done, Thing};
use crate::calendar_states::Missing;
use crate::engine::Engine;
use crate::error::Error;
use crate::register::busy;

/// More than so many are read together.
const FEW: usize = 16;

/// Calendars of a page.
const PAGE: usize = 500;

/// A change that meets another one is tried again this often.
const TRIES: usize = 5;

/// Jobs that use a calendar are looked for in so many pages of so many jobs.
const SEARCH_PAGES: usize = 1_000;
const SEARCH_PAGE: usize = 1_000;

/// So many of them are named.
const EXAMPLES: usize = 5;

/// A calendar that was put.
#[derive(Clone, Debug, PartialEq)]
pub struct Put {
    /// As it is now.
    pub calendar: Named,
    /// It was not there before.
    pub is_new: bool,
    /// What plans the jobs anew that use it, if it was changed.
    pub operation: Option<Operation>,
}

// What people ask for.
impl Engine {
    /// Calendars of a tenant, by name.
    pub async fn calendars(
        &self,
        tenant: TenantId,
        page: PageRequest<String>,
    ) -> Result<Page<Named, String>, Error> {
        let after = page.after.map(|name| (tenant, name));
        let found = self.store.documents(Kind::Calendar, Some(tenant), after, page.limit + 1).await?;
        let mut items: Vec<Named> = found.iter().map(decode_calendar).collect::<Result<_, _>>()?;
        let has_more = items.len() > page.limit;
        items.truncate(page.limit);
        let next = items.last().filter(|_| has_more).map(|last| last.name.clone());
        Ok(Page { items, next })
    }

    /// A calendar of a tenant.
    pub async fn calendar(&self, tenant: TenantId, name: &str) -> Result<Named, Error> {
        self.read_calendar(tenant, name).await?.ok_or_else(|| Error::CalendarNotFound(name.into()))
    }

    /// Sets a calendar. Without `expected`, whatever version there is.
    pub async fn put_calendar(
        &self,
        tenant: TenantId,
        name: &str,
        expected: Option<u64>,
        calendar: Calendar,
    ) -> Result<Put, Error> {
        if let Some(zone) = calendar.zone() {
            self.tzdb().zone(zone)?;
        }
        for _ in 0..TRIES {
            let now = self.clock.now();
            let old = self.read_calendar(tenant, name).await?;
            self.check_version(name, old.as_ref(), expected)?;
            if let Some(old) = old.as_ref().filter(|old| *old.calendar == calendar) {
                return Ok(Put { calendar: old.clone(), is_new: false, operation: None });
            }
            if let Some(old) = old.as_ref().filter(|old| old.calendar.zone() != calendar.zone()) {
                // Whether slots can move, and business days be counted, depends on it.
                self.check_unused(tenant, &old.name, "its timezone cannot be changed").await?;
            }
            let before = old.as_ref().map(|old| old.remembered(now)).unwrap_or_default();
            let version = old.as_ref().map_or(0, |old| old.version);
            let body = encode_calendar(&calendar, &before)?;
            // First the operation, which waits for the change: if this node dies in between, it finds that there was none.
            let operation = match &old {
                Some(_) => Some(self.start_replan(tenant, name, version + 1, now).await?),
                None => None,
            };
            let expect = old.as_ref().map_or(Expected::Absent, |old| Expected::Version(old.version));
            // If it is not as it was read, somebody was quicker.
            let before = old.as_ref().map(|old| Thing::Calendar(&old.calendar));
            let after = Some(Thing::Calendar(&calendar));
            let audit = self
                .audited(&Done { tenant, kind: "calendar", subject: name, action: None, before, after }, now);
            let change = DocumentChange {
                kind: Kind::Calendar,
                tenant,
                name: name.into(),
                expect,
                body: Some(body),
                audit,
            };
            if let Some(found) = self.change_calendar(change, now).await? {
                let calendar = found.ok_or_else(busy)?;
                return Ok(Put { calendar, is_new: old.is_none(), operation });
            }
        }
        Err(busy())
    }

    /// Deletes a calendar that no job uses.
    pub async fn delete_calendar(
        &self,
        tenant: TenantId,
        name: &str,
        expected: Option<u64>,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let old = self.calendar(tenant, name).await?;
            self.check_version(name, Some(&old), expected)?;
            self.check_unused(tenant, name, "it cannot be deleted").await?;
            let expect = Expected::Version(old.version);
            let before = Some(Thing::Calendar(&old.calendar));
            let done = Done { tenant, kind: "calendar", subject: name, action: None, before, after: None };
            let audit = self.audited(&done, now);
            let change =
                DocumentChange { kind: Kind::Calendar, tenant, name: name.into(), expect, body: None, audit };
            if self.change_calendar(change, now).await?.is_some() {
                return Ok(());
            }
        }
        Err(busy())
    }

    fn check_version(&self, name: &str, found: Option<&Named>, expected: Option<u64>) -> Result<(), Error> {
        match (found.map(|found| found.version), expected) {
            (_, None) => Ok(()),
            (Some(current), Some(expected)) if current == expected => Ok(()),
            (Some(current), Some(expected)) => Err(Error::CalendarChanged { expected, current }),
            (None, Some(_)) => Err(Error::CalendarNotFound(name.into())),
        }
    }

    /// Refuses if jobs use a calendar, or if there are so many jobs that nobody can tell.
    async fn check_unused(&self, tenant: TenantId, name: &str, what: &'static str) -> Result<(), Error> {
        let filter = JobFilter { tenant: Some(tenant), ..JobFilter::default() };
        let mut page = PageRequest { after: None, limit: SEARCH_PAGE };
        let mut jobs: Vec<JobId> = Vec::new();
        for _ in 0..SEARCH_PAGES {
            let found = self.store.list_jobs(&filter, page.clone()).await?;
            let users = found.items.iter().filter(|stored| uses(&stored.job, name));
            jobs.extend(users.map(|stored| stored.job.id).take(EXAMPLES - jobs.len()));
            page.after = found.next;
            if page.after.is_none() || jobs.len() >= EXAMPLES {
                break;
            }
        }
        match jobs.is_empty() && page.after.is_none() {
            true => Ok(()),
            false => Err(Error::CalendarInUse { name: name.into(), what, jobs }),
        }
    }

    async fn start_replan(
        &self,
        tenant: TenantId,
        name: &str,
        version: u64,
        now: Timestamp,
    ) -> Result<Operation, Error> {
        let shard = ShardId((self.entropy.bits() % u64::from(self.store.shard_count())) as u16);
        let id = OperationId::new(now, shard, self.entropy.bits());
        let kind = operation::Kind::Replan(Replan { calendar: name.into(), version });
        self.start(Operation::new(id, tenant, kind, now), None, |_, _| ()).await
    }

    /// The calendar as it is now, none for one that was taken away; nothing if it was not as expected.
    async fn change_calendar(
        &self,
        change: DocumentChange,
        now: Timestamp,
    ) -> Result<Option<Option<Named>>, Error> {
        let key = (change.tenant, change.name.clone());
        let answer = self.heard(self.store.put_documents(vec![change], now)).await?.into_iter().next();
        match answer {
            Some(Ok(document)) => {
                let named = document.as_ref().map(decode_calendar).transpose()?;
                self.timetables.calendars().take(key, named.clone(), now);
                self.wakes.operations.notify_one();
                Ok(Some(named))
            }
            Some(Err(Refused::DocumentChanged)) => Ok(None),
            Some(Err(_)) | None => Err(busy()),
        }
    }
}

// What the steps ask for.
impl Engine {
    /// Reads a calendar, as it is now.
    pub(crate) async fn read_calendar(&self, tenant: TenantId, name: &str) -> Result<Option<Named>, Error> {
        let now = self.clock.now();
        let document = self.store.document(Kind::Calendar, tenant, name).await?;
        let named = document.as_ref().map(decode_calendar).transpose()?;
        self.timetables.calendars().take((tenant, name.into()), named.clone(), now);
        Ok(named)
    }

    /// The calendars of jobs that are to be read before their slots are asked for: of their schedules, now and before.
    pub(crate) fn unread<'a>(&self, jobs: impl IntoIterator<Item = &'a Job>) -> Vec<(TenantId, String)> {
        let mut wanted = BTreeSet::new();
        for job in jobs {
            let past = job.changes.iter().filter_map(|change| match &change.until {
                Before::Schedule(schedule) => Some(&**schedule),
                Before::Pause(_) => None,
            });
            for schedule in past.chain([&job.spec.schedule]) {
                wanted.extend(schedule.calendars.iter().map(|name| (job.tenant, name.clone())));
            }
        }
        self.not_believed(wanted)
    }

    /// Those that are to be read.
    pub(crate) fn not_believed(&self, wanted: BTreeSet<(TenantId, String)>) -> Vec<(TenantId, String)> {
        if wanted.is_empty() {
            return Vec::new(); // Most jobs have none, and nobody asks for the time.
        }
        let (now, known) = (self.clock.now(), self.timetables.calendars());
        wanted.into_iter().filter(|key| !known.is_believed(key, now)).collect()
    }

    /// Reads calendars.
    pub(crate) async fn learn(&self, wanted: Vec<(TenantId, String)>) -> Result<(), Error> {
        if wanted.len() <= FEW {
            for (tenant, name) in wanted {
                self.read_calendar(tenant, &name).await?;
            }
            return Ok(());
        }
        let (now, known) = (self.clock.now(), self.timetables.calendars());
        let mut wanted: BTreeSet<(TenantId, String)> = wanted.into_iter().collect();
        let mut after = None;
        loop {
            let found = self.store.documents(Kind::Calendar, None, after, PAGE).await?;
            for document in &found {
                let key = (document.tenant, document.name.clone());
                if wanted.remove(&key) {
                    known.take(key, Some(decode_calendar(document)?), now);
                }
            }
            after = found.last().map(|last| (last.tenant, last.name.clone()));
            if found.len() < PAGE || wanted.is_empty() {
                break;
            }
        }
        for key in wanted {
            known.take(key, None, now);
        }
        Ok(())
    }

    /// Reads the calendars of a schedule that a job is to have, as they are now.
    pub(crate) async fn learn_anew(&self, tenant: TenantId, names: BTreeSet<String>) -> Result<(), Error> {
        self.learn(names.into_iter().map(|name| (tenant, name)).collect()).await
    }

    /// Which calendars of the schedule that a job had at a time exclude that time, as they were then or at another time.
    pub fn excluded_by(&self, job: &Job, at: Timestamp, by: Option<Timestamp>) -> Vec<String> {
        let Some((schedule, _)) = job.schedule_at(at) else { return Vec::new() };
        let Ok(zone) = self.tzdb().zone(&schedule.timezone) else { return Vec::new() };
        let (known, by) = (self.timetables.calendars(), Some(by.unwrap_or(at)));
        let bound = known.bind(job.tenant, &schedule.calendars, by, Missing::Allows);
        let excludes = |calendar: &Calendar| !calendar.allows(at, self.tzdb(), &zone).unwrap_or(true);
        let names = schedule.calendars.iter();
        names.filter(|name| bound.calendars.get(*name).is_some_and(|one| excludes(one))).cloned().collect()
    }

    /// What the owner of a job should know about its calendars.
    pub(crate) fn calendar_warnings(&self, job: &Job, has_slots: bool) -> Vec<String> {
        let names = &job.spec.schedule.calendars;
        let gone = self.timetables.calendars().missing(job.tenant, names);
        let gone = gone.into_iter().map(|name| {
            format!("calendar `{name}` is not there any more and excludes nothing; create it, or change `calendars` of the job")
        });
        let is_closed = !has_slots && job.waits_for_calendars(0, self.clock.now());
        let closed = is_closed.then(|| {
            format!(
                "its calendars ({}) leave it no slot; it fires again when they allow one",
                names.join(", ")
            )
        });
        gone.chain(closed).collect()
    }
}

/// Whether a job's schedule names a calendar.
pub(crate) fn uses(job: &Job, calendar: &str) -> bool {
    job.spec.schedule.calendars.iter().any(|name| name == calendar)
}
