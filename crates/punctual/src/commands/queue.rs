//! `punctual queue`: what waits, and who is there to take it.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use punctual_api::queue::Queue;

use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// See what waits and runs in queues, who serves them and what is planned
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
    /// List them
    List {
        /// Of all tenants, for an admin
        #[arg(long)]
        all: bool,
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
            remote.show(&client.queues(tenant).await?, |page, _| table(&page.items, *all))
        }
    }
}

fn table(queues: &[Queue], all: bool) -> String {
    let columns =
        ["TENANT", "QUEUE", "WAITING", "OLDEST", "LATE", "RUNNING", "WORKERS", "ROOM", "BUSY", "NEXT 15 MIN"];
    let mut table = output::table(if all { &columns } else { &columns[1..] });
    for queue in queues {
        let more = if queue.is_more { " or more" } else { "" };
        let about = if queue.is_planned_exact { "" } else { "about " };
        let mut row = vec![
            Cell::new(&queue.tenant),
            Cell::new(&queue.queue),
            Cell::new(format!("{}{more}", queue.waiting)),
            Cell::new(if queue.waiting == 0 { String::new() } else { moment::millis(queue.oldest_wait_ms) }),
            Cell::new(queue.lateness_ms.map(moment::millis).unwrap_or_default()),
            Cell::new(queue.running),
            Cell::new(queue.workers),
            Cell::new(queue.concurrency),
            Cell::new(queue.saturation.map(|busy| format!("{:.0} %", busy * 100.0)).unwrap_or_default()),
            Cell::new(format!("{about}{}", queue.planned)),
        ];
        if !all {
            row.remove(0);
        }
        table.add_row(row);
    }
    output::lines(&table)
}
