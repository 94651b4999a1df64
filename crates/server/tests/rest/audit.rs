//! The audit as administrators read it: every route that changes something leaves an entry, with who, what and from where, and without
//! secrets; a job's versions are read from it.

use std::collections::{BTreeMap, BTreeSet};

use punctual_domain::attempt::Outcome;
use punctual_server::{Needs, TABLE};
use serde_json::{Value, json};

use crate::world::World;

/// What is done: the route, its body, and the entries that it leaves.
type Done = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// One after the other. `{id}` is the newest of its kind.
const STORY: &[Done] = &[
    (
        "POST /v1/jobs",
        r#"{"name":"job","schedule":{"cron":"0 * * * *"},"target":{"discard":{}}}"#,
        &[("job", "create")],
    ),
    (
        "PUT /v1/jobs/key/{key}",
        r#"{"schedule":{"every":"1h"},"target":{"discard":{}}}"#,
        &[("job", "create")],
    ),
    (
        "POST /v1/jobs/bulk",
        r#"[{"name":"a","schedule":{"every":"1h"},"target":{"discard":{}}},{"name":"b"}]"#,
        &[("jobs", "create"), ("jobs", "created")],
    ),
    (
        "PUT /v1/jobs/{id}",
        r#"{"name":"put","schedule":{"cron":"0 * * * *"},"target":{"discard":{}}}"#,
        &[("job", "edit")],
    ),
    ("PATCH /v1/jobs/{id}", r#"{"name":"patched"}"#, &[("job", "edit")]),
    ("PATCH /v1/jobs/{id}", r#"{"name":"patched"}"#, &[]),
    ("POST /v1/jobs/{id}/pause", r#"{"reason":"why not"}"#, &[("job", "pause")]),
    ("POST /v1/jobs/{id}/resume", "", &[("job", "resume")]),
    ("POST /v1/jobs/{id}/trigger", "", &[("run", "trigger")]),
    ("POST /v1/runs/{id}/answer", r#"{"answer":"retry"}"#, &[("run", "answer")]),
    ("POST /v1/runs/{id}/cancel", "", &[("run", "cancel")]),
    ("POST /v1/runs/{id}/retry", "", &[("run", "redrive")]),
    ("POST /v1/dead-letters/redrive", r#"{"runs":["{run}"]}"#, &[("run", "redrive")]),
    ("POST /v1/dead-letters/acknowledge", r#"{"runs":["{run}"]}"#, &[("run", "acknowledge")]),
    ("POST /v1/dead-letters/redrive", r#"{"filter":{}}"#, &[("operation", "start")]),
    ("POST /v1/operations/{id}/cancel", "", &[("operation", "cancel")]),
    ("POST /v1/jobs/bulk/pause", r#"{"filter":{},"dry_run":true}"#, &[]),
    ("POST /v1/jobs/bulk/pause", r#"{"filter":{}}"#, &[("operation", "start")]),
    ("POST /v1/jobs/bulk/resume", r#"{"filter":{}}"#, &[("operation", "start")]),
    ("POST /v1/jobs/bulk/delete", r#"{"filter":{"name":"nobody"}}"#, &[("operation", "start")]),
    ("POST /v1/jobs/bulk/edit", r#"{"filter":{},"patch":{"priority":1}}"#, &[("operation", "start")]),
    ("POST /v1/runs/bulk/cancel", r#"{"filter":{}}"#, &[("operation", "start")]),
    (
        "POST /v1/jobs/{id}/backfill",
        r#"{"from":"2025-12-31T00:00:00Z","to":"2026-01-01T00:00:00Z"}"#,
        &[("operation", "start")],
    ),
    (
        "POST /v1/batches",
        r#"{"id":"b","schedule":{"every":"1h"},"target":{"discard":{}},"items":[{"id":"1"}]}"#,
        &[("job", "create")],
    ),
    ("POST /v1/batches/{id}/cancel", "", &[("job", "cancel")]),
    ("DELETE /v1/batches/{id}", "", &[("job", "delete")]),
    ("PUT /v1/calendars/{name}", r#"{"exclude":["2027-01-01"]}"#, &[("calendar", "create")]),
    ("PUT /v1/calendars/{name}", r#"{"exclude":["2027-01-02"]}"#, &[("calendar", "edit")]),
    ("PUT /v1/calendars/{name}", r#"{"exclude":["2027-01-02"]}"#, &[]),
    ("DELETE /v1/calendars/{name}", "", &[("calendar", "delete")]),
    ("PUT /v1/limits/{name}", r#"{"max":5}"#, &[("limit", "create")]),
    ("PUT /v1/limits/{name}", r#"{"max":6}"#, &[("limit", "edit")]),
    ("DELETE /v1/limits/{name}", "", &[("limit", "delete")]),
    (
        "PUT /v1/alerts/{name}",
        r#"{"on":"dead_letter","to":{"mail":{"to":["ops@example.com"]}}}"#,
        &[("alert", "create")],
    ),
    ("DELETE /v1/alerts/{name}", "", &[("alert", "delete")]),
    ("POST /v1/tenants", r#"{"name":"acme"}"#, &[("tenant", "create")]),
    ("POST /v1/tenants", r#"{"name":"acme"}"#, &[]),
    ("PUT /v1/tenants/{name}/defaults", r#"{"timeout":"1m"}"#, &[("defaults", "create")]),
    ("DELETE /v1/tenants/{name}/defaults", "", &[("defaults", "delete")]),
    ("POST /v1/keys", r#"{"name":"ci","role":"operator"}"#, &[("key", "create")]),
    ("POST /v1/keys/{id}/rotate", "", &[("key", "rotate")]),
    ("DELETE /v1/keys/{id}", "", &[("key", "revoke")]),
    ("DELETE /v1/keys/{id}", "", &[]),
    ("DELETE /v1/jobs/{id}", "", &[("job", "delete")]),
    ("DELETE /v1/jobs/{id}", "", &[]),
];

/// Told elsewhere, or no change that somebody asks for.
const ELSEWHERE: &[&str] = &[
    "POST /v1/jobs/import",            // Below: it answers while it reads.
    "POST /v1/shards/move",            // As any operation; there is one database here.
    "DELETE /v1/breakers/{name}",      // With the breakers.
    "DELETE /v1/workers/{id}",         // With the workers.
    "POST /v1/claims",                 // Work, and what comes of it.
    "POST /v1/workers/{id}/heartbeat", //
    "POST /v1/workers/{id}/results",   //
];

fn place(ids: &BTreeMap<&'static str, String>, line: &str) -> String {
    let of = |noun: &str| ids.get(noun).cloned().unwrap_or_else(|| "none".into());
    let id = match line.split('/').nth(2).unwrap_or_default() {
        "jobs" => of("job"),
        "runs" => of("run"),
        "operations" => of("operation"),
        "keys" => of("key"),
        _ => "b".into(),
    };
    let name = if line.contains("/tenants/") { "default" } else { "holidays" };
    line.replace("{id}", &id).replace("{key}", "nightly").replace("{name}", name)
}

async fn entries(world: &World) -> Vec<Value> {
    world.get("/v1/audit?limit=1000&tenant=*").await["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_route_that_changes_something_leaves_an_entry() {
    let world = World::new().await;
    let (mut ids, mut walked, mut known) = (BTreeMap::new(), BTreeSet::new(), 0);
    for (line, body, wanted) in STORY {
        world.clock.advance(jiff::SignedDuration::from_secs(1));
        let body = body.replace("{run}", ids.get("run").map_or("none", String::as_str));
        let headers = [("x-request-id", *line)];
        let reply = world.call_with(&place(&ids, line), &headers, &body).await;
        let noun = match *line {
            "POST /v1/jobs" => Some("job"),
            "POST /v1/jobs/{id}/trigger" => Some("run"),
            "POST /v1/keys" => Some("key"),
            _ if reply.status == 202 => Some("operation"),
            _ => None,
        };
        if let Some(noun) = noun {
            ids.insert(
                noun,
                reply.json()["id"].as_str().unwrap_or_else(|| panic!("{line}: {}", reply.text)).into(),
            );
        }
        walked.insert(*line);
        let all = entries(&world).await;
        let mut new: Vec<(&str, &str)> = all[..all.len() - known]
            .iter()
            .map(|entry| (entry["kind"].as_str().unwrap(), entry["action"].as_str().unwrap()))
            .collect();
        new.sort_unstable(); // Two of one millisecond are in no order.
        assert_eq!(new, *wanted, "{line} {body}: {}", reply.text);
        for entry in &all[..all.len() - known] {
            assert_eq!(entry["who"], json!({"name": "loopback"}), "{entry}");
            assert_eq!(
                (&entry["from"], &entry["request_id"]),
                (&json!("127.0.0.1"), &json!(line)),
                "{entry}"
            );
            assert_ne!(entry["subject"], Value::Null);
        }
        known = all.len();
    }
    for endpoint in TABLE {
        let line = format!("{} {}", endpoint.method, endpoint.path);
        let changes = endpoint.method != "GET" && !matches!(endpoint.needs, Needs::Nothing | Needs::Token);
        let is_told = walked.contains(&*line) || ELSEWHERE.contains(&&*line);
        assert!(!changes || is_told, "{line} changes something and is in no story about the audit");
    }
}

#[tokio::test]
async fn an_entry_says_what_was_there_before_and_what_is_since() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"1h"}"#).await;
    world.call(&format!("PATCH /v1/jobs/{id}"), r#"{"name":"other","payload":{"n":1.0}}"#).await.expect(200);
    world.call(&format!("DELETE /v1/jobs/{id}"), "").await.expect(204);
    let page = world.get(&format!("/v1/audit?kind=job&subject={id}")).await;
    let [deleted, edited, created] = page["items"].as_array().unwrap().as_slice() else { panic!("{page}") };
    assert_eq!((created.get("before"), &created["after"]["name"]), (None, &json!("job")));
    assert_eq!((&created["tenant"], &created["after"]["version"]), (&json!("default"), &json!(1)));
    assert_eq!((&edited["before"], &edited["after"]["name"]), (&created["after"], &json!("other")));
    assert_eq!((&deleted["before"], deleted.get("after")), (&edited["after"], None));
    let text = world.call(&format!("GET /v1/audit?subject={id}&action=edit"), "").await.text;
    assert!(text.contains(r#""payload":{"n":1.0}"#), "a payload stays as it was written: {text}");
}

#[tokio::test]
async fn what_is_secret_is_covered() {
    let world = World::of_keys().await;
    let body = r#"{"name":"job","schedule":{"every":"1h"},"target":{"http":{"url":"https://example.com",
        "headers":{"Authorization":"Bearer hidden-1","X-Api-Key":"hidden-2","Accept":"text/plain"}}}}"#;
    let job = world.call("POST /v1/jobs", body).await.expect(201);
    let line = format!("PATCH /v1/jobs/{}", job["id"].as_str().unwrap());
    world.call(&line, r#"{"target":{"http":{"headers":{"Authorization":"hidden-3"}}}}"#).await.expect(200);
    let patch = r#"{"filter":{},"patch":{"target":{"http":{"headers":{"Cookie":"hidden-4"}}}}}"#;
    world.call("POST /v1/jobs/bulk/edit", patch).await.expect(202);
    let key = world.call("POST /v1/keys", r#"{"name":"ops","role":"admin"}"#).await.expect(201);
    let bearer = format!("Bearer {}", key["key"].as_str().unwrap());
    let headers = [("authorization", &*bearer)];
    let rotate = format!("POST /v1/keys/{}/rotate", key["id"].as_str().unwrap());
    let rotated = world.call_with(&rotate, &headers, r#"{"overlap":"1h"}"#).await.expect(200);
    let secrets =
        [&key, &rotated].map(|key| key["key"].as_str().unwrap().rsplit('_').next().unwrap().to_string());
    let read = world.call_with("GET /v1/audit?tenant=*", &headers, "").await;
    assert_eq!(read.status, 200, "{}", read.text);
    assert!(!read.text.contains("hidden"), "{}", read.text);
    assert!(read.text.contains(r#""Authorization":"***""#) && read.text.contains(r#""Accept":"text/plain""#));
    for secret in &secrets {
        assert!(!read.text.contains(secret.as_str()), "{}", read.text);
    }
    let newest = &read.json()["items"][0];
    let who = json!({"key": key["id"], "name": "ops"});
    assert_eq!((&newest["who"], &newest["action"]), (&who, &json!("rotate")));
    let by = world.call_with("GET /v1/audit?who=ops", &headers, "").await.expect(200);
    assert_eq!(by["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_audit_is_searched_in_pages_and_exported_whole() {
    let world = World::new().await;
    for number in 0..5 {
        world.call(&format!("PUT /v1/limits/l{number}"), r#"{"max":1}"#).await.expect(201);
        world.clock.advance(jiff::SignedDuration::from_secs(60));
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/audit?kind=limit&limit=2{cursor}")).await;
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|one| one["subject"].as_str().unwrap().to_string()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["l4", "l3", "l2", "l1", "l0"]);
    let range = "from=2026-01-01T12:01:00Z&to=2026-01-01T12:03:00Z";
    let page = world.get(&format!("/v1/audit?{range}")).await;
    let subjects: Vec<&str> =
        page["items"].as_array().unwrap().iter().map(|one| one["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["l2", "l1"]);
    let export = world.call_with("GET /v1/audit", &[("accept", "application/x-ndjson")], "").await;
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = export.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, entries(&world).await);
    assert_eq!(world.call("GET /v1/audit?wo=x", "").await.problem().0, 422);
}

#[tokio::test]
async fn a_tenant_sees_what_was_done_to_its_own() {
    let world = World::of_role(punctual_server::Role::Admin, None).await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let job = r#"{"name":"job","schedule":{"every":"1h"},"target":{"discard":{}}}"#;
    for tenant in ["acme", "default"] {
        world.call_with("POST /v1/jobs", &[("punctual-tenant", tenant)], job).await.expect(201);
    }
    let kinds = |page: Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().clone();
        items.iter().map(|one| format!("{} {}", one["kind"].as_str().unwrap(), one["tenant"])).collect()
    };
    let own = world.call_with("GET /v1/audit", &[("punctual-tenant", "acme")], "").await.expect(200);
    assert_eq!(kinds(own), [r#"job "acme""#]);
    let all = world.get("/v1/audit").await;
    assert_eq!(kinds(all), [r#"job "default""#, r#"job "acme""#, "tenant null"]);
}

#[tokio::test]
async fn the_versions_of_a_job_are_told_with_who_brought_them() {
    let world = World::new().await;
    let line = r#"{"key":"k","name":"imported","schedule":{"cron":"0 * * * *"},"target":{"discard":{}}}"#;
    world.call("POST /v1/jobs/import", line).await;
    let id = world.get("/v1/jobs/key/k").await["id"].as_str().unwrap().to_string();
    let versions = || async {
        let page = world.get(&format!("/v1/jobs/{id}/versions")).await;
        let items = page["items"].as_array().unwrap().clone();
        let told = |one: &Value| {
            let who = one["who"]["name"].as_str().unwrap_or("nobody");
            format!("{} {} {who}", one["version"], one["job"]["name"].as_str().unwrap_or("gone"))
        };
        items.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(versions().await, ["1 imported nobody"]);
    world.clock.advance(jiff::SignedDuration::from_secs(1));
    world.call(&format!("PATCH /v1/jobs/{id}"), r#"{"name":"second"}"#).await.expect(200);
    assert_eq!(versions().await, ["2 second loopback", "1 imported nobody"]);
    world.clock.advance(jiff::SignedDuration::from_secs(1));
    world.call("POST /v1/jobs/bulk/edit", r#"{"filter":{},"patch":{"name":"third"}}"#).await.expect(202);
    world.operate().await;
    world.clock.advance(jiff::SignedDuration::from_secs(1));
    world.call(&format!("PATCH /v1/jobs/{id}"), r#"{"name":"fourth"}"#).await.expect(200);
    let all = ["4 fourth loopback", "3 third nobody", "2 second loopback", "1 imported nobody"];
    assert_eq!(versions().await, all);
    world.call(&format!("DELETE /v1/jobs/{id}"), "").await.expect(204);
    assert_eq!(versions().await[..2], ["null gone loopback", "4 fourth loopback"]);
    let unknown = world.call(&format!("GET /v1/jobs/{}/versions", id.replace(&id[..4], "0000")), "").await;
    assert_eq!(unknown.problem(), (404, "job_not_found".into()));
}

#[tokio::test]
async fn an_import_is_two_entries_however_large_it_is() {
    let world = World::new().await;
    let line = r#"{"name":"job","schedule":{"every":"1h"},"target":{"discard":{}}}"#;
    let lines = [line; 5_000].join("\n");
    let told = world.call("POST /v1/jobs/import", &lines).await.text;
    assert!(told.contains(r#""created":5000"#), "{told}");
    // The last is written after the answer has been read.
    let mut all = entries(&world).await;
    for _ in 0..1_000 {
        if all.len() == 2 {
            break;
        }
        tokio::task::yield_now().await;
        all = entries(&world).await;
    }
    all.sort_by_key(|one| one["action"].to_string());
    let told = all.iter().map(|one| format!("{} {}", one["action"], one["after"]["created"]));
    assert_eq!(told.collect::<Vec<_>>(), ["\"import\" 0", "\"imported\" 5000"]);
}

#[tokio::test]
async fn what_nodes_do_by_themselves_is_not_told() {
    let world = World::new().await;
    world.register(r#"{"every":"1m"}"#).await;
    world.advance(120).await;
    world.work(Outcome::Failed).await;
    assert_eq!(entries(&world).await.len(), 1, "the job was created, and runs by itself");
}
