//! One change of many jobs or runs: counted, started, and what came of it.

use serde_json::{Value, json};

use crate::world::World;

/// Registers jobs: two of team a in queue slow, one of team b in queue fast.
async fn jobs(world: &World) -> Vec<String> {
    let mut ids = Vec::new();
    for (key, team, queue) in [("eu/1", "a", "slow"), ("eu/2", "a", "slow"), ("us/1", "b", "fast")] {
        let body = json!({
            "key": key, "name": format!("report {key}"), "labels": {"team": team, "all": "yes"}, "queue": queue,
            "schedule": {"every": "PT1H"}, "target": {"discard": {}}
        });
        let job = world.call("POST /v1/jobs", &body.to_string()).await.expect(201);
        ids.push(job["id"].as_str().unwrap().to_string());
    }
    world.clock.advance(jiff::SignedDuration::from_millis(5));
    ids
}

async fn change(world: &World, action: &str, body: Value) -> Value {
    let operation = world.call(&format!("POST {action}"), &body.to_string()).await.expect(202);
    world.operate().await;
    world.get(&format!("/v1/operations/{}", operation["id"].as_str().unwrap())).await
}

async fn job(world: &World, id: &str) -> Value {
    world.get(&format!("/v1/jobs/{id}")).await
}

fn keys(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|job| job["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_dry_run_counts_and_names_some_and_the_operation_does_it() {
    let world = World::new().await;
    let ids = jobs(&world).await;
    let filter = json!({"labels": {"team": "a", "all": "yes"}});
    let dry = json!({"filter": filter, "reason": "moving", "dry_run": true});
    let told = world.call("POST /v1/jobs/bulk/pause", &dry.to_string()).await.expect(200);
    let example = |id: &str, key: &str| json!({"id": id, "key": key, "name": format!("report {key}")});
    let expected = json!({
        "matched": 2, "changes": 2, "failed": 0, "next_cursor": null,
        "examples": [example(&ids[0], "eu/1"), example(&ids[1], "eu/2")]
    });
    assert_eq!(told, expected);
    assert_eq!(world.get("/v1/operations").await["items"], json!([]), "a dry run starts nothing");
    assert_eq!(job(&world, &ids[0]).await["version"], 1);

    let paused = change(&world, "/v1/jobs/bulk/pause", json!({"filter": filter, "reason": "moving"})).await;
    assert_eq!((&paused["kind"], &paused["state"]), (&json!("pause_jobs"), &json!("succeeded")));
    assert_eq!((&paused["done"], &paused["failed"]), (&json!(2), &json!(0)));
    assert_eq!((&paused["jobs"], &paused["pause"]), (&filter, &json!({"reason": "moving"})));
    let first = job(&world, &ids[0]).await;
    assert_eq!((&first["state"], &first["paused"]["reason"]), (&json!("paused"), &json!("moving")));
    assert_eq!(job(&world, &ids[2]).await["state"], "active");
    assert_eq!(keys(&world.get("/v1/jobs?state=paused").await), ["eu/1", "eu/2"]);

    let resumed = change(&world, "/v1/jobs/bulk/resume", json!({"filter": {"state": "paused"}})).await;
    assert_eq!((&resumed["kind"], &resumed["done"]), (&json!("resume_jobs"), &json!(2)));
    let deleted = change(&world, "/v1/jobs/bulk/delete", json!({"filter": {"key_prefix": "eu/"}})).await;
    assert_eq!((&deleted["kind"], &deleted["done"]), (&json!("delete_jobs"), &json!(2)));
    assert_eq!(keys(&world.get("/v1/jobs").await), ["us/1"]);
}

#[tokio::test]
async fn jobs_are_edited_by_a_patch_each_checked_for_itself() {
    let world = World::new().await;
    let ids = jobs(&world).await;
    let narrow = r#"{"deadline":"PT30S"}"#;
    world.call(&format!("PATCH /v1/jobs/{}", ids[1]), narrow).await.expect(200);
    let body =
        json!({"filter": {}, "patch": {"queue": "new", "start_window": "PT1M", "labels": {"all": null}}});
    let mut dry = body.clone();
    dry["dry_run"] = true.into();
    let told = world.call("POST /v1/jobs/bulk/edit", &dry.to_string()).await.expect(200);
    assert_eq!((&told["matched"], &told["changes"], &told["failed"]), (&json!(3), &json!(2), &json!(1)));
    let failure = told["failure"].as_str().unwrap();
    assert!(failure.starts_with(&format!("job {}: /start_window: ", ids[1])), "{failure}");
    let edited = change(&world, "/v1/jobs/bulk/edit", body).await;
    assert_eq!((&edited["done"], &edited["failed"]), (&json!(2), &json!(1)));
    assert_eq!((edited["failure"].as_str(), &edited["pending"]), (Some(failure), &json!("keep")));
    assert_eq!(edited["patch"]["queue"], "new");
    let first = job(&world, &ids[0]).await;
    assert_eq!(
        (&first["queue"], &first["labels"], &first["version"]),
        (&json!("new"), &json!({"team": "a"}), &json!(2))
    );
    assert_eq!((&first["key"], &first["name"]), (&json!("eu/1"), &json!("report eu/1")));
    let other = job(&world, &ids[1]).await;
    assert_eq!((&other["queue"], &other["version"]), (&json!("slow"), &json!(2)), "it stays as it was");
    // What a single edit is refused, so is each of many.
    let patch = json!({"filter": {}, "patch": {"target": {"http": {"url": "http://169.254.1.1/"}}}});
    let refused = change(&world, "/v1/jobs/bulk/edit", patch).await;
    assert_eq!((&refused["done"], &refused["failed"]), (&json!(0), &json!(3)));
    assert!(refused["failure"].as_str().unwrap().contains("this address is not called"), "{refused}");
}

#[tokio::test]
async fn open_runs_are_cancelled_by_filter() {
    let world = World::new().await;
    let ids = jobs(&world).await;
    for id in [&ids[0], &ids[0], &ids[2]] {
        world.call(&format!("POST /v1/jobs/{id}/trigger"), "").await.expect(201);
    }
    world.clock.advance(jiff::SignedDuration::from_millis(5));
    let filter = json!({"queue": "slow", "state": "pending"});
    let dry = json!({"filter": filter, "dry_run": true}).to_string();
    let told = world.call("POST /v1/runs/bulk/cancel", &dry).await.expect(200);
    assert_eq!((&told["matched"], &told["changes"]), (&json!(2), &json!(2)));
    assert_eq!(told["examples"][0]["job_id"], ids[0]);
    let cancelled = change(&world, "/v1/runs/bulk/cancel", json!({"filter": filter})).await;
    assert_eq!((&cancelled["kind"], &cancelled["done"]), (&json!("cancel_runs"), &json!(2)));
    assert_eq!(cancelled["runs"], filter);
    let left = world.get("/v1/runs?state=pending").await;
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["job_id"], ids[2]);
}

