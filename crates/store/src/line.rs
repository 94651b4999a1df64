//! The line that a run waits in, as stores find it: by the queue, and by what is required of the worker.
//!
//! Runs that require nothing wait in the line of their queue. Those that require something wait apart, in a line for
//! each queue and each set of labels. Promise: a claim that has not what a line requires does not walk past those who wait
//! in it, however many they are.

use std::borrow::Cow;

use punctual_domain::{Labels, Run};

use crate::verbs::Claim;

/// Stands before and behind what is required. Queues and labels have no such character.
pub const MARK: char = '\u{1}';

/// The line of a run: its queue, or what it requires and its queue.
pub fn line_of(run: &Run) -> Cow<'_, str> {
    match run.requires.is_empty() {
        true => Cow::Borrowed(&*run.queue),
        false => Cow::Owned(format!("{MARK}{}{MARK}{}", run.requires, run.queue)),
    }
}

/// What a line requires, if it is for one worker alone, or of runs that are tried alone.
pub fn addressed(line: &str) -> Option<Labels> {
    let (required, _) = line.strip_prefix(MARK)?.split_once(MARK)?;
    required.parse::<Labels>().ok().filter(is_addressed)
}

/// Whether runs that require this are given to nobody who does not ask for them in particular.
pub fn is_addressed(required: &Labels) -> bool {
    required.worker().is_some() || required.are_alone()
}

/// The queue of a line.
pub fn queue_of(line: &str) -> &str {
    line.strip_prefix(MARK).and_then(|rest| rest.split_once(MARK)).map_or(line, |(_, queue)| queue)
}

/// Whether a claim may take runs from a line that requires something.
pub fn may_take(claim: &Claim, line: &str) -> bool {
    let parts = line.strip_prefix(MARK).and_then(|rest| rest.split_once(MARK));
    parts.is_some_and(|(required, queue)| {
        claim.serves(queue) && required.parse::<Labels>().is_ok_and(|required| claim.labels.meet(&required))
    })
}
