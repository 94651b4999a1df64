//! What the commands that change many jobs or runs share: which, how many, and how far it is.

use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use punctual_api::bulk::BulkPreview;
use punctual_api::operation::Operation;
use punctual_client::{Answer, Client, Many};

use super::output::{self, Format};
use super::remote::Remote;
use crate::failure::Failure;

/// Options of every change of many.
#[derive(Args)]
pub(crate) struct How {
    /// All of the tenant, if nothing narrows
    #[arg(long)]
    pub(super) all: bool,
    /// Only say how many would change, and name a few
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for the operation to end
    #[arg(long)]
    no_wait: bool,
    /// Repeated under the same key, the operation is started once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl How {
    /// Whether nothing changes.
    pub(super) fn is_dry(&self) -> bool {
        self.dry_run
    }
}

/// What is changed, and the words for it.
pub(super) struct Asked {
    pub(super) many: Many,
    /// What changes: `jobs` or `runs`.
    pub(super) noun: &'static str,
    /// What becomes of them: `paused`.
    pub(super) deed: &'static str,
}

/// An operation is asked about so often.
const POLL: Duration = Duration::from_millis(200);

/// Counts, or starts the operation and waits for its end.
pub(super) async fn change(
    asked: &Asked,
    how: &How,
    remote: &Remote,
    client: &Client,
) -> Result<(), Failure> {
    if how.dry_run {
        let preview = count(asked, client).await?;
        return match remote.output {
            format @ (Format::Json | Format::Yaml) => {
                let text = serde_json::to_string(&preview).map_err(|error| Failure::Other(error.into()))?;
                output::print(&output::machine(&text, format)?)
            }
            Format::Table | Format::Wide => output::print(&page(&preview, asked)),
        };
    }
    let operation = client.change_many(&asked.many, how.idempotency_key.as_deref()).await?;
    follow(operation, how.no_wait, asked.deed, remote, client).await
}

/// The whole of a dry run, part by part.
async fn count(asked: &Asked, client: &Client) -> Result<BulkPreview, Failure> {
    let bar = ProgressBar::new_spinner();
    let mut all = client.preview_many(&asked.many, None).await?.value;
    while let Some(cursor) = all.next_cursor.take() {
        bar.set_message(format!("{} {} so far", all.matched, asked.noun));
        bar.tick();
        let part = client.preview_many(&asked.many, Some(cursor)).await?.value;
        all.matched += part.matched;
        all.changes += part.changes;
        all.failed += part.failed;
        all.failure = all.failure.or(part.failure);
        all.examples.extend(part.examples);
        all.examples.truncate(EXAMPLES);
        all.next_cursor = part.next_cursor;
    }
    bar.finish_and_clear();
    Ok(all)
}

/// A dry run names so many.
const EXAMPLES: usize = 5;

fn page(preview: &BulkPreview, asked: &Asked) -> String {
    let (noun, deed) = (asked.noun, asked.deed);
    let same = preview.matched - preview.changes - preview.failed;
    let mut text = format!("{} {noun} match: {} would be {deed}", preview.matched, preview.changes);
    if same > 0 {
        text.push_str(&format!(", {same} would stay as they are"));
    }
    if preview.failed > 0 {
        text.push_str(&format!(", {} cannot be", preview.failed));
    }
    text.push('\n');
    if let Some(failure) = &preview.failure {
        text.push_str(&format!("such as {}\n", output::safe(failure)));
    }
    if preview.examples.is_empty() {
        return text;
    }
    let mut table = output::table(match noun {
        "runs" => &["RUN", "JOB"][..],
        _ => &["JOB", "KEY", "NAME"][..],
    });
    for example in &preview.examples {
        table.add_row(match &example.job_id {
            Some(job) => vec![example.id.clone(), job.clone()],
            None => {
                let [key, name] = [&example.key, &example.name]
                    .map(|text| output::safe(text.as_deref().unwrap_or_default()));
                vec![example.id.clone(), key, name]
            }
        });
    }
    text + &output::lines(&table)
}

/// Waits for the end of an operation, and tells what it did.
pub(super) async fn follow(
    mut operation: Answer<Operation>,
    no_wait: bool,
    deed: &str,
    remote: &Remote,
    client: &Client,
) -> Result<(), Failure> {
    let bar = ProgressBar::new_spinner().with_message(deed.to_string());
    while operation.state == "running" && !no_wait {
        tokio::time::sleep(POLL).await;
        operation = client.operation(&operation.id).await?;
        bar.set_position(operation.done);
        bar.set_message(format!("{} {deed}", operation.done));
    }
    bar.finish_and_clear();
    remote.show(&operation, |operation, _| match operation.state.as_str() {
        "running" => format!("operation {} goes on: {} {deed} so far\n", operation.id, operation.done),
        "cancelled" => format!("the operation was cancelled; {} were {deed}\n", operation.done),
        _ => match &operation.failure {
            Some(failure) => {
                let failure = output::safe(failure);
                format!("{} {deed}, {} could not be, such as {failure}\n", operation.done, operation.failed)
            }
            None => format!("{} {deed}, {} had changed meanwhile\n", operation.done, operation.failed),
        },
    })?;
    match (operation.state.as_str(), &operation.error) {
        ("running" | "succeeded", _) => Ok(()),
        (_, Some(error)) => Err(Failure::Other(anyhow::anyhow!("the operation failed: {error}"))),
        (state, None) => Err(Failure::Other(anyhow::anyhow!("the operation was {state}"))),
    }
}
