//! Alerts: set, read, listed and taken away; and what is raised.

use punctual_domain::attempt::Outcome;
use punctual_engine::unwell::Rounds;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn an_alert_is_set_shown_changed_and_deleted() {
    let world = World::new().await;
    let alert = json!({
        "on": "late", "over": "5m", "jobs": {"queue": "mail", "labels": {"team": "core"}},
        "to": {"mail": {"to": ["ops@example.com"]}}
    });
    let set = world.call("PUT /v1/alerts/pager", &alert.to_string()).await.expect(201);
    let expected = json!({
        "name": "pager", "on": "late", "over": "PT5M", "jobs": {"queue": "mail", "labels": {"team": "core"}},
        "to": {"mail": {"to": ["ops@example.com"]}}, "repeat_every": "PT1H"
    });
    assert_eq!(set, expected);
    assert_eq!(world.get("/v1/alerts/pager").await, expected);
    assert_eq!(world.get("/v1/alerts").await["items"], json!([expected]));
    let other = json!({"on": "silent", "for": "24h", "to": {"slack": {"url": "http://127.0.0.1:9/x"}}});
    let changed = world.call("PUT /v1/alerts/pager", &other.to_string()).await.expect(200);
    assert_eq!((&changed["for"], changed.get("over"), changed.get("jobs")), (&"PT24H".into(), None, None));
    assert_eq!(world.call("DELETE /v1/alerts/pager", "").await.status, 204);
    for line in ["DELETE /v1/alerts/pager", "GET /v1/alerts/pager"] {
        assert_eq!(world.call(line, "").await.problem(), (404, "alert_not_found".into()), "{line}");
    }
}

#[tokio::test]
async fn every_wrong_field_of_an_alert_is_named() {
    let world = World::new().await;
    let slack = json!({"slack": {"url": "http://127.0.0.1:9/x"}});
    for (body, expected) in [
        (json!({}), vec![("/on", "missing_field"), ("/to", "missing_field")]),
        (json!({"on": "dead", "to": slack}), vec![("/on", "unknown_value")]),
        (json!({"on": "late", "to": slack}), vec![("/over", "missing_field")]),
        (json!({"on": "missed", "for": "1m", "to": slack}), vec![("/for", "conflict")]),
        (json!({"on": "silent", "for": "1ms", "to": slack}), vec![("/for", "out_of_range")]),
        (json!({"on": "missed", "to": {}}), vec![("/to", "missing_field")]),
        (json!({"on": "missed", "to": {"webhook": {"url": "x"}}}), vec![("/to/webhook/url", "target_url")]),
        (
            json!({"on": "missed", "to": {"webhook": {"url": "http://169.254.0.1/"}}}),
            vec![("/to/webhook/url", "target_refused")],
        ),
        (
            json!({"on": "missed", "to": {"mail": {"to": ["ops"]}}, "jobs": {"id": "x"}}),
            vec![("/jobs/id", "job_id"), ("/to/mail/to/0", "address")],
        ),
        (
            json!({"on": "missed", "to": slack, "repeat_every": "1ms"}),
            vec![("/repeat_every", "out_of_range")],
        ),
    ] {
        let refused = world.call("PUT /v1/alerts/pager", &body.to_string()).await.expect(422);
        let wrong: Vec<(&str, &str)> = refused["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["pointer"].as_str().unwrap(), one["code"].as_str().unwrap()))
            .collect();
        assert_eq!(wrong, expected, "{body}: {refused}");
    }
}

#[tokio::test]
async fn what_is_raised_is_listed_until_it_is_over() {
    let world = World::new().await;
    let alert = json!({"on": "dead_letter", "to": {"webhook": {"url": "http://127.0.0.1:9/x"}}});
    world.call("PUT /v1/alerts/pager", &alert.to_string()).await.expect(201);
    assert_eq!(world.get("/v1/alarms").await["items"], json!([]));
    let job = world.register(r#"{"now":true}"#).await;
    world.work(Outcome::Failed).await;
    let mut rounds = Rounds::default();
    world.look_after_alarms(&mut rounds).await;
    let alarms = world.get("/v1/alarms").await;
    let alarm = &alarms["items"][0];
    assert_eq!((&alarm["alert"], &alarm["on"]), (&"pager".into(), &"dead_letter".into()), "{alarms}");
    assert_eq!(
        (alarm["job"].as_str(), &alarm["count"], &alarm["told"]),
        (Some(job.as_str()), &1.into(), &1.into())
    );
    let messages = world.get("/v1/jobs?type=system.alert").await;
    assert_eq!(messages["items"][0]["payload"]["state"], "raised", "{messages}");
    world
        .call(
            "POST /v1/dead-letters/acknowledge",
            &json!({"runs": [world.get("/v1/dead-letters").await["items"][0]["id"]]}).to_string(),
        )
        .await
        .expect(200);
    world.clock.advance(jiff::SignedDuration::from_secs(10));
    world.look_after_alarms(&mut rounds).await;
    assert_eq!(world.get("/v1/alarms").await["items"], json!([]));
}

#[tokio::test]
async fn alarms_are_listed_in_pages() {
    let world = World::new().await;
    let alert = json!({"on": "dead_letter", "to": {"webhook": {"url": "http://127.0.0.1:9/x"}}});
    world.call("PUT /v1/alerts/pager", &alert.to_string()).await.expect(201);
    for _ in 0..5 {
        world.register(r#"{"now":true}"#).await;
    }
    world.work(Outcome::Failed).await;
    world.look_after_alarms(&mut Rounds::default()).await;
    let (mut seen, mut path) = (Vec::new(), "/v1/alarms?limit=2".to_string());
    loop {
        let page = world.get(&path).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(|alarm| alarm["job"].to_string()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/alarms?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
    assert_eq!(world.call("GET /v1/alarms?cursor=AQ", "").await.problem().0, 422);
}
