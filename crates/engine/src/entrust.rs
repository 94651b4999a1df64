//! Attempts that were answered and are reported later, by their receivers.
//!
//! Runs when a worker reports such an answer, and when a receiver heartbeats or reports under its token. Promise: an attempt is entrusted
//! in one commit, and is nobody's work on this node from then on; a token ends the attempt that it names and no other, once; whoever
//! comes second, the report or the end of the lease, is refused by the store.

use jiff::Timestamp;
use punctual_domain::attempt::Report;
use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::job::Target;
use punctual_domain::lifecycle::{self, Verdict};
use punctual_domain::papers::{Line, Progress};
use punctual_domain::run::{Run, RunState};
use punctual_domain::token::{Key, Token};
use punctual_domain::work::{Finished, Held, Leased};
use punctual_domain::{Note, Outcome, Receiver};
use punctual_store::{Conclusion, Refused};

use crate::engine::Engine;
use crate::error::Error;
use crate::pull::{End, finish};

/// A report that meets the moment in which its attempt goes from the worker to the receiver is taken with the next try.
const TRIES: usize = 5;

/// What a receiver says of its attempt with a sign of life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saying {
    /// How far it is.
    pub progress: Option<Progress>,
    /// Where the next attempt goes on, as JSON text.
    pub checkpoint: Option<Box<str>>,
    /// What happened.
    pub lines: Vec<String>,
}

/// What a receiver is told in return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The attempt is its own until then, unless it is heard of again.
    Until(Timestamp),
    /// Somebody asked it to stop, and the run has ended.
    Cancelled,
}

/// The receiver that goes on with an attempt, if that was answered and its job lets receivers report.
fn receiver(finished: &Finished) -> Option<(WorkerId, Timestamp)> {
    let (job, run) = (&finished.job, &finished.run);
    let report = finished.report.as_ref().filter(|report| report.outcome == Outcome::Succeeded)?;
    matches!(job.spec.target, Target::Http(_)).then_some(())?;
    let terms = Receiver::of(&job.spec.policies, run, report.started_at)?;
    Some((terms.id(Held::from(run)), report.started_at))
}

impl Engine {
    /// Sets what tokens are signed with: the same on all nodes.
    pub fn set_token_key(&self, key: Key) {
        // Who sets it twice has the first.
        let _ = self.token_key.set(key);
    }

    /// Records what workers report. An attempt whose receiver has answered and reports later goes on. The answer is the run as it is now,
    /// or why the report was refused.
    pub async fn complete(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, Refused>>, Error> {
        let are_entrusted: Vec<bool> = finished.iter().map(|one| receiver(one).is_some()).collect();
        if !are_entrusted.contains(&true) {
            return self.conclude(finished).await;
        }
        let (entrusted, over): (Vec<_>, Vec<_>) =
            finished.into_iter().partition(|one| receiver(one).is_some());
        let mut entrusted = self.entrust(entrusted).await?.into_iter();
        let mut over = if over.is_empty() { Vec::new() } else { self.conclude(over).await? }.into_iter();
        let answer = |is_entrusted| if is_entrusted { entrusted.next() } else { over.next() };
        Ok(are_entrusted.into_iter().filter_map(answer).collect())
    }

    /// Leaves attempts to their receivers.
    async fn entrust(&self, answered: Vec<Finished>) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.note_reported(&answered);
        let now = self.clock.now();
        let conclusions = answered.iter().filter_map(|one| {
            let (receiver, started_at) = receiver(one)?;
            Some(Conclusion {
                worker: one.worker,
                held: Held::from(&one.run),
                report: None,
                verdict: Verdict::Entrust { receiver, started_at },
                successor: None,
                messages: Vec::new(),
                limits: None,
            })
        });
        let recorded = self.heard(self.store.complete(conclusions.collect(), now)).await?;
        let (mut answers, mut known) = (Vec::with_capacity(answered.len()), Vec::new());
        for (mut one, answer) in answered.into_iter().zip(recorded) {
            answers.push(match answer {
                Ok(concluded) => {
                    let run = concluded.run;
                    tracing::debug!(
                        job_id = %run.job,
                        run_id = %run.id(),
                        attempt = run.attempt,
                        correlation_id = run.correlation_id.as_deref(),
                        "waits for its report"
                    );
                    self.begin_lease(&run, now).await;
                    known.push(one);
                    Ok(run)
                }
                // Somebody asked it to stop since it was claimed: it ends here, and its receiver hears of it.
                Err(Refused::Lifecycle(lifecycle::Refused::AskedToStop)) => {
                    one.run.is_cancel_requested = true;
                    one.report = one.report.map(cancelled);
                    self.conclude(vec![one]).await?.pop().unwrap_or(Err(Refused::NoRun))
                }
                Err(refused) => Err(refused),
            });
        }
        self.note_recorded(&known).await;
        Ok(answers)
    }

    /// The first sign of life of a receiver is its answer. Of one that is not known the time begins when it is first looked for, so that
    /// nothing is lost if this fails.
    async fn begin_lease(&self, run: &Run, now: Timestamp) {
        let Some(lease) = run.lease() else { return };
        let must_be_heard = lease.worker.receiver().is_some_and(|terms| terms.heartbeat.is_some());
        if must_be_heard
            && let Err(error) = self.store.heartbeat(lease.worker, vec![Held::from(run)], now).await
        {
            tracing::debug!(%error, run_id = %run.id(), "the lease of a receiver begins when it is looked at");
        }
    }

