//! Times of which nothing is recorded: no slot, not yet, not any more.

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{DstNote, Timetable};

use super::tell::{Tell, by, span};
use super::{Facts, Reason};
use crate::job::JobState;
use crate::policy::retention::Keep;

pub(super) fn explain(facts: &Facts<'_>, tell: &Tell<'_>) -> (Reason, String) {
    let Some(at) = facts.slot.or(facts.at) else { return nothing_yet(facts, tell) };
    let job = facts.job;
    if job.state == JobState::Deleted && at >= job.updated_at {
        return deleted(facts, tell);
    }
    // Times in a request have no milliseconds.
    let is_before = match facts.slot {
        Some(slot) => slot < job.owns_from(),
        None => at.as_second() < job.created_at.as_second(),
    };
    if is_before {
        let text = format!(
            "Nothing ran at {}: the job was registered later, at {}. To run slots of before: punctual job \
             backfill {} --from TIME --to TIME",
            tell.full(at),
            tell.time(job.created_at),
            job.id
        );
        return (Reason::BeforeTheJob, text);
    }
    if let Some(time) = facts.left_out {
        return left_out(facts, tell, at, time);
    }
    let Some(timetable) = facts.timetable else { return unknown(facts, tell, at) };
    match facts.slot {
        Some(slot) => unrecorded_slot(facts, tell, slot, timetable),
        None => no_slot(facts, tell, at, timetable),
    }
}

/// A job that has had no slot since it was registered.
fn nothing_yet(facts: &Facts<'_>, tell: &Tell<'_>) -> (Reason, String) {
    match facts.next {
        Some(next) => {
            let text = format!(
                "No slot of the job has come since it was registered at {}. It fires first at {}, in {}.",
                tell.time(facts.job.created_at),
                tell.full(next),
                span(facts.now, next)
            );
            (Reason::NotYetDue, text)
        }
        None => (
            Reason::NotYetDue,
            "No slot of the job has come, and its schedule tells none: it waits for a run to end.".into(),
        ),
    }
}

pub(super) fn deleted(facts: &Facts<'_>, tell: &Tell<'_>) -> (Reason, String) {
    let at = tell.full(facts.job.updated_at);
    let text = format!(
        "Nothing runs: the job was deleted at {at}. Its history is kept until it expires: punctual run list \
         --job {}",
        facts.job.id
    );
    (Reason::Deleted, text)
}

/// Why there are no more slots.
pub(super) fn end(facts: &Facts<'_>, tell: &Tell<'_>) -> String {
    let (job, bounds) = (facts.job, &facts.job.spec.schedule.bounds);
    let why = match (bounds.max_fires, bounds.end) {
        (Some(most), _) if facts.fired >= most.get() => {
            format!("it has fired {most} times, as often as its schedule says (max_fires)")
        }
        (_, Some(end)) if end <= facts.now => format!("its schedule ended at {}", tell.full(end)),
        _ => "its schedule has no more slots".into(),
    };
    format!("Nothing more runs by itself: {why}. To run it once more: punctual job trigger {}", job.id)
}

/// A time of day that does not exist.
fn left_out(facts: &Facts<'_>, tell: &Tell<'_>, at: Timestamp, time: &str) -> (Reason, String) {
    let stands_for = facts.timetable.and_then(|timetable| {
        let near = SignedDuration::from_hours(3);
        let slot = timetable.next_after(at - near).filter(|slot| *slot <= at + near)?;
        matches!(timetable.dst_note(slot), Some(DstNote::Moved { .. })).then_some(slot)
    });
    let what = match stands_for {
        Some(slot) => {
            format!("the slot of {} stands for what falls into the gap; ask about that one", tell.full(slot))
        }
        None => "nothing of this job runs instead (dst_gap)".into(),
    };
    let text = format!(
        "{time} does not exist on that day in {}: the clock was set forward, and {what}.{}",
        facts.timetable.map_or("UTC", |timetable| timetable.zone().name()),
        tell.next()
    );
    (Reason::DstGap, text)
}

fn unknown(facts: &Facts<'_>, tell: &Tell<'_>, at: Timestamp) -> (Reason, String) {
    let text = match facts.current {
        Some(_) => format!(
            "Nothing is recorded for {}, and the schedule that the job had then is not remembered: it was \
             changed too often since.{}",
            tell.full(at),
            tell.next()
        ),
        None => format!(
            "Nothing is recorded for {}, and the slots of the job cannot be told: its zone `{}` or a \
             calendar of it is not known here.",
            tell.full(at),
            facts.job.spec.schedule.timezone
        ),
    };
    (Reason::Forgotten, text)
}

