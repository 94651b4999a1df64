//! The facts of a case: a job that is daily at nine, and what a case changes of it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use punctual_schedule::calendar::Calendar;
use punctual_schedule::{Binding, Schedule, Tzdb};

use super::super::*;
use crate::attempt::{Failure, Outcome, Report};
use crate::id::{JobId, Sequence, ShardId, TenantId, Version, WorkerId};
use crate::job::{Lane, Spec, Target};
use crate::ledger::Fate;
use crate::policy::breaker::{Breaker, Of, Stage};
use crate::policy::gate::Allowance;
use crate::policy::limit::{Allowed, Key, Limited, Limits};
use crate::policy::retention::Retention;
use crate::receiver::Receiver;
use crate::run::{Cause, RunState};
use crate::work::Held;

/// A time of the day on which everything happens, by UTC.
pub(super) fn at(time: &str) -> Timestamp {
    format!("2026-06-02T{time}Z").parse().expect("a time")
}

/// What the facts refer to; a case changes what it is about.
pub(super) struct Case {
    pub(super) now: Timestamp,
    pub(super) asked: Option<Timestamp>,
    pub(super) left_out: Option<&'static str>,
    pub(super) job: Job,
    pub(super) calendar: Option<Calendar>,
    pub(super) excluded_by: Vec<String>,
    pub(super) run: Option<Run>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) is_dead_letter: bool,
    pub(super) entry: Option<LedgerEntry>,
    pub(super) ahead: Option<Run>,
    pub(super) is_over: bool,
    pub(super) fired: u64,
    pub(super) breaker: Option<Breaker>,
    pub(super) is_met: bool,
    pub(super) is_served: Option<bool>,
    pub(super) owner: Option<&'static str>,
}

pub(super) fn paris(text: &str) -> Schedule {
    let mut schedule = Schedule::parse(text).expect("valid");
    schedule.timezone = "Europe/Paris".into();
    schedule
}

/// Daily at nine in Paris, which is seven by UTC; registered the day before, asked about at noon.
pub(super) fn case() -> Case {
    let schedule = paris("0 9 * * *");
    let created_at = at("07:00:00") - SignedDuration::from_hours(23);
    let job = Job {
        id: JobId::new(created_at, ShardId(1), 1),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec: Spec::new("report", schedule, Target::Discard),
        created_at,
        updated_at: created_at,
        carried: None,
        changes: Vec::new(),
    };
    Case {
        now: at("12:00:00"),
        asked: Some(at("07:00:00")),
        left_out: None,
        job,
        calendar: None,
        excluded_by: Vec::new(),
        run: None,
        attempts: Vec::new(),
        is_dead_letter: false,
        entry: None,
        ahead: None,
        is_over: false,
        fired: 0,
        breaker: None,
        is_met: true,
        is_served: Some(true),
        owner: Some("node-1"),
    }
}

/// Who reports until then, and must be heard of.
pub(super) fn receiver(ends_at: Timestamp) -> WorkerId {
    let held = Held { sequence: Sequence::first_at(ends_at, 0), attempt: 1 };
    Receiver { ends_at, heartbeat: Some(Duration::from_secs(20)) }.id(held)
}

pub(super) fn worker() -> WorkerId {
    WorkerId::new(at("00:00:00"), 7)
}

/// A run of the slot at nine, born at a time.
pub(super) fn run(job: &Job, born_at: Timestamp, state: RunState) -> Run {
    Run {
        sequence: Sequence::first_at(born_at, 0),
        job: job.id,
        tenant: job.tenant,
        version: job.version,
        cause: Cause::Schedule,
        scheduled_for: at("07:00:00"),
        part: 0,
        state,
        available_at: at("07:00:00"),
        start_by: None,
        attempt: 0,
        charged: 0,
        lost: 0,
        kind: None,
        queue: "default".into(),
        requires: Default::default(),
        retention: Retention::Week.into(),
        lane: Lane::Standard,
        priority: 0,
        started_at: None,
        finished_at: None,
        reason: None,
        redriven_at: None,
        turn_at: None,
        is_cancel_requested: false,
        correlation_id: None,
        payload: None,
        caused_by: None,
        limits: Limits::NONE,
        passed: 0,
        parts: None,
    }
}

pub(super) fn crowded() -> Stage {
    Stage::Crowded { max: NonZeroU32::new(8).expect("some"), is_guess: false }
}

/// Set at five past nine in Paris, changed a minute before it is asked.
pub(super) fn breaker(stage: Stage) -> Breaker {
    Breaker {
        of: Of::Destination("http api.example.com".into()),
        since: at("07:05:00"),
        changed_at: at("11:59:00"),
        stage,
        cause: Some("connect_failed: refused".into()),
    }
}

/// A run stands in the line of a rule, or of its job's own limit.
pub(super) fn limited(rule: &str, max: Option<NonZeroU32>) -> Limits {
    let allowed = match max {
        Some(max) => Allowed::Own(Allowance { max: Some(max), rate: None }),
        None => Allowed::Rule(rule.into()),
    };
    Limits::new(vec![Limited { key: Key(1), breadth: 0, holds_retries: false, allowed }])
}

