//! The `punctual` command.

mod commands;
mod config;
mod failure;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Alert(commands::alert::Arguments),
    Backup(commands::backup::Arguments),
    Batch(commands::batch::Arguments),
    Bench(commands::bench::Arguments),
    Breaker(commands::breaker::Arguments),
    Calendar(commands::calendar::Arguments),
    Check(commands::check::Arguments),
    Copy(commands::copy::Arguments),
    DeadLetter(commands::dead_letter::Arguments),
    Explain(commands::explain::Arguments),
    Forecast(commands::forecast::Arguments),
    Job(commands::job::Arguments),
    Key(commands::key::Arguments),
    Limit(commands::limit::Arguments),
    Migrate(commands::migrate::Arguments),
    Operation(commands::operation::Arguments),
    Queue(commands::queue::Arguments),
    Restore(commands::restore::Arguments),
    Run(commands::run::Arguments),
    Serve(commands::serve::Arguments),
    Tenant(commands::tenant::Arguments),
    Worker(commands::worker::Arguments),
    Nodes(commands::node::Nodes),
    Shards(commands::node::Shards),
    Databases(commands::node::Databases),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Alert(arguments) => commands::alert::run(&arguments),
        Command::Backup(arguments) => commands::backup::run(&arguments),
        Command::Batch(arguments) => commands::batch::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Breaker(arguments) => commands::breaker::run(&arguments),
        Command::Queue(arguments) => commands::queue::run(&arguments),
        Command::Worker(arguments) => commands::worker::run(&arguments),
        Command::Calendar(arguments) => commands::calendar::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Copy(arguments) => commands::copy::run(&arguments),
        Command::DeadLetter(arguments) => commands::dead_letter::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Forecast(arguments) => commands::forecast::run(&arguments),
        Command::Job(arguments) => commands::job::run(&arguments),
        Command::Key(arguments) => commands::key::run(&arguments),
        Command::Limit(arguments) => commands::limit::run(&arguments),
        Command::Migrate(arguments) => commands::migrate::run(&arguments),
        Command::Operation(arguments) => commands::operation::run(&arguments),
        Command::Restore(arguments) => commands::restore::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Tenant(arguments) => commands::tenant::run(&arguments),
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
    use clap::CommandFactory;

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