fn unrecorded_slot(
    facts: &Facts<'_>,
    tell: &Tell<'_>,
    slot: Timestamp,
    timetable: &Timetable,
) -> (Reason, String) {
    let (job, what) = (facts.job, tell.slot(slot));
    let spread = SignedDuration::try_from(timetable.spread_offset()).unwrap_or_default();
    let fires_at = slot + spread;
    if let Some((pause, ended)) = job.pause_at(slot) {
        let id = job.id;
        let text = match (fires_at > facts.now, ended, pause.until) {
            (true, None, Some(until)) if until <= slot => {
                format!(
                    "{what} is still to come, in {}. The job is {}, and goes on by itself before, at {}.",
                    span(facts.now, fires_at),
                    tell.pause(pause),
                    tell.time(until)
                )
            }
            (true, ..) => format!(
                "{what} is still to come, and will be skipped: the job is {}. To let it go on: punctual job \
                 resume {id}",
                tell.pause(pause)
            ),
            (false, Some(ended), _) => format!(
                "{what} was skipped: the job was paused from {} to {}{}.{}",
                tell.time(pause.since),
                tell.time(ended),
                by(pause),
                tell.next()
            ),
            (false, None, _) => format!(
                "{what} is skipped: the job is {}. To let it go on: punctual job resume {id}",
                tell.pause(pause)
            ),
        };
        let is_before = fires_at > facts.now && pause.until.is_some_and(|until| until <= slot);
        return (if is_before { Reason::NotYetDue } else { Reason::Paused }, text);
    }
    if facts.is_over {
        return (Reason::Ended, format!("{what} does not run. {}", end(facts, tell)));
    }
    if fires_at > facts.now {
        let spread = match spread.is_zero() {
            true => String::new(),
            false => format!(", and fires at {} by its spread", tell.time(fires_at)),
        };
        return (
            Reason::NotYetDue,
            format!("{what} is still to come, in {}{spread}.", span(facts.now, fires_at)),
        );
    }
    let keep = job.spec.policies.retention.keep;
    let days = keep.at_birth().days();
    let kept = SignedDuration::from_hours(24 * i64::from(days));
    if facts.now.duration_since(slot) > kept {
        let whose = match keep {
            Keep::All(_) => "the history of the job is",
            Keep::Failures(_) => "successes of the job are",
        };
        let unit = if days == 1 { "day" } else { "days" };
        return (
            Reason::Forgotten,
            format!(
                "{what} is longer ago than {whose} kept ({days} {unit}): if it got a run, that \
                 is forgotten, and if it got none, the ledger would say so.{}",
                tell.next()
            ),
        );
    }
    let why = match facts.owner {
        Some(owner) => format!(
            "the node {owner} has its shard and has not come to it: it has much to do, doubts its clock, or \
             cannot reach the database"
        ),
        None => "no live node has its shard: start one, or wait for another to take over".into(),
    };
    (
        Reason::NotFired,
        format!(
            "{what} was due {} ago and nothing is recorded for it: {why}. To see them: punctual nodes",
            span(fires_at, facts.now)
        ),
    )
}

fn no_slot(facts: &Facts<'_>, tell: &Tell<'_>, at: Timestamp, timetable: &Timetable) -> (Reason, String) {
    let (schedule, time) = (timetable.schedule(), tell.full(at));
    if facts.bare.is_some_and(|bare| slot_at(bare, at).is_some()) {
        let calendars = match facts.excluded_by.is_empty() {
            true => schedule.calendars.join(", "),
            false => facts.excluded_by.join(", "),
        };
        let text = format!(
            "Nothing ran at {time}: the schedule names it, and a calendar excludes it ({calendars}).{}",
            tell.next()
        );
        return (Reason::ExcludedByCalendar, text);
    }
    if let Some(start) = schedule.bounds.start.filter(|start| at < *start) {
        return (
            Reason::BeforeTheJob,
            format!("Nothing ran at {time}: the schedule begins at {}.", tell.full(start)),
        );
    }
    if facts.is_over || schedule.bounds.end.is_some_and(|end| end < at) {
        return (Reason::Ended, format!("{time} is no slot. {}", end(facts, tell)));
    }
    if let Some(other) = other_pass(timetable, at) {
        let text = format!(
            "Nothing ran at {time}: the clock was set back, so this time of day comes twice, and the job \
             runs at the other one, {} UTC (dst_overlap).",
            other.strftime("%H:%M")
        );
        return (Reason::DstOverlap, text);
    }
    let near = near(tell, timetable, at, facts);
    if let (Some(replaced), Some(current)) = (facts.replaced_at, facts.current)
        && slot_at(current, at).is_some()
    {
        let text = format!(
            "Nothing ran at {time}: the job had another schedule then, `{schedule}`, which does not name \
             it; it was changed at {}. {near}",
            tell.time(replaced)
        );
        return (Reason::Edited, text);
    }
    let whose = match facts.replaced_at {
        Some(replaced) => format!("the schedule that it had until {}, `{schedule}`,", tell.time(replaced)),
        None => format!("the schedule, `{schedule}`,"),
    };
    (Reason::NotASlot, format!("Nothing was to run at {time}: {whose} does not name it. {near}"))
}

/// The slots around a time.
fn near(tell: &Tell<'_>, timetable: &Timetable, at: Timestamp, facts: &Facts<'_>) -> String {
    let is_own = |slot: &Timestamp| *slot >= facts.job.owns_from();
    let before = timetable
        .previous_before(at)
        .filter(is_own)
        .map(|slot| format!("the one before is {}", tell.full(slot)));
    let after = timetable.next_after(at).map(|slot| format!("the one after is {}", tell.full(slot)));
    let both: Vec<String> = before.into_iter().chain(after).collect();
    match both.is_empty() {
        true => "There is no slot near it.".into(),
        false => format!("Of its slots, {}.", both.join(", and ")),
    }
}

/// The slot of a second.
pub fn slot_at(timetable: &Timetable, at: Timestamp) -> Option<Timestamp> {
    let second = Timestamp::from_second(at.as_second()).ok()?;
    let just_before = second.checked_sub(SignedDuration::from_nanos(1)).ok()?;
    timetable.next_after(just_before).filter(|slot| slot.as_second() == at.as_second())
}

/// The slot at the same time of day, if the clock shows it twice.
fn other_pass(timetable: &Timetable, at: Timestamp) -> Option<Timestamp> {
    let wall = |at: Timestamp| at.as_second() + i64::from(timetable.zone().offset_at(at));
    let twice = |slot: &Timestamp| {
        let note = timetable.dst_note(*slot);
        wall(*slot) == wall(at) && matches!(note, Some(DstNote::FirstPass | DstNote::SecondPass))
    };
    let before = timetable.previous_before(at).filter(twice);
    before.or_else(|| timetable.next_after(at).filter(twice))
}
