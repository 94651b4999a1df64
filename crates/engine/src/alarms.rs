//! Alarms: raised, told, counted while they go on, told again, and ended.
//!
//! The duty runs within a second of a notice, and every few seconds while there are alerts. What was noticed on this node becomes alarms; what
//! can be told from what is stored is looked for by the owner of the job's shard, whatever was noticed. Promise: an alarm is one document, and
//! who writes it first has raised it; a message has a key that follows from its alarm, so that a crash between the two neither loses
//! nor doubles it. Every pass is bounded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::alert::{self, ALARMS_MAX, Alarm, Alert, Seen, Step, Subject, TENANT_ALARMS_MAX};
use punctual_domain::document::Kind;
use punctual_domain::id::{JobId, ShardId, TenantId};
use punctual_store::record::{decode_alarm, encode_alarm};
use punctual_store::{DocumentChange, Expected, Refused};
use tokio::sync::watch;

use crate::alerts::{About, Noticed, PAGE};
use crate::engine::Engine;
use crate::error::Error;
use crate::fire::Epochs;
use crate::pass::{Duty, Next};
use crate::unwell::Rounds;

/// What was noticed is told no later than this, and no sooner after the pass before.
const FLUSH: SignedDuration = SignedDuration::from_secs(1);

/// How often what is stored is looked at.
pub(crate) const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// How often the count of an alarm is written: a job that fails a thousand times a second is not written as often.
const COUNT_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// Alarms of all alerts together that are looked after.
const HELD_MAX: usize = 100_000;

/// Jobs that are looked at in a pass, each by a few reads.
pub(crate) const CHECKS: usize = 200;

/// Messages of a pass: they share a commit.
const TOLD: usize = 200;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarmed {
    /// Alarms that were raised.
    pub raised: usize,
    /// Messages that were registered.
    pub told: usize,
    /// Alarms that are gone.
    pub ended: usize,
    /// There is more to do.
    pub has_more: bool,
    /// When the next alarm is told again.
    pub next_at: Option<Timestamp>,
}

/// An alarm and its document.
pub(crate) struct Held {
    alarm: Alarm,
    version: u64,
    written_at: Timestamp,
    /// It has changed since it was read.
    is_changed: bool,
    /// It is taken away.
    is_gone: bool,
    /// This node has just raised it.
    is_mine: bool,
}

/// All alarms, by tenant and the name of their document.
pub(crate) type Alarms = BTreeMap<(TenantId, String), Held>;

impl Engine {
    /// Looks after alarms. Call again while it says that there is more.
    pub async fn look_after_alarms(&self, epochs: &Epochs, rounds: &mut Rounds) -> Result<Alarmed, Error> {
        let now = self.clock.now();
        let alerts = self.alerts.all();
        let mut alarms = self.read_alarms().await?;
        let noticed = std::mem::take(&mut *self.alerts.noticed());
        let kept: Vec<(About, Seen)> =
            noticed.unwell.iter().map(|(about, seen)| (about.clone(), seen.clone())).collect();
        let well = noticed.well.clone();
        let done = self.alarm_pass(epochs, rounds, &alerts, &mut alarms, noticed, now).await;
        if done.is_err() {
            // What was noticed is told when the store is there again.
            let mut noticed = self.alerts.noticed();
            kept.into_iter().for_each(|(about, seen)| noticed.add(about, seen));
            noticed.well.extend(well);
        }
        let jobs = alarms.values().filter(|held| !held.is_gone).filter_map(|held| match held.alarm.subject {
            Subject::Job(job) => Some(job),
            Subject::Breaker(_) | Subject::Rest => None,
        });
        *self.alerts.raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = jobs.collect();
        done
    }

