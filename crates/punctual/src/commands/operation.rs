//! `punctual operation`: long work that the server does by itself.

use clap::{Subcommand, ValueEnum};
use comfy_table::Cell;
use jiff::Timestamp;
use punctual_api::operation::Operation;
use punctual_client::Client;

use super::asking::Ask;
use super::remote::{Paging, Remote};
use super::run::word;
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List operations, newest first
    List {
        /// In this state
        #[arg(long, value_enum)]
        state: Option<State>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show an operation: what it does, how far it is, and how it ended
    Get {
        /// The operation's id
        operation: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// End an operation between two steps; what it did stays done
    Cancel {
        /// The operation's id
        operation: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum State {
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { state, paging } => {
                let state = state.map(word);
                remote.show_list(client.operations(state.as_deref()), paging, table).await
            }
            Command::Get { operation, .. } => remote.show(&client.operation(operation).await?, page),
            Command::Cancel { operation } => {
                remote.show(&client.cancel_operation(operation).await?, |operation, _| {
                    format!("operation {} is cancelled; {} were done\n", operation.id, operation.done)
                })
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging, .. } => paging.watch,
            Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

fn table(operations: &[&Operation], now: Timestamp) -> String {
    let mut table = output::table(&["OPERATION", "KIND", "STATE", "DONE", "FAILED", "STARTED", "ENDED"]);
    for operation in operations {
        table.add_row(vec![
            Cell::new(&operation.id),
            Cell::new(&operation.kind),
            output::state(&operation.state),
            Cell::new(done(operation)),
            Cell::new(operation.failed),
            Cell::new(moment::full(operation.created_at, now)),
            Cell::new(operation.finished_at.map(|at| moment::full(at, now)).unwrap_or_default()),
        ]);
    }
    output::lines(&table)
}

fn page(operation: &Operation, now: Timestamp) -> String {
    let mut facts = output::Facts::new();
    let mut fact = |name: &str, value: Option<String>| facts.add(name, value);
    let filter = operation.filter.as_ref();
    fact("operation", Some(operation.id.clone()));
    fact("kind", Some(operation.kind.clone()));
    fact("state", Some(operation.state.clone()));
    fact("job", operation.job_id.clone().or_else(|| filter?.job.clone()));
    fact("type", filter.and_then(|filter| filter.r#type.clone()));
    fact("queue", filter.and_then(|filter| filter.queue.clone()));
    fact("jobs", operation.jobs.as_ref().map(json));
    fact("runs", operation.runs.as_ref().map(json));
    fact("calendar", operation.calendar.clone());
    fact("patch", operation.patch.as_ref().map(|patch| output::safe(patch.as_str())));
    fact("done", Some(done(operation)));
    fact("failed", Some(operation.failed.to_string()));
    fact("such as", operation.failure.as_deref().map(output::safe));
    fact("started", Some(moment::full(operation.created_at, now)));
    fact("went on", Some(moment::full(operation.updated_at, now)));
    fact("ended", operation.finished_at.map(|at| moment::full(at, now)));
    fact("why", operation.error.as_deref().map(output::safe));
    facts.lines()
}

/// A filter, as it was asked for.
fn json(filter: &impl serde::Serialize) -> String {
    output::safe(&serde_json::to_string(filter).unwrap_or_default())
}

fn done(operation: &Operation) -> String {
    match operation.total {
        Some(total) => format!("{} of {total}", operation.done),
        None => operation.done.to_string(),
    }
}
