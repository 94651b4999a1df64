//! Limits that runs share, on the wire: those of a job, and those that administrators set.

use std::num::NonZeroU32;
use std::sync::Arc;

use punctual_domain::policy::limit::{
    Across, Allowance, Concurrency as DomainConcurrency, Dimension, Rate as DomainRate,
    RateLimit as DomainRateLimit, Rule,
};
use punctual_domain::policy::template::Template;
use punctual_domain::{TenantId, labels};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::limits::{CONCURRENCY_MAX, RATE_MAX, RATE_PER_MAX, WORD_MAX};
use crate::policies::check_range;
use crate::read::{At, Errors, Unread, one_of};

object! {
    /// How many runs may go on at once. The others wait in a line of their own, oldest slot first.
    pub struct Concurrency {
        /// So many, 1 to 1000000.
        #[schema(required = true, example = 1)]
        pub max: u32,
        /// What is counted apart: text with places for payload and labels.
        #[schema(example = "{payload.customer}")]
        pub key: String,
        /// With whose runs they are counted together, if those have such a limit and the same key: `job` (the default),
        /// `type`, `queue` or `tenant`.
        pub across: String,
        /// A run that waits for its next attempt keeps its permit, so that none overtakes it; `true`.
        pub holds_retries: bool,
    }

    /// How fast attempts may start. The others wait in a line of their own, oldest slot first.
    pub struct RateLimit {
        /// So many, 1 to 1000000.
        #[schema(required = true, example = 10)]
        pub limit: u32,
        /// In this time; `PT1S`.
        pub per: Duration,
        /// How many may start together after a quiet time; 1.
        pub burst: u32,
        /// What is counted apart: text with places for payload and labels.
        #[schema(example = "{labels.team}")]
        pub key: String,
        /// With whose runs they are counted together: `job` (the default), `type`, `queue` or `tenant`.
        pub across: String,
    }

    /// A bucket of tokens.
    pub struct Rate {
        /// So many, 1 to 1000000.
        #[schema(required = true, example = 10)]
        pub limit: u32,
        /// In this time; `PT1S`.
        pub per: Duration,
        /// How many may start together after a quiet time; 1.
        pub burst: u32,
    }

    /// A limit that an administrator sets: for which runs, what is counted apart, and what is allowed for each.
    pub struct LimitSpec {
        /// Only runs of this tenant.
        pub tenant: String,
        /// Only runs of this queue.
        pub queue: String,
        /// Only runs of this type of job.
        pub r#type: String,
        /// What is counted apart: any of `tenant`, `queue`, `type`, `job` and `key`. Nothing: all of them together.
        pub by: Vec<String>,
        /// How many may go on at once, 1 to 1000000.
        #[schema(example = 100)]
        pub max: u32,
        /// How fast they may start.
        pub rate: Rate,
        /// A run that waits for its next attempt keeps its permit; `false`.
        pub holds_retries: bool,
    }
}

/// A limit that an administrator set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// What it says.
    #[serde(flatten)]
    pub spec: LimitSpec,
}

const ACROSS: [(&str, Across); 4] =
    [("job", Across::Job), ("type", Across::Kind), ("queue", Across::Queue), ("tenant", Across::Tenant)];

const BY: [(&str, Dimension); 5] = [
    ("key", Dimension::Key),
    ("job", Dimension::Job),
    ("type", Dimension::Kind),
    ("queue", Dimension::Queue),
    ("tenant", Dimension::Tenant),
];

impl Concurrency {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<DomainConcurrency> {
        let max = self.max.and_then(|max| positive(max, CONCURRENCY_MAX, &at.member("max"), errors));
        if self.max.is_none() {
            errors.add(&at.member("max"), "missing_field", "`max` is missing: how many may go on at once");
        }
        Some(DomainConcurrency {
            key: key(self.key.as_deref(), at, errors),
            across: across(self.across.as_deref(), at, errors),
            holds_retries: self.holds_retries.unwrap_or(true),
            max: max?,
        })
    }
}

impl From<&DomainConcurrency> for Concurrency {
    fn from(concurrency: &DomainConcurrency) -> Self {
        Concurrency {
            max: Some(concurrency.max.get()),
            key: concurrency.key.as_ref().map(|key| key.as_str().into()),
            across: Some(concurrency.across.as_str().into()),
            holds_retries: Some(concurrency.holds_retries),
        }
    }
}

impl RateLimit {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<DomainRateLimit> {
        let rate = Rate { limit: self.limit, per: self.per, burst: self.burst }.to_domain(at, errors);
        Some(DomainRateLimit {
            key: key(self.key.as_deref(), at, errors),
            across: across(self.across.as_deref(), at, errors),
            rate: rate?,
        })
    }
}

