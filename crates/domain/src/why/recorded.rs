//! Slots of which something is recorded: a run, or an entry of the ledger.

use jiff::{SignedDuration, Timestamp};
use punctual_schedule::length;

use super::tell::{Tell, by, count, error, span};
use super::{Facts, ON_TIME, Reason};
use crate::attempt::{Attempt, Outcome};
use crate::job::{Job, JobState};
use crate::ledger::{Fate, LedgerEntry};
use crate::policy::backlog::Cap;
use crate::policy::breaker::{Breaker, Stage};
use crate::policy::catch_up::{CatchUp, GRACE};
use crate::policy::gate::Allowance;
use crate::policy::limit::Allowed;
use crate::policy::overlap::Overlap;
use crate::policy::retry::LOST_MAX;
use crate::policy::unknown;
use crate::receiver::Receiver;
use crate::run::{Cause, Limit, Run, RunState, WaitingFor};

pub(super) fn by_run(
    facts: &Facts<'_>,
    tell: &Tell<'_>,
    run: &Run,
    attempts: &[Attempt],
) -> (Reason, String) {
    let id = run.id();
    let what = subject(facts, tell, run);
    match run.state {
        RunState::Succeeded => succeeded(facts, tell, run, attempts),
        RunState::Running(lease) => {
            if let Some(terms) = run.receiver() {
                return awaits_report(tell, run, terms, attempts, &what);
            }
            let before = attempts.split_last().map_or(&[][..], |(_, before)| before);
            let text = format!(
                "{what} is running: attempt {} of run {id} was taken by worker {} at {}.{} To stop it: \
                 punctual run cancel {id}",
                lease.attempt,
                lease.worker,
                tell.time(lease.claimed_at),
                failures(tell, before),
            );
            (Reason::Running, text)
        }
        RunState::Pending(WaitingFor::Retry) if run.requires.are_alone() && run.available_at <= facts.now => {
            waits(facts, tell, run, &what)
        }
        RunState::Pending(WaitingFor::Retry) => {
            let most = facts.job.spec.policies.retry.max_attempts;
            let text = format!(
                "{what} has not succeeded yet: run {id} is tried again at {} (attempt {}; {most} count at \
                 most).{} To see it: punctual run get {id}",
                tell.time(run.available_at),
                run.attempt + 1,
                failures(tell, attempts),
            );
            (Reason::Retrying, text)
        }
        RunState::Pending(WaitingFor::Time) => {
            let text =
                format!("{what} waits for its time: run {id} may start at {}.", tell.time(run.available_at));
            (Reason::WaitsForTime, text)
        }
        RunState::Pending(WaitingFor::EarlierRun) => waits_behind(facts, tell, run, &what),
        RunState::Pending(WaitingFor::Limit) => waits_in_line(facts, tell, run, &what),
        RunState::Pending(WaitingFor::Answer) => asks(tell, run, attempts, &what),
        RunState::Pending(WaitingFor::Capacity) => waits(facts, tell, run, &what),
        RunState::Failed | RunState::TimedOut => failed(facts, tell, run, attempts, &what),
        RunState::Missed => missed(facts, tell, run, &what),
        RunState::Cancelled => cancelled(facts, tell, run, &what),
    }
}

/// What the run is for; of which version, if the job was changed since.
fn subject(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run) -> String {
    let what = match run.cause {
        Cause::Schedule => tell.slot(facts.slot.unwrap_or(run.scheduled_for)),
        Cause::Backfill => format!("{}, by a backfill,", tell.slot(run.scheduled_for)),
        Cause::Trigger => format!("The run that somebody asked for at {}", tell.full(run.scheduled_for)),
        Cause::Link => match run.caused_by {
            Some(by) => {
                format!("The run that followed the end of run {} at {}", by.run, tell.full(run.scheduled_for))
            }
            None => format!("The run that followed another at {}", tell.full(run.scheduled_for)),
        },
        Cause::Batch => {
            let item = facts.job.spec.batch.as_ref().and_then(|batch| batch.item(run));
            let item = item.map(|item| format!(", item `{}`,", item.id)).unwrap_or_default();
            format!("{}{item}", tell.slot(facts.slot.unwrap_or(run.scheduled_for)))
        }
    };
    let (then, now) = (run.version, facts.job.version);
    match now > then && facts.job.state != JobState::Deleted {
        true => format!("{what} (of version {then} of the job, which is at version {now} by now)"),
        false => what,
    }
}

