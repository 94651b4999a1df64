//! `punctual job bulk`: one change of all jobs that a filter finds.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use punctual_api::Payload;
use punctual_api::bulk::{EditJobs, JobFilter, PauseJobs, SelectJobs};
use punctual_client::{Client, Many};

use super::Narrow;
use super::spec;
use crate::commands::confirm;
use crate::commands::dead_letter::time;
use crate::commands::many::{self, Asked, How};
use crate::commands::remote::Remote;
use crate::commands::run::word;
use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Stop jobs from firing
    Pause {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        how: How,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Who
        #[arg(long, value_name = "NAME", env = "USER")]
        by: Option<String>,
        /// When they fire again by themselves, such as 2026-12-24T18:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// Let paused jobs fire again; the slots in between are skipped
    Resume {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        how: How,
    },
    /// Delete jobs: their pending runs are cancelled, running ones end, their history stays
    Delete {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        how: How,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Change a part of each job; each is checked for itself
    #[command(after_help = "Examples:
  punctual job bulk edit --label team=a --patch '{\"timeout\":\"PT1M\"}' --dry-run
  punctual job bulk edit --queue slow -f patch.json --pending update")]
    Edit {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        how: How,
        /// What changes: a JSON merge patch
        #[arg(short, long, value_name = "JSON", conflicts_with = "file")]
        patch: Option<String>,
        /// The same, from a file or `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Whether waiting runs keep their version or take the new one
        #[arg(long, value_enum, default_value_t = Pending::Keep)]
        pending: Pending,
    },
    /// Move jobs and their waiting runs to another queue
    Move {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        how: How,
        /// The queue they go to
        #[arg(long, value_name = "QUEUE")]
        to: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Pending {
    Keep,
    Update,
}

pub(super) async fn run(command: &Command, remote: &Remote, client: &Client) -> Result<(), Failure> {
    let (how, many, deed) = match command {
        Command::Pause { narrow, how, reason, by, until } => {
            let (filter, until) = (Some(filter(narrow, how)?), until.as_deref().map(time));
            let (reason, by) = (reason.clone(), by.clone());
            let pause = PauseJobs { filter, reason, by, until, ..PauseJobs::default() };
            (how, Many::Pause(pause), "paused")
        }
        Command::Resume { narrow, how } => (how, Many::Resume(select(narrow, how)?), "resumed"),
        Command::Delete { narrow, how, yes } => {
            let many = Many::Delete(select(narrow, how)?);
            if !yes && !how.is_dry() {
                confirm(&many, client).await?;
            }
            (how, many, "deleted")
        }
        Command::Edit { narrow, how, patch, file, pending } => {
            let text = match (patch, file) {
                (Some(patch), _) => patch.clone(),
                (None, Some(file)) => spec::read_json(file)?.get().to_string(),
                (None, None) => {
                    return Err(Failure::Input("write what changes: --patch JSON or -f FILE".into()));
                }
            };
            (how, edit(narrow, how, text, word(*pending))?, "changed")
        }
        Command::Move { narrow, how, to } => {
            let patch = serde_json::json!({ "queue": to }).to_string();
            (how, edit(narrow, how, patch, word(Pending::Update))?, "moved")
        }
    };
    many::change(&Asked { many, noun: "jobs", deed }, how, remote, client).await
}

fn select(narrow: &Narrow, how: &How) -> Result<SelectJobs, Failure> {
    Ok(SelectJobs { filter: Some(filter(narrow, how)?), ..SelectJobs::default() })
}

fn edit(narrow: &Narrow, how: &How, patch: String, pending: String) -> Result<Many, Failure> {
    let patch = Payload::new(patch).ok_or_else(|| Failure::Input("the patch is not JSON".into()))?;
    let filter = Some(filter(narrow, how)?);
    Ok(Many::Edit(EditJobs { filter, patch: Some(patch), pending: Some(pending), ..EditJobs::default() }))
}

/// What narrows; all of them only if that is said.
fn filter(narrow: &Narrow, how: &How) -> Result<JobFilter, Failure> {
    let mut labels = std::collections::BTreeMap::new();
    for label in &narrow.label {
        let Some((name, value)) = label.split_once('=') else {
            return Err(Failure::Input(format!("--label {label}: write a label as name=value")));
        };
        labels.insert(name.to_string(), value.to_string());
    }
    let filter = JobFilter {
        state: narrow.state.map(word),
        name: narrow.name.clone(),
        key_prefix: narrow.key_prefix.clone(),
        r#type: narrow.r#type.clone(),
        queue: narrow.queue.clone(),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
    };
    if filter == JobFilter::default() && !how.all {
        let way_out = "narrow by --state, --label, --queue, --type, --name or --key-prefix, or write --all";
        return Err(Failure::Input(way_out.into()));
    }
    Ok(filter)
}

/// Asks whether to go on; without a terminal nobody can answer.
async fn confirm(many: &Many, client: &Client) -> Result<(), Failure> {
    confirm::possible(io::stdin().is_terminal(), "write --yes to delete them, or --dry-run to see which")?;
    let preview = client.preview_many(many, None).await?;
    let more = if preview.next_cursor.is_some() { "more than " } else { "" };
    confirm::ask(&format!("delete {more}{} jobs?", preview.changes), "nothing was deleted")
}