    async fn alarm_pass(
        &self,
        epochs: &Epochs,
        rounds: &mut Rounds,
        alerts: &[Alert],
        alarms: &mut Alarms,
        mut noticed: Noticed,
        now: Timestamp,
    ) -> Result<Alarmed, Error> {
        let mut done = Alarmed::default();
        let by_name: HashMap<(TenantId, &str), &Alert> =
            alerts.iter().map(|alert| ((alert.tenant, alert.name.as_str()), alert)).collect();
        self.see_dead_letters(epochs, rounds, alerts, alarms, &mut noticed, now).await?;
        self.see_silence(epochs, rounds, alerts, alarms, &mut noticed, now).await?;
        self.see_breakers(epochs, alerts, alarms, &mut noticed, now).await?;
        done.raised = self.raise_alarms(&by_name, alarms, noticed.unwell, now);
        self.write_alarms(alarms, now).await?;
        done.has_more = self.end_alarms(epochs, rounds, &by_name, alarms, &noticed.well, now).await?;
        self.write_alarms(alarms, now).await?;
        self.tell_alarms(epochs, &by_name, alarms, &mut done, now).await?;
        done.ended = self.write_alarms(alarms, now).await?;
        rounds.checked.retain(|name, _| alarms.contains_key(name));
        Ok(done)
    }

    async fn read_alarms(&self) -> Result<Alarms, Error> {
        let (mut alarms, mut after) = (Alarms::new(), None);
        while alarms.len() < HELD_MAX {
            let page = self.store.documents(Kind::Alarm, None, after, PAGE).await?;
            after = page.last().map(|last| (last.tenant, last.name.clone()));
            for document in &page {
                match decode_alarm(document) {
                    Ok(alarm) => {
                        let held = Held {
                            alarm,
                            version: document.version,
                            written_at: document.updated_at,
                            is_changed: false,
                            is_gone: false,
                            is_mine: false,
                        };
                        alarms.insert((document.tenant, document.name.clone()), held);
                    }
                    Err(error) => tracing::warn!(alarm = document.name, %error, "an alarm cannot be read"),
                }
            }
            if page.len() < PAGE {
                break;
            }
        }
        Ok(alarms)
    }

    /// New alarms, and those that go on. What cannot be written yet is noticed again.
    fn raise_alarms(
        &self,
        alerts: &HashMap<(TenantId, &str), &Alert>,
        alarms: &mut Alarms,
        unwell: HashMap<About, Seen>,
        now: Timestamp,
    ) -> usize {
        let mut counts: HashMap<(TenantId, String), usize> = HashMap::new();
        let mut of_tenants: HashMap<TenantId, usize> = HashMap::new();
        for held in alarms.values() {
            *counts.entry((held.alarm.tenant, held.alarm.alert.clone())).or_default() += 1;
            *of_tenants.entry(held.alarm.tenant).or_default() += 1;
        }
        let (mut raised, mut again) = (0, Vec::new());
        for ((tenant, name, mut subject), seen) in unwell {
            let Some(alert) = alerts.get(&(tenant, name.as_str())) else { continue };
            let of_alert = counts.entry((tenant, name.clone())).or_default();
            let is_known = alarms.contains_key(&(tenant, alert::document(&name, &subject)));
            let of_tenant = of_tenants.entry(tenant).or_default();
            if !is_known && (*of_alert >= ALARMS_MAX || *of_tenant >= TENANT_ALARMS_MAX) {
                subject = Subject::Rest;
            }
            let place = (tenant, alert::document(&name, &subject));
            match alarms.get_mut(&place) {
                None => {
                    let seen = match subject {
                        Subject::Rest => Seen { name: "and more".into(), ..seen },
                        Subject::Job(_) | Subject::Breaker(_) => seen,
                    };
                    let alarm = Alarm::raise(alert, subject, seen);
                    let held = Held {
                        alarm,
                        version: 0,
                        written_at: now,
                        is_changed: true,
                        is_gone: false,
                        is_mine: true,
                    };
                    alarms.insert(place, held);
                    *of_alert += 1;
                    *of_tenant += 1;
                    raised += 1;
                }
                // It ends in this pass or the next; then it is raised anew.
                Some(held) if held.alarm.over_at.is_some() => again.push(((tenant, name, subject), seen)),
                Some(held) if held.written_at + COUNT_EVERY > now && !held.is_changed => {
                    again.push(((tenant, name, subject), seen));
                }
                Some(held) => {
                    held.alarm.see(seen);
                    held.is_changed = true;
                }
            }
        }
        let mut noticed = self.alerts.noticed();
        again.into_iter().for_each(|(about, seen)| noticed.add(about, seen));
        raised
    }

