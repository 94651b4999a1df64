//! `punctual check`: whether everything in a data directory, a backup or a database is as it must be.

use std::path::Path;

use clap::Args;
use jiff::Timestamp;
use punctual_store_embedded::{Checked, OpenError};
use serde_json::json;

use super::output::{self, Format};
use super::remote;
use crate::failure::{EXIT_CODES, Failure};

/// Verify a data directory that no server has open, a backup, or a database, in use or not
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// The data directory, a backup, or the address of a database (postgres://user@host/database)
    #[arg(env = "PUNCTUAL_DATA", default_value = "punctual-data")]
    dir: String,
    /// A table for people or one JSON object
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let checked = match ["postgres://", "postgresql://"].iter().any(|one| arguments.dir.starts_with(one)) {
        true => database(&arguments.dir)?,
        false => directory(&arguments.dir)?,
    };
    match arguments.output {
        format @ (Format::Json | Format::Yaml) => {
            output::print(&output::machine(&object(&checked).to_string(), format)?)?;
        }
        Format::Table | Format::Wide => output::print(&page(&checked))?,
    }
    match checked.wrong {
        0 => Ok(()),
        wrong => Err(Failure::Other(anyhow::anyhow!("{wrong} things are wrong; restore a backup"))),
    }
}

fn directory(dir: &str) -> Result<Checked, Failure> {
    punctual_store_embedded::check(Path::new(dir), Timestamp::now()).map_err(|error| match error {
        OpenError::InUse { .. } => Failure::Conflict(format!(
            "{error}; or make a backup, which needs no stop, and check that: \
             punctual backup TO --data {dir} && punctual check TO"
        )),
        error => Failure::Other(error.into()),
    })
}

fn database(address: &str) -> Result<Checked, Failure> {
    let options = punctual_store_postgres::Options::new(address);
    let mut checked = None;
    remote::run(async {
        checked = Some(punctual_store_postgres::check(&options, Timestamp::now()).await?);
        Ok(())
    })?;
    checked.ok_or_else(|| Failure::Other(anyhow::anyhow!("the check did not end")))
}

/// What was counted, by name.
fn counts(checked: &Checked) -> [(&'static str, u64); 11] {
    [
        ("shards", checked.shards),
        ("tenants", checked.tenants),
        ("jobs", checked.jobs),
        ("due", checked.due),
        ("due_stale", checked.due_stale),
        ("open_runs", checked.open_runs),
        ("running", checked.running),
        ("history", checked.history),
        ("dead_letters", checked.dead_letters),
        ("ledger", checked.ledger),
        ("operations", checked.operations),
    ]
}

fn object(checked: &Checked) -> serde_json::Value {
    let findings: Vec<_> = checked
        .findings
        .iter()
        .map(|finding| json!({"place": finding.place, "what": finding.what}))
        .collect();
    let mut object = json!({
        "is_sound": checked.is_sound(),
        "format": checked.format,
        "partitions": checked.partitions,
        "wrong": checked.wrong,
        "findings": findings,
    });
    for (name, count) in counts(checked) {
        object[name] = count.into();
    }
    object
}

fn page(checked: &Checked) -> String {
    let mut table = output::facts();
    for (name, count) in counts(checked) {
        table.add_row(vec![name.replace('_', " "), count.to_string()]);
    }
    let mut page = output::lines(&table);
    for finding in &checked.findings {
        page.push_str(&format!("wrong: {}\n", output::safe(&finding.to_string())));
    }
    if checked.is_sound() {
        page.push_str("everything is as it must be\n");
    }
    page
}
