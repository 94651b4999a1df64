//! Moving everything out and in.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use punctual_domain::job::JobState;
use punctual_domain::run::RunState;
use punctual_schedule::Progress;

use super::Memory;
use super::state::{Ended, Entry, State};
use crate::error::Error;
use crate::store::Store;
use crate::transfer::{EndedJob, EndedRun, Identity, Kind, Note, Piece, Transfer};
use crate::verbs::{Due, Stored};

#[async_trait]
impl Transfer for Memory {
    fn shard_count(&self) -> u16 {
        Store::shard_count(self)
    }

    async fn identity(&self) -> Result<Identity, Error> {
        Ok(Identity { name: "memory".into(), state: format!("{:?}", self.state().epochs()) })
    }

    async fn count(&self, kind: Kind) -> Result<u64, Error> {
        let state = self.state();
        Ok(match kind {
            Kind::Tenants => state.tenants.len(),
            Kind::Jobs => state.jobs.len(),
            Kind::JobVersions => state.old_versions.len(),
            Kind::Due => state.due.len(),
            Kind::OpenRuns => state.open.len(),
            Kind::History => state.history.len(),
            Kind::Ledger => state.ledger.len(),
            Kind::Operations => state.operations.len(),
            Kind::Requests => state.requests.len(),
            Kind::EndedJobs => state.ended_jobs.len(),
            Kind::Rules => state.gates.rules().count(),
            Kind::Documents => state.documents.len(),
            Kind::Audit => state.audit.len(),
        } as u64)
    }

    async fn pieces(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Piece)>, Error> {
        // Nothing moves meanwhile, so the number of a piece is its place.
        let skipped = match after {
            None => 0,
            Some(text) => text.parse::<usize>().map_err(|_| misplaced(text))? + 1,
        };
        let state = self.state();
        let pieces = (skipped..).zip(state.all(kind).skip(skipped)).take(limit);
        Ok(pieces.map(|(place, piece)| (place.to_string(), piece)).collect())
    }

    async fn note(&self) -> Result<Option<Note>, Error> {
        self.state().note.as_ref().map(|text| Note::decode(text.as_bytes())).transpose()
    }

    async fn begin(&self, note: &Note) -> Result<(), Error> {
        self.state().note = Some(note.encode()?);
        Ok(())
    }

    async fn import(&self, pieces: Vec<Piece>, note: &Note) -> Result<(), Error> {
        let mut state = self.state();
        for piece in pieces {
            state.import(piece, note.begun_at);
        }
        state.note = Some(note.encode()?);
        Ok(())
    }

    async fn seal(&self, _: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        let newest = state.open.last_key_value().map(|(sequence, _)| *sequence);
        state.last =
            state.last.max(newest).max(state.history.last_key_value().map(|(sequence, _)| *sequence));
        Ok(())
    }

    async fn finish(&self) -> Result<(), Error> {
        self.state().note = None;
        Ok(())
    }
}

fn misplaced(text: &str) -> Error {
    Error::Damaged { what: format!("`{text}` is no place in an export") }
}

impl State {
    /// All pieces of a kind; those that are skipped are not made.
    fn all(&self, kind: Kind) -> Box<dyn Iterator<Item = Piece> + '_> {
        match kind {
            Kind::Tenants => Box::new(self.tenants.iter().map(|tenant| Piece::Tenant(tenant.clone()))),
            Kind::Jobs => Box::new(self.jobs.values().map(|stored| Piece::Job(stored.clone()))),
            Kind::JobVersions => {
                let versions = self.old_versions.values();
                Box::new(versions.map(|stored| Piece::JobVersion(Arc::clone(&stored.job))))
            }
            Kind::Due => {
                let due = self.due.iter();
                Box::new(due.map(|(&(key, version), &slot)| Piece::Due(Due { key, version, slot })))
            }
            Kind::OpenRuns => Box::new(self.open.values().map(|entry| Piece::OpenRun(entry.detail()))),
            Kind::History => Box::new(self.history.values().map(|ended| {
                let (detail, is_dead_letter) = (ended.entry.detail(), ended.is_dead_letter);
                Piece::EndedRun(EndedRun { detail, is_dead_letter })
            })),
            Kind::Ledger => Box::new(self.ledger.values().map(|entry| Piece::Ledger(entry.clone()))),
            Kind::Operations => {
                Box::new(self.operations.values().map(|operation| Piece::Operation(operation.clone())))
            }
            Kind::Requests => {
                let mut requests: Vec<_> = self.requests.iter().collect();
                requests.sort_unstable_by_key(|(key, _)| *key);
                Box::new(requests.into_iter().map(|(_, subject)| Piece::Request(subject.clone())))
            }
            Kind::EndedJobs => {
                let note = |&(forget_at, job, version): &_| EndedJob { forget_at, job, version };
                Box::new(self.ended_jobs.iter().map(move |ended| Piece::EndedJob(note(ended))))
            }
            Kind::Rules => Box::new(self.gates.rules().map(|rule| Piece::Rule(rule.clone()))),
            Kind::Documents => Box::new(self.documents.values().cloned().map(Piece::Document)),
            Kind::Audit => Box::new(self.audit.values().map(|entry| Piece::Audit(Box::new(entry.clone())))),
        }
    }

    fn import(&mut self, piece: Piece, now: Timestamp) {
        match piece {
            Piece::Tenant(tenant) => {
                self.tenants.retain(|one| one.id != tenant.id);
                self.tenants.push(tenant);
                self.tenants.sort_unstable_by_key(|tenant| tenant.id);
            }
            Piece::Job(stored) => {
                let job = &stored.job;
                if let Some(key) = job.spec.key.clone().filter(|_| job.state != JobState::Deleted) {
                    self.keys.insert((job.tenant, key), job.id);
                }
                self.jobs.insert(job.id, stored);
            }
            Piece::JobVersion(job) => {
                let stored = Stored { job, progress: Progress::default() };
                self.old_versions.insert((stored.job.id, stored.job.version), stored);
            }
            Piece::Due(due) => self.insert_due(due),
            Piece::OpenRun(detail) => {
                let entry = Entry::from(detail);
                self.gates.recall(&entry.run, now);
                if matches!(entry.run.state, RunState::Pending(_)) {
                    self.stand(&entry.run, now);
                }
                self.open.insert(entry.run.sequence, entry);
            }
            Piece::EndedRun(ended) => {
                let (keep_until, is_dead_letter) = (ended.keep_until(), ended.is_dead_letter);
                let entry = Entry::from(ended.detail);
                self.history.insert(entry.run.sequence, Ended { entry, keep_until, is_dead_letter });
            }
            Piece::Ledger(entry) => {
                self.ledger.insert((entry.job, entry.from), entry);
            }
            Piece::Operation(operation) => {
                self.operations.insert(operation.id, operation);
            }
            Piece::Request(subject) => {
                self.requests.insert((subject.tenant, subject.key.clone()), subject);
            }
            Piece::EndedJob(EndedJob { forget_at, job, version }) => {
                self.ended_jobs.insert((forget_at, job, version));
            }
            Piece::Rule(rule) => self.gates.recall_rule(rule),
            Piece::Document(document) => {
                let key = (document.kind, document.tenant, document.name.clone());
                self.documents.insert(key, document);
            }
            Piece::Audit(entry) => self.append(Some(entry)),
        }
    }
}
