//! Jobs as they were read, by id and version.
//!
//! Used by fire and claim, and filled ahead of time for what is due soon. Promise: a body is never stale, because
//! a version of a job never changes; bounded memory, whatever is registered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use punctual_domain::id::{JobId, Version};
use punctual_domain::job::Job;
use punctual_store::{Error, Store};

use crate::metrics::Metrics;

/// About a kilobyte each, so about 100 MB at most. A batch counts as so many as it has kilobytes.
const BODIES_MAX: usize = 100_000;

/// Bodies in two generations: what is not asked for again is gone when the newer one is full.
#[derive(Debug, Default)]
pub(crate) struct Bodies(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<(JobId, Version), Arc<Job>>,
    old: HashMap<(JobId, Version), Arc<Job>>,
    /// How much the young ones count.
    weight: usize,
}

fn weight(job: &Job) -> usize {
    1 + job.spec.batch.as_ref().map_or(0, |batch| batch.size() >> 10)
}

impl Generations {
    fn get(&mut self, key: (JobId, Version)) -> Option<Arc<Job>> {
        if let Some(job) = self.young.get(&key) {
            return Some(Arc::clone(job));
        }
        let job = self.old.remove(&key)?;
        self.insert(key, Arc::clone(&job));
        Some(job)
    }

    fn insert(&mut self, key: (JobId, Version), job: Arc<Job>) {
        if self.weight >= BODIES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight(&job);
        self.young.insert(key, job);
    }
}

impl Bodies {
    /// The jobs in these versions; none where there is no such job or version any more.
    pub(crate) async fn of(
        &self,
        store: &dyn Store,
        metrics: &Metrics,
        versions: &[(JobId, Version)],
    ) -> Result<Vec<Option<Arc<Job>>>, Error> {
        let mut found: Vec<Option<Arc<Job>>> = {
            let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            versions.iter().map(|key| generations.get(*key)).collect()
        };
        let missing: Vec<usize> = (0..found.len()).filter(|index| found[*index].is_none()).collect();
        metrics.body_hits.inc_by((versions.len() - missing.len()) as u64);
        metrics.body_misses.inc_by(missing.len() as u64);
        if missing.is_empty() {
            return Ok(found);
        }
        let keys: Vec<(JobId, Version)> = missing.iter().map(|index| versions[*index]).collect();
        let read = store.job_versions(&keys).await?;
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((index, key), stored) in missing.into_iter().zip(keys).zip(read) {
            if let Some(stored) = stored {
                generations.insert(key, Arc::clone(&stored.job));
                found[index] = Some(stored.job);
            }
        }
        Ok(found)
    }
}
