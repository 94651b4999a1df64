//! `punctual migrate`: the schema of a database.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_store_postgres::{OpenError, Options, Schema};
use serde_json::json;

use super::output::{self, Format};
use super::{moment, remote};
use crate::failure::{EXIT_CODES, Failure};

/// Show the schema of a PostgreSQL database, or bring it up to date
///
/// A server does so by itself when it starts, unless it was started with --no-migrate. Migrations go forward only; nodes
/// of the previous version work on while the next one's are applied.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// The database: postgres://user@host/database
    #[arg(long, global = true, env = "PUNCTUAL_STORE", value_name = "ADDRESS", default_value = "")]
    store: String,
    /// A table for people or one JSON object
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Subcommand)]
enum Command {
    /// Show which migrations were applied, and which are missing; change nothing
    Status,
    /// Apply the migrations that are missing
    Up,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.store.is_empty() {
        return Err(Failure::Input("which database? --store postgres://user@host/database".into()));
    }
    let options = Options::new(&arguments.store);
    let before = match arguments.command {
        Command::Status => None,
        Command::Up => Some(Schema::bring_up(&options).await?),
    };
    let schema = Schema::read(&options).await?;
    match arguments.output {
        format @ (Format::Json | Format::Yaml) => {
            output::print(&output::machine(&object(&schema).to_string(), format)?)
        }
        Format::Table | Format::Wide => output::print(&page(&schema, before.as_ref())),
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Address { .. } | OpenError::NoSession { .. } | OpenError::Refused { .. } => {
                Failure::Input(error.to_string())
            }
            OpenError::Unreachable { .. } => Failure::Unreachable(error.to_string()),
            OpenError::OlderSchema { .. }
            | OpenError::NewerSchema { .. }
            | OpenError::Partial { .. }
            | OpenError::InUse { .. }
            | OpenError::Unfinished { .. }
            | OpenError::Shards { .. }
            | OpenError::Foreign { .. }
            | OpenError::Twice { .. }
            | OpenError::Missing { .. } => Failure::Conflict(error.to_string()),
        }
    }
}

fn object(schema: &Schema) -> serde_json::Value {
    let steps: Vec<_> = schema
        .steps
        .iter()
        .map(|step| json!({"version": step.version, "name": step.name, "applied_at": step.applied_at.map(|at| at.to_string())}))
        .collect();
    json!({"found": schema.found, "known": schema.known, "is_usable": schema.is_usable, "migrations": steps})
}

fn page(schema: &Schema, before: Option<&Schema>) -> String {
    let mut table = output::table(&["MIGRATION", "NAME", "APPLIED"]);
    for step in &schema.steps {
        let applied = step.applied_at.map_or("missing".into(), |at| moment::full(at, Timestamp::now()));
        let name = step.name.unwrap_or("of a newer version").to_string();
        table.add_row(vec![step.version.to_string(), name, applied]);
    }
    let Schema { found, known, .. } = schema;
    let verdict = match (schema.is_usable, found < known, before) {
        (_, true, _) => "migrations are missing: punctual migrate up".to_string(),
        (false, false, _) => {
            "a newer version of Punctual has changed the schema; this one cannot use it".to_string()
        }
        (true, false, _) if found > known => {
            "newer than this version, which can use it all the same".to_string()
        }
        (true, false, Some(before)) if before.found < *found => {
            format!("brought up from {} to {found}", before.found)
        }
        (true, false, _) => "up to date".to_string(),
    };
    format!("{}{verdict}\n", output::lines(&table))
}
