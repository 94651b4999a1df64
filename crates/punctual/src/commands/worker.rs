//! `punctual worker`: who pulls runs.

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::worker::Worker;
use punctual_client::Client;

use super::asking::Ask;
use super::remote::Remote;
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List those that live
    List {
        /// Of all tenants, for an admin
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show one
    Get {
        /// Its id
        id: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Send one away: it is told with its next call, and what it holds goes to others
    Dismiss {
        /// Its id
        id: String,
    },
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { all, .. } => {
                let tenant = all.then_some("*");
                remote.show(&client.workers(tenant).await?, |page, _| table(&page.items))
            }
            Command::Get { id, .. } => {
                remote.show(&client.worker(id).await?, |worker, _| table(std::slice::from_ref(worker)))
            }
            Command::Dismiss { id } => {
                client.dismiss_worker(id).await?;
                Ok(())
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { watch, .. } | Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
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