fn succeeded(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, attempts: &[Attempt]) -> (Reason, String) {
    let (id, what) = (run.id(), subject(facts, tell, run));
    let (before, last) = match attempts.split_last() {
        Some((last, before)) => (before, Some(last)),
        None => (&[][..], None),
    };
    let due_at = due_at(facts, run);
    let late = run.lateness(due_at).unwrap_or_default();
    let (reason, how) = lateness(facts, tell, run, attempts, due_at, late);
    let by = last.map(|attempt| format!(" on worker {}", attempt.worker)).unwrap_or_default();
    let started = run.started_at.map(|at| format!(" started at {}", tell.time(at))).unwrap_or_default();
    let took = last.and_then(|attempt| attempt.report.as_ref());
    let took =
        took.map(|report| format!(" in {}", span(report.started_at, report.finished_at))).unwrap_or_default();
    let text = match last.and_then(|attempt| attempt.report.as_ref()) {
        Some(report) if report.outcome != Outcome::Succeeded => format!(
            "{what} ran {how}: run {id}{started}{by}; nobody knew what attempt {} had done, and somebody answered{} that it \
             succeeded.{}",
            run.attempt,
            run.finished_at.map(|at| format!(" at {}", tell.time(at))).unwrap_or_default(),
            failures(tell, attempts)
        ),
        _ => format!(
            "{what} ran {how}: run {id}{started}{by} and succeeded at attempt {}{took}.{}",
            run.attempt,
            failures(tell, before)
        ),
    };
    (reason, text)
}

/// How late it was, and where the time went.
fn lateness(
    facts: &Facts<'_>,
    tell: &Tell<'_>,
    run: &Run,
    attempts: &[Attempt],
    due_at: Timestamp,
    late: SignedDuration,
) -> (Reason, String) {
    if matches!(run.cause, Cause::Trigger | Cause::Backfill) {
        return (Reason::RanOnTime, "when somebody asked for it".into());
    }
    if late <= ON_TIME {
        return (Reason::RanOnTime, format!("on time, {} after it was due", length(late)));
    }
    let born_at = run.sequence.born_at();
    let fired_late = born_at.duration_since(due_at);
    if fired_late > GRACE {
        let policy = match facts.job.spec.policies.catch_up {
            CatchUp::Latest { .. } => "latest",
            CatchUp::All { .. } => "all",
            CatchUp::None => "none",
        };
        let text = format!(
            "{} late: no node fired it when it was due, and at {} it was caught up with (catch_up {policy})",
            length(late),
            tell.time(born_at)
        );
        return (Reason::CaughtUp, text);
    }
    let claimed_at = attempts.first().map_or(born_at, |attempt| attempt.claimed_at);
    let waited = claimed_at.duration_since(born_at);
    let begun = late - fired_late - waited;
    let why = if fired_late >= waited && fired_late >= begun {
        format!(
            "no node fired it until {}; a node had stopped, the database was out of reach, or more was due \
             than could be fired",
            tell.time(born_at)
        )
    } else if waited >= begun {
        let turn = match facts.job.spec.policies.overlap {
            Overlap::Allow | Overlap::Skip => "",
            Overlap::QueueOne | Overlap::QueueAll { .. } | Overlap::CancelRunning => {
                ", or for an earlier run to end"
            }
        };
        format!("it waited {} for a worker with room{turn}", length(waited))
    } else {
        format!("the worker that took it at {} began only then", tell.time(claimed_at))
    };
    (Reason::RanLate, format!("{} late ({why})", length(late)))
}

/// When it was due: its slot and its spread.
fn due_at(facts: &Facts<'_>, run: &Run) -> Timestamp {
    let spread = facts.timetable.filter(|_| run.cause == Cause::Schedule);
    let spread = spread.and_then(|timetable| SignedDuration::try_from(timetable.spread_offset()).ok());
    run.scheduled_for + spread.unwrap_or_default()
}

