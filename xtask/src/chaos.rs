//! `cargo xtask chaos`: builds the binary and the checker, and runs one against the other.

use anyhow::Result;

use crate::{cargo, root, tools};

/// Breaks a cluster on purpose, as the arguments say.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    tools::run()?;
    // As the tests build it: with fewer packages some dependencies have fewer features, and half of it is built again.
    crate::run(cargo().args(["build", "--release", "--workspace", "--bins"]))?;
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
