//! `punctual audit`: who changed what.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use jiff::Timestamp;
use punctual_api::audit::{AuditEntry, AuditWho, JobVersion};
use punctual_client::{AuditFilter, Client};

use super::asking::Ask;
use super::remote::{Paging, Remote};
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List changes, newest first
    List {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        paging: Paging,
    },
    /// Write all changes, one a line as JSON, newest first
    Export {
        #[command(flatten)]
        narrow: Narrow,
    },
}

/// Which changes.
#[derive(Args)]
pub(crate) struct Narrow {
    /// Made at or after this time: RFC 3339 or epoch seconds
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Made before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// By the key of this id or name; `loopback` is whoever showed none
    #[arg(long, value_name = "KEY")]
    who: Option<String>,
    /// What was done, such as create, edit or delete
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// What was changed, such as job, calendar or key
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Which: an id or a name
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// Of this tenant; `*` is all of them, for an admin of all tenants
    #[arg(long, value_name = "NAME")]
    of_tenant: Option<String>,
}

impl Narrow {
    fn filter(&self) -> AuditFilter {
        AuditFilter {
            tenant: self.of_tenant.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            who: self.who.clone(),
            action: self.action.clone(),
            kind: self.kind.clone(),
            subject: self.subject.clone(),
        }
    }
}

/// Entries of a page of an export.
const EXPORTED: usize = 1_000;

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { narrow, paging } => {
                remote.show_list(client.audit(&narrow.filter()), paging, table).await
            }
            Command::Export { narrow } => {
                let mut entries = client.audit(&narrow.filter()).limit(EXPORTED);
                while let Some(entry) = entries.next().await? {
                    // Whoever reads it may have enough.
                    if !output::print_more(&format!("{}\n", entry.text()))? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging, .. } => paging.watch,
            Command::Export { .. } => Watch::default(),
        }
    }
}

fn table(entries: &[&AuditEntry], now: Timestamp) -> String {
    let mut table = output::table(&["AT", "WHO", "FROM", "ACTION", "KIND", "SUBJECT", "REQUEST"]);
    for entry in entries {
        table.add_row(vec![
            Cell::new(moment::full(entry.at, now)),
            Cell::new(who(&entry.who)),
            Cell::new(entry.from.as_deref().unwrap_or_default()),
            Cell::new(&entry.action),
            Cell::new(&entry.kind),
            Cell::new(output::safe(&entry.subject)),
            Cell::new(output::safe(entry.request_id.as_deref().unwrap_or_default())),
        ]);
    }
    output::lines(&table)
}

/// The versions of a job as `punctual job versions` shows them.
pub(crate) fn versions(versions: &[&JobVersion], now: Timestamp) -> String {
    let mut table = output::table(&["VERSION", "SINCE", "ACTION", "WHO", "REQUEST"]);
    for one in versions {
        table.add_row(vec![
            Cell::new(one.version.map(|version| version.to_string()).unwrap_or_default()),
            Cell::new(one.at.map(|at| moment::full(at, now)).unwrap_or_default()),
            Cell::new(one.action.as_deref().unwrap_or_default()),
            Cell::new(one.who.as_ref().map(who).unwrap_or_default()),
            Cell::new(output::safe(one.request_id.as_deref().unwrap_or_default())),
        ]);
    }
    output::lines(&table)
}

fn who(who: &AuditWho) -> String {
    match &who.key {
        Some(key) => format!("{} ({key})", output::safe(&who.name)),
        None => output::safe(&who.name),
    }
}
