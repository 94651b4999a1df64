//! Programs that tests need besides a Rust toolchain: found, or installed, or said loudly to be missing.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program, the package that has it, and what it is for.
struct Tool {
    program: &'static str,
    /// How it is asked whether it is there.
    version: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const TOOLS: [Tool; 8] = [
    Tool {
        program: "pg_lsclusters",
        version: "--help",
        package: "postgresql",
        purpose: "is the database of a cluster",
    },
    Tool {
        program: "/usr/sbin/pgbouncer",
        version: "--version",
        package: "pgbouncer",
        purpose: "shares the connections of a database among nodes",
    },
    Tool {
        program: "faketime",
        version: "--version",
        package: "faketime",
        purpose: "gives a node a clock that is off",
    },
    Tool {
        program: "strace",
        version: "-V",
        package: "strace",
        purpose: "lets fsync fail and shows that nothing is acknowledged before it",
    },
    Tool {
        program: "/usr/bin/aiosmtpd",
        version: "--version",
        package: "python3-aiosmtpd",
        purpose: "takes the mail that alerts send",
    },
    Tool {
        program: "python3",
        version: "--version",
        package: "python3-venv",
        purpose: "runs the Python client",
    },
    Tool {
        program: "npm",
        version: "--version",
        package: "npm",
        purpose: "builds and runs the TypeScript client",
    },
    Tool {
        program: "unshare",
        version: "--version",
        package: "util-linux",
        purpose: "gives a test a small disk of its own",
    },
];

/// Makes sure that every tool is there.
pub(crate) fn run() -> Result<()> {
    for tool in &TOOLS {
        if !is_there(tool) {
            install(tool)
                .with_context(|| format!("`{}` is missing: it {}; install it", tool.program, tool.purpose))?;
        }
    }
    println!("{} are there", TOOLS.map(|tool| tool.program).join(", "));
    Ok(())
}

fn is_there(tool: &Tool) -> bool {
    let mut command = Command::new(tool.program);
    command.arg(tool.version).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn install(tool: &Tool) -> Result<()> {
    println!("installing {}", tool.package);
    let apt = |words: &[&str]| crate::run(Command::new("apt-get").args(words));
    if tool.package == "postgresql" {
        // Tests start servers of their own; the package would start one that stays.
        let folder = "/etc/postgresql-common/createcluster.d";
        std::fs::create_dir_all(folder).with_context(|| format!("create {folder}"))?;
        std::fs::write(format!("{folder}/none.conf"), "create_main_cluster = false\n")
            .with_context(|| format!("write to {folder}"))?;
    }
    if tool.package == "pgbouncer" {
        // The same holds for this one, which is a service of the system.
        let folder = "/etc/systemd/system";
        std::fs::create_dir_all(folder).with_context(|| format!("create {folder}"))?;
        // There already, or not to be written: then it is as it was.
        let _ = std::os::unix::fs::symlink("/dev/null", format!("{folder}/pgbouncer.service"));
    }
    // The lists may be there already; without them the first try fails.
    if apt(&["install", "--yes", "--no-install-recommends", tool.package]).is_err() {
        apt(&["update"])?;
        apt(&["install", "--yes", "--no-install-recommends", tool.package])?;
    }
    match is_there(tool) {
        true => Ok(()),
        false => bail!("`{}` does not start after installing {}", tool.program, tool.package),
    }
}
