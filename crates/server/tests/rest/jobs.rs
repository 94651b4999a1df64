//! Registering, reading and changing jobs.

use crate::world::World;

const NIGHTLY: &str = r#"{"name":"nightly","schedule":{"cron":"0 2 * * *","timezone":"Europe/Paris"},
    "target":{"http":{"url":"http://127.0.0.1:9000/hook"}},"payload":{ "n":7.50 },"retry":{"max_attempts":3}}"#;

#[tokio::test]
async fn a_registered_job_answers_with_where_it_is_and_when_it_fires() {
    let world = World::new().await;
    let reply = world.call("POST /v1/jobs", NIGHTLY).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let job = reply.json();
    let id = job["id"].as_str().unwrap();
    assert_eq!(reply.header("location"), format!("/v1/jobs/{id}"));
    assert_eq!(reply.header("etag"), "\"1\"");
    assert_eq!(
        (&job["version"], &job["state"], &job["tenant"]),
        (&1.into(), &"active".into(), &"default".into())
    );
    assert_eq!(job["next_fire_at"], "2026-01-02T01:00:00Z");
    assert_eq!(job["catch_up"]["policy"], "latest", "defaults are visible");
    assert!(reply.text.contains(r#""payload":{ "n":7.50 }"#), "the payload stays as it was written");
    assert!(job["warnings"][0].as_str().unwrap().contains("DST gap on 29 March 2026"), "{job}");
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await["name"], "nightly");
    let unchanged = world.call_with(&format!("GET /v1/jobs/{id}"), &[("if-none-match", "\"1\"")], "").await;
    assert_eq!(unchanged.status, 304);
}

#[tokio::test]
async fn an_immediate_job_shows_its_run_and_then_its_end() {
    let world = World::new().await;
    let id = world.register(r#"{"now":true}"#).await;
    let job = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(job["last_run"]["state"], "pending", "{job}");
    assert_eq!((&job["state"], &job["next_fire_at"]), (&"active".into(), &serde_json::Value::Null));
    let run = job["last_run"]["id"].as_str().unwrap();
    world.call(&format!("POST /v1/runs/{run}/cancel"), "").await.expect(200);
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await["state"], "ended");
    for (state, count) in [("ended", 1), ("active", 0)] {
        let list = world.get(&format!("/v1/jobs?state={state}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{state}");
    }
    let renamed = world.call(&format!("PATCH /v1/jobs/{id}"), r#"{"name":"renamed"}"#).await.expect(200);
    assert_eq!((&renamed["state"], &renamed["version"]), (&"ended".into(), &2.into()));
    let paused = world.call(&format!("POST /v1/jobs/{id}/pause"), "").await;
    assert_eq!(paused.problem(), (409, "wrong_state".into()));
}

#[tokio::test]
async fn a_key_is_registered_once_and_upserted_by_put() {
    let world = World::new().await;
    let body = r#"{"schedule":{"every":"PT5S"},"target":{"discard":{}}}"#;
    let first = world.call("PUT /v1/jobs/key/nightly", body).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let job = first.json();
    assert_eq!((&job["key"], &job["name"]), (&"nightly".into(), &"nightly".into()));
    let same = world.call("PUT /v1/jobs/key/nightly", body).await.expect(200);
    assert_eq!((&same["version"], &same["id"]), (&1.into(), &job["id"]), "nothing changed");
    let changed = world.call("PUT /v1/jobs/key/nightly", &body.replace("PT5S", "PT6S")).await.expect(200);
    assert_eq!(changed["version"], 2);
    let only_new = world.call_with("PUT /v1/jobs/key/nightly", &[("if-none-match", "*")], body).await;
    assert_eq!(only_new.problem(), (412, "version_conflict".into()));
    let stale = world.call_with("PUT /v1/jobs/key/nightly", &[("if-match", "\"1\"")], body).await;
    assert_eq!(stale.problem(), (412, "version_conflict".into()));
    let absent = world.call_with("PUT /v1/jobs/key/absent", &[("if-match", "\"1\"")], body).await;
    assert_eq!(absent.problem(), (412, "version_conflict".into()));
    let posted =
        world.call("POST /v1/jobs", &body.replace("{\"schedule", "{\"key\":\"nightly\",\"schedule")).await;
    assert_eq!(posted.problem(), (409, "key_taken".into()));
    let other = world
        .call("PUT /v1/jobs/key/weekly", &body.replace("{\"schedule", "{\"key\":\"x\",\"schedule"))
        .await;
    assert_eq!(other.json()["errors"][0]["pointer"], "/key");
    assert_eq!(world.get("/v1/jobs/key/nightly").await["id"], job["id"]);
    let slash = world.call("PUT /v1/jobs/key/a%2Fb", body).await.expect(201);
    assert_eq!(slash["key"], "a/b");
}

#[tokio::test]
async fn a_job_is_changed_as_it_was_read_and_not_over_another_change() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT5S"}"#).await;
    let path = format!("/v1/jobs/{id}");
    let read = world.call(&format!("GET {path}"), "").await.text;
    let changed = read.replace("PT5S", "PT7S");
    let job = world.call_with(&format!("PUT {path}"), &[("if-match", "\"1\"")], &changed).await.expect(200);
    assert_eq!((&job["version"], &job["schedule"]["every"]), (&2.into(), &"PT7S".into()));
    let stale = world.call_with(&format!("PUT {path}"), &[("if-match", "\"1\"")], &read).await;
    assert_eq!(stale.problem(), (412, "version_conflict".into()));
    let odd = world.call_with(&format!("PUT {path}"), &[("if-match", "2")], &read).await;
    assert_eq!(odd.json()["errors"][0]["pointer"], "If-Match");
    let key = world.call(&format!("PATCH {path}"), r#"{"key":"other"}"#).await;
    assert_eq!(
        (key.status.as_u16(), key.json()["errors"][0]["code"].clone()),
        (422, "read_only_field".into())
    );
}

#[tokio::test]
async fn a_merge_patch_changes_what_it_names() {
    let world = World::new().await;
    let id = world.call("POST /v1/jobs", NIGHTLY).await.expect(201)["id"].as_str().unwrap().to_string();
    let path = format!("PATCH /v1/jobs/{id}");
    let reply =
        world.call(&path, r#"{"name":"renamed","retry":{"max_attempts":5},"labels":{"team":"core"}}"#).await;
    let job = reply.json();
    assert_eq!((&job["name"], &job["retry"]["max_attempts"]), (&"renamed".into(), &5.into()), "{job}");
    assert_eq!((&job["retry"]["cap"], &job["version"]), (&"PT5M".into(), &2.into()));
    assert!(reply.text.contains(r#""payload":{ "n":7.50 }"#), "{}", reply.text);
    let job = world.call(&path, r#"{"schedule":{"every":"PT1H"},"payload":null}"#).await.expect(200);
    assert_eq!((&job["schedule"]["every"], job.get("payload")), (&"PT1H".into(), None), "{job}");
    let same = world.call(&path, r#"{"name":"renamed"}"#).await.expect(200);
    assert_eq!(same["version"], 3, "nothing changed");
    let wrong = world.call(&path, r#"{"retry":{"max_attempts":0},"lane":"fast"}"#).await.expect(422);
    assert_eq!(wrong["errors"].as_array().unwrap().len(), 2, "{wrong}");
    let list = world.call(&path, "[1]").await;
    assert_eq!(list.problem().0, 422);
    let media = [("content-type", "application/json-patch+json")];
    assert_eq!(world.call_with(&path, &media, "[]").await.problem(), (415, "wrong_content_type".into()));
}

#[tokio::test]
async fn a_pause_has_a_reason_and_its_slots_are_in_the_ledger() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT10S"}"#).await;
    let body = r#"{"reason":"maintenance","by":"ada"}"#;
    let paused = world.call(&format!("POST /v1/jobs/{id}/pause"), body).await.expect(200);
    assert_eq!((&paused["state"], &paused["paused"]["reason"]), (&"paused".into(), &"maintenance".into()));
    world.advance(35).await;
    let resumed = world.call(&format!("POST /v1/jobs/{id}/resume"), "").await.expect(200);
    assert_eq!(
        (&resumed["state"], &resumed["next_fire_at"]),
        (&"active".into(), &"2026-01-01T12:00:40Z".into())
    );
    let ledger = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    let entry = &ledger["items"][0];
    assert_eq!(
        (&entry["state"], &entry["reason"], &entry["slots"]),
        (&"skipped".into(), &"pause".into(), &3.into())
    );
    let wrong = world.call(&format!("POST /v1/jobs/{id}/pause"), r#"{"resaon":"x"}"#).await.expect(422);
    assert!(wrong["detail"].as_str().unwrap().contains("did you mean `reason`?"), "{wrong}");
}

#[tokio::test]
async fn a_pause_may_say_when_it_ends() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT10S"}"#).await;
    let path = format!("POST /v1/jobs/{id}/pause");
    for wrong in [r#"{"until":"2026-01-01T11:00:00Z"}"#, r#"{"until":"tomorrow"}"#, r#"{"until":true}"#] {
        let problem = world.call(&path, wrong).await.expect(422);
        assert_eq!(problem["errors"][0]["pointer"], "/until", "{problem}");
    }
    let paused = world.call(&path, r#"{"until":"2026-01-01T14:00:25+02:00"}"#).await.expect(200);
    assert_eq!(
        (&paused["state"], &paused["paused"]["until"]),
        (&"paused".into(), &"2026-01-01T12:00:25Z".into())
    );
    world.advance(25).await;
    let resumed = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(
        (&resumed["state"], &resumed["next_fire_at"], &resumed["paused"]),
        (&"active".into(), &"2026-01-01T12:00:30Z".into(), &serde_json::Value::Null)
    );
    let ledger = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    assert_eq!((&ledger["items"][0]["reason"], &ledger["items"][0]["slots"]), (&"pause".into(), &2.into()));
}

#[tokio::test]
async fn a_deleted_job_is_gone_and_its_waiting_runs_are_cancelled() {
    let world = World::new().await;
    let id = world.register(r#"{"now":true}"#).await;
    let run = world.get("/v1/runs").await["items"][0]["id"].as_str().unwrap().to_string();
    assert_eq!(world.call(&format!("DELETE /v1/jobs/{id}"), "").await.status, 204);
    assert_eq!(world.call(&format!("GET /v1/jobs/{id}"), "").await.problem(), (404, "job_not_found".into()));
    assert_eq!(
        world.call(&format!("DELETE /v1/jobs/{id}"), "").await.problem(),
        (404, "job_not_found".into())
    );
    assert_eq!(world.get(&format!("/v1/runs/{run}")).await["state"], "cancelled");
}

#[tokio::test]
async fn jobs_are_listed_in_pages_and_narrowed() {
    let world = World::new().await;
    for n in 0..5 {
        let body = format!(
            r#"{{"name":"job {n}","type":"t{}","queue":"q{}","labels":{{"n":"{n}"}},
                "schedule":{{"every":"PT5S"}},"target":{{"discard":{{}}}}}}"#,
            n % 2,
            n % 2
        );
        world.call("POST /v1/jobs", &body).await.expect(201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/jobs?limit=2&cursor={cursor}")).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(|job| job["id"].to_string()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_string(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5);
    seen.dedup();
    assert_eq!(seen.len(), 5, "none twice");
    for (query, count) in
        [("type=t1", 2), ("queue=q0", 3), ("label=n=3", 1), ("state=paused", 0), ("type=t0&queue=q1", 0)]
    {
        let page = world.get(&format!("/v1/jobs?{query}")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn upcoming_slots_tell_what_a_clock_change_does() {
    let world = World::new().await;
    let id = world.register(r#"{"cron":"30 2 * * *","timezone":"Europe/Paris"}"#).await;
    let slots = world.get(&format!("/v1/jobs/{id}/upcoming?from=2026-03-28T00:00:00Z&limit=3")).await;
    let items = slots["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    assert_eq!(items[1]["local"], "2026-03-29T03:00:00+02:00", "{slots}");
    assert!(items[1]["note"].as_str().unwrap().contains("does not exist"), "{slots}");
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let world = World::new().await;
    let tenant = world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    assert_eq!(tenant["name"], "acme");
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(200);
    let names = world.get("/v1/tenants").await;
    assert_eq!(names["items"].as_array().unwrap().len(), 2, "{names}");
    let wrong = world.call("POST /v1/tenants", r#"{"name":"Not A Name"}"#).await.expect(422);
    assert_eq!(wrong["errors"][0]["pointer"], "/name");

    let acme = [("punctual-tenant", "acme")];
    let body = r#"{"key":"k","schedule":{"now":true},"target":{"discard":{}}}"#;
    let job = world.call_with("POST /v1/jobs", &acme, body).await.expect(201);
    let id = job["id"].as_str().unwrap();
    assert_eq!(job["tenant"], "acme");
    assert_eq!(world.call(&format!("GET /v1/jobs/{id}"), "").await.problem(), (404, "job_not_found".into()));
    world.call("POST /v1/jobs", body).await.expect(201); // The key is another tenant's, not taken.
    assert_eq!(world.get("/v1/runs?tenant=acme").await["items"].as_array().unwrap().len(), 1);
    let all = world.get("/v1/runs?tenant=*").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
    assert_eq!(all["items"][1]["tenant"], "acme");
    let unknown = world.call_with("GET /v1/jobs", &[("punctual-tenant", "nobody")], "").await;
    assert_eq!(unknown.problem(), (404, "tenant_not_found".into()));
}

#[tokio::test]
async fn overlap_is_shown_changed_and_obeyed() {
    let world = World::new().await;
    let body = r#"{"schedule":{"cron":"* * * * *"},"target":{"discard":{}},"overlap":{"policy":"skip"}}"#;
    let job = world.call("POST /v1/jobs", body).await.expect(201);
    assert_eq!(job["overlap"]["policy"], "skip");
    let id = job["id"].as_str().unwrap();
    let trigger = format!("POST /v1/jobs/{id}/trigger");
    world.call(&trigger, "").await.expect(201);
    let refused = world.call(&trigger, "").await;
    assert_eq!(refused.problem(), (409, "overlap".into()));
    assert!(refused.text.contains("wait until it has ended, cancel it"), "{}", refused.text);
    world.advance(180).await;
    let ledger = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    let entry = &ledger["items"][0];
    assert_eq!((&entry["state"], &entry["reason"]), (&"skipped".into(), &"overlap".into()), "{ledger}");
    let patch = r#"{"overlap":{"policy":"queue_all","max":2}}"#;
    let changed = world.call(&format!("PATCH /v1/jobs/{id}"), patch).await.expect(200);
    assert_eq!(changed["overlap"], serde_json::json!({"policy": "queue_all", "max": 2}));
    let waiting = world.call(&trigger, "").await.expect(201);
    assert_eq!(waiting["waiting_for"], "earlier_run");
}
