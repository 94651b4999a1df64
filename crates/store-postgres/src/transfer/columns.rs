//! A page of pieces as columns.

use std::collections::HashSet;

use jiff::Timestamp;
use punctual_domain::job::JobState;
use punctual_store::record::{encode_operation, encode_rule};
use punctual_store::transfer::{EndedRun, Piece};
use punctual_store::{Error, RunDetail};
use uuid::Uuid;

use crate::audit;
use crate::documents;
use crate::due::DueColumns;
use crate::error::damaged;
use crate::open_runs::OpenColumns;
use crate::papers::Unwritten;
use crate::partition::{Ended, LATE, Partition, class, days};
use crate::row::{Entry, fate_columns, job_record, job_state, job_uuid, millis};

/// What a page writes, by table.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) tenants: (Vec<i32>, Vec<String>, Vec<i64>),
    pub(super) jobs: Jobs,
    pub(super) keys: (Vec<i32>, Vec<String>, Vec<Uuid>),
    pub(super) versions: (Vec<Uuid>, Vec<i32>, Vec<i32>, Vec<String>),
    pub(super) due: DueColumns,
    pub(super) open: OpenColumns,
    pub(super) said: Unwritten,
    pub(super) ended: Ended,
    /// Where ended runs go.
    pub(super) partitions: HashSet<Partition>,
    pub(super) letters: (Vec<i64>, Vec<i32>, Vec<Uuid>),
    pub(super) ledger: Ledger,
    pub(super) operations: Operations,
    pub(super) requests: Requests,
    pub(super) ended_jobs: (Vec<i64>, Vec<Uuid>, Vec<i32>),
    pub(super) rules: (Vec<String>, Vec<String>),
    pub(super) documents: documents::Columns,
    pub(super) audit: audit::Columns,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) id: Vec<Uuid>,
    pub(super) tenant: Vec<i32>,
    pub(super) version: Vec<i32>,
    pub(super) state: Vec<i16>,
    pub(super) fired: Vec<i64>,
    pub(super) completed_at: Vec<Option<i64>>,
    pub(super) record: Vec<String>,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) job: Vec<Uuid>,
    pub(super) from: Vec<i64>,
    pub(super) to: Vec<i64>,
    pub(super) slots: Vec<i64>,
    pub(super) fate: Vec<i16>,
    pub(super) tenant: Vec<i32>,
    pub(super) decided_at: Vec<i64>,
    pub(super) cap: Vec<Option<i16>>,
}

#[derive(Default)]
pub(super) struct Operations {
    pub(super) id: Vec<Uuid>,
    pub(super) shard: Vec<i16>,
    pub(super) tenant: Vec<i32>,
    pub(super) version: Vec<i32>,
    pub(super) record: Vec<String>,
    pub(super) resume_at: Vec<Option<i64>>,
    pub(super) finished_at: Vec<Option<i64>>,
}

#[derive(Default)]
pub(super) struct Requests {
    pub(super) tenant: Vec<i32>,
    pub(super) key: Vec<String>,
    pub(super) fingerprint: Vec<Vec<u8>>,
    pub(super) expires_at: Vec<i64>,
    pub(super) result: Vec<String>,
}

