//! The database of the cluster under test: servers with fsync on, which can be killed, started again and promoted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use punctual_testing::postgres::{as_user, free_port, own, programs, signal, stop};

/// The name of the database.
pub(crate) const DATABASE: &str = "chaos";

/// The name under which a standby is synchronous.
const STANDBY: &str = "standby";

/// How long a server may take to be ready, recovery included.
const READY: Duration = Duration::from_secs(60);

/// A place for a server: a port and a folder that stay the same however often it is started.
struct Seat {
    port: u16,
    data: PathBuf,
    server: Option<Child>,
}

/// How a primary goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// kill -9 of all its processes.
    Killed,
    /// SIGSTOP of all its processes: it accepts connections and answers nobody.
    Frozen,
}

/// A primary, and the place of its standby.
pub(crate) struct Postgres {
    folder: PathBuf,
    seats: [Seat; 2],
    primary: usize,
}

impl Postgres {
    /// Makes a new primary and starts it.
    pub(crate) async fn start(folder: &Path) -> Result<Postgres> {
        own(folder);
        let seat = |name: &str| Seat { port: free_port(), data: folder.join(name), server: None };
        let mut postgres = Postgres { folder: folder.into(), seats: [seat("a"), seat("b")], primary: 0 };
        let mut initdb = postgres.program("initdb");
        initdb.args([
            "--username=punctual",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ]);
        done(initdb.arg(&postgres.seats[0].data)).await?;
        postgres.launch(0)?;
        postgres.wait_until_ready(0).await?;
        postgres.psql("postgres", &format!("create database {DATABASE}")).await?;
        Ok(postgres)
    }

    /// The ports of both places.
    pub(crate) fn ports(&self) -> [u16; 2] {
        [self.seats[0].port, self.seats[1].port]
    }

    /// kill -9 of the primary and all its processes, then a new start on the same files.
    pub(crate) async fn kill_and_restart(&mut self, down: Duration) -> Result<()> {
        self.kill(self.primary)?;
        tokio::time::sleep(down).await;
        // Its memory may still be attached for a moment; the server then refuses to start.
        for _ in 0..100 {
            self.launch(self.primary)?;
            if self.wait_until_ready(self.primary).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("PostgreSQL does not start again")
    }

    /// Ends every connection of nodes.
    pub(crate) async fn terminate_backends(&self) -> Result<()> {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where backend_type = 'client backend' and pid <> pg_backend_pid()";
        self.psql(DATABASE, sql).await.map(drop)
    }

    /// Copies the primary to the other place and waits until every commit waits for the copy.
    pub(crate) async fn add_standby(&mut self) -> Result<()> {
        let (primary, standby) = (self.primary, 1 - self.primary);
        // What was the primary before may be frozen there.
        self.kill(standby)?;
        let _ = std::fs::remove_dir_all(&self.seats[standby].data);
        let source = format!(
            "host=127.0.0.1 port={} user=punctual application_name={STANDBY}",
            self.seats[primary].port
        );
        let mut copy = self.program("pg_basebackup");
        copy.args([
            "--no-sync",
            "--checkpoint=fast",
            "--write-recovery-conf",
            "--wal-method=stream",
            "-d",
            &source,
            "-D",
        ]);
        done(copy.arg(&self.seats[standby].data)).await.context("copy the primary")?;
        self.launch(standby)?;
        self.wait_until_ready(standby).await?;
        self.psql("postgres", &format!("alter system set synchronous_standby_names = '{STANDBY}'")).await?;
        self.psql("postgres", "select pg_reload_conf()").await?;
        let state =
            "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'";
        for _ in 0..300 {
            if self.psql("postgres", state).await? == "1" {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the standby does not follow the primary")
    }

    /// The primary goes, and the standby takes its place.
    pub(crate) async fn promote(&mut self, end: End) -> Result<()> {
        match end {
            End::Killed => self.kill(self.primary)?,
            End::Frozen => self.freeze(self.primary),
        }
        self.primary = 1 - self.primary;
        // Its copy of the settings asks for a standby that is gone, so nothing would be acknowledged.
        self.psql("postgres", "select pg_promote()").await?;
        self.psql("postgres", "alter system reset synchronous_standby_names").await?;
        self.psql("postgres", "select pg_reload_conf()").await?;
        Ok(())
    }

    /// Runs SQL on the primary and returns what it prints.
    pub(crate) async fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let url = format!("postgres://punctual@127.0.0.1:{}/{database}", self.seats[self.primary].port);
        let mut command = self.program("psql");
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
            &url,
            "-c",
            sql,
        ]);
        done(&mut command).await
    }

    fn kill(&mut self, seat: usize) -> Result<()> {
        let Some(mut server) = self.seats[seat].server.take() else { return Ok(()) };
        // Its processes would notice and end, but perhaps only after a commit, or never if they wait for one another.
        signal("-KILL", &stop(&server.id().to_string()));
        server.wait().context("wait for PostgreSQL to end")?;
        Ok(())
    }

    /// Stops it where it is. It does nothing until it is killed.
    fn freeze(&self, seat: usize) {
        if let Some(server) = &self.seats[seat].server {
            stop(&server.id().to_string());
        }
    }

    fn launch(&mut self, seat: usize) -> Result<()> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("postgres.log"))
            .context("open the log of PostgreSQL")?;
        // It ends when the thread that starts it does, which is the main one: a checker that is killed leaves nothing.
        let mut command = as_user(&self.folder, Path::new("setpriv"));
        command.args(["--pdeathsig", "KILL", "--"]).arg(programs().join("postgres"));
        command.arg("-D").arg(&self.seats[seat].data).args(["-p", &self.seats[seat].port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=on",
            "max_connections=200",
            "shared_buffers=256MB",
            "max_wal_size=4GB",
            "wal_level=replica",
            "hot_standby=on",
        ] {
            command.args(["-c", setting]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.seats[seat].server = Some(command.spawn().context("start PostgreSQL")?);
        Ok(())
    }

    async fn wait_until_ready(&mut self, seat: usize) -> Result<()> {
        let deadline = tokio::time::Instant::now() + READY;
        while tokio::time::Instant::now() < deadline {
            let mut ready = self.program("pg_isready");
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.seats[seat].port.to_string()]);
            if ready.status().context("start `pg_isready`")?.success() {
                return Ok(());
            }
            let server = self.seats[seat].server.as_mut();
            if let Some(status) = server.and_then(|server| server.try_wait().ok().flatten()) {
                bail!("PostgreSQL ended ({status})");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("PostgreSQL is not ready")
    }

    fn program(&self, name: &str) -> Command {
        as_user(&self.folder, &programs().join(name))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        for seat in [0, 1] {
            let _ = self.kill(seat);
        }
    }
}

/// Runs a program to its end, and returns what it printed.
async fn done(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
