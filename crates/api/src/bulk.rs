//! One change of many jobs or runs, on the wire: which of them, what becomes of each, and what a dry run says.

use std::collections::BTreeMap;

use punctual_domain::JobId;
use punctual_domain::bulk::{self as domain, Change};
use punctual_domain::job::Spec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::{JobSpec, Pause, Purpose, read_job};
use crate::limits::PATCH_MAX;
use crate::merge::patch_job;
use crate::payload::Payload;
use crate::problem::FieldError;
use crate::read::{At, Errors, Rules, Unread, one_of, read};
use crate::target::required;
use crate::time::Time;

object! {
    /// Which jobs; every member narrows, and `{}` is all of the tenant.
    pub struct JobFilter {
        /// `active`, `paused` or `ended`.
        pub state: String,
        /// With this text in their names.
        pub name: String,
        /// With keys that begin like this.
        pub key_prefix: String,
        /// Of this type.
        pub r#type: String,
        /// In this queue.
        pub queue: String,
        /// With all of these labels.
        pub labels: BTreeMap<String, String>,
    }

    /// Which runs that have not ended; every member narrows, and `{}` is all of the tenant.
    pub struct OpenRunFilter {
        /// `pending` or `running`.
        pub state: String,
        /// Of this job, by id.
        pub job: String,
        /// Of this type.
        pub r#type: String,
        /// In this queue.
        pub queue: String,
        /// Born at or after.
        pub from: Time,
        /// Born before.
        pub to: Time,
    }

    /// Pauses all jobs of a filter.
    pub struct PauseJobs {
        /// Which.
        #[schema(required = true)]
        pub filter: JobFilter,
        /// In the words of whoever pauses them.
        pub reason: String,
        /// Who pauses them.
        pub by: String,
        /// When they resume by themselves; not before they are resumed, unless said otherwise.
        pub until: Time,
        /// Only says how many would change.
        pub dry_run: bool,
        /// Of a dry run: the `next_cursor` of the part before.
        pub cursor: String,
    }

    /// Resumes or deletes all jobs of a filter.
    pub struct SelectJobs {
        /// Which.
        #[schema(required = true)]
        pub filter: JobFilter,
        /// Only says how many would change.
        pub dry_run: bool,
        /// Of a dry run: the `next_cursor` of the part before.
        pub cursor: String,
    }

    /// Edits all jobs of a filter.
    pub struct EditJobs {
        /// Which.
        #[schema(required = true)]
        pub filter: JobFilter,
        /// What changes in each: a JSON merge patch (RFC 7396) of at most 16 KiB. A key stays.
        #[schema(required = true)]
        pub patch: Payload,
        /// `keep` (the default): waiting runs keep their version; `update`: they take the new one.
        pub pending: String,
        /// Only says how many would change.
        pub dry_run: bool,
        /// Of a dry run: the `next_cursor` of the part before.
        pub cursor: String,
    }

    /// Cancels all open runs of a filter.
    pub struct CancelRuns {
        /// Which.
        #[schema(required = true)]
        pub filter: OpenRunFilter,
        /// Only says how many would be cancelled.
        pub dry_run: bool,
        /// Of a dry run: the `next_cursor` of the part before.
        pub cursor: String,
    }
}

/// What an operation would do to a part of the list: to all of it, if there is no `next_cursor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BulkPreview {
    /// How many the filter finds.
    pub matched: u64,
    /// How many of them would change; the others are so already.
    pub changes: u64,
    /// How many could not be changed.
    pub failed: u64,
    /// The first of those, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// A few that would change.
    pub examples: Vec<BulkExample>,
    /// Asked for with this as `cursor`, the same counts what comes after.
    pub next_cursor: Option<String>,
}

/// A job or a run that would change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BulkExample {
    /// Its id.
    pub id: String,
    /// A job's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A run's job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

const JOB_STATES: [(&str, &str); 3] = [("active", "active"), ("paused", "paused"), ("ended", "ended")];
const RUN_STATES: [(&str, &str); 2] = [("pending", "pending"), ("running", "running")];

/// The filter of a request, which is never left out by mistake.
fn filter_of<'a, T>(filter: Option<&'a T>, errors: &mut Errors) -> Option<&'a T> {
    let at = At::ROOT;
    let found = required(filter, &at, "filter", errors);
    if found.is_none() {
        let detail = || "`filter` is missing; `{}` is all of the tenant".into();
        errors.relabel(&at.member("filter"), "missing_field", "missing_field", detail);
    }
    found
}

impl JobFilter {
    fn to_domain(&self, errors: &mut Errors) -> domain::Jobs {
        let at = At::ROOT.member("filter");
        let state = self.state.as_ref();
        domain::Jobs {
            state: state.and_then(|word| one_of(word, &JOB_STATES, &at.member("state"), errors)),
            name: self.name.clone(),
            key_prefix: self.key_prefix.clone(),
            kind: self.r#type.clone(),
            queue: self.queue.as_deref().map(Into::into),
            labels: self.labels.clone().unwrap_or_default(),
        }
    }
}