#[tokio::test]
async fn the_same_request_starts_one_operation() {
    let world = World::new().await;
    jobs(&world).await;
    let key = [("idempotency-key", "req-1")];
    let line = "POST /v1/jobs/bulk/pause";
    let first = world.call_with(line, &key, r#"{"filter":{"queue":"slow"}}"#).await;
    world.operate().await;
    let again = world.call_with(line, &key, r#"{"filter":{"queue":"slow"}}"#).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (202, "true"));
    assert_eq!(first.header("location"), again.header("location"));
    let other = world.call_with(line, &key, r#"{"filter":{"queue":"fast"}}"#).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".into()));
    assert_eq!(world.get("/v1/operations").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn another_tenants_jobs_are_not_touched() {
    let world = World::new().await;
    let ids = jobs(&world).await;
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let acme = [("punctual-tenant", "acme")];
    let told = world.call_with("POST /v1/jobs/bulk/delete", &acme, r#"{"filter":{},"dry_run":true}"#).await;
    assert_eq!(told.expect(200)["matched"], 0);
    world.call_with("POST /v1/jobs/bulk/delete", &acme, r#"{"filter":{}}"#).await.expect(202);
    world.operate().await;
    assert_eq!(keys(&world.get("/v1/jobs").await).len(), ids.len());
}

#[tokio::test]
async fn jobs_are_listed_by_name_by_the_beginning_of_their_keys_and_by_several_labels() {
    let world = World::new().await;
    jobs(&world).await;
    for (query, expected) in [
        ("name=report", vec!["eu/1", "eu/2", "us/1"]),
        ("name=t%20eu", vec!["eu/1", "eu/2"]),
        ("key_prefix=us", vec!["us/1"]),
        ("label=team%3Da&label=all%3Dyes", vec!["eu/1", "eu/2"]),
        ("label=team%3Da&label=all%3Dno", vec![]),
        ("label=team%3Da&queue=fast", vec![]),
    ] {
        let page = world.get(&format!("/v1/jobs?{query}")).await;
        let mut found = keys(&page);
        found.sort();
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_way_out() {
    let world = World::new().await;
    for (line, body, pointer, said) in [
        ("/v1/jobs/bulk/pause", "{}", "/filter", "`filter` is missing; `{}` is all"),
        (
            "/v1/jobs/bulk/pause",
            r#"{"filter":{},"until":"2020-01-01T00:00:00Z"}"#,
            "/until",
            "a pause ends in",
        ),
        ("/v1/jobs/bulk/resume", r#"{"filter":{"state":"lost"}}"#, "/filter/state", "`lost` is not known"),
        ("/v1/jobs/bulk/delete", r#"{"filter":{"quee":"x"}}"#, "/filter/quee", "unknown field `quee`"),
        ("/v1/jobs/bulk/delete", r#"{"filter":{},"cursor":"x"}"#, "/cursor", "only a dry run has a cursor"),
        (
            "/v1/jobs/bulk/delete",
            r#"{"filter":{},"dry_run":true,"cursor":"x"}"#,
            "/cursor",
            "this cursor is not",
        ),
        ("/v1/jobs/bulk/edit", r#"{"filter":{}}"#, "/patch", "`patch` is missing"),
        ("/v1/jobs/bulk/edit", r#"{"filter":{},"patch":{"key":"x"}}"#, "/patch/key", "a job keeps its key"),
        ("/v1/jobs/bulk/edit", r#"{"filter":{},"patch":{"timeout":5}}"#, "/patch/timeout", "expected"),
        (
            "/v1/runs/bulk/cancel",
            r#"{"filter":{"state":"failed"}}"#,
            "/filter/state",
            "`failed` is not known",
        ),
        ("/v1/runs/bulk/cancel", r#"{"filter":{"job":"x"}}"#, "/filter/job", "`x` is not a job id"),
    ] {
        let reply = world.call(&format!("POST {line}"), body).await;
        assert_eq!(reply.problem(), (422, "invalid_request".into()), "{body}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], pointer, "{error}");
        assert!(error["detail"].as_str().unwrap().starts_with(said), "{error}");
    }
}
