//! The turns of each kind of worker: those that serve the same queues and have the same labels.
//!
//! Each kind divides its own room among what it may take, so that a queue which is not served is in nobody's way. Kept in
//! memory, by each node for itself: what is forgotten is only whose turn was the last.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_domain::{Labels, Turns};

use crate::verbs::Claim;

/// Turns are kept for so many kinds. Beyond that all begin anew, as after a start.
const KINDS_MAX: usize = 1_024;

type Kind = (Vec<Arc<str>>, Labels);

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Kinds(HashMap<Kind, Turns>);

impl Kinds {
    /// The turns of the kind of worker that claims.
    pub fn of(&mut self, claim: &Claim) -> &mut Turns {
        let mut queues = claim.queues.clone();
        queues.sort_unstable();
        queues.dedup();
        let kind = (queues, claim.labels.clone());
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&kind) {
            self.0.clear();
        }
        self.0.entry(kind).or_default()
    }
}
