//! `--watch`: the same question again and again, shown when the answer is another.
//!
//! Promise: it goes on through a server that is away for a while, and ends when its reader does.

use std::future::Future;
use std::io::{self, IsTerminal};

use clap::Args;
use punctual_api::Duration;
use punctual_client::Error;

use super::output;
use crate::failure::Failure;

/// Whether it is asked again.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Watch {
    /// Show it again whenever it changes; asks every 2 seconds, or as often as is said: --watch=10s
    #[arg(short, long = "watch", value_name = "PERIOD", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    every: Option<Duration>,
}

/// More often is a load that nobody sees.
const LEAST: std::time::Duration = std::time::Duration::from_millis(100);

impl Watch {
    /// How often, if at all.
    pub(crate) fn every(self) -> Option<std::time::Duration> {
        self.every.map(|every| every.0.max(LEAST))
    }
}

/// What is told of a server that cannot be reached, or goes away while it answers.
fn away(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Unreachable(reason) => Some(reason.clone()),
        Failure::Other(error) => match error.downcast_ref() {
            Some(Error::Broken { .. }) => Some(error.to_string()),
            _ => None,
        },
        Failure::Input(_) | Failure::NotFound(_) | Failure::Conflict(_) | Failure::Different => None,
    }
}

/// Shows once, or again and again.
pub(crate) async fn again<F>(every: Option<std::time::Duration>, show: impl Fn() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let Some(every) = every else { return show().await };
    let is_terminal = io::stdout().is_terminal();
    let mut last = None;
    let mut is_away = false;
    loop {
        output::hold();
        let shown = show().await;
        let text = output::held();
        match shown {
            Ok(()) => is_away = false,
            // It may come back; what was seen stays on the screen.
            Err(failure) if last.is_some() => match away(&failure) {
                Some(reason) if !is_away => {
                    eprintln!("{reason}\nstill trying");
                    is_away = true;
                }
                Some(_) => {}
                None => return Err(failure),
            },
            Err(failure) => return Err(failure),
        }
        if !is_away && last.as_ref() != Some(&text) {
            // From the upper left corner of an empty screen.
            let clear = if is_terminal { "\x1b[2J\x1b[H" } else { "" };
            if !output::write(&mut io::stdout().lock(), &format!("{clear}{text}"))? {
                return Ok(());
            }
            last = Some(text);
        }
        tokio::time::sleep(every).await;
    }
}
