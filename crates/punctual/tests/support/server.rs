//! The real binary as a server, and a small HTTP client for it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use punctual_testing::Clock;
use serde_json::Value;

/// A running `punctual serve`.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    /// Reads the log, so that the server is never held up by it.
    log: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    /// Starts the binary on a data directory, on a free port, and waits until it says where it listens.
    pub(crate) fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    pub(crate) fn start_with(data: &Path, arguments: &[&str]) -> Server {
        Server::try_start(data, arguments).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// The same by another clock.
    pub(crate) fn start_by(clock: &Clock, data: &Path, arguments: &[&str]) -> Server {
        let mut command = command();
        clock.give(&mut command);
        Server::try_command(command, data, arguments)
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// The log, if it ends without listening.
    pub(crate) fn try_start(data: &Path, arguments: &[&str]) -> Result<Server, String> {
        Server::try_command(command(), data, arguments)
    }

    /// The same on another address than this machine's own.
    pub(crate) fn try_start_on(listen: &str, data: &Path, arguments: &[&str]) -> Result<Server, String> {
        Server::try_listening(command(), listen, data, arguments)
    }

    fn try_command(command: Command, data: &Path, arguments: &[&str]) -> Result<Server, String> {
        Server::try_listening(command, "127.0.0.1:0", data, arguments)
    }

    #[allow(clippy::zombie_processes, reason = "it is waited for when the server is dropped")]
    fn try_listening(
        mut command: Command,
        listen: &str,
        data: &Path,
        arguments: &[&str],
    ) -> Result<Server, String> {
        let mut child = command
            .args(["serve", "--listen", listen, "--data"])
            .arg(data)
            .args(arguments)
            .env("PUNCTUAL_TZDATA", "bundled")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if log.read_line(&mut line).expect("a line of the log") == 0 {
                child.wait().expect("ended");
                return Err(seen);
            }
            seen.push_str(&line);
            if let Some((_, address)) = line.split_once("is listening on http") {
                let address = address.trim_start_matches('s').trim_start_matches("://");
                let address = address.trim().parse().expect("an address");
                let log = std::thread::spawn(move || {
                    // A log that is not text is as good as its end.
                    let _ = log.read_to_string(&mut seen);
                    seen
                });
                return Ok(Server { address, child, log: Some(log) });
            }
        }
    }

    /// Starts the binary on this port, and does not wait until it listens.
    #[allow(clippy::zombie_processes, reason = "it is waited for when the server is dropped")]
    pub(crate) fn launch(port: u16, data: &Path, arguments: &[&str]) -> Server {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut child = command()
            .args(["serve", "--listen", &address.to_string(), "--data"])
            .arg(data)
            .args(arguments)
            .env("PUNCTUAL_TZDATA", "bundled")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut log = child.stderr.take().expect("piped");
        let log = std::thread::spawn(move || {
            let mut seen = String::new();
            // A log that is not text is as good as its end.
            let _ = log.read_to_string(&mut seen);
            seen
        });
        Server { address, child, log: Some(log) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        self.log()
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("ended");
        (status, self.log())
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    fn log(&mut self) -> String {
        self.log.take().map(|log| log.join().expect("the log is read")).unwrap_or_default()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = call(self.address, "GET", path, &[], "").expect("the server answers");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        call(self.address, "POST", path, &[], body).expect("the server answers")
    }
}

/// The binary, with no settings from outside.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    for name in [
        "PUNCTUAL_SERVER",
        "PUNCTUAL_TENANT",
        "PUNCTUAL_DATA",
        "PUNCTUAL_CONFIG",
        "PUNCTUAL_CA_FILE",
        "PUNCTUAL_CONTEXT",
        "PUNCTUAL_KEY",
        "PUNCTUAL_KEY_FILE",
        "PUNCTUAL_ADMIN_KEY_FILE",
        "PUNCTUAL_SECRETS_KEY_FILE",
        "PUNCTUAL_SECRETS_KEY_COMMAND",
        "PUNCTUAL_TLS_CERT",
        "PUNCTUAL_TLS_KEY",
        "PUNCTUAL_TLS_CLIENT_CA",
    ] {
        command.env_remove(name);
    }
    // Whoever runs the tests may have contexts of their own.
    command.env("XDG_CONFIG_HOME", "/nowhere");
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    head: String,
}

impl Answer {
    /// A header's value; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        header(&self.head, name).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// One request on a connection of its own. An error if the server went away before the answer was complete.
pub(crate) fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let extra: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{extra}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let broken = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "an incomplete answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    let length = header(head, "content-length").and_then(|value| value.parse::<usize>().ok());
    // An answer that was cut off acknowledges nothing.
    if length.is_some_and(|length| body.len() != length) {
        return Err(broken());
    }
    Ok(Answer { status, body: body.to_owned(), head: head.to_owned() })
}

fn header<'h>(head: &'h str, wanted: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then_some(value.trim())
    })
}
