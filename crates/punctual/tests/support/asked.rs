//! A server in a folder of its own, and the commands that ask it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::server::{Server, command};

pub(crate) struct Asked {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Asked {
    pub(crate) fn start() -> Asked {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_with(&folder.path().join("data"), &["--log", "warn"]);
        Asked { server, folder }
    }

    /// A place in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.fed(arguments, "")
    }

    /// With something on standard input.
    pub(crate) fn fed(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = command()
            .args(arguments)
            .env("PUNCTUAL_SERVER", self.server.url())
            .env("PUNCTUAL_TZDATA", "bundled")
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end before it has read anything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What a command that succeeds says.
    pub(crate) fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let said = self.says(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// The exit code, and what it says on standard error.
    pub(crate) fn ends(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        (output.status.code().unwrap(), text(&output.stderr))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
