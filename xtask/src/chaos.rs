//! `cargo xtask chaos`: builds the binary and the checker, and runs one against the other.

use anyhow::Result;

use crate::{cargo, root, tools};

/// Breaks a cluster on purpose, as the arguments say.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    tools::run()?;
    crate::run(cargo().args(["build", "--release", "--package", "punctual", "--package", "punctual-chaos"]))?;
    run_built(arguments)
}

/// The same with the programs that the tests have built.
pub(crate) fn run_built(arguments: &[String]) -> Result<()> {
    let built = root().join("target/release");
    let mut checker = std::process::Command::new(built.join("punctual-chaos"));
    checker.arg("--program").arg(built.join("punctual"));
    checker.arg("--out").arg(root().join("target/chaos"));
    crate::run(checker.args(arguments))
}
