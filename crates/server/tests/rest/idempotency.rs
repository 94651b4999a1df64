//! The same request twice is one request.

use punctual_domain::attempt::Outcome;

use crate::world::World;

const KEY: (&str, &str) = ("idempotency-key", "req-1");
const JOB: &str = r#"{"schedule":{"every":"PT5S"},"target":{"discard":{}}}"#;

async fn count(world: &World, path: &str) -> usize {
    world.get(path).await["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn registering_twice_registers_once_and_answers_the_same() {
    let world = World::new().await;
    let first = world.call_with("POST /v1/jobs", &[KEY], JOB).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (201, ""));
    let id = first.json()["id"].as_str().unwrap().to_string();
    world.call(&format!("PATCH /v1/jobs/{id}"), r#"{"name":"changed since"}"#).await.expect(200);
    let again = world.call_with("POST /v1/jobs", &[KEY], JOB).await;
    assert_eq!(again.status, 201);
    assert_eq!(
        (again.text.as_str(), again.header("location")),
        (first.text.as_str(), first.header("location"))
    );
    assert_eq!((again.header("etag"), again.header("idempotency-replayed")), ("\"1\"", "true"));
    assert_eq!(count(&world, "/v1/jobs").await, 1);
    let other = world.call_with("POST /v1/jobs", &[KEY], &JOB.replace("PT5S", "PT6S")).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".into()));
    world.call("POST /v1/tenants", r#"{"name":"acme"}"#).await.expect(201);
    let acme = world.call_with("POST /v1/jobs", &[KEY, ("punctual-tenant", "acme")], JOB).await.expect(201);
    assert_ne!(acme["id"], id.as_str(), "keys are the tenant's");
    world.clock.advance(jiff::SignedDuration::from_hours(25));
    let next_day = world.call_with("POST /v1/jobs", &[KEY], JOB).await.expect(201);
    assert_ne!(next_day["id"], id.as_str(), "forgotten after a day");
}

#[tokio::test]
async fn a_repeat_of_a_job_with_a_key_is_not_a_conflict() {
    let world = World::new().await;
    let body = JOB.replace("{\"schedule", "{\"key\":\"k\",\"schedule");
    let first = world.call_with("POST /v1/jobs", &[KEY], &body).await;
    let again = world.call_with("POST /v1/jobs", &[KEY], &body).await;
    assert_eq!((again.status.as_u16(), &again.text), (201, &first.text));
}

#[tokio::test]
async fn triggering_twice_is_one_run() {
    let world = World::new().await;
    let id = world.register(r#"{"every":"PT1H"}"#).await;
    let line = format!("POST /v1/jobs/{id}/trigger");
    let first = world.call_with(&line, &[KEY], "").await.expect(201);
    let again = world.call_with(&line, &[KEY], "").await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (201, "true"));
    assert_eq!(again.json()["id"], first["id"]);
    assert_eq!(count(&world, "/v1/runs").await, 1);
    let other = world.call_with(&line, &[KEY], r#"{"correlation_id":"x"}"#).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".into()));
    let elsewhere = world.call_with("POST /v1/jobs", &[KEY], JOB).await;
    assert_eq!(elsewhere.problem(), (422, "idempotency_key_reused".into()));
}

#[tokio::test]
async fn what_changes_something_is_answered_the_same_again() {
    let world = World::new().await;
    let id = world.register(r#"{"now":true}"#).await;
    world.work(Outcome::Failed).await;
    let run = world.get("/v1/runs").await["items"][0]["id"].as_str().unwrap().to_string();
    let every = world.register(r#"{"every":"PT5S"}"#).await;
    for (line, body) in [
        (format!("POST /v1/runs/{run}/retry"), "".to_string()),
        (format!("POST /v1/runs/{run}/cancel"), "".to_string()),
        (format!("POST /v1/jobs/{every}/pause"), r#"{"reason":"x"}"#.to_string()),
        (format!("POST /v1/jobs/{every}/resume"), "".to_string()),
        ("POST /v1/tenants".to_string(), r#"{"name":"acme"}"#.to_string()),
        ("POST /v1/dead-letters/acknowledge".to_string(), format!(r#"{{"runs":["{run}"]}}"#)),
        ("POST /v1/dead-letters/redrive".to_string(), r#"{"filter":{}}"#.to_string()),
    ] {
        let key = [("idempotency-key", line.split(' ').nth(1).unwrap())];
        let first = world.call_with(&line, &key, &body).await;
        assert!(first.status.is_success(), "{line}: {}", first.text);
        let again = world.call_with(&line, &key, &body).await;
        assert_eq!((again.status, &again.text), (first.status, &first.text), "{line}");
        assert_eq!(again.header("idempotency-replayed"), "true", "{line}");
    }
    assert!(!id.is_empty());
}

#[tokio::test]
async fn a_bulk_request_is_done_once_also_if_it_broke_off() {
    let world = World::new().await;
    let body = format!(r#"[{JOB},{{"name":"wrong"}},{}]"#, JOB.replace("PT5S", "PT6S"));
    let first = world.call_with("POST /v1/jobs/bulk", &[KEY], &body).await;
    let result = first.json();
    assert_eq!((&result["created"], &result["failed"]), (&2.into(), &1.into()), "{result}");
    assert_eq!((&result["items"][0]["status"], &result["items"][1]["status"]), (&201.into(), &422.into()));
    assert_eq!(result["items"][1]["problem"]["errors"][0]["pointer"], "/schedule");
    let again = world.call_with("POST /v1/jobs/bulk", &[KEY], &body).await;
    assert_eq!(again.text, first.text);
    assert_eq!(count(&world, "/v1/jobs").await, 2);
    let longer = body.replace(']', &format!(",{JOB}]"));
    let other = world.call_with("POST /v1/jobs/bulk", &[KEY], &longer).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused".into()));
}

#[tokio::test]
async fn a_key_is_one_printable_word() {
    let world = World::new().await;
    for key in ["", "two words", &"x".repeat(201)] {
        let reply = world.call_with("POST /v1/jobs", &[("idempotency-key", key)], JOB).await;
        assert_eq!(reply.json()["errors"][0]["pointer"], "Idempotency-Key", "{key}");
    }
}
