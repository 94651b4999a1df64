//! `punctual batch`: jobs with a list of items, each of which is a run.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::batch::{Batch, BatchCounts, BatchRun};
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
    /// Register a batch; the same file again is the same batch
    Create {
        /// A file with a batch as JSON or YAML, or - for standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// List batches
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a batch, and count the items of its newest slot
    Get {
        /// Its id
        id: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// List the items of a batch that have runs, newest first
    Items {
        /// Its id
        id: String,
        /// Only those in this state: failed, for one
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// End a batch: what waits ends, what runs is asked to stop
    Cancel {
        /// Its id
        id: String,
    },
    /// Delete a batch; its history stays until it expires
    Delete {
        /// Its id
        id: String,
    },
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Create { file } => {
                // As it is written: the server names what is wrong.
                let text = read_json(file)?;
                let batch = client.create_batch(&text).await?;
                remote.show(&batch, |batch, _| format!("batch {}: {} items\n", batch.id, batch.items))
            }
            Command::List { paging } => remote.show_list(client.batches(), paging, table).await,
            Command::Get { id, .. } => remote.show(&client.batch(id).await?, page),
            Command::Items { id, state, paging } => {
                remote.show_list(client.batch_items(id, state.as_deref()), paging, items).await
            }
            Command::Cancel { id } => remote.show(&client.cancel_batch(id).await?, page),
            Command::Delete { id } => {
                client.delete_batch(id).await?;
                Ok(())
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging } | Command::Items { paging, .. } => paging.watch,
            Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

fn table(batches: &[&Batch], now: Timestamp) -> String {
    let mut table = output::table(&["BATCH", "STATE", "ITEMS", "SLOT", "NEXT", "NAME"]);
    let time = |at: Option<Timestamp>| at.map_or_else(|| "-".into(), |at| moment::relative(at, now));
    for batch in batches {
        table.add_row(vec![
            output::safe(&batch.id).into(),
            output::state(&batch.state),
            batch.items.into(),
            time(batch.scheduled_for).into(),
            time(batch.next_fire_at).into(),
            output::safe(&batch.name).into(),
        ]);
    }
    output::lines(&table)
}

fn page(batch: &Batch, now: Timestamp) -> String {
    let mut facts = output::Facts::new();
    let mut fact = |name: &str, value: Option<String>| facts.add(name, value);
    let full = |at: Option<Timestamp>| at.map(|at| moment::full(at, now));
    fact("batch", Some(batch.id.clone()));
    fact("name", Some(batch.name.clone()));
    fact("job", Some(batch.job_id.clone()));
    fact("state", Some(batch.state.clone()));
    fact("items", Some(batch.items.to_string()));
    fact("slot", full(batch.scheduled_for));
    fact("counts", batch.counts.map(|counts| in_a_line(&counts)));
    fact("completed", full(batch.completed_at));
    fact("cancelled", full(batch.cancelled_at));
    fact("next slot", full(batch.next_fire_at));
    facts.lines()
}

/// What there is any of.
fn in_a_line(counts: &BatchCounts) -> String {
    let some = [
        ("pending", counts.pending),
        ("running", counts.running),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("timed out", counts.timed_out),
        ("cancelled", counts.cancelled),
        ("missed", counts.missed),
        ("forgotten", counts.forgotten),
    ];
    let some: Vec<String> =
        some.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")).collect();
    some.join(", ")
}

fn items(items: &[&BatchRun], now: Timestamp) -> String {
    let mut table = output::table(&["ITEM", "STATE", "ATTEMPTS", "ENDED", "SLOT", "RUN"]);
    for item in items {
        table.add_row(vec![
            output::safe(&item.item_id).into(),
            output::state(&item.state),
            item.attempts.into(),
            item.finished_at.map_or_else(|| "-".into(), |at| moment::relative(at, now)).into(),
            moment::relative(item.scheduled_for, now).into(),
            item.run_id.clone().into(),
        ]);
    }
    output::lines(&table)
}
