//! One thing as stored, and how it counts.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{JobId, Version};
use punctual_domain::job::Job;
use punctual_domain::policy::limit::Rule;
use punctual_domain::{Document, LedgerEntry, Operation, Tenant, audit};
use serde::{Deserialize, Serialize};

use crate::detail::RunDetail;
use crate::error::Error;
use crate::record::bytes::Put;
use crate::record::{encode_job, encode_operation, encode_papers, encode_rule, encode_run, fate_code};
use crate::verbs::{Due, Stored, Subject};

/// The kinds of pieces, in the order in which they are moved: what others name comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Tenants.
    Tenants,
    /// Jobs, deleted ones too.
    Jobs,
    /// Older versions of jobs, while open runs keep them.
    JobVersions,
    /// Due entries, stale ones too.
    Due,
    /// Runs that have not ended.
    OpenRuns,
    /// Runs that have ended.
    History,
    /// Entries of the ledger.
    Ledger,
    /// Operations, ended ones too.
    Operations,
    /// Requests under an `Idempotency-Key`.
    Requests,
    /// Notes that jobs which are over or deleted are to be forgotten.
    EndedJobs,
    /// Administrators' limits.
    Rules,
    /// Documents.
    Documents,
    /// Entries of the audit.
    Audit,
}

impl Kind {
    /// All kinds, in order.
    pub const ALL: [Kind; 13] = [
        Kind::Tenants,
        Kind::Jobs,
        Kind::JobVersions,
        Kind::Due,
        Kind::OpenRuns,
        Kind::History,
        Kind::Ledger,
        Kind::Operations,
        Kind::Requests,
        Kind::EndedJobs,
        Kind::Rules,
        Kind::Documents,
        Kind::Audit,
    ];

    /// The kind after this one.
    pub fn next(self) -> Option<Kind> {
        Kind::ALL.get(self as usize + 1).copied()
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Tenants => "tenants",
            Kind::Jobs => "jobs",
            Kind::JobVersions => "job_versions",
            Kind::Due => "due",
            Kind::OpenRuns => "open_runs",
            Kind::History => "history",
            Kind::Ledger => "ledger",
            Kind::Operations => "operations",
            Kind::Requests => "requests",
            Kind::EndedJobs => "ended_jobs",
            Kind::Rules => "rules",
            Kind::Documents => "documents",
            Kind::Audit => "audit",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing as stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A tenant.
    Tenant(Tenant),
    /// A job with what firing has counted. Its key comes with it.
    Job(Stored),
    /// An older version of a job.
    JobVersion(Arc<Job>),
    /// A due entry.
    Due(Due),
    /// A run that has not ended, with its attempts so far and what they said.
    OpenRun(RunDetail),
    /// A run that has ended.
    EndedRun(EndedRun),
    /// Slots that did not simply run.
    Ledger(LedgerEntry),
    /// An operation.
    Operation(Operation),
    /// A remembered request.
    Request(Subject),
    /// A job that is over or deleted is to be forgotten.
    EndedJob(EndedJob),
    /// An administrator's limit.
    Rule(Rule),
    /// A document.
    Document(Document),
    /// An entry of the audit.
    Audit(Box<audit::Entry>),
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// The run with its attempts and what they said.
    pub detail: RunDetail,
    /// Failed for good, and neither redriven nor acknowledged.
    pub is_dead_letter: bool,
}

impl EndedRun {
    /// When it ended.
    pub fn ended_at(&self) -> Timestamp {
        self.detail.run.finished_at.unwrap_or(self.detail.run.available_at)
    }

    /// When it may be forgotten, unless it is a dead letter: its class of retention after it ended, in every store.
    pub fn keep_until(&self) -> Timestamp {
        let kept_for = SignedDuration::from_hours(24 * i64::from(self.detail.run.class().days()));
        self.ended_at().checked_add(kept_for).unwrap_or(Timestamp::MAX)
    }
}

/// The note that a job which is over or deleted is to be forgotten. One whose version is not the job's is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndedJob {
    /// When it is looked at.
    pub forget_at: Timestamp,
    /// The job.
    pub job: JobId,
    /// The version that is over.
    pub version: Version,
}

