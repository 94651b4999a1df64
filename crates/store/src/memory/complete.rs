//! Claim, heartbeat, complete, reclaim, cancel, lapse, answer: the life of an attempt.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::{RunId, Sequence, TenantId, WorkerId};
use punctual_domain::job::Lane;
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::papers::Said;
use punctual_domain::{Attempt, Division, Note, Run, Waiters};

use super::state::State;
use crate::error::Refused;
use crate::liveness::asked_to_stop;
use crate::verbs::{
    Answering, Cancellation, Claim, Concluded, Conclusion, Heartbeat, Held, Lapse, Lapsed, Message, Shards,
    Successor,
};

impl State {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Vec<Run> {
        self.promote(now);
        if self.liveness.is_dead(claim.worker) {
            return Vec::new();
        }
        let waiting = self.waiting(claim);
        let turns = self.kinds.of(claim);
        let mut division = Division::new(turns, Waiters::new(turns, waiting, claim.limit), claim.limit);
        let mut found: HashMap<(Lane, TenantId), Vec<Sequence>> = HashMap::new();
        loop {
            let asks = division.divide(self.kinds.of(claim), now);
            if asks.is_empty() {
                break;
            }
            for ask in asks {
                let first: Vec<Sequence> =
                    self.first_of(claim, ask.lane, ask.tenant).take(ask.most).collect();
                division.found(ask, first.len());
                found.insert((ask.lane, ask.tenant), first);
            }
        }
        let mut claimed = Vec::new();
        for sequence in division.in_turns(found) {
            let Some(entry) = self.open.get_mut(&sequence) else { continue };
            let before = entry.run.clone();
            if before.is_too_late(now) {
                claimed.push(before);
                continue;
            }
            if lifecycle::apply(&mut entry.run, Event::Claimed { worker: claim.worker, at: now }).is_err() {
                continue;
            }
            let number = entry.run.attempt;
            entry.attempts.push(Attempt { number, worker: claim.worker, claimed_at: now, report: None });
            claimed.push(entry.run.clone());
            self.dequeue(&before);
        }
        claimed
    }

    /// Tenants that have a run for this claim.
    fn waiting(&self, claim: &Claim) -> Vec<(Lane, TenantId)> {
        let mut tenants: Vec<(Lane, TenantId)> = Vec::new();
        let mut next = self.ready.first();
        while let Some(&(lane, tenant, ..)) = next {
            tenants.push((lane, tenant));
            let last_of_tenant = (lane, tenant, Reverse(i16::MIN), Timestamp::MAX, Sequence::from_i64(-1));
            next = self.ready.range((Bound::Excluded(last_of_tenant), Bound::Unbounded)).next();
        }
        tenants.retain(|(lane, tenant)| self.first_of(claim, *lane, *tenant).next().is_some());
        tenants
    }

    /// The runs of a tenant that are for this claim, in their order.
    fn first_of(&self, claim: &Claim, lane: Lane, tenant: TenantId) -> impl Iterator<Item = Sequence> {
        let first_of_tenant = (lane, tenant, Reverse(i16::MAX), Timestamp::MIN, Sequence::from_i64(0));
        let runs =
            self.ready.range(first_of_tenant..).take_while(move |turn| (turn.0, turn.1) == (lane, tenant));
        let is_for =
            |sequence: &Sequence| self.open.get(sequence).is_some_and(|entry| claim.takes(&entry.run));
        runs.map(|turn| turn.4).filter(is_for)
    }

