//! An SMTP server that keeps what it is sent, for tests.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::postgres::{folder, free_port};

/// An SMTP server without TLS, with a folder of mails.
#[derive(Debug)]
pub struct MailServer {
    port: u16,
    folder: PathBuf,
    /// Stops it and removes its folder when its input ends, which it does when this process is gone.
    keeper: Child,
}

impl MailServer {
    /// Starts one.
    ///
    /// # Panics
    /// If `aiosmtpd` is not installed or does not start.
    pub fn start() -> MailServer {
        let (folder, port) = (folder("mail"), free_port());
        let program = "/usr/bin/aiosmtpd";
        assert!(Path::new(program).exists(), "aiosmtpd is not installed: apt-get install python3-aiosmtpd");
        let script = format!(
            "{program} -n -l 127.0.0.1:{port} -c aiosmtpd.handlers.Mailbox {mails} >{log} 2>&1 & \
             server=$!; read end; kill $server; wait $server; rm -rf {folder}",
            mails = folder.join("mails").display(),
            log = folder.join("log").display(),
            folder = folder.display(),
        );
        let mut keeper = Command::new("sh");
        keeper.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = MailServer { port, folder, keeper: keeper.spawn().expect("a shell") };
        server.wait_until_ready();
        server
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// What it was sent, each mail with its headers.
    pub fn mails(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.join("mails/new")) else { return Vec::new() };
        entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok()).collect()
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("the mail server did not start:\n{log}");
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
