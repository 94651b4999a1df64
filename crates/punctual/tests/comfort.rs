//! What makes the command line pleasant: formats, watching, completions, manual pages, colours.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::asked::{Asked, text};
use crate::support::server::command;

#[test]
fn lists_and_single_things_come_as_yaml_and_wide() {
    let asked = Asked::start();
    asked.says(&[
        "job",
        "create",
        "Report",
        "--key",
        "r",
        "--cron",
        "0 2 * * *",
        "--discard",
        "--label",
        "team=core",
    ]);
    let yaml = asked.says(&["job", "get", "key:r", "-o", "yaml"]);
    assert!(yaml.contains("\nkey: r\n") && yaml.contains("\n  cron: 0 2 * * *\n"), "{yaml}");
    let path = asked.file("r.yaml", &yaml.replace("cron: 0 2 * * *", "cron: 0 3 * * *"));
    asked.says(&["job", "update", "key:r", "-f", &path]);
    assert_eq!(asked.json(&["job", "get", "key:r"])["schedule"]["cron"], "0 3 * * *");
    assert_eq!(asked.ends(&["job", "update", "key:r", "-f", &path]).0, 4, "that version is over");
    let list = asked.says(&["job", "list", "-o", "yaml"]);
    assert!(list.starts_with("items:\n  - id: "), "{list}");
    assert_eq!(asked.says(&["job", "list", "--all", "-o", "yaml"]), list);
    assert!(!asked.says(&["job", "list"]).contains("team=core"));
    let wide = asked.says(&["job", "list", "-o", "wide"]);
    assert!(wide.contains("LABELS") && wide.contains("team=core"), "{wide}");
    let explained = asked.says(&["explain", "@daily", "--count", "1", "-o", "yaml"]);
    assert!(explained.contains("slots:\n  - "), "{explained}");
}

#[test]
fn what_is_watched_is_shown_again_when_it_changes() {
    let asked = Asked::start();
    let mut child = command()
        .args(["calendar", "list", "--watch=100ms", "-o", "json", "--server", &asked.server.url()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains(r#""items":[]"#), "{first}");
    asked.says(&["calendar", "put", "holidays", "--exclude-date", "12-25"]);
    let second = lines.next().unwrap().unwrap();
    assert!(second.contains("holidays"), "{second}");
    drop(lines);
    // Nobody reads any more: with the next change it ends by itself.
    asked.says(&["calendar", "delete", "holidays"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(
        asked.ends(&["calendar", "get", "lost", "--watch"]).0,
        3,
        "what is not there is not waited for"
    );
    assert_eq!(
        asked.ends(&["calendar", "delete", "x", "--watch"]).0,
        2,
        "only what changes nothing is repeated"
    );
}

#[test]
fn shells_get_completions() {
    for (shell, words) in
        [("bash", "_punctual()"), ("zsh", "#compdef punctual"), ("fish", "complete -c punctual")]
    {
        let output = command().args(["completions", shell]).output().unwrap();
        let script = text(&output.stdout);
        assert!(script.contains(words) && script.contains("dead-letter"), "{shell}");
    }
    let script = text(&command().args(["completions", "bash"]).output().unwrap().stdout);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("completions");
    std::fs::write(&path, script).unwrap();
    let words = "COMP_WORDS=(punctual job cre); COMP_CWORD=2; _punctual punctual cre job";
    let asks = format!("source {}; {words}; echo \"${{COMPREPLY[@]}}\"", path.display());
    let output = Command::new("bash").args(["-c", &asks]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), "create", "{}", text(&output.stderr));
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = command().arg("man").arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.path().join("punctual-job-create.1")).unwrap();
    assert!(page.contains(".TH punctual-job-create 1") && page.contains("\\-\\-cron"), "{page}");
    assert!(folder.path().join("punctual.1").exists());
}

#[test]
fn mistakes_name_the_way_out() {
    let asked = Asked::start();
    for (arguments, words) in [
        (&["calender", "list"][..], "calendar"),
        (&["job", "lst"], "list"),
        (&["job", "list", "--lable", "a=b"], "--label"),
        (&["apply"], "--file"),
        (&["job", "list", "-o", "yml"], "yaml"),
    ] {
        let (code, message) = asked.ends(arguments);
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let asked = Asked::start();
    asked.file("a.yaml", "kind: calendar\nname: a\n");
    assert!(!asked.says(&["apply", "-f", "a.yaml", "--dry-run"]).contains('\x1b'));
    // `script` gives it a terminal.
    let binary = env!("CARGO_BIN_EXE_punctual");
    let on_a_terminal = |more: &str| {
        let line = format!("{binary} apply -f a.yaml --dry-run --server {}", asked.server.url());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(asked.path(".")).env_remove("NO_COLOR");
        command.env("XDG_CONFIG_HOME", "/nowhere").stdin(Stdio::null());
        if !more.is_empty() {
            command.env("NO_COLOR", more);
        }
        text(&command.output().unwrap().stdout)
    };
    assert!(on_a_terminal("").contains("\x1b[32m+ calendar a"), "{}", on_a_terminal(""));
    assert!(!on_a_terminal("1").contains("\x1b[32m"));
}