/// So many attempts are told one by one.
const TOLD: usize = 3;

/// What went wrong, attempt by attempt; the newest ones.
fn failures(tell: &Tell<'_>, attempts: &[Attempt]) -> String {
    let more = attempts.len().saturating_sub(TOLD);
    let mut text = match more {
        0 => String::new(),
        more => format!(" The first {} failed too.", count(more as u64, "attempt")),
    };
    for attempt in attempts.iter().skip(more) {
        let at = attempt.report.as_ref().map_or(attempt.claimed_at, |report| report.finished_at);
        let (number, worker, error) = (attempt.number, attempt.worker, error(attempt));
        text.push_str(&format!(" Attempt {number} ended at {} on worker {worker} ({error}).", tell.time(at)));
    }
    text
}

fn failed(
    facts: &Facts<'_>,
    tell: &Tell<'_>,
    run: &Run,
    attempts: &[Attempt],
    what: &str,
) -> (Reason, String) {
    let id = run.id();
    let ended = run.finished_at.map(|at| format!(" at {}", tell.time(at))).unwrap_or_default();
    let last = attempts.last().and_then(|attempt| attempt.report.as_ref());
    let error = last.and_then(|report| report.error.as_ref());
    let is_unknown = error.is_some_and(|error| error.code == unknown::UNKNOWN);
    let is_retryable = error.is_none_or(|error| error.is_retryable);
    let tried = count(run.attempt.into(), "attempt");
    let why = match run.reason {
        Some(Limit::RetryFor) => {
            format!("after {tried}, because another one would start later than retry_for allows")
        }
        Some(Limit::Deadline) => format!("after {tried}, because its deadline was over"),
        Some(Limit::StartWindow) => "because its start window was over".into(),
        None if is_unknown => {
            format!("after {tried}, because nobody knows whether the last one did its work (on_unknown)")
        }
        None if !is_retryable => format!("after {tried}, because this error is not retried"),
        None => format!("after {tried}, the last that its retry policy allows"),
    };
    let state = if run.state == RunState::TimedOut { "timed out" } else { "failed" };
    let way_out = match facts.is_dead_letter {
        true => format!("It is a dead letter. To try again: punctual dead-letter redrive {id}"),
        false => format!(
            "It was taken out of the dead letters. To run the job again: punctual job trigger {}",
            facts.job.id
        ),
    };
    let text = format!(
        "{what} {state} for good: run {id} ended{ended} {why}.{} {way_out}",
        failures(tell, attempts)
    );
    (Reason::Failed, text)
}

fn asks(tell: &Tell<'_>, run: &Run, attempts: &[Attempt], what: &str) -> (Reason, String) {
    let id = run.id();
    let until = run.start_by.map(|by| format!(", until {}", tell.time(by.at))).unwrap_or_default();
    let text = format!(
        "{what} waits for an answer: nobody knows whether attempt {} of run {id} did its work, and the job wants somebody \
         to say (on_unknown ask){until}.{} To answer: punctual run answer {id} retry, succeeded or failed",
        run.attempt,
        failures(tell, attempts),
    );
    (Reason::WaitsForAnswer, text)
}

/// It was answered, and its receiver has not reported it yet.
fn awaits_report(
    tell: &Tell<'_>,
    run: &Run,
    terms: Receiver,
    attempts: &[Attempt],
    what: &str,
) -> (Reason, String) {
    let (id, before) = (run.id(), attempts.split_last().map_or(&[][..], |(_, before)| before));
    let heard = match terms.heartbeat {
        Some(heartbeat) => format!(", and must be heard of every {heartbeat:?}"),
        None => String::new(),
    };
    let text = format!(
        "{what} waits for its report: the receiver of attempt {} of run {id} has answered and reports by its token until {}{heard}.{} To \
         stop it: punctual run cancel {id}",
        run.attempt,
        tell.time(terms.ends_at),
        failures(tell, before),
    );
    (Reason::WaitsForReport, text)
}

