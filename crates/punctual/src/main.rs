//! The `punctual` command.

mod commands;
mod config;
mod document;
mod failure;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use self::commands::asking::Asking;

// Runs are born on one thread and end on another, which the system's allocator pays for: see docs/decisions/0007.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The job scheduler that is on time, explains itself and needs nothing installed.
#[derive(Parser)]
#[command(name = "punctual", version, disable_help_subcommand = true, after_help = failure::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Be told of dead letters, open breakers, missed slots, late runs and silent jobs
    Alert(Asking<commands::alert::Command>),
    Apply(commands::apply::Arguments),
    /// See who changed what, and what it was before
    Audit(Asking<commands::audit::Command>),
    Backup(commands::backup::Arguments),
    /// Run lists of items, and see when all of them have ended
    Batch(Asking<commands::batch::Command>),
    Bench(commands::bench::Arguments),
    /// See which targets and jobs are left alone because they fail or do not answer, and let their runs through
    Breaker(Asking<commands::breaker::Command>),
    /// Name calendars that schedules share: holidays, business hours
    Calendar(Asking<commands::calendar::Command>),
    Check(commands::check::Arguments),
    Completions(commands::completions::Arguments),
    Context(commands::context::Arguments),
    Copy(commands::copy::Arguments),
    /// List dead runs, let them go on, or acknowledge them
    DeadLetter(Asking<commands::dead_letter::Command>),
    Explain(commands::explain::Arguments),
    Export(commands::export::Arguments),
    Forecast(commands::forecast::Arguments),
    Import(commands::import::Arguments),
    /// Register, read, change, pause and run jobs
    Job(Asking<commands::job::Command>),
    Key(commands::key::Arguments),
    /// Limit how many runs of tenants, queues and types go on at once, and how fast they start
    Limit(Asking<commands::limit::Command>),
    Man(commands::man::Arguments),
    Migrate(commands::migrate::Arguments),
    /// List, read and cancel long work over many jobs or runs
    Operation(Asking<commands::operation::Command>),
    /// See what waits and runs in queues, who serves them and what is planned
    Queue(Asking<commands::queue::Command>),
    Restore(commands::restore::Arguments),
    /// List, read, follow, cancel, retry, answer for and complete runs
    Run(Asking<commands::run::Command>),
    Serve(commands::serve::Arguments),
    /// Create and list tenants, and set defaults for their jobs
    Tenant(Asking<commands::tenant::Command>),
    /// See the programs that ask for runs of `worker` jobs
    Worker(Asking<commands::worker::Command>),
    Nodes(commands::node::Nodes),
    Shards(commands::node::Shards),
    Databases(commands::node::Databases),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Alert(asking) => asking.run(),
        Command::Apply(arguments) => commands::apply::run(&arguments),
        Command::Audit(asking) => asking.run(),
        Command::Backup(arguments) => commands::backup::run(&arguments),
        Command::Batch(asking) => asking.run(),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Breaker(asking) => asking.run(),
        Command::Queue(asking) => asking.run(),
        Command::Worker(asking) => asking.run(),
        Command::Calendar(asking) => asking.run(),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments, Arguments::command()),
        Command::Context(arguments) => commands::context::run(&arguments),
        Command::Copy(arguments) => commands::copy::run(&arguments),
        Command::DeadLetter(asking) => asking.run(),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Export(arguments) => commands::export::run(&arguments),
        Command::Forecast(arguments) => commands::forecast::run(&arguments),
        Command::Job(asking) => asking.run(),
        Command::Key(arguments) => commands::key::run(&arguments),
        Command::Limit(asking) => asking.run(),
        Command::Import(arguments) => commands::import::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments, Arguments::command()),
        Command::Migrate(arguments) => commands::migrate::run(&arguments),
        Command::Operation(asking) => asking.run(),
        Command::Restore(arguments) => commands::restore::run(&arguments),
        Command::Run(asking) => asking.run(),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Tenant(asking) => asking.run(),
        Command::Nodes(arguments) => commands::node::nodes(&arguments),
        Command::Shards(arguments) => commands::node::shards(&arguments),
        Command::Databases(arguments) => commands::node::databases(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/cli.md");

    /// Calls `see` with the words of every command that people see.
    fn walk(command: &clap::Command, words: &str, see: &mut dyn FnMut(&str, &clap::Command)) {
        see(words, command);
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            walk(inner, &format!("{words} {}", inner.get_name()), see);
        }
    }

    #[test]
    fn the_command_line_is_in_order() {
        Arguments::command().debug_assert();
    }

    /// Whether the page has these words in code, and not only longer ones that begin like them.
    fn names(words: &str) -> bool {
        let ends = |rest: &str| rest.starts_with(['`', ' ']);
        PAGE.match_indices('`').any(|(at, _)| PAGE[at + 1..].strip_prefix(words).is_some_and(ends))
    }

    #[test]
    fn the_reference_names_every_command_and_every_option() {
        let mut missing = Vec::new();
        let mut command = Arguments::command();
        command.build();
        walk(&command, "punctual", &mut |words, command| {
            if !names(words) {
                missing.push(words.to_string());
            }
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                if let Some(long) = option.get_long().filter(|long| !names(&format!("--{long}"))) {
                    missing.push(format!("{words} --{long}"));
                }
            }
        });
        assert!(missing.is_empty(), "docs/reference/cli.md does not name {missing:#?}");
    }
}
