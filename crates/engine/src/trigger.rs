//! Triggers jobs: makes a run outside of the schedule.
//!
//! Runs when somebody asks for it, or when a link is followed. Promise: one run for each request, however often it is sent under its key;
//! whoever waits for work of its kind is given it in the same commit; it is refused while as many wait as may. Of a job in parts all parts are
//! born, or none.

use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::Job;
use punctual_domain::audit::Entry;
use punctual_domain::id::{JobId, TenantId};
use punctual_domain::parts;
use punctual_domain::run::{Cause, CausedBy, Run};
use punctual_domain::work::Leased;
use punctual_store::{Birth, Refused, Subject, Trigger};

use crate::audit::Done;
use crate::create::birth;
use crate::desk::Pulled;
use crate::engine::Engine;
use crate::error::Error;
use crate::register::{TRIES, busy, is_out_of_slots};

/// A run that is asked for outside of the schedule.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Why.
    pub cause: Cause,
    /// Its nominal time; now, unless said otherwise.
    pub at: Option<Timestamp>,
    /// What keeps it apart from others of the same millisecond; a random number, unless said otherwise.
    pub part: Option<u32>,
    /// Its own, or the job's.
    pub correlation_id: Option<Arc<str>>,
    /// What is sent instead of the job's payload, as JSON text.
    pub payload: Option<Arc<str>>,
    /// The end of another run that it is made for.
    pub caused_by: Option<CausedBy>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked {
            cause: Cause::Trigger,
            at: None,
            part: None,
            correlation_id: None,
            payload: None,
            caused_by: None,
        }
    }
}

impl Engine {
    /// Runs a job now, whatever its schedule says; all parts of one that is in parts, of which the first is told.
    pub async fn trigger(
        &self,
        tenant: TenantId,
        id: JobId,
        correlation_id: Option<Arc<str>>,
        request: Option<Subject>,
    ) -> Result<Run, Error> {
        self.trigger_as(tenant, id, Asked { correlation_id, ..Asked::default() }, request).await
    }

    /// Makes a run of a job outside of its schedule.
    pub async fn trigger_as(
        &self,
        tenant: TenantId,
        id: JobId,
        asked: Asked,
        request: Option<Subject>,
    ) -> Result<Run, Error> {
        for _ in 0..TRIES {
            let now = self.clock.now();
            let stored = self.find(tenant, id).await?;
            if stored.job.spec.batch.is_some() {
                return Err(Error::WrongState { state: "batch", action: "triggered" });
            }
            let workers = self.audience(std::iter::once(&*stored.job)).await?.of(&stored.job);
            // Two triggers of the same millisecond are two runs: the part keeps them apart.
            let base = asked.part.unwrap_or_else(|| self.entropy.bits() as u32);
            let parts = parts::of(stored.job.spec.parts, base, &workers);
            if parts.is_empty() {
                return Err(Error::NoWorker(stored.job.spec.queue.to_string()));
            }
            // Known before room is taken for all of them; the store refuses it in any case.
            if let (Some(request), true) = (&request, parts.len() > 1)
                && let Some(known) = self.store.request(tenant, &request.key, now).await?
            {
                return Err(Error::Repeated(Box::new(known)));
            }
            let mut intake = self.intake();
            for _ in &parts {
                self.must_have_room(tenant, request.as_ref(), &mut intake, now).await?;
            }
            let mut pulled = Pulled::new(&self.desk);
            let version = stored.job.version;
            let timetable = self.timetables.of(&stored.job);
            let is_over = timetable.is_ok_and(|timetable| is_out_of_slots(&stored, &timetable, now));
            let mut triggers = Vec::with_capacity(parts.len());
            for part in &parts {
                let at = asked.at.unwrap_or(now);
                let birth = birth(&stored.job, asked.cause, at, part.part, asked.correlation_id.clone());
                let payload = asked.payload.clone();
                let claimed_by = match part.worker {
                    Some(_) => None,
                    None => pulled.take(&stored.job.spec),
                };
                let requires = part.requires(&stored.job.spec.requires);
                let limits =
                    self.limits_with(&stored.job, payload.as_deref().or(stored.job.spec.payload.as_deref()));
                let caused_by = asked.caused_by;
                let birth =
                    Birth { limits, claimed_by, requires, parts: part.of, payload, caused_by, ..birth };
                // What is remembered is the first.
                let request = request.clone().filter(|_| triggers.is_empty());
                let audit = match triggers.is_empty() {
                    true => self.audited_trigger(&stored.job, at, now),
                    false => None,
                };
                triggers.push(Trigger { job: id, version, birth, is_over, request, audit });
            }
            self.addressed.add(parts.iter().filter_map(|part| part.worker));
            let mut answers = self.heard(self.store.trigger(triggers, now)).await?.into_iter();
            match answers.next() {
                Some(Ok(run)) => {
                    let runs: Vec<Run> = std::iter::once(run.clone()).chain(answers.flatten()).collect();
                    if !runs.iter().all(|run| pulled.is_for(run)) {
                        self.wakes.claimable();
                    }
                    runs.iter().for_each(|run| self.note_limited(run));
                    let leased = runs.into_iter().filter(|run| pulled.is_for(run));
                    let job = &stored.job;
                    let leased = leased.map(|run| Leased { run, job: Arc::clone(job), checkpoint: None });
                    let leased = leased.collect();
                    pulled.give(leased);
                    return Ok(run);
                }
                Some(Err(Refused::WrongVersion { .. })) => {}
                // All parts are refused with the first.
                Some(Err(refused)) => {
                    let request = request.as_ref().map(|request| request.key.as_str());
                    return Err(self.refused(refused, &stored.job, request, now).await?);
                }
                None => break,
            }
        }
        Err(busy())
    }

    /// The entry of a trigger; the store gives it the name of the run.
    fn audited_trigger(&self, job: &Job, at: Timestamp, now: Timestamp) -> Option<Box<Entry>> {
        let done = Done {
            tenant: job.tenant,
            kind: "run",
            subject: "",
            action: Some("trigger"),
            before: None,
            after: None,
        };
        let after = format!(r#"{{"job_id":"{}","version":{},"scheduled_for":"{at}"}}"#, job.id, job.version);
        self.audited(&done, now).map(|entry| Box::new(Entry { after: Some(after.into()), ..*entry }))
    }
}
