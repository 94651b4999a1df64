//! `punctual worker`: who pulls runs.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::worker::Worker;

use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// See the programs that ask for runs of `worker` jobs
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
    /// List those that live
    List {
        /// Of all tenants, for an admin
        #[arg(long)]
        all: bool,
    },
    /// Show one
    Get {
        /// Its id
        id: String,
    },
    /// Send one away: it is told with its next call, and what it holds goes to others
    Dismiss {
        /// Its id
        id: String,
    },
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let remote = &arguments.remote;
    let client = remote.client()?;
    match &arguments.command {
        Command::List { all } => {
            let tenant = all.then_some("*");
            remote.show(&client.workers(tenant).await?, |page, _| table(&page.items))
        }
        Command::Get { id } => {
            remote.show(&client.worker(id).await?, |worker, _| table(std::slice::from_ref(worker)))
        }
        Command::Dismiss { id } => {
            client.dismiss_worker(id).await?;
            Ok(())
        }
    }
}

fn table(workers: &[Worker]) -> String {
    let now = Timestamp::now();
    let mut table = output::table(&["WORKER", "NAME", "QUEUES", "HOLDS", "LABELS", "SINCE", "SEEN"]);
    for worker in workers {
        table.add_row(vec![
            worker.id.clone(),
            worker.name.clone(),
            worker.queues.join(", "),
            format!("{} of {}", worker.held, worker.concurrency),
            output::labels(&worker.labels),
            moment::full(worker.started_at, now),
            moment::full(worker.seen_at, now),
        ]);
    }
    output::lines(&table)
}
