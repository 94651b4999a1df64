//! Named calendars as users meet them.

use serde_json::{Value, json};

use crate::world::World;

const DAILY: &str = r#"{"cron":"0 9 * * *","calendars":["holidays"]}"#;

async fn put(world: &World, body: &str) -> Value {
    let reply = world.call("PUT /v1/calendars/holidays", body).await;
    assert!(reply.status.is_success(), "{}", reply.text);
    reply.json()
}

async fn next(world: &World, job: &str) -> Value {
    world.get(&format!("/v1/jobs/{job}")).await["next_fire_at"].clone()
}

#[tokio::test]
async fn a_calendar_is_set_read_listed_and_deleted() {
    let world = World::new().await;
    let body = r#"{"exclude_dates":["12-25","2026-04-06"],"include_weekdays":["MON-FRI"],"include_windows":["09:00-17:30"]}"#;
    let created = world.call("PUT /v1/calendars/holidays", body).await;
    assert_eq!(created.header("etag"), "\"1\"");
    let shown = json!({
        "name": "holidays",
        "exclude_dates": ["2026-04-06", "12-25"],
        "include_weekdays": ["MON", "TUE", "WED", "THU", "FRI"],
        "include_windows": ["09:00-17:30"],
        "version": 1,
        "updated_at": "2026-01-01T12:00:00Z",
    });
    assert_eq!(created.expect(201), shown);
    let read = world.call("GET /v1/calendars/holidays", "").await;
    assert_eq!((read.header("etag"), read.json()), ("\"1\"", shown.clone()));
    let same = world.call_with("GET /v1/calendars/holidays", &[("if-none-match", "\"1\"")], "").await;
    assert_eq!(same.status, 304);
    // What is shown is accepted, and changes nothing.
    assert_eq!(put(&world, &shown.to_string()).await, shown);
    world.call("PUT /v1/calendars/hours", r#"{"timezone":"Europe/Paris"}"#).await.expect(201);
    let page = world.get("/v1/calendars?limit=1").await;
    assert_eq!(page["items"][0]["name"], "holidays");
    let rest = world.get(&format!("/v1/calendars?cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0]["name"], &rest["next_cursor"]), (&json!("hours"), &Value::Null));
    world.call("DELETE /v1/calendars/hours", "").await.expect(204);
    assert_eq!(world.call("GET /v1/calendars/hours", "").await.problem(), (404, "calendar_not_found".into()));
    assert_eq!(
        world.call("DELETE /v1/calendars/hours", "").await.problem(),
        (404, "calendar_not_found".into())
    );
    // They are a tenant's own.
    world.call("POST /v1/tenants", r#"{"name":"other"}"#).await.expect(201);
    let other = world.call_with("GET /v1/calendars", &[("punctual-tenant", "other")], "").await.expect(200);
    assert_eq!(other["items"], json!([]));
}

#[tokio::test]
async fn a_change_is_made_only_to_what_was_read() {
    let world = World::new().await;
    let change = |headers: &'static [(&str, &str)], body: &'static str| {
        world.call_with("PUT /v1/calendars/holidays", headers, body)
    };
    let conflict = (412, "version_conflict".to_string());
    assert_eq!(change(&[("if-match", "\"1\"")], "{}").await.problem(), conflict, "there is none");
    change(&[("if-none-match", "*")], "{}").await.expect(201);
    assert_eq!(change(&[("if-none-match", "*")], "{}").await.problem(), conflict, "there is one");
    change(&[("if-match", "\"1\"")], r#"{"exclude_dates":["12-25"]}"#).await.expect(200);
    assert_eq!(change(&[("if-match", "\"1\"")], "{}").await.problem(), conflict);
    let delete = world.call_with("DELETE /v1/calendars/holidays", &[("if-match", "\"1\"")], "").await;
    assert_eq!(delete.problem(), conflict);
    assert!(delete.text.contains("at version 2, not 1; read it again"), "{}", delete.text);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let world = World::new().await;
    let body = r#"{"timezone":"Mars","exclude_dates":["2026-02-30"],"windows":[]}"#;
    let refused = world.call("PUT /v1/calendars/holidays", body).await;
    assert_eq!(refused.problem(), (422, "invalid_request".into()));
    assert!(refused.text.contains("unknown field `windows`"), "{}", refused.text);
    let refused = world.call("PUT /v1/calendars/no%20blanks", "{}").await;
    assert!(refused.text.contains("1 to 63 letters"), "{}", refused.text);
    let body = format!(r#"{{"schedule":{DAILY},"target":{{"discard":{{}}}}}}"#);
    let refused = world.call("POST /v1/jobs", &body).await;
    assert_eq!(refused.problem().0, 422);
    let error = &refused.json()["errors"][0];
    assert_eq!(error["pointer"], "/schedule/calendars");
    assert!(error["detail"].as_str().unwrap().contains("calendar `holidays` not found"), "{error}");
    // In a bulk request, too, and one does not keep the others.
    let bulk = format!(r#"[{body},{{"schedule":{{"every":"1h"}},"target":{{"discard":{{}}}}}}]"#);
    let answers = world.call("POST /v1/jobs/bulk", &bulk).await.expect(200);
    assert!(answers.to_string().contains("`holidays` not found"), "{answers}");
}

#[tokio::test]
async fn a_change_plans_the_jobs_that_use_it_and_the_account_names_it() {
    let world = World::new().await;
    put(&world, "{}").await;
    let job = world.register(DAILY).await;
    let shown = world.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["schedule"]["calendars"], json!(["holidays"]));
    assert_eq!(next(&world, &job).await, "2026-01-02T09:00:00Z");
    let changed = put(&world, r#"{"exclude_dates":["2026-01-02"]}"#).await;
    let operation = format!("/v1/operations/{}", changed["operation_id"].as_str().unwrap());
    let started = world.get(&operation).await;
    assert_eq!((&started["kind"], &started["calendar"]), (&json!("replan_jobs"), &json!("holidays")));
    world.operate().await;
    world.advance(2).await; // Until then somebody may go by what it was.
    world.operate().await;
    let ended = world.get(&operation).await;
    assert_eq!((&ended["state"], &ended["done"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(next(&world, &job).await, "2026-01-03T09:00:00Z");
    let upcoming = world.get(&format!("/v1/jobs/{job}/upcoming?limit=1")).await;
    assert_eq!(upcoming["items"][0]["scheduled_for"], "2026-01-03T09:00:00Z");
    world.advance(86_400).await;
    // Changed after it was planned: it is judged when it is fired.
    put(&world, r#"{"exclude_dates":["2026-01-02","2026-01-03"]}"#).await;
    world.advance(86_400).await;
    let path = format!("/v1/jobs/{job}/ledger");
    let entry = &world.get(&path).await["items"][0];
    assert_eq!((&entry["state"], &entry["reason"]), (&json!("skipped"), &json!("calendar")));
    assert_eq!(entry["calendars"], json!(["holidays"]));
    let rows = world.get(&format!("{path}?from=2026-01-01T12:00:00Z&to=2026-01-03T12:00:00Z")).await;
    let rows = rows["items"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert!(rows.iter().all(|row| row["reason"] == "calendar" && row["calendars"] == json!(["holidays"])));
    let why = world.get(&format!("/v1/jobs/{job}/why?at=2026-01-02T09:00:00Z")).await;
    assert_eq!(why["reason"], "excluded_by_calendar");
    assert!(why["text"].as_str().unwrap().contains("(holidays)"), "{why}");
}

#[tokio::test]
async fn a_calendar_in_use_is_kept_and_says_by_whom() {
    let world = World::new().await;
    put(&world, "{}").await;
    let job = world.register(DAILY).await;
    let refused = world.call("DELETE /v1/calendars/holidays", "").await;
    assert_eq!(refused.problem(), (409, "calendar_in_use".into()));
    assert!(refused.text.contains(&format!("used by job {job}")), "{}", refused.text);
    let patch = r#"{"schedule":{"calendars":null}}"#;
    world.call(&format!("PATCH /v1/jobs/{job}"), patch).await.expect(200);
    world.call("DELETE /v1/calendars/holidays", "").await.expect(204);
}

#[tokio::test]
async fn a_job_that_its_calendars_leave_no_slot_says_so() {
    let world = World::new().await;
    put(&world, r#"{"include_dates":["2025-12-25"]}"#).await;
    let body = format!(r#"{{"schedule":{DAILY},"target":{{"discard":{{}}}}}}"#);
    let job = world.call("POST /v1/jobs", &body).await.expect(201);
    assert_eq!((&job["state"], &job["next_fire_at"]), (&json!("active"), &Value::Null));
    let warnings = job["warnings"].to_string();
    assert!(warnings.contains("(holidays) leave it no slot"), "{warnings}");
}
