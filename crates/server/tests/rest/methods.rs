//! What REST does, over gRPC: the same jobs and runs, the same conditions, the same refusals.

use axum::Router;
use futures_util::StreamExt as _;
use punctual_rpc::v1::alerts_client::AlertsClient;
use punctual_rpc::v1::calendars_client::CalendarsClient;
use punctual_rpc::v1::jobs_client::JobsClient;
use punctual_rpc::v1::nodes_client::NodesClient;
use punctual_rpc::v1::runs_client::RunsClient;
use punctual_rpc::v1::tenants_client::TenantsClient;
use punctual_rpc::{status, v1};
use serde_json::{Value, json};
use tonic::{Code, Request, Status};

use crate::world::World;

fn origin() -> http::Uri {
    "http://127.0.0.1:8080".parse().unwrap()
}

fn jobs(world: &World) -> JobsClient<Router> {
    JobsClient::with_origin(world.network(), origin())
}

fn runs(world: &World) -> RunsClient<Router> {
    RunsClient::with_origin(world.network(), origin())
}

/// A job that is discarded every hour.
fn hourly(name: &str) -> v1::JobSpec {
    v1::JobSpec {
        name: Some(name.into()),
        schedule: Some(v1::Schedule { every: Some("1h".into()), ..v1::Schedule::default() }),
        target: Some(v1::Target { discard: Some(v1::DiscardTarget::default()), ..v1::Target::default() }),
        ..v1::JobSpec::default()
    }
}

async fn create(world: &World, job: v1::JobSpec) -> v1::Job {
    jobs(world).create_job(v1::CreateJobRequest { job: Some(job) }).await.unwrap().into_inner()
}

/// The code of REST and the wrong fields that a status tells of.
fn told(status: &Status) -> (Code, String, Vec<String>) {
    let problem = status::problem(status).unwrap_or_else(|| panic!("no details: {status:?}"));
    (status.code(), problem.code, problem.errors.into_iter().map(|error| error.pointer).collect())
}

/// Without what is empty: a message has no word for it.
fn whole(value: Value) -> Value {
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty) || value.is_null();
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, whole(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(whole).collect()),
        value => value,
    }
}

fn with<T>(message: T, name: &'static str, value: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn a_job_is_the_same_over_both() {
    let world = World::new().await;
    let text = r#"{"b": 1.50,  "a": null}"#;
    let spec = v1::JobSpec {
        key: Some("k".into()),
        payload: Some(text.into()),
        timeout: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
        labels: [("team".to_string(), "a".to_string())].into(),
        ..hourly("report")
    };
    let job = create(&world, spec).await;
    assert_eq!((job.version, job.state.as_str(), job.tenant.as_str()), (1, "active", "default"));
    assert_eq!(job.payload.as_deref(), Some(text), "as it was written");
    let shown = world.get(&format!("/v1/jobs/{}", job.id)).await;
    assert_eq!((&shown["name"], &shown["timeout"]), (&json!("report"), &json!("PT1M30S")));
    let read = jobs(&world).get_job(v1::GetJobRequest { id: job.id.clone() }).await.unwrap();
    assert_eq!(read.metadata().get("etag").unwrap(), "\"1\"");
    assert_eq!(whole(serde_json::to_value(read.get_ref()).unwrap()), whole(shown));
    let by_key = jobs(&world).get_job_by_key(v1::GetJobByKeyRequest { key: "k".into() }).await.unwrap();
    assert_eq!(by_key.into_inner().id, job.id);
    let page = v1::ListJobsRequest { label: vec!["team=a".into()], limit: Some(1), ..Default::default() };
    let page = jobs(&world).list_jobs(page).await.unwrap().into_inner();
    assert_eq!(page.items.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), [job.id.as_str()]);
}

#[tokio::test]
async fn a_patch_changes_what_its_mask_names() {
    let world = World::new().await;
    let spec = v1::JobSpec { queue: Some("slow".into()), correlation_id: Some("c".into()), ..hourly("a") };
    let id = create(&world, spec).await.id;
    let patch = |job: v1::JobSpec, paths: &[&str], if_version: Option<u32>| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_string()).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        v1::PatchJobRequest { id: id.clone(), job: Some(job), update_mask, if_version, pending: None }
    };
    let named = v1::JobSpec { name: Some("b".into()), queue: Some("fast".into()), ..v1::JobSpec::default() };
    let job =
        jobs(&world).patch_job(patch(named.clone(), &["name", "correlation_id"], Some(1))).await.unwrap();
    let job = job.into_inner();
    assert_eq!((job.name.as_deref(), job.queue.as_deref()), (Some("b"), Some("slow")));
    assert_eq!((job.correlation_id, job.version), (None, 2));
    let job = jobs(&world).patch_job(patch(named.clone(), &[], None)).await.unwrap().into_inner();
    assert_eq!(job.queue.as_deref(), Some("fast"), "without paths, what is set");
    let refused = jobs(&world).patch_job(patch(named.clone(), &["name"], Some(1))).await.unwrap_err();
    assert_eq!(told(&refused), (Code::Aborted, "version_conflict".into(), vec![]));
    let refused = jobs(&world).patch_job(patch(named, &["nmae"], None)).await.unwrap_err();
    assert_eq!(told(&refused).2, ["/update_mask"], "a path that is no field");
}