impl From<&DomainRateLimit> for RateLimit {
    fn from(limit: &DomainRateLimit) -> Self {
        let Rate { limit: number, per, burst } = Rate::from(limit.rate);
        RateLimit {
            limit: number,
            per,
            burst,
            key: limit.key.as_ref().map(|key| key.as_str().into()),
            across: Some(limit.across.as_str().into()),
        }
    }
}

impl Rate {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<DomainRate> {
        if self.limit.is_none() {
            errors.add(&at.member("limit"), "missing_field", "`limit` is missing: how many in a time");
        }
        let limit = self.limit.and_then(|limit| positive(limit, RATE_MAX, &at.member("limit"), errors));
        let burst = positive(self.burst.unwrap_or(1), RATE_MAX, &at.member("burst"), errors);
        let per = self.per.map_or(std::time::Duration::from_secs(1), |per| per.0);
        if per > RATE_PER_MAX {
            errors.add(&at.member("per"), "out_of_range", "a rate is for at most `PT24H`");
        }
        Some(DomainRate { limit: limit?, per, burst: burst? })
    }
}

impl From<DomainRate> for Rate {
    fn from(rate: DomainRate) -> Self {
        Rate { limit: Some(rate.limit.get()), per: Some(Duration(rate.per)), burst: Some(rate.burst.get()) }
    }
}

impl LimitSpec {
    /// As it is set, or everything that is wrong. `tenant` is the one it names.
    pub fn to_domain(&self, name: &str, tenant: Option<TenantId>) -> Result<Rule, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        if labels::check("name", name).is_err() {
            let detail = "the name of a limit has 1 to 63 letters, digits and any of . _ - /";
            errors.add(&at.member("name"), "bad_character", detail);
        }
        let max = self.max.and_then(|max| positive(max, CONCURRENCY_MAX, &at.member("max"), &mut errors));
        let rate = self.rate.as_ref().and_then(|rate| rate.to_domain(&at.member("rate"), &mut errors));
        if self.max.is_none() && self.rate.is_none() {
            errors.add(&at, "missing_field", "a limit needs `max`, `rate` or both");
        }
        for (word, name) in [(&self.queue, "queue"), (&self.r#type, "type")] {
            if word.as_ref().is_some_and(|word| word.is_empty() || word.len() > WORD_MAX) {
                let detail = format!("1 to {WORD_MAX} bytes");
                errors.add(&at.member(name), "out_of_range", detail);
            }
        }
        let mut by = Vec::new();
        for (index, word) in self.by.iter().flatten().enumerate() {
            let list = at.member("by");
            let here = list.item(index);
            let dimension = one_of(word, &BY, &here, &mut errors);
            if dimension.is_some_and(|one| by.contains(&one)) {
                errors.add(&here, "duplicate_field", format!("`{word}` is there twice"));
            }
            by.extend(dimension);
        }
        match errors.is_empty() {
            true => Ok(Rule {
                name: name.into(),
                tenant,
                queue: self.queue.as_deref().map(Arc::from),
                kind: self.r#type.as_deref().map(Arc::from),
                by,
                allowance: Allowance { max, rate },
                holds_retries: self.holds_retries.unwrap_or(false),
                breaker: None,
            }),
            false => Err(Unread::Wrong(errors.into_vec())),
        }
    }
}

impl Limit {
    /// A rule as it is shown; `tenant` is the name of the one it is for.
    pub fn new(rule: &Rule, tenant: Option<&str>) -> Self {
        Limit {
            name: rule.name.to_string(),
            spec: LimitSpec {
                tenant: tenant.map(Into::into),
                queue: rule.queue.as_deref().map(Into::into),
                r#type: rule.kind.as_deref().map(Into::into),
                by: Some(rule.by.iter().map(|one| one.as_str().into()).collect()),
                max: rule.allowance.max.map(NonZeroU32::get),
                rate: rule.allowance.rate.map(Rate::from),
                holds_retries: Some(rule.holds_retries),
            },
        }
    }
}

fn positive(number: u32, most: u32, at: &At<'_>, errors: &mut Errors) -> Option<NonZeroU32> {
    check_range(number, most, at, errors);
    NonZeroU32::new(number)
}

fn key(text: Option<&str>, at: &At<'_>, errors: &mut Errors) -> Option<Template> {
    text?.parse().map_err(|wrong| errors.add(&at.member("key"), "key_template", format!("{wrong}"))).ok()
}

fn across(word: Option<&str>, at: &At<'_>, errors: &mut Errors) -> Across {
    word.and_then(|word| one_of(word, &ACROSS, &at.member("across"), errors)).unwrap_or_default()
}
