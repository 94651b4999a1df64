//! `punctual queue`: what waits, and who is there to take it.

use clap::Subcommand;
use comfy_table::Cell;
use punctual_api::queue::Queue;
use punctual_client::Client;

use super::asking::Ask;
use super::remote::Remote;
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List them
    List {
        /// Of all tenants, for an admin
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        watch: Watch,
    },
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { all, .. } => {
                let tenant = all.then_some("*");
                remote.show(&client.queues(tenant).await?, |page, _| table(&page.items, *all))
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { watch, .. } => *watch,
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
