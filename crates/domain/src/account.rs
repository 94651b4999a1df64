//! The account of a job's slots over a stretch of time: what became of each, and why; ranges are one row.
//!
//! Made from runs, entries of the ledger and what the job remembers of itself, when somebody reads the ledger
//! of a range. Promise: every slot of the schedule that was in force is in exactly one row, also those of which
//! nothing is recorded; slots are counted, never walked.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::Timetable;

use crate::job::{Before, Change, Job, JobState, Pause};
use crate::ledger::{Fate, LedgerEntry};
use crate::run::{Cause, Run};

/// The slots of a schedule, and those without its calendars if it has any.
#[derive(Clone, Debug)]
pub struct Slots {
    /// What it names.
    pub timetable: Arc<Timetable>,
    /// What it would name without its calendars.
    pub bare: Option<Arc<Timetable>>,
}

/// What is known about a stretch of time: `from` is in it, `to` is not.
pub struct Stretch<'a> {
    /// When it is asked.
    pub now: Timestamp,
    /// Its beginning.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// Nothing before it is asked for: ranges that reach into it belong to it.
    pub is_first: bool,
    /// The job, which may be deleted.
    pub job: &'a Job,
    /// Its schedule has no more slots, and its last run has ended.
    pub is_over: bool,
    /// All runs of slots in it, and others that were asked for in it.
    pub runs: &'a [Run],
    /// All entries that reach into it.
    pub entries: &'a [LedgerEntry],
    /// When calendars of it were changed: a slot of the very moment is of before.
    pub calendars_changed: &'a [Timestamp],
    /// The slots by the schedule that was in force at a time, if that is known.
    pub slots: &'a dyn Fn(Timestamp) -> Option<Slots>,
}

/// Slots that share a fate, or a run, or a change of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The first slot.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many; none for a run that somebody asked for, and for a change.
    pub slots: u64,
    /// What became of them.
    pub what: What,
}

/// What became of slots.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A run.
    Run(Box<Run>),
    /// They got none, for a reason that was recorded.
    Entry(LedgerEntry, Option<Held>),
    /// They get none, because the job is paused or was deleted while it was.
    Paused(Held),
    /// Calendars exclude them.
    Excluded(Vec<String>),
    /// They are still to come.
    ToCome,
    /// The job was not registered.
    BeforeTheJob,
    /// The job had ended.
    Ended,
    /// The job was deleted.
    Deleted,
    /// What happened is not kept any more.
    Forgotten,
    /// They are due, or their run was born long after them.
    Unrecorded,
    /// The job was changed here.
    Changed(Change),
}

/// A pause that held slots back.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Who, why, since when.
    pub pause: Pause,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl What {
    /// The state and reason, as in the API.
    pub fn as_str(&self) -> (&'static str, &'static str) {
        match self {
            What::Run(run) => (
                run.state.as_str(),
                match run.reason {
                    Some(limit) => limit.as_str(),
                    None => run.cause.as_str(),
                },
            ),
            What::Entry(entry, _) => entry.fate.as_str(),
            What::Paused(_) => ("skipped", "pause"),
            What::Excluded(_) => ("skipped", "calendar"),
            What::ToCome => ("to_come", "schedule"),
            What::BeforeTheJob => ("none", "before_the_job"),
            What::Ended => ("none", "ended"),
            What::Deleted => ("none", "deleted"),
            What::Forgotten => ("unknown", "retention"),
            What::Unrecorded => ("unknown", "not_recorded"),
            What::Changed(change) => match change.until {
                Before::Schedule(_) => ("changed", "schedule"),
                Before::Pause(_) => ("changed", "resumed"),
            },
        }
    }
}

const MILLISECOND: SignedDuration = SignedDuration::from_millis(1);

/// The rows of a stretch, newest first.
pub fn account(stretch: &Stretch<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = stretch.runs.iter().filter(|run| stretch.has(place(run))).map(of_run).collect();
    let is_whole = |entry: &&LedgerEntry| {
        stretch.has(entry.from) || (stretch.is_first && entry.from < stretch.from && entry.to >= stretch.from)
    };
    rows.extend(stretch.entries.iter().filter(is_whole).map(|entry| of_entry(stretch.job, entry)));
    let changes = stretch.job.changes.iter().filter(|change| stretch.has(change.at));
    rows.extend(changes.map(|change| Row {
        from: change.at,
        to: change.at,
        slots: 0,
        what: What::Changed(change.clone()),
    }));
    for (from, to) in stretch.gaps() {
        rows.extend(stretch.gap(from, to));
    }
    // Newest first; of several runs of a slot, the newest first.
    rows.sort_by_key(|row| {
        let sequence = match &row.what {
            What::Run(run) => run.sequence.as_i64(),
            What::Changed(_) => -1, // Slots from then on are by the new schedule.
            _ => 0,
        };
        std::cmp::Reverse((row.from, sequence))
    });
    rows
}

fn of_run(run: &Run) -> Row {
    let at = place(run);
    Row { from: at, to: at, slots: u64::from(is_slot(run)), what: What::Run(Box::new(run.clone())) }
}

/// Where a run stands in the account: at its slot. A backfill stands where it was asked for, which may be long after its slots.
pub fn place(run: &Run) -> Timestamp {
    match run.cause {
        Cause::Backfill => run.sequence.born_at(),
        Cause::Schedule | Cause::Trigger | Cause::Batch | Cause::Link => run.scheduled_for,
    }
}

