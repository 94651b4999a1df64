//! `punctual alert`: what somebody wants to be told of, and what is raised now.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use jiff::Timestamp;
use punctual_api::Duration;
use punctual_api::alert::{Alarm, Alert, AlertJobs, AlertMail, AlertSpec, AlertTo, AlertUrl};
use punctual_client::Client;

use super::asking::Ask;
use super::job::read_json;
use super::remote::{Paging, Remote};
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Set an alert, or change it
    Put(Box<Put>),
    /// List all alerts
    List(Watch),
    /// Show an alert
    Get {
        /// Its name
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Delete an alert, with its alarms: nobody is told any more
    Delete {
        /// Its name
        name: String,
    },
    /// List what is raised now, and since when
    Alarms {
        #[command(flatten)]
        paging: Paging,
    },
}

#[derive(Args)]
pub(crate) struct Put {
    /// Its name: 1 to 63 letters, digits and any of . _ - /
    name: String,
    /// What it is about: dead_letter, breaker_open, missed, late or silent
    #[arg(long, value_name = "WHAT", required_unless_present = "file")]
    on: Option<String>,
    /// With --on late: runs that start later than this after their slot
    #[arg(long, value_name = "PERIOD")]
    over: Option<Duration>,
    /// With --on silent: active jobs that had no success for this long
    #[arg(long = "for", value_name = "PERIOD")]
    r#for: Option<Duration>,
    /// Tell this URL, as JSON
    #[arg(long, value_name = "URL", group = "who")]
    webhook: Option<String>,
    /// Tell this URL in the form of Slack's incoming webhooks
    #[arg(long, value_name = "URL", group = "who")]
    slack: Option<String>,
    /// Tell these addresses by mail; several with commas between
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', group = "who")]
    mail: Vec<String>,
    /// What goes on is told again after this long [default: 1h]
    #[arg(long, value_name = "PERIOD")]
    repeat_every: Option<Duration>,
    /// Only the job with this id
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only the job with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only jobs of this type
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// Only jobs in this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only jobs with this label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// The alert as JSON or YAML, instead of flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "who", "over", "for", "repeat_every"])]
    file: Option<PathBuf>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as `name=value`")?;
    Ok((name.into(), value.into()))
}

impl Put {
    fn spec(&self) -> AlertSpec {
        let url = |url: &Option<String>| url.clone().map(|url| AlertUrl { url: Some(url) });
        let jobs = AlertJobs {
            id: self.job.clone(),
            key: self.key.clone(),
            r#type: self.r#type.clone(),
            queue: self.queue.clone(),
            labels: (!self.labels.is_empty()).then(|| self.labels.iter().cloned().collect()),
        };
        let to = AlertTo {
            webhook: url(&self.webhook),
            slack: url(&self.slack),
            mail: (!self.mail.is_empty()).then(|| AlertMail { to: Some(self.mail.clone()) }),
        };
        AlertSpec {
            on: self.on.clone(),
            over: self.over,
            r#for: self.r#for,
            jobs: Some(jobs).filter(|jobs| *jobs != AlertJobs::default()),
            to: Some(to).filter(|to| *to != AlertTo::default()),
            repeat_every: self.repeat_every,
        }
    }
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Put(put) => {
                let alert = match &put.file {
                    Some(path) => client.put_alert(&put.name, &*read_json(path)?).await?,
                    None => client.put_alert(&put.name, &put.spec()).await?,
                };
                remote.show(&alert, |alert, _| format!("alert {}: {}\n", alert.name, told(alert)))
            }
            Command::List(_) => remote.show(&client.alerts().await?, |page, _| {
                let mut table = output::table(&["ALERT", "ON", "JOBS", "TELLS", "REPEATS EVERY"]);
                for alert in &page.items {
                    let every = alert.spec.repeat_every.map(|every| every.to_string()).unwrap_or_default();
                    let row =
                        [alert.name.clone(), on(&alert.spec), jobs(&alert.spec), who(&alert.spec), every];
                    table.add_row(row.map(|text| output::safe(&text)));
                }
                output::lines(&table)
            }),
            Command::Get { name, .. } => remote.show(&client.alert(name).await?, |alert, _| {
                format!("alert {}: {}\n", alert.name, told(alert))
            }),
            Command::Delete { name } => {
                client.delete_alert(name).await?;
                Ok(())
            }
            Command::Alarms { paging } => remote.show_list(client.alarms(), paging, alarms).await,
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List(watch) | Command::Get { watch, .. } => *watch,
            Command::Alarms { paging } => paging.watch,
            _ => Watch::default(),
        }
    }
}

fn alarms(alarms: &[&Alarm], now: Timestamp) -> String {
    let mut table = output::table(&["ALERT", "ON", "OF", "SINCE", "COUNT", "TOLD", "WHAT"]);
    for alarm in alarms {
        let of = match (&alarm.job, &alarm.breaker) {
            (Some(job), _) if alarm.name.is_empty() => job.clone(),
            (Some(job), _) => format!("{} ({job})", alarm.name),
            (None, _) => alarm.name.clone(),
        };
        table.add_row(vec![
            Cell::new(&alarm.alert),
            Cell::new(&alarm.on),
            Cell::new(output::safe(&of)),
            Cell::new(moment::full(alarm.since, now)),
            Cell::new(alarm.count),
            Cell::new(alarm.told),
            Cell::new(output::safe(&alarm.detail)),
        ]);
    }
    output::lines(&table)
}

fn told(alert: &Alert) -> String {
    let spec = &alert.spec;
    let every = spec.repeat_every.map(|every| format!(", again every {every}")).unwrap_or_default();
    output::safe(&format!("{} of {}, told to {}{every}", on(spec), jobs(spec), who(spec)))
}

fn on(spec: &AlertSpec) -> String {
    let word = spec.on.clone().unwrap_or_default();
    match (spec.over, spec.r#for) {
        (Some(over), _) => format!("{word} over {over}"),
        (None, Some(length)) => format!("{word} for {length}"),
        (None, None) => word,
    }
}

fn jobs(spec: &AlertSpec) -> String {
    let Some(jobs) = &spec.jobs else { return "all jobs".into() };
    let words = [("job", &jobs.id), ("key", &jobs.key), ("type", &jobs.r#type), ("queue", &jobs.queue)];
    let named = words.iter().filter_map(|(what, value)| Some(format!("{what} {}", value.as_ref()?)));
    named.chain(jobs.labels.as_ref().map(output::labels)).collect::<Vec<_>>().join(", ")
}

fn who(spec: &AlertSpec) -> String {
    let Some(to) = &spec.to else { return String::new() };
    let url = |of: &AlertUrl| of.url.clone().unwrap_or_default();
    match (&to.webhook, &to.slack, &to.mail) {
        (Some(webhook), _, _) => url(webhook),
        (None, Some(slack), _) => format!("slack {}", url(slack)),
        (None, None, mail) => {
            let to = mail.as_ref().and_then(|mail| mail.to.clone()).unwrap_or_default();
            format!("mail {}", to.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_told_in_a_line() {
        let text = r#"{"name":"pager","on":"late","over":"PT5M","jobs":{"queue":"mail","labels":{"team":"core"}},
            "to":{"mail":{"to":["a@example.com","b@example.com"]}},"repeat_every":"PT1H"}"#;
        let alert: Alert = serde_json::from_str(text).expect("an alert");
        let expected = "late over PT5M of queue mail, team=core, told to mail a@example.com, b@example.com, again every PT1H";
        assert_eq!(told(&alert), expected);
    }
}
