//! Finds dead letters by what went wrong, and groups them by it.
//!
//! Runs when the API or an operation asks. Promise: an answer looks at a bounded number of runs and says how far
//! it came. What failed is in a run's last attempt and its labels are its job's, so these are read run by run and
//! job by job, after everything that an index serves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence};
use punctual_domain::run::Run;
use punctual_store::{Page, PageRequest, RunFilter};

use crate::engine::Engine;
use crate::error::Error;

/// Which dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// By what the store knows of them; `is_dead` has no meaning here.
    pub runs: RunFilter,
    /// The error of their last attempt has this code.
    pub error: Option<Arc<str>>,
    /// Their job has this label.
    pub label: Option<(String, String)>,
}

impl DeadFilter {
    fn is_narrow(&self) -> bool {
        self.error.is_some() || self.label.is_some()
    }
}

/// Dead letters that failed alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The code of their errors.
    pub code: String,
    /// The target's own code.
    pub status: Option<i32>,
    /// Their message, without what differs from one to the other.
    pub message: String,
    /// How many were met.
    pub count: u64,
    /// How many of their jobs.
    pub jobs: u64,
    /// When the first of them ended.
    pub first_at: Timestamp,
    /// When the last of them ended.
    pub last_at: Timestamp,
    /// The newest.
    pub example: RunId,
}

/// Dead letters, grouped by error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The largest first.
    pub groups: Vec<Group>,
    /// How many dead letters were looked at.
    pub examined: u64,
    /// Where to go on, if there are more.
    pub next: Option<Sequence>,
}

/// So many pages of the store are looked at for one of a narrowed list.
const PAGES_MAX: usize = 20;

/// So many dead letters are grouped at a time: each is read by its id, so that this takes about a second on a
/// far database.
const GROUPED_MAX: usize = 2_000;

/// Runs that are read at a time.
const CHUNK: usize = 200;

impl Engine {
    /// Dead letters, newest first. A page may be empty and still have a next one.
    pub async fn dead_letters(
        &self,
        filter: &DeadFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        let of_store = RunFilter { is_dead: Some(true), ..filter.runs.clone() };
        if !filter.is_narrow() {
            return self.runs(&of_store, page).await;
        }
        let (mut items, mut after) = (Vec::new(), page.after);
        for _ in 0..PAGES_MAX {
            let limit = page.limit - items.len();
            let found = self.runs(&of_store, PageRequest { after, limit }).await?;
            items.extend(self.narrowed(found.items, filter).await?);
            after = found.next;
            if after.is_none() || items.len() >= page.limit {
                break;
            }
        }
        Ok(Page { items, next: after })
    }

    /// Dead letters by what went wrong, from the newest down.
    pub async fn dead_letter_groups(
        &self,
        filter: &DeadFilter,
        mut after: Option<Sequence>,
    ) -> Result<Groups, Error> {
        let of_store = RunFilter { is_dead: Some(true), ..filter.runs.clone() };
        let of_job = DeadFilter { error: None, ..filter.clone() };
        let mut groups: HashMap<_, (Group, BTreeSet<JobId>)> = HashMap::new();
        let mut examined = 0;
        while examined < GROUPED_MAX {
            let found = self.runs(&of_store, PageRequest { after, limit: CHUNK }).await?;
            examined += found.items.len().max(1); // An empty page is work too.
            for run in self.narrowed(found.items, &of_job).await? {
                let Some((code, status, message)) = self.error_of(&run).await? else { continue };
                if filter.error.as_ref().is_some_and(|wanted| **wanted != *code) {
                    continue;
                }
                let at = run.finished_at.unwrap_or(run.scheduled_for);
                let key = (code.clone(), status, message.clone());
                let (group, jobs) = groups.entry(key).or_insert_with(|| {
                    let example = run.id();
                    (
                        Group {
                            code,
                            status,
                            message,
                            count: 0,
                            jobs: 0,
                            first_at: at,
                            last_at: at,
                            example,
                        },
                        BTreeSet::new(),
                    )
                });
                jobs.insert(run.job);
                group.count += 1;
                (group.first_at, group.last_at) = (group.first_at.min(at), group.last_at.max(at));
            }
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        let mut groups: Vec<Group> =
            groups.into_values().map(|(group, jobs)| Group { jobs: jobs.len() as u64, ..group }).collect();
        groups.sort_by(|a, b| (b.count, b.last_at, &a.message).cmp(&(a.count, a.last_at, &b.message)));
        Ok(Groups { groups, examined: examined as u64, next: after })
    }

    /// Those of the runs whose job and last error are as wanted.
    pub(crate) async fn narrowed(&self, mut runs: Vec<Run>, filter: &DeadFilter) -> Result<Vec<Run>, Error> {
        if let Some((name, value)) = &filter.label {
            let ids: Vec<JobId> =
                runs.iter().map(|run| run.job).collect::<BTreeSet<_>>().into_iter().collect();
            let jobs = self.store.kept_jobs(&ids).await?;
            let labelled =
                jobs.into_iter().flatten().filter(|stored| stored.job.spec.labels.get(name) == Some(value));
            let labelled: BTreeSet<JobId> = labelled.map(|stored| stored.job.id).collect();
            runs.retain(|run| labelled.contains(&run.job));
        }
        let Some(wanted) = &filter.error else { return Ok(runs) };
        let mut failed = Vec::with_capacity(runs.len());
        for run in runs {
            if self.error_of(&run).await?.is_some_and(|(code, ..)| *code == **wanted) {
                failed.push(run);
            }
        }
        Ok(failed)
    }

    /// The code, status and message of a run's last error. One that a limit ended has the limit's.
    async fn error_of(&self, run: &Run) -> Result<Option<(String, Option<i32>, String)>, Error> {
        let Some(detail) = self.store.run(run.id()).await? else { return Ok(None) };
        let report = detail.attempts.into_iter().rev().find_map(|attempt| attempt.report);
        let error = report.and_then(|report| report.error.map(|error| (report.status, error)));
        Ok(Some(match error {
            Some((status, error)) => (error.code.clone(), status, error.pattern()),
            None => {
                let limit = run.reason.map_or("failed", |limit| limit.as_str());
                (limit.into(), None, String::new())
            }
        }))
    }
}
