//! Runs that were leased through this node, as they were then.
//!
//! The end of an attempt needs the whole run; most ends come from where the lease was given. Promise: none but
//! speed. What is remembered is used only if the run's revision is still the same, and may be forgotten at any time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_domain::id::Sequence;

use crate::row::Entry;

/// Above this, what is remembered was probably lost; it is forgotten.
const MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<Sequence, Entry>>);

impl Leases {
    fn map(&self) -> MutexGuard<'_, HashMap<Sequence, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut map = self.map();
        if map.len() > MAX {
            map.clear();
        }
        map.extend(entries.into_iter().map(|entry| (entry.run.sequence, entry)));
    }

    pub(crate) fn take(&self, sequences: impl IntoIterator<Item = Sequence>) -> Vec<Option<Entry>> {
        let mut map = self.map();
        sequences.into_iter().map(|sequence| map.remove(&sequence)).collect()
    }
}
