//! A PostgreSQL server for tests.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::clock::Clock;

/// Who runs the server when the tests run as root, which PostgreSQL refuses.
const USER: &str = "postgres";

/// A server with the files of one temporary folder.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    programs: PathBuf,
    folder: PathBuf,
    /// Stops the server and removes its folder when its input ends, which it does when this process is gone.
    keeper: Child,
    orders: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    databases: AtomicU32,
}

impl Postgres {
    /// The one that all tests of a process share.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Postgres::start(&["fsync=off", "max_connections=300"]))
    }

    /// Starts a server with settings of its own.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start(settings: &[&str]) -> Postgres {
        Postgres::start_on(free_port(), settings)
    }

    /// Starts a server on a port.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start_on(port: u16, settings: &[&str]) -> Postgres {
        Postgres::start_by(None, port, settings)
    }

    /// Starts a server that goes by a clock of its own, also when it is started again.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn start_with_clock(clock: &Clock) -> Postgres {
        Postgres::start_by(Some(clock), free_port(), &["fsync=off"])
    }

    fn start_by(clock: Option<&Clock>, port: u16, settings: &[&str]) -> Postgres {
        let (programs, folder) = (programs(), folder("postgres"));
        run(
            as_user(&folder, &programs.join("initdb"))
                .args([
                    "--username=punctual",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-sync",
                    "-D",
                ])
                .arg(folder.join("data")),
            Run::Always,
        );
        Postgres::launch(programs, folder, port, settings, clock)
    }

    /// A standby that follows this server, each commit of which waits for it from now on.
    pub fn standby(&self) -> Postgres {
        let standby = self.follower();
        self.psql("postgres", "alter system set synchronous_standby_names = '*'");
        self.psql("postgres", "select pg_reload_conf()");
        self.wait_for_follower("sync");
        standby
    }

    /// A standby that follows this server, for which nothing waits.
    pub fn follower(&self) -> Postgres {
        let (programs, folder) = (programs(), folder("postgres"));
        run(
            as_user(&folder, &programs.join("pg_basebackup"))
                .args(["--no-sync", "--write-recovery-conf", "--checkpoint=fast", "-D"])
                .arg(folder.join("data"))
                .args(["-d", &self.url("postgres")]),
            Run::Always,
        );
        // It takes no fewer connections than what it follows, or it does not start.
        let connections = format!("max_connections={}", self.psql("postgres", "show max_connections"));
        let standby = Postgres::launch(programs, folder, free_port(), &["fsync=off", &connections], None);
        self.wait_for_follower("async");
        standby
    }

    fn wait_for_follower(&self, state: &str) {
        let follows = format!("select count(*) from pg_stat_replication where sync_state = '{state}'");
        for _ in 0..600 {
            if self.psql("postgres", &follows) == "1" {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the standby does not follow within 30 seconds");
    }

    /// Stops or goes on with applying what this standby receives, and waits until it is so.
    pub fn pause_replay(&self, is_paused: bool) {
        let (verb, state) = if is_paused { ("pause", "paused") } else { ("resume", "not paused") };
        self.psql("postgres", &format!("select pg_wal_replay_{verb}()"));
        for _ in 0..600 {
            if self.psql("postgres", "select pg_get_wal_replay_pause_state()") == state {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the standby is not {state} within 30 seconds");
    }

    /// Lets a standby take writes.
    pub fn promote(&self) {
        assert_eq!(self.psql("postgres", "select pg_promote()"), "t");
    }

    /// Starts a server on the files of a folder.
    fn launch(
        programs: PathBuf,
        folder: PathBuf,
        port: u16,
        settings: &[&str],
        clock: Option<&Clock>,
    ) -> Postgres {
        let data = folder.join("data");
        let mut server = format!(
            "{}{} -D {} -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=",
            clock.map(Clock::before).unwrap_or_default(),
            programs.join("postgres").display(),
            data.display()
        );
        for setting in settings {
            server.push_str(&format!(" -c {setting}"));
        }
        // The keeper reads until this process closes the pipe, by ending in whatever way.
        let script = format!(
            "trap : INT; start() {{ {server} >>{log} 2>&1 & server=$!; }}; start; echo done; \
             while read order; do case $order in start) start ;; *) kill -$order $server; wait $server ;; esac; echo done; done; \
             kill -INT $server; wait $server; rm -rf {folder}",
            log = folder.join("log").display(),
            folder = folder.display()
        );
        let mut keeper = as_user(&folder, Path::new("sh"));
        keeper.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = keeper.spawn().expect("a shell");
        let mut answers = BufReader::new(keeper.stdout.take().expect("its output"));
        let orders = keeper.stdin.take().expect("its input");
        answers.read_line(&mut String::new()).expect("the keeper says that it started");
        let orders = Mutex::new(Some((orders, answers)));
        let postgres = Postgres { port, programs, folder, keeper, orders, databases: AtomicU32::new(0) };
        postgres.wait_until_ready();
        postgres
    }

    /// Stops the server at once, as a crash does: nothing is written out, clients hear nothing.
    pub fn crash(&self) {
        self.order("QUIT");
    }

    /// Starts the server again, on the same port, and waits until it takes connections.
    pub fn start_again(&self) {
        self.order("start");
        self.wait_until_ready();
    }

    /// Stops all its processes where they are, until what is returned is dropped: connections stay, new ones are accepted
    /// by the system alone, and nothing is ever said on them.
    pub fn freeze(&self) -> Frozen {
        let path = self.folder.join("data/postmaster.pid");
        let text = std::fs::read_to_string(path).expect("a running server says so");
        let server = text.lines().next().expect("its process comes first").to_owned();
        Frozen { processes: stop(&server) }
    }

    /// Writes a file that only the server may read.
    pub fn write_private(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("permissions");
        run(as_user(&self.folder, Path::new("chown")).args([USER]).arg(&path), Run::AsRootOnly);
        path
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).expect("the log of the server")
    }

    /// A database as SQL that makes it anew, with what is in it.
    pub fn dump(&self, database: &str) -> String {
        let mut command = Command::new(self.programs.join("pg_dump"));
        command.args(["--no-owner", "--no-privileges", "--inserts", "-d", &self.url(database)]);
        let output = command.output().expect("pg_dump starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("a dump is text")
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Tells the keeper to do something, and waits until it is done.
    fn order(&self, order: &str) {
        let mut orders = self.orders.lock().expect("not poisoned");
        let (input, output) = orders.as_mut().expect("the keeper is there until the end");
        writeln!(input, "{order}").expect("the keeper reads");
        output.read_line(&mut String::new()).expect("the keeper answers");
    }

    /// Makes a database and returns its address.
    pub fn create(&self, name: &str) -> String {
        self.psql("postgres", &format!("create database {name}"));
        self.url(name)
    }

    /// The address of a new, empty database.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.create(&name)
    }

    /// The address of a database.
    pub fn url(&self, name: &str) -> String {
        format!("postgres://punctual@127.0.0.1:{}/{name}", self.port)
    }

    /// Runs SQL and returns what it prints.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1"]);
        let output = command.args([&self.url(database), "-c", sql]).output().expect("psql starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ready.status().expect("pg_isready starts").success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("PostgreSQL did not start within 30 seconds:\n{log}");
    }
}

/// A server that does nothing. Goes on when this is dropped.
#[derive(Debug)]
pub struct Frozen {
    processes: Vec<String>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("-CONT", &self.processes);
    }
}

/// Stops the processes of a server where they are, and returns them. One that has ended has none.
pub fn stop(server: &str) -> Vec<String> {
    // The first alone, so that there are no more when the others are counted.
    signal("-STOP", &[server.to_owned()]);
    let children = || {
        let path = format!("/proc/{server}/task/{server}/children");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    // The list has gaps if one of them ends while it is read.
    let mut listed = children();
    loop {
        let again = children();
        if again == listed {
            break;
        }
        listed = again;
    }
    let others: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
    signal("-STOP", &others);
    std::iter::once(server.to_owned()).chain(others).collect()
}

/// Some of the processes may have ended already.
pub fn signal(name: &str, processes: &[String]) {
    Command::new("kill").arg(name).args(processes).stderr(Stdio::null()).status().expect("kill starts");
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.orders.lock().map(|mut orders| orders.take()));
        // It stops the server first.
        let _ = self.keeper.wait();
    }
}

/// A temporary folder of the user that runs servers; the keeper removes it.
pub(crate) fn folder(of: &str) -> PathBuf {
    let prefix = format!("punctual-{of}-");
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary folder").keep();
    own(&folder);
    folder
}

/// Gives a folder to the user that runs the server.
pub fn own(folder: &Path) {
    run(as_user(folder, Path::new("chown")).args([USER]).arg(folder), Run::AsRootOnly);
}

#[derive(PartialEq, Eq)]
enum Run {
    Always,
    AsRootOnly,
}

fn run(command: &mut Command, when: Run) {
    if when == Run::AsRootOnly && !is_root() {
        return;
    }
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// A program, as a user that PostgreSQL accepts; changing the owner of files is left to us.
pub fn as_user(folder: &Path, program: &Path) -> Command {
    let mut command = match is_root() && program != Path::new("chown") {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    command.current_dir(folder);
    command
}

/// Where the newest installed PostgreSQL is.
pub fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").map(|found| found.flatten().collect::<Vec<_>>());
    let mut versions: Vec<u32> = versions
        .unwrap_or_default()
        .iter()
        .filter_map(|version| version.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let newest = versions.last().expect("PostgreSQL is installed (Debian: apt-get install postgresql)");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"))
}

/// A port below those that the system gives to clients: while a server is stopped, nobody else gets it, and nobody who
/// tries to connect to it meets himself.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    let port = |_| 15_000 + (start.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 15_000) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..1_000).map(port).find(is_free).expect("a free port")
}
