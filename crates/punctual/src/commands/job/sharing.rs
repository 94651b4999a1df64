//! Flags that say what runs of a job share with others: how many go on at once, how fast they start.

use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use punctual_api::breaker::JobBreaker;
use punctual_api::limit::{Concurrency, RateLimit};
use serde_json::value::{RawValue, to_raw_value};

use super::super::limit::Speed;
use super::spec::Members;
use crate::failure::Failure;

/// See the module.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)] // Flags of a job have one group each.
pub(super) struct Flags {
    /// So many runs go on at once, the others wait in line; `off` takes the limit away
    #[arg(long, value_name = "N", help_heading = "Sharing")]
    concurrency: Option<Setting<u32>>,
    /// What is counted apart, such as {payload.customer} or {labels.team}
    #[arg(long, value_name = "TEMPLATE", help_heading = "Sharing")]
    concurrency_key: Option<String>,
    /// Counted together with runs of this: job, type, queue or tenant [default: job]
    #[arg(long, value_name = "WORD", help_heading = "Sharing")]
    concurrency_across: Option<String>,
    /// Whether a run that waits for its next attempt keeps its permit: true or false [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Sharing")]
    concurrency_holds_retries: Option<bool>,
    /// So many starts in a time, such as 10/s or 100/1m; `off` takes the limit away
    #[arg(long, value_name = "N/PERIOD", help_heading = "Sharing")]
    rate: Option<Setting<Speed>>,
    /// How many start together after a quiet time [default: 1]
    #[arg(long, value_name = "N", help_heading = "Sharing")]
    rate_burst: Option<u32>,
    /// What is counted apart, such as {payload.customer} or {labels.team}
    #[arg(long, value_name = "TEMPLATE", help_heading = "Sharing")]
    rate_key: Option<String>,
    /// Counted together with runs of this: job, type, queue or tenant [default: job]
    #[arg(long, value_name = "WORD", help_heading = "Sharing")]
    rate_across: Option<String>,
    /// After so many failed attempts one after the other its runs wait, and one at a time finds out whether it is well; `off`
    /// takes the breaker away
    #[arg(long, value_name = "N", help_heading = "Sharing")]
    breaker_failures: Option<Setting<u32>>,
}

/// A value, or none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting<T> {
    Off,
    Of(T),
}

impl<T: FromStr> FromStr for Setting<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Setting::Off),
            text => text
                .parse()
                .map(Setting::Of)
                .map_err(|error: T::Err| format!("{error}; `off` takes the limit away")),
        }
    }
}

impl Flags {
    /// What the flags say, as members of a job.
    pub(super) fn over(&self) -> Result<Members, Failure> {
        let nothing =
            || -> Result<Box<RawValue>, Failure> { Ok(to_raw_value(&()).context("write the job")?) };
        let mut over = Members::new();
        let concurrency = Concurrency {
            max: self.concurrency.and_then(Setting::value),
            key: self.concurrency_key.clone(),
            across: self.concurrency_across.clone(),
            holds_retries: self.concurrency_holds_retries,
        };
        match self.concurrency {
            Some(Setting::Off) => drop(over.insert("concurrency".into(), nothing()?)),
            _ if concurrency == Concurrency::default() => {}
            _ => {
                drop(over.insert("concurrency".into(), to_raw_value(&concurrency).context("write the job")?));
            }
        }
        let speed = self.rate.and_then(Setting::value);
        let rate = RateLimit {
            limit: speed.map(|speed| speed.limit),
            per: speed.and_then(|speed| speed.per),
            burst: self.rate_burst,
            key: self.rate_key.clone(),
            across: self.rate_across.clone(),
        };
        match self.rate {
            Some(Setting::Off) => drop(over.insert("rate".into(), nothing()?)),
            _ if rate == RateLimit::default() => {}
            _ => drop(over.insert("rate".into(), to_raw_value(&rate).context("write the job")?)),
        }
        match self.breaker_failures {
            Some(Setting::Off) => drop(over.insert("breaker".into(), nothing()?)),
            Some(Setting::Of(failures)) => {
                let breaker = JobBreaker { failures: Some(failures) };
                drop(over.insert("breaker".into(), to_raw_value(&breaker).context("write the job")?));
            }
            None => {}
        }
        Ok(over)
    }
}

impl<T> Setting<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Setting::Off => None,
            Setting::Of(value) => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_members() {
        let flags = Flags {
            concurrency: Some("1".parse().expect("a number")),
            concurrency_key: Some("{payload.customer}".into()),
            concurrency_holds_retries: Some(false),
            rate: Some("off".parse().expect("off")),
            ..Flags::default()
        };
        let over = serde_json::to_string(&flags.over().expect("members")).expect("JSON");
        let expected =
            r#"{"concurrency":{"max":1,"key":"{payload.customer}","holds_retries":false},"rate":null}"#;
        assert_eq!(over, expected);
        let flags = Flags { rate: Some("100/1m".parse().expect("a speed")), ..Flags::default() };
        let over = serde_json::to_string(&flags.over().expect("members")).expect("JSON");
        assert_eq!(over, r#"{"rate":{"limit":100,"per":"PT1M"}}"#);
        for (text, expected) in [("5", r#"{"breaker":{"failures":5}}"#), ("off", r#"{"breaker":null}"#)] {
            let flags = Flags { breaker_failures: Some(text.parse().expect("a number")), ..Flags::default() };
            assert_eq!(serde_json::to_string(&flags.over().expect("members")).expect("JSON"), expected);
        }
        assert!(Flags::default().over().expect("members").is_empty());
    }
}
