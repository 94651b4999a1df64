//! Completes attempts: records what a worker reports and decides what follows.
//!
//! Runs when a worker reports, gives an attempt back, or is found dead. Promise: one outcome per run; a stale
//! report is refused; a retry, its delay and the end are decided by the same code whoever reports.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_domain::id::JobId;
use punctual_domain::job::Job;
use punctual_domain::lifecycle::{self, Charge, Event, Verdict};
use punctual_domain::policy::{retry, unknown};
use punctual_domain::run::{Limit, Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_store::{Concluded, Conclusion, Due, Held, Message, Refused, Successor};

use crate::engine::Engine;
use crate::error::Error;
use crate::fire::{counts_from_completion, slot_after_completion};
use crate::messages::{Last, have_limits};
use crate::register::due;

/// A conclusion that meets a change of its job is tried again this often.
const TRIES: usize = 5;

impl Engine {
    /// Records attempts that are over. The answer is the run as it is now, or why the report was refused.
    pub(crate) async fn conclude(&self, finished: Vec<Finished>) -> Result<Vec<Result<Run, Refused>>, Error> {
        self.note_reported(&finished);
        let mut known = Vec::new();
        let mut answers: Vec<Option<Result<Run, Refused>>> = vec![None; finished.len()];
        let mut open: Vec<(usize, Finished)> = finished.into_iter().enumerate().collect();
        for _ in 0..TRIES {
            let now = self.clock.now();
            let mut conclusions = Vec::with_capacity(open.len());
            for (_, one) in &open {
                let policies = &one.job.spec.policies;
                let report = one
                    .report
                    .clone()
                    .map(|report| unknown::judge(policies.on_unknown, retry::judge(&policies.retry, report)));
                // Whoever asks whether a target is well, or was under way when it was found not to be, is not charged for it.
                let spared = report.as_ref().and_then(|report| self.breakers.spares(&one.job, report));
                let verdict = self.decide(one, report.as_ref(), spared, now);
                let limits = match verdict {
                    Verdict::Retry { .. } => self.breakers.limits(&one.run, &one.job, spared.is_some()),
                    Verdict::Succeed
                    | Verdict::Fail
                    | Verdict::TimeOut
                    | Verdict::Cancel
                    | Verdict::Ask { .. }
                    | Verdict::Entrust { .. }
                    | Verdict::GiveUp(_) => None,
                };
                let successor = self.successor(one, verdict, now).await?;
                let messages = self.messages_of(one, report.as_ref(), verdict, now).await?;
                let held = Held { sequence: one.run.sequence, attempt: one.run.attempt };
                conclusions.push(Conclusion {
                    worker: one.worker,
                    held,
                    report,
                    verdict,
                    successor,
                    messages,
                    limits,
                });
            }
            let dues: Vec<Due> = conclusions
                .iter()
                .filter_map(|one| one.successor.and_then(|successor| successor.due))
                .collect();
            let has_retries = conclusions.iter().any(|one| matches!(one.verdict, Verdict::Retry { .. }));
            let has_messages = conclusions.iter().any(|one| !one.messages.is_empty());
            let are_limited = have_limits(conclusions.iter().flat_map(|one| &one.messages));
            let begun = Instant::now();
            let recorded = self.heard(self.store.complete(conclusions, now)).await?;
            self.metrics.complete_time.observe(begun.elapsed().as_secs_f64());
            self.wakes.offer(dues);
            if has_retries {
                self.wakes.claimable();
            }
            if has_messages {
                self.told(are_limited);
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
                            self.note_lateness(&one, now);
                            self.notice_end(&one.job, &one.run, &concluded.run, one.report.as_ref());
                            tell(&one, &concluded.run);
                            if self.suspects.over(one.worker, &one.run, &concluded.run) {
                                self.wakes.claimable();
                            }
                            known.push(one);
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
        self.note_recorded(&known).await;
        let busy = punctual_store::Error::Unavailable {
            reason: "the job is being changed by others; try again".into(),
        };
        answers.into_iter().map(|answer| answer.ok_or_else(|| Error::Store(busy.clone()))).collect()
    }

    fn decide(
        &self,
        finished: &Finished,
        report: Option<&Report>,
        spared: Option<Duration>,
        now: Timestamp,
    ) -> Verdict {
        let (run, policies) = (&finished.run, &finished.job.spec.policies);
        match (report, spared) {
            (None, _) if run.is_cancel_requested => Verdict::Cancel,
            // It is as if it had not been claimed.
            (None, _) => {
                Verdict::Retry { available_at: now, charge: Charge::Nothing, start_by: run.start_by }
            }
            (Some(report), Some(stands_back)) => retry::spare(policies, run, report, now, stands_back),
            (Some(report), None) => {
                let random = self.entropy.bits() as f64 / u64::MAX as f64;
                retry::decide(policies, run, report, now, random)
            }
        }
    }

    /// Who is told, and what follows, if this is the end of a run.
    async fn messages_of(
        &self,
        finished: &Finished,
        report: Option<&Report>,
        verdict: Verdict,
        now: Timestamp,
    ) -> Result<Vec<Message>, Error> {
        let run = &finished.run;
        let started_at = report.map(|report| report.started_at);
        let (worker, attempt) = (finished.worker, run.attempt);
        let event = Event::Concluded { worker, attempt, started_at, verdict, at: now };
        self.end_messages(&finished.job, run, event, Last::Here(report), now).await
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
            Verdict::Retry { .. } | Verdict::Ask { .. } | Verdict::Entrust { .. } => false,
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
        self.learn(self.unread([&*stored.job])).await?;
        let timetable = self.timetables.of(&stored.job)?;
        let slot = slot_after_completion(&stored, &timetable, now);
        let due = slot.map(|slot| due(&stored.job, &timetable, slot));
        let is_over = due.is_none()
            && stored.job.is_active()
            && counts_from_completion(&stored.job)
            && !stored.job.waits_for_calendars(stored.progress.fired, now);
        let over = is_over.then_some(stored.job.spec.policies.retention.keep.at_birth());
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
        None if run.waits_for_breaker().is_some() => {
            event!(debug, finished, run, "put back", breaker = run.waits_for_breaker());
        }
        None => event!(info, finished, run, "released"),
        Some(report) if report.outcome == Outcome::Succeeded => event!(debug, finished, run, "succeeded"),
        Some(report) => {
            let is_retried = matches!(run.state, RunState::Pending(_)) && !run.is_asking();
            let retry_at = is_retried.then(|| run.available_at.to_string());
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
