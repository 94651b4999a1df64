//! One node of the cluster under test: a real process, with a proxy between it and each database server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result};
use punctual_testing::clock;
use punctual_testing::postgres::free_port;

use crate::postgres::DATABASE;
use crate::proxy::{Link, Proxy};

/// Seconds after which the work of a node that gives no sign of life goes to others.
pub(crate) const LEASE: u64 = 5;

/// A place for a node: address, folder and proxies stay the same however often it is started.
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    program: PathBuf,
    data: PathBuf,
    proxies: Vec<Proxy>,
    process: Option<Child>,
}

/// The clock that a node is started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// How far its clock is ahead, in milliseconds.
    pub(crate) ahead_ms: i64,
}

impl Node {
    /// A place for a node; nothing runs yet.
    pub(crate) async fn new(
        number: usize,
        program: &Path,
        folder: &Path,
        databases: [u16; 2],
    ) -> Result<Node> {
        let mut proxies = Vec::new();
        for port in databases {
            proxies.push(Proxy::start(port).await?);
        }
        Ok(Node {
            number,
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            program: program.into(),
            data: folder.join(format!("node-{number}")),
            proxies,
            process: None,
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Starts it, with a clock of its own if it differs.
    pub(crate) fn start(&mut self, clock: Clock) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.data.with_extension("log"))
            .context("open a node's log")?;
        let hosts: Vec<String> =
            self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
        let store =
            format!("postgres://punctual@{}/{DATABASE}?target_session_attrs=read-write", hosts.join(","));
        // It ends when the thread that starts it does, which is the main one: a checker that is killed leaves nothing.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program);
        command.args(["serve", "--store", &store, "--listen", &self.address.to_string()]);
        command
            .args(["--lease", &LEASE.to_string(), "--grace", "5", "--log-format", "json", "--data"])
            .arg(&self.data);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PUNCTUAL_")) {
            command.env_remove(name);
        }
        if clock.ahead_ms != 0 {
            let seconds = format!("{:+}.{:03}", clock.ahead_ms / 1_000, clock.ahead_ms.abs() % 1_000);
            command.env("LD_PRELOAD", clock::library().context("libfaketime is not installed")?);
            command.env("FAKETIME", seconds).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().context("start a node")?);
        Ok(())
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill().context("kill a node")?;
            process.wait().context("wait for a node to end")?;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        let mut kill = Command::new("kill");
        kill.args([&format!("-{name}"), &process.id().to_string()]).status().context("start `kill`")?;
        Ok(())
    }

    /// SIGTERM, and waits for the end. Killed if that takes longer than it may.
    pub(crate) async fn stop(&mut self) -> Result<bool> {
        self.signal("TERM")?;
        // Grace, five seconds for requests, and as much again.
        for _ in 0..200 {
            let is_there = match &mut self.process {
                Some(process) => process.try_wait()?.is_none(),
                None => false,
            };
            if !is_there {
                self.process = None;
                return Ok(true);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        self.kill()?;
        Ok(false)
    }

    /// How it ended, if it did without being told to.
    pub(crate) fn has_fallen(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.try_wait().ok().flatten()?;
        self.process = None;
        Some(status)
    }

    /// Changes its connection to the databases.
    pub(crate) fn link(&self, link: Link) {
        for proxy in &self.proxies {
            proxy.set(link);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
