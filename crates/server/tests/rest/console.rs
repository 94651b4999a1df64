//! The console as a browser meets it: pages over the reference store. One test per page and per promise of the gate.

use http::StatusCode;
use punctual_domain::attempt::Outcome;
use punctual_server::{Needs, PAGES, Role, TABLE};
use serde_json::{Value, json};

use crate::world::{Reply, World};

/// What somebody writes who wants a browser to do something else.
const HOSTILE: &str = r#""><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}"#;

/// Headers of a form that one of our own pages sends.
const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn page(world: &World, path: &str) -> String {
    let reply = world.call(&format!("GET {path}"), "").await;
    assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
    well_formed(path, &reply);
    reply.text
}

/// What every page promises, whatever is on it.
fn well_formed(path: &str, reply: &Reply) {
    assert_eq!(reply.header("content-type"), "text/html; charset=utf-8", "{path}");
    let policy = reply.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
    assert!(
        policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"),
        "{path}: {policy}"
    );
    assert_eq!(
        (reply.header("x-frame-options"), reply.header("cache-control")),
        ("DENY", "no-store"),
        "{path}"
    );
    let text = &reply.text;
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"), "{path}: {text}");
    for wrong in [" style=", "onclick=", "javascript:", "<script>", "<img"] {
        assert!(!text.contains(wrong), "{path} has {wrong}: {text}");
    }
    for once in ["<h1", "<main", "id=\"main\"", "</title>\n<link"] {
        assert_eq!(text.matches(once).count(), 1, "{path}: {once}");
    }
}

/// Sends a form as one of our own pages does.
async fn send(world: &World, path: &str, form: &str) -> Reply {
    let headers = [OURS, ("content-type", "application/x-www-form-urlencoded")];
    world.call_with(&format!("POST {path}"), &headers, form).await
}

/// Where a form goes on.
async fn sent(world: &World, path: &str, form: &str) -> String {
    let reply = send(world, path, form).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{path}: {}", reply.text);
    reply.header("location").to_string()
}

/// A job whose every text is hostile; its id.
async fn hostile(world: &World, schedule: Value) -> String {
    let body = json!({
        "name": HOSTILE,
        "labels": {"team": HOSTILE},
        "schedule": schedule,
        "target": {"http": {"url": "http://127.0.0.1:9/<b>"}},
        "payload": {"text": HOSTILE},
    });
    let job = world.call("POST /v1/jobs", &body.to_string()).await;
    if job.status == StatusCode::CREATED {
        return job.json()["id"].as_str().unwrap().to_string();
    }
    // A URL may be refused; names and payloads are what this is about.
    let body = json!({"name": HOSTILE, "labels": {"team": HOSTILE}, "schedule": schedule, "target": {"discard": {}}, "payload": {"text": HOSTILE}});
    world.call("POST /v1/jobs", &body.to_string()).await.expect(201)["id"].as_str().unwrap().to_string()
}

/// The only run of a job.
async fn run_of(world: &World, job: &str) -> String {
    let runs = world.get(&format!("/v1/jobs/{job}/runs")).await;
    runs["items"][0]["id"].as_str().unwrap().to_string()
}

/// A world with a job that failed for good, and its job and run.
async fn failed() -> (World, String, String) {
    let world = World::new().await;
    let job = hostile(&world, json!({"every": "PT1M"})).await;
    world.advance(60).await;
    assert_eq!(world.work(Outcome::Failed).await, 1);
    let run = run_of(&world, &job).await;
    (world, job, run)
}

