//! The `punctual` command.

mod commands;
mod config;
mod failure;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The job scheduler that is on time, explains itself and needs nothing installed.
#[derive(Parser)]
#[command(name = "punctual", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(commands::bench::Arguments),
    Explain(commands::explain::Arguments),
    Serve(commands::serve::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Explain(arguments) => commands::explain::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