impl From<&domain::Jobs> for JobFilter {
    fn from(which: &domain::Jobs) -> Self {
        JobFilter {
            state: which.state.map(Into::into),
            name: which.name.clone(),
            key_prefix: which.key_prefix.clone(),
            r#type: which.kind.clone(),
            queue: which.queue.as_deref().map(Into::into),
            labels: Some(which.labels.clone()).filter(|labels| !labels.is_empty()),
        }
    }
}

impl From<&domain::CancelRuns> for OpenRunFilter {
    fn from(which: &domain::CancelRuns) -> Self {
        OpenRunFilter {
            state: which.state.map(Into::into),
            job: which.job.map(|job| job.to_string()),
            r#type: which.kind.as_deref().map(Into::into),
            queue: which.queue.as_deref().map(Into::into),
            from: which.born_from.map(Time::from),
            to: which.born_before.map(Time::from),
        }
    }
}

/// A change of the jobs of a filter, if nothing is wrong.
fn asked(
    filter: Option<&JobFilter>,
    change: Option<Change>,
    mut errors: Errors,
) -> Result<domain::ChangeJobs, Unread> {
    let which = filter_of(filter, &mut errors).map(|filter| filter.to_domain(&mut errors));
    match (which, change, errors.is_empty()) {
        (Some(which), Some(change), true) => Ok(domain::ChangeJobs { which, change }),
        _ => Err(Unread::Wrong(errors.into_vec())),
    }
}

impl PauseJobs {
    /// As it is asked for, or everything that is wrong.
    pub fn to_domain(&self, now: jiff::Timestamp) -> Result<domain::ChangeJobs, Unread> {
        let pause = Pause { reason: self.reason.clone(), by: self.by.clone(), until: self.until.clone() };
        let pause = pause.to_domain(now)?;
        let change = Change::Pause { reason: pause.reason, by: pause.by, until: pause.until };
        asked(self.filter.as_ref(), Some(change), Errors::default())
    }
}

impl SelectJobs {
    /// As it is asked for, or everything that is wrong.
    pub fn to_domain(&self, change: Change) -> Result<domain::ChangeJobs, Unread> {
        asked(self.filter.as_ref(), Some(change), Errors::default())
    }
}

impl EditJobs {
    /// As it is asked for, or everything that can be known to be wrong before a job is looked at.
    pub fn to_domain(&self) -> Result<domain::ChangeJobs, Unread> {
        let (mut errors, root) = (Errors::default(), At::ROOT);
        let at = root.member("pending");
        let waiting = [("keep", false), ("update", true)];
        let updates_waiting = match &self.pending {
            Some(word) => one_of(word, &waiting, &at, &mut errors),
            None => Some(false),
        };
        let patch = required(self.patch.as_ref(), &root, "patch", &mut errors);
        if let Some(patch) = patch {
            check_patch(patch.as_str(), &mut errors);
        }
        let change = patch
            .zip(updates_waiting)
            .map(|(patch, updates_waiting)| Change::Edit { patch: patch.as_str().into(), updates_waiting });
        asked(self.filter.as_ref(), change, errors)
    }
}

/// What is wrong with a patch whatever job it is for: members that no job has, and values of the wrong type.
fn check_patch(patch: &str, errors: &mut Errors) {
    let root = At::ROOT;
    let at = root.member("patch");
    if patch.len() > PATCH_MAX {
        let detail = format!(
            "a patch of {} bytes is too large, at most {PATCH_MAX}; change a large payload job by job",
            patch.len()
        );
        return errors.add(&at, "too_long", detail);
    }
    // Applied to nothing, it is what it sets.
    let wrong = match patch_job("{}", patch).and_then(|set| read::<JobSpec>(&set)) {
        Ok(spec) if spec.key.is_some() => {
            let detail = "a job keeps its key; register new jobs with the other keys and delete these";
            return errors.add(&at.member("key"), "read_only_field", detail);
        }
        Ok(spec) if spec.links.is_some() => {
            let detail = "links are edited job by job, because each must be there and close no cycle";
            return errors.add(&at.member("links"), "read_only_field", detail);
        }
        Ok(_) if patch.trim_matches(['{', '}', ' ', '\n', '\t', '\r']).is_empty() => {
            return errors.add(
                &at,
                "missing_field",
                "the patch changes nothing; write `{\"queue\":\"slow\"}`",
            );
        }
        Ok(_) => return,
        Err(Unread::Malformed(reason)) => return errors.add(&at, "wrong_type", reason),
        Err(Unread::Wrong(wrong)) => wrong,
    };
    for FieldError { pointer, code, detail } in wrong {
        errors.add_at(format!("/patch{pointer}"), code, detail);
    }
}