    /// Ends what is over. Says whether some were left to the next pass.
    async fn end_alarms(
        &self,
        epochs: &Epochs,
        rounds: &mut Rounds,
        alerts: &HashMap<(TenantId, &str), &Alert>,
        alarms: &mut Alarms,
        well: &HashSet<JobId>,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let mut due: Vec<(Option<Timestamp>, (TenantId, String))> = Vec::new();
        for (place, held) in alarms.iter_mut() {
            let Held { alarm, is_gone, is_changed, .. } = held;
            if alarm.over_at.is_some() || !epochs.contains(self.shard_of_alarm(place.0, &place.1)) {
                continue;
            }
            let alert = alerts.get(&(alarm.tenant, alarm.alert.as_str()));
            if alert.is_none_or(|alert| alert.on.as_str() != alarm.on) {
                *is_gone = true; // Nobody wants to hear of it any more.
                continue;
            }
            let is_over = match &alarm.subject {
                Subject::Breaker(name) => self.is_closed(name),
                Subject::Rest => alarm.last_at + alert::QUIET <= now,
                Subject::Job(id) => {
                    let checked = rounds.checked.get(place).copied();
                    if checked.is_none_or(|at| at + LOOK_EVERY <= now) || well.contains(id) {
                        due.push((checked, place.clone()));
                    }
                    continue;
                }
            };
            if is_over {
                alarm.over_at = Some(now);
                *is_changed = true;
            }
        }
        // The one that was looked at longest ago is the first, so that everybody's turn comes.
        due.sort_unstable();
        let has_more = due.len() > CHECKS;
        for (_, place) in due.into_iter().take(CHECKS) {
            let Some(Held { alarm, is_changed, .. }) = alarms.get_mut(&place) else { continue };
            let alert = alerts.get(&(alarm.tenant, alarm.alert.as_str()));
            let (Some(alert), Subject::Job(id)) = (alert, &alarm.subject) else { continue };
            rounds.checked.insert(place, now);
            let is_over = match self.facts(*id, alert.on, now).await? {
                Some((_, facts)) => alert::is_over(alert, alarm, &facts, now),
                None => true, // The job is gone.
            };
            if is_over {
                alarm.over_at = Some(now);
                *is_changed = true;
            }
        }
        Ok(has_more)
    }

    /// Registers messages, then says in their alarms that they were told.
    async fn tell_alarms(
        &self,
        epochs: &Epochs,
        alerts: &HashMap<(TenantId, &str), &Alert>,
        alarms: &mut Alarms,
        done: &mut Alarmed,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (mut puts, mut places, mut due) = (Vec::new(), Vec::new(), Vec::new());
        for (place, held) in alarms.iter().filter(|(_, held)| !held.is_gone) {
            let alert = alerts.get(&(held.alarm.tenant, held.alarm.alert.as_str()));
            let is_ours = held.is_mine || epochs.contains(self.shard_of_alarm(place.0, &place.1));
            let Some(alert) = alert.filter(|_| is_ours) else { continue };
            let step = held.alarm.step(alert.repeat_every, now);
            if let Step::Wait(until) = step {
                done.next_at = Some(done.next_at.map_or(until, |at| at.min(until)));
                continue;
            }
            due.push((place, held, *alert, step));
        }
        // What was told longest ago, or never, goes first: one who is told of much and often keeps nobody waiting for ever.
        due.sort_by_key(|(_, held, ..)| held.alarm.told_at);
        done.has_more |= due.len() > TOLD;
        for (place, held, alert, step) in due.into_iter().take(TOLD) {
            let tenant = self.tenant_name(alert.tenant).await?;
            puts.push(self.alarm_message(alert, &held.alarm, step, &tenant, now));
            places.push((place.clone(), step));
        }
        if puts.is_empty() {
            return Ok(());
        }
        let answers = self.heard(self.store.put_jobs(puts, now)).await?;
        self.told(false);
        for ((place, step), answer) in places.into_iter().zip(answers) {
            let Some(held) = alarms.get_mut(&place) else { continue };
            // A message with this key was registered before, by whoever could not write it down.
            if !matches!(answer, Ok(()) | Err(Refused::KeyTaken { .. })) {
                continue;
            }
            done.told += usize::from(answer.is_ok());
            tracing::info!(alert = held.alarm.alert, subject = %held.alarm.subject, ?step, "alarm");
            held.is_changed = true;
            match step {
                Step::TellOver => held.is_gone = true,
                Step::Tell | Step::Wait(_) => {
                    held.alarm.tell(now);
                    // That it is over is told next.
                    done.has_more |= held.alarm.over_at.is_some();
                }
            }
        }
        Ok(())
    }

