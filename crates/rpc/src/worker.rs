//! Workers' messages, as the types of the API and back.

use punctual_api::payload::Payload;
use punctual_api::worker as api;

use crate::time::{duration, instant, time, timestamp, to_wire};
use crate::v1;

/// A text that is left out is empty on the wire.
fn given(text: &str) -> Option<String> {
    Some(text.to_string()).filter(|text| !text.is_empty())
}

/// A number that is left out is zero on the wire.
fn number(number: u32) -> Option<u32> {
    Some(number).filter(|number| *number > 0)
}

/// JSON of a message, if it is any.
fn json(text: &str) -> Option<Payload> {
    Payload::new(text)
}

impl v1::Hello {
    /// As a claim; without room, its capacity is that of a claim that says none.
    pub fn to_claim(&self) -> api::Claim {
        api::Claim {
            worker: given(&self.worker),
            name: given(&self.name),
            queues: Some(self.queues.clone()),
            labels: Some(self.labels.clone().into_iter().collect()),
            capacity: number(self.capacity),
            concurrency: number(self.concurrency),
            wait: None,
        }
    }
}

impl v1::Heartbeat {
    /// As REST takes it; or the checkpoint that is no JSON, by its place.
    pub fn to_api(&self) -> Result<api::WorkerHeartbeat, usize> {
        let mut held = Vec::with_capacity(self.held.len());
        for (place, one) in self.held.iter().enumerate() {
            let checkpoint = match one.checkpoint.as_deref() {
                Some(text) => Some(json(text).ok_or(place)?),
                None => None,
            };
            held.push(api::HeldAttempt {
                run_id: given(&one.run_id),
                attempt: number(one.attempt),
                progress: one.progress.as_ref().map(|progress| api::AttemptProgress {
                    percent: progress.percent.map(|percent| percent.min(100) as u16),
                    message: progress.message.clone(),
                }),
                checkpoint,
                log: Some(one.log.clone()).filter(|lines| !lines.is_empty()),
            });
        }
        Ok(api::WorkerHeartbeat {
            held: Some(held),
            concurrency: self.concurrency,
            saturation: self.saturation,
        })
    }

    /// As it goes over the wire.
    pub fn of(number: u64, heartbeat: &api::WorkerHeartbeat) -> Self {
        let held = heartbeat.held.iter().flatten().map(|one| v1::HeldAttempt {
            run_id: one.run_id.clone().unwrap_or_default(),
            attempt: one.attempt.unwrap_or_default(),
            progress: one.progress.as_ref().map(|progress| v1::Progress {
                percent: progress.percent.map(u32::from),
                message: progress.message.clone(),
            }),
            checkpoint: one.checkpoint.as_ref().map(|json| json.as_str().to_string()),
            log: one.log.clone().unwrap_or_default(),
        });
        v1::Heartbeat {
            number,
            held: held.collect(),
            concurrency: heartbeat.concurrency,
            saturation: heartbeat.saturation,
        }
    }
}

const OUTCOMES: [(v1::Outcome, &str); 5] = [
    (v1::Outcome::Succeeded, "succeeded"),
    (v1::Outcome::Failed, "failed"),
    (v1::Outcome::TimedOut, "timed_out"),
    (v1::Outcome::Cancelled, "cancelled"),
    (v1::Outcome::Released, "released"),
];

impl v1::Report {
    /// As REST takes it.
    pub fn to_api(&self) -> api::Results {
        let results = self.results.iter().map(|one| api::AttemptResult {
            run_id: given(&one.run_id),
            attempt: number(one.attempt),
            outcome: OUTCOMES
                .iter()
                .find(|(outcome, _)| *outcome as i32 == one.outcome)
                .map(|(_, word)| (*word).to_string()),
            output: one.output.clone(),
            error: one.error.as_ref().map(|error| api::ResultError {
                message: given(&error.message),
                code: error.code.clone(),
                is_retryable: error.is_retryable,
                retry_after: error.retry_after.as_ref().map(duration),
            }),
            log: Some(one.log.clone()).filter(|lines| !lines.is_empty()),
            started_at: one.started_at.as_ref().map(time),
            finished_at: one.finished_at.as_ref().map(time),
        });
        api::Results { results: Some(results.collect()) }
    }

    /// As it goes over the wire.
    pub fn of(number: u64, results: &api::Results) -> Self {
        let results = results.results.iter().flatten().map(|one| v1::AttemptResult {
            run_id: one.run_id.clone().unwrap_or_default(),
            attempt: one.attempt.unwrap_or_default(),
            outcome: OUTCOMES
                .iter()
                .find(|(_, word)| one.outcome.as_deref() == Some(*word))
                .map_or(v1::Outcome::Unspecified as i32, |(outcome, _)| *outcome as i32),
            output: one.output.clone(),
            error: one.error.as_ref().map(|error| v1::ResultError {
                message: error.message.clone().unwrap_or_default(),
                code: error.code.clone(),
                is_retryable: error.is_retryable,
                retry_after: error.retry_after.map(to_wire),
            }),
            log: one.log.clone().unwrap_or_default(),
            started_at: None,
            finished_at: None,
        });
        v1::Report { number, results: results.collect() }
    }
}

impl From<api::ClaimedAttempt> for v1::Attempt {
    fn from(attempt: api::ClaimedAttempt) -> Self {
        v1::Attempt {
            run_id: attempt.run_id,
            attempt: attempt.attempt,
            job_id: attempt.job_id,
            job_name: attempt.job_name,
            handler: attempt.handler,
            queue: attempt.queue,
            r#type: attempt.kind,
            labels: attempt.labels.into_iter().collect(),
            scheduled_for: Some(timestamp(attempt.scheduled_for)),
            idempotency_key: attempt.idempotency_key,
            payload: attempt.payload.map(|json| json.as_str().to_string()),
            correlation_id: attempt.correlation_id,
            timeout: Some(to_wire(attempt.timeout)),
            deadline: attempt.deadline.map(timestamp),
            checkpoint: attempt.checkpoint.map(|json| json.as_str().to_string()),
            part: attempt.part,
            parts: attempt.parts,
            batch_id: attempt.batch_id,
            item_id: attempt.item_id,
        }
    }
}