impl CancelRuns {
    /// As it is asked for, or everything that is wrong.
    pub fn to_domain(&self) -> Result<domain::CancelRuns, Unread> {
        let (mut errors, root) = (Errors::default(), At::ROOT);
        let at = root.member("filter");
        let Some(filter) = filter_of(self.filter.as_ref(), &mut errors) else {
            return Err(Unread::Wrong(errors.into_vec()));
        };
        let job = filter.job.as_ref().and_then(|id| {
            let parsed = id.parse::<JobId>();
            parsed.map_err(|error| errors.add(&at.member("job"), "wrong_type", error.to_string())).ok()
        });
        let state = filter.state.as_ref();
        let which = domain::CancelRuns {
            job,
            kind: filter.r#type.as_deref().map(Into::into),
            queue: filter.queue.as_deref().map(Into::into),
            state: state.and_then(|word| one_of(word, &RUN_STATES, &at.member("state"), &mut errors)),
            born_from: filter.from.as_ref().and_then(|time| time.instant(&at.member("from"), &mut errors)),
            born_before: filter.to.as_ref().and_then(|time| time.instant(&at.member("to"), &mut errors)),
        };
        match errors.is_empty() {
            true => Ok(which),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

/// A job with a patch applied, or everything that is wrong with it then. A key decides where a job lives, so it stays;
/// leaving it out does not take it away.
pub fn edited(old: &Spec, patch: &str, rules: &Rules<'_>) -> Result<Spec, Unread> {
    let base = serde_json::to_string(&JobSpec::from(old)).unwrap_or_default();
    let spec = read_job(&patch_job(&base, patch)?, Purpose::Change, rules)?;
    with_key(spec, old)
}

/// A job's new spec with its old key.
pub fn with_key(spec: Spec, old: &Spec) -> Result<Spec, Unread> {
    match &spec.key {
        Some(key) if Some(key) != old.key.as_ref() => {
            let detail = "a job keeps its key; register a new job with the other key and delete this one";
            Err(Unread::Wrong(vec![FieldError::new("/key", "read_only_field", detail)]))
        }
        _ => Ok(Spec { key: old.key.clone(), ..spec }),
    }
}

/// The first of what is wrong, in a line.
pub fn first_wrong(unread: &Unread) -> String {
    match unread {
        Unread::Malformed(reason) => reason.clone(),
        Unread::Wrong(errors) => {
            errors.first().map_or_else(String::new, |error| format!("{}: {}", error.pointer, error.detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(body: &str) -> Vec<(String, String)> {
        let edit: EditJobs = read(body).expect("read");
        let Err(Unread::Wrong(errors)) = edit.to_domain() else { panic!("{body} is taken") };
        errors.into_iter().map(|error| (error.pointer, error.code.into_owned())).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(pointer, code)| (pointer.to_string(), code.to_string())).collect()
    }

    #[test]
    fn a_patch_is_checked_before_a_job_is_looked_at() {
        for (body, expected) in [
            ("{}", vec![("/patch", "missing_field"), ("/filter", "missing_field")]),
            (r#"{"filter":{},"patch":{}}"#, vec![("/patch", "missing_field")]),
            (r#"{"filter":{},"patch":7}"#, vec![("/patch", "wrong_type")]),
            (r#"{"filter":{},"patch":{"key":"x"}}"#, vec![("/patch/key", "read_only_field")]),
            (
                r#"{"filter":{},"patch":{"links":[{"on":"failed","job":"x"}]}}"#,
                vec![("/patch/links", "read_only_field")],
            ),
            (r#"{"filter":{},"patch":{"colour":"x"}}"#, vec![("/patch/colour", "unknown_field")]),
            (
                r#"{"filter":{"state":"lost"},"patch":{"timeout":7,"retry":{"tries":1}},"pending":"x"}"#,
                vec![
                    ("/pending", "unknown_value"),
                    ("/patch/timeout", "wrong_type"),
                    ("/patch/retry/tries", "unknown_field"),
                    ("/filter/state", "unknown_value"),
                ],
            ),
        ] {
            assert_eq!(wrong(body), pairs(&expected), "{body}");
        }
        for body in [
            r#"{"filter":{},"patch":{"queue":"x"}}"#,
            r#"{"filter":{},"patch":{"labels":{"team":null},"deadline":null}}"#,
            r#"{"filter":{"labels":{"a":"b"}},"patch":{"schedule":{"cron":"* * * * *"}},"pending":"update"}"#,
        ] {
            let edit: EditJobs = read(body).expect("read");
            edit.to_domain().expect(body);
        }
    }
}
