//! The ledger on the wire: what became of slots, and why.

use jiff::Timestamp;
use punctual_domain::account::{Held, Row, What};
use punctual_domain::job::Before;
use punctual_domain::run::WaitingFor;
use punctual_domain::{RunState, why};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Slots of one job that share a fate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// Whose slots.
    pub job_id: String,
    /// The first slot.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many slots.
    pub slots: u64,
    /// `missed`, `skipped` or `throttled`; in the account of a range also the state of a run, `to_come`, `none`, `changed`
    /// or `unknown`.
    pub state: String,
    /// Why: `catch_up`, `start_window`, `deadline`, `pause`, `cancel`, `overlap`, `calendar`, `tenant_pending_max` or `pending_max`; in
    /// the account of a range also the cause of a run, `before_the_job`, `ended`, `deleted`, `retention`, `not_recorded`,
    /// `resumed` or `schedule`.
    pub reason: String,
    /// When it was decided; when a run was born; now, for what is not decided yet.
    pub decided_at: Timestamp,
    /// The run of the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<LedgerRun>,
    /// The pause that held the slots back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<LedgerPause>,
    /// The schedule until then, if it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The calendars that exclude the slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendars: Option<Vec<String>>,
}

/// A run in the account of a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerRun {
    /// Its id.
    pub id: String,
    /// Why it exists: `schedule`, `trigger` or `backfill`.
    pub cause: String,
    /// Its slot, or when it was asked for.
    pub scheduled_for: Timestamp,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// How many attempts there were.
    pub attempts: u32,
    /// How late the first one started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_ms: Option<i64>,
    /// The version of the job that it was fired with.
    pub version: u32,
}

/// A pause in the account of a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerPause {
    /// Who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Why a job did or did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// The job.
    pub job_id: String,
    /// In a word that stays the same, such as `ran_late` or `paused`.
    pub reason: String,
    /// The slot that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Timestamp>,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// In a paragraph.
    pub text: String,
    /// When the job fires next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}

impl Why {
    /// An answer about a job.
    pub fn new(job: punctual_domain::JobId, answer: why::Answer) -> Self {
        Why {
            job_id: job.to_string(),
            reason: answer.reason.as_str().into(),
            slot: answer.slot,
            run: answer.run.map(|run| run.to_string()),
            text: answer.text,
            next: answer.next,
        }
    }
}

impl From<&Held> for LedgerPause {
    fn from(held: &Held) -> Self {
        LedgerPause {
            by: held.pause.by.clone(),
            reason: held.pause.reason.clone(),
            since: held.pause.since,
            until: held.pause.until,
            ended_at: held.ended_at,
        }
    }
}

impl LedgerEntry {
    /// A row of the account of a range, read now. `due_at` is when its run was due, if it is one.
    pub fn of(job: punctual_domain::JobId, row: &Row, due_at: Option<Timestamp>, now: Timestamp) -> Self {
        let (state, reason) = row.what.as_str();
        let mut entry = LedgerEntry {
            job_id: job.to_string(),
            from: row.from,
            to: row.to,
            slots: row.slots,
            state: state.into(),
            reason: reason.into(),
            decided_at: now,
            run: None,
            pause: None,
            schedule: None,
            calendars: None,
        };
        match &row.what {
            What::Run(run) => {
                let due_at = due_at.unwrap_or(run.scheduled_for);
                entry.decided_at = run.sequence.born_at();
                entry.run = Some(LedgerRun {
                    id: run.id().to_string(),
                    cause: run.cause.as_str().into(),
                    scheduled_for: run.scheduled_for,
                    waiting_for: match run.state {
                        RunState::Pending(waiting) => Some(WaitingFor::as_str(waiting).into()),
                        _ => None,
                    },
                    attempts: run.attempt,
                    lateness_ms: run.lateness(due_at).map(|late| late.as_millis() as i64),
                    version: run.version.0,
                });
            }
            What::Entry(known, held) => {
                entry.decided_at = known.decided_at;
                entry.pause = held.as_ref().map(LedgerPause::from);
            }
            What::Paused(held) => entry.pause = Some(held.into()),
            What::Excluded(calendars) => entry.calendars = Some(calendars.clone()),
            What::Changed(change) => {
                entry.decided_at = change.at;
                match &change.until {
                    Before::Schedule(schedule) => entry.schedule = Some(schedule.to_string()),
                    Before::Pause(pause) => {
                        entry.pause =
                            Some((&Held { pause: pause.clone(), ended_at: Some(change.at) }).into());
                    }
                }
            }
            What::ToCome
            | What::BeforeTheJob
            | What::Ended
            | What::Deleted
            | What::Forgotten
            | What::Unrecorded => {}
        }
        entry
    }
}

impl From<&punctual_domain::LedgerEntry> for LedgerEntry {
    fn from(entry: &punctual_domain::LedgerEntry) -> Self {
        let (state, reason) = entry.fate.as_str();
        LedgerEntry {
            job_id: entry.job.to_string(),
            from: entry.from,
            to: entry.to,
            slots: entry.slots,
            state: state.into(),
            reason: reason.into(),
            decided_at: entry.decided_at,
            run: None,
            pause: None,
            schedule: None,
            calendars: None,
        }
    }
}