fn waits_behind(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, what: &str) -> (Reason, String) {
    let (id, policy) = (run.id(), facts.job.spec.policies.overlap.as_str());
    let ahead = match facts.ahead {
        Some(ahead) => format!(
            "run {} of {}, which is {}",
            ahead.id(),
            tell.time(ahead.scheduled_for),
            ahead.state.as_str()
        ),
        None => "an earlier run of the job".into(),
    };
    let stop = facts.ahead.map_or(id, Run::id);
    let text = format!(
        "{what} has not started: run {id} waits for {ahead} (overlap {policy}). To end the one ahead: \
         punctual run cancel {stop}"
    );
    (Reason::WaitsForEarlierRun, text)
}

/// What becomes of a run that has not started in time.
fn otherwise(tell: &Tell<'_>, run: &Run) -> String {
    let Some(by) = run.start_by else { return String::new() };
    let fate = match by.limit {
        Limit::StartWindow | Limit::Deadline if run.attempt == 0 => "missed",
        _ => "a dead letter",
    };
    format!(" If it has not started by {}, it is {fate}.", tell.time(by.at))
}

/// For how long it could have been running.
fn waiting_since(facts: &Facts<'_>, run: &Run) -> String {
    span(run.available_at.max(run.sequence.born_at()), facts.now)
}

/// It waits for its target, or its job, to be well.
fn waits_for_breaker(
    facts: &Facts<'_>,
    tell: &Tell<'_>,
    run: &Run,
    what: &str,
    name: &str,
) -> (Reason, String) {
    let since = |breaker: &Breaker| tell.time(breaker.since);
    let state = match facts.breaker {
        Some(breaker) => match breaker.stage {
            Stage::Open { .. } => {
                let next = breaker.asks_by().map(|at| format!(", next probe by {}", tell.time(at)));
                format!(
                    "the breaker of `{name}` is open since {}{}",
                    since(breaker),
                    next.unwrap_or_default()
                )
            }
            Stage::Widening { max } => {
                format!(
                    "the breaker of `{name}` lets {max} at once through again, open since {}",
                    since(breaker)
                )
            }
            Stage::Crowded { max, .. } => {
                format!("`{name}` answers too slowly since {}: {max} at once go there", since(breaker))
            }
        },
        None => format!("the breaker of `{name}` was open; it is gone, and the run goes on soon"),
    };
    let cause = facts.breaker.and_then(|breaker| breaker.cause.as_deref());
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let text = format!(
        "{what} has not started: run {} has waited {}, because {state}{cause}.{} \
         To let it through: punctual breaker reset \"{name}\"",
        run.id(),
        waiting_since(facts, run),
        otherwise(tell, run),
    );
    (Reason::WaitsForBreaker, text)
}

fn waits_in_line(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, what: &str) -> (Reason, String) {
    if let Some(name) = run.waits_for_breaker() {
        return waits_for_breaker(facts, tell, run, what, name);
    }
    let (id, job) = (run.id(), facts.job.id);
    let running = || format!("To see what runs: punctual run list --job {job} --state running");
    let (limit, way_out) = match run.next_limit().map(|limited| &limited.allowed) {
        Some(Allowed::Rule(name)) => {
            (format!("the limit `{name}`"), "To see the limits: punctual limit list".into())
        }
        Some(Allowed::Own(Allowance { rate: Some(rate), .. })) => (
            format!(
                "its job's rate, {} in {}",
                rate.limit,
                length(SignedDuration::try_from(rate.per).unwrap_or_default())
            ),
            format!("To change it: punctual job update {job} --rate N/PERIOD"),
        ),
        Some(Allowed::Own(Allowance { max: Some(max), .. })) => {
            (format!("its job's concurrency, {max} at once"), running())
        }
        Some(Allowed::Own(Allowance { max: None, rate: None })) | None => ("a limit".into(), running()),
    };
    let text = format!(
        "{what} has not started: run {id} has waited {} in the line of {limit}.{} {way_out}",
        waiting_since(facts, run),
        otherwise(tell, run),
    );
    (Reason::WaitsForLimit, text)
}

