//! Claim and heartbeat: who holds what.
//!
//! A claim steps from tenant to tenant by the index, and then reads what it takes of each: as many steps as runs at most.

use std::collections::HashMap;

use jiff::Timestamp;
use punctual_domain::id::{Sequence, ShardId, TenantId, WorkerId};
use punctual_domain::job::Lane;
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::run::Run;
use punctual_domain::{Ask, Attempt, Division, Waiters};
use punctual_store::{Claim, Error, Heartbeat, Held, MARK, Queue, Queues, may_take, suspected};
use rusqlite::{OptionalExtension, params};

use crate::error::failed;
use crate::row::{REQUIRING, millis};
use crate::writer::Batch;

/// Tenants of a lane in a range, one after the other.
const TENANT: &str =
    "select tenant from ready where lane = ?1 and tenant > ?2 and tenant <= ?3 order by tenant limit 1";
const TENANT_OF_LINE: &str = "select tenant from ready indexed by ready_by_queue \
    where lane = ?1 and tenant > ?2 and tenant <= ?3 and queue = ?4 order by tenant limit 1";

/// The runs of a tenant, in their order.
const RUNS: &str = "select urgency, available_at, seq, shard from ready where lane = ?1 and tenant = ?2 \
    order by urgency, available_at, seq";
const RUNS_OF_LINE: &str = "select urgency, available_at, seq, shard from ready indexed by ready_by_queue \
    where lane = ?1 and tenant = ?2 and queue = ?3 order by urgency, available_at, seq";

/// Where a claim looks for runs.
enum Source {
    /// In all queues, among what requires nothing.
    All,
    /// In the line of a queue, or of a queue and what is required.
    Line(String),
}

impl Source {
    /// The lane as a column.
    fn lane(&self, lane: Lane) -> i64 {
        let is_requiring = matches!(self, Source::Line(line) if line.starts_with(MARK));
        i64::from(lane.rank()) + if is_requiring { REQUIRING } else { 0 }
    }
}

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
        for sequence in self.first_in_line(claim, now)? {
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
            self.stop_waiting(&entry.run)?;
            let number = entry.run.attempt;
            entry.attempts.push(Attempt { number, worker: claim.worker, claimed_at: now, report: None });
            claimed.push(entry.run.clone());
            self.keep_open(entry, now)?;
        }
        Ok(claimed)
    }

    /// The runs whose turn it is.
    fn first_in_line(&mut self, claim: &Claim, now: Timestamp) -> Result<Vec<Sequence>, Error> {
        let sources = self.sources(claim)?;
        let mut waiting = Vec::new();
        for lane in Lane::ALL {
            let after = self.memory.kinds.of(claim).after(lane);
            for source in &sources {
                let tenants = self.tenants(source, lane, after, claim.limit)?;
                waiting.extend(tenants.into_iter().map(|tenant| (lane, tenant)));
            }
        }
        let turns = self.memory.kinds.of(claim);
        let mut division = Division::new(turns, Waiters::new(turns, waiting, claim.limit), claim.limit);
        let mut found = HashMap::new();
        loop {
            let asks = division.divide(self.memory.kinds.of(claim), now);
            if asks.is_empty() {
                return Ok(division.in_turns(found));
            }
            for ask in asks {
                let first = self.first_of(&sources, claim, ask)?;
                division.found(ask, first.len());
                found.insert((ask.lane, ask.tenant), first);
            }
        }
    }

    fn sources(&self, claim: &Claim) -> Result<Vec<Source>, Error> {
        if claim.is_apart() {
            return Ok(self.requiring_lines(claim)?.into_iter().map(Source::Line).collect());
        }
        let mut lines: Vec<String> = claim.queues.iter().map(std::string::ToString::to_string).collect();
        if !claim.labels.is_empty() {
            lines.extend(self.requiring_lines(claim)?);
        }
        lines.sort_unstable();
        lines.dedup();
        let all = claim.queues.is_empty().then_some(Source::All);
        Ok(all.into_iter().chain(lines.into_iter().map(Source::Line)).collect())
    }

    /// Tenants that have runs in a lane, those after one first, at most so many.
    fn tenants(
        &self,
        source: &Source,
        lane: Lane,
        after: Option<TenantId>,
        most: usize,
    ) -> Result<Vec<TenantId>, Error> {
        let sql = match source {
            Source::All => TENANT,
            Source::Line(_) => TENANT_OF_LINE,
        };
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let (lane, after) = (source.lane(lane), after.map_or(-1, |tenant| i64::from(tenant.0)));
        let mut tenants = Vec::new();
        for (mut above, upto) in [(after, i64::MAX), (-1, after)] {
            while tenants.len() < most {
                let next = match source {
                    Source::All => {
                        statement.query_row(params![lane, above, upto], |row| row.get::<_, u32>(0))
                    }
                    Source::Line(line) => {
                        statement.query_row(params![lane, above, upto, line], |row| row.get::<_, u32>(0))
                    }
                };
                let Some(tenant) = next.optional().map_err(failed)? else { break };
                tenants.push(TenantId(tenant));
                above = tenant.into();
            }
        }
        Ok(tenants)
    }

    /// The first runs of a tenant that are for this claim.
    fn first_of(&self, sources: &[Source], claim: &Claim, ask: Ask) -> Result<Vec<Sequence>, Error> {
        let mut turns: Vec<(i64, i64, i64)> = Vec::new();
        for source in sources {
            let (lane, tenant) = (source.lane(ask.lane), ask.tenant.0);
            let sql = match source {
                Source::All => RUNS,
                Source::Line(_) => RUNS_OF_LINE,
            };
            let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
            let mut rows = match source {
                Source::All => statement.query(params![lane, tenant]).map_err(failed)?,
                Source::Line(line) => statement.query(params![lane, tenant, line]).map_err(failed)?,
            };
            let mut found = 0;
            while found < ask.most
                && let Some(row) = rows.next().map_err(failed)?
            {
                if claim.shards.contains(ShardId(row.get(3).map_err(failed)?)) {
                    turns.push((
                        row.get(0).map_err(failed)?,
                        row.get(1).map_err(failed)?,
                        row.get(2).map_err(failed)?,
                    ));
                    found += 1;
                }
            }
        }
        turns.sort_unstable();
        turns.truncate(ask.most);
        Ok(turns.into_iter().map(|(_, _, sequence)| Sequence::from_i64(sequence)).collect())
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

    pub(crate) fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Vec<Held> {
        let running = &self.memory.running;
        punctual_store::asked_to_stop(worker, held, |sequence| running.get(&sequence).map(|entry| &entry.run))
    }

    /// What runs, by queue.
    pub(crate) fn running_queues(&self, tenant: Option<TenantId>) -> Vec<Queue> {
        let mut queues = Queues::default();
        let running = self.memory.running.values().map(|entry| &entry.run);
        for run in running.filter(|run| tenant.is_none_or(|tenant| tenant == run.tenant)) {
            queues.run(run.tenant, &run.queue, 1);
        }
        queues.into_vec()
    }

    pub(crate) fn suspected(&self) -> Vec<WorkerId> {
        suspected(self.memory.running.values().map(|entry| &entry.run))
    }
}
