//! Limits: runs that wait in the line of a key, and go on.
//!
//! Who holds permits is in memory, counted from the open runs; the lines are in a table, so that memory does not grow with
//! those who wait.

use jiff::Timestamp;
use punctual_domain::id::Sequence;
use punctual_domain::policy::limit::Key;
use punctual_domain::run::{Run, RunState};
use punctual_store::record::encode_rule;
use punctual_store::{Advanced, Error, GO_ON_MAX, RuleChange, Shards};
use rusqlite::{OptionalExtension, params};

use super::urgency;
use crate::error::failed;
use crate::row::millis;
use crate::writer::Batch;

impl Batch<'_> {
    /// A run whose time has come passes the gates of its limits, as many as are open. Before it is written.
    pub(super) fn arrive(&mut self, run: &mut Run, now: Timestamp) -> Result<(), Error> {
        let is_there =
            matches!(run.state, RunState::Pending(_)) && !run.is_behind() && run.available_at <= now;
        if run.has_passed() || !is_there {
            return Ok(());
        }
        self.memory.gates.arrive(run, now);
        self.write_tokens()
    }

    /// Puts a run in the line of the limit that it waits for.
    pub(super) fn stand(&self, run: &Run) -> Result<(), Error> {
        let Some(limited) = run.next_limit() else { return Ok(()) };
        self.line(
            "insert or replace into limited values (?1, ?2, ?3, ?4, ?5)",
            params![
                limited.key.0 as i64,
                run.lane.rank(),
                urgency(run),
                millis(run.scheduled_for),
                run.sequence.as_i64()
            ],
        )
    }

    fn unstand(&self, run: &Run) -> Result<(), Error> {
        let Some(limited) = run.next_limit() else { return Ok(()) };
        self.line(
            "delete from limited where key = ?1 and lane = ?2 and urgency = ?3 and scheduled_for = ?4 and seq = ?5",
            params![
                limited.key.0 as i64,
                run.lane.rank(),
                urgency(run),
                millis(run.scheduled_for),
                run.sequence.as_i64()
            ],
        )
    }

    /// Takes a run out of the line of its limit, if it stands in one.
    pub(super) fn leave_limited(&mut self, run: &Run) -> Result<(), Error> {
        if !run.is_limited() {
            return Ok(());
        }
        self.memory.gates.leave(run);
        self.unstand(run)
    }

    /// Before an answer: who waits goes on where something came back.
    pub(super) fn go_on(&mut self, now: Timestamp) -> Result<u64, Error> {
        match self.memory.gates.is_touched() {
            true => self.go_on_within(now, GO_ON_MAX),
            false => Ok(0),
        }
    }

    fn go_on_within(&mut self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        let mut gone = 0;
        while let Some(key) = self.memory.gates.touched() {
            while let Some(sequence) = self.first_limited(key)? {
                if gone >= limit as u64 {
                    self.memory.gates.look_at(key, now);
                    break;
                }
                let Some(mut entry) = self.open_run(sequence)? else { break };
                let before = entry.run.clone();
                if !self.memory.gates.go_on(&mut entry.run, now) {
                    break;
                }
                gone += 1;
                self.unstand(&before)?;
                self.leave_lapses(sequence, before.lapses_after())?;
                self.keep_open(entry, now)?;
            }
        }
        self.write_tokens()?;
        Ok(gone)
    }

    fn first_limited(&self, key: Key) -> Result<Option<Sequence>, Error> {
        let sql = "select seq from limited where key = ?1 order by lane, urgency, scheduled_for, seq limit 1";
        let found: Option<i64> = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([key.0 as i64], |row| row.get(0)).optional())
            .map_err(failed)?;
        Ok(found.map(Sequence::from_i64))
    }

    fn write_tokens(&mut self) -> Result<(), Error> {
        while let Some((key, full_at)) = self.memory.gates.spent() {
            self.line("insert or replace into tokens values (?1, ?2)", params![key.0 as i64, full_at])?;
        }
        Ok(())
    }

    pub(crate) fn advance(
        &mut self,
        shards: &Shards,
        now: Timestamp,
        limit: usize,
    ) -> Result<Advanced, Error> {
        self.check()?;
        self.promote(now)?;
        let count = self.memory.shards.len() as u16;
        self.memory.gates.ripen(shards, count, now);
        let runs = self.go_on_within(now, limit)?;
        Ok(Advanced { runs, next_at: self.memory.gates.next_at(shards, count) })
    }

    pub(crate) fn put_rule(&mut self, change: RuleChange, now: Timestamp) -> Result<(), Error> {
        self.check()?;
        match &change.rule {
            Some(rule) => self.line(
                "insert or replace into rules values (?1, ?2)",
                params![&*change.name, encode_rule(rule)?],
            )?,
            None => self.line("delete from rules where name = ?1", params![&*change.name])?,
        }
        self.memory.gates.change_rule(change, now);
        Ok(())
    }

    /// Gates that say nothing are forgotten.
    pub(super) fn forget_gates(&mut self, now: Timestamp) -> Result<(), Error> {
        for key in self.memory.gates.forget_idle(now) {
            self.line("delete from tokens where key = ?1", params![key.0 as i64])?;
        }
        Ok(())
    }
}
