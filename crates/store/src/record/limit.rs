//! The limits of a run, at the end of its record, and an administrator's rule as a row.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::id::TenantId;
use punctual_domain::policy::breaker::{self, Breaker, Of, Stage};
use punctual_domain::policy::limit::{
    Across, Allowance, Allowed, Concurrency, Dimension, Key, Limited, Limits, Rate, RateLimit, Rule,
};
use punctual_domain::run::Run;
use serde::{Deserialize, Serialize};

use super::bytes::{Put, Take};
use super::damaged;
use crate::error::Error;

/// Beside the breadth, in one byte.
const BREADTH: u8 = 0b1111;
const HOLDS: u8 = 1 << 4;
const MAX: u8 = 1 << 5;
const RATE: u8 = 1 << 6;
const RULE: u8 = 1 << 7;

pub(super) fn put_limits(put: &mut Put, run: &Run) {
    put.byte(run.limits.len() as u8);
    put.byte(run.passed);
    for limited in run.limits.all() {
        let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
        let own = match &limited.allowed {
            Allowed::Own(allowance) => *allowance,
            Allowed::Rule(_) => Allowance::default(),
        };
        put.fixed(&limited.key.0.to_be_bytes());
        put.byte(
            limited.breadth & BREADTH
                | flag(limited.holds_retries, HOLDS)
                | flag(own.max.is_some(), MAX)
                | flag(own.rate.is_some(), RATE)
                | flag(matches!(limited.allowed, Allowed::Rule(_)), RULE),
        );
        if let Some(max) = own.max {
            put.number(max.get().into());
        }
        if let Some(rate) = own.rate {
            put.number(rate.limit.get().into());
            put.number(millis(rate.per));
            put.number(rate.burst.get().into());
        }
        if let Allowed::Rule(name) = &limited.allowed {
            put.bytes(name.as_bytes());
        }
    }
}

pub(super) fn take_limits(take: &mut Take<'_>) -> Result<(Limits, u8), Error> {
    let (count, passed) = (take.byte()?, take.byte()?);
    let mut limits = Vec::new();
    for _ in 0..count {
        let key = Key(u64::from_be_bytes(take.fixed()?));
        let has = take.byte()?;
        let max = match has & MAX {
            0 => None,
            _ => Some(positive(take.small()?)?),
        };
        let rate = match has & RATE {
            0 => None,
            _ => {
                let (limit, per, burst) = (take.small()?, take.number()?, take.small()?);
                Some(rate_of((limit, per, burst))?)
            }
        };
        let allowed = match has & RULE {
            0 => Allowed::Own(Allowance { max, rate }),
            _ => Allowed::Rule(take.text()?.into()),
        };
        limits.push(Limited { key, breadth: has & BREADTH, holds_retries: has & HOLDS != 0, allowed });
    }
    let limits = Limits::new(limits);
    match limits.len() == usize::from(count) && passed <= count && count > 0 {
        true => Ok((limits, passed)),
        false => Err(damaged("the limits of a run")),
    }
}

fn positive(number: u32) -> Result<NonZeroU32, Error> {
    NonZeroU32::new(number).ok_or_else(|| damaged("a limit of none"))
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

fn rate_of((limit, per, burst): (u32, u64, u32)) -> Result<Rate, Error> {
    Ok(Rate { limit: positive(limit)?, per: Duration::from_millis(per), burst: positive(burst)? })
}

/// An administrator's rule. Its name is a column of its own.
#[derive(Serialize, Deserialize)]
struct RuleRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<u32>,
    /// How many, in so many milliseconds, and together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<(u32, u64, u32)>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    holds: bool,
    /// Older nodes do not read it: for them it is a rule that is for no run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerRecord>,
}

