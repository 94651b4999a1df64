//! Asks before something that cannot be undone.

use std::io::{self, Write as _};

use crate::failure::Failure;

/// Refuses with the way out if nobody can answer.
pub(super) fn possible(can_ask: bool, way_out: &str) -> Result<(), Failure> {
    if can_ask { Ok(()) } else { Err(Failure::Input(way_out.into())) }
}

/// Goes on only if somebody says yes.
pub(super) fn ask(question: &str, otherwise: &str) -> Result<(), Failure> {
    eprint!("{question} [y/N] ");
    io::stderr().flush().ok();
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Failure::Other(error.into()))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Input(otherwise.into())),
    }
}