/// Whether a run is what became of a slot. What somebody asked for is told beside that, also a backfill of the slot.
fn is_slot(run: &Run) -> bool {
    match run.cause {
        Cause::Schedule => run.part == 0 || run.part_of().is_some_and(|(number, _)| number == 1),
        // The first of its items stands for the slot.
        Cause::Batch => run.part == 1,
        Cause::Trigger | Cause::Backfill | Cause::Link => false,
    }
}

fn of_entry(job: &Job, entry: &LedgerEntry) -> Row {
    let held = match entry.fate {
        Fate::SkippedPause => {
            job.pause_at(entry.decided_at).map(|(pause, ended_at)| Held { pause: pause.clone(), ended_at })
        }
        _ => None,
    };
    Row { from: entry.from, to: entry.to, slots: entry.slots, what: What::Entry(entry.clone(), held) }
}

impl Stretch<'_> {
    fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }

    /// How many slots should be accounted for, and are not.
    pub fn unrecorded(&self) -> u64 {
        let gaps = self.gaps().into_iter().flat_map(|(from, to)| self.gap(from, to));
        gaps.filter(|row| row.what == What::Unrecorded).map(|row| row.slots).sum()
    }

    /// The times between what is recorded, each with one reason for all of its slots.
    fn gaps(&self) -> Vec<(Timestamp, Timestamp)> {
        let slots = self.runs.iter().filter(|run| is_slot(run));
        let mut covered: Vec<(Timestamp, Timestamp)> = slots
            .map(|run| (run.scheduled_for, run.scheduled_for + MILLISECOND))
            .chain(self.entries.iter().map(|entry| (entry.from, entry.to + MILLISECOND)))
            .collect();
        covered.sort_unstable();
        let mut cuts = self.cuts();
        cuts.sort_unstable();
        let (mut gaps, mut at) = (Vec::new(), self.from);
        let end = (self.to, self.to);
        for (from, to) in covered.into_iter().chain([end]) {
            let (from, to) = (from.clamp(self.from, self.to), to.clamp(self.from, self.to));
            for cut in cuts.iter().filter(|cut| **cut > at && **cut < from).copied().collect::<Vec<_>>() {
                gaps.push((at, cut));
                at = cut;
            }
            if at < from {
                gaps.push((at, from));
            }
            at = at.max(to);
        }
        gaps
    }

    /// When the reason for slots without a record changes.
    fn cuts(&self) -> Vec<Timestamp> {
        let job = self.job;
        let mut cuts = vec![self.now + MILLISECOND, self.job.owns_from(), self.kept_from()];
        if job.state == JobState::Deleted {
            cuts.push(job.updated_at);
        }
        if let JobState::Paused(pause) = &job.state {
            cuts.push(pause.since);
            cuts.extend(pause.until);
        }
        for change in &job.changes {
            cuts.extend([change.at, change.at + MILLISECOND]); // A slot of the very moment is of before.
            if let Before::Pause(pause) = &change.until {
                cuts.push(pause.since);
            }
        }
        cuts.extend(self.calendars_changed.iter().map(|at| *at + MILLISECOND));
        // No range reaches over another row, so that a page may end at any.
        cuts.extend(self.runs.iter().filter(|run| !is_slot(run)).map(place));
        cuts.retain(|cut| self.has(*cut));
        cuts
    }

    fn kept_from(&self) -> Timestamp {
        let kept = SignedDuration::from_hours(
            24 * i64::from(self.job.spec.policies.retention.keep.at_birth().days()),
        );
        self.now.checked_sub(kept).unwrap_or(Timestamp::MIN)
    }

    /// The slots of a time without a record.
    fn gap(&self, from: Timestamp, to: Timestamp) -> Vec<Row> {
        let Some(slots) = (self.slots)(from) else { return Vec::new() };
        let all = slots.bare.as_deref().unwrap_or(&slots.timetable);
        let row = |timetable: &Timetable, count: u64, what: What| {
            // Both rows of a gap begin together: a page ends before both or behind both.
            let just_before = from.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(from);
            let first = all.next_after(just_before);
            let last = timetable.previous_before(to);
            Row { from: first.unwrap_or(from).min(to), to: last.unwrap_or(to), slots: count, what }
        };
        let mut rows = Vec::new();
        let count = slots.timetable.count(from, to);
        if count > 0 {
            rows.push(row(&slots.timetable, count, self.reason(from)));
        }
        if let Some(bare) = &slots.bare
            && from >= self.job.owns_from()
        {
            let excluded = bare.count(from, to).saturating_sub(count);
            if excluded > 0 {
                rows.push(row(bare, excluded, What::Excluded(slots.timetable.schedule().calendars.clone())));
            }
        }
        rows
    }

    /// Why the slots from a time on, up to the next cut, have no record.
    fn reason(&self, at: Timestamp) -> What {
        let job = self.job;
        if job.state == JobState::Deleted && at >= job.updated_at {
            return What::Deleted;
        }
        if at < self.job.owns_from() {
            return What::BeforeTheJob;
        }
        // One that ends by itself holds nothing after that, unless nobody was there to end it.
        let holds = |pause: &Pause| pause.until.is_none_or(|until| at < until || until <= self.now);
        if let Some((pause, ended_at)) =
            job.pause_at(at).filter(|(pause, ended)| ended.is_some() || holds(pause))
        {
            return What::Paused(Held { pause: pause.clone(), ended_at });
        }
        if self.is_over {
            What::Ended
        } else if at > self.now {
            What::ToCome
        } else if at < self.kept_from() {
            What::Forgotten
        } else {
            What::Unrecorded
        }
    }
}

#[cfg(test)]
mod tests;
