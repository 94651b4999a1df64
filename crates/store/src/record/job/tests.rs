//! Jobs that are written and read back, also as they were written before.

use std::num::NonZeroU32;

use punctual_domain::policy::limit::{Across, Concurrency, Rate, RateLimit};

use super::*;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Outcome;
use punctual_domain::ShardId;
use punctual_domain::policy::Policies;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::completion::Completion;
use punctual_domain::policy::failures::Failures;
use punctual_domain::policy::failures::Status;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::policy::retention::{Keep, Policy as RetentionPolicy, Retention};
use punctual_domain::policy::retry::{Backoff, Retry};
use punctual_domain::policy::timeouts::Timeouts;

use super::super::policies::defaults;

fn job() -> Job {
    let at = Timestamp::from_millisecond(1_800_000_000_123).expect("in range");
    Job {
        id: JobId::new(at, ShardId(7), 1),
        tenant: TenantId(3),
        version: Version(4),
        state: JobState::Active,
        spec: Spec::new("plain", Schedule::parse("@every 5s").expect("valid"), Target::Discard),
        created_at: at,
        updated_at: at,
        carried: None,
        changes: Vec::new(),
    }
}

fn full() -> Job {
    let mut job = job();
    job.state = JobState::Paused(Pause {
        reason: Some("because".into()),
        by: Some("me".into()),
        since: job.created_at,
        until: Some(job.created_at),
    });
    job.spec.key = Some("k".into());
    job.spec.kind = Some("report".into());
    job.spec.labels.insert("a".into(), "b".into());
    job.spec.requires = "zone=eu,gpu=true".parse().expect("labels");
    job.spec.lane = Lane::Critical;
    job.spec.priority = -7;
    job.spec.schedule = Schedule::parse("30 2 * * MON-FRI").expect("valid");
    job.spec.schedule.timezone = "Europe/Paris".into();
    job.spec.schedule.dst = dst::Policy { gap: dst::Gap::Shift, overlap: dst::Overlap::Last };
    job.spec.schedule.bounds.start = Some(job.created_at);
    job.spec.schedule.bounds.end = Some(job.created_at);
    job.spec.schedule.bounds.max_fires = std::num::NonZeroU64::new(9);
    job.spec.schedule.spread = Some(Duration::from_secs(30));
    job.spec.schedule.calendars = vec!["holidays".into()];
    job.spec.schedule.on_excluded = OnExcluded::Previous;
    job.spec.target = Target::Http(Http {
        url: "http://127.0.0.1:9/x".into(),
        method: Method::Put,
        headers: vec![("A".into(), "b".into())],
        tls: Some(Box::new(Tls { ca: Some("ca".into()), client_cert: Some("c".into()), client_key: None })),
    });
    job.spec.dead_letter_target = Some(Target::Function { name: "undertaker".into() });
    let links = On::WORDS.map(|(word, on)| Link { on, job: format!("after-{word}") });
    job.spec.links = links.into();
    job.spec.payload = Some("{ \"kept\" :  [1.0, 1e2,\t\"\\u00e9\"] }".into());
    job.spec.policies = Policies {
        catch_up: CatchUp::All { window: Duration::from_secs(5), max: 6, rate: 7 },
        retry: Retry {
            max_attempts: 9,
            backoff: Backoff::Exponential { base: Duration::from_millis(1500), cap: Duration::from_secs(60) },
            retry_for: Some(Duration::from_secs(7_200)),
            on: Failures {
                outcomes: vec![Outcome::TimedOut],
                statuses: vec![Status::One(409), Status::Class(5)],
                errors: vec!["tls_failed".into()],
            },
            not_on: Failures { statuses: vec![Status::One(501)], ..Failures::default() },
        },
        timeouts: Timeouts {
            start_window: Some(Duration::from_secs(600)),
            attempt: Duration::from_secs(5),
            deadline: Some(Duration::from_millis(3_600_500)),
            min_duration: Some(Duration::from_millis(1)),
        },
        retention: RetentionPolicy {
            keep: Keep::Failures(Retention::Year),
            last: NonZeroU32::new(20),
            output_max: 512,
        },
        overlap: Overlap::QueueAll { max: 3 },
        concurrency: Some(Concurrency {
            max: NonZeroU32::MIN,
            key: Some("{payload.customer}".parse().expect("a template")),
            across: Across::Queue,
            holds_retries: false,
        }),
        rate: Some(RateLimit {
            rate: Rate { limit: NonZeroU32::MAX, per: Duration::from_secs(60), burst: NonZeroU32::MIN },
            key: None,
            across: Across::Tenant,
        }),
        breaker: Some(punctual_domain::policy::breaker::OfJob { failures: NonZeroU32::MIN }),
        on_unknown: punctual_domain::policy::unknown::OnUnknown::Ask,
        completion: Completion::Token { heartbeat: Some(Duration::from_secs(30)) },
    };
    job.spec.correlation_id = Some("corr".into());
    let item = |id: &str, payload: Option<&str>| Item { id: id.into(), payload: payload.map(Into::into) };
    job.spec.batch = Some(Arc::new(Batch {
        items: [item("a \"b\"", Some("{ \"kept\" : [1.0] }")), item("c", None)].into(),
        on_complete: Some(Target::Function { name: "done".into() }),
        fingerprint: [7; 16],
        cancelled_at: Some(job.created_at),
    }));
    let pause = Pause { reason: None, by: Some("you".into()), since: job.created_at, until: None };
    let schedule = Box::new(Schedule::parse("15 3 * * *").expect("valid"));
    job.changes = [Before::Pause(pause), Before::Schedule(schedule)]
        .map(|until| Change { at: job.updated_at, version: Version(2), until })
        .into();
    job
}