pub(super) fn attempt(number: u32, claimed_at: Timestamp, error: Option<&str>) -> Attempt {
    let error = error.map(|message| Failure {
        code: "http_status".into(),
        message: message.into(),
        is_retryable: true,
        retry_after: None,
    });
    let outcome = if error.is_some() { Outcome::Failed } else { Outcome::Succeeded };
    let finished_at = claimed_at + SignedDuration::from_millis(250);
    let report = Report {
        outcome,
        started_at: claimed_at,
        finished_at,
        error,
        output: None,
        status: None,
        phases: Vec::new(),
        lines: Vec::new(),
        is_unknown: false,
    };
    Attempt { number, worker: worker(), claimed_at, report: Some(report) }
}

/// An attempt of which nobody knows what it did.
pub(super) fn unknown(number: u32, claimed_at: Timestamp) -> Attempt {
    let mut attempt = attempt(number, claimed_at, Some("the connection was closed"));
    let error = attempt.report.as_mut().and_then(|report| report.error.as_mut()).expect("it failed");
    (error.code, error.is_retryable) = (crate::policy::unknown::UNKNOWN.into(), false);
    attempt
}

impl Case {
    pub(super) fn with(mut self, change: impl FnOnce(&mut Case)) -> Self {
        change(&mut self);
        self
    }

    /// The slot got a run.
    pub(super) fn ran(self, born: &str, state: RunState, change: impl FnOnce(&mut Run)) -> Self {
        let mut run = run(&self.job, at(born), state);
        change(&mut run);
        self.with(|case| case.run = Some(run))
    }

    pub(super) fn accounted(self, fate: Fate, slots: u64) -> Self {
        let (job, tenant) = (self.job.id, self.job.tenant);
        let from = at("07:00:00") - SignedDuration::from_hours(24 * (slots as i64 - 1));
        let to = at("07:00:00");
        self.with(|case| {
            case.entry = Some(LedgerEntry { job, tenant, from, to, slots, fate, decided_at: at("08:30:00") });
        })
    }

    pub(super) fn answer(&self) -> Answer {
        let tzdb = Tzdb::bundled();
        let calendars =
            self.calendar.iter().map(|calendar| ("holidays".to_string(), Arc::new(calendar.clone())));
        let binding = Binding { calendars: Arc::new(calendars.collect()), ..Binding::default() };
        let bind = |schedule: &Schedule| schedule.timetable(&tzdb, &binding).expect("valid");
        let then = self.job.schedule_at(self.asked.unwrap_or(self.now));
        let timetable = then.map(|(schedule, _)| bind(schedule));
        let current = bind(&self.job.spec.schedule);
        let mut bare = self.job.spec.schedule.clone();
        bare.calendars.clear();
        let bare = bind(&bare);
        let slot = timetable.as_ref().and_then(|timetable| match self.asked {
            Some(at) => slot_at(timetable, at),
            None => timetable.previous_before(self.now),
        });
        explain(&Facts {
            now: self.now,
            job: &self.job,
            at: self.asked,
            left_out: self.left_out,
            timetable: timetable.as_ref(),
            replaced_at: then.and_then(|(_, replaced_at)| replaced_at),
            current: Some(&current),
            bare: self.calendar.is_some().then_some(&bare),
            excluded_by: &self.excluded_by,
            slot: slot.filter(|slot| *slot >= self.job.created_at || self.asked.is_some()),
            next: current.next_after(self.now),
            is_over: self.is_over,
            fired: self.fired,
            run: self.run.as_ref().map(|run| (run, &self.attempts[..])),
            is_dead_letter: self.is_dead_letter,
            entry: self.entry.as_ref(),
            ahead: self.ahead.as_ref(),
            breaker: self.breaker.as_ref(),
            is_met: self.is_met,
            is_served: self.is_served,
            owner: self.owner,
        })
    }

    /// The answer has this reason, and its text all of these words.
    #[track_caller]
    pub(super) fn gives(self, reason: Reason, words: &[&str]) -> Reason {
        let answer = self.answer();
        assert_eq!(answer.reason, reason, "{}", answer.text);
        for word in words {
            assert!(answer.text.contains(word), "`{word}` in: {}", answer.text);
        }
        assert!(!answer.text.contains('\n'), "one paragraph");
        reason
    }
}

pub(super) fn paused(job: &mut Job, since: &str, until: Option<&str>) {
    let pause =
        Pause { reason: Some("move".into()), by: Some("ada".into()), since: at(since), until: until.map(at) };
    job.state = JobState::Paused(pause);
}

pub(super) fn succeeded(started: &'static str) -> impl FnOnce(&mut Run) {
    move |run| {
        run.attempt = 1;
        run.started_at = Some(at(started));
        run.finished_at = Some(at(started) + SignedDuration::from_millis(250));
    }
}
