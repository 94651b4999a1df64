//! `punctual job import`: lines go up, progress comes down.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use indicatif::{ProgressBar, ProgressStyle};
use punctual_api::import::{ImportCount, ImportLine};
use punctual_client::Client;
use tokio::io::{AsyncRead, ReadBuf};

use crate::commands::output::{self, Format};
use crate::commands::remote::Remote;
use crate::failure::Failure;

/// Refused lines that are shown one by one; more would hide the summary.
const SHOWN: u64 = 20;

pub(super) async fn run(
    file: &Path,
    idempotency_key: Option<&str>,
    remote: &Remote,
    client: &Client,
) -> Result<(), Failure> {
    let key = idempotency_key.map_or_else(new_key, str::to_string);
    let (reader, bytes): (Pin<Box<dyn AsyncRead + Send>>, u64) = match file.as_os_str() == "-" {
        true => (Box::pin(tokio::io::stdin()), 0),
        false => {
            let unreadable = |error| Failure::Input(format!("cannot read {}: {error}", file.display()));
            let file = tokio::fs::File::open(file).await.map_err(unreadable)?;
            let bytes = file.metadata().await.map(|metadata| metadata.len()).unwrap_or(0);
            (Box::pin(file), bytes)
        }
    };
    let bar = bar(bytes);
    let sent = Sent { reader, bar: bar.clone() };
    let ended = follow(client, sent, &key, remote, &bar).await;
    bar.finish_and_clear();
    let again = format!(
        "\nto go on where it stopped: punctual job import {} --idempotency-key {key}",
        file.display()
    );
    let count = match ended {
        Ok(count) => count,
        Err(Failure::Other(error)) if file.as_os_str() != "-" => {
            return Err(Failure::Other(anyhow::anyhow!("{error:#}{again}")));
        }
        Err(failure) => return Err(failure),
    };
    if !remote.output.is_for_programs() {
        let repeated = match count.repeated {
            0 => String::new(),
            repeated => format!(", {repeated} were there already"),
        };
        output::print(&format!(
            "{} jobs registered{repeated}, {} lines refused\n",
            count.created, count.failed
        ))?;
    }
    match count.failed {
        0 => Ok(()),
        failed => Err(Failure::Other(anyhow::anyhow!("{failed} of {} lines were refused", count.lines))),
    }
}

async fn follow(
    client: &Client,
    sent: Sent,
    key: &str,
    remote: &Remote,
    bar: &ProgressBar,
) -> Result<ImportCount, Failure> {
    let mut import = client.import(sent, Some(key)).await?;
    let mut refused = 0;
    while let Some(line) = import.next().await? {
        match remote.output {
            Format::Json => output::print(&format!("{}\n", line.text()))?,
            Format::Yaml => output::print(&format!("---\n{}", output::machine(line.text(), Format::Yaml)?))?,
            Format::Table | Format::Wide => {}
        }
        match line.value {
            ImportLine::Refused(line) => {
                refused += 1;
                if refused <= SHOWN && !remote.output.is_for_programs() {
                    bar.suspend(|| {
                        eprintln!("line {}: {}", line.line, output::safe(&line.problem.to_string()));
                    });
                }
                if refused == SHOWN + 1 && !remote.output.is_for_programs() {
                    bar.suspend(|| eprintln!("more lines were refused; all of them with -o json"));
                }
            }
            ImportLine::Progress(count) => bar.set_message(format!("{} jobs", count.created)),
            ImportLine::Summary(count) => return Ok(count),
            ImportLine::Stopped(problem) => {
                return Err(Failure::Other(anyhow::anyhow!("the import stopped: {}", problem.detail)));
            }
        }
    }
    Err(Failure::Other(anyhow::anyhow!("the import broke off before its end")))
}

fn bar(bytes: u64) -> ProgressBar {
    if bytes == 0 {
        return ProgressBar::new_spinner();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg} {eta}");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A key that nobody has used: it only has to differ.
fn new_key() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("import-{:016x}{:016x}", word(), word())
}

/// What is read, counted by the bar.
struct Sent {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    bar: ProgressBar,
}

impl AsyncRead for Sent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.reader.as_mut().poll_read(cx, buf);
        self.bar.inc((buf.filled().len() - before) as u64);
        read
    }
}