#[tokio::test]
async fn the_root_goes_to_the_console_and_an_empty_one_offers_a_first_job() {
    let world = World::new().await;
    let root = world.call("GET /", "").await;
    assert_eq!((root.status, root.header("location")), (StatusCode::SEE_OTHER, "/console"));
    let text = page(&world, "/console").await;
    assert!(
        text.contains("Nothing is scheduled yet")
            && text.contains("curl -X POST http://127.0.0.1:8080/v1/jobs"),
        "{text}"
    );
    let to = sent(
        &world,
        "/console/jobs",
        "name=Hello&kind=every&every=10s&target=http&url=http%3A%2F%2Fa.example&do=create",
    )
    .await;
    assert!(to.starts_with("/console/jobs/") && to.ends_with("?done=created"), "{to}");
    let text = page(&world, &to).await;
    assert!(text.contains("<h1>Hello</h1>") && text.contains("The job is registered."), "{text}");
}

#[tokio::test]
async fn every_page_is_there_for_an_admin_and_has_the_same_data_for_programs() {
    let (world, job, run) = failed().await;
    for endpoint in PAGES.iter().filter(|page| page.method == "GET" && page.needs != Needs::Nothing) {
        if endpoint.path == "/console/live" || endpoint.path.contains("{*") {
            continue;
        }
        let id = if endpoint.path.starts_with("/console/jobs/") { &job } else { &run };
        let path = endpoint.path.replace("{id}", id);
        let text = page(&world, &path).await;
        let is_told = text.contains("GET /v1/") && text.contains("id=\"cli\">punctual ");
        assert!(is_told, "{path} says no command and no address: {text}");
    }
}

/// Whether a link or a form leads to a row of a table.
fn leads(method: &str, address: &str) -> bool {
    let path = address.split(['?', '#']).next().unwrap();
    let fits = |row: &str| {
        let (row, path): (Vec<&str>, Vec<&str>) = (row.split('/').collect(), path.split('/').collect());
        row.len() == path.len()
            && row.iter().zip(&path).all(|(row, part)| row.starts_with('{') || row == part)
    };
    PAGES.iter().chain(TABLE).any(|row| row.method == method && !row.path.contains("{*") && fits(row.path))
}

#[tokio::test]
async fn every_link_and_every_form_leads_to_a_row_of_a_table() {
    let (world, job, run) = failed().await;
    let paths =
        ["", "/jobs", "/runs", "/dead-letters", "/forecast", "/queues", "/workers", "/nodes", "/operations"];
    let more = ["/calendars", "/alerts", "/keys", "/tenants", "/settings", "/new-job", "/find"];
    let own = [format!("/jobs/{job}"), format!("/jobs/{job}/edit"), format!("/runs/{run}")];
    let all = paths.iter().chain(&more).map(|path| (*path).to_string()).chain(own);
    let mut links = 0;
    for path in all {
        let text = page(&world, &format!("/console{path}")).await;
        for (before, method) in [("href=\"/", "GET"), ("method=\"post\" action=\"/", "POST")] {
            for found in text.split(before).skip(1) {
                let address = format!("/{}", found.split('"').next().unwrap());
                assert!(leads(method, &address), "{path}: {method} {address} leads nowhere");
                links += 1;
            }
        }
    }
    assert!(links > 200, "{links} links");
}

