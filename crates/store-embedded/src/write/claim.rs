//! Claim, heartbeat, expire: who holds what.

use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Attempt;
use punctual_domain::id::{Sequence, ShardId, WorkerId};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::run::Run;
use punctual_store::{Claim, Error, Heartbeat, Held, MARK, may_take};
use rusqlite::params;

use crate::error::failed;
use crate::row::{REQUIRING, millis};
use crate::writer::Batch;

/// The order of claiming: lane, urgency, time, birth.
type Turn = (i64, i64, i64, i64);

/// The runs of a queue, or of a queue and what is required, in their order.
const OF_LINE: &str = "select lane, urgency, available_at, seq, shard from ready indexed by ready_by_queue \
    where queue = ?1 order by lane, urgency, available_at, seq";

/// Runs whose time has come are moved in portions.
const PROMOTE_MAX: usize = 10_000;

impl Batch<'_> {
    pub(crate) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        self.check()?;
        self.promote(now)?;
        if self.memory.liveness.is_dead(claim.worker) {
            return Ok(Vec::new());
        }
        let mut claimed = Vec::new();
        for sequence in self.first_in_line(claim)? {
            let Some(mut entry) = self.open_run(sequence)? else { continue };
            if entry.run.is_too_late(now) {
                claimed.push(entry.run);
                continue;
            }
            let lapses_after = entry.run.lapses_after();
            // Claiming changes nothing that its place in the line is made of.
            if lifecycle::apply(&mut entry.run, Event::Claimed { worker: claim.worker, at: now }).is_err() {
                continue;
            }
            self.leave_ready(&entry.run)?;
            self.leave_lapses(sequence, lapses_after)?;
            let number = entry.run.attempt;
            entry.attempts.push(Attempt { number, worker: claim.worker, claimed_at: now, report: None });
            claimed.push(entry.run.clone());
            self.keep_open(entry, now)?;
        }
        Ok(claimed)
    }

    fn first_in_line(&self, claim: &Claim) -> Result<Vec<Sequence>, Error> {
        let mut turns = Vec::new();
        if claim.queues.is_empty() {
            let all = "select lane, urgency, available_at, seq, shard from ready where lane < ?1 \
                       order by lane, urgency, available_at, seq";
            self.read_line(all, params![REQUIRING], claim, &mut turns)?;
        }
        for queue in &claim.queues {
            self.read_line(OF_LINE, params![&**queue], claim, &mut turns)?;
        }
        if !claim.labels.is_empty() {
            let required = self.requiring_lines(claim)?;
            for line in required {
                self.read_line(OF_LINE, params![line], claim, &mut turns)?;
            }
        }
        turns.sort_unstable();
        turns.dedup();
        turns.truncate(claim.limit);
        Ok(turns.into_iter().map(|(_, _, _, sequence)| Sequence::from_i64(sequence)).collect())
    }

    /// The lines of runs that require something, which this claim has.
    fn requiring_lines(&self, claim: &Claim) -> Result<Vec<String>, Error> {
        let mut next = self
            .connection
            .prepare_cached(
                "select min(queue) from ready indexed by ready_by_queue where queue > ?1 and queue < ?2",
            )
            .map_err(failed)?;
        let (mut after, last) = (MARK.to_string(), "\u{2}");
        let mut lines = Vec::new();
        while let Some(line) =
            next.query_row(params![after, last], |row| row.get::<_, Option<String>>(0)).map_err(failed)?
        {
            if may_take(claim, &line) {
                lines.push(line.clone());
            }
            after = line;
        }
        Ok(lines)
    }

    /// The first turns of a line that are for this claim.
    fn read_line(
        &self,
        sql: &str,
        values: &[&dyn rusqlite::ToSql],
        claim: &Claim,
        turns: &mut Vec<Turn>,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(values).map_err(failed)?;
        let mut found = 0;
        while found < claim.limit
            && let Some(row) = rows.next().map_err(failed)?
        {
            if claim.shards.contains(ShardId(row.get(4).map_err(failed)?)) {
                let (lane, urgency, at, seq): Turn = row.try_into().map_err(failed)?;
                turns.push((lane % REQUIRING, urgency, at, seq));
                found += 1;
            }
        }
        Ok(())
    }

    /// Runs whose time has come get their turn.
    pub(super) fn promote(&mut self, now: Timestamp) -> Result<(), Error> {
        let due: Vec<i64> = {
            let mut statement = self
                .connection
                .prepare_cached(
                    "select seq from delayed where available_at <= ?1 order by available_at limit ?2",
                )
                .map_err(failed)?;
            let rows = statement
                .query_map(params![millis(now), PROMOTE_MAX as i64], |row| row.get(0))
                .map_err(failed)?;
            rows.collect::<Result<_, _>>().map_err(failed)?
        };
        for sequence in due {
            if let Some(mut entry) = self.open_run(Sequence::from_i64(sequence))? {
                self.leave_delayed(&entry.run)?;
                let lapses_after = entry.run.lapses_after();
                self.arrive(&mut entry.run, now)?;
                if entry.run.lapses_after() != lapses_after {
                    self.leave_lapses(entry.run.sequence, lapses_after)?;
                }
                self.keep_open(entry, now)?;
            }
        }
        Ok(())
    }

    pub(crate) fn heartbeat(&mut self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Heartbeat {
        let running = &self.memory.running;
        let find = |sequence: Sequence| running.get(&sequence).map(|entry| &entry.run);
        self.memory.liveness.heartbeat(worker, held, now, find)
    }

    pub(crate) fn expired(&mut self, lease: Duration, now: Timestamp, limit: usize) -> Vec<Run> {
        let running = self.memory.running.values().map(|entry| &entry.run);
        self.memory.liveness.expired(running, lease, now, limit)
    }
}
