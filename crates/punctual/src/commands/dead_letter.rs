//! `punctual dead-letter`: runs that ended badly and wait for somebody.

use clap::{Args, Subcommand};
use punctual_api::dead_letter::{Filter, Selection, SelectionResult};
use punctual_api::time::Time;
use punctual_client::{Answer, Client, Done, JobRef, RunFilter};

use super::many;
use super::output::{self, Format};
use super::remote::{self, Paging, Remote};
use super::run::{Common, table};
use crate::failure::{EXIT_CODES, Failure};

/// List dead runs, let them go on, or acknowledge them
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand)]
enum Command {
    /// List dead runs, newest first
    List {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        paging: Paging,
    },
    /// Let dead runs go on: the same runs, their next attempts
    Redrive(Which),
    /// Take runs out of the dead letters; they stay as they are
    Acknowledge(Which),
}

#[derive(Args)]
struct Narrow {
    /// Of this job: its id or key:KEY
    #[arg(long, value_name = "JOB")]
    job: Option<JobRef>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Which {
    /// Runs, by id
    #[arg(value_name = "RUN", conflicts_with_all = ["job", "type", "queue", "from", "to", "all"])]
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

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let remote = &arguments.remote;
    let client = remote.client()?;
    match &arguments.command {
        Command::List { narrow, paging } => {
            let job = match &narrow.job {
                Some(job) => Some(client.job_id(job).await?),
                None => None,
            };
            let filter = RunFilter {
                job,
                r#type: narrow.common.r#type.clone(),
                queue: narrow.common.queue.clone(),
                from: narrow.common.from.clone(),
                to: narrow.common.to.clone(),
                ..RunFilter::default()
            };
            remote.show_list(client.dead_letters(&filter), paging, table).await
        }
        Command::Redrive(which) => {
            let done = client.redrive(&selection(which, &client).await?).await?;
            finish(done, which, remote, &client, "redriven").await
        }
        Command::Acknowledge(which) => {
            let done = client.acknowledge(&selection(which, &client).await?).await?;
            finish(done, which, remote, &client, "acknowledged").await
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
    };
    if filter == Filter::default() && !which.all {
        let way_out = "name runs, narrow by --job, --type, --queue, --from or --to, or write --all";
        return Err(Failure::Input(way_out.into()));
    }
    Ok(Selection { runs: None, filter: Some(filter) })
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
            if remote.output == Format::Table {
                for (item, problem) in std::iter::once((item, problem)).chain(problems) {
                    output::print(&format!("run {}: {}\n", item.id, problem.detail))?;
                }
            }
            Err(Failure::Other(anyhow::anyhow!("{} of {all} runs were not {deed}", result.failed)))
        }
    }
}
