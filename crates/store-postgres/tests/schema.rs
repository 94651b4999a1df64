//! The schema of a database: brought up to date once, refused when it is not ours to use.
#![allow(clippy::unwrap_used, reason = "tests")]

use punctual_store::Store;
use punctual_store_postgres::{OpenError, Options, Postgres, Schema};
use punctual_testing::Postgres as Server;

fn name(address: &str) -> &str {
    address.rsplit('/').next().unwrap()
}

#[tokio::test]
async fn reading_the_schema_changes_nothing_and_bringing_it_up_happens_once() {
    let server = Server::shared();
    let address = server.database();
    let options = Options::new(&address);
    let empty = Schema::read(&options).await.unwrap();
    assert_eq!((empty.found, empty.is_usable), (0, false));
    assert!(empty.steps.iter().all(|step| step.applied_at.is_none()) && !empty.steps.is_empty());
    let refused = empty.check().unwrap_err();
    assert!(matches!(refused, OpenError::OlderSchema { found: 0, .. }));
    assert!(refused.to_string().contains("punctual migrate up"), "{refused}");
    let tables = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(server.psql(name(&address), tables), "0");

    // Many nodes start at once: one migrates, the others find it done.
    let nodes: Vec<_> = (0..5)
        .map(|_| {
            let options = options.clone();
            tokio::spawn(async move { Schema::bring_up(&options).await.map(|_| ()) })
        })
        .collect();
    for node in nodes {
        node.await.unwrap().unwrap();
    }
    let schema = Schema::read(&options).await.unwrap();
    assert_eq!((schema.found, schema.is_usable), (schema.known, true));
    assert!(schema.steps.iter().all(|step| step.applied_at.is_some()));
    schema.check().unwrap();
    let versions = "select count(*) from schema_versions";
    assert_eq!(server.psql(name(&address), versions), schema.known.to_string());
}

#[tokio::test]
async fn a_newer_schema_is_used_only_if_it_says_so() {
    let server = Server::shared();
    let address = server.database();
    let options = Options::new(&address);
    Schema::bring_up(&options).await.unwrap();
    let known = Schema::read(&options).await.unwrap().known;
    let note = |version: i32, compatible: &str| {
        let sql = format!("insert into schema_versions values ({version}, now(), {compatible})");
        server.psql(name(&address), &sql);
    };
    note(known + 1, &known.to_string());
    let schema = Schema::read(&options).await.unwrap();
    assert_eq!((schema.found, schema.is_usable), (known + 1, true));
    let store = Postgres::open(&options).await.unwrap();
    assert_eq!(Store::tenants(&store).await.unwrap().len(), 1, "it works");
    note(known + 2, &(known + 1).to_string());
    for refused in [
        Postgres::open(&options).await.map(|_| ()).unwrap_err(),
        Schema::bring_up(&options).await.map(|_| ()).unwrap_err(),
        Schema::read(&options).await.unwrap().check().unwrap_err(),
    ] {
        assert!(matches!(refused, OpenError::NewerSchema { found, .. } if found == known + 2), "{refused}");
        assert!(refused.to_string().contains("newer version of Punctual"), "{refused}");
    }
    // A database that does not say so, from before it could.
    server.psql(name(&address), "alter table schema_versions drop column compatible_with");
    assert!(!Schema::read(&options).await.unwrap().is_usable);
}
