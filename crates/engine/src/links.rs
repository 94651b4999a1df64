//! Follows links: other jobs that are triggered when a run ends.
//!
//! A link is followed when its message is delivered, by a worker of any node; it is checked when it is registered. Promise: each end that a
//! link names makes one run of the linked job, or one failed message that says why not. The message comes to be in the commit that
//! ends the run ([`crate::messages`]); the linked run is made under a request that follows from that end, so that a repeated
//! delivery finds it made. Links that close a cycle are refused; one that comes to be by two edits at once ends at a depth.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, RunId, TenantId};
use punctual_domain::job::{Job, JobState, Spec};
use punctual_domain::link::{self, DEPTH_MAX, End, Link};
use punctual_domain::run::{Cause, CausedBy, Run};
use punctual_store::Subject;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::engine::Engine;
use crate::error::Error;
use crate::trigger::Asked;

/// So many jobs are looked at for a cycle: more than a chain of links reaches by intention.
const REACHED_MAX: usize = 1_000;

/// A delivered link is remembered so long. A message that failed may be redriven by hand within it, and makes no second run.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What came of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// This run of the linked job was made, now or by an earlier delivery.
    Run(RunId),
    /// None: a run of the linked job is open, and its overlap policy is `skip`.
    Skipped,
}

/// What a message of a link says, as far as it is read back.
struct Told {
    job: String,
    end: End,
    depth: u16,
    ended_at: Timestamp,
    correlation_id: Option<Arc<str>>,
    /// Everything that the linked run is told, as it was written.
    told: Box<RawValue>,
}

/// The message of a link, as [`Engine::follow`] reads it back. `told` is a JSON object.
pub(crate) fn text(link: &Link, end: End, caused_by: CausedBy, ended: &Run, told: &str) -> String {
    let correlation_id = ended.correlation_id.clone().unwrap_or_else(|| ended.id().to_string().into());
    let link = serde_json::json!({
        "job": link.job,
        "on": link.on.as_str(),
        "place": end.place,
        "run": end.run.to_string(),
        "attempt": end.attempt,
        "depth": caused_by.depth,
        "ended_at": ended.finished_at.unwrap_or(ended.scheduled_for).to_string(),
        "correlation_id": correlation_id,
    });
    format!("{{\"link\":{link},\"told\":{told}}}")
}

/// Reads a message back.
fn read(text: &str) -> Option<Told> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).ok()?;
    let link: Value = serde_json::from_str(members.get("link")?.get()).ok()?;
    let number = |name: &str| link.get(name)?.as_u64();
    let word = |name: &str| link.get(name)?.as_str();
    let (run, attempt, place) = (word("run")?.parse().ok()?, number("attempt")?, number("place")?);
    Some(Told {
        job: word("job")?.into(),
        end: End { run, attempt: attempt.try_into().ok()?, place: place.try_into().ok()? },
        depth: number("depth")?.try_into().ok()?,
        ended_at: word("ended_at")?.parse().ok()?,
        correlation_id: word("correlation_id").map(Into::into),
        told: members.remove("told")?,
    })
}

/// What is told to a linked run: everything about the end, and the payload of its own job.
fn payload(told: &str, own: Option<&str>) -> String {
    let open = told.trim_end().strip_suffix('}').unwrap_or(told);
    format!("{open},\"payload\":{}}}", own.unwrap_or("null"))
}

impl Engine {
    /// Delivers a link: triggers the linked job, unless that was done before. The job is the message.
    pub async fn follow(&self, message: JobId) -> Result<Followed, Error> {
        let found = self.store.kept_jobs(&[message]).await?.into_iter().next().flatten();
        let is_link = |job: &Job| job.spec.kind.as_deref() == Some(link::MESSAGE);
        // Only what the system registered is followed: it says whose jobs may be triggered.
        let message = found.map(|stored| stored.job).filter(|job| is_link(job));
        let message = message.ok_or_else(|| Error::Link("this is not the message of a link".into()))?;
        let told = message.spec.payload.as_deref().and_then(read);
        let link = told.ok_or_else(|| Error::Link("its message cannot be read".into()))?;
        let end = link.end;
        if link.depth > DEPTH_MAX {
            return Err(Error::Link(format!(
                "the chain of links is longer than {DEPTH_MAX} runs: is there a cycle? Take one of its links away"
            )));
        }
        let tenant = message.tenant;
        if let Some(known) = self.store.request(tenant, &end.request_key(), self.clock.now()).await? {
            return followed(&known);
        }
        let gone = || Error::Link(format!("job `{}` is not there any more", link.job));
        let id = self.linked(tenant, &link.job).await?.ok_or_else(gone)?;
        let job = self.find(tenant, id).await.map_err(|error| match error {
            Error::JobNotFound(_) => gone(),
            error => error,
        })?;
        if let JobState::Paused(_) = job.job.state {
            return Err(Error::Link(format!("job `{}` is paused", link.job)));
        }
        let request = Subject {
            tenant,
            key: end.request_key(),
            fingerprint: end.fingerprint(),
            expires_at: self.clock.now() + REMEMBERED,
            result: String::new(),
        };
        let asked = Asked {
            cause: Cause::Link,
            at: Some(link.ended_at),
            part: Some(end.part()),
            correlation_id: link.correlation_id,
            payload: Some(payload(link.told.get(), job.job.spec.payload.as_deref()).into()),
            caused_by: Some(CausedBy { run: end.run, depth: link.depth }),
        };
        match self.trigger_as(tenant, id, asked, Some(request)).await {
            Ok(run) => Ok(Followed::Run(run.id())),
            Err(Error::Repeated(known)) => followed(&known),
            Err(Error::Overlap { policy: "skip" }) => Ok(Followed::Skipped),
            Err(error) => Err(error),
        }
    }

