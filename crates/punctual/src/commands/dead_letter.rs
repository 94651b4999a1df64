//! `punctual dead-letter`: runs that ended badly and wait for somebody.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use jiff::Timestamp;
use punctual_api::dead_letter::{DeadLetterGroups, Filter, Selection, SelectionResult};
use punctual_api::time::Time;
use punctual_client::{Answer, Client, Done, JobRef, RunFilter};

use super::asking::Ask;
use super::output;
use super::remote::{Paging, Remote};
use super::run::{Common, table};
use super::watch::Watch;
use super::{many, moment};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List dead runs, newest first
    List {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        paging: Paging,
    },
    /// Group the newest dead runs by what went wrong, the largest group first
    Groups {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        watch: Watch,
    },
    /// Let dead runs go on: the same runs, their next attempts
    Redrive(Which),
    /// Take runs out of the dead letters; they stay as they are
    Acknowledge(Which),
}

#[derive(Args)]
pub(crate) struct Narrow {
    /// Of this job: its id or key:KEY
    #[arg(long, value_name = "JOB")]
    job: Option<JobRef>,
    /// The error of their last attempt has this code, such as connect_failed
    #[arg(long, value_name = "CODE")]
    error: Option<String>,
    /// Their job has this label: name=value
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Narrow {
    async fn filter(&self, client: &Client) -> Result<RunFilter, Failure> {
        let job = match &self.job {
            Some(job) => Some(client.job_id(job).await?),
            None => None,
        };
        Ok(RunFilter {
            job,
            r#type: self.common.r#type.clone(),
            queue: self.common.queue.clone(),
            from: self.common.from.clone(),
            to: self.common.to.clone(),
            error: self.error.clone(),
            label: self.label.clone(),
            ..RunFilter::default()
        })
    }
}

#[derive(Args)]
pub(crate) struct Which {
    /// Runs, by id
    #[arg(value_name = "RUN", conflicts_with_all = ["job", "error", "label", "type", "queue", "from", "to", "all"])]
    runs: Vec<String>,
    #[command(flatten)]
    narrow: Narrow,
    /// All dead letters of the tenant
    #[arg(long)]
    all: bool,
    /// Do not wait for the operation over many runs to end
    #[arg(long)]
    no_wait: bool,
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { narrow, paging } => {
                let filter = narrow.filter(client).await?;
                remote
                    .show_list(client.dead_letters(&filter), paging, |runs, now| {
                        table(runs, now, remote.is_wide())
                    })
                    .await
            }
            Command::Groups { narrow, .. } => {
                let found = client.dead_letter_groups(&narrow.filter(client).await?).await?;
                remote.show(&found, groups)
            }
            Command::Redrive(which) => {
                let done = client.redrive(&selection(which, client).await?).await?;
                finish(done, which, remote, client, "redriven").await
            }
            Command::Acknowledge(which) => {
                let done = client.acknowledge(&selection(which, client).await?).await?;
                finish(done, which, remote, client, "acknowledged").await
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging, .. } => paging.watch,
            Command::Groups { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

async fn selection(which: &Which, client: &Client) -> Result<Selection, Failure> {
    if !which.runs.is_empty() {
        return Ok(Selection { runs: Some(which.runs.clone()), filter: None });
    }
    let common = &which.narrow.common;
    let job = match &which.narrow.job {
        Some(job) => Some(client.job_id(job).await?),
        None => None,
    };
    let filter = Filter {
        job,
        r#type: common.r#type.clone(),
        queue: common.queue.clone(),
        from: common.from.as_deref().map(time),
        to: common.to.as_deref().map(time),
        error: which.narrow.error.clone(),
        label: which.narrow.label.clone(),
    };
    if filter == Filter::default() && !which.all {
        let way_out =
            "name runs, narrow by --job, --error, --label, --type, --queue, --from or --to, or write --all";
        return Err(Failure::Input(way_out.into()));
    }
    Ok(Selection { runs: None, filter: Some(filter) })
}

/// A table of groups, and how far it reaches.
fn groups(found: &DeadLetterGroups, now: Timestamp) -> String {
    let mut table = output::table(&["COUNT", "JOBS", "ERROR", "MESSAGE", "FIRST", "LAST", "EXAMPLE"]);
    for group in &found.items {
        let status = group.status.map(|status| format!(" {status}")).unwrap_or_default();
        table.add_row(vec![
            Cell::new(group.count),
            Cell::new(group.jobs),
            Cell::new(format!("{}{status}", group.error)),
            Cell::new(output::safe(&group.message)),
            Cell::new(moment::relative(group.first_at, now)),
            Cell::new(moment::relative(group.last_at, now)),
            Cell::new(&group.example_run_id),
        ]);
    }
    let mut text = output::lines(&table);
    if !found.is_complete {
        let note = format!(
            "these are the newest {}; there are more: narrow by --job, --from or --to\n",
            found.examined
        );
        text.push_str(&note);
    }
    text
}

/// Text, or epoch seconds.
pub(super) fn time(text: &str) -> Time {
    text.parse().map_or_else(|_| Time::Text(text.into()), Time::Seconds)
}

async fn finish(
    done: Done,
    which: &Which,
    remote: &Remote,
    client: &Client,
    deed: &str,
) -> Result<(), Failure> {
    match done {
        Done::Runs(result) => told(&result, remote, deed),
        Done::Started(operation) => many::follow(*operation, which.no_wait, deed, remote, client).await,
    }
}

fn told(result: &Answer<SelectionResult>, remote: &Remote, deed: &str) -> Result<(), Failure> {
    remote.show(result, |result, _| format!("{} {deed}\n", result.done))?;
    let mut problems =
        result.items.iter().filter_map(|item| item.problem.as_ref().map(|problem| (item, problem)));
    match (result.items.len(), problems.next()) {
        (_, None) => Ok(()),
        (1, Some((_, problem))) => Err(problem.clone().into()),
        (all, Some((item, problem))) => {
            if !remote.output.is_for_programs() {
                for (item, problem) in std::iter::once((item, problem)).chain(problems) {
                    output::print(&format!("run {}: {}\n", item.id, problem.detail))?;
                }
            }
            Err(Failure::Other(anyhow::anyhow!("{} of {all} runs were not {deed}", result.failed)))
        }
    }
}
