//! Makes the files of this version, for the next one to be held against.

use std::path::Path;
use std::sync::Arc;

use punctual_store::conformance::{World, cases};
use punctual_store_postgres::Postgres;
use punctual_testing::Postgres as Server;

use crate::statements::{LOGGED, file, sent, types};
use crate::{options, session, story};

/// Tables that are not in a dump by themselves, because history is in their partitions.
const TABLES: &str = "select string_agg(relname, ' ' order by relname) from pg_class \
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition";

#[tokio::test]
async fn the_story_leaves_something_in_every_table() {
    let server = Server::start(&LOGGED);
    let address = server.create("story");
    let store = Arc::new(Postgres::open(&options(&address)).await.unwrap());
    let mut world = story::tell(&store).await;
    story::tell_the_rest(&mut world).await;
    let tables = server.psql("story", TABLES);
    // What one database has only while it has others beside it; what only nodes of older versions write to.
    let empty = ["databases", "moves", "changes", "ended_jobs"];
    for table in tables.split(' ').filter(|table| !empty.contains(table)) {
        let rows: u64 = server.psql("story", &format!("select count(*) from {table}")).parse().unwrap();
        assert!(rows > 0, "nothing is in `{table}`: the story has to tell of it");
    }
    for class in 0..=4 {
        let rows = server.psql("story", &format!("select count(*) from history_{class}"));
        assert_ne!(rows, "0", "nothing of class {class} has ended");
    }
    if std::env::var_os("UPDATE_PREVIOUS").is_some() {
        renew(&server, &store, &world).await;
    }
}

/// Writes the dump, and every statement that the story and the cases of the conformance suite make the verbs send.
async fn renew(server: &Server, store: &Postgres, world: &World) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/previous");
    let head = |what: &str| {
        let how = "UPDATE_PREVIOUS=1 cargo test --release -p punctual-store-postgres --test previous";
        let version = server.psql("story", "select max(version) from schema_versions");
        format!("-- {what}, schema {version}. Made by `{how}`.\n\n")
    };
    // What a dump says about itself changes with the version of PostgreSQL and the time.
    let dump = server.dump("story");
    let is_kept = |line: &&str| !line.is_empty() && !line.starts_with("--") && !line.starts_with('\\');
    let lines: Vec<&str> = dump.lines().filter(is_kept).collect();
    let text = format!(
        "{}{}\n",
        head("A database as its store leaves it after the story of story.rs"),
        lines.join("\n")
    );
    std::fs::write(folder.join("schema.sql"), text).unwrap();
    story::read(store, world).await;
    for (_, case) in cases() {
        case(Arc::new(Postgres::open(&options(&server.database())).await.unwrap())).await;
    }
    let client = session(&server.url("story")).await;
    let mut statements = Vec::new();
    for text in sent(&server.log()) {
        let types = types(&client.prepare(&text).await.unwrap());
        statements.push((text, types));
    }
    let text = file(&head("All statements of its verbs"), &statements);
    std::fs::write(folder.join("statements.sql"), text).unwrap();
}
