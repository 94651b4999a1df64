//! `punctual breaker`: targets and jobs that are left alone.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::breaker::Breaker;

use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// See which targets and jobs are left alone because they fail or do not answer, and let their runs through
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
    /// List the breakers that are set
    List,
    /// Take a breaker away: who waits goes on, and it is set again if that fails again
    Reset {
        /// Its name, as `http api.example.com` or `job ID`
        name: String,
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
        Command::List => remote.show(&client.breakers().await?, |page, _| {
            let now = Timestamp::now();
            let mut table = output::table(&["BREAKER", "STATE", "SINCE", "ALLOWS", "SEEN LAST"]);
            for breaker in &page.items {
                table.add_row(vec![
                    breaker.name.clone(),
                    breaker.state.clone(),
                    moment::full(breaker.since, now),
                    allows(breaker, now),
                    breaker.cause.clone().unwrap_or_default(),
                ]);
            }
            output::lines(&table)
        }),
        Command::Reset { name } => {
            client.reset_breaker(name).await?;
            Ok(())
        }
    }
}

fn allows(breaker: &Breaker, now: Timestamp) -> String {
    match (breaker.probe_by, breaker.max) {
        (Some(at), _) if at <= now => "a probe now".into(),
        (Some(at), _) => format!("a probe by {}", moment::full(at, now)),
        (None, max) => format!("{} at once", max.unwrap_or_default()),
    }
}
