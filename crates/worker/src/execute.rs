//! Executes an attempt: the side effect, by its target.
//!
//! Runs on a worker that holds the lease. Promise: a report of the same shape for every target, within the
//! attempt's timeout and the run's deadline; this is the only place that tells targets apart.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::attempt::{DEADLINE, Failure, Output};
use punctual_domain::job::{Http, Method, Target};
use punctual_domain::policy::timeouts;
use punctual_domain::policy::unknown::UNKNOWN;
use punctual_domain::token::{Key, Token};
use punctual_domain::work::{Held, Leased};
use punctual_domain::{Outcome, Receiver, Report, Run};
use tokio::time::Instant;

use crate::filling::{self, Filled};
use crate::networks;
use crate::targets::function::Functions;
use crate::targets::http::{Answer, Call, Cause, Client, Phase, Response, Secret, names};
use crate::voice::Voice;

/// Everything that attempts are executed with.
#[derive(Clone)]
pub struct Targets {
    /// Makes HTTP callbacks.
    pub http: Client,
    /// Signs them; the newest first.
    pub secrets: Arc<[Secret]>,
    /// Opens the secrets that targets name; without it those that do are not called.
    pub vault: Option<Arc<dyn filling::Secrets>>,
    /// Knows the hosts that tenants are held to; without it they are held to none.
    pub networks: Option<Arc<dyn networks::Networks>>,
    /// Handlers of this process.
    pub functions: Functions,
    /// How receivers report that do so later; without it they are not called.
    pub reports: Option<Reports>,
    /// What time it is.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// How receivers report that do so later.
#[derive(Clone, Debug)]
pub struct Reports {
    /// Signs their tokens.
    pub key: Key,
    /// The address of the server, as they know it: without it they are told paths.
    pub address: Option<Arc<str>>,
}

/// A receiver that reports later answers at once: whoever does not is not kept waiting for, however long its work may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection may take to be ready.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Targets {
    /// How an attempt speaks while it runs, if its target can.
    pub(crate) fn voice(&self, leased: &Leased) -> Option<Arc<Voice>> {
        let speaks = matches!(leased.job.spec.target, Target::Function { .. });
        speaks.then(|| Voice::new(Arc::clone(&self.now)))
    }

    /// Executes an attempt.
    pub(crate) async fn execute(&self, leased: &Leased, voice: Option<Arc<Voice>>) -> Report {
        let started_at = (self.now)();
        let begun = Instant::now();
        let (timeout, is_last) =
            timeouts::attempt(&leased.job.spec.policies.timeouts, &leased.run, started_at);
        if timeout.is_zero() {
            return cut_off(started_at, "there was no time left for this attempt");
        }
        let report = match &leased.job.spec.target {
            Target::Discard => Ok(succeeded(started_at)),
            // Only those who pull are given these.
            Target::Worker { .. } => Ok(broken(started_at)),
            // Boxed, because every attempt is a task that would be as large as the largest target.
            Target::Http(target) => Ok(Box::pin(self.call_back(target, leased, started_at, timeout)).await),
            Target::Function { name } => {
                let voice = voice.unwrap_or_else(|| Voice::new(Arc::clone(&self.now)));
                let call = Box::pin(self.functions.call(name, leased, &voice));
                tokio::time::timeout(timeout, call).await.map(|answer| match answer {
                    Some(Ok(output)) => Report {
                        output: output.map(|text| Output::text(text, kept_bytes(leased))),
                        ..succeeded(started_at)
                    },
                    Some(Err(error)) => failed(started_at, error),
                    None => cancelled(started_at),
                })
            }
        };
        let report = report.unwrap_or_else(|_| timed_out(started_at, timeout));
        // A shorter limit, such as that for connecting, is no deadline.
        let report = match report.outcome {
            Outcome::TimedOut if is_last && begun.elapsed() >= timeout => {
                let why = report.error.as_ref().map_or("", |error| &error.message);
                Report { error: cut_off(started_at, why).error, ..report }
            }
            _ => report,
        };
        // A clock that was set back must not make an attempt end before it began.
        Report { finished_at: (self.now)().max(started_at), ..report }
    }

    async fn call_back(&self, target: &Http, leased: &Leased, at: Timestamp, timeout: Duration) -> Report {
        let filling = filling::fill(target, leased, self.vault.as_deref());
        let filled = match tokio::time::timeout(timeout, filling).await {
            Ok(Ok(filled)) => filled,
            Ok(Err(failure)) => return failed(at, failure),
            Err(_) => return failed(at, filling::late()),
        };
        let report = self.call_filled(&filled, leased, at, timeout).await;
        filled.hide(report)
    }

