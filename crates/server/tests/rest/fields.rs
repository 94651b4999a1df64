//! What is asked for and told beside the body: fields, versions, rates, the page of the document.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn a_job_and_a_list_of_jobs_are_narrowed_to_the_fields_that_are_asked_for() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"1h"}"#).await;
    let job = world.get(&format!("/v1/jobs/{id}?fields=name,id")).await;
    assert_eq!(job, json!({"id": id, "name": "job"}));
    let list = world.get("/v1/jobs?fields=id&limit=1").await;
    assert_eq!(list, json!({"items": [{"id": id}], "next_cursor": Value::Null}));
    let whole = world.get(&format!("/v1/jobs/{id}?fields=")).await;
    assert!(whole["schedule"].is_object(), "nothing asked for is everything");
    let reply = world.call(&format!("GET /v1/jobs/{id}?fields=id"), "").await;
    assert_eq!(reply.header("etag"), "\"1\"", "it is the version of the job all the same");
}

#[tokio::test]
async fn an_unknown_field_names_the_nearest_known_one_and_so_does_every_other() {
    let world = World::new().await;
    let refused = world.call("GET /v1/jobs?fields=nam,id,stat&stat=x", "").await.expect(422);
    let said: Vec<&str> =
        refused["errors"].as_array().unwrap().iter().map(|error| error["detail"].as_str().unwrap()).collect();
    assert_eq!(
        said,
        [
            "unknown field `nam`; did you mean `name`?",
            "unknown field `stat`; did you mean `state`?",
            "unknown parameter `stat`; did you mean `state`?"
        ]
    );
    // What is not there is told whole.
    let nothing = world.call("GET /v1/jobs/7?fields=id", "").await;
    assert_eq!(nothing.problem(), (404, "job_not_found".into()));
    assert_eq!(world.call("POST /v1/jobs?fields=id", "{}").await.problem().0, 422, "only what is read");
}

#[tokio::test]
async fn alerts_limits_and_defaults_are_changed_only_by_who_saw_the_last_version() {
    let world = World::new().await;
    let alert = |on: &str| json!({"on": on, "to": {"slack": {"url": "http://127.0.0.1:9/x"}}}).to_string();
    let cases = [
        ("/v1/alerts/pager", alert("missed"), alert("dead_letter")),
        ("/v1/limits/mail", r#"{"max":1}"#.into(), r#"{"max":2}"#.into()),
        ("/v1/tenants/default/defaults", r#"{"timeout":"1m"}"#.into(), r#"{"timeout":"2m"}"#.into()),
    ];
    for (path, one, other) in cases {
        let put = |etag: &'static str, body: String| {
            let world = &world;
            async move { world.call_with(&format!("PUT {path}"), &[("if-match", etag)], &body).await }
        };
        if !path.ends_with("defaults") {
            assert_eq!(
                put("\"1\"", one.clone()).await.problem(),
                (412, "version_conflict".into()),
                "{path}: none is there"
            );
        }
        let made = world.call(&format!("PUT {path}"), &one).await;
        assert!(made.status.is_success() && made.header("etag") == "\"1\"", "{path}: {}", made.text);
        let read = world.call(&format!("GET {path}"), "").await;
        assert_eq!(read.header("etag"), "\"1\"", "{path}");
        let same = world.call_with(&format!("GET {path}"), &[("if-none-match", "\"1\"")], "").await;
        assert_eq!((same.status.as_u16(), same.text.as_str()), (304, ""), "{path}");
        let changed = put("\"1\"", other.clone()).await;
        assert_eq!(
            (changed.status.as_u16(), changed.header("etag")),
            (200, "\"2\""),
            "{path}: {}",
            changed.text
        );
        assert_eq!(put("\"1\"", one).await.problem(), (412, "version_conflict".into()), "{path}");
        let delete = format!("DELETE {path}");
        let stale = world.call_with(&delete, &[("if-match", "\"1\"")], "").await;
        assert_eq!(stale.problem(), (412, "version_conflict".into()), "{path}");
        assert_eq!(world.call_with(&delete, &[("if-match", "\"2\"")], "").await.status, 204, "{path}");
    }
}

#[tokio::test]
async fn who_asks_too_often_is_told_what_is_left_and_when_to_come_back() {
    let world = World::of_rate(3).await;
    for left in ["2", "1", "0"] {
        let reply = world.call("GET /v1/jobs", "").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("ratelimit"), format!("\"requests\";r={left};t=1"));
        assert_eq!(reply.header("ratelimit-policy"), "\"requests\";q=3;w=1");
    }
    let refused = world.call("GET /v1/jobs", "").await;
    assert_eq!(refused.problem(), (429, "rate_limited".into()));
    assert_eq!((refused.header("retry-after"), refused.header("ratelimit")), ("1", "\"requests\";r=0;t=1"));
    assert_eq!(world.call("GET /readyz", "").await.status, 200, "probes are not counted");
    world.clock.advance(SignedDuration::from_millis(334));
    assert_eq!(world.call("GET /v1/jobs", "").await.status, 200);
    let unlimited = World::new().await.call("GET /v1/jobs", "").await;
    assert_eq!(unlimited.header("ratelimit"), "");
}

#[tokio::test]
async fn the_document_is_shown_as_a_page_that_runs_nothing() {
    let world = World::new().await;
    let page = world.call("GET /docs", "").await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'self'"), "{policy}");
    for said in ["/v1/jobs/{id}/trigger", "Runs a job now", "href=\"#JobSpec\"", "id=\"JobSpec\""] {
        assert!(page.text.contains(said), "{said}");
    }
    assert!(!page.text.contains("<script"));
    assert_eq!(world.call("GET /docs/style.css", "").await.header("content-type"), "text/css; charset=utf-8");
}

#[tokio::test]
async fn a_path_that_is_no_text_names_nothing() {
    let world = World::new().await;
    assert_eq!(world.call("GET /v1/alerts/%ff", "").await.problem(), (404, "route_not_found".into()));
}
