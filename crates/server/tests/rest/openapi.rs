//! The OpenAPI document: made from the code, committed, and current.

use punctual_server::{TABLE, document};
use serde_json::Value;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/openapi.json");

/// Refresh it with `UPDATE_OPENAPI=1 cargo test --release -p punctual-server openapi`.
#[test]
fn the_committed_document_is_current() {
    let document = document();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(COMMITTED, document).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(
        committed == document,
        "crates/api/openapi.json is not current; run `UPDATE_OPENAPI=1 cargo test --release -p punctual-server openapi`"
    );
}

#[test]
fn the_document_has_every_route_and_every_schema_it_names() {
    let document: Value = serde_json::from_str(document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for endpoint in TABLE {
        let operation = &document["paths"][endpoint.path][endpoint.method.to_lowercase()];
        assert!(operation["responses"].is_object(), "{} {}", endpoint.method, endpoint.path);
    }
    let mut named = Vec::new();
    references(&document, &mut named);
    for name in named {
        let name = name.strip_prefix("#/components/schemas/").unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not there");
    }
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == "$ref" => found.push(text.clone()),
                    value => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn a_list_is_of_what_it_says() {
    let document: Value = serde_json::from_str(document()).unwrap();
    let items = |path: &str| {
        let schema =
            &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let page = schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        document["components"]["schemas"][page]["properties"]["items"]["items"]["$ref"].clone()
    };
    for (path, item) in [("/v1/jobs", "Job"), ("/v1/runs", "RunSummary"), ("/v1/tenants", "Tenant")] {
        assert_eq!(items(path), format!("#/components/schemas/{item}"), "{path}");
    }
}
