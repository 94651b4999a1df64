//! `punctual completions`: what a shell completes.

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use super::output;
use crate::failure::Failure;

/// Write completions for a shell
#[derive(Args)]
#[command(after_help = "To have them in every shell:
  bash: punctual completions bash > ~/.local/share/bash-completion/completions/punctual
  zsh:  punctual completions zsh > \"${fpath[1]}/_punctual\"
  fish: punctual completions fish > ~/.config/fish/completions/punctual.fish")]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Known,
}

/// The shells whose completions are tried out in the tests.
#[derive(Clone, Copy, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, mut command: Command) -> Result<(), Failure> {
    let shell = match arguments.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "punctual", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}
