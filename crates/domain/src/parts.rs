//! Jobs in parts: one slot becomes several runs, each of which knows which part it is.
//!
//! Decided when a slot is fired, or a run is asked for. Promise: the parts of a cause are numbered from 1, each has an identity and an
//! idempotency key of its own, and both are the same however often they are worked out.

use crate::id::WorkerId;
use crate::labels::Labels;

/// The most parts of a slot: each is a run, and all of them are born in one commit.
pub const COUNT_MAX: u32 = 1_000;

/// The bits of a run's part that number it; the others keep apart what was asked for at the same moment.
const NUMBER: u32 = 0x3ff;

/// How a slot becomes several runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// So many, 1 of n to n of n.
    Count(u32),
    /// One for each worker that pulls from the queue, lives and has what is required when the slot is fired.
    Broadcast,
}

/// One of the runs that a slot becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part of its identity.
    pub part: u32,
    /// How many there are; none for a whole run.
    pub of: Option<u32>,
    /// What it requires, beyond what its job does: the worker that it is for.
    pub worker: Option<WorkerId>,
}

impl Part {
    /// A run that is not in parts.
    pub fn whole(part: u32) -> Part {
        Part { part, of: None, worker: None }
    }

    /// What it requires of the worker, of a job that requires this.
    pub fn requires(&self, job: &Labels) -> Labels {
        match self.worker {
            Some(worker) => job.of_worker(worker),
            None => job.clone(),
        }
    }
}

/// The runs that a slot of a job becomes. `base` keeps apart what is asked for at the same moment, and is 0 for slots; `workers` are
/// those that live and may execute it, by their ids. None, if it is for all workers and there is none.
pub fn of(parts: Option<Parts>, base: u32, workers: &[WorkerId]) -> Vec<Part> {
    let numbered = |number: u32, of, worker| Part { part: base & !NUMBER | number, of: Some(of), worker };
    match parts {
        None => vec![Part::whole(base)],
        Some(Parts::Count(count)) => (1..=count).map(|number| numbered(number, count, None)).collect(),
        Some(Parts::Broadcast) => {
            let workers = &workers[..workers.len().min(COUNT_MAX as usize)];
            let all = workers.len() as u32;
            (1..=all).zip(workers).map(|(number, worker)| numbered(number, all, Some(*worker))).collect()
        }
    }
}

/// Whether two parts of identities are of one cause, at one moment.
pub fn are_together(one: u32, two: u32) -> bool {
    one & !NUMBER == two & !NUMBER
}

/// The number of a part in a run's identity.
pub(crate) fn number(part: u32) -> u32 {
    part & NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::at;

    #[test]
    fn parts_are_numbered_from_one_and_keep_what_keeps_them_apart() {
        assert_eq!(of(None, 77, &[]), [Part::whole(77)]);
        let three = of(Some(Parts::Count(3)), 0, &[]);
        assert_eq!(
            three.iter().map(|part| (part.part, part.of)).collect::<Vec<_>>(),
            [(1, Some(3)), (2, Some(3)), (3, Some(3))]
        );
        let base = 0xdead_beef;
        let all = of(Some(Parts::Count(COUNT_MAX)), base, &[]);
        assert_eq!(
            all.iter().map(|part| number(part.part)).collect::<Vec<_>>(),
            (1..=COUNT_MAX).collect::<Vec<_>>()
        );
        assert!(all.iter().all(|part| part.part & !NUMBER == base & !NUMBER));
    }

    #[test]
    fn a_broadcast_has_a_part_for_each_worker_and_none_without() {
        let workers = [WorkerId::new(at(0), 1), WorkerId::new(at(0), 2)];
        let parts = of(Some(Parts::Broadcast), 0, &workers);
        assert_eq!(parts.iter().map(|part| part.worker).collect::<Vec<_>>(), workers.map(Some));
        assert_eq!(
            parts.iter().map(|part| (part.part, part.of)).collect::<Vec<_>>(),
            [(1, Some(2)), (2, Some(2))]
        );
        assert_eq!(of(Some(Parts::Broadcast), 0, &[]), []);
        let labels: Labels = "zone=eu".parse().expect("labels");
        let required = parts[0].requires(&labels);
        assert_eq!(required.worker(), Some(workers[0]));
        assert_eq!(required.without_own(), labels);
        assert_eq!(Part::whole(0).requires(&labels), labels);
    }
}