#[test]
fn a_job_reads_back_as_it_was_written() {
    let backoff = |backoff: Backoff| {
        let mut job = job();
        job.spec.policies.retry.backoff = backoff;
        job
    };
    let (base, cap) = (Duration::from_secs(2), Duration::from_secs(20));
    let retried = [
        backoff(Backoff::Linear { base, cap }),
        backoff(Backoff::Fixed { delay: base }),
        backoff(Backoff::List { delays: vec![cap, base] }),
    ];
    let policies = [Overlap::Skip, Overlap::QueueOne, Overlap::CancelRunning];
    let overlapping = policies.map(|overlap| {
        let mut job = job();
        job.spec.policies.overlap = overlap;
        job
    });
    let mut by_token = job();
    by_token.spec.policies.completion = Completion::Token { heartbeat: None };
    for job in [job(), full(), by_token].into_iter().chain(retried).chain(overlapping) {
        let bytes = encode_job(&job).expect("encodes");
        assert_eq!(decode_job(job.id, job.tenant, job.version, &bytes).expect("decodes"), job);
    }
}

/// A job as programs wrote it that knew exponential delays and one timeout.
#[test]
fn what_was_written_before_is_read_as_it_was_meant() {
    let plain = job();
    let read = |policies: &str| {
        let bytes = encode_job(&plain).expect("encodes");
        let text = String::from_utf8(bytes).expect("text");
        let text = text.replace("\"created\"", &format!("\"policies\":{policies},\"created\""));
        decode_job(plain.id, plain.tenant, plain.version, text.as_bytes()).expect("decodes").spec.policies
    };
    let old = read(r#"{"retry":[5,2000,60000],"timeout":7000}"#);
    let backoff = Backoff::Exponential { base: Duration::from_secs(2), cap: Duration::from_secs(60) };
    assert_eq!(old.retry, Retry { max_attempts: 5, backoff, ..defaults().retry });
    assert_eq!(old.timeouts, Timeouts { attempt: Duration::from_secs(7), ..defaults().timeouts });
    assert_eq!(read("{}"), Policies::default(), "today's defaults are those of this form");
}

#[test]
fn what_equals_the_default_is_not_written() {
    let bytes = encode_job(&job()).expect("encodes");
    let text = String::from_utf8(bytes).expect("text");
    let expected = "{\"v\":1,\"name\":\"plain\",\"queue\":\"default\",\"schedule\":{\"at\":\"@every PT5S\"},\
                    \"target\":\"discard\",\"created\":1800000000123,\"updated\":1800000000123}";
    assert_eq!(text, expected);
}

#[test]
fn damaged_rows_are_named_and_not_guessed() {
    let job = full();
    let bytes = encode_job(&job).expect("encodes");
    let read = |bytes: &[u8]| decode_job(job.id, job.tenant, job.version, bytes);
    let text = String::from_utf8(bytes).expect("text");
    for (from, to) in [
        ("\"v\":1", "\"v\":99"),
        ("\"lane\":1", "\"lane\":77"),
        ("30 2 * * 1-5", "30 2 * *"),
        ("\"gap\":2", "\"gap\":9"),
        ("\"days\":400", "\"days\":3"),
        ("gpu=true", "gpu"),
        ("\"timed_out\"", "\"tired_out\""),
        ("\"5xx\"", "\"5xy\""),
        ("{\"v\"", "[\"v\""),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = read(text.replace(from, to).as_bytes()).expect_err(to);
        assert!(error.to_string().contains(&job.id.to_string()), "{error}");
    }
}
