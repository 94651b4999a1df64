//! Takes what somebody says about a run of which nobody knows what it did.
//!
//! Runs when a person or a program answers (`on_unknown = ask`). Promise: the first answer counts, and only while the run waits for
//! one; what the end of a run brings, the end by an answer brings too.

use punctual_domain::id::{RunId, TenantId};
use punctual_domain::lifecycle::Event;
use punctual_domain::policy::unknown::Answer;
use punctual_domain::run::Run;
use punctual_store::{Answering, Refused};

use crate::engine::Engine;
use crate::error::Error;
use crate::history::{TRIES, refused_run};
use crate::messages::{Last, have_limits};
use crate::register::busy;

impl Engine {
    /// Lets a run go on that waits for an answer, or ends it.
    pub async fn answer(&self, tenant: TenantId, id: RunId, answer: Answer) -> Result<Run, Error> {
        let asked = format!(r#"{{"answer":"{}"}}"#, answer.as_str());
        self.audit_runs(tenant, &[id], "answer", Some(&asked)).await?;
        for _ in 0..TRIES {
            let now = self.clock.now();
            let detail = self.run(tenant, id).await?;
            let fired_with = self.store.job_versions(&[(detail.run.job, detail.run.version)]).await?;
            let job = fired_with.into_iter().next().flatten().map(|stored| stored.job);
            let (mut successor, mut messages) = (None, Vec::new());
            if let Some(job) = &job {
                if answer != Answer::Retry {
                    successor = self.successor_of(detail.run.job, job, now).await?;
                }
                let event = Event::Answered { answer, at: now };
                messages = self.end_messages(job, &detail.run, event, Last::Stored, now).await?;
            }
            let are_limited = have_limits(messages.iter());
            let answering = Answering { run: id, answer, successor, messages };
            match self.heard(self.store.answer(vec![answering], now)).await?.into_iter().next() {
                Some(Ok(run)) => {
                    self.wakes.offer(successor.and_then(|successor| successor.due));
                    self.note_limited(&run);
                    self.told(are_limited); // It may go on, or who waited for it.
                    if let Some(job) = job {
                        let report = detail.attempts.last().and_then(|attempt| attempt.report.as_ref());
                        self.notice_end(&job, &detail.run, &run, report);
                    }
                    self.metrics.answered(&run);
                    tell(&run, answer);
                    return Ok(run);
                }
                // The job changed since its next slot was computed: compute it anew.
                Some(Err(Refused::WrongVersion { .. } | Refused::NoJob)) => {}
                Some(Err(refused)) => return Err(refused_run(refused, id)),
                None => break,
            }
        }
        Err(busy())
    }
}

/// Says in the log what was answered.
fn tell(run: &Run, answer: Answer) {
    tracing::info!(
        job_id = %run.job,
        run_id = %run.id(),
        scheduled_for = %run.scheduled_for,
        correlation_id = run.correlation_id.as_deref(),
        attempt = run.attempt,
        state = run.state.as_str(),
        answer = answer.as_str(),
        "answered"
    );
}
