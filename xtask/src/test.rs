//! `cargo xtask test`: format, lints, tidiness and all tests, in the one release profile.
//!
//! Promise: it needs only a Rust toolchain and installs what else is missing or says so, leaves nothing running, and ends with what the tests
//! counted, so that a run that tested nothing cannot look like one that passed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{cargo, chaos, root, tidy, tools};

/// Tests that say how much they did start their line with one of these.
const COUNTS: [&str; 26] = [
    "documents:",
    "table:",
    "variants:",
    "intervals:",
    "dialects:",
    "errors:",
    "descriptions:",
    "explain:",
    "properties:",
    "oracle:",
    "croner:",
    "fuzz:",
    "fsync before acknowledgement:",
    "failed fsync:",
    "full disk:",
    "damaged log:",
    "damaged database:",
    "checks:",
    "backup under load:",
    "damaged backups:",
    "kills:",
    "kills on postgres:",
    "outage of the database:",
    "ended connections:",
    "promoted standby:",
    "grpc:",
];

pub(crate) fn run() -> Result<()> {
    step("format");
    crate::run(cargo().args(["fmt", "--all", "--check"])).context("run `cargo fmt --all`")?;
    step("tidy");
    tidy::run()?;
    step("lints");
    crate::run(cargo().args([
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    step("tools");
    tools::run()?;
    step("tests");
    let counts = tests()?;
    step("what the tests counted");
    for line in &counts {
        println!("{line}");
    }
    for count in COUNTS {
        if !counts.iter().any(|line| line.starts_with(count)) {
            bail!("no test reported `{count}`: did it run?");
        }
    }
    for client in CLIENTS {
        step(&format!("clients: {client}"));
        clients(client)?;
    }
    step("chaos: a cluster broken on purpose");
    // The same plan every time: what breaks it was changed since. New seeds are for whoever looks for more.
    chaos::run_built(&["--seed".into(), "5".into()])
}

/// Clients in other languages, all of them together, which needs what the others have built, and one that makes up its requests from the OpenAPI document; each has a script that installs what it needs and fails if anything is wrong.
const CLIENTS: [&str; 4] = ["python", "typescript", "together", "schemathesis"];

/// Runs the tests of a client against the binary that the tests have built.
fn clients(name: &str) -> Result<()> {
    let binary = root().join("target/release/punctual");
    crate::run(
        Command::new("bash")
            .arg(root().join("clients").join(name).join("test.sh"))
            .env("PUNCTUAL_BIN", binary)
            .current_dir(root()),
    )
    .with_context(|| format!("the tests of the {name} client"))
}

fn step(name: &str) {
    println!("\n== {name}");
}

/// Runs all tests, shows their output and returns the lines that count something.
fn tests() -> Result<Vec<String>> {
    let mut child = cargo()
        .args(["test", "--release", "--workspace", "--no-fail-fast", "--", "--nocapture"])
        // Where a test failed is in its message; traces of those that panic on purpose would bury it.
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .spawn()
        .context("start `cargo test`")?;
    let output = child.stdout.take().context("read from `cargo test`")?;
    let (mut counts, mut failed) = (Vec::new(), Vec::new());
    let mut is_list = false;
    for line in BufReader::new(output).lines() {
        let line = line.context("read from `cargo test`")?;
        println!("{line}");
        // Every binary ends with the names of the tests that failed in it.
        is_list = line == "failures:" || is_list && !line.starts_with("test result:");
        if is_list && line.starts_with("    ") {
            failed.push(line.trim().to_string());
        }
        if COUNTS.iter().any(|count| line.starts_with(count)) {
            counts.push(line);
        }
    }
    let status = child.wait().context("wait for `cargo test`")?;
    if !status.success() {
        // Last, where whoever reads the end of a long output finds them.
        step("what failed");
        failed.iter().for_each(|name| println!("{name}"));
        bail!("`cargo test` failed ({status}): {}", failed.join(", "));
    }
    Ok(counts)
}
