//! The checker as a program: it says what it can be told.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

#[test]
fn what_it_can_be_told_is_said() {
    let help = Command::new(env!("CARGO_BIN_EXE_punctual-chaos")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for option in ["--program", "--out", "--minutes", "--seed", "--nodes", "--rate", "--faults"] {
        assert!(help.contains(option), "{option} is not in\n{help}");
    }
}
