//! Retries and limits of time on the command line.

use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use punctual_api::Duration;
use punctual_api::retry::{Failures, Retry, Status};
use serde_json::value::{RawValue, to_raw_value};

use super::spec::{Members, members};
use crate::failure::Failure;

/// When attempts follow each other, and until when.
#[derive(Args, Default)]
#[group(skip)] // Flags of a job have one group each.
pub(super) struct Flags {
    /// How delays grow: exponential, linear, fixed or list [default: exponential]
    #[arg(long, value_name = "BACKOFF", help_heading = "Policies")]
    retry_backoff: Option<String>,
    /// The delay after each failure, such as 10s,1m,10m; the last repeats
    #[arg(long, value_name = "PERIODS", value_delimiter = ',', help_heading = "Policies")]
    retry_delays: Vec<Duration>,
    /// No attempt starts later than this after the slot [default: off]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    retry_for: Option<Limit>,
    /// Retry these failures too: 409, 5xx, connect_failed, failed, timed_out
    #[arg(long, value_name = "FAILURES", value_delimiter = ',', help_heading = "Policies")]
    retry_on: Vec<String>,
    /// Do not retry these failures
    #[arg(long, value_name = "FAILURES", value_delimiter = ',', help_heading = "Policies")]
    no_retry_on: Vec<String>,
    /// A run that has not started so long after its slot is missed [default: off]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    start_window: Option<Limit>,
    /// How long after its slot all of a run may take [default: off]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    deadline: Option<Limit>,
    /// Warn when a run succeeds in less than this [default: off]
    #[arg(long, value_name = "PERIOD", help_heading = "Policies")]
    min_duration: Option<Limit>,
}

/// A length of time, or none.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Off,
    Of(Duration),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Limit::Off),
            text => text
                .parse()
                .map(Limit::Of)
                .map_err(|error: punctual_schedule::Error| format!("{error}; `off` takes the limit away")),
        }
    }
}

impl Limit {
    /// Nothing takes away what is there.
    fn written(self) -> Result<Box<RawValue>, Failure> {
        let length = match self {
            Limit::Off => None,
            Limit::Of(length) => Some(length),
        };
        Ok(to_raw_value(&length).context("write a limit")?)
    }
}

impl Flags {
    /// What the flags say, as members of a job. `retry` is what other flags say about it.
    pub(super) fn over(&self, retry: Retry) -> Result<Members, Failure> {
        let retry = Retry {
            backoff: self.retry_backoff.clone().or((!self.retry_delays.is_empty()).then(|| "list".into())),
            delays: Some(self.retry_delays.clone()).filter(|delays| !delays.is_empty()),
            on: failures(&self.retry_on),
            not_on: failures(&self.no_retry_on),
            ..retry
        };
        let mut retry = members(&to_raw_value(&retry).context("write the job")?)?;
        let mut over = Members::new();
        if let Some(limit) = self.retry_for {
            retry.insert("retry_for".into(), limit.written()?);
        }
        if !retry.is_empty() {
            over.insert("retry".into(), to_raw_value(&retry).context("write the job")?);
        }
        for (name, limit) in [
            ("start_window", self.start_window),
            ("deadline", self.deadline),
            ("min_duration", self.min_duration),
        ] {
            if let Some(limit) = limit {
                over.insert(name.into(), limit.written()?);
            }
        }
        Ok(over)
    }
}

/// Failures by the look of their names: a status begins with a digit, and there are two outcomes.
fn failures(words: &[String]) -> Option<Failures> {
    if words.is_empty() {
        return None;
    }
    let mut failures = Failures::default();
    for word in words {
        match word.as_str() {
            "failed" | "timed_out" => failures.outcomes.get_or_insert_default().push(word.clone()),
            word if word.starts_with(|c: char| c.is_ascii_digit()) => {
                failures.status.get_or_insert_default().push(Status(word.into()));
            }
            _ => failures.errors.get_or_insert_default().push(word.clone()),
        }
    }
    Some(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(flags: &Flags) -> String {
        let over = flags.over(Retry { max_attempts: Some(4), ..Retry::default() }).expect("members");
        serde_json::to_string(&over).expect("JSON")
    }

    #[test]
    fn flags_become_members() {
        let words = |text: &str| text.split(',').map(String::from).collect();
        let limit = |text: &str| Some(text.parse::<Limit>().expect("a limit"));
        let flags = Flags {
            retry_delays: vec!["10s".parse().expect("a period"), "1m".parse().expect("a period")],
            retry_for: limit("2h"),
            retry_on: words("409,tls_failed,5xx"),
            no_retry_on: words("timed_out"),
            deadline: limit("off"),
            start_window: limit("5m"),
            ..Flags::default()
        };
        let expected = r#"{"deadline":null,"retry":{"backoff":"list","delays":["PT10S","PT1M"],"max_attempts":4,"not_on":{"outcomes":["timed_out"]},"on":{"status":["409","5xx"],"errors":["tls_failed"]},"retry_for":"PT2H"},"start_window":"PT5M"}"#;
        assert_eq!(written(&flags), expected);
        assert_eq!(written(&Flags::default()), r#"{"retry":{"max_attempts":4}}"#);
        assert!("never".parse::<Limit>().is_err());
    }
}