    async fn call_filled(
        &self,
        filled: &Filled<'_>,
        leased: &Leased,
        at: Timestamp,
        timeout: Duration,
    ) -> Report {
        let (url, headers) = match filled.parse() {
            Ok(parsed) => parsed,
            Err(error) => {
                let (code, message) = (error.code().into(), error.to_string());
                return failed(at, Failure { code, message, is_retryable: false, retry_after: None });
            }
        };
        let tenant_policy = match networks::policy(self.networks.as_deref(), leased.job.tenant).await {
            Ok(policy) => policy,
            Err(failure) => return failed(at, failure),
        };
        let key = leased.run.idempotency_key().to_string();
        let mut own = own_headers(leased, &key, at, timeout);
        let receiver = Receiver::of(&leased.job.spec.policies, &leased.run, at);
        match (receiver, &self.reports) {
            (Some(terms), Some(reports)) => own.extend(reports.headers(&leased.run, terms)),
            (Some(_), None) => return untold(at),
            (None, _) => {}
        }
        let timeout = if receiver.is_some() { timeout.min(ANSWER_TIMEOUT) } else { timeout };
        let answer = self
            .http
            .send(&Call {
                target: &url,
                method: method(filled.method),
                headers: &headers,
                own: &own,
                body: body(filled.method, filled.payload.as_deref()),
                webhook_id: &key,
                timestamp_s: at.as_second(),
                secrets: &self.secrets,
                timeout,
                connect_timeout: CONNECT_TIMEOUT.min(timeout),
                kept_bytes_max: kept_bytes(leased),
                tenant_policy: tenant_policy.as_ref(),
                identity: filled.identity.as_ref(),
            })
            .await;
        Report { phases: phases(&answer), ..judge(answer, at) }
    }
}

impl Reports {
    /// What tells a receiver how to report.
    fn headers(&self, run: &Run, terms: Receiver) -> Vec<(::http::HeaderName, HeaderValue)> {
        let token = Token::new(run.id(), run.attempt, terms.id(Held::from(run)));
        let address = self.address.as_deref().unwrap_or_default();
        let place = |what: &str| format!("{address}/v1/runs/{}/{what}", run.id());
        let values = [
            (names::COMPLETION_TOKEN, Some(self.key.sign(&token))),
            (names::COMPLETE_URL, Some(place("complete"))),
            (names::HEARTBEAT_URL, Some(place("heartbeat"))),
            (names::HEARTBEAT_WITHIN, terms.heartbeat.map(|heartbeat| heartbeat.as_secs().to_string())),
        ];
        let value = |text: String| HeaderValue::try_from(text).ok();
        values.into_iter().filter_map(|(name, text)| Some((name, value(text?)?))).collect()
    }
}

fn method(method: Method) -> ::http::Method {
    match method {
        Method::Post => ::http::Method::POST,
        Method::Put => ::http::Method::PUT,
        Method::Patch => ::http::Method::PATCH,
        Method::Get => ::http::Method::GET,
        Method::Delete => ::http::Method::DELETE,
    }
}

fn body(method: Method, payload: Option<&str>) -> Bytes {
    match method {
        Method::Get | Method::Delete => Bytes::new(),
        Method::Post | Method::Put | Method::Patch => {
            payload.map_or_else(Bytes::new, |text| Bytes::copy_from_slice(text.as_bytes()))
        }
    }
}

fn own_headers(
    leased: &Leased,
    key: &str,
    now: Timestamp,
    timeout: Duration,
) -> Vec<(::http::HeaderName, HeaderValue)> {
    let (run, job) = (&leased.run, &leased.job);
    let deadline = SignedDuration::try_from(timeout).ok().and_then(|timeout| now.checked_add(timeout).ok());
    let values = [
        (names::IDEMPOTENCY_KEY, Some(key.to_owned())),
        (names::RUN_ID, Some(run.id().to_string())),
        (names::JOB_ID, Some(job.id.to_string())),
        (names::SCHEDULED_FOR, Some(run.scheduled_for.to_string())),
        (names::ATTEMPT, Some(run.attempt.to_string())),
        (names::PART, run.part_of().map(|(part, _)| part.to_string())),
        (names::PARTS, run.part_of().map(|(_, of)| of.to_string())),
        (names::BATCH_ID, leased.item().map(|(batch, _)| batch.to_owned())),
        (names::ITEM_ID, leased.item().map(|(_, item)| item.to_owned())),
        (names::DEADLINE, deadline.map(|at| at.to_string())),
        (names::CORRELATION_ID, run.correlation_id.as_deref().map(str::to_owned)),
    ];
    // What is not a header value was refused when the job was registered.
    let value = |text: String| HeaderValue::try_from(text).ok();
    values.into_iter().filter_map(|(name, text)| Some((name, value(text?)?))).collect()
}