impl From<v1::Attempt> for api::ClaimedAttempt {
    fn from(wire: v1::Attempt) -> Self {
        api::ClaimedAttempt {
            run_id: wire.run_id,
            attempt: wire.attempt,
            job_id: wire.job_id,
            job_name: wire.job_name,
            handler: wire.handler,
            queue: wire.queue,
            kind: wire.r#type,
            labels: wire.labels.into_iter().collect(),
            scheduled_for: wire.scheduled_for.as_ref().and_then(instant).unwrap_or_default(),
            idempotency_key: wire.idempotency_key,
            payload: wire.payload.as_deref().and_then(json),
            correlation_id: wire.correlation_id,
            timeout: wire.timeout.as_ref().map_or(punctual_api::Duration(Default::default()), duration),
            deadline: wire.deadline.as_ref().and_then(instant),
            checkpoint: wire.checkpoint.as_deref().and_then(json),
            part: wire.part,
            parts: wire.parts,
            batch_id: wire.batch_id,
            item_id: wire.item_id,
        }
    }
}

impl From<api::Held> for v1::Held {
    fn from(held: api::Held) -> Self {
        v1::Held { run_id: held.run_id, attempt: held.attempt }
    }
}

impl From<v1::Held> for api::Held {
    fn from(held: v1::Held) -> Self {
        api::Held { run_id: held.run_id, attempt: held.attempt }
    }
}

impl v1::HeartbeatTaken {
    /// As it goes over the wire.
    pub fn of(number: u64, answer: api::HeartbeatAnswer) -> Self {
        v1::HeartbeatTaken {
            number,
            cancelled: answer.cancelled.into_iter().map(Into::into).collect(),
            not_held: answer.not_held.into_iter().map(Into::into).collect(),
        }
    }

    /// As REST answers it.
    pub fn into_api(self) -> api::HeartbeatAnswer {
        api::HeartbeatAnswer {
            cancelled: self.cancelled.into_iter().map(Into::into).collect(),
            not_held: self.not_held.into_iter().map(Into::into).collect(),
        }
    }
}

impl v1::ReportTaken {
    /// As it goes over the wire.
    pub fn of(number: u64, taken: api::ResultsTaken) -> Self {
        let results = taken.results.into_iter().map(|one| v1::ResultTaken {
            run_id: one.run_id,
            attempt: one.attempt,
            answer: match (one.state, one.problem) {
                (_, Some(problem)) => Some(v1::result_taken::Answer::Problem(problem.into())),
                (state, None) => state.map(v1::result_taken::Answer::State),
            },
        });
        v1::ReportTaken { number, results: results.collect() }
    }

    /// As REST answers it.
    pub fn into_api(self) -> api::ResultsTaken {
        let results = self.results.into_iter().map(|one| {
            let (state, problem) = match one.answer {
                Some(v1::result_taken::Answer::State(state)) => (Some(state), None),
                Some(v1::result_taken::Answer::Problem(problem)) => (None, Some(problem.into())),
                None => (None, None),
            };
            api::ResultTaken { run_id: one.run_id, attempt: one.attempt, state, problem }
        });
        api::ResultsTaken { results: results.collect() }
    }
}

impl From<api::Worker> for v1::Worker {
    fn from(worker: api::Worker) -> Self {
        v1::Worker {
            id: worker.id,
            name: worker.name,
            tenant: worker.tenant,
            queues: worker.queues,
            labels: worker.labels.into_iter().collect(),
            concurrency: worker.concurrency,
            held: worker.held as u64,
            saturation: worker.saturation,
            started_at: Some(timestamp(worker.started_at)),
            seen_at: Some(timestamp(worker.seen_at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_say_over_the_wire_what_they_said() {
        let result = |outcome: &str| api::AttemptResult {
            run_id: Some("a run".into()),
            attempt: Some(2),
            outcome: Some(outcome.into()),
            output: Some("out".into()),
            error: Some(api::ResultError {
                message: Some("no".into()),
                code: Some("busy".into()),
                is_retryable: Some(false),
                retry_after: Some(punctual_api::Duration(std::time::Duration::from_millis(1_500))),
            }),
            log: Some(vec!["a line".into()]),
            ..api::AttemptResult::default()
        };
        let results = api::Results { results: Some(OUTCOMES.map(|(_, word)| result(word)).to_vec()) };
        assert_eq!(v1::Report::of(7, &results).to_api(), results);
    }

    #[test]
    fn a_heartbeat_says_over_the_wire_what_it_said() {
        let held = api::HeldAttempt {
            run_id: Some("a run".into()),
            attempt: Some(1),
            progress: Some(api::AttemptProgress { percent: Some(40), message: Some("on".into()) }),
            checkpoint: json(r#"{"row": 1.50}"#),
            log: Some(vec!["a line".into()]),
        };
        let beat =
            api::WorkerHeartbeat { held: Some(vec![held]), concurrency: Some(9), saturation: Some(0.5) };
        let wire = v1::Heartbeat::of(3, &beat);
        assert_eq!(wire.to_api(), Ok(beat));
        let mut broken = wire;
        broken.held[0].checkpoint = Some("{".into());
        assert_eq!(broken.to_api(), Err(0), "what is no JSON is named by its place");
    }
}
