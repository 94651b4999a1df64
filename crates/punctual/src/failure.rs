//! How a command ends when it cannot do what it was asked.
//!
//! Promise: the message goes to stderr; exit code 2 means the input was wrong and 1 that
//! something else failed, so that scripts can tell them apart.

use std::process::ExitCode;

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user can mend the input; the text says how.
    Input(String),
    /// Something outside failed.
    Other(anyhow::Error),
}

impl Failure {
    /// Prints the failure and chooses the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Input(message) => {
                eprintln!("error: {message}");
                ExitCode::from(2)
            }
            Failure::Other(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}