/// 2xx succeeds. What may be different another time is retried: 408, 425, 429, 5xx and failures of the network.
fn judge(answer: Answer, at: Timestamp) -> Report {
    match answer.result {
        Ok(response) if response.status.is_success() => {
            let status = Some(i32::from(response.status.as_u16()));
            Report { status, output: output(response), ..succeeded(at) }
        }
        Ok(response) => {
            let code = response.status.as_u16();
            let is_retryable = matches!(code, 408 | 425 | 429) || response.status.is_server_error();
            let what = response.status.canonical_reason().unwrap_or("unknown status");
            let hint = if response.status.is_redirection() { "; redirects are not followed" } else { "" };
            // A gateway says so of what it does not know itself.
            let is_unknown = matches!(code, 502 | 504);
            let error = Failure {
                code: "http_status".into(),
                message: format!("the target answered {code} {what}{hint}"),
                is_retryable,
                retry_after: response.retry_after,
            };
            let status = Some(i32::from(code));
            Report { status, output: output(response), is_unknown, ..failed(at, error) }
        }
        Err(failure) => {
            let outcome = match failure.cause {
                Cause::TimedOut { .. } => Outcome::TimedOut,
                _ => Outcome::Failed,
            };
            let is_retryable = !matches!(failure.cause, Cause::Refused(_) | Cause::Unsendable(_));
            let error = Failure {
                code: failure.cause.code().into(),
                message: failure.to_string(),
                is_retryable,
                retry_after: None,
            };
            let status = failure.status.map(|status| i32::from(status.as_u16()));
            Report { outcome, status, is_unknown: failure.is_effect_possible(), ..failed(at, error) }
        }
    }
}

fn output(response: Response) -> Option<Output> {
    let is_empty = response.body.is_empty() && !response.truncated;
    (!is_empty).then(|| Output { bytes: response.body.to_vec(), is_truncated: response.truncated })
}

fn phases(answer: &Answer) -> Vec<(Cow<'static, str>, Duration)> {
    const NAMED: [(&str, Phase); 6] = [
        ("queued", Phase::Queued),
        ("dns", Phase::Dns),
        ("connect", Phase::Connect),
        ("tls", Phase::Tls),
        ("first_byte", Phase::FirstByte),
        ("body", Phase::Body),
    ];
    let spent = NAMED.map(|(name, phase)| (Cow::Borrowed(name), answer.timings.of(phase)));
    spent.into_iter().filter(|(_, time)| *time >= Duration::from_millis(1)).collect()
}

/// Output is kept up to here.
fn kept_bytes(leased: &Leased) -> usize {
    leased.job.spec.policies.retention.output_max as usize
}

fn succeeded(at: Timestamp) -> Report {
    Report {
        outcome: Outcome::Succeeded,
        started_at: at,
        finished_at: at,
        error: None,
        output: None,
        status: None,
        phases: Vec::new(),
        lines: Vec::new(),
        is_unknown: false,
    }
}

fn failed(at: Timestamp, error: Failure) -> Report {
    Report { outcome: Outcome::Failed, error: Some(error), ..succeeded(at) }
}

fn timed_out(at: Timestamp, timeout: Duration) -> Report {
    let error = Failure {
        code: "timed_out".into(),
        message: format!("the attempt took longer than its timeout of {timeout:?}"),
        is_retryable: true,
        retry_after: None,
    };
    Report { outcome: Outcome::TimedOut, is_unknown: true, ..failed(at, error) }
}

/// The report of an attempt that had no more time because the deadline of its run was reached.
fn cut_off(at: Timestamp, why: &str) -> Report {
    let message = format!("the deadline of the run was reached: {why}");
    let error = Failure { code: DEADLINE.into(), message, is_retryable: false, retry_after: None };
    Report { outcome: Outcome::TimedOut, ..failed(at, error) }
}

/// The report of an attempt whose receiver would not know how to report.
fn untold(at: Timestamp) -> Report {
    let error = Failure {
        code: "call_unsendable".into(),
        message: "the receiver reports by a token (completion), and this program gives out none".into(),
        is_retryable: false,
        retry_after: None,
    };
    failed(at, error)
}

/// The report of an attempt that was stopped because somebody asked.
pub(crate) fn cancelled(at: Timestamp) -> Report {
    Report { outcome: Outcome::Cancelled, ..succeeded(at) }
}

/// The report of an attempt whose execution panicked.
pub(crate) fn broken(at: Timestamp) -> Report {
    let error = Failure {
        code: "internal".into(),
        message: "the worker failed while it executed this attempt; its log says why".into(),
        is_retryable: true,
        retry_after: None,
    };
    Report { is_unknown: true, ..failed(at, error) }
}

/// The report of an attempt that was begun and not ended when its worker stopped.
pub(crate) fn broken_off(at: Timestamp) -> Report {
    let error = Failure {
        code: UNKNOWN.into(),
        message: "the worker stopped before the attempt had ended".into(),
        is_retryable: false,
        retry_after: None,
    };
    failed(at, error)
}

#[cfg(test)]
mod tests {
    use punctual_domain::attempt::CODES;

    /// What a job may name is what attempts fail with.
    #[test]
    fn every_code_of_a_failure_can_be_named_by_a_job() {
        let sources = [
            include_str!("targets/http/answer.rs"),
            include_str!("targets/function.rs"),
            include_str!("execute.rs").split("#[cfg(test)]").next().unwrap_or_default(),
        ];
        let mut found = Vec::new();
        for line in sources.iter().flat_map(|source| source.lines()) {
            let quoted = ["} => \"", "(_) => \"", "failure(\"", "code: \""]
                .iter()
                .find_map(|before| line.split_once(before).and_then(|(_, rest)| rest.split('"').next()));
            found.extend(quoted.filter(|word| !word.contains(' ')));
        }
        assert!(found.len() >= 12, "{found:?}");
        for code in found {
            assert!(CODES.contains(&code), "{code}");
        }
    }
}
