//! Reads what came of it, from the nodes, as anybody could.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::account::id_text;
use crate::api::Answer;
use crate::cluster::Front;
use crate::schedule::{Millis, time};

/// A time in an answer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Cow<'_, str>")]
struct Time(Millis);

impl TryFrom<Cow<'_, str>> for Time {
    type Error = jiff::Error;

    fn try_from(text: Cow<'_, str>) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|at| Time(at.as_millisecond()))
    }
}

/// An id in an answer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Cow<'_, str>")]
struct Id(u128);

impl TryFrom<Cow<'_, str>> for Id {
    type Error = uuid::Error;

    fn try_from(text: Cow<'_, str>) -> Result<Self, uuid::Error> {
        text.parse::<uuid::Uuid>().map(|id| Id(id.as_u128()))
    }
}

/// A run as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: u128,
    pub(crate) job: u128,
    pub(crate) version: u32,
    pub(crate) cause: Cause,
    pub(crate) slot: Millis,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    pub(crate) started_at: Option<Millis>,
    pub(crate) finished_at: Option<Millis>,
}

impl Run {
    /// When it was born, as its id says.
    pub(crate) fn born_at(&self) -> Millis {
        (self.id >> 80) as Millis
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Schedule,
    Trigger,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Pending,
    Running,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
}

impl State {
    pub(crate) fn is_open(self) -> bool {
        matches!(self, State::Pending | State::Running)
    }
}

/// A job as it is listed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    id: Id,
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) state: String,
    updated_at: Time,
}

impl Job {
    pub(crate) fn id(&self) -> u128 {
        self.id.0
    }

    pub(crate) fn updated_at(&self) -> Millis {
        self.updated_at.0
    }
}

/// Slots that did not run, and why.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LedgerEntry {
    from: Time,
    to: Time,
    pub(crate) state: String,
    pub(crate) reason: String,
    decided_at: Time,
}

impl LedgerEntry {
    pub(crate) fn contains(&self, slot: Millis) -> bool {
        (self.from.0..=self.to.0).contains(&slot)
    }

    pub(crate) fn decided_at(&self) -> Millis {
        self.decided_at.0
    }
}

/// What is known of a job's ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ledger<'a> {
    /// It was not read.
    Unread,
    /// Nobody can read it: the job is deleted.
    Gone,
    /// All of it.
    Read(&'a [LedgerEntry]),
}

/// An attempt of a run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) outcome: Option<String>,
    claimed_at: Time,
    pub(crate) error: Option<Reason>,
}

impl Attempt {
    pub(crate) fn claimed_at(&self) -> Millis {
        self.claimed_at.0
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What is asked for is not there.
#[derive(Debug)]
struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is not there")
    }
}

impl std::error::Error for Gone {}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct WireRun {
    id: Id,
    job_id: Id,
    job_version: u32,
    cause: String,
    scheduled_for: Time,
    state: State,
    attempt: u32,
    started_at: Option<Time>,
    finished_at: Option<Time>,
}

impl From<WireRun> for Run {
    fn from(run: WireRun) -> Self {
        Run {
            id: run.id.0,
            job: run.job_id.0,
            version: run.job_version,
            cause: match run.cause.as_str() {
                "schedule" => Cause::Schedule,
                "trigger" => Cause::Trigger,
                _ => Cause::Other,
            },
            slot: run.scheduled_for.0,
            state: run.state,
            attempt: run.attempt,
            started_at: run.started_at.map(|at| at.0),
            finished_at: run.finished_at.map(|at| at.0),
        }
    }
}

#[derive(Deserialize)]
struct WireDetail {
    attempts: Vec<Attempt>,
}

/// Requests at a time.
const AT_ONCE: usize = 4;

/// Runs are read by the time of their birth, so much at a time.
const STRETCH: Millis = 20_000;

/// A page of a thousand is quick, unless the machine is busy.
const WITHIN: Duration = Duration::from_secs(30);

/// How often a read is tried: the cluster is healthy by then.
const TRIES: usize = 30;

