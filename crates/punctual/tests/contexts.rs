//! `punctual context` end to end: servers under names, and who is asked.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::asked::{Asked, text};
use crate::support::server::command;

/// A command with contexts of its own.
fn run(asked: &Asked, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.args(arguments).env("XDG_CONFIG_HOME", asked.path("config")).env("NO_COLOR", "1");
    command.envs(environment.iter().copied()).output().unwrap()
}

fn says(asked: &Asked, arguments: &[&str]) -> String {
    let output = run(asked, arguments, &[]);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_context_says_whom_to_ask() {
    let (one, two) = (Asked::start(), Asked::start());
    one.says(&["job", "create", "--key", "here", "--every", "1h", "--discard"]);
    let key = one.file("key", "pk_1_secret\n");
    let added = says(&one, &["context", "add", "one", &one.server.url(), "--key-file", &key]);
    assert!(added.ends_with("which is in use\n"), "{added}");
    says(&one, &["context", "add", "two", &two.server.url(), "--tenant", "default"]);
    assert!(says(&one, &["job", "list"]).contains("here"));
    assert!(!says(&one, &["job", "list", "--context", "two"]).contains("here"));
    let by_environment = run(&one, &["job", "list"], &[("PUNCTUAL_CONTEXT", "two")]);
    assert!(!text(&by_environment.stdout).contains("here"));
    let by_flag =
        run(&one, &["job", "list", "--context", "one"], &[("PUNCTUAL_SERVER", "http://127.0.0.1:1")]);
    assert!(text(&by_flag.stdout).contains("here"), "{}", text(&by_flag.stderr));

    says(&one, &["context", "use", "two"]);
    assert!(!says(&one, &["job", "list"]).contains("here"));
    let list = says(&one, &["context", "list"]);
    assert!(list.lines().any(|line| line.trim_start().starts_with("* ") && line.contains("two")), "{list}");
    let shown = says(&one, &["context", "show", "one"]);
    assert!(shown.contains(&key) && !shown.contains("pk_1_secret"), "the path is kept, not the key: {shown}");
    let mode = std::fs::metadata(one.path("config/punctual/config.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    says(&one, &["context", "delete", "two"]);
    assert_eq!(run(&one, &["context", "show"], &[]).status.code(), Some(3));
    let lost = run(&one, &["job", "list", "--context", "on"], &[]);
    assert_eq!(lost.status.code(), Some(3));
    assert!(text(&lost.stderr).contains("did you mean `one`?"), "{}", text(&lost.stderr));
    std::fs::remove_file(&key).unwrap();
    let keyless = run(&one, &["job", "list", "--context", "one"], &[]);
    assert!(text(&keyless.stderr).contains("the key file"), "{}", text(&keyless.stderr));
    let both = run(&one, &["job", "list", "--context", "one", "--server", "http://x"], &[]);
    assert_eq!(both.status.code(), Some(2));
}