#[tokio::test]
async fn what_is_wrong_is_named_by_its_field() {
    let world = World::new().await;
    let wrong = v1::JobSpec {
        schedule: Some(v1::Schedule { cron: Some("61 * * * *".into()), ..v1::Schedule::default() }),
        timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
        ..hourly("a")
    };
    let refused = jobs(&world).create_job(v1::CreateJobRequest { job: Some(wrong) }).await.unwrap_err();
    let (code, reason, fields) = told(&refused);
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "invalid_request"));
    assert!(fields.contains(&"/job/timeout".into()) && fields.len() > 1, "{fields:?}");
    let refused = jobs(&world).create_job(v1::CreateJobRequest::default()).await.unwrap_err();
    let fields = told(&refused).2;
    assert!(fields.contains(&"/job/schedule".into()) && fields.contains(&"/job/target".into()), "{fields:?}");
    let broken = v1::JobSpec { payload: Some("{".into()), ..hourly("a") };
    let refused = jobs(&world).create_job(v1::CreateJobRequest { job: Some(broken) }).await.unwrap_err();
    assert_eq!(told(&refused).0, Code::InvalidArgument);
    let page = v1::ListJobsRequest { limit: Some(5_000), state: Some("asleep".into()), ..Default::default() };
    let refused = jobs(&world).list_jobs(page).await.unwrap_err();
    assert_eq!(told(&refused).2, ["/state", "/limit"]);
    for id in ["", "bulk", "no/such", "..", "\u{fc}"] {
        let refused = jobs(&world).get_job(v1::GetJobRequest { id: id.into() }).await.unwrap_err();
        let (code, reason, fields) = told(&refused);
        match id {
            "" => assert_eq!((code, fields), (Code::InvalidArgument, vec!["/id".to_string()])),
            _ => assert_eq!((code, reason.as_str()), (Code::NotFound, "job_not_found"), "{id}"),
        }
    }
}

#[tokio::test]
async fn a_repeated_request_is_done_once() {
    let world = World::new().await;
    let request = || with(v1::CreateJobRequest { job: Some(hourly("a")) }, "idempotency-key", "once");
    let first = jobs(&world).create_job(request()).await.unwrap();
    let again = jobs(&world).create_job(request()).await.unwrap();
    assert!(first.metadata().get("idempotency-replayed").is_none());
    assert_eq!(again.metadata().get("idempotency-replayed").unwrap(), "true");
    assert_eq!(first.metadata().get("punctual-status").unwrap(), "201");
    assert_eq!(first.get_ref(), again.get_ref());
    let other = with(v1::CreateJobRequest { job: Some(hourly("b")) }, "idempotency-key", "once");
    let refused = jobs(&world).create_job(other).await.unwrap_err();
    assert_eq!(told(&refused).1, "idempotency_key_reused");
}

