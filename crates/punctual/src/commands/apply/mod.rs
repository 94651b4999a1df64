//! `punctual apply`: makes the server what files say.
//!
//! Read in this order: [`wanted`] is what files ask for, as the server would show it; [`look`] reads what is there; [`plan`]
//! decides what is to be done, and is pure; [`told`] shows it; [`act`] does it. Promise: everything that is wrong with the files is told
//! before anything is changed, what somebody else changed meanwhile is not overwritten, and applying twice changes nothing.

mod act;
mod look;
pub(crate) mod plan;
mod told;
pub(crate) mod wanted;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use punctual_api::Rules;

use self::plan::{Action, Plan};
use super::remote::{self, Remote};
use super::{confirm, tzdata};
use crate::document::{Document, files};
use crate::failure::{EXIT_CODES, Failure};

/// Make the server what files say: jobs, calendars, limits, alerts and defaults
#[derive(Args)]
#[command(after_help = format!("Examples:
  punctual apply -f jobs/ --dry-run
  punctual apply -f jobs/ --prune --label team=billing
  punctual export | punctual apply -f - --context staging

{EXIT_CODES}
With --exit-code: 0 nothing is different, 6 something is (or was, and has been applied)"))]
pub(crate) struct Arguments {
    /// A file, or a folder with all folders in it, or `-` for standard input; may be repeated
    #[arg(short, long, value_name = "PATH", required = true)]
    file: Vec<PathBuf>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    remote: Remote,
}

/// How it is applied.
#[derive(Args, Default)]
pub(crate) struct How {
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Delete jobs that have the labels of --label and are not in the files
    #[arg(long, requires = "label")]
    prune: bool,
    /// With --prune: the label that says that a job belongs to these files; given several times, all of them
    #[arg(short, long, value_name = "NAME=VALUE", requires = "prune")]
    label: Vec<String>,
    /// Do not ask before deleting
    #[arg(short, long)]
    yes: bool,
    /// End with 6 if anything is different
    #[arg(long)]
    exit_code: bool,
    /// Directory with a compiled time zone database, or `bundled` [default: the system's]
    #[arg(long, value_name = "DIR", env = "PUNCTUAL_TZDATA")]
    tzdata: Option<PathBuf>,
}

impl How {
    /// As an import applies what it made.
    pub(crate) fn of_import(dry_run: bool, tzdata: Option<PathBuf>) -> Self {
        How { dry_run, tzdata, ..How::default() }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let documents = files::read(&arguments.file).map_err(together)?;
    // Whoever sends the documents through standard input cannot answer there.
    let is_piped = arguments.file.iter().any(|path| path.as_os_str() == "-");
    if is_piped && documents.is_empty() {
        let reason = "standard input has no document; did the command before it fail?";
        return Err(Failure::Input(reason.into()));
    }
    let can_ask = !is_piped && io::stdin().is_terminal();
    remote::run(apply(documents, &arguments.how, &arguments.remote, can_ask))
}

/// Plans, shows, asks and does it.
pub(crate) async fn apply(
    documents: Vec<Document>,
    how: &How,
    remote: &Remote,
    can_ask: bool,
) -> Result<(), Failure> {
    if let Some(label) = how.label.iter().find(|label| !label.contains('=')) {
        return Err(Failure::Input(format!("--label {label}: write a label as name=value")));
    }
    let client = remote.client()?;
    let tzdb = tzdata::open(how.tzdata.as_deref())?;
    let tenant = remote.tenant_name()?;
    let server_defaults = client.defaults(&tenant).await.map_err(|error| remote.of_tenant(error))?;
    let reading = wanted::Reading {
        tenant: &tenant,
        defaults: server_defaults.text(),
        rules: Rules::new(&tzdb),
        now: Timestamp::now(),
    };
    let wanted = wanted::read(documents, &reading).map_err(together)?;
    if how.prune && !wanted.iter().any(|one| one.kind == wanted::Kind::Job) {
        let reason = "--prune without a single job in the files would delete every job with the label; \
                      to do that, use `punctual job bulk delete --label`";
        return Err(Failure::Input(reason.into()));
    }
    let prune = how.prune.then_some(how.label.as_slice());
    let here = look::Here { client: &client, tenant: &tenant };
    let looked = here.look(&wanted, prune).await?;
    let missing = here.missing(&wanted).await?;
    let plan = plan::plan(wanted, looked, &missing).map_err(|refused| match refused {
        plan::Refused::Wrong(lines) => together(lines),
        plan::Refused::Conflict(lines) => Failure::Conflict(lines.join("\n")),
    })?;
    told::show(&plan, remote.output, how.dry_run)?;
    if !how.dry_run {
        let deletes = plan.count(&Action::Delete);
        if deletes > 0 && !how.yes {
            let way_out = "write --yes to delete them, or --dry-run to see which";
            confirm::possible(
                can_ask,
                &format!("{deletes} jobs would be deleted, and nobody can be asked; {way_out}"),
            )?;
            confirm::ask(&format!("apply, and delete {deletes} jobs?"), "nothing was changed")?;
        }
        here.act(&plan).await?;
        told::done(&plan, remote.output)?;
    }
    match how.exit_code && !plan.is_empty() {
        true => Err(Failure::Different),
        false => Ok(()),
    }
}

/// All that is wrong, at once.
pub(crate) fn together(lines: Vec<String>) -> Failure {
    Failure::Input(match lines.as_slice() {
        [one] => one.clone(),
        many => format!("{} things are wrong, nothing was changed\n  {}", many.len(), many.join("\n  ")),
    })
}

impl Plan {
    /// Whether everything is as it should be.
    fn is_empty(&self) -> bool {
        self.steps.iter().all(|step| step.action == Action::Keep)
    }
}
