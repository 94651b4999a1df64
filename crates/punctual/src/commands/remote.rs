//! Commands that ask a server: where it is, how its answers are written.

use std::future::Future;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use punctual_client::{Answer, Client, Key, List, Options, Server};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;

use super::output::{self, Format};
use crate::failure::Failure;

/// Options of every command that asks a server.
#[derive(Args)]
pub(crate) struct Remote {
    /// The server to ask
    #[arg(
        long,
        global = true,
        env = "PUNCTUAL_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7171"
    )]
    server: String,
    /// The tenant [default: `default`]
    #[arg(long, global = true, env = "PUNCTUAL_TENANT", value_name = "NAME")]
    tenant: Option<String>,
    /// A file with the key to show; else PUNCTUAL_KEY is the key, or PUNCTUAL_KEY_FILE names the file
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file of root certificates (PEM) to trust besides the public ones
    #[arg(long, global = true, env = "PUNCTUAL_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A table for people, or JSON exactly as the server gave it
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// How much of a list.
#[derive(Args)]
pub(crate) struct Paging {
    /// How many items, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Go on after an earlier page: its `next_cursor`
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// All items, page by page
    #[arg(long)]
    all: bool,
}

impl Remote {
    /// A client of the server.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let server: Server = self.server.parse()?;
        let mut options = Options { tenant: self.tenant.clone(), key: self.key()?, ..Options::default() };
        if let Some(path) = &self.ca_file {
            let wrong = |reason: String| Failure::Input(format!("--ca-file {}: {reason}", path.display()));
            let roots = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            options.roots = roots.map_err(|error| wrong(error.to_string()))?;
            if options.roots.is_empty() {
                return Err(wrong("there is no certificate in it".into()));
            }
        }
        Ok(Client::new(server, &options)?)
    }

    /// The tenant that was named.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The key to show, if there is one. It is never an argument, which others on the machine could read.
    fn key(&self) -> Result<Option<Key>, Failure> {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let (place, text) = match (&self.key_file, given("PUNCTUAL_KEY"), given("PUNCTUAL_KEY_FILE")) {
            (Some(path), ..) => (format!("--key-file {}", path.display()), std::fs::read_to_string(path)),
            (None, Some(key), _) => ("PUNCTUAL_KEY".into(), Ok(key.to_string_lossy().into_owned())),
            (None, None, Some(path)) => {
                let path = PathBuf::from(path);
                (format!("PUNCTUAL_KEY_FILE {}", path.display()), std::fs::read_to_string(path))
            }
            (None, None, None) => return Ok(None),
        };
        let wrong = |reason: String| Failure::Input(format!("{place}: {reason}"));
        let text = text.map_err(|error| wrong(error.to_string()))?;
        text.parse().map(Some).map_err(|error: punctual_client::Error| wrong(error.to_string()))
    }

    /// Writes one answer: its text for programs, a page for people.
    pub(crate) fn show<T>(
        &self,
        answer: &Answer<T>,
        page: impl FnOnce(&T, Timestamp) -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Format::Json => output::print(&format!("{}\n", answer.text())),
            Format::Table => output::print(&page(&answer.value, Timestamp::now())),
        }
    }

    /// Writes a list: for programs in the shape of a page, also when it is several.
    pub(crate) async fn show_list<T: DeserializeOwned>(
        &self,
        list: List<T>,
        paging: &Paging,
        table: impl Fn(&[&T], Timestamp) -> String,
    ) -> Result<(), Failure> {
        let limit = if paging.all { 1_000 } else { usize::from(paging.limit) };
        let mut list = list.limit(limit).after(paging.cursor.clone());
        if self.output == Format::Json && paging.all {
            return print_all(list).await;
        }
        let mut is_first = true;
        while let Some(page) = list.next_page().await? {
            match self.output {
                Format::Json => output::print(&format!("{}\n", page.text()))?,
                Format::Table => {
                    let items: Vec<&T> = page.items.iter().map(|item| &item.value).collect();
                    let text = table(&items, Timestamp::now());
                    let rest =
                        if is_first { &text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
                    output::print(rest)?;
                }
            }
            is_first = false;
            if !paging.all {
                if let (Some(cursor), Format::Table, true) =
                    (&page.next_cursor, self.output, std::io::stdout().is_terminal())
                {
                    output::print(&format!("more: --cursor {cursor}, or --all\n"))?;
                }
                break;
            }
        }
        Ok(())
    }
}

async fn print_all<T: DeserializeOwned>(mut list: List<T>) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let mut before = r#"{"items":["#;
    while let Some(item) = list.next().await? {
        if !output::write(&mut out, &format!("{before}{}", item.text()))? {
            return Ok(());
        }
        before = ",\n";
    }
    let head = if before.starts_with('{') { before } else { "" };
    output::print(&format!("{head}],\"next_cursor\":null}}\n"))
}

/// Runs a command that waits for a server.
pub(crate) fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(work);
    // A read of standard input cannot be called off; nobody waits for it.
    runtime.shutdown_background();
    result
}