/// A breaker, beside what its rule says.
#[derive(Serialize, Deserialize)]
struct BreakerRecord {
    /// In milliseconds since 1970.
    since: i64,
    changed: i64,
    stage: String,
    #[serde(default, skip_serializing_if = "super::is_default")]
    guess: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

impl From<&Breaker> for BreakerRecord {
    fn from(breaker: &Breaker) -> Self {
        BreakerRecord {
            since: breaker.since.as_millisecond(),
            changed: breaker.changed_at.as_millisecond(),
            stage: breaker.stage.as_str().into(),
            guess: matches!(breaker.stage, Stage::Crowded { is_guess: true, .. }),
            cause: breaker.cause.clone(),
        }
    }
}

impl BreakerRecord {
    /// What its stage allows is what its rule does.
    fn decode(self, name: &str, allowance: &Allowance) -> Option<Breaker> {
        let stage = match (self.stage.as_str(), allowance.max, allowance.rate) {
            ("open", max, Some(rate)) => {
                Stage::Open { interval: rate.per, asking: max.unwrap_or(NonZeroU32::MIN) }
            }
            ("half_open", Some(max), _) => Stage::Widening { max },
            ("crowded", Some(max), _) => Stage::Crowded { max, is_guess: self.guess },
            _ => return None,
        };
        Some(Breaker {
            of: Of::named(name.strip_prefix(breaker::PREFIX)?)?,
            since: Timestamp::from_millisecond(self.since).ok()?,
            changed_at: Timestamp::from_millisecond(self.changed).ok()?,
            stage,
            cause: self.cause,
        })
    }
}

/// Writes a rule.
pub fn encode_rule(rule: &Rule) -> Result<Vec<u8>, Error> {
    let record = RuleRecord {
        tenant: rule.tenant.map(|tenant| tenant.0),
        queue: rule.queue.clone(),
        kind: rule.kind.clone(),
        by: rule.by.iter().map(|one| one.as_str().to_string()).collect(),
        max: rule.allowance.max.map(NonZeroU32::get),
        rate: rule.allowance.rate.map(rate_code),
        holds: rule.holds_retries,
        breaker: rule.breaker.as_deref().map(BreakerRecord::from),
    };
    serde_json::to_vec(&record).map_err(|error| damaged(format!("limit {}: {error}", rule.name)))
}

/// Reads a rule back.
pub fn decode_rule(name: &str, bytes: &[u8]) -> Result<Rule, Error> {
    let wrong = |what: &str| damaged(format!("limit {name}: {what}"));
    let record: RuleRecord = serde_json::from_slice(bytes).map_err(|error| wrong(&error.to_string()))?;
    let dimension = |word: &String| Dimension::ALL.into_iter().find(|one| one.as_str() == word);
    let by = record.by.iter().map(dimension).collect::<Option<Vec<_>>>();
    let allowance =
        Allowance { max: record.max.map(positive).transpose()?, rate: record.rate.map(rate_of).transpose()? };
    let breaker = match record.breaker {
        Some(breaker) => {
            Some(Box::new(breaker.decode(name, &allowance).ok_or_else(|| wrong("what its breaker says"))?))
        }
        None => None,
    };
    Ok(Rule {
        name: name.into(),
        tenant: record.tenant.map(TenantId),
        queue: record.queue,
        kind: record.kind,
        by: by.ok_or_else(|| wrong("what it counts by"))?,
        allowance,
        holds_retries: record.holds,
        breaker,
    })
}

fn rate_code(rate: Rate) -> (u32, u64, u32) {
    (rate.limit.get(), millis(rate.per), rate.burst.get())
}

/// A job's concurrency: so many, its key, across what, whether it holds retries.
#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct ConcurrencyRecord {
    max: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    across: u8,
    #[serde(default, skip_serializing_if = "super::is_default")]
    lets_overtake: bool,
}

impl From<&Concurrency> for ConcurrencyRecord {
    fn from(concurrency: &Concurrency) -> Self {
        ConcurrencyRecord {
            max: concurrency.max.get(),
            key: concurrency.key.as_ref().map(|key| key.as_str().to_string()),
            across: across_code(concurrency.across),
            lets_overtake: !concurrency.holds_retries,
        }
    }
}

