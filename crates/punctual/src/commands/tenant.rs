//! `punctual tenant`: units of isolation.

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// Create and list tenants
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
            let mut table = output::table(&["TENANT", "CREATED"]);
            for tenant in &page.items {
                // The default tenant was there before time began.
                let created = Some(tenant.created_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
                let created = created.map(|at| moment::full(at, now)).unwrap_or_default();
                table.add_row(vec![tenant.name.clone(), created]);
            }
            output::lines(&table)
        }),
    }
}
