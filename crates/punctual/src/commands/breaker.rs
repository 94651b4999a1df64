//! `punctual breaker`: targets and jobs that are left alone.

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::breaker::Breaker;
use punctual_client::Client;

use super::asking::Ask;
use super::remote::Remote;
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the breakers that are set
    List(Watch),
    /// Take a breaker away: who waits goes on, and it is set again if that fails again
    Reset {
        /// Its name, as `http api.example.com` or `job ID`
        name: String,
    },
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List(_) => remote.show(&client.breakers().await?, |page, _| {
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

    fn watch(&self) -> Watch {
        match self {
            Command::List(watch) => *watch,
            _ => Watch::default(),
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
