//! Completes attempts: records what a worker reports and decides what follows.
//!
//! Runs when a worker reports, gives an attempt back, or is found dead. Promise: one outcome per run; a stale
//! report is refused; a retry, its delay and the end are decided by the same code whoever reports.

use std::time::Instant;

use jiff::Timestamp;
use punctual_domain::id::JobId;
use punctual_domain::job::Job;
use punctual_domain::lifecycle::{self, Charge, Verdict};
use punctual_domain::policy::retry;
use punctual_domain::run::{Limit, Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_store::{Concluded, Conclusion, Due, Held, Refused, Successor};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::{counts_from_completion, slot_after_completion};
use crate::register::due;

/// A conclusion that meets a change of its job is tried again this often.
const TRIES: usize = 5;

impl Engine {
    /// Records finished attempts. The answer is the run as it is now, or why the report was refused.
    pub async fn complete(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, Refused>>, Error> {
        let mut answers: Vec<Option<Result<Run, Refused>>> = vec![None; finished.len()];
        let mut open: Vec<(usize, Finished)> = finished.into_iter().enumerate().collect();
        for _ in 0..TRIES {
            let now = self.clock.now();
            let mut conclusions = Vec::with_capacity(open.len());
            for (_, one) in &open {
                let retry = &one.job.spec.policies.retry;
                let report = one.report.clone().map(|report| retry::judge(retry, report));
                let verdict = self.decide(one, report.as_ref(), now);
                let successor = self.successor(one, verdict, now).await?;
                let held = Held { sequence: one.run.sequence, attempt: one.run.attempt };
                conclusions.push(Conclusion { worker: one.worker, held, report, verdict, successor });
            }
            let dues: Vec<Due> = conclusions
                .iter()
                .filter_map(|one| one.successor.and_then(|successor| successor.due))
                .collect();
            let has_retries = conclusions.iter().any(|one| matches!(one.verdict, Verdict::Retry { .. }));
            let begun = Instant::now();
            let recorded = self.heard(self.store.complete(conclusions, now).await)?;
            self.metrics.complete_time.observe(begun.elapsed().as_secs_f64());
            self.wakes.offer(dues);
            if has_retries {
                self.wakes.claimable();
            }
            recorded.iter().flatten().for_each(|concluded| self.note_limited(&concluded.run));
            // Who waited for it goes on, and who waited for a permit that it held.
            let lets_go =
                |concluded: &Concluded| concluded.released.is_some() || !concluded.run.limits.is_empty();
            if recorded.iter().flatten().any(lets_go) {
                self.wakes.claimable();
            }
            let mut again = Vec::new();
            for ((place, mut one), answer) in open.into_iter().zip(recorded) {
                match answer {
                    // The job changed since its next slot was computed: compute it anew.
                    Err(Refused::WrongVersion { .. } | Refused::NoJob) => again.push((place, one)),
                    // Somebody asked it to stop since it was claimed: it ends here.
                    Err(Refused::Lifecycle(lifecycle::Refused::AskedToStop)) => {
                        one.run.is_cancel_requested = true;
                        again.push((place, one));
                    }
                    answer => {
                        if let Ok(concluded) = &answer {
                            self.metrics.completed(&one, &concluded.run);
                            tell(&one, &concluded.run);
                        }
                        answers[place] = Some(answer.map(|concluded| concluded.run));
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            open = again;
        }
        let busy = punctual_store::Error::Unavailable {
            reason: "the job is being changed by others; try again".into(),
        };
        answers.into_iter().map(|answer| answer.ok_or_else(|| Error::Store(busy.clone()))).collect()
    }

    fn decide(&self, finished: &Finished, report: Option<&Report>, now: Timestamp) -> Verdict {
        let run = &finished.run;
        match report {
            None if run.is_cancel_requested => Verdict::Cancel,
            // It is as if it had not been claimed.
            None => Verdict::Retry { available_at: now, charge: Charge::Nothing, start_by: run.start_by },
            Some(report) => {
                let random = self.entropy.bits() as f64 / u64::MAX as f64;
                retry::decide(&finished.job.spec.policies, run, report, now, random)
            }
        }
    }

    /// What the end of a run brings, for jobs that count from completion.
    async fn successor(
        &self,
        finished: &Finished,
        verdict: Verdict,
        now: Timestamp,
    ) -> Result<Option<Successor>, Error> {
        let is_over = match verdict {
            Verdict::Succeed | Verdict::Fail | Verdict::TimeOut | Verdict::Cancel | Verdict::GiveUp(_) => {
                true
            }
            Verdict::Retry { .. } => false,
        };
        if !is_over {
            return Ok(None);
        }
        self.successor_of(finished.run.job, &finished.job, now).await
    }

    /// What the end of a run of this job brings. `fired_with` is the version the run was fired with.
    pub(crate) async fn successor_of(
        &self,
        id: JobId,
        fired_with: &Job,
        now: Timestamp,
    ) -> Result<Option<Successor>, Error> {
        if !counts_from_completion(fired_with) {
            return Ok(None);
        }
        let Some(stored) = self.store.jobs(&[id]).await?.into_iter().next().flatten() else {
            return Ok(None); // Deleted: nothing follows.
        };
        let timetable = self.timetables.of(&stored.job)?;
        let slot = slot_after_completion(&stored, &timetable, now);
        let due = slot.map(|slot| due(&stored.job, &timetable, slot));
        let is_over = due.is_none() && stored.job.is_active() && counts_from_completion(&stored.job);
        let over = is_over.then_some(stored.job.spec.policies.retention);
        Ok(Some(Successor { version: stored.job.version, due, over }))
    }
}

/// An event about an attempt of a run: what every line about a run carries, and more.
macro_rules! event {
    ($level:ident, $finished:expr, $run:expr, $message:literal $(, $name:ident = $value:expr)*) => {
        tracing::$level!(
            job_id = %$run.job,
            run_id = %$run.id(),
            scheduled_for = %$run.scheduled_for,
            correlation_id = $run.correlation_id.as_deref(),
            attempt = $finished.run.attempt,
            $($name = $value,)*
            $message
        )
    };
}

/// Says in the log what came of an attempt.
fn tell(finished: &Finished, run: &Run) {
    match &finished.report {
        None => event!(info, finished, run, "released"),
        Some(report) if report.outcome == Outcome::Succeeded => event!(debug, finished, run, "succeeded"),
        Some(report) => {
            let retry_at = matches!(run.state, RunState::Pending(_)).then(|| run.available_at.to_string());
            event!(
                info,
                finished,
                run,
                "failed",
                outcome = report.outcome.as_str(),
                state = run.state.as_str(),
                reason = run.reason.map(Limit::as_str),
                code = report.error.as_ref().map(|error| error.code.as_str()),
                error = report.error.as_ref().map(|error| error.message.as_str()),
                retry_at = retry_at
            );
        }
    }
}