    /// The job that a link names: by its id, or by its key.
    async fn linked(&self, tenant: TenantId, job: &str) -> Result<Option<JobId>, Error> {
        if let Ok(id) = job.parse::<JobId>() {
            let found = self.store.jobs(&[id]).await?.into_iter().next().flatten();
            if found.is_some_and(|stored| stored.job.tenant == tenant) {
                return Ok(Some(id));
            }
        }
        Ok(self.store.job_by_key(tenant, job).await?)
    }

    /// Refuses links to jobs that are not there, and links that lead back to the job itself. `old` is the job if it is there already.
    pub(crate) async fn check_links(
        &self,
        tenant: TenantId,
        old: Option<&Job>,
        spec: &Spec,
    ) -> Result<(), Error> {
        // What it is linked from does not change with an edit.
        if spec.links.is_empty() || old.is_some_and(|old| old.spec.links == spec.links) {
            return Ok(());
        }
        let is_itself = |link: &Link, id: Option<JobId>| {
            spec.key.as_deref() == Some(&link.job) || old.is_some_and(|old| Some(old.id) == id)
        };
        let own_name = spec.key.clone().or(old.map(|old| old.id.to_string())).unwrap_or(spec.name.clone());
        let mut seen: HashSet<JobId> = HashSet::new();
        let mut from: HashMap<JobId, String> = HashMap::new();
        let mut level: Vec<JobId> = Vec::new();
        for (place, link) in spec.links.iter().enumerate() {
            let id = self.linked(tenant, &link.job).await?;
            if is_itself(link, id) {
                return Err(Error::LinkCycle { place, path: format!("{own_name} -> {own_name}") });
            }
            let Some(id) = id else { return Err(Error::LinkMissing { place, job: link.job.clone() }) };
            if seen.insert(id) {
                from.insert(id, format!("{own_name} -> {}", link.job));
                level.push(id);
            }
            // A cycle through this link is told as this link's.
            while !level.is_empty() {
                let jobs = self.store.jobs(&std::mem::take(&mut level)).await?;
                for stored in jobs.into_iter().flatten().filter(|stored| stored.job.tenant == tenant) {
                    let path = from.get(&stored.job.id).cloned().unwrap_or_default();
                    for next in &stored.job.spec.links {
                        let id = self.linked(tenant, &next.job).await?;
                        if is_itself(next, id) {
                            return Err(Error::LinkCycle { place, path: format!("{path} -> {own_name}") });
                        }
                        let Some(id) = id.filter(|id| seen.insert(*id)) else { continue };
                        if seen.len() > REACHED_MAX {
                            return Err(Error::TooManyLinked(REACHED_MAX));
                        }
                        from.insert(id, format!("{path} -> {}", next.job));
                        level.push(id);
                    }
                }
            }
        }
        Ok(())
    }
}

fn followed(known: &Subject) -> Result<Followed, Error> {
    let run = known.result.parse();
    run.map(Followed::Run).map_err(|_| Error::Link("what it made cannot be read".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_no_link_is_not_followed() {
        for text in ["", "7", "{}", r#"{"link":{},"told":{}}"#, r#"{"link":{"job":"a","run":"x"},"told":{}}"#]
        {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_linked_run_is_told_of_the_end_and_of_its_own_job() {
        assert_eq!(payload(r#"{"a":1}"#, Some(r#"{"n": 1.50}"#)), r#"{"a":1,"payload":{"n": 1.50}}"#);
        assert_eq!(payload("{\"a\":1}\n", None), r#"{"a":1,"payload":null}"#);
    }
}