    /// What a token says that was given out for an attempt of this run, and whose time is not over.
    fn token(&self, run: RunId, text: &str) -> Result<Token, Error> {
        let key = self.token_key.get().ok_or(punctual_domain::token::Refused::Invalid)?;
        let token = key.read(text, self.clock.now())?;
        if token.run != run {
            return Err(Error::TokenOfAnotherRun(run));
        }
        Ok(token)
    }

    /// Whether a token was given out for an attempt of this run, and its time is not over. Asks no store.
    pub fn check_token(&self, run: RunId, text: &str) -> Result<(), Error> {
        self.token(run, text).map(|_| ())
    }

    /// A sign of life of a receiver, with what it says of its attempt.
    pub async fn hear(&self, id: RunId, token: &str, saying: Saying) -> Result<Heard, Error> {
        let token = self.token(id, token)?;
        let (now, held) = (self.clock.now(), token.held());
        let beat = self.store.heartbeat(token.receiver, vec![held], now).await?;
        let mut holds = token.receiver;
        let mut is_asked_to_stop = beat.cancelled.contains(&held);
        if beat.is_refused || beat.not_held.contains(&held) {
            // Its answer may be on its way to the store; or the attempt is over.
            let run = self.store.run(id).await?.map(|detail| detail.run);
            let lease = run.as_ref().and_then(Run::lease).filter(|lease| lease.attempt == token.attempt);
            match lease {
                Some(lease) if lease.worker != token.receiver || !beat.is_refused => holds = lease.worker,
                _ => return over(&token, run.as_ref()),
            }
            is_asked_to_stop = run.is_some_and(|run| run.is_cancel_requested);
        }
        if is_asked_to_stop && holds == token.receiver {
            let run = self.store.run(id).await?.map(|detail| detail.run);
            self.end_stopped(run.as_ref()).await?;
            return Ok(Heard::Cancelled);
        }
        let Saying { progress, checkpoint, lines } = saying;
        if progress.is_some() || checkpoint.is_some() || !lines.is_empty() {
            let lines = lines.into_iter().map(|text| Line { at: now, text }).collect();
            let note = Note { worker: holds, held, progress, checkpoint, lines };
            if let Some(Err(_)) = self.note(vec![note]).await?.pop() {
                return over(&token, None);
            }
        }
        let terms = token.receiver.receiver();
        Ok(Heard::Until(terms.map_or(now, |terms| terms.until(now))))
    }

    /// Takes the report of a receiver. The answer is the run as it is now.
    pub async fn report_by_token(&self, id: RunId, token: &str, end: End) -> Result<Run, Error> {
        let token = self.token(id, token)?;
        for _ in 0..TRIES {
            let Some(run) = self.store.run(id).await?.map(|detail| detail.run) else {
                return Err(attempt_over(&token, None));
            };
            let lease = run.lease().filter(|lease| lease.attempt == token.attempt);
            let Some(lease) = lease else { return Err(attempt_over(&token, Some(&run))) };
            let Some(leased) = self.with_job(run).await? else { return Err(attempt_over(&token, None)) };
            let finished = finish(lease.worker, leased, Some(end.clone()), self.clock.now());
            match self.conclude(vec![finished]).await?.pop() {
                Some(Ok(run)) => return Ok(run),
                // It went from the worker to the receiver in between, or has ended.
                Some(Err(Refused::Lifecycle(_) | Refused::NoRun)) => {}
                Some(Err(refused)) => {
                    let reason = format!("try again: {refused}");
                    return Err(Error::Store(punctual_store::Error::Unavailable { reason }));
                }
                None => break,
            }
        }
        Err(attempt_over(&token, None))
    }

    /// Ends runs that receivers hold and somebody asked to stop; says how they stand now. A receiver hears of it with its next sign of
    /// life. What is not ended here, because the node is killed, ends then, or with the lease.
    pub(crate) async fn end_stopped(&self, runs: impl IntoIterator<Item = &Run>) -> Result<Vec<Run>, Error> {
        let now = self.clock.now();
        let mut stopped = Vec::new();
        for run in runs.into_iter().filter(|run| run.is_cancel_requested && run.receiver().is_some()) {
            let Some(lease) = run.lease() else { continue };
            let Some(leased) = self.with_job(run.clone()).await? else { continue };
            let report = Some(cancelled(Report::lost(lease.claimed_at, now)));
            stopped.push(Finished { worker: lease.worker, run: leased.run, job: leased.job, report });
        }
        match stopped.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(self.conclude(stopped).await?.into_iter().flatten().collect()),
        }
    }

    /// A run with its job in the version it was fired with.
    pub(crate) async fn with_job(&self, run: Run) -> Result<Option<Leased>, Error> {
        let version = [(run.job, run.version)];
        let job = self.bodies.of(&*self.store, &self.metrics, &version).await?.into_iter().next().flatten();
        Ok(job.map(|job| Leased { run, job, checkpoint: None }))
    }
}

/// The same attempt, stopped because somebody asked.
fn cancelled(report: Report) -> Report {
    Report { outcome: Outcome::Cancelled, error: None, output: None, is_unknown: false, ..report }
}

/// What whoever gives a sign of life for an attempt that is over is told.
fn over(token: &Token, run: Option<&Run>) -> Result<Heard, Error> {
    match run {
        Some(run) if run.state == RunState::Cancelled && run.attempt == token.attempt => Ok(Heard::Cancelled),
        run => Err(attempt_over(token, run)),
    }
}

fn attempt_over(token: &Token, run: Option<&Run>) -> Error {
    let state = run.map_or("at another attempt", |run| run.state.as_str());
    Error::AttemptOver { run: token.run, attempt: token.attempt, state }
}
