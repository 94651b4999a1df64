//! The one shape of commands that ask a server: a noun, its verbs, and the options of all of them.

use clap::{Args, Subcommand};
use punctual_client::Client;

use super::remote::{self, Remote};
use super::watch::{self, Watch};
use crate::failure::{EXIT_CODES, Failure};

/// A noun with its verbs.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Asking<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    remote: Remote,
}

/// The verbs of a noun.
pub(crate) trait Ask {
    /// Asks the server, and shows what it says.
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure>;

    /// Whether it is asked again; only what changes nothing is.
    fn watch(&self) -> Watch {
        Watch::default()
    }
}

impl<C: Subcommand + Ask> Asking<C> {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        remote::run(async {
            let client = self.remote.client()?;
            watch::again(self.command.watch().every(), || self.command.ask(&self.remote, &client)).await
        })
    }
}