impl ConcurrencyRecord {
    pub(super) fn decode(&self) -> Option<Concurrency> {
        Some(Concurrency {
            max: NonZeroU32::new(self.max)?,
            key: self.key.as_ref().map(|key| key.parse()).transpose().ok()?,
            across: across_of(self.across)?,
            holds_retries: !self.lets_overtake,
        })
    }
}

/// A job's rate.
#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct RateRecord {
    /// How many, in so many milliseconds, and together.
    rate: (u32, u64, u32),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "super::is_default")]
    across: u8,
}

impl From<&RateLimit> for RateRecord {
    fn from(limit: &RateLimit) -> Self {
        RateRecord {
            rate: rate_code(limit.rate),
            key: limit.key.as_ref().map(|key| key.as_str().to_string()),
            across: across_code(limit.across),
        }
    }
}

impl RateRecord {
    pub(super) fn decode(&self) -> Option<RateLimit> {
        Some(RateLimit {
            rate: rate_of(self.rate).ok()?,
            key: self.key.as_ref().map(|key| key.parse()).transpose().ok()?,
            across: across_of(self.across)?,
        })
    }
}

fn across_code(across: Across) -> u8 {
    Across::ALL.iter().position(|one| *one == across).unwrap_or(0) as u8
}

fn across_of(code: u8) -> Option<Across> {
    Across::ALL.get(usize::from(code)).copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub(super) mod tests {
    use super::*;

    fn number(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    fn rate() -> Rate {
        Rate { limit: number(90_000), per: Duration::from_secs(60), burst: number(7) }
    }

    /// Of every kind.
    pub(crate) fn limits() -> Limits {
        let one = |n: u8, allowed: Allowed| Limited {
            key: Key(u64::MAX - u64::from(n)),
            breadth: n,
            holds_retries: n.is_multiple_of(2),
            allowed,
        };
        Limits::new(vec![
            one(0, Allowed::Own(Allowance { max: Some(number(300)), rate: None })),
            one(1, Allowed::Own(Allowance { max: None, rate: Some(rate()) })),
            one(8, Allowed::Rule("all of them".into())),
            one(11, Allowed::Own(Allowance { max: Some(number(1)), rate: Some(rate()) })),
        ])
    }

    #[test]
    fn a_rule_reads_back_as_it_was_written() {
        let plain = Rule {
            name: "plain".into(),
            tenant: None,
            queue: None,
            kind: None,
            by: Vec::new(),
            allowance: Allowance::default(),
            holds_retries: false,
            breaker: None,
        };
        let full = Rule {
            tenant: Some(TenantId(7)),
            queue: Some("mail".into()),
            kind: Some("report".into()),
            by: Dimension::ALL.to_vec(),
            allowance: Allowance { max: Some(number(3)), rate: Some(rate()) },
            holds_retries: true,
            ..plain.clone()
        };
        for rule in [plain, full] {
            assert_eq!(decode_rule(&rule.name, &encode_rule(&rule).unwrap()).unwrap(), rule);
        }
        let at = |second| Timestamp::from_second(second).unwrap();
        for stage in [
            Stage::Open { interval: Duration::from_secs(20), asking: number(1) },
            Stage::Open { interval: Duration::from_secs(20), asking: number(8) },
            Stage::Widening { max: number(64) },
            Stage::Crowded { max: number(8), is_guess: true },
            Stage::Crowded { max: number(9), is_guess: false },
        ] {
            let of = Of::Destination("http host:80".into());
            let breaker = Breaker { of, since: at(1), changed_at: at(2), stage, cause: Some("why".into()) };
            let rule = breaker.rule();
            assert_eq!(decode_rule(&rule.name, &encode_rule(&rule).unwrap()).unwrap(), rule);
            assert!(decode_rule("other", &encode_rule(&rule).unwrap()).is_err(), "it has the name of none");
        }
        for wrong in [r#"{"by":["colour"]}"#, r#"{"max":0}"#, r#"{"rate":[1,2,0]}"#, "x"] {
            assert!(decode_rule("x", wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
