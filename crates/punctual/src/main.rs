//! The `punctual` command.

mod commands;
mod config;
mod failure;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The job scheduler that is on time, explains itself and needs nothing installed.
#[derive(Parser)]
#[command(name = "punctual", version, disable_help_subcommand = true, after_help = failure::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Backup(commands::backup::Arguments),
    Bench(commands::bench::Arguments),
    DeadLetter(commands::dead_letter::Arguments),
    Explain(commands::explain::Arguments),
    Job(commands::job::Arguments),
    Restore(commands::restore::Arguments),
    Run(commands::run::Arguments),
    Serve(commands::serve::Arguments),
    Tenant(commands::tenant::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Backup(arguments) => commands::backup::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::DeadLetter(arguments) => commands::dead_letter::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
        Command::Job(arguments) => commands::job::run(&arguments),
        Command::Restore(arguments) => commands::restore::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Tenant(arguments) => commands::tenant::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
