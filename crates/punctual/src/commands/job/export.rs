//! `punctual job export`: every job as its owner asked for it, one a line.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;
use punctual_client::{Client, JobFilter};

use crate::commands::output;
use crate::failure::Failure;

/// Jobs of a page.
const PAGE: usize = 1_000;

pub(super) async fn run(file: &Path, filter: &JobFilter, client: &Client) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        return write(filter, client, &mut BufWriter::new(io::stdout()), &ProgressBar::hidden())
            .await
            .map(drop);
    }
    // Under another name until it is whole: an export that breaks off leaves nothing that looks like one.
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable = || format!("write {}", file.display());
    let mut partial = tempfile::NamedTempFile::new_in(directory).with_context(unwritable)?;
    let bar = ProgressBar::new_spinner();
    let written = write(filter, client, &mut BufWriter::new(partial.as_file_mut()), &bar).await;
    bar.finish_and_clear();
    let count = written?;
    partial.as_file().sync_all().with_context(unwritable)?;
    partial.persist(file).with_context(unwritable)?;
    output::print(&format!("{count} jobs written to {}\n", file.display()))
}

async fn write(
    filter: &JobFilter,
    client: &Client,
    out: &mut impl Write,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let mut list = client.jobs(filter).limit(PAGE);
    let (mut count, mut paused, mut batches) = (0, 0, 0);
    while let Some(page) = list.next_page().await? {
        let mut text = Vec::new();
        for job in &page.items {
            // What is over would fire again.
            if job.status.state == "ended" && filter.state.is_none() {
                continue;
            }
            // Without its items it would be another job.
            if job.status.batch_items.is_some() {
                batches += 1;
                continue;
            }
            paused += u64::from(job.status.state == "paused");
            serde_json::to_writer(&mut text, &job.spec).context("write a job")?;
            text.push(b'\n');
            count += 1;
        }
        bar.set_message(format!("{count} jobs"));
        bar.tick();
        if !output::write(out, std::str::from_utf8(&text).context("write jobs")?)? {
            return Ok(count);
        }
    }
    if batches > 0 {
        eprintln!("note: {batches} batches are left out; `copy` moves them with their items");
    }
    if paused > 0 {
        eprintln!("note: {paused} of them are paused; an import registers them active");
    }
    Ok(count)
}