/// Reads from whichever node answers.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) front: Front,
}

impl Reader {
    /// All runs born since.
    pub(crate) async fn runs(&self, from: Millis, to: Millis) -> Result<Vec<Run>> {
        let mut stretches: Vec<Millis> =
            (0..).map(|n| from + n * STRETCH).take_while(|at| *at < to).collect();
        let (mut runs, mut reads) = (Vec::new(), JoinSet::new());
        loop {
            while reads.len() < AT_ONCE
                && let Some(at) = stretches.pop()
            {
                let reader = self.clone();
                let path = format!("/v1/runs?from={}&to={}", time(at), time((at + STRETCH).min(to)));
                reads.spawn(async move { reader.list::<WireRun>(&path).await });
            }
            let Some(read) = reads.join_next().await else { return Ok(runs) };
            runs.extend(read.context("a read broke off")??.into_iter().map(Run::from));
        }
    }

    /// The newest runs, one page; nothing if nobody answers.
    pub(crate) async fn newest(&self, random: &mut Rng) -> Option<Vec<Run>> {
        let node = self.front.pick(random)?;
        let answer = self.front.api.get(node, "/v1/runs?limit=1000", Duration::from_secs(5)).await;
        let Answer::Done(text) = answer else { return None };
        let page: Page<WireRun> = serde_json::from_slice(&text).ok()?;
        Some(page.items.into_iter().map(Run::from).collect())
    }

    /// All jobs, by id.
    pub(crate) async fn jobs(&self) -> Result<HashMap<u128, Job>> {
        let jobs = self.list::<Job>("/v1/jobs").await?;
        Ok(jobs.into_iter().map(|job| (job.id(), job)).collect())
    }

    /// The slots of jobs that did not run; nothing for jobs that are deleted, whose ledger nobody can read.
    pub(crate) async fn ledgers(&self, jobs: Vec<u128>) -> Result<HashMap<u128, Option<Vec<LedgerEntry>>>> {
        self.each(jobs, |reader, job| async move {
            match reader.list(&format!("/v1/jobs/{}/ledger", id_text(job))).await {
                Ok(entries) => Ok(Some(entries)),
                Err(error) if error.is::<Gone>() => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The attempts of runs.
    pub(crate) async fn attempts(&self, runs: Vec<u128>) -> Result<HashMap<u128, Vec<Attempt>>> {
        self.each(runs, |reader, run| async move {
            let detail: WireDetail = reader.one(&format!("/v1/runs/{}", id_text(run))).await?;
            Ok(detail.attempts)
        })
        .await
    }

    async fn each<T: Send + 'static, F>(
        &self,
        mut ids: Vec<u128>,
        read: impl Fn(Reader, u128) -> F,
    ) -> Result<HashMap<u128, T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (mut all, mut reads) = (HashMap::with_capacity(ids.len()), JoinSet::new());
        loop {
            while reads.len() < 4 * AT_ONCE
                && let Some(id) = ids.pop()
            {
                let reading = read(self.clone(), id);
                reads.spawn(async move { (id, reading.await) });
            }
            let Some(read) = reads.join_next().await else { return Ok(all) };
            let (id, value) = read.context("a read broke off")?;
            all.insert(id, value?);
        }
    }

    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page: Page<T> = self.one(&format!("{path}{mark}limit=1000{cursor}")).await?;
            items.extend(page.items);
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(items),
            }
        }
    }

    async fn one<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let mut random = Rng::new();
        let mut last = String::new();
        for _ in 0..TRIES {
            let node = self.front.wait(&mut random).await;
            match self.front.api.get(node, path, WITHIN).await {
                Answer::Done(text) => {
                    return serde_json::from_slice(&text).with_context(|| format!("read {path}"));
                }
                Answer::Refused(0, reason) | Answer::Unknown(reason) => last = reason,
                Answer::Refused(404, _) => return Err(Gone.into()),
                Answer::Refused(status, reason) => bail!("{path}: {status} {reason}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{path}: {last}")
    }
}
