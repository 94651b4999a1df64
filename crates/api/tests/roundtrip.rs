//! What is accepted is shown as it was meant, and what is shown is accepted again.

use jiff::Timestamp;
use punctual_api::job::{Facts, Purpose, read_job};
use punctual_api::merge::patch_job;
use punctual_api::{Job, JobSpec, Rules};
use punctual_domain::id::{JobId, ShardId, TenantId, Version};
use punctual_domain::job::JobState;
use punctual_schedule::Tzdb;

/// Bodies that are accepted; the schedule is what is shown for it, if it is not the same.
const ACCEPTED: [(&str, &str); 16] = [
    (r#"{"now":true}"#, ""),
    (r#"{"at":"2026-12-24T18:00:00Z"}"#, ""),
    (r#"{"at":1798135200}"#, r#"{"at":"2026-12-24T18:00:00Z"}"#),
    (r#"{"at":1798135200.25}"#, r#"{"at":"2026-12-24T18:00:00.25Z"}"#),
    (r#"{"at":"2026-12-24T18:00:00","timezone":"Europe/Paris"}"#, ""),
    (r#"{"after":"30s"}"#, r#"{"after":"PT30S"}"#),
    (r#"{"after":"P1D"}"#, ""),
    (r#"{"every":"PT5S"}"#, ""),
    (r#"{"every":"5m","from":"completion"}"#, r#"{"every":"PT5M","from":"completion"}"#),
    (r#"{"every":"1h","phase":"250ms"}"#, r#"{"every":"PT1H","phase":"PT0.250S"}"#),
    (r#"{"interval":"R5/2026-12-01T00:00:00Z/P1D"}"#, ""),
    (r#"{"cron":"0 2 * * *"}"#, r#"{"cron":"0 2 * * *","timezone":"UTC"}"#),
    (r#"{"cron":"0 2 * * *","timezone":"Europe/Paris","dst_gap":"skip","dst_overlap":"both"}"#, ""),
    (r#"{"cron":"0 0 2 ? * 2","dialect":"quartz"}"#, r#"{"cron":"0 2 * * 1","timezone":"UTC"}"#),
    (r#"{"cron":"@daily","spread":"10m"}"#, r#"{"cron":"0 0 * * *","timezone":"UTC","spread":"PT10M"}"#),
    (r#"{"every":"PT5S","start":"2026-01-01T00:00:00Z","end":"2027-01-01T00:00:00Z","max_fires":3}"#, ""),
];

fn body(schedule: &str) -> String {
    format!(
        r#"{{"name":"nightly","schedule":{schedule},"target":{{"http":{{"url":"http://127.0.0.1:9000/hook"}}}},
            "payload":{{ "n" : 7.50,"a":[1e400] }},"retry":{{"max_attempts":3}},"labels":{{"team":"core"}}}}"#
    )
}

#[test]
fn every_kind_of_schedule_is_shown_in_its_own_words_and_accepted_again() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, shown) in ACCEPTED {
        let spec =
            read_job(&body(given), Purpose::Create, &rules).unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let wire = JobSpec::from(&spec);
        let schedule = serde_json::to_value(&wire.schedule).expect("JSON");
        let expected: serde_json::Value =
            serde_json::from_str(if shown.is_empty() { given } else { shown }).expect("JSON");
        assert_eq!(schedule, expected, "{given}");
        let text = serde_json::to_string(&wire).expect("JSON");
        assert!(text.contains(r#""payload":{ "n" : 7.50,"a":[1e400] }"#), "{text}");
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
        let client: JobSpec = serde_json::from_str(&text).expect("a client reads it");
        assert_eq!(client, wire);
        assert_eq!(client.to_spec(&rules).expect("and may send it"), spec);
    }
}

/// Policies that are accepted, and how all of them are shown.
const POLICIES: [(&str, &str); 7] = [
    (
        "",
        r#"{"retry":{"max_attempts":3,"backoff":"exponential","base":"PT1S","cap":"PT5M"},"timeout":"PT5M"}"#,
    ),
    (
        r#""retry":{"max_attempts":5,"base":"10m"}"#,
        r#"{"retry":{"max_attempts":5,"backoff":"exponential","base":"PT10M","cap":"PT10M"},"timeout":"PT5M"}"#,
    ),
    (
        r#""retry":{"backoff":"linear","cap":"1m"}"#,
        r#"{"retry":{"max_attempts":3,"backoff":"linear","base":"PT1S","cap":"PT1M"},"timeout":"PT5M"}"#,
    ),
    (
        r#""retry":{"backoff":"fixed","base":"30s","retry_for":"2h"}"#,
        r#"{"retry":{"max_attempts":3,"backoff":"fixed","base":"PT30S","retry_for":"PT2H"},"timeout":"PT5M"}"#,
    ),
    (
        r#""retry":{"delays":["10s","1m","10m"]}"#,
        r#"{"retry":{"max_attempts":4,"backoff":"list","delays":["PT10S","PT1M","PT10M"]},"timeout":"PT5M"}"#,
    ),
    (
        r#""retry":{"max_attempts":5,"backoff":"list","delays":["PT10S","PT1M"],"retry_for":"PT2H",
            "on":{"status":[409,"5XX","5xx"],"errors":["tls_failed"]},
            "not_on":{"outcomes":["timed_out"],"status":["501"]}}"#,
        r#"{"retry":{"max_attempts":5,"backoff":"list","delays":["PT10S","PT1M"],"retry_for":"PT2H",
            "on":{"status":["409","5xx"],"errors":["tls_failed"]},
            "not_on":{"outcomes":["timed_out"],"status":["501"]}},"timeout":"PT5M"}"#,
    ),
    (
        r#""start_window":"10m","timeout":"1m","deadline":"1h","min_duration":"500ms","retry":{"on":{},"not_on":{"status":[]}}"#,
        r#"{"retry":{"max_attempts":3,"backoff":"exponential","base":"PT1S","cap":"PT5M"},
            "start_window":"PT10M","timeout":"PT1M","deadline":"PT1H","min_duration":"PT0.500S"}"#,
    ),
];

#[test]
fn policies_are_shown_with_their_defaults_and_accepted_again() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, shown) in POLICIES {
        let comma = if given.is_empty() { "" } else { "," };
        let body = format!(r#"{{"schedule":{{"every":"PT5S"}},"target":{{"discard":{{}}}}{comma}{given}}}"#);
        let spec = read_job(&body, Purpose::Create, &rules).unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let wire = JobSpec::from(&spec);
        let told = serde_json::to_value(&wire).expect("JSON");
        let expected: serde_json::Value = serde_json::from_str(shown).expect("JSON");
        for member in ["retry", "start_window", "timeout", "deadline", "min_duration"] {
            assert_eq!(told.get(member), expected.get(member), "{given}");
        }
        let text = told.to_string();
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
        let client: JobSpec = serde_json::from_str(&text).expect("a client reads it");
        assert_eq!(client, wire);
    }
}

/// Every block of JSON on the page about policies is a part of a job that is accepted.
#[test]
fn the_page_about_policies_says_what_is_accepted() {
    let tzdb = Tzdb::bundled();
    let page = include_str!("../../../docs/reference/policies.md");
    let blocks: Vec<&str> =
        page.split("```json\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    assert!(blocks.len() >= 6);
    for block in blocks {
        let job =
            patch_job(r#"{"schedule":{"every":"1h"},"target":{"discard":{}}}"#, block).expect("an object");
        if let Err(wrong) = read_job(&job, Purpose::Create, &Rules::new(&tzdb)) {
            panic!("{block}: {wrong:?}");
        }
    }
}

#[test]
fn what_is_kept_is_shown_with_its_defaults_and_accepted_again() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, shown) in [
        ("", r#"{"days":7,"failures":false,"output_max":65536}"#),
        (r#""retention":{},"#, r#"{"days":7,"failures":false,"output_max":65536}"#),
        // As it was written before there was more to say.
        (r#""retention":{"days":30},"#, r#"{"days":30,"failures":false,"output_max":65536}"#),
        (r#""retention":{"failures":true},"#, r#"{"days":7,"failures":true,"output_max":65536}"#),
        (
            r#""retention":{"days":400,"failures":true,"last":1,"output_max":0},"#,
            r#"{"days":400,"failures":true,"last":1,"output_max":0}"#,
        ),
        (
            r#""retention":{"last":1000,"output_max":262144},"#,
            r#"{"days":7,"failures":false,"last":1000,"output_max":262144}"#,
        ),
    ] {
        let body = format!(r#"{{{given}"schedule":{{"every":"PT5S"}},"target":{{"discard":{{}}}}}}"#);
        let spec = read_job(&body, Purpose::Create, &rules).unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let wire = JobSpec::from(&spec);
        let told = serde_json::to_value(&wire.retention).expect("JSON");
        assert_eq!(told, serde_json::from_str::<serde_json::Value>(shown).expect("JSON"), "{given}");
        let text = serde_json::to_string(&wire).expect("JSON");
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
    }
}

#[test]
fn every_overlap_policy_is_shown_with_its_default_and_accepted_again() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, shown) in [
        ("", r#"{"policy":"allow"}"#),
        (r#""overlap":null,"#, r#"{"policy":"allow"}"#),
        (r#""overlap":{},"#, r#"{"policy":"allow"}"#),
        (r#""overlap":{"policy":"skip","max":5},"#, r#"{"policy":"skip"}"#),
        (r#""overlap":{"policy":"queue_one"},"#, r#"{"policy":"queue_one"}"#),
        (r#""overlap":{"policy":"queue_all"},"#, r#"{"policy":"queue_all","max":100}"#),
        (r#""overlap":{"policy":"queue_all","max":1000},"#, r#"{"policy":"queue_all","max":1000}"#),
        (r#""overlap":{"policy":"cancel_running"},"#, r#"{"policy":"cancel_running"}"#),
    ] {
        let body = format!(r#"{{{given}"schedule":{{"now":true}},"target":{{"discard":{{}}}}}}"#);
        let spec = read_job(&body, Purpose::Create, &rules).unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let wire = JobSpec::from(&spec);
        assert_eq!(serde_json::to_string(&wire.overlap).expect("JSON"), shown, "{given}");
        let text = serde_json::to_string(&wire).expect("JSON");
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
    }
}

#[test]
fn limits_are_shown_with_their_defaults_and_accepted_again() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, concurrency, rate) in [
        ("", "null", "null"),
        (r#""concurrency":null,"rate":null,"#, "null", "null"),
        (r#""concurrency":{"max":3},"#, r#"{"max":3,"across":"job","holds_retries":true}"#, "null"),
        (
            r#""concurrency":{"max":1,"key":"{payload.a}-{labels.b}","across":"type","holds_retries":false},"#,
            r#"{"max":1,"key":"{payload.a}-{labels.b}","across":"type","holds_retries":false}"#,
            "null",
        ),
        (r#""rate":{"limit":5},"#, "null", r#"{"limit":5,"per":"PT1S","burst":1,"across":"job"}"#),
        (
            r#""rate":{"limit":5,"per":"1m","burst":2,"key":"{labels.b}","across":"tenant"},"#,
            "null",
            r#"{"limit":5,"per":"PT1M","burst":2,"key":"{labels.b}","across":"tenant"}"#,
        ),
    ] {
        let body = format!(r#"{{{given}"schedule":{{"now":true}},"target":{{"discard":{{}}}}}}"#);
        let spec = read_job(&body, Purpose::Create, &rules).unwrap_or_else(|e| panic!("{given}: {e:?}"));
        let wire = JobSpec::from(&spec);
        assert_eq!(serde_json::to_string(&wire.concurrency).expect("JSON"), concurrency, "{given}");
        assert_eq!(serde_json::to_string(&wire.rate).expect("JSON"), rate, "{given}");
        let text = serde_json::to_string(&wire).expect("JSON");
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
    }
}

#[test]
fn a_breaker_is_off_unless_said_otherwise_and_accepted_as_it_is_shown() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    for (given, shown) in
        [("", "null"), (r#""breaker":null,"#, "null"), (r#""breaker":{"failures":5},"#, r#"{"failures":5}"#)]
    {
        let body = format!(r#"{{{given}"schedule":{{"now":true}},"target":{{"discard":{{}}}}}}"#);
        let spec = read_job(&body, Purpose::Create, &rules).expect("right");
        let wire = JobSpec::from(&spec);
        assert_eq!(serde_json::to_string(&wire.breaker).expect("JSON"), shown, "{given}");
        let text = serde_json::to_string(&wire).expect("JSON");
        assert_eq!(read_job(&text, Purpose::Create, &rules).expect("accepted again"), spec, "{given}");
    }
}

#[test]
fn a_job_that_was_read_can_be_sent_back_as_a_change() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    let spec = read_job(&body(r#"{"every":"PT5S"}"#), Purpose::Create, &rules).expect("right");
    let now = Timestamp::from_second(1_800_000_000).expect("in range");
    let job = punctual_domain::Job {
        id: JobId::new(now, ShardId(3), 1),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec: spec.clone(),
        created_at: now,
        updated_at: now,
        carried: None,
        changes: Vec::new(),
    };
    let facts = Facts {
        tenant: "default",
        next_fire_at: Some(now),
        warnings: vec!["careful".into()],
        ..Facts::default()
    };
    let shown = Job::new(&job, facts);
    let text = serde_json::to_string(&shown).expect("JSON");
    assert!(text.contains(r#""state":"active""#) && text.contains(r#""name":"nightly""#), "{text}");
    assert_eq!(serde_json::from_str::<Job>(&text).expect("a client reads it"), shown);
    assert_eq!(read_job(&text, Purpose::Change, &rules).expect("sent back"), spec);
    assert!(read_job(&text, Purpose::Create, &rules).is_err(), "but not as a new one");
}
