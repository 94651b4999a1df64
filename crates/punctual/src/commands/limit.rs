//! `punctual limit`: limits that administrators set.

use std::str::FromStr;

use clap::{Args, Subcommand};
use punctual_api::Duration;
use punctual_api::limit::{Limit, LimitSpec, Rate};
use punctual_client::Client;

use super::asking::Ask;
use super::output;
use super::remote::Remote;
use super::watch::Watch;
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Set a limit, or change it
    Set(Box<Set>),
    /// List all limits
    List(Watch),
    /// Delete a limit: it counts no more, at once
    Delete {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Set {
    /// Its name: 1 to 63 letters, digits and any of . _ - /
    name: String,
    /// So many runs at once
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    /// So many starts in a time, such as 100/1m; without a time in a second
    #[arg(long, value_name = "N/PERIOD")]
    rate: Option<Speed>,
    /// With --rate: how many start together after a quiet time [default: 1]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,
    /// Only runs of this tenant
    #[arg(long = "for-tenant", value_name = "TENANT")]
    for_tenant: Option<String>,
    /// Only runs of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only runs of this type of job
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// What is counted apart: tenant, queue, type, job or key; may be several
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    by: Vec<String>,
    /// Runs keep their permits while they wait for their next attempt
    #[arg(long)]
    holds_retries: bool,
}

/// How many in a time: `100/1m`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    pub(super) limit: u32,
    pub(super) per: Option<Duration>,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (limit, per) = match text.split_once('/') {
            Some((limit, per)) => (limit, Some(per)),
            None => (text, None),
        };
        let limit = limit.parse().map_err(|_| "write a number and a time, such as 100/1m".to_string())?;
        // `100/s` reads as people write it.
        let length = |per: &str| match per.starts_with(|c: char| c.is_ascii_digit() || c == 'P') {
            true => per.parse(),
            false => format!("1{per}").parse(),
        };
        let per = per.map(length).transpose();
        Ok(Speed { limit, per: per.map_err(|error: punctual_schedule::Error| error.to_string())? })
    }
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Set(set) => {
                let rate =
                    set.rate.map(|Speed { limit, per }| Rate { limit: Some(limit), per, burst: set.burst });
                let spec = LimitSpec {
                    tenant: set.for_tenant.clone(),
                    queue: set.queue.clone(),
                    r#type: set.r#type.clone(),
                    by: (!set.by.is_empty()).then(|| set.by.clone()),
                    max: set.max,
                    rate,
                    holds_retries: set.holds_retries.then_some(true),
                };
                let limit = client.put_limit(&set.name, &spec).await?;
                remote.show(&limit, |limit, _| format!("limit {}: {}\n", limit.name, told(limit)))
            }
            Command::List(_) => remote.show(&client.limits().await?, |page, _| {
                let mut table = output::table(&["LIMIT", "FOR", "BY", "ALLOWS"]);
                for limit in &page.items {
                    let by = limit.spec.by.clone().unwrap_or_default().join(", ");
                    table.add_row(vec![limit.name.clone(), runs(&limit.spec), by, allows(&limit.spec)]);
                }
                output::lines(&table)
            }),
            Command::Delete { name } => {
                client.delete_limit(name).await?;
                Ok(())
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List(watch) => *watch,
            _ => Watch::default(),
        }
    }
}

fn told(limit: &Limit) -> String {
    let by = limit.spec.by.as_ref().filter(|by| !by.is_empty());
    let by = by.map(|by| format!(" for each {}", by.join(" and "))).unwrap_or_default();
    format!("{}{by}, {}", runs(&limit.spec), allows(&limit.spec))
}

fn runs(spec: &LimitSpec) -> String {
    let parts = [("tenant", &spec.tenant), ("queue", &spec.queue), ("type", &spec.r#type)];
    let named: Vec<String> =
        parts.iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))).collect();
    if named.is_empty() { "all runs".into() } else { named.join(", ") }
}

fn allows(spec: &LimitSpec) -> String {
    let max = spec.max.map(|max| format!("{max} at once"));
    let rate = spec.rate.as_ref().and_then(|rate| {
        let per = rate.per.map(|per| per.to_string()).unwrap_or_default();
        let burst = rate.burst.filter(|burst| *burst > 1);
        let burst = burst.map(|burst| format!(" with bursts of {burst}")).unwrap_or_default();
        Some(format!("{} in {per}{burst}", rate.limit?))
    });
    [max, rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_read_as_people_write_it() {
        for (text, limit, per) in [
            ("100", 100, None),
            ("10/s", 10, Some("PT1S")),
            ("100/1m", 100, Some("PT1M")),
            ("5/PT1H", 5, Some("PT1H")),
        ] {
            let speed: Speed = text.parse().expect("a speed");
            assert_eq!(
                (speed.limit, speed.per.map(|per| per.to_string()).as_deref()),
                (limit, per),
                "{text}"
            );
        }
        for text in ["", "fast", "10/", "10/week", "/s"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
