//! The OpenAPI document: made from the code, committed, and current.

use punctual_server::{Needs, TABLE, document};
use serde_json::Value;

use crate::world::World;

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
        let place = name.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some_and(Value::is_object), "{name} is not there");
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

/// What a parameter's schema allows, and what it does not.
fn examples(name: &str, schema: &Value) -> (Vec<String>, Vec<String>) {
    let text = |values: &[&str]| values.iter().map(|value| (*value).to_string()).collect::<Vec<_>>();
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().map(|word| word.as_str().unwrap().to_string());
        return (words.collect(), text(&["no-such-word"]));
    }
    if schema["type"] == "array" {
        let (good, bad) = examples(name, &schema["items"]);
        return (vec![good.join(",")], bad);
    }
    match (schema["type"].as_str(), schema["pattern"].as_str()) {
        (Some("integer"), _) => {
            let (least, most) = (schema["minimum"].as_i64().unwrap(), schema["maximum"].as_i64().unwrap());
            let good = vec![least.to_string(), most.to_string()];
            (good, vec![(least - 1).to_string(), (most + 1).to_string(), "many".into()])
        }
        // To follow is to wait.
        (Some("boolean"), _) if name == "follow" => (text(&["false"]), text(&["perhaps"])),
        (Some("boolean"), _) => (text(&["true", "false"]), text(&["perhaps", "1"])),
        (_, Some("=")) => (text(&["team=core", "="]), text(&["team"])),
        (_, Some(pattern)) if pattern.contains("-7[") => (
            text(&["0190c8a0-0000-7000-8000-000000000000"]),
            text(&["7", "0190c8a0-0000-4000-8000-000000000000"]),
        ),
        _ if schema["anyOf"].is_array() => {
            (text(&["2026-01-01T12:30:00Z", "1767268800"]), text(&["soon", "99999999999999"]))
        }
        _ => (Vec::new(), Vec::new()),
    }
}

#[tokio::test]
async fn what_the_document_allows_of_a_parameter_is_what_is_taken() {
    let world = World::new().await;
    let job = world.register(r#"{"every":"1h"}"#).await;
    let run = world.call(&format!("POST /v1/jobs/{job}/trigger"), "").await.expect(201);
    let run = run["id"].as_str().unwrap();
    let document: Value = serde_json::from_str(document()).unwrap();
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let parameters = operations["get"]["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let filled = path
            .replace("/jobs/{id}", &format!("/jobs/{job}"))
            .replace("/runs/{id}", &format!("/runs/{run}"));
        for parameter in
            parameters.iter().filter(|parameter| parameter["in"] == "query" && !filled.contains('{'))
        {
            let name = parameter["name"].as_str().unwrap();
            let (good, bad) = examples(name, &parameter["schema"]);
            for (value, is_good) in
                good.iter().map(|one| (one, true)).chain(bad.iter().map(|one| (one, false)))
            {
                let line = format!("GET {filled}?{name}={}", value.replace('=', "%3D"));
                let reply = world.call(&line, "").await;
                let is_refused =
                    reply.status == 422 && reply.text.contains(&format!(r#""pointer":"{name}""#));
                // A forecast has an end to every beginning; each alone may be out of its range.
                let is_range = path == "/v1/forecast" && ["from", "to"].contains(&name);
                assert!(is_refused != is_good || is_range && is_good, "{line}: {}", reply.text);
                asked += 1;
            }
        }
    }
    assert!(asked > 150, "{asked}");
}

#[test]
fn every_status_is_documented_by_itself() {
    let document: Value = serde_json::from_str(document()).unwrap();
    for endpoint in TABLE {
        let responses = &document["paths"][endpoint.path][endpoint.method.to_lowercase()]["responses"];
        assert!(responses.get("default").is_none(), "{}", endpoint.path);
        assert!(responses["503"].is_object() && responses["405"].is_object(), "{}", endpoint.path);
        assert_eq!(responses["401"].is_object(), endpoint.needs != Needs::Nothing, "{}", endpoint.path);
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
