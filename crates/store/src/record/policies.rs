//! The policies of a job's row.

use std::num::NonZeroU32;
use std::time::Duration;

use punctual_domain::Outcome;
use punctual_domain::policy::Policies;
use punctual_domain::policy::breaker::OfJob;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::completion::Completion;
use punctual_domain::policy::failures::Failures;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::{Keep, OUTPUT_BYTES, Policy as RetentionPolicy, Retention};
use punctual_domain::policy::retry::{Backoff, Retry};
use punctual_domain::policy::timeouts::Timeouts;
use punctual_domain::policy::unknown::OnUnknown;
use serde::{Deserialize, Serialize};

use super::is_default;
use super::limit::{ConcurrencyRecord, RateRecord};
use super::overlap::OverlapRecord;

/// Nothing for what is as the default was when this form was made.
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PoliciesRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catch_up: Option<CatchUpRecord>,
    /// Attempts, first and longest delay. Of other backoffs too, so that older programs retry after such delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<(u32, u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<BackoffRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_for: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    retry_on: FailuresRecord,
    #[serde(default, skip_serializing_if = "is_default")]
    retry_not_on: FailuresRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_window: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_duration: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    days: Option<u16>,
    /// Successes are kept for a day.
    #[serde(default, skip_serializing_if = "is_default")]
    failures: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overlap: Option<OverlapRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<ConcurrencyRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<RateRecord>,
    /// Failures that open the job's breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaker: Option<NonZeroU32>,
    /// Another word than `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_unknown: Option<String>,
    /// Receivers report by a token, and how often they must be heard of, 0 for no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by_token: Option<u64>,
}

#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CatchUpRecord {
    Latest(u64),
    None,
    All(u64, u32, u32),
}

