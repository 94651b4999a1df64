//! Rules that no compiler checks: who may depend on whom, and what must not be left behind.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::{cargo, root};

/// Which of our crates a crate may use, and which outside crates it must not.
struct Rule {
    package: &'static str,
    may_use: &'static [&'static str],
    must_not_use: &'static [&'static str],
}

/// The direction of dependencies. A new crate adds its row here first.
const RULES: [Rule; 15] = [
    Rule {
        package: "punctual-schedule",
        may_use: &[],
        must_not_use: &["tokio", "serde", "serde_json", "chrono"],
    },
    Rule {
        package: "punctual-domain",
        may_use: &["punctual-schedule"],
        must_not_use: &["tokio", "serde", "serde_json", "chrono"],
    },
    Rule {
        package: "punctual-worker",
        may_use: &["punctual-domain", "punctual-schedule"],
        must_not_use: &["reqwest", "hyper-rustls", "url"],
    },
    // The embedded store is for its tests alone: what is opened again must have been on disk.
    Rule {
        package: "punctual-engine",
        may_use: &["punctual-schedule", "punctual-domain", "punctual-store", "punctual-store-embedded"],
        must_not_use: &["punctual-store-embedded", "tokio-postgres", "rusqlite", "axum", "hyper"],
    },
    Rule {
        package: "punctual-store",
        may_use: &["punctual-domain", "punctual-schedule"],
        must_not_use: &["tokio", "rusqlite", "tokio-postgres", "axum", "hyper"],
    },
    Rule {
        package: "punctual-store-embedded",
        may_use: &["punctual-domain", "punctual-schedule", "punctual-store"],
        must_not_use: &["tokio-postgres", "axum", "hyper"],
    },
    Rule {
        package: "punctual-store-postgres",
        may_use: &["punctual-domain", "punctual-schedule", "punctual-store", "punctual-testing"],
        must_not_use: &["punctual-testing", "rusqlite", "axum", "hyper"],
    },
    // Real services for tests; nothing that runs uses it.
    // It knows the product by its address alone, so that both cannot be wrong in the same way.
    Rule {
        package: "punctual-chaos",
        may_use: &["punctual-testing"],
        must_not_use: &["rusqlite", "tokio-postgres", "reqwest"],
    },
    Rule { package: "punctual-testing", may_use: &[], must_not_use: &["tokio"] },
    Rule {
        package: "punctual-api",
        may_use: &["punctual-domain", "punctual-schedule"],
        must_not_use: &["tokio", "axum", "hyper", "http"],
    },
    // Messages and how they are read: the network is the server's and the client's.
    Rule {
        package: "punctual-rpc",
        may_use: &["punctual-api"],
        must_not_use: &["tokio", "axum", "hyper", "punctual-domain"],
    },
    Rule {
        package: "punctual-client",
        may_use: &["punctual-api", "punctual-rpc"],
        must_not_use: &["reqwest", "axum", "hyper-rustls"],
    },
    // The store is for its tests alone: they need one.
    Rule {
        package: "punctual-server",
        may_use: &[
            "punctual-api",
            "punctual-domain",
            "punctual-engine",
            "punctual-rpc",
            "punctual-schedule",
            "punctual-store",
        ],
        must_not_use: &["punctual-store", "rusqlite", "tokio-postgres"],
    },
    // The binary is where the parts meet.
    Rule {
        package: "punctual",
        may_use: &[
            "punctual-api",
            "punctual-client",
            "punctual-domain",
            "punctual-engine",
            "punctual-schedule",
            "punctual-server",
            "punctual-store",
            "punctual-store-embedded",
            "punctual-store-postgres",
            "punctual-testing",
            "punctual-worker",
        ],
        must_not_use: &["punctual-testing", "reqwest"],
    },
    Rule { package: "xtask", may_use: &[], must_not_use: &["tokio"] },
];

/// One TLS stack, one clock library: these never enter the lock file.
const BANNED: [&str; 4] = ["openssl-sys", "native-tls", "aws-lc-sys", "chrono-tz"];

/// Longer files have more than one duty, unless they are data.
const LINES_MAX: usize = 700;

pub(crate) fn run() -> Result<()> {
    let mut wrong = dependencies()?;
    wrong.extend(leftovers()?);
    wrong.extend(left_out()?);
    if !wrong.is_empty() {
        bail!("not tidy:\n  {}", wrong.join("\n  "));
    }
    println!("dependencies, file sizes, leftovers and programs of tests are in order");
    Ok(())
}

fn dependencies() -> Result<Vec<String>> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .output()
        .context("start `cargo metadata`")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("read `cargo metadata`")?;
    let empty = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&empty);
    let rules: BTreeMap<&str, &Rule> = RULES.iter().map(|rule| (rule.package, rule)).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(rule) = rules.get(name) else {
            wrong.push(format!("crate `{name}` has no row in xtask/src/tidy.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap_or(&empty) {
            let used = dependency["name"].as_str().unwrap_or_default();
            let normal = dependency["kind"].is_null();
            if rules.contains_key(used) && !rule.may_use.contains(&used) {
                wrong.push(format!("`{name}` must not use `{used}`"));
            }
            if normal && rule.must_not_use.contains(&used) {
                wrong.push(format!("`{name}` must stay free of `{used}`"));
            }
        }
    }
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
    wrong.extend(
        BANNED
            .iter()
            .filter(|name| lock.contains(&format!("name = \"{name}\"")))
            .map(|name| format!("`{name}` is in Cargo.lock")),
    );
    Ok(wrong)
}

fn leftovers() -> Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .context("start `git ls-files`")?;
    let mut wrong = Vec::new();
    for file in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            continue;
        };
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{file} has {lines} lines: split it by noun or step"));
        }
        // Spelled apart, so that this file does not find itself.
        for mark in [
            concat!("to", "do!("),
            concat!("unimpl", "emented!("),
            concat!("#[ign", "ore"),
            concat!("FIX", "ME"),
        ] {
            if text.contains(mark) {
                wrong.push(format!("{file} contains `{mark}`"));
            }
        }
    }
    Ok(wrong)
}

/// Files of tests that their crate's one program of tests does not name: they would compile nowhere and fail never.
fn left_out() -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for member in fs::read_dir(root().join("crates")).context("read `crates`")? {
        let tests = member.context("read `crates`")?.path().join("tests");
        let Ok(program) = fs::read_to_string(tests.join("main.rs")) else { continue };
        for entry in fs::read_dir(&tests).with_context(|| format!("read {}", tests.display()))? {
            let path = entry.context("read a folder of tests")?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_named = name == "main" || program.lines().any(|line| line == format!("mod {name};"));
            if path.extension().is_some_and(|kind| kind == "rs") && !is_named {
                wrong.push(format!(
                    "{} is not in the `main.rs` beside it: its tests do not run",
                    path.display()
                ));
            }
        }
    }
    Ok(wrong)
}
