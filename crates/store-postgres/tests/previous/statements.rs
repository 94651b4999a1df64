//! The statements of a version: kept in a file, and collected from what a server logs.

use std::collections::BTreeSet;

/// Between two statements of the file.
const END: &str = "\n;\n";

/// A statement, and the types it takes and gives.
pub(crate) struct Statement {
    pub(crate) text: &'static str,
    pub(crate) types: &'static str,
}

/// The statements of the previous version.
pub(crate) struct Statements(pub(crate) Vec<Statement>);

impl Statements {
    pub(crate) fn read() -> Statements {
        let (_, statements) = include_str!("statements.sql").split_once("\n\n").expect("a head");
        let read = |statement: &'static str| {
            let (types, text) = statement.split_once('\n').expect("types before the text");
            Statement { text, types }
        };
        Statements(statements.split_terminator(END).map(read).collect())
    }

    /// The one that is these words, or else the only one that has them.
    pub(crate) fn find(&self, words: &str) -> &'static str {
        if let Some(statement) = self.0.iter().find(|statement| statement.text == words) {
            return statement.text;
        }
        let mut found = self.0.iter().filter(|statement| statement.text.contains(words));
        let statement = found.next().unwrap_or_else(|| panic!("no statement has `{words}`"));
        assert!(found.next().is_none(), "more than one statement has `{words}`");
        statement.text
    }
}

/// The types that a statement takes and gives: a node sends and reads them as they were when it was built.
pub(crate) fn types(prepared: &tokio_postgres::Statement) -> String {
    let takes: Vec<&str> = prepared.params().iter().map(tokio_postgres::types::Type::name).collect();
    let gives: Vec<&str> = prepared.columns().iter().map(|given| given.type_().name()).collect();
    format!("-- takes ({}), gives ({})", takes.join(", "), gives.join(", "))
}

/// What a server has to be told so that [`sent`] finds every statement in its log.
pub(crate) const LOGGED: [&str; 3] = ["fsync=off", "log_statement=all", "log_line_prefix=@"];

/// The statements in a log that read and write rows; what makes and drops partitions is not among them.
pub(crate) fn sent(log: &str) -> BTreeSet<String> {
    let mut sent = BTreeSet::new();
    for message in log.split("\n@").filter_map(|message| message.strip_prefix("LOG:  execute ")) {
        let Some((_, text)) = message.split_once(": ") else { continue };
        // The lines after the first are indented by the log.
        let text = text.replace("\n\t", "\n");
        let text = text.trim();
        if ["select", "insert", "update", "delete", "with"].iter().any(|verb| text.starts_with(verb)) {
            sent.insert(text.to_owned());
        }
    }
    sent
}

/// The file of statements, by their text and their types.
pub(crate) fn file(head: &str, statements: &[(String, String)]) -> String {
    let statements = statements.iter().map(|(text, types)| format!("{types}\n{text}{END}"));
    format!("{head}{}", statements.collect::<String>())
}