    /// Runs whose time has come get their turn.
    pub(super) fn promote(&mut self, now: Timestamp) {
        while let Some(&(at, sequence)) = self.delayed.first().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, sequence));
            let Some(mut run) = self.open.get(&sequence).map(|entry| entry.run.clone()) else { continue };
            self.unstand(&run);
            self.enqueue(&mut run, now);
            if let Some(entry) = self.open.get_mut(&sequence) {
                entry.run = run;
            }
        }
    }

    pub(super) fn next_available_at(&self, shards: &Shards) -> Option<Timestamp> {
        let waiting = |sequence| {
            let run = &self.open.get(sequence)?.run;
            shards.contains(run.job.shard()).then_some(run.available_at)
        };
        let ready = self.ready.iter().find_map(|turn| waiting(&turn.4));
        ready.or_else(|| self.delayed.iter().find_map(|(_, sequence)| waiting(sequence)))
    }

    pub(super) fn heartbeat(&mut self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Heartbeat {
        let open = &self.open;
        self.liveness.heartbeat(worker, held, now, |sequence| open.get(&sequence).map(|entry| &entry.run))
    }

    pub(super) fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Vec<Held> {
        asked_to_stop(worker, held, |sequence| self.open.get(&sequence).map(|entry| &entry.run))
    }

    pub(super) fn note(&mut self, note: Note) -> Result<(), Refused> {
        let entry = self.open.get_mut(&note.held.sequence);
        let entry = entry.filter(|entry| entry.run.is_held(note.worker, note.held.attempt));
        let attempt = note.held.attempt;
        entry.ok_or(lifecycle::Refused::StaleLease { attempt })?.papers.join(note.into());
        Ok(())
    }

    pub(super) fn checkpoint(&self, id: RunId) -> Option<Box<str>> {
        let entry = self.open.get(&id.sequence()).filter(|entry| entry.run.id() == id);
        entry.and_then(|entry| entry.papers.checkpoint.clone())
    }

    pub(super) fn complete(&mut self, conclusion: Conclusion, now: Timestamp) -> Result<Concluded, Refused> {
        let (held, successor) = (conclusion.held, conclusion.successor);
        let stale = lifecycle::Refused::StaleLease { attempt: held.attempt };
        let mut entry = self.open.get(&held.sequence).cloned().ok_or(stale)?;
        self.check_successor(entry.run.job, successor)?;
        conclusion.apply(&mut entry.run, now)?;
        if let Some(attempt) = entry.attempts.last_mut() {
            attempt.report = conclusion.report;
            attempt.goes_on_with(&entry.run);
            entry.papers.add(Said::take(held.attempt, attempt.report.as_mut()));
        }
        let run = entry.run.clone();
        if let Some(before) = self.open.remove(&held.sequence) {
            self.gates.give_back(&before.run, &run);
        }
        if run.state.is_ended() {
            self.end(entry, now);
            self.succeed(run.job, successor, now);
            let released = self.release(run.job, now);
            self.tell(&run, &conclusion.messages, now);
            return Ok(Concluded { run, released });
        }
        self.enqueue(&mut entry.run, now);
        let run = entry.run.clone();
        self.open.insert(held.sequence, entry);
        Ok(run.into())
    }

    pub(super) fn expired(&mut self, lease: Duration, now: Timestamp, limit: usize) -> Vec<Run> {
        self.liveness.expired(self.open.values().map(|entry| &entry.run), lease, now, limit)
    }

    pub(super) fn cancel(&mut self, cancellation: Cancellation, now: Timestamp) -> Result<Run, Refused> {
        self.end_waiting(cancellation.run, Event::Cancelled { at: now }, cancellation.successor, now)
    }

    pub(super) fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Lapsed {
        let mut lapsed = Lapsed::default();
        for (at, sequence) in &self.lapses {
            let Some(entry) = self.open.get(sequence).filter(|entry| shards.contains(entry.run.job.shard()))
            else {
                continue;
            };
            if *at >= now || lapsed.runs.len() >= limit {
                lapsed.next_at = Some(*at);
                break;
            }
            lapsed.runs.push(entry.run.clone());
        }
        lapsed
    }

    pub(super) fn lapse(&mut self, lapse: Lapse, now: Timestamp) -> Result<Run, Refused> {
        let run = self.end_waiting(lapse.run, Event::Lapsed { at: now }, lapse.successor, now)?;
        self.tell(&run, &lapse.messages, now);
        Ok(run)
    }

    pub(super) fn answer(&mut self, answering: Answering, now: Timestamp) -> Result<Run, Refused> {
        let event = Event::Answered { answer: answering.answer, at: now };
        let run = self.end_waiting(answering.run, event, answering.successor, now)?;
        self.tell(&run, &answering.messages, now);
        Ok(run)
    }

    /// Registers the messages that tell of the end of a run.
    fn tell(&mut self, run: &Run, messages: &[Message], now: Timestamp) {
        for put in Message::due(messages, run.state) {
            let _ = self.put_job(put.clone(), now); // Refused if it is there already.
        }
    }

    /// Something happens to an open run that ends it if it waits, or lets it go on.
    fn end_waiting(
        &mut self,
        id: RunId,
        event: Event,
        successor: Option<Successor>,
        now: Timestamp,
    ) -> Result<Run, Refused> {
        let Some(mut entry) = self.open.get(&id.sequence()).cloned().filter(|entry| entry.run.id() == id)
        else {
            let ended = self.history.get(&id.sequence()).filter(|ended| ended.entry.run.id() == id);
            let mut run = ended.ok_or(Refused::NoRun)?.entry.run.clone();
            lifecycle::apply(&mut run, event)?;
            return Err(Refused::NoRun);
        };
        let before = entry.run.clone();
        lifecycle::apply(&mut entry.run, event)?;
        let mut run = entry.run.clone();
        if run.state.is_ended() {
            self.check_successor(run.job, successor)?;
            self.dequeue(&before);
            self.gates.give_back(&before, &run);
            self.open.remove(&run.sequence);
            self.end(entry, now);
            self.succeed(run.job, successor, now);
            self.release(run.job, now);
        } else {
            if before.is_asking() {
                self.dequeue(&before);
                self.enqueue(&mut entry.run, now);
                run.clone_from(&entry.run);
            }
            self.open.insert(run.sequence, entry);
        }
        Ok(run)
    }
}