fn waits(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, what: &str) -> (Reason, String) {
    let id = run.id();
    let (limit, since) = (otherwise(tell, run), waiting_since(facts, run));
    if run.requires.are_pulling() && !facts.is_met {
        let given = run.requires.without_own();
        let who = if given.is_empty() { String::new() } else { format!(" that has {given}") };
        let text = format!(
            "{what} has not started: run {id} has waited {since} for a worker of the queue `{}`{who}, and none asks for \
             runs now.{limit} Who is there: punctual worker list",
            run.queue
        );
        return (Reason::WaitsForQueue, text);
    }
    let required = run.requires.in_company();
    if !required.is_empty() && !facts.is_met {
        let text = format!(
            "{what} has not started: run {id} has waited {since} for a worker with {required}, and no live one has \
             that.{limit} \
             To start one: punctual serve --labels {required}; or change what the job requires."
        );
        return (Reason::WaitsForLabels, text);
    }
    if facts.is_served == Some(false) {
        let text = format!(
            "{what} has not started: run {id} has waited {since} in the queue `{}`, which no worker \
             serves.{limit} \
             To move the job: punctual job update {} --queue default",
            run.queue, facts.job.id
        );
        return (Reason::WaitsForQueue, text);
    }
    if run.requires.are_alone() {
        let text = format!(
            "{what} has not succeeded yet: run {id} was lost with its worker {} times, of {LOST_MAX} at most, and may be \
             what the workers died of. It is tried alone: it has waited {since} for a worker of the queue `{}` with room that \
             has no other such run.{limit} To see it: punctual run get {id}",
            run.lost, run.queue
        );
        return (Reason::WaitsToBeAlone, text);
    }
    let text = format!(
        "{what} has not started: run {id} has waited {since} for a worker with room.{limit} \
         All workers of the queue `{}` are busy, or none is alive: punctual nodes",
        run.queue
    );
    (Reason::WaitsForRoom, text)
}

fn missed(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, what: &str) -> (Reason, String) {
    let (id, again) = (run.id(), again(facts.job, run.scheduled_for, run.scheduled_for));
    let (reason, limit) = match run.reason {
        Some(Limit::Deadline) => (Reason::MissedDeadline, "deadline"),
        _ => (Reason::MissedStartWindow, "start window"),
    };
    let over = run.start_by.map(|by| format!(" at {}", tell.time(by.at))).unwrap_or_default();
    let given = run.requires.without_own();
    let waited = match given.is_empty() {
        true => format!("a worker of the queue `{}` with room", run.queue),
        false => format!("a worker with {given}"),
    };
    let text = format!(
        "{what} was missed: run {id} waited for {waited}, and its {limit} was over{over} before one took \
         it. {again}"
    );
    (reason, text)
}

fn cancelled(facts: &Facts<'_>, tell: &Tell<'_>, run: &Run, what: &str) -> (Reason, String) {
    let id = run.id();
    let at = run.finished_at.map(|at| format!(" at {}", tell.time(at))).unwrap_or_default();
    let is_with =
        |time: Timestamp| run.finished_at.is_some_and(|at| at.duration_since(time).abs() <= ON_TIME);
    let why = if facts.job.state == JobState::Deleted && is_with(facts.job.updated_at) {
        "because the job was deleted"
    } else if facts.job.spec.policies.overlap == Overlap::CancelRunning {
        "because a newer run took its place (overlap cancel_running) or somebody asked for it"
    } else {
        "because somebody asked for it"
    };
    let how = if run.attempt == 0 { "before it started" } else { "while it was open" };
    let again = match facts.job.state {
        JobState::Deleted => String::new(),
        _ => format!(" To run the job again: punctual job trigger {}", facts.job.id),
    };
    (Reason::Cancelled, format!("{what} was cancelled: run {id} ended{at} {how}, {why}.{again}"))
}

/// The way to run slots after all.
fn again(job: &Job, from: Timestamp, to: Timestamp) -> String {
    // The end of a backfill is not in it.
    let to = Timestamp::from_second(to.as_second() + 1).unwrap_or(to);
    format!("To run it after all: punctual job backfill {} --from {from} --to {to}", job.id)
}

