//! Commands that ask a server: where it is, how its answers are written.

use std::future::Future;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use punctual_client::{Answer, Client, Error, List, Options, Server};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::de::DeserializeOwned;

use super::context::{self, Config, Flags, Settings};
use super::output::{self, Format};
use super::watch::Watch;
use crate::failure::Failure;

/// Options of every command that asks a server.
#[derive(Args)]
pub(crate) struct Remote {
    /// The server to ask [env: PUNCTUAL_SERVER] [default: the context's, or http://127.0.0.1:7171]
    #[arg(long, global = true, value_name = "URL")]
    server: Option<String>,
    /// The server, tenant and key kept under a name; see `punctual context` [env: PUNCTUAL_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "server")]
    context: Option<String>,
    /// The tenant [env: PUNCTUAL_TENANT] [default: the context's, or `default`]
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// A file with the key to show [env: PUNCTUAL_KEY_FILE, or the key itself in PUNCTUAL_KEY] [default: the context's]
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file of root certificates (PEM) to trust besides the public ones [env: PUNCTUAL_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A table for people, or JSON or YAML for programs
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
    #[command(flatten)]
    pub(crate) watch: Watch,
}

impl Remote {
    /// A client of the server.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let settings = self.settings()?;
        let server: Server = settings.server.parse()?;
        let (tenant, key) = (settings.tenant.clone(), settings.key()?);
        let mut options = Options { tenant, key, ..Options::default() };
        if let Some(path) = &settings.ca_file {
            let wrong = |reason: String| Failure::Input(format!("--ca-file {}: {reason}", path.display()));
            let roots = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            options.roots = roots.map_err(|error| wrong(error.to_string()))?;
            if options.roots.is_empty() {
                return Err(wrong("there is no certificate in it".into()));
            }
        }
        Ok(Client::new(server, &options)?)
    }

    /// Whom to ask, and as whom: from flags, the environment and the context.
    fn settings(&self) -> Result<Settings, Failure> {
        let flags = Flags {
            server: self.server.clone(),
            context: self.context.clone(),
            tenant: self.tenant.clone(),
            key_file: self.key_file.clone(),
            ca_file: self.ca_file.clone(),
        };
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        context::settings(&flags, &environment, || Config::load(&context::path()))
    }

    /// Whether tables have more columns.
    pub(crate) fn is_wide(&self) -> bool {
        self.output == Format::Wide
    }

    /// The tenant that was named, here or by the context.
    pub(crate) fn tenant(&self) -> Result<Option<String>, Failure> {
        Ok(self.settings()?.tenant)
    }

    /// The tenant that this command names itself: what a context or the environment says is meant for a server.
    pub(crate) fn own_tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Why a tenant is not found that nobody has named: the key is for another.
    pub(crate) fn of_tenant(&self, error: Error) -> Failure {
        let is_unknown = error.problem().is_some_and(|problem| problem.code == "tenant_not_found");
        match self.tenant() {
            Ok(None) if is_unknown => Failure::Input(
                "the key is for one tenant, and this command must know which: write --tenant NAME, or set PUNCTUAL_TENANT"
                    .into(),
            ),
            _ => error.into(),
        }
    }

    /// The name of the tenant.
    pub(crate) fn tenant_name(&self) -> Result<String, Failure> {
        Ok(self.tenant()?.unwrap_or_else(|| "default".into()))
    }

    /// Writes one answer: its text for programs, a page for people.
    pub(crate) fn show<T>(
        &self,
        answer: &Answer<T>,
        page: impl FnOnce(&T, Timestamp) -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Format::Json | Format::Yaml => output::print(&output::machine(answer.text(), self.output)?),
            Format::Table | Format::Wide => output::print(&page(&answer.value, Timestamp::now())),
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
        if self.output.is_for_programs() && paging.all {
            return print_all(list, self.output).await;
        }
        let mut is_first = true;
        while let Some(page) = list.next_page().await? {
            match self.output {
                Format::Json | Format::Yaml => output::print(&output::machine(page.text(), self.output)?)?,
                Format::Table | Format::Wide => {
                    let items: Vec<&T> = page.items.iter().map(|item| &item.value).collect();
                    let text = table(&items, Timestamp::now());
                    let rest =
                        if is_first { &text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
                    output::print(rest)?;
                }
            }
            is_first = false;
            if !paging.all {
                if let (Some(cursor), false, true) =
                    (&page.next_cursor, self.output.is_for_programs(), std::io::stdout().is_terminal())
                {
                    output::print(&format!("more: --cursor {cursor}, or --all\n"))?;
                }
                break;
            }
        }
        Ok(())
    }
}

async fn print_all<T: DeserializeOwned>(mut list: List<T>, format: Format) -> Result<(), Failure> {
    let mut before = r#"{"items":["#;
    let mut whole = String::new();
    while let Some(item) = list.next().await? {
        let text = format!("{before}{}", item.text());
        match format {
            // A list in YAML is one document, which is written when all of it is known.
            Format::Yaml => whole.push_str(&text),
            Format::Json | Format::Table | Format::Wide => {
                if !output::print_more(&text)? {
                    return Ok(());
                }
            }
        }
        before = ",\n";
    }
    let head = if before.starts_with('{') { before } else { "" };
    let end = format!("{head}],\"next_cursor\":null}}");
    output::print(&output::machine(&format!("{whole}{end}"), format)?)
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
