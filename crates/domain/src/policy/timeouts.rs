//! How long things may take.

use std::time::Duration;

/// The time limits of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Each attempt.
    pub attempt: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { attempt: Duration::from_secs(300) }
    }
}