impl Piece {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Piece::Tenant(_) => Kind::Tenants,
            Piece::Job(_) => Kind::Jobs,
            Piece::JobVersion(_) => Kind::JobVersions,
            Piece::Due(_) => Kind::Due,
            Piece::OpenRun(_) => Kind::OpenRuns,
            Piece::EndedRun(_) => Kind::History,
            Piece::Ledger(_) => Kind::Ledger,
            Piece::Operation(_) => Kind::Operations,
            Piece::Request(_) => Kind::Requests,
            Piece::EndedJob(_) => Kind::EndedJobs,
            Piece::Rule(_) => Kind::Rules,
            Piece::Document(_) => Kind::Documents,
            Piece::Audit(_) => Kind::Audit,
        }
    }

    /// All of it as bytes: the same in every store, so that stores can be compared.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut put = Put(Vec::with_capacity(256));
        let time = |put: &mut Put, at: Timestamp| put.signed(at.as_millisecond());
        match self {
            Piece::Tenant(tenant) => {
                put.number(tenant.id.0.into());
                put.bytes(tenant.name.as_str().as_bytes());
                time(&mut put, tenant.created_at);
            }
            Piece::Job(Stored { job, progress }) => {
                put_job(&mut put, job)?;
                put.number(progress.fired);
                put.byte(progress.last_completion.is_some().into());
                if let Some(at) = progress.last_completion {
                    time(&mut put, at);
                }
            }
            Piece::JobVersion(job) => put_job(&mut put, job)?,
            Piece::Due(due) => {
                time(&mut put, due.key.at);
                put.byte(due.key.lane.rank());
                put.number(due.key.tenant.0.into());
                put.fixed(due.key.job.as_bytes());
                put.number(due.version.0.into());
                time(&mut put, due.slot);
            }
            Piece::OpenRun(detail) => put_run(&mut put, detail),
            Piece::EndedRun(ended) => {
                put_run(&mut put, &ended.detail);
                put.byte(ended.is_dead_letter.into());
            }
            Piece::Ledger(entry) => {
                put.fixed(entry.job.as_bytes());
                put.number(entry.tenant.0.into());
                time(&mut put, entry.from);
                time(&mut put, entry.to);
                put.number(entry.slots);
                put.byte(fate_code(entry.fate));
                time(&mut put, entry.decided_at);
            }
            Piece::Operation(operation) => {
                put.fixed(operation.id.as_bytes());
                put.number(operation.tenant.0.into());
                put.number(operation.version.0.into());
                put.bytes(&encode_operation(operation)?);
            }
            Piece::Request(subject) => {
                put.number(subject.tenant.0.into());
                put.bytes(subject.key.as_bytes());
                put.fixed(&subject.fingerprint);
                time(&mut put, subject.expires_at);
                put.bytes(subject.result.as_bytes());
            }
            Piece::EndedJob(ended) => {
                time(&mut put, ended.forget_at);
                put.fixed(ended.job.as_bytes());
                put.number(ended.version.0.into());
            }
            Piece::Rule(rule) => {
                put.bytes(rule.name.as_bytes());
                put.bytes(&encode_rule(rule)?);
            }
            Piece::Document(document) => {
                put.bytes(document.kind.as_str().as_bytes());
                put.number(document.tenant.0.into());
                put.bytes(document.name.as_bytes());
                put.number(document.version);
                put.bytes(document.body.as_bytes());
                time(&mut put, document.updated_at);
            }
            Piece::Audit(entry) => {
                put.signed(entry.id.at);
                put.signed(entry.id.number);
                put.number(entry.tenant.0.into());
                for text in [&entry.kind, &entry.subject, &entry.action, &entry.who.name] {
                    put.bytes(text.as_bytes());
                }
                let rest = [&entry.who.key, &entry.from, &entry.request_id, &entry.before, &entry.after];
                for text in rest {
                    put.byte(text.is_some().into());
                    put.bytes(text.as_deref().unwrap_or_default().as_bytes());
                }
            }
        }
        Ok(put.0)
    }
}

fn put_job(put: &mut Put, job: &Job) -> Result<(), Error> {
    put.fixed(job.id.as_bytes());
    put.number(job.tenant.0.into());
    put.number(job.version.0.into());
    put.bytes(&encode_job(job)?);
    Ok(())
}

fn put_run(put: &mut Put, detail: &RunDetail) {
    put.signed(detail.run.sequence.as_i64());
    put.bytes(&encode_run(&detail.run, &detail.attempts));
    if !detail.papers.is_empty() {
        put.bytes(&encode_papers(&detail.papers));
    }
}