#[tokio::test]
async fn a_run_is_triggered_read_and_cancelled() {
    let world = World::new().await;
    let job = create(&world, hourly("a")).await.id;
    let trigger = v1::TriggerJobRequest {
        id: job.clone(),
        payload: Some("[1,  2]".into()),
        ..v1::TriggerJobRequest::default()
    };
    let run = jobs(&world).trigger_job(trigger).await.unwrap().into_inner();
    assert_eq!((run.cause.as_str(), run.state.as_str(), run.job_id), ("trigger", "pending", job.clone()));
    let read = runs(&world).get_run(v1::GetRunRequest { id: run.id.clone() }).await.unwrap().into_inner();
    assert_eq!(read.payload.as_deref(), Some("[1,  2]"));
    let shown = world.get(&format!("/v1/runs/{}", run.id)).await;
    assert_eq!(whole(serde_json::to_value(&read).unwrap()), whole(shown));
    let listed = v1::ListJobRunsRequest { id: job, ..v1::ListJobRunsRequest::default() };
    let listed = jobs(&world).list_job_runs(listed).await.unwrap().into_inner();
    assert_eq!(listed.items.len(), 1);
    let dry = v1::CancelRunsRequest {
        filter: Some(v1::OpenRunFilter::default()),
        dry_run: Some(true),
        ..v1::CancelRunsRequest::default()
    };
    let preview = runs(&world).cancel_runs(dry).await.unwrap().into_inner();
    assert_eq!(preview.preview.map(|preview| preview.matched), Some(1));
    assert_eq!(preview.operation, None);
    let ended = runs(&world).cancel_run(v1::CancelRunRequest { id: run.id }).await.unwrap().into_inner();
    assert_eq!(ended.state, "cancelled");
    let all = v1::CancelRunsRequest { filter: Some(v1::OpenRunFilter::default()), ..Default::default() };
    let started = runs(&world).cancel_runs(all).await.unwrap().into_inner();
    assert_eq!(started.operation.map(|operation| operation.kind), Some("cancel_runs".into()));
}

#[tokio::test]
async fn jobs_come_as_a_stream() {
    let world = World::new().await;
    let asked = [hourly("a"), v1::JobSpec::default(), hourly("b")];
    let asked = asked.map(|job| v1::ImportJobsRequest { job: Some(job) });
    let told = jobs(&world).import_jobs(futures_util::stream::iter(asked)).await.unwrap().into_inner();
    let lines: Vec<v1::ImportLine> = told.map(Result::unwrap).collect().await;
    assert_eq!(lines[0].refused.as_ref().map(|refused| refused.line), Some(2));
    let summary = lines.last().unwrap().summary.as_ref().unwrap();
    assert_eq!((summary.lines, summary.created, summary.failed), (3, 2, 1));
    assert_eq!(world.get("/v1/jobs").await["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn what_has_a_name_is_put_once_unless_it_is_asked_for() {
    let world = World::new().await;
    let mut calendars = CalendarsClient::with_origin(world.network(), origin());
    let put = v1::PutCalendarRequest {
        name: "holidays".into(),
        calendar: Some(v1::CalendarSpec { exclude_weekdays: vec!["SUN".into()], ..Default::default() }),
        if_absent: true,
        ..v1::PutCalendarRequest::default()
    };
    let made = calendars.put_calendar(put.clone()).await.unwrap();
    assert_eq!(made.metadata().get("punctual-status").unwrap(), "201");
    assert_eq!(made.get_ref().name, "holidays");
    let refused = calendars.put_calendar(put.clone()).await.unwrap_err();
    assert_eq!(told(&refused).1, "version_conflict");
    let again = v1::PutCalendarRequest { if_absent: false, if_version: Some(7), ..put };
    let refused = calendars.put_calendar(again).await.unwrap_err();
    assert_eq!(told(&refused).1, "version_conflict");
    let mut alerts = AlertsClient::with_origin(world.network(), origin());
    let none = alerts.delete_alert(v1::DeleteAlertRequest { name: "none".into() }).await.unwrap_err();
    assert_eq!(told(&none), (Code::NotFound, "alert_not_found".into(), vec![]));
}

#[tokio::test]
async fn a_tenant_is_named_as_in_rest() {
    let world = World::new().await;
    let mut tenants = TenantsClient::with_origin(world.network(), origin());
    tenants.create_tenant(v1::CreateTenantRequest { name: Some("acme".into()) }).await.unwrap();
    let request = with(v1::CreateJobRequest { job: Some(hourly("a")) }, "punctual-tenant", "acme");
    let job = jobs(&world).create_job(request).await.unwrap().into_inner();
    assert_eq!(job.tenant, "acme");
    let refused = jobs(&world).get_job(v1::GetJobRequest { id: job.id.clone() }).await.unwrap_err();
    assert_eq!(told(&refused).1, "job_not_found", "another tenant's is not there");
    let theirs = with(v1::GetJobRequest { id: job.id }, "punctual-tenant", "acme");
    assert!(jobs(&world).get_job(theirs).await.is_ok());
    let mut nodes = NodesClient::with_origin(world.network(), origin());
    let version = nodes.get_version(v1::GetVersionRequest::default()).await.unwrap().into_inner();
    assert_eq!((version.version.as_str(), version.commit), ("1.2.3", None));
    let shards = nodes.list_shards(v1::ListShardsRequest::default()).await.unwrap().into_inner();
    let shown = world.get("/v1/shards").await;
    assert_eq!(whole(serde_json::to_value(&shards).unwrap()), whole(shown));
}