    /// Writes alarms that have changed. What somebody else changed meanwhile is left to him. Says how many are gone.
    async fn write_alarms(&self, alarms: &mut Alarms, now: Timestamp) -> Result<usize, Error> {
        let (mut changes, mut places) = (Vec::new(), Vec::new());
        for (place, held) in alarms.iter().filter(|(_, held)| held.is_changed || held.is_gone) {
            let expect = match held.version {
                0 => Expected::Absent,
                version => Expected::Version(version),
            };
            let body = match held.is_gone {
                true => None,
                false => Some(encode_alarm(&held.alarm)?),
            };
            let (tenant, name) = place.clone();
            changes.push(DocumentChange { kind: Kind::Alarm, tenant, name, expect, body, audit: None });
            places.push(place.clone());
        }
        if changes.is_empty() {
            return Ok(0);
        }
        let answers = self.heard(self.store.put_documents(changes, now)).await?;
        let mut ended = 0;
        for (place, answer) in places.into_iter().zip(answers) {
            match (answer, alarms.get_mut(&place)) {
                (Ok(Some(document)), Some(held)) => {
                    held.version = document.version;
                    held.written_at = now;
                    held.is_changed = false;
                }
                (Ok(None), _) => {
                    alarms.remove(&place);
                    ended += 1;
                }
                (Err(_), Some(held)) => {
                    // Somebody else raised it first: what was seen here is counted there.
                    if held.version == 0 {
                        let Alarm { tenant, alert, subject, name, last_at, count, detail, .. } =
                            held.alarm.clone();
                        let seen = Seen { name, last_at, count, detail };
                        self.alerts.noticed().add((tenant, alert, subject), seen);
                    }
                    alarms.remove(&place);
                }
                (_, None) => {}
            }
        }
        Ok(ended)
    }

    /// Who owns this shard looks after the alarm.
    pub(crate) fn shard_of_alarm(&self, tenant: TenantId, document: &str) -> ShardId {
        ShardId::of(tenant, document, self.store.shard_count())
    }
}

/// The duty.
pub(crate) struct Alarming {
    engine: Arc<Engine>,
    epochs: watch::Receiver<Arc<Epochs>>,
    rounds: Rounds,
    /// When the alerts were last read.
    read_at: Option<Timestamp>,
    last_pass: Option<Timestamp>,
}

impl Alarming {
    pub(crate) fn new(engine: Arc<Engine>, epochs: watch::Receiver<Arc<Epochs>>) -> Self {
        Alarming { engine, epochs, rounds: Rounds::default(), read_at: None, last_pass: None }
    }
}

#[async_trait]
impl Duty for Alarming {
    const NAME: &'static str = "alarms";

    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error> {
        let is_shared = self.engine.store.is_shared();
        let is_old = |at: Timestamp| is_shared && at + LOOK_EVERY <= now;
        if self.read_at.is_none_or(is_old) {
            self.engine.read_alerts().await?;
            self.read_at = Some(now);
        }
        let is_changed = self.engine.alerts.is_changed.swap(false, Ordering::AcqRel);
        // Alarms of an alert that was taken away are looked for once.
        if self.engine.alerts.all().is_empty() && !is_changed {
            return Ok(match is_shared {
                true => Next::At(now + LOOK_EVERY),
                false => Next::Woken,
            });
        }
        if let Some(at) = self.last_pass.filter(|at| *at + FLUSH > now && *at <= now && !is_changed) {
            return Ok(Next::At(at + FLUSH));
        }
        self.last_pass = Some(now);
        let epochs = Arc::clone(&self.epochs.borrow());
        let done = self.engine.look_after_alarms(&epochs, &mut self.rounds).await?;
        let soon = done.has_more || !self.engine.alerts.noticed().unwell.is_empty();
        let next = if soon { now + FLUSH } else { now + LOOK_EVERY };
        Ok(Next::At(done.next_at.map_or(next, |at| at.clamp(now + FLUSH, next))))
    }
}
