//! The one loop driver: how a background duty is run.
//!
//! A duty waits for a wake-up or for its time, then makes a pass and says what it did. Promise: a pass that fails is
//! said so and tried again, later each time; a wake-up during a pass is not lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::error::Error;

/// A duty in the background.
#[async_trait]
pub(crate) trait Duty: Send {
    /// What it is called in logs.
    const NAME: &'static str;

    /// Does what is to be done now.
    async fn run_once(&mut self, now: Timestamp) -> Result<Next, Error>;
}

/// When the next pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to do.
    Now,
    /// At this time, or when woken.
    At(Timestamp),
    /// When woken.
    Woken,
}

/// The longest pause after a failed pass.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The first pause after a failed pass; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs a duty until told to stop.
pub(crate) async fn drive<D: Duty>(
    mut duty: D,
    clock: Arc<dyn Clock>,
    wakes: Vec<Arc<Notify>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = PAUSE;
    while !*stop.borrow() {
        let next = match duty.run_once(clock.now()).await {
            Ok(next) => {
                pause = PAUSE;
                next
            }
            Err(error) => {
                tracing::warn!(duty = D::NAME, error = %chain(&error), "a pass failed; it is tried again");
                let at = clock.now() + SignedDuration::try_from(pause).unwrap_or_default();
                pause = (pause * 2).min(PAUSE_MAX);
                // Wake-ups do not shorten the pause: what is out of reach would be asked all the time.
                tokio::select! {
                    () = clock.sleep_until(at) => {}
                    _ = stop.changed() => {}
                }
                continue;
            }
        };
        let woken = async {
            match wakes.as_slice() {
                [] => std::future::pending().await,
                [one] => one.notified().await,
                [one, two, ..] => tokio::select! {
                    () = one.notified() => {}
                    () = two.notified() => {}
                },
            }
        };
        match next {
            Next::Now => tokio::task::yield_now().await,
            Next::At(at) => tokio::select! {
                () = clock.sleep_until(at) => {}
                () = woken => {}
                _ = stop.changed() => {}
            },
            Next::Woken => tokio::select! {
                () = woken => {}
                _ = stop.changed() => {}
            },
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // A transparent error says what its cause says.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
