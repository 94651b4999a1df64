//! The load: creates, edits, pauses, resumes, deletes and triggers jobs while things go wrong.
//!
//! Promise: what was acknowledged, refused or left unknown is kept in the account of each job. A job is changed by one
//! client at a time. A change names the version it is for and a creation has a key, its own or that of the request, so
//! that a request whose answer was lost can be sent again, one may be sent to two nodes at once, and one that was given
//! up cannot come back later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use http::Method;
use serde_json::{Value, json};

use crate::account::{Account, Change, Target, Urls, What, id_text};
use crate::api::{Answer, Call};
use crate::cluster::Front;
use crate::receiver::now;
use crate::schedule::{Millis, Schedule, When};

/// Jobs of one request at the start.
const BULK: usize = 500;

/// How long an answer may take before its outcome counts as unknown.
const WITHIN: Duration = Duration::from_secs(3);

/// How long after the end of the load a request may still be tried: the cluster is healthy then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What all clients share.
pub(crate) struct Setting {
    pub(crate) front: Front,
    pub(crate) urls: Urls,
    pub(crate) seed: u64,
    /// When the load ends.
    pub(crate) end: Millis,
    /// One in this many repeating jobs calls back; the others discard.
    pub(crate) one_calls_in: u8,
}

/// What a client has done.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) accounts: Vec<Account>,
    pub(crate) operations: usize,
    pub(crate) unknown: usize,
    /// What cannot be, whatever fails.
    pub(crate) wrongs: Vec<String>,
    /// When creations were acknowledged.
    pub(crate) accepted: Vec<Millis>,
}

/// What is known of a request in the end.
enum Outcome {
    Done {
        answer: Answer,
        sent_at: Millis,
    },
    /// It was refused, and it was not done before either, unless it was sent before.
    Refused {
        status: u16,
        reason: String,
        sent_at: Millis,
        is_first: bool,
    },
    GivenUp {
        sent_at: Millis,
    },
    /// It was tried until long after everything was well again.
    Stuck {
        reason: String,
    },
}

impl Setting {
    fn target(&self, random: &mut Rng) -> Target {
        if random.u8(..self.one_calls_in) != 0 {
            return Target::Discard;
        }
        match random.u8(..100) {
            0..12 => Target::Faulty,
            12..17 => Target::Good("/slow"),
            17 => Target::Good("/slower"),
            18 => Target::Good("/slowest"),
            19..22 => Target::Discard,
            _ => Target::Good("/"),
        }
    }

    /// A repeating job. Most end with the load, so that what came of it can be read in peace.
    fn recurring(&self, name: String, random: &mut Rng, is_changed: bool) -> Account {
        let at = now();
        let end = match random.u8(..16) {
            0 => None,
            1 if !is_changed => Some(at + random.i64(31_000..120_000)),
            _ => Some(self.end),
        };
        let mut schedule = Schedule::recurring(random, at, end);
        while is_changed && (!is_changeable(&schedule) || schedule.max_fires.is_some()) {
            schedule = Schedule::recurring(random, at, end);
        }
        let target = self.target(random);
        Account::new(name, schedule, target, at)
    }

    /// Sends a request until its outcome is known. One that is given up is sent once.
    async fn perform(&self, call: &Call, random: &mut Rng, gives_up: bool, done: &mut Done) -> Outcome {
        let mut first_sent = None;
        let mut last = String::new();
        done.operations += 1;
        while now() < self.end + PATIENCE.as_millis() as Millis {
            let node = self.front.wait(random).await;
            let is_first = first_sent.is_none();
            let sent_at = *first_sent.get_or_insert_with(now);
            let answer = match call.is_repeatable() && random.u8(..4) == 0 {
                true => self.send_twice(node, call, random).await,
                false => self.front.api.send(node, call, WITHIN).await,
            };
            match answer {
                answer @ Answer::Done(_) => return Outcome::Done { answer, sent_at },
                // It never left.
                Answer::Refused(0, _) if is_first => first_sent = None,
                Answer::Refused(0, _) => {}
                Answer::Refused(status, reason) => {
                    return Outcome::Refused { status, reason, sent_at, is_first };
                }
                Answer::Unknown(reason) => {
                    done.unknown += usize::from(is_first);
                    if gives_up {
                        return Outcome::GivenUp { sent_at };
                    }
                    last = reason;
                }
            }
            tokio::time::sleep(Duration::from_millis(random.u64(20..200))).await;
        }
        Outcome::Stuck { reason: last }
    }

