//! Every command shown in a document is run, and must print what the document shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command in a `console` block and the lines under it.
struct Example {
    place: String,
    command: String,
    shown: Vec<String>,
}

#[test]
fn every_command_in_the_documents_prints_what_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut files);
    let examples: Vec<Example> = files.iter().flat_map(|file| examples(file)).collect();
    for example in &examples {
        let printed = run(&example.command);
        compare(example, &printed);
    }
    println!("documents: {} commands in {} files", examples.len(), files.len());
    assert!(examples.len() >= 4, "the documents lost their examples");
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

fn examples(file: &Path) -> Vec<Example> {
    let text = fs::read_to_string(file).unwrap();
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            let place = format!("{}:{}", file.file_name().unwrap().to_string_lossy(), number + 1);
            examples.push(Example { place, command: command.into(), shown: Vec::new() });
        } else if inside {
            examples.last_mut().expect("a console block starts with a command").shown.push(line.into());
        }
    }
    examples
}

/// What a shell prints, stderr included, with our binary on the path.
fn run(command: &str) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_punctual"));
    let path = std::env::join_paths(
        std::iter::once(binary.parent().unwrap().to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let output = Command::new("sh")
        .args(["-c", &format!("{command} 2>&1")])
        .env("PATH", path)
        .env("PUNCTUAL_TZDATA", "bundled")
        .env("XDG_CONFIG_HOME", "/nowhere")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
}

/// A line of `...` stands for any number of lines.
fn compare(example: &Example, printed: &[String]) {
    let mut rest = printed;
    let mut parts = example.shown.split(|line| line == "...");
    let first = parts.next().unwrap_or_default();
    assert!(
        rest.starts_with(first),
        "{}: `{}` prints\n{}",
        example.place,
        example.command,
        printed.join("\n")
    );
    rest = &rest[first.len()..];
    let mut open = false;
    for part in parts {
        open = part.is_empty();
        let at = (0..=rest.len()).find(|at| rest[*at..].starts_with(part));
        let at = at.unwrap_or_else(|| panic!("{}: after `...`\n{}", example.place, printed.join("\n")));
        rest = &rest[at + part.len()..];
    }
    assert!(open || rest.is_empty(), "{}: prints more\n{}", example.place, rest.join("\n"));
}
