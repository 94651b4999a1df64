//! Overlap: births that are decided against what is open, and runs that wait for others.
//!
//! What of a job runs, and who waits for it, is in memory; a job whose runs may overlap costs a look at its births.

use jiff::Timestamp;
use punctual_domain::LedgerEntry;
use punctual_domain::Run;
use punctual_domain::id::{JobId, RunId, Sequence, TenantId};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::overlap::Open;
use punctual_store::record::fate_of;
use punctual_store::{Admission, Birth, Error, Parent, is_full, is_ruled};
use rusqlite::{OptionalExtension, Row, params};

use crate::error::failed;
use crate::row::{damaged, millis, timestamp};
use crate::waits;
use crate::writer::Batch;

impl Batch<'_> {
    /// Decides births of a job. Nothing is done yet.
    pub(super) fn admit(&self, job: JobId, births: Vec<Birth>, now: Timestamp) -> Result<Admission, Error> {
        let is_open = |birth: &Birth| self.memory.gates.are_open(&birth.limits, now);
        Ok(match (is_ruled(&births), is_full(&births)) {
            (true, _) => Admission::decide(births, self.open_of(job)?, is_open),
            (false, true) => Admission::decide(births, Open::default(), is_open),
            (false, false) => Admission::free(births),
        })
    }

    /// Makes the runs, and accounts for those that are not to be.
    pub(super) fn give_births(
        &mut self,
        of: Parent,
        admission: Admission,
        now: Timestamp,
    ) -> Result<Vec<Run>, Error> {
        if admission.replaces {
            self.give_way(of.job, now)?;
        }
        for skipped in &admission.skipped {
            let known = self.accounted_until(of, skipped.birth.scheduled_for)?;
            if let Some(entry) = skipped.accounted(of, known.as_ref(), now) {
                self.insert_ledger(&entry)?;
            }
        }
        let mut runs = Vec::with_capacity(admission.born.len());
        for admitted in admission.born {
            runs.push(self.give_birth(of, admitted, now)?);
        }
        self.go_on(now)?;
        Ok(runs)
    }

    /// What is open of a job.
    fn open_of(&self, job: JobId) -> Result<Open, Error> {
        let behind = self.memory.behind.get(&job).map_or(0, std::collections::BTreeSet::len);
        Ok(Open {
            is_running: self.memory.running_of.contains_key(&job),
            is_pending: waits::are_ahead(self.connection, job)?,
            behind: behind as u32,
        })
    }

    /// The last entry of the ledger that begins at or before a slot.
    fn accounted_until(&self, of: Parent, slot: Timestamp) -> Result<Option<LedgerEntry>, Error> {
        let sql = "select from_slot, to_slot, slots, fate, tenant, decided_at from ledger \
                   where job = ?1 and from_slot <= ?2 order by from_slot desc limit 1";
        let columns = |row: &Row<'_>| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        };
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| {
                statement.query_row(params![of.job.as_bytes(), millis(slot)], columns).optional()
            })
            .map_err(failed)?;
        let Some((from, to, slots, fate, tenant, decided_at)) = found else { return Ok(None) };
        Ok(Some(LedgerEntry {
            job: of.job,
            tenant: TenantId(tenant),
            from: timestamp(from)?,
            to: timestamp(to)?,
            slots: slots.unsigned_abs(),
            fate: fate_of(fate).ok_or_else(|| damaged(format!("{fate} is not a fate")))?,
            decided_at: timestamp(decided_at)?,
        }))
    }

    /// Cancels what is pending and asks what runs to stop.
    fn give_way(&mut self, job: JobId, now: Timestamp) -> Result<(), Error> {
        for sequence in self.open_runs_of(job)? {
            let Some(mut entry) = self.open_run(sequence)? else { continue };
            let before = entry.run.clone();
            // An open run can be cancelled.
            let _ = lifecycle::apply(&mut entry.run, Event::Cancelled { at: now });
            match entry.run.state.is_ended() {
                true => {
                    self.dequeue(&before)?;
                    self.memory.gates.give_back(&before, &entry.run);
                    self.end_waited(&entry)?;
                }
                false => self.keep_open(entry, now)?,
            }
        }
        Ok(())
    }

    /// After the end of a run: if no other is ahead of those that wait, the one with the oldest slot goes on.
    pub(super) fn release(&mut self, job: JobId, now: Timestamp) -> Result<Option<RunId>, Error> {
        let Some(first) = self.memory.behind.get(&job).map(|behind| behind.first().copied()) else {
            return Ok(None);
        };
        if self.memory.running_of.contains_key(&job) || waits::are_ahead(self.connection, job)? {
            return Ok(None);
        }
        match first {
            Some((_, sequence)) => self.let_go(sequence, now),
            None => Ok(None),
        }
    }

    /// All that wait go on.
    pub(super) fn release_all(&mut self, job: JobId, now: Timestamp) -> Result<(), Error> {
        let behind = self.memory.behind.get(&job).cloned().unwrap_or_default();
        for (_, sequence) in behind {
            self.let_go(sequence, now)?;
        }
        Ok(())
    }

    fn let_go(&mut self, sequence: Sequence, now: Timestamp) -> Result<Option<RunId>, Error> {
        let Some(mut entry) = self.open_run(sequence)? else { return Ok(None) };
        if lifecycle::apply(&mut entry.run, Event::Released { at: now }).is_err() {
            return Ok(None);
        }
        self.memory.leave_line(&entry.run);
        self.arrive(&mut entry.run, now)?;
        let id = entry.run.id();
        self.keep_open(entry, now)?;
        Ok(Some(id))
    }
}
