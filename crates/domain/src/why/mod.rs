//! Why a job did or did not run at a time: facts in, one answer out.
//!
//! Asked by `GET /v1/jobs/{id}/why` and `punctual job why`. Promise: the reason is a stable word; the text is
//! one paragraph that names the slot, what happened, when, by whom and the way out. Nothing is guessed: what is
//! not known any more is said to be so.

mod recorded;
mod tell;
mod unrecorded;

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::Timetable;

use crate::attempt::Attempt;
use crate::id::RunId;
use crate::job::{Job, JobState, Pause};
use crate::ledger::LedgerEntry;
use crate::policy::breaker::Breaker;
use crate::run::Run;
use tell::Tell;

pub use unrecorded::slot_at;

/// A run that starts later than this after it was due is late.
pub const ON_TIME: SignedDuration = SignedDuration::from_secs(1);

/// What is known about a job around a time.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// When it is asked.
    pub now: Timestamp,
    /// The job, as it is now; it may be deleted.
    pub job: &'a Job,
    /// The time that is asked about; none for the latest slot.
    pub at: Option<Timestamp>,
    /// The time of day that is asked about, if the clock leaves it out on that day.
    pub left_out: Option<&'a str>,
    /// The slots of the schedule that the job had then; none if that is not remembered, or its zone is not known.
    pub timetable: Option<&'a Timetable>,
    /// When that schedule was replaced, if it was.
    pub replaced_at: Option<Timestamp>,
    /// The slots of today's schedule.
    pub current: Option<&'a Timetable>,
    /// The slots of the schedule of then without its calendars, if it has any.
    pub bare: Option<&'a Timetable>,
    /// The calendars that exclude the time that is asked about, as they were then.
    pub excluded_by: &'a [String],
    /// The slot that is asked about, if the time is one.
    pub slot: Option<Timestamp>,
    /// When it fires next.
    pub next: Option<Timestamp>,
    /// Its schedule has no more slots, and its last run has ended.
    pub is_over: bool,
    /// How many slots were fired, for jobs that count them.
    pub fired: u64,
    /// The run of the slot, with its attempts.
    pub run: Option<(&'a Run, &'a [Attempt])>,
    /// It is a dead letter.
    pub is_dead_letter: bool,
    /// The account of the slot, if it got no run.
    pub entry: Option<&'a LedgerEntry>,
    /// The open run that is in the way.
    pub ahead: Option<&'a Run>,
    /// The breaker in whose line its run waits, as it is.
    pub breaker: Option<&'a Breaker>,
    /// Whether a live worker has what the job requires.
    pub is_met: bool,
    /// Whether a worker serves its queue, if that is known.
    pub is_served: Option<bool>,
    /// The live node that fires the job's shard.
    pub owner: Option<&'a str>,
}