impl Columns {
    /// Adds a piece. `now` is when the copy began.
    pub(super) fn push(&mut self, piece: Piece, now: Timestamp) -> Result<(), Error> {
        match piece {
            Piece::Tenant(tenant) => {
                self.tenants.0.push(tenant.id.0 as i32);
                self.tenants.1.push(tenant.name.to_string());
                self.tenants.2.push(millis(tenant.created_at));
            }
            Piece::Job(stored) => {
                let job = &stored.job;
                self.jobs.id.push(job_uuid(job.id));
                self.jobs.tenant.push(job.tenant.0 as i32);
                self.jobs.version.push(job.version.0 as i32);
                self.jobs.state.push(job_state(&job.state));
                self.jobs.fired.push(stored.progress.fired as i64);
                self.jobs.completed_at.push(stored.progress.last_completion.map(millis));
                self.jobs.record.push(job_record(job)?);
                if let Some(key) = job.spec.key.clone().filter(|_| job.state != JobState::Deleted) {
                    self.keys.0.push(job.tenant.0 as i32);
                    self.keys.1.push(key);
                    self.keys.2.push(job_uuid(job.id));
                }
            }
            Piece::JobVersion(job) => {
                self.versions.0.push(job_uuid(job.id));
                self.versions.1.push(job.version.0 as i32);
                self.versions.2.push(job.tenant.0 as i32);
                self.versions.3.push(job_record(&job)?);
            }
            Piece::Due(due) => self.due.push(&due),
            Piece::OpenRun(detail) => {
                let entry = entry(detail);
                self.open.push(&entry, now);
                self.said.push_of(&entry);
            }
            Piece::EndedRun(ended) => self.push_ended(ended, now),
            Piece::Ledger(entry) => {
                self.ledger.job.push(job_uuid(entry.job));
                self.ledger.from.push(millis(entry.from));
                self.ledger.to.push(millis(entry.to));
                self.ledger.slots.push(entry.slots as i64);
                let (fate, cap) = fate_columns(entry.fate);
                self.ledger.fate.push(fate);
                self.ledger.cap.push(cap);
                self.ledger.tenant.push(entry.tenant.0 as i32);
                self.ledger.decided_at.push(millis(entry.decided_at));
            }
            Piece::Operation(operation) => {
                let record = String::from_utf8(encode_operation(&operation)?)
                    .map_err(|_| damaged("an operation whose record is not text"))?;
                self.operations.id.push(Uuid::from_bytes(*operation.id.as_bytes()));
                self.operations.shard.push(operation.id.shard().0 as i16);
                self.operations.tenant.push(operation.tenant.0 as i32);
                self.operations.version.push(operation.version.0 as i32);
                self.operations.record.push(record);
                self.operations.resume_at.push(operation.is_running().then(|| millis(operation.resume_at)));
                self.operations.finished_at.push(operation.finished_at.map(millis));
            }
            Piece::Request(subject) => {
                self.requests.tenant.push(subject.tenant.0 as i32);
                self.requests.key.push(subject.key);
                self.requests.fingerprint.push(subject.fingerprint.to_vec());
                self.requests.expires_at.push(millis(subject.expires_at));
                self.requests.result.push(subject.result);
            }
            Piece::EndedJob(ended) => {
                self.ended_jobs.0.push(millis(ended.forget_at));
                self.ended_jobs.1.push(job_uuid(ended.job));
                self.ended_jobs.2.push(ended.version.0 as i32);
            }
            Piece::Rule(rule) => {
                let record = String::from_utf8(encode_rule(&rule)?)
                    .map_err(|_| damaged("a limit whose record is not text"))?;
                self.rules.0.push(rule.name.to_string());
                self.rules.1.push(record);
            }
            Piece::Document(document) => self.documents.push(&document),
            Piece::Audit(entry) => self.audit.push(*entry),
        }
        Ok(())
    }

    /// Ended runs go where they would have gone when they ended, unless that is gone by now.
    fn push_ended(&mut self, ended: EndedRun, now: Timestamp) {
        let ended_at = ended.ended_at();
        let entry = entry(ended.detail);
        let run = &entry.run;
        if ended.is_dead_letter {
            self.letters.0.push(run.sequence.as_i64());
            self.letters.1.push(run.tenant.0 as i32);
            self.letters.2.push(job_uuid(run.job));
        }
        let home = Partition::at(class(run.class()), millis(run.sequence.born_at()));
        self.ended.push(&entry, ended_at);
        let is_over = home.to + days(home.class) < millis(now);
        if let Some(place) = self.ended.class.last_mut().filter(|place| **place != LATE) {
            match is_over {
                true => *place = LATE,
                false => {
                    self.partitions.insert(home);
                }
            }
        }
    }
}

/// A run with what it has said.
fn entry(detail: RunDetail) -> Entry {
    let (run, attempts, said) = detail.apart();
    Entry { said, ..Entry::born((run, attempts)) }
}