/// Backoffs other than the exponential one.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BackoffRecord {
    Linear,
    Fixed,
    List(Vec<u64>),
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct FailuresRecord {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outcomes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

/// The defaults of this form. They stay what they are when the product's defaults change, or old
/// jobs would change with them.
pub(super) fn defaults() -> Policies {
    Policies {
        catch_up: CatchUp::Latest { window: Duration::from_secs(3600) },
        retry: Retry {
            max_attempts: 3,
            backoff: Backoff::Exponential { base: Duration::from_secs(1), cap: Duration::from_secs(300) },
            retry_for: None,
            on: Failures::default(),
            not_on: Failures::default(),
        },
        timeouts: Timeouts {
            start_window: None,
            attempt: Duration::from_secs(300),
            deadline: None,
            min_duration: None,
        },
        on_unknown: OnUnknown::Retry,
        completion: Completion::Answer,
        retention: RetentionPolicy { keep: Keep::All(Retention::Week), last: None, output_max: OUTPUT_BYTES },
        overlap: Overlap::Allow,
        concurrency: None,
        rate: None,
        breaker: None,
    }
}

pub(super) fn encode_policies(policies: &Policies) -> PoliciesRecord {
    let defaults = defaults();
    let ms = |duration: Duration| duration.as_millis() as u64;
    let (retry, timeouts, kept) = (&policies.retry, &policies.timeouts, &policies.retention);
    let attempts = (retry.max_attempts, &retry.backoff);
    PoliciesRecord {
        catch_up: (policies.catch_up != defaults.catch_up).then(|| match policies.catch_up {
            CatchUp::Latest { window } => CatchUpRecord::Latest(ms(window)),
            CatchUp::None => CatchUpRecord::None,
            CatchUp::All { window, max, rate } => CatchUpRecord::All(ms(window), max, rate),
        }),
        retry: (attempts != (defaults.retry.max_attempts, &defaults.retry.backoff)).then(|| {
            let (first, longest) = match &retry.backoff {
                Backoff::Exponential { base, cap } | Backoff::Linear { base, cap } => (*base, *cap),
                Backoff::Fixed { delay } => (*delay, *delay),
                Backoff::List { delays } => {
                    let first = delays.first().copied().unwrap_or_default();
                    (first, delays.iter().copied().max().unwrap_or_default())
                }
            };
            (retry.max_attempts, ms(first), ms(longest))
        }),
        backoff: match &retry.backoff {
            Backoff::Exponential { .. } => None,
            Backoff::Linear { .. } => Some(BackoffRecord::Linear),
            Backoff::Fixed { .. } => Some(BackoffRecord::Fixed),
            Backoff::List { delays } => Some(BackoffRecord::List(delays.iter().copied().map(ms).collect())),
        },
        retry_for: retry.retry_for.map(ms),
        retry_on: encode_failures(&retry.on),
        retry_not_on: encode_failures(&retry.not_on),
        start_window: timeouts.start_window.map(ms),
        timeout: (timeouts.attempt != defaults.timeouts.attempt).then(|| ms(timeouts.attempt)),
        deadline: timeouts.deadline.map(ms),
        min_duration: timeouts.min_duration.map(ms),
        days: (kept.keep.class() != defaults.retention.keep.class()).then(|| kept.keep.class().days()),
        failures: matches!(kept.keep, Keep::Failures(_)),
        last: kept.last,
        output_max: (kept.output_max != defaults.retention.output_max).then_some(kept.output_max),
        overlap: (policies.overlap != defaults.overlap).then(|| policies.overlap.into()),
        concurrency: policies.concurrency.as_ref().map(ConcurrencyRecord::from),
        rate: policies.rate.as_ref().map(RateRecord::from),
        breaker: policies.breaker.map(|breaker| breaker.failures),
        on_unknown: (policies.on_unknown != defaults.on_unknown).then(|| policies.on_unknown.as_str().into()),
        by_token: match policies.completion {
            Completion::Answer => None,
            Completion::Token { heartbeat } => Some(heartbeat.map_or(0, ms)),
        },
    }
}

pub(super) fn decode_policies(record: &PoliciesRecord) -> Option<Policies> {
    let mut policies = defaults();
    let ms = Duration::from_millis;
    match &record.catch_up {
        None => {}
        Some(CatchUpRecord::Latest(window)) => policies.catch_up = CatchUp::Latest { window: ms(*window) },
        Some(CatchUpRecord::None) => policies.catch_up = CatchUp::None,
        Some(CatchUpRecord::All(window, max, rate)) => {
            policies.catch_up = CatchUp::All { window: ms(*window), max: *max, rate: *rate };
        }
    }
    let retry = &mut policies.retry;
    if let Some((max_attempts, base, cap)) = record.retry {
        retry.max_attempts = max_attempts;
        let (base, cap) = (ms(base), ms(cap));
        retry.backoff = match &record.backoff {
            None => Backoff::Exponential { base, cap },
            Some(BackoffRecord::Linear) => Backoff::Linear { base, cap },
            Some(BackoffRecord::Fixed) => Backoff::Fixed { delay: base },
            Some(BackoffRecord::List(delays)) => {
                Backoff::List { delays: delays.iter().copied().map(ms).collect() }
            }
        };
    }
    retry.retry_for = record.retry_for.map(ms);
    retry.on = decode_failures(&record.retry_on)?;
    retry.not_on = decode_failures(&record.retry_not_on)?;
    let timeouts = &mut policies.timeouts;
    timeouts.attempt = record.timeout.map_or(timeouts.attempt, ms);
    timeouts.start_window = record.start_window.map(ms);
    timeouts.deadline = record.deadline.map(ms);
    timeouts.min_duration = record.min_duration.map(ms);
    let kept = &mut policies.retention;
    let class = match record.days {
        Some(days) => Retention::of_days(days.into())?,
        None => kept.keep.class(),
    };
    kept.keep = if record.failures { Keep::Failures(class) } else { Keep::All(class) };
    kept.last = record.last;
    kept.output_max = record.output_max.unwrap_or(kept.output_max);
    if let Some(overlap) = &record.overlap {
        policies.overlap = overlap.into();
    }
    if let Some(concurrency) = &record.concurrency {
        policies.concurrency = Some(concurrency.decode()?);
    }
    if let Some(rate) = &record.rate {
        policies.rate = Some(rate.decode()?);
    }
    policies.breaker = record.breaker.map(|failures| OfJob { failures });
    if let Some(word) = &record.on_unknown {
        policies.on_unknown = OnUnknown::ALL.into_iter().find(|one| one.as_str() == word)?;
    }
    if let Some(heartbeat) = record.by_token {
        policies.completion = Completion::Token { heartbeat: (heartbeat > 0).then(|| ms(heartbeat)) };
    }
    Some(policies)
}

fn encode_failures(failures: &Failures) -> FailuresRecord {
    FailuresRecord {
        outcomes: failures.outcomes.iter().map(|outcome| outcome.as_str().into()).collect(),
        statuses: failures.statuses.iter().map(ToString::to_string).collect(),
        errors: failures.errors.clone(),
    }
}

fn decode_failures(record: &FailuresRecord) -> Option<Failures> {
    let outcome = |word: &String| Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == word);
    Some(Failures {
        outcomes: record.outcomes.iter().map(outcome).collect::<Option<_>>()?,
        statuses: record.statuses.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?,
        errors: record.errors.clone(),
    })
}