/// Why, in one word, which programs may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It ran, within a second.
    RanOnTime,
    /// It ran, later.
    RanLate,
    /// It ran after its node was away, by the catch-up policy.
    CaughtUp,
    /// It is running.
    Running,
    /// It failed, and is tried again.
    Retrying,
    /// It failed for good.
    Failed,
    /// It was not started in its start window.
    MissedStartWindow,
    /// Its deadline was over before it started.
    MissedDeadline,
    /// It was reached too late, and not caught up with.
    MissedCatchUp,
    /// An earlier run was still open.
    SkippedOverlap,
    /// It was to be caught up with, and that was cancelled.
    SkippedCancel,
    /// As many runs waited as may.
    Throttled,
    /// It was for every worker that lives, and none did.
    MissedNoWorker,
    /// The job was, or is, paused.
    Paused,
    /// Its time is not there yet.
    WaitsForTime,
    /// An earlier run must end first.
    WaitsForEarlierRun,
    /// It stands in the line of a limit.
    WaitsForLimit,
    /// Somebody is to say what became of its last attempt.
    WaitsForAnswer,
    /// Its receiver has answered, and has not reported yet.
    WaitsForReport,
    /// Its target or its job is left alone, because it fails again and again or does not answer.
    WaitsForBreaker,
    /// No live worker has what it requires.
    WaitsForLabels,
    /// No worker serves its queue.
    WaitsForQueue,
    /// No worker has room.
    WaitsForRoom,
    /// It may be what its workers died of, and every worker has another such run.
    WaitsToBeAlone,
    /// It was cancelled.
    Cancelled,
    /// A calendar leaves the time out.
    ExcludedByCalendar,
    /// The clock leaves the time out.
    DstGap,
    /// The time comes twice, and runs at the other one.
    DstOverlap,
    /// The schedule does not name the time.
    NotASlot,
    /// The job did not exist, or its schedule had not begun.
    BeforeTheJob,
    /// Its schedule has no more slots.
    Ended,
    /// It is deleted.
    Deleted,
    /// The slot is still to come.
    NotYetDue,
    /// The slot was due, and no node has fired it yet.
    NotFired,
    /// What happened is not kept any more.
    Forgotten,
    /// The job had another schedule then.
    Edited,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 36] = [
        Reason::RanOnTime,
        Reason::RanLate,
        Reason::CaughtUp,
        Reason::Running,
        Reason::Retrying,
        Reason::Failed,
        Reason::MissedStartWindow,
        Reason::MissedDeadline,
        Reason::MissedCatchUp,
        Reason::SkippedOverlap,
        Reason::SkippedCancel,
        Reason::Throttled,
        Reason::MissedNoWorker,
        Reason::Paused,
        Reason::WaitsForTime,
        Reason::WaitsForEarlierRun,
        Reason::WaitsForLimit,
        Reason::WaitsForAnswer,
        Reason::WaitsForReport,
        Reason::WaitsForBreaker,
        Reason::WaitsForLabels,
        Reason::WaitsForQueue,
        Reason::WaitsForRoom,
        Reason::WaitsToBeAlone,
        Reason::Cancelled,
        Reason::ExcludedByCalendar,
        Reason::DstGap,
        Reason::DstOverlap,
        Reason::NotASlot,
        Reason::BeforeTheJob,
        Reason::Ended,
        Reason::Deleted,
        Reason::NotYetDue,
        Reason::NotFired,
        Reason::Forgotten,
        Reason::Edited,
    ];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::RanOnTime => "ran_on_time",
            Reason::RanLate => "ran_late",
            Reason::CaughtUp => "caught_up",
            Reason::Running => "running",
            Reason::Retrying => "retrying",
            Reason::Failed => "failed",
            Reason::MissedStartWindow => "missed_start_window",
            Reason::MissedDeadline => "missed_deadline",
            Reason::MissedCatchUp => "missed_catch_up",
            Reason::SkippedOverlap => "skipped_overlap",
            Reason::SkippedCancel => "skipped_cancel",
            Reason::Throttled => "throttled",
            Reason::MissedNoWorker => "missed_no_worker",
            Reason::Paused => "paused",
            Reason::WaitsForTime => "waiting_for_time",
            Reason::WaitsForEarlierRun => "waiting_for_earlier_run",
            Reason::WaitsForLimit => "waiting_for_limit",
            Reason::WaitsForAnswer => "waiting_for_answer",
            Reason::WaitsForReport => "waiting_for_report",
            Reason::WaitsForBreaker => "waiting_for_breaker",
            Reason::WaitsForLabels => "waiting_for_labels",
            Reason::WaitsForQueue => "waiting_for_queue",
            Reason::WaitsForRoom => "waiting_for_room",
            Reason::WaitsToBeAlone => "waiting_to_be_alone",
            Reason::Cancelled => "cancelled",
            Reason::ExcludedByCalendar => "excluded_by_calendar",
            Reason::DstGap => "dst_gap",
            Reason::DstOverlap => "dst_overlap",
            Reason::NotASlot => "not_a_slot",
            Reason::BeforeTheJob => "before_the_job",
            Reason::Ended => "ended",
            Reason::Deleted => "deleted",
            Reason::NotYetDue => "not_yet_due",
            Reason::NotFired => "not_fired",
            Reason::Forgotten => "forgotten",
            Reason::Edited => "edited",
        }
    }
}

/// Why a job did or did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// In a word.
    pub reason: Reason,
    /// The slot that it is about.
    pub slot: Option<Timestamp>,
    /// Its run.
    pub run: Option<RunId>,
    /// In a paragraph.
    pub text: String,
    /// When the job fires next.
    pub next: Option<Timestamp>,
}

/// Answers.
pub fn explain(facts: &Facts<'_>) -> Answer {
    let tell = Tell::new(facts);
    let (reason, text) = answer(facts, &tell);
    Answer {
        reason,
        slot: facts.slot,
        run: facts.run.map(|(run, _)| run.id()),
        text,
        next: facts.next.filter(|_| facts.job.is_active()),
    }
}

fn answer(facts: &Facts<'_>, tell: &Tell<'_>) -> (Reason, String) {
    if facts.at.is_none() {
        match &facts.job.state {
            JobState::Deleted => return unrecorded::deleted(facts, tell),
            JobState::Paused(pause) => return paused_now(facts, tell, pause),
            _ if facts.is_over => return ended(facts, tell),
            JobState::Active | JobState::Ended => {}
        }
    }
    if let Some((run, attempts)) = facts.run {
        return recorded::by_run(facts, tell, run, attempts);
    }
    match facts.entry {
        Some(entry) => recorded::by_entry(facts, tell, entry),
        None => unrecorded::explain(facts, tell),
    }
}

fn paused_now(facts: &Facts<'_>, tell: &Tell<'_>, pause: &Pause) -> (Reason, String) {
    let missed = facts.timetable.map_or(0, |timetable| timetable.count(pause.since, facts.now));
    let held = match missed {
        0 => "no slot has come since".into(),
        1 => "one slot was skipped since".into(),
        many => format!("{many} slots were skipped since"),
    };
    let end = match pause.until {
        Some(until) => format!("it goes on by itself at {}", tell.time(until)),
        None => "it stays so until somebody resumes it".into(),
    };
    let text = format!(
        "The job is {}; {held}, and {end}. To let it go on now: punctual job resume {}",
        tell.pause(pause),
        facts.job.id
    );
    (Reason::Paused, text)
}

fn ended(facts: &Facts<'_>, tell: &Tell<'_>) -> (Reason, String) {
    let end = unrecorded::end(facts, tell);
    let Some((run, attempts)) = facts.run else { return (Reason::Ended, end) };
    match recorded::by_run(facts, tell, run, attempts) {
        (Reason::RanOnTime | Reason::RanLate | Reason::CaughtUp, text) => {
            (Reason::Ended, format!("{text} {end}"))
        }
        // What went wrong with the last one comes first.
        (reason, text) => (reason, format!("{text} ({end})")),
    }
}

#[cfg(test)]
mod tests;
