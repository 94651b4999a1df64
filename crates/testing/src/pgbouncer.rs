//! A PgBouncer in front of a PostgreSQL server, for tests.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::postgres::{Postgres, as_user, folder, free_port};

/// A PgBouncer in transaction mode: a server's connection belongs to a client until its transaction ends, then to whoever
/// comes next.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    folder: PathBuf,
    /// Stops it and removes its folder when its input ends, which it does when this process is gone.
    keeper: Child,
}

impl PgBouncer {
    /// Starts one that has so many connections to each database of a server.
    ///
    /// # Panics
    /// If PgBouncer is not installed or does not start.
    pub fn start(server: &Postgres, connections: usize) -> PgBouncer {
        let (folder, port) = (folder("pgbouncer"), free_port());
        // Connections to the databases of tests that are over soon make room for others.
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {users}\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 1000\nserver_idle_timeout = 1\n\
             server_login_retry = 1\nquery_wait_timeout = 5\n",
            server = server.port(),
            users = folder.join("users").display(),
        );
        std::fs::write(folder.join("users"), "\"punctual\" \"\"\n").expect("a file");
        std::fs::write(folder.join("settings"), settings).expect("a file");
        let script = format!(
            "{program} {settings} >{log} 2>&1 & bouncer=$!; read end; kill -INT $bouncer; wait $bouncer; rm -rf {folder}",
            program = program().display(),
            settings = folder.join("settings").display(),
            log = folder.join("log").display(),
            folder = folder.display(),
        );
        let mut keeper = as_user(&folder, Path::new("sh"));
        keeper.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let bouncer = PgBouncer { port, folder, keeper: keeper.spawn().expect("a shell") };
        bouncer.wait_until_ready();
        bouncer
    }

    /// The address of a database through it, from its address at the server.
    pub fn through(&self, address: &str) -> String {
        let name = address.rsplit('/').next().expect("an address has a database");
        format!("postgres://punctual@127.0.0.1:{}/{name}", self.port)
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("PgBouncer did not start within 30 seconds:\n{log}");
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It stops the bouncer first.
        let _ = self.keeper.wait();
    }
}

/// Where it is; the folder is not in everybody's path.
fn program() -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin"];
    let mut places = folders.iter().map(|folder| Path::new(folder).join("pgbouncer"));
    places.find(|place| place.exists()).expect("PgBouncer is installed (Debian: apt-get install pgbouncer)")
}