pub(super) fn by_entry(facts: &Facts<'_>, tell: &Tell<'_>, entry: &LedgerEntry) -> (Reason, String) {
    let slot = facts.slot.unwrap_or(entry.to);
    let what = tell.slot(slot);
    let range = match entry.slots {
        0 | 1 => String::new(),
        many => format!(", one of {many} from {} to {}", tell.time(entry.from), tell.time(entry.to)),
    };
    let decided = tell.time(entry.decided_at);
    let policies = &facts.job.spec.policies;
    let again = again(facts.job, slot, slot);
    let (reason, why) = match entry.fate {
        Fate::MissedCatchUp => {
            let policy = match policies.catch_up {
                CatchUp::None => "catch_up none runs nothing that is more than a minute late".into(),
                CatchUp::Latest { window } => {
                    format!("catch_up latest runs the newest slot alone, within {}", window_of(window))
                }
                CatchUp::All { window, max, .. } => {
                    format!("catch_up all runs the newest {max} slots within {}", window_of(window))
                }
            };
            (
                Reason::MissedCatchUp,
                format!(
                    "was missed: no node fired it when it was due, and when one did, at {decided}, {policy}"
                ),
            )
        }
        Fate::MissedStartWindow => {
            let window = policies
                .timeouts
                .start_window
                .map(|window| format!(" of {}", window_of(window)))
                .unwrap_or_default();
            (
                Reason::MissedStartWindow,
                format!(
                    "was missed: when a node came to it, at {decided}, its start window{window} was over"
                ),
            )
        }
        Fate::MissedDeadline => (
            Reason::MissedDeadline,
            format!("was missed: when a node came to it, at {decided}, its deadline was over"),
        ),
        Fate::SkippedPause => {
            let pause = match facts.job.pause_at(entry.decided_at) {
                Some((pause, Some(ended))) => {
                    format!("paused from {} to {}{}", tell.time(pause.since), tell.time(ended), by(pause))
                }
                Some((pause, None)) => tell.pause(pause),
                None => "paused".into(),
            };
            (Reason::Paused, format!("was skipped: the job was {pause}"))
        }
        Fate::SkippedCancel => (
            Reason::SkippedCancel,
            format!("was to be caught up with, and that operation was cancelled at {decided}"),
        ),
        Fate::SkippedCalendar => {
            let calendars = match facts.excluded_by.is_empty() {
                true => facts.job.spec.schedule.calendars.join(", "),
                false => facts.excluded_by.join(", "),
            };
            (
                Reason::ExcludedByCalendar,
                format!(
                    "was skipped at {decided}: a calendar excludes it ({calendars}), which was changed after the slot had been planned"
                ),
            )
        }
        Fate::SkippedOverlap => {
            let ahead =
                facts.ahead.map(|ahead| format!(" (run {} is open now)", ahead.id())).unwrap_or_default();
            let policy = policies.overlap.as_str();
            (
                Reason::SkippedOverlap,
                format!(
                    "was skipped at {decided}: an earlier run of the job was still open, and overlap \
                     {policy} runs none beside it{ahead}"
                ),
            )
        }
        Fate::Throttled(Cap::Suspended) => {
            (Reason::Throttled, format!("was throttled at {decided}: its tenant was suspended"))
        }
        Fate::Throttled(cap) => {
            let whose = match cap {
                Cap::Tenant => "of its tenant waited",
                Cap::All | Cap::Suspended => "waited in all",
            };
            (
                Reason::Throttled,
                format!("was throttled at {decided}: as many runs {whose} as may ({cap} of the server)"),
            )
        }
        Fate::MissedNoWorker => (
            Reason::MissedNoWorker,
            format!(
                "was missed: it is for every worker that serves the queue `{}` and has what the job requires, \
                 and at {decided} none did",
                facts.job.spec.queue
            ),
        ),
    };
    let again = match entry.fate {
        // A backfill goes by the calendar, too.
        Fate::SkippedCalendar => format!("To run it all the same: punctual job trigger {}", facts.job.id),
        // A broadcast is not filled in afterwards.
        Fate::MissedNoWorker => {
            format!("When there are workers: punctual job trigger {}", facts.job.id)
        }
        _ => again,
    };
    (reason, format!("{what} {why}{range}.{} {again}", tell.next()))
}

fn window_of(of: std::time::Duration) -> String {
    SignedDuration::try_from(of).map(length).unwrap_or_default()
}
