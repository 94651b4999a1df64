//! The project's own chores: `cargo xtask test` and friends.

mod chaos;
mod test;
mod tidy;
mod tools;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask <command>

  test      everything: format, lints, tidiness, all tests; what CI runs
  tidy      the dependency table, file sizes and leftovers
  chaos     a real cluster broken on purpose, every slot accounted for;
            [--minutes N] [--seed N] [--nodes N] [--rate N] [--faults a,b]
  postgres  a PostgreSQL on port 7432 to try things on, gone with Ctrl-C
  soak      the property tests with 1,000,000 cases
  bench     the benchmarks; run it when nothing else runs on the machine";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let result = match command.as_str() {
        "test" => test::run(),
        "tidy" => tidy::run(),
        "chaos" => chaos::run(&std::env::args().skip(2).collect::<Vec<_>>()),
        "postgres" => postgres(),
        "soak" => soak(),
        "bench" => run(cargo().args(["bench", "--package", "punctual-schedule", "--bench", "schedule"])),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn postgres() -> Result<()> {
    tools::run()?;
    run(cargo().args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "punctual-testing",
        "--example",
        "postgres",
    ]))
}

fn soak() -> Result<()> {
    run(cargo()
        .args([
            "test",
            "--release",
            "--package",
            "punctual-schedule",
            "--test",
            "properties",
            "--",
            "--nocapture",
        ])
        .env("PUNCTUAL_PROPERTY_CASES", "1000000"))
}

/// The cargo that runs us, in the workspace's root.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo tells us about this package is not true of others; build scripts that look at it would run again, and with
    // them half of the dependencies would be built again whenever a chore follows a plain `cargo build` or comes before one.
    for (name, _) in std::env::vars_os() {
        let is_about_us = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|start| name.starts_with(start))
        });
        if is_about_us {
            command.env_remove(name);
        }
    }
    command
}

fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or(xtask.clone(), PathBuf::from)
}

/// Runs a command and fails with its words if it fails.
fn run(command: &mut Command) -> Result<()> {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let name = words.join(" ");
    let status = command.status().with_context(|| format!("start `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}