#[tokio::test]
async fn whatever_somebody_wrote_is_shown_and_never_done() {
    let (world, job, run) = failed().await;
    let paths = [
        "/console".to_string(),
        "/console/jobs".into(),
        format!("/console/jobs/{job}"),
        format!("/console/runs/{run}"),
        "/console/runs".into(),
        "/console/dead-letters".into(),
        "/console/find?q=script".into(),
        format!("/console/new-job?from={job}"),
        format!("/console/jobs?name={}", "%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
        "/console/jobs?queue=%22%3E%3Cscript%3E".into(),
    ];
    for path in paths {
        let text = page(&world, &path).await;
        assert!(!text.contains("<script>alert") && !text.contains("<img src=x"), "{path}: {text}");
        assert!(!text.contains("'49"), "{path} is evaluated twice: {text}");
    }
    let text = page(&world, &format!("/console/jobs/{job}")).await;
    assert!(text.contains("&#60;script&#62;") || text.contains("&lt;script&gt;"), "{text}");
}

#[tokio::test]
async fn jobs_are_found_by_the_filter_in_the_address_and_go_on_by_a_cursor() {
    let world = World::new().await;
    for number in 0..30 {
        let body =
            format!(r#"{{"name":"job {number}","schedule":{{"every":"PT1H"}},"target":{{"discard":{{}}}}}}"#);
        world.call("POST /v1/jobs", &body).await.expect(201);
    }
    let text = page(&world, "/console/jobs").await;
    assert_eq!(text.matches("class=\"name\"").count(), 25, "{text}");
    let next = text.split("href=\"/console/jobs?cursor=").nth(1).unwrap().split('"').next().unwrap();
    let text = page(&world, &format!("/console/jobs?cursor={next}")).await;
    assert_eq!(text.matches("class=\"name\"").count(), 5, "{text}");
    let text = page(&world, "/console/jobs?name=job+7").await;
    assert!(text.matches("class=\"name\"").count() == 1 && text.contains("value=\"job 7\""), "{text}");
    let text = page(&world, "/console/jobs?state=paused").await;
    assert!(text.contains("No job on this page matches"), "{text}");
    let wrong = world.call("GET /console/jobs?state=asleep", "").await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    well_formed("a wrong filter", &wrong);
}

#[tokio::test]
async fn a_job_is_paused_with_a_reason_resumed_triggered_and_deleted() {
    let world = World::new().await;
    let id = world.register(r#"{"cron":"30 2 * * *","timezone":"Europe/Berlin"}"#).await;
    let path = format!("/console/jobs/{id}");
    let text = page(&world, &path).await;
    assert!(
        text.contains("02:30") && text.contains("Next slots") && text.contains("class=\"default\""),
        "{text}"
    );
    let to = sent(&world, &format!("{path}/pause"), "reason=Maintenance+%26+tea&until=").await;
    let text = page(&world, &to).await;
    assert!(text.contains("Maintenance &#38; tea") || text.contains("Maintenance &amp; tea"), "{text}");
    assert!(text.contains(&format!("{path}/resume")) && !text.contains(&format!("{path}/pause")), "{text}");
    sent(&world, &format!("{path}/resume"), "").await;
    let run = sent(&world, &format!("{path}/trigger"), "").await;
    assert!(run.starts_with("/console/runs/") && run.ends_with("?done=triggered"), "{run}");
    assert!(page(&world, &run).await.contains("The run is on its way."));
    let text = page(&world, &format!("{path}?at=2025-12-31T02:30")).await;
    assert!(text.contains("class=\"explain\""), "{text}");
    assert_eq!(sent(&world, &format!("{path}/delete"), "").await, "/console/jobs?done=deleted");
    assert_eq!(world.call(&format!("GET {path}"), "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_run_tells_its_attempts_its_error_and_what_came_back_and_can_be_redriven() {
    let (world, _, run) = failed().await;
    let text = page(&world, &format!("/console/runs/{run}")).await;
    for told in
        ["the target answered 500", "hello", "Attempt 1", "connect 1.5 ms", "Idempotency key", "Redrive"]
    {
        assert!(text.contains(told), "{told}: {text}");
    }
    let to = sent(&world, &format!("/console/runs/{run}/retry"), "").await;
    let text = page(&world, &to).await;
    assert!(text.contains("The run goes on with its next attempt.") && text.contains("pending"), "{text}");
    sent(&world, &format!("/console/runs/{run}/cancel"), "").await;
    let text = page(&world, &format!("/console/runs/{run}")).await;
    assert!(text.contains("Somebody cancelled it."), "{text}");
}

#[tokio::test]
async fn dead_letters_are_grouped_and_a_group_is_redriven_as_an_operation() {
    let (world, _, run) = failed().await;
    let text = page(&world, "/console/dead-letters").await;
    assert!(
        text.contains("http_status") && text.contains(&run) && text.contains("Redrive all http_status"),
        "{text}"
    );
    let to = sent(&world, "/console/dead-letters/redrive", "error=http_status").await;
    assert_eq!(to, "/console/dead-letters?done=started");
    world.operate().await;
    assert!(page(&world, "/console/dead-letters").await.contains("Nothing waits for you"));
    assert!(page(&world, "/console/operations").await.contains("redrive"));
}

#[tokio::test]
async fn a_new_job_is_explained_before_it_is_made_and_what_is_wrong_is_said_beside_it() {
    let world = World::new().await;
    // The schedule is told before anything else is said.
    assert!(page(&world, "/console/new-job").await.contains("explain-words"));
    let form = "name=n&kind=cron&cron=30+2+*+*+*&timezone=Europe%2FBerlin&target=http&url=http%3A%2F%2Fa.example%2Fx";
    let reply = send(&world, "/console/jobs", &format!("{form}&do=preview")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert!(
        reply.text.contains("explain-words") && reply.text.contains("POST http://a.example/x"),
        "{}",
        reply.text
    );
    assert!(world.get("/v1/jobs").await["items"].as_array().unwrap().is_empty());
    let reply = send(
        &world,
        "/console/jobs",
        "name=n&kind=cron&cron=99+*+*+*+*&target=http&url=nowhere&payload=%7Ba&do=create",
    )
    .await;
    assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY);
    well_formed("a wrong form", &reply);
    assert!(reply.text.contains("/payload") && reply.text.contains("value=\"99 * * * *\""), "{}", reply.text);
    let to = sent(&world, "/console/jobs", &format!("{form}&payload=%7B%22a%22%3A1%7D&do=create")).await;
    let id = to.trim_start_matches("/console/jobs/").trim_end_matches("?done=created").to_string();
    assert_eq!(world.get(&format!("/v1/jobs/{id}")).await["payload"], json!({"a": 1}));
}

#[tokio::test]
async fn a_job_is_edited_with_what_changes_in_view_and_not_over_somebody_elses_change() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    let path = format!("/console/jobs/{id}/edit");
    assert!(page(&world, &path).await.contains("Nothing yet."));
    let form = "version=1&name=job&kind=cron&cron=30+2+*+*+*&timezone=UTC&target=discard&labels=team%3Dtea";
    let reply = send(&world, &path, &format!("{form}&do=preview")).await;
    assert!(reply.text.contains("class=\"del\"") && reply.text.contains("30 2 * * *"), "{}", reply.text);
    assert_eq!(
        sent(&world, &path, &format!("{form}&do=save")).await,
        format!("/console/jobs/{id}?done=saved")
    );
    let job = world.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!((&job["schedule"]["cron"], &job["labels"]["team"]), (&json!("30 2 * * *"), &json!("tea")));
    assert_eq!(job["schedule"]["every"], Value::Null);
    let stale = send(&world, &path, &format!("{form}&do=save")).await;
    assert_eq!(stale.status, StatusCode::PRECONDITION_FAILED, "{}", stale.text);
}

#[tokio::test]
async fn many_jobs_are_paused_after_somebody_saw_how_many() {
    let world = World::new().await;
    for _ in 0..3 {
        world.register(r#"{"every":"PT1H"}"#).await;
    }
    let reply = send(&world, "/console/jobs/bulk", "state=active&deed=pause&reason=tea").await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert!(reply.text.contains("pause 3 jobs?"), "{}", reply.text);
    let to = sent(&world, "/console/jobs/bulk", "state=active&deed=pause&reason=tea&confirm=yes").await;
    assert_eq!(to, "/console/operations?done=started");
    world.operate().await;
    assert_eq!(page(&world, "/console/jobs?state=paused").await.matches("class=\"name\"").count(), 3);
}

#[tokio::test]
async fn a_form_from_elsewhere_is_refused_and_changes_nothing() {
    let world = World::of_role(Role::Admin, None).await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    let line = format!("POST /console/jobs/{id}/delete");
    let strangers: [&[(&str, &str)]; 5] = [
        &[],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
    ];
    for headers in strangers {
        let reply = world.call_with(&line, headers, "").await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{headers:?}: {}", reply.text);
        well_formed("a refused form", &reply);
    }
    world.get(&format!("/v1/jobs/{id}")).await;
    let ours = world.call_with(&line, &[("origin", "http://127.0.0.1:8080")], "").await;
    assert_eq!(ours.status, StatusCode::SEE_OTHER, "{}", ours.text);
}

#[tokio::test]
async fn a_viewer_sees_no_button_that_would_be_refused_and_is_refused_what_has_none() {
    let world = World::of_role(Role::Viewer, None).await;
    for path in ["/console", "/console/jobs", "/console/runs", "/console/dead-letters", "/console/forecast"] {
        let text = page(&world, path).await;
        assert!(
            !text.contains("method=\"post\" action=\"/console/jobs") && !text.contains("/console/new-job"),
            "{path}: {text}"
        );
        assert!(!text.contains("/console/keys") && !text.contains("/console/nodes"), "{path}: {text}");
    }
    for endpoint in PAGES {
        let path: Vec<&str> =
            endpoint.path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        let reply = world.call_with(&format!("{} {}", endpoint.method, path.join("/")), &[OURS], "").await;
        let is_refused = reply.status == StatusCode::FORBIDDEN;
        assert_eq!(is_refused, !endpoint.needs.met_by(Role::Viewer), "{}: {}", endpoint.path, reply.text);
    }
}

#[tokio::test]
async fn with_keys_somebody_signs_in_once_and_the_session_ends_with_its_key() {
    let world = World::of_keys().await;
    let made = world.call("POST /v1/keys", r#"{"name":"ops","role":"admin"}"#).await.expect(201);
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let away = world.call("GET /console/jobs?name=a", "").await;
    assert_eq!(away.status, StatusCode::SEE_OTHER);
    assert_eq!(away.header("location"), "/console/sign-in?to=%2Fconsole%2Fjobs%3Fname%3Da");
    let wrong = send(&world, "/console/sign-in", "key=pk_nonsense&to=%2Fconsole").await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    well_formed("a wrong key", &wrong);
    let reply = send(&world, "/console/sign-in", &format!("key={key}&to=%2Fconsole%2Fjobs")).await;
    assert_eq!(
        (reply.status, reply.header("location")),
        (StatusCode::SEE_OTHER, "/console/jobs"),
        "{}",
        reply.text
    );
    let cookie = reply.header("set-cookie").to_string();
    let (session, rest) = cookie.split_once(';').unwrap();
    assert!(
        rest.contains("HttpOnly") && rest.contains("SameSite=Strict") && rest.contains("Path=/console"),
        "{cookie}"
    );
    assert!(!cookie.contains(&key[20..]), "the secret is in the cookie: {cookie}");
    let look =
        async |session: &str, line: &str| world.call_with(line, &[("cookie", session)], "").await.status;
    assert_eq!(look(session, "GET /console/jobs").await, StatusCode::OK);
    // REST takes no cookies.
    assert_eq!(look(session, "GET /v1/jobs").await, StatusCode::UNAUTHORIZED);
    let last = session.chars().last().unwrap();
    let forged = format!("{}{}", &session[..session.len() - 1], if last == '0' { '1' } else { '0' });
    assert_eq!(look(&forged, "GET /console/jobs").await, StatusCode::SEE_OTHER);
    let bearer = format!("Bearer {key}");
    world.call_with(&format!("DELETE /v1/keys/{id}"), &[("authorization", &bearer)], "").await.expect(204);
    assert_eq!(look(session, "GET /console/jobs").await, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_session_is_over_after_half_a_day() {
    let world = World::of_keys().await;
    let made = world.call("POST /v1/keys", r#"{"name":"ops","role":"admin"}"#).await.expect(201);
    let form = format!("key={}&to=", made["key"].as_str().unwrap());
    let reply = send(&world, "/console/sign-in", &form).await;
    let session = reply.header("set-cookie").split(';').next().unwrap().to_string();
    let look = async || world.call_with("GET /console", &[("cookie", &session)], "").await.status;
    assert_eq!(look().await, StatusCode::OK);
    world.clock.advance(jiff::SignedDuration::from_hours(12));
    assert_eq!(look().await, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_key_is_shown_once_and_no_page_shows_it_again() {
    let world = World::of_keys().await;
    let reply = send(&world, "/console/keys", "name=first&role=admin").await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let key = reply
        .text
        .split("id=\"new-key\" tabindex=\"0\">")
        .nth(1)
        .unwrap()
        .split('<')
        .next()
        .unwrap()
        .to_string();
    assert!(key.starts_with("pk_"), "{key}");
    let signed = send(&world, "/console/sign-in", &format!("key={key}&to=")).await;
    let session = signed.header("set-cookie").split(';').next().unwrap().to_string();
    let keys = world.call_with("GET /console/keys", &[("cookie", &session)], "").await;
    assert!(keys.text.contains("first") && !keys.text.contains(&key), "{}", keys.text);
}

#[tokio::test]
async fn what_browsers_keep_is_named_by_its_content() {
    let world = World::new().await;
    let text = page(&world, "/console").await;
    for (before, kind) in
        [("href=\"/console/assets/", "text/css"), ("src=\"/console/assets/", "text/javascript")]
    {
        let name = text.split(before).nth(1).unwrap().split('"').next().unwrap();
        let reply = world.call(&format!("GET /console/assets/{name}"), "").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(
            reply.header("content-type").starts_with(kind)
                && reply.header("cache-control").contains("immutable")
        );
    }
    assert_eq!(world.call("GET /console/assets/console.css", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_not_there_is_a_page_that_says_so() {
    let world = World::new().await;
    for path in ["/console/nothing", "/console/jobs/x", "/console/runs/x", "/console/a/b/c/d"] {
        let reply = world.call(&format!("GET {path}"), "").await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        well_formed(path, &reply);
        assert!(reply.text.contains("Not there") && reply.text.contains("To the overview"), "{}", reply.text);
    }
}

#[tokio::test]
async fn times_are_shown_in_the_zone_that_somebody_chose() {
    let world = World::new().await;
    let reply = send(&world, "/console/look", "zone=Asia%2FTokyo&to=%2Fconsole%2Fsettings").await;
    assert_eq!(reply.header("location"), "/console/settings");
    let cookie = reply.header("set-cookie").split(';').next().unwrap().to_string();
    let settings = world.call_with("GET /console/settings", &[("cookie", &cookie)], "").await.text;
    assert!(settings.contains("Asia/Tokyo") && settings.contains("21:00:00"), "{settings}");
    let wrong = send(&world, "/console/look", "zone=Nowhere").await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_page_is_told_by_a_stream_when_it_has_changed() {
    let world = World::new().await;
    let headers =
        world.head(crate::world::request("GET /console/live?of=jobs", &[], axum::body::Body::empty())).await;
    assert_eq!(headers["content-type"], "text/event-stream");
    let reply = world.call("GET /console/live?of=secrets", "").await;
    assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[test]
fn only_drawings_are_written_as_they_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/console/templates");
    let drawn = ["row.strip", "strip", "chart", "late.scale", "hour", "attempt.bar", "day", "weeks"];
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for before in text.split("|safe").take(text.matches("|safe").count()) {
            let name = before.rsplit("{{").next().unwrap().trim();
            assert!(drawn.contains(&name), "{}: {name} is not escaped", path.display());
        }
    }
}