    /// Sends a request to two nodes at the same time, as an impatient client does.
    async fn send_twice(&self, node: SocketAddr, call: &Call, random: &mut Rng) -> Answer {
        let other = self.front.wait(random).await;
        let (one, two) =
            tokio::join!(self.front.api.send(node, call, WITHIN), self.front.api.send(other, call, WITHIN));
        match (one, two) {
            (done @ Answer::Done(_), _) | (_, done @ Answer::Done(_)) => done,
            (unknown @ Answer::Unknown(_), _) | (_, unknown @ Answer::Unknown(_)) => unknown,
            (Answer::Refused(0, _), refused) | (refused, Answer::Refused(..)) => refused,
        }
    }

    /// What came of the creation of a job with a key: if the key is taken, an earlier try was done.
    async fn found_by_key(&self, key: &str, outcome: Outcome, random: &mut Rng, done: &mut Done) -> Outcome {
        let Outcome::Refused { status: 409, sent_at, is_first: false, .. } = outcome else { return outcome };
        let call = Call::new(Method::GET, format!("/v1/jobs/key/{key}"));
        match self.perform(&call, random, false, done).await {
            Outcome::Done { answer, .. } => Outcome::Done { answer, sent_at },
            other => other,
        }
    }

    /// A job as a node shows it: its version, state and when it was last changed.
    async fn look(&self, id: u128, random: &mut Rng) -> Option<Value> {
        let path = format!("/v1/jobs/{}", id_text(id));
        while now() < self.end + PATIENCE.as_millis() as Millis {
            let node = self.front.wait(random).await;
            match self.front.api.get(node, &path, WITHIN).await {
                Answer::Refused(404, _) => return None,
                answer => {
                    if let Some(job) = answer.json() {
                        return Some(job);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        None
    }
}

fn is_changeable(schedule: &Schedule) -> bool {
    match schedule.when {
        When::Every { .. } | When::Cron { .. } | When::Interval { repeats: None, .. } => true,
        When::Interval { repeats: Some(_), .. } | When::Completion { .. } => false,
        When::Now | When::At(_) | When::After(_) => false,
    }
}

/// Registers the repeating jobs, before anything goes wrong. The first of them are to be changed.
pub(crate) async fn populate(setting: &Setting, jobs: usize, changed: usize) -> Result<Vec<Account>> {
    let mut random = Rng::with_seed(setting.seed);
    let mut accounts = Vec::with_capacity(jobs);
    while accounts.len() < jobs {
        let from = accounts.len();
        let size = BULK.min(jobs - from);
        let mut batch: Vec<Account> = (from..from + size)
            .map(|number| setting.recurring(format!("first-{number}"), &mut random, number < changed))
            .collect();
        let bodies: Vec<Value> =
            batch.iter().map(|account| account.body(&account.schedule, &setting.urls)).collect();
        let call =
            Call::new(Method::POST, "/v1/jobs/bulk").body(&Value::from(bodies)).once(format!("bulk-{from}"));
        let answer = loop {
            let node = setting.front.wait(&mut random).await;
            match setting.front.api.send(node, &call, Duration::from_secs(30)).await {
                answer @ Answer::Done(_) => break answer,
                Answer::Refused(0, _) | Answer::Unknown(_) => {}
                Answer::Refused(status, reason) => bail!("jobs were refused ({status}): {reason}"),
            }
        };
        let answer = answer.json().context("an answer to a bulk request")?;
        let acknowledged_at = now();
        for (number, account) in batch.iter_mut().enumerate() {
            let item = &answer["items"][number];
            account.id = id(&item["id"]);
            account.acknowledged_at = Some(acknowledged_at);
            if account.id.is_none() {
                bail!("a job was refused: {item}\n{}", account.body(&account.schedule, &setting.urls));
            }
        }
        accounts.append(&mut batch);
    }
    Ok(accounts)
}

/// Creates jobs at a steady pace: whether they are accepted is what is measured.
pub(crate) async fn create(setting: Arc<Setting>, client: u64, pace: Duration) -> Done {
    let mut random = Rng::with_seed(setting.seed ^ client.wrapping_mul(0x9e37_79b9));
    let mut done = Done::default();
    let mut ticks = tokio::time::interval(pace);
    while now() < setting.end {
        ticks.tick().await;
        let name = format!("new-{client}-{}", done.accounts.len());
        let account = match random.u8(..4) {
            0 => setting.recurring(name, &mut random, false),
            _ => {
                let schedule = Schedule::once(&mut random, now());
                Account::new(name, schedule, setting.target(&mut random), now())
            }
        };
        register(&setting, account, &mut random, &mut done).await;
    }
    done
}

async fn register(setting: &Setting, mut account: Account, random: &mut Rng, done: &mut Done) {
    let body = account.body(&account.schedule, &setting.urls);
    let call = Call::new(Method::POST, "/v1/jobs");
    let gives_up = random.u8(..10) == 0;
    let outcome = match random.bool() {
        true => {
            let call = call.body(&body).once(account.name.clone());
            setting.perform(&call, random, gives_up, done).await
        }
        false => {
            let call = call.keyed(body, &account.name);
            let outcome = setting.perform(&call, random, gives_up, done).await;
            setting.found_by_key(&account.name, outcome, random, done).await
        }
    };
    match outcome {
        Outcome::Done { answer, sent_at } => {
            let at = now();
            let job = answer.json().unwrap_or_default();
            account.id = id(&job["id"]);
            account.sent_at = sent_at;
            account.acknowledged_at = Some(at);
            done.accepted.push(at);
            let created_at = millis(&job["created_at"]);
            if created_at != account.created_at() {
                done.wrongs.push(format!("{}: the id and `created_at` differ: {job}", account.name));
            }
        }
        Outcome::Refused { status, reason, .. } => {
            // An interval or an end may have passed while it waited to be sent.
            if status != 422 {
                done.wrongs.push(format!("{} was refused ({status}): {reason}", account.name));
            }
            return;
        }
        Outcome::GivenUp { sent_at } => account.sent_at = sent_at,
        Outcome::Stuck { reason } => {
            done.wrongs.push(format!("{} could not be created: {reason}", account.name));
        }
    }
    done.accounts.push(account);
}

/// Changes jobs, one after the other, until the load ends.
pub(crate) async fn change(
    setting: Arc<Setting>,
    client: u64,
    mut jobs: Vec<Account>,
    pace: Duration,
) -> Done {
    let mut random = Rng::with_seed(setting.seed ^ client.wrapping_mul(0x51ed_2701));
    let mut done = Done::default();
    let mut ticks = tokio::time::interval(pace);
    let mut renewed = 0;
    while now() < setting.end && !jobs.is_empty() {
        ticks.tick().await;
        let place = random.usize(..jobs.len());
        step(&setting, &mut jobs[place], &mut random, &mut done).await;
        let job = &jobs[place];
        if job.is_deleted() || job.given_up.is_some() {
            done.accounts.push(jobs.swap_remove(place));
            if now() >= setting.end {
                break;
            }
            let name = format!("next-{client}-{renewed}");
            renewed += 1;
            let account = setting.recurring(name, &mut random, true);
            register(&setting, account, &mut random, &mut done).await;
            if done.accounts.last().is_some_and(|account| account.acknowledged_at.is_some()) {
                jobs.extend(done.accounts.pop());
            }
        }
    }
    done.accounts.append(&mut jobs);
    done
}

/// One thing done to a job.
async fn step(setting: &Setting, job: &mut Account, random: &mut Rng, done: &mut Done) {
    let Some(id) = job.id else { return };
    let gives_up = random.u8(..20) == 0;
    let last = job.changes.last().map(|change| change.what.clone());
    let what = match last {
        Some(What::Pause { until: Some(until) }) => {
            // It resumes by itself; nothing is done to it before that is seen.
            if now() > until + 500 {
                resumed_by_itself(setting, job, id, random).await;
            }
            return;
        }
        Some(What::Pause { until: None }) if random.u8(..8) == 0 => What::Delete,
        Some(What::Pause { until: None }) => What::Resume,
        Some(What::Delete) => return,
        Some(What::Edit(_) | What::Resume) | None => match random.u8(..20) {
            0..9 => {
                let mut next = Schedule::recurring(random, now(), job.schedule.end);
                // One that changes nothing makes no version.
                while !is_changeable(&next) || next.max_fires.is_some() || next == *job.current() {
                    next = Schedule::recurring(random, now(), job.schedule.end);
                }
                What::Edit(next)
            }
            9..12 => What::Pause { until: None },
            12..14 if !gives_up => What::Pause { until: Some(now() + random.i64(1_500..5_000)) },
            14 => What::Delete,
            _ => return trigger(setting, job, id, random, gives_up, done).await,
        },
    };
    let path = format!("/v1/jobs/{}", id_text(id));
    let call = match &what {
        What::Edit(schedule) => Call::new(Method::PUT, path).body(&job.body(schedule, &setting.urls)),
        What::Pause { until } => {
            let body = until.map_or(json!({}), |until| json!({ "until": crate::schedule::time(until) }));
            Call::new(Method::POST, format!("{path}/pause")).body(&body)
        }
        What::Resume => Call::new(Method::POST, format!("{path}/resume")),
        What::Delete => Call::new(Method::DELETE, path),
    };
    let version = job.version();
    let outcome = setting.perform(&call.of_version(version), random, gives_up, done).await;
    let (seen, sent_at) = match outcome {
        Outcome::Done { answer, sent_at } => (answer.json(), sent_at),
        // An earlier try was done, and its answer lost.
        Outcome::Refused { status: 412, sent_at, is_first: false, .. } => {
            (setting.look(id, random).await, sent_at)
        }
        Outcome::Refused { status: 404, sent_at, is_first: false, .. } if what == What::Delete => {
            (None, sent_at)
        }
        // The time to pause until, or the end of the schedule, may have passed while it was tried.
        Outcome::Refused { status: 422, is_first: false, .. } => {
            job.given_up = Some((what, now()));
            return;
        }
        Outcome::Refused { status, reason, .. } => {
            // With the end of the load its schedule ends, or has no slot before it.
            let is_ending = now() > setting.end - 25_000 && matches!(status, 409 | 422);
            if !is_ending {
                done.wrongs.push(format!("{what:?} of {} was refused ({status}): {reason}", job.name));
            }
            return;
        }
        Outcome::GivenUp { sent_at } => {
            job.given_up = Some((what, sent_at));
            return;
        }
        Outcome::Stuck { reason } => {
            done.wrongs.push(format!("{what:?} of {} could not be done: {reason}", job.name));
            job.given_up = Some((what, now()));
            return;
        }
    };
    let acknowledged_at = now();
    let decided_at = match (&what, &seen) {
        (What::Delete, _) => Some(acknowledged_at),
        (_, Some(seen)) => millis(&seen["updated_at"]),
        (_, None) => None,
    };
    let now_is = seen.as_ref().and_then(|seen| seen["version"].as_u64());
    match decided_at {
        Some(decided_at) if what == What::Delete || now_is == Some(u64::from(version) + 1) => {
            job.changes.push(Change { what, version: version + 1, decided_at, sent_at, acknowledged_at });
        }
        _ => {
            // A pause may have ended already when its answer was lost.
            let is_paused = matches!(what, What::Pause { until: Some(_) });
            if !is_paused {
                done.wrongs.push(format!("{what:?} of {} at version {version} left {seen:?}", job.name));
            }
            job.given_up = Some((what, sent_at));
        }
    }
}

async fn resumed_by_itself(setting: &Setting, job: &mut Account, id: u128, random: &mut Rng) {
    let sent_at = now();
    let Some(seen) = setting.look(id, random).await else { return };
    let version = job.version() + 1;
    let decided_at = millis(&seen["updated_at"]);
    if let (Some(decided_at), true) = (decided_at, seen["version"].as_u64() == Some(version.into())) {
        let acknowledged_at = now();
        job.changes.push(Change { what: What::Resume, version, decided_at, sent_at, acknowledged_at });
    }
}

async fn trigger(
    setting: &Setting,
    job: &mut Account,
    id: u128,
    random: &mut Rng,
    gives_up: bool,
    done: &mut Done,
) {
    let key = format!("{}-{}-{}", job.name, job.triggered.len(), random.u64(..));
    let call =
        Call::new(Method::POST, format!("/v1/jobs/{}/trigger", id_text(id))).body(&json!({})).once(key);
    match setting.perform(&call, random, gives_up, done).await {
        Outcome::Done { answer, .. } => {
            let run = answer.json().and_then(|run| self::id(&run["id"]));
            match run {
                Some(run) => job.triggered.push(run),
                None => done.wrongs.push(format!("a trigger of {} gave no run: {answer:?}", job.name)),
            }
        }
        Outcome::Refused { status, reason, .. } => {
            done.wrongs.push(format!("a trigger of {} was refused ({status}): {reason}", job.name));
        }
        Outcome::GivenUp { .. } => job.triggers_given_up += 1,
        Outcome::Stuck { reason } => {
            done.wrongs.push(format!("{} could not be triggered: {reason}", job.name));
            job.triggers_given_up += 1;
        }
    }
}

/// An id in an answer.
pub(crate) fn id(value: &Value) -> Option<u128> {
    value.as_str()?.parse::<uuid::Uuid>().ok().map(|id| id.as_u128())
}

/// A time in an answer.
pub(crate) fn millis(value: &Value) -> Option<Millis> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}
