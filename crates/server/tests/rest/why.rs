//! Why a job did or did not run, and the account of a range, as users see them.

use punctual_domain::attempt::Outcome;
use serde_json::Value;

use crate::world::World;

async fn why(world: &World, job: &str, at: &str) -> Value {
    let query = if at.is_empty() { String::new() } else { format!("?at={at}") };
    world.get(&format!("/v1/jobs/{job}/why{query}")).await
}

#[tokio::test]
async fn a_job_says_why_it_did_and_did_not_run() {
    let world = World::new().await;
    let id = world.register(r#"{"cron":"0 * * * *","timezone":"Europe/Paris"}"#).await;
    let answer = why(&world, &id, "").await;
    assert_eq!((&answer["reason"], &answer["run"]), (&"not_yet_due".into(), &Value::Null));
    assert_eq!(answer["next"], "2026-01-01T13:00:00Z");
    world.advance(3_600).await;
    world.work(Outcome::Succeeded).await;
    for at in ["", "2026-01-01T13:00:00Z", "1767272400", "2026-01-01T14:00"] {
        let answer = why(&world, &id, at).await;
        assert_eq!(
            (&answer["reason"], &answer["slot"]),
            (&"ran_on_time".into(), &"2026-01-01T13:00:00Z".into())
        );
        assert!(
            answer["text"].as_str().unwrap().contains("2026-01-01 14:00 Europe/Paris ran on time"),
            "{answer}"
        );
        assert!(
            world.get(&format!("/v1/runs/{}", answer["run"].as_str().unwrap())).await["id"] == answer["run"]
        );
    }
    let refused = world.call(&format!("GET /v1/jobs/{id}/why?at=noon"), "").await;
    assert_eq!(refused.problem().0, 422, "{}", refused.text);
    assert_eq!(world.call("GET /v1/jobs/nonsense/why", "").await.problem().0, 404);
}

#[tokio::test]
async fn a_range_is_accounted_for_in_pages() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"10m"}"#).await;
    for _ in 0..3 {
        world.advance(600).await;
    }
    world.work(Outcome::Succeeded).await;
    world.call(&format!("POST /v1/jobs/{id}/pause"), r#"{"by":"ada","reason":"move"}"#).await.expect(200);
    world.advance(3_600).await;
    let range = "from=2026-01-01T12:01:00Z&to=2026-01-01T14:00:00Z";
    let path = format!("/v1/jobs/{id}/ledger?{range}");
    let all = world.get(&path).await;
    let items = all["items"].as_array().unwrap();
    let states: Vec<&str> = items.iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["skipped", "skipped", "succeeded", "succeeded", "succeeded"], "{all:#}");
    assert_eq!((&items[1]["slots"], &items[1]["pause"]["by"]), (&6.into(), &"ada".into()));
    assert_eq!(items[2]["run"]["attempts"], 1);
    assert!(items[4]["run"]["lateness_ms"].as_i64().unwrap() > 0, "{all:#}");
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.get(&format!("{path}&limit=1{cursor}")).await;
        paged.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(&paged, items);
    let plain = world.get(&format!("/v1/jobs/{id}/ledger")).await;
    assert_eq!(
        plain["items"],
        serde_json::json!([]),
        "without a range: slots that did not run, once that is decided"
    );
}

#[tokio::test]
async fn a_deleted_job_is_told_of_while_it_is_kept() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"10m"}"#).await;
    world.advance(600).await;
    assert_eq!(world.call(&format!("DELETE /v1/jobs/{id}"), "").await.status, 204);
    assert_eq!(world.call(&format!("GET /v1/jobs/{id}"), "").await.problem().0, 404);
    assert_eq!(world.get(&format!("/v1/jobs/{id}/runs")).await["items"][0]["state"], "cancelled");
    assert_eq!(world.get(&format!("/v1/jobs/{id}/ledger")).await["items"], serde_json::json!([]));
    assert_eq!(why(&world, &id, "").await["reason"], "deleted");
}

#[tokio::test]
async fn dead_letters_are_grouped_and_redriven_by_error() {
    let world = World::new().await;
    for label in ["a", "b"] {
        let body = format!(
            r#"{{"schedule":{{"now":true}},"target":{{"discard":{{}}}},"labels":{{"team":"{label}"}}}}"#
        );
        world.call("POST /v1/jobs", &body).await.expect(201);
    }
    world.work(Outcome::Failed).await;
    let groups = world.get("/v1/dead-letters/groups").await;
    let group = &groups["items"][0];
    assert_eq!(
        (&group["error"], &group["status"], &group["count"]),
        (&"http_status".into(), &500.into(), &2.into())
    );
    assert_eq!((&group["message"], &group["jobs"]), (&"the target answered #".into(), &2.into()));
    assert_eq!((&groups["examined"], &groups["is_complete"]), (&2.into(), &true.into()));
    for (query, count) in
        [("error=http_status", 2), ("error=dns_failed", 0), ("label=team=a", 1), ("tenant=default", 2)]
    {
        let found = world.get(&format!("/v1/dead-letters?{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}");
    }
    let refused = world.call("POST /v1/dead-letters/redrive", r#"{"filter":{"label":"team"}}"#).await;
    assert!(refused.text.contains("/filter/label"), "{}", refused.text);
    for (filter, left) in
        [(r#"{"error":"dns_failed"}"#, 2), (r#"{"error":"http_status","label":"team=a"}"#, 1)]
    {
        let body = format!(r#"{{"filter":{filter}}}"#);
        world.call("POST /v1/dead-letters/redrive", &body).await.expect(202);
        world.operate().await;
        let found = world.get("/v1/dead-letters").await;
        assert_eq!(found["items"].as_array().unwrap().len(), left, "{filter}");
    }
}
