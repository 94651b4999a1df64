//! `punctual tenant`: units of isolation.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::defaults::JobDefaults;

use super::job::read_json;
use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// Create and list tenants, and set defaults for their jobs
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
    /// Create a tenant, or find the one of that name
    Create {
        /// 1 to 63 lower-case letters, digits and hyphens
        name: String,
    },
    /// List all tenants
    List,
    /// Show or change what holds for jobs of a tenant that do not say
    #[command(after_help = "Examples:
  punctual tenant defaults acme
  punctual tenant defaults acme -f defaults.json
  punctual tenant defaults acme --clear

The file has a part of a job:
  {\"schedule\": {\"spread\": \"5m\"}, \"retention\": {\"days\": 30, \"failures\": true}, \"timeout\": \"1m\"}")]
    Defaults {
        /// The tenant
        name: String,
        /// Set them from a part of a job as JSON, from a file or `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Take them away; jobs keep what they have
        #[arg(long, conflicts_with = "file")]
        clear: bool,
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
        Command::Create { name } => {
            let tenant = client.create_tenant(name).await?;
            remote.show(&tenant, |tenant, now| {
                format!("tenant {}, created {}\n", tenant.name, moment::full(tenant.created_at, now))
            })
        }
        Command::List => remote.show(&client.tenants().await?, |page, now: Timestamp| {
            let mut table = output::table(&["TENANT", "WAITING", "AT MOST", "CREATED"]);
            for tenant in &page.items {
                // The default tenant was there before time began.
                let created = Some(tenant.created_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
                let created = created.map(|at| moment::full(at, now)).unwrap_or_default();
                let (waiting, most) = (tenant.pending_runs.to_string(), tenant.pending_max.to_string());
                table.add_row(vec![tenant.name.clone(), waiting, most, created]);
            }
            output::lines(&table)
        }),
        Command::Defaults { name, clear: true, .. } => {
            client.delete_defaults(name).await?;
            remote.show(&client.defaults(name).await?, |defaults, _| defaults_page(name, defaults))
        }
        Command::Defaults { name, file, clear: false } => {
            let defaults = match file {
                Some(path) => client.put_defaults(name, &read_json(path)?).await?,
                None => client.defaults(name).await?,
            };
            remote.show(&defaults, |defaults, _| defaults_page(name, defaults))
        }
    }
}

/// What is set, as it is written.
fn defaults_page(tenant: &str, defaults: &JobDefaults) -> String {
    if *defaults == JobDefaults::default() {
        return format!("tenant {} has no defaults\n", output::safe(tenant));
    }
    let text = serde_json::to_string_pretty(defaults).unwrap_or_default();
    format!("{}\n", text.lines().map(output::safe).collect::<Vec<_>>().join("\n"))
}
