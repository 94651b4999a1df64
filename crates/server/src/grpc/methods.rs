//! The table of methods: for each the route of REST that it is, and the role it needs.
//!
//! A method that is not here does not exist. Tests hold it against the proto files, and every row against its route: the same role, the same
//! breadth, no route without a method.

use punctual_rpc::v1;

use super::import::import;
use super::unary::unary;
use crate::access::Needs;
use crate::routes::{Endpoint, on};

/// How a message is a request of REST, and how the answer is a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rpc {
    /// The field that is the body; without one, all fields are that are nothing else.
    pub(crate) body: &'static str,
    /// The field that `update_mask` is about.
    pub(crate) masked: &'static str,
    /// The field that the answer is, by its status; without one, it is the message.
    pub(crate) wraps: &'static [(u16, &'static str)],
}

impl Rpc {
    pub(crate) const PLAIN: Rpc = Rpc { body: "", masked: "", wraps: &[] };
}

const fn rpc(path: &'static str, rest: &'static str, needs: Needs) -> Endpoint {
    Endpoint { rest, ..on("POST", path, needs, rest) }
}

impl Endpoint {
    const fn body(self, body: &'static str) -> Self {
        Endpoint { rpc: Rpc { body, ..self.rpc }, ..self }
    }

    const fn masked(self, masked: &'static str) -> Self {
        Endpoint { rpc: Rpc { masked, ..self.rpc }, ..self }
    }

    const fn wraps(self, wraps: &'static [(u16, &'static str)]) -> Self {
        Endpoint { rpc: Rpc { wraps, ..self.rpc }, ..self }
    }
}

const BULK: &[(u16, &str)] = &[(202, "operation"), (200, "preview")];
const BACKFILL: &[(u16, &str)] = &[(202, "operation"), (200, "slots")];
const SELECTION: &[(u16, &str)] = &[(200, "result"), (202, "operation")];

/// Every method, as a route: the same gate, the same roles.
pub static METHODS: &[Endpoint] = &[
    rpc("/punctual.v1.Jobs/CreateJob", "POST /v1/jobs", Needs::Operator)
        .body("job")
        .by(unary::<v1::CreateJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/ListJobs", "GET /v1/jobs", Needs::Viewer)
        .by(unary::<v1::ListJobsRequest, v1::ListJobsResponse>),
    rpc("/punctual.v1.Jobs/CreateJobs", "POST /v1/jobs/bulk", Needs::Operator)
        .body("jobs")
        .by(unary::<v1::CreateJobsRequest, v1::BulkResult>),
    rpc("/punctual.v1.Jobs/ImportJobs", "POST /v1/jobs/import", Needs::Operator).by(import),
    rpc("/punctual.v1.Jobs/PauseJobs", "POST /v1/jobs/bulk/pause", Needs::Operator)
        .wraps(BULK)
        .by(unary::<v1::PauseJobsRequest, v1::BulkAnswer>),
    rpc("/punctual.v1.Jobs/ResumeJobs", "POST /v1/jobs/bulk/resume", Needs::Operator)
        .wraps(BULK)
        .by(unary::<v1::ResumeJobsRequest, v1::BulkAnswer>),
    rpc("/punctual.v1.Jobs/DeleteJobs", "POST /v1/jobs/bulk/delete", Needs::Operator)
        .wraps(BULK)
        .by(unary::<v1::DeleteJobsRequest, v1::BulkAnswer>),
    rpc("/punctual.v1.Jobs/EditJobs", "POST /v1/jobs/bulk/edit", Needs::Operator)
        .masked("patch")
        .wraps(BULK)
        .by(unary::<v1::EditJobsRequest, v1::BulkAnswer>),
    rpc("/punctual.v1.Jobs/GetJobByKey", "GET /v1/jobs/key/{key}", Needs::Viewer)
        .by(unary::<v1::GetJobByKeyRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/PutJobByKey", "PUT /v1/jobs/key/{key}", Needs::Operator)
        .body("job")
        .by(unary::<v1::PutJobByKeyRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/GetJob", "GET /v1/jobs/{id}", Needs::Viewer)
        .by(unary::<v1::GetJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/ReplaceJob", "PUT /v1/jobs/{id}", Needs::Operator)
        .body("job")
        .by(unary::<v1::ReplaceJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/PatchJob", "PATCH /v1/jobs/{id}", Needs::Operator)
        .body("job")
        .masked("job")
        .by(unary::<v1::PatchJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/DeleteJob", "DELETE /v1/jobs/{id}", Needs::Operator)
        .by(unary::<v1::DeleteJobRequest, v1::DeleteJobResponse>),
    rpc("/punctual.v1.Jobs/PauseJob", "POST /v1/jobs/{id}/pause", Needs::Operator)
        .by(unary::<v1::PauseJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/ResumeJob", "POST /v1/jobs/{id}/resume", Needs::Operator)
        .by(unary::<v1::ResumeJobRequest, v1::Job>),
    rpc("/punctual.v1.Jobs/TriggerJob", "POST /v1/jobs/{id}/trigger", Needs::Operator)
        .by(unary::<v1::TriggerJobRequest, v1::RunSummary>),
    rpc("/punctual.v1.Jobs/BackfillJob", "POST /v1/jobs/{id}/backfill", Needs::Operator)
        .wraps(BACKFILL)
        .by(unary::<v1::BackfillJobRequest, v1::BackfillAnswer>),
    rpc("/punctual.v1.Jobs/ListJobRuns", "GET /v1/jobs/{id}/runs", Needs::Viewer)
        .by(unary::<v1::ListJobRunsRequest, v1::ListJobRunsResponse>),
    rpc("/punctual.v1.Jobs/ListUpcoming", "GET /v1/jobs/{id}/upcoming", Needs::Viewer)
        .by(unary::<v1::ListUpcomingRequest, v1::ListUpcomingResponse>),
    rpc("/punctual.v1.Jobs/ListLedger", "GET /v1/jobs/{id}/ledger", Needs::Viewer)
        .by(unary::<v1::ListLedgerRequest, v1::ListLedgerResponse>),
    rpc("/punctual.v1.Jobs/ExplainJob", "GET /v1/jobs/{id}/why", Needs::Viewer)
        .by(unary::<v1::ExplainJobRequest, v1::Why>),
    rpc("/punctual.v1.Runs/ListRuns", "GET /v1/runs", Needs::Viewer)
        .by(unary::<v1::ListRunsRequest, v1::ListRunsResponse>),
    rpc("/punctual.v1.Runs/CancelRuns", "POST /v1/runs/bulk/cancel", Needs::Operator)
        .wraps(BULK)
        .by(unary::<v1::CancelRunsRequest, v1::BulkAnswer>),
    rpc("/punctual.v1.Runs/GetRun", "GET /v1/runs/{id}", Needs::Viewer)
        .by(unary::<v1::GetRunRequest, v1::Run>),
    rpc("/punctual.v1.Runs/ListRunLog", "GET /v1/runs/{id}/log", Needs::Viewer)
        .by(unary::<v1::ListRunLogRequest, v1::ListRunLogResponse>),
    rpc("/punctual.v1.Runs/CancelRun", "POST /v1/runs/{id}/cancel", Needs::Operator)
        .by(unary::<v1::CancelRunRequest, v1::RunSummary>),
    rpc("/punctual.v1.Runs/RetryRun", "POST /v1/runs/{id}/retry", Needs::Operator)
        .by(unary::<v1::RetryRunRequest, v1::RunSummary>),
    rpc("/punctual.v1.Runs/AnswerRun", "POST /v1/runs/{id}/answer", Needs::Operator)
        .by(unary::<v1::AnswerRunRequest, v1::RunSummary>),
    rpc("/punctual.v1.Runs/HeartbeatAttempt", "POST /v1/runs/{id}/heartbeat", Needs::Token)
        .by(unary::<v1::HeartbeatAttemptRequest, v1::AttemptHeard>),
    rpc("/punctual.v1.Runs/CompleteAttempt", "POST /v1/runs/{id}/complete", Needs::Token)
        .by(unary::<v1::CompleteAttemptRequest, v1::CompleteAttemptResponse>),
    rpc("/punctual.v1.DeadLetters/ListDeadLetters", "GET /v1/dead-letters", Needs::Viewer)
        .by(unary::<v1::ListDeadLettersRequest, v1::ListDeadLettersResponse>),
    rpc("/punctual.v1.DeadLetters/GroupDeadLetters", "GET /v1/dead-letters/groups", Needs::Viewer)
        .by(unary::<v1::GroupDeadLettersRequest, v1::DeadLetterGroups>),
    rpc("/punctual.v1.DeadLetters/RedriveDeadLetters", "POST /v1/dead-letters/redrive", Needs::Operator)
        .wraps(SELECTION)
        .by(unary::<v1::RedriveDeadLettersRequest, v1::SelectionAnswer>),
    rpc(
        "/punctual.v1.DeadLetters/AcknowledgeDeadLetters",
        "POST /v1/dead-letters/acknowledge",
        Needs::Operator,
    )
    .wraps(SELECTION)
    .by(unary::<v1::AcknowledgeDeadLettersRequest, v1::SelectionAnswer>),
    rpc("/punctual.v1.Operations/ListOperations", "GET /v1/operations", Needs::Viewer)
        .by(unary::<v1::ListOperationsRequest, v1::ListOperationsResponse>),
    rpc("/punctual.v1.Operations/GetOperation", "GET /v1/operations/{id}", Needs::Viewer)
        .by(unary::<v1::GetOperationRequest, v1::Operation>),
    rpc("/punctual.v1.Operations/CancelOperation", "POST /v1/operations/{id}/cancel", Needs::Operator)
        .by(unary::<v1::CancelOperationRequest, v1::Operation>),
    rpc("/punctual.v1.Batches/CreateBatch", "POST /v1/batches", Needs::Operator)
        .body("batch")
        .by(unary::<v1::CreateBatchRequest, v1::Batch>),
    rpc("/punctual.v1.Batches/ListBatches", "GET /v1/batches", Needs::Viewer)
        .by(unary::<v1::ListBatchesRequest, v1::ListBatchesResponse>),
    rpc("/punctual.v1.Batches/GetBatch", "GET /v1/batches/{id}", Needs::Viewer)
        .by(unary::<v1::GetBatchRequest, v1::Batch>),
    rpc("/punctual.v1.Batches/ListBatchItems", "GET /v1/batches/{id}/items", Needs::Viewer)
        .by(unary::<v1::ListBatchItemsRequest, v1::ListBatchItemsResponse>),
    rpc("/punctual.v1.Batches/CancelBatch", "POST /v1/batches/{id}/cancel", Needs::Operator)
        .by(unary::<v1::CancelBatchRequest, v1::Batch>),
    rpc("/punctual.v1.Batches/DeleteBatch", "DELETE /v1/batches/{id}", Needs::Operator)
        .by(unary::<v1::DeleteBatchRequest, v1::DeleteBatchResponse>),
    rpc("/punctual.v1.Queues/ListQueues", "GET /v1/queues", Needs::Viewer)
        .by(unary::<v1::ListQueuesRequest, v1::ListQueuesResponse>),
    rpc("/punctual.v1.Queues/GetForecast", "GET /v1/forecast", Needs::Viewer)
        .by(unary::<v1::GetForecastRequest, v1::Forecast>),
    rpc("/punctual.v1.Calendars/ListCalendars", "GET /v1/calendars", Needs::Viewer)
        .by(unary::<v1::ListCalendarsRequest, v1::ListCalendarsResponse>),
    rpc("/punctual.v1.Calendars/GetCalendar", "GET /v1/calendars/{name}", Needs::Viewer)
        .by(unary::<v1::GetCalendarRequest, v1::Calendar>),
    rpc("/punctual.v1.Calendars/PutCalendar", "PUT /v1/calendars/{name}", Needs::Operator)
        .body("calendar")
        .by(unary::<v1::PutCalendarRequest, v1::Calendar>),
    rpc("/punctual.v1.Calendars/DeleteCalendar", "DELETE /v1/calendars/{name}", Needs::Operator)
        .by(unary::<v1::DeleteCalendarRequest, v1::DeleteCalendarResponse>),
    rpc("/punctual.v1.Alerts/ListAlerts", "GET /v1/alerts", Needs::Viewer)
        .by(unary::<v1::ListAlertsRequest, v1::ListAlertsResponse>),
    rpc("/punctual.v1.Alerts/GetAlert", "GET /v1/alerts/{name}", Needs::Viewer)
        .by(unary::<v1::GetAlertRequest, v1::Alert>),
    rpc("/punctual.v1.Alerts/PutAlert", "PUT /v1/alerts/{name}", Needs::Operator)
        .body("alert")
        .by(unary::<v1::PutAlertRequest, v1::Alert>),
    rpc("/punctual.v1.Alerts/DeleteAlert", "DELETE /v1/alerts/{name}", Needs::Operator)
        .by(unary::<v1::DeleteAlertRequest, v1::DeleteAlertResponse>),
    rpc("/punctual.v1.Alerts/ListAlarms", "GET /v1/alarms", Needs::Viewer)
        .by(unary::<v1::ListAlarmsRequest, v1::ListAlarmsResponse>),
    rpc("/punctual.v1.Limits/ListLimits", "GET /v1/limits", Needs::Admin)
        .for_all()
        .by(unary::<v1::ListLimitsRequest, v1::ListLimitsResponse>),
    rpc("/punctual.v1.Limits/GetLimit", "GET /v1/limits/{name}", Needs::Admin)
        .for_all()
        .by(unary::<v1::GetLimitRequest, v1::Limit>),
    rpc("/punctual.v1.Limits/PutLimit", "PUT /v1/limits/{name}", Needs::Admin)
        .for_all()
        .body("limit")
        .by(unary::<v1::PutLimitRequest, v1::Limit>),
    rpc("/punctual.v1.Limits/DeleteLimit", "DELETE /v1/limits/{name}", Needs::Admin)
        .for_all()
        .by(unary::<v1::DeleteLimitRequest, v1::DeleteLimitResponse>),
    rpc("/punctual.v1.Breakers/ListBreakers", "GET /v1/breakers", Needs::Admin)
        .for_all()
        .by(unary::<v1::ListBreakersRequest, v1::ListBreakersResponse>),
    rpc("/punctual.v1.Breakers/ResetBreaker", "DELETE /v1/breakers/{name}", Needs::Admin)
        .for_all()
        .by(unary::<v1::ResetBreakerRequest, v1::ResetBreakerResponse>),
    rpc("/punctual.v1.Nodes/ListNodes", "GET /v1/nodes", Needs::Admin)
        .for_all()
        .by(unary::<v1::ListNodesRequest, v1::ListNodesResponse>),
    rpc("/punctual.v1.Nodes/ListShards", "GET /v1/shards", Needs::Admin)
        .for_all()
        .by(unary::<v1::ListShardsRequest, v1::ListShardsResponse>),
    rpc("/punctual.v1.Nodes/MoveShards", "POST /v1/shards/move", Needs::Admin)
        .for_all()
        .by(unary::<v1::MoveShardsRequest, v1::Operation>),
    rpc("/punctual.v1.Nodes/ListDatabases", "GET /v1/databases", Needs::Admin)
        .for_all()
        .by(unary::<v1::ListDatabasesRequest, v1::ListDatabasesResponse>),
    rpc("/punctual.v1.Nodes/GetVersion", "GET /v1/version", Needs::Nothing)
        .by(unary::<v1::GetVersionRequest, v1::Version>),
    rpc("/punctual.v1.Keys/CreateKey", "POST /v1/keys", Needs::Admin)
        .by(unary::<v1::CreateKeyRequest, v1::NewKey>),
    rpc("/punctual.v1.Keys/ListKeys", "GET /v1/keys", Needs::Admin)
        .by(unary::<v1::ListKeysRequest, v1::ListKeysResponse>),
    rpc("/punctual.v1.Keys/GetKey", "GET /v1/keys/{id}", Needs::Admin)
        .by(unary::<v1::GetKeyRequest, v1::Key>),
    rpc("/punctual.v1.Keys/RevokeKey", "DELETE /v1/keys/{id}", Needs::Admin)
        .by(unary::<v1::RevokeKeyRequest, v1::RevokeKeyResponse>),
    rpc("/punctual.v1.Keys/RotateKey", "POST /v1/keys/{id}/rotate", Needs::Admin)
        .by(unary::<v1::RotateKeyRequest, v1::NewKey>),
    rpc("/punctual.v1.Tenants/ListTenants", "GET /v1/tenants", Needs::Admin)
        .by(unary::<v1::ListTenantsRequest, v1::ListTenantsResponse>),
    rpc("/punctual.v1.Tenants/CreateTenant", "POST /v1/tenants", Needs::Admin)
        .for_all()
        .by(unary::<v1::CreateTenantRequest, v1::Tenant>),
    rpc("/punctual.v1.Tenants/GetDefaults", "GET /v1/tenants/{name}/defaults", Needs::Viewer)
        .by(unary::<v1::GetDefaultsRequest, v1::JobDefaults>),
    rpc("/punctual.v1.Tenants/PutDefaults", "PUT /v1/tenants/{name}/defaults", Needs::Admin)
        .body("defaults")
        .by(unary::<v1::PutDefaultsRequest, v1::JobDefaults>),
    rpc("/punctual.v1.Tenants/DeleteDefaults", "DELETE /v1/tenants/{name}/defaults", Needs::Admin)
        .by(unary::<v1::DeleteDefaultsRequest, v1::DeleteDefaultsResponse>),
    rpc("/punctual.v1.Workers/Claim", "POST /v1/claims", Needs::Worker),
    rpc("/punctual.v1.Workers/Heartbeat", "POST /v1/workers/{id}/heartbeat", Needs::Worker),
    rpc("/punctual.v1.Workers/Report", "POST /v1/workers/{id}/results", Needs::Worker),
    rpc("/punctual.v1.Workers/Dismiss", "DELETE /v1/workers/{id}", Needs::Worker),
    rpc("/punctual.v1.Workers/ListWorkers", "GET /v1/workers", Needs::Viewer),
    rpc("/punctual.v1.Workers/GetWorker", "GET /v1/workers/{id}", Needs::Viewer),
    on("POST", "/grpc.health.v1.Health/Check", Needs::Nothing, "Says whether the process can work"),
    on("POST", "/grpc.health.v1.Health/Watch", Needs::Nothing, "Says it again when it changes"),
    on(
        "POST",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Needs::Nothing,
        "Gives the proto files",
    ),
    on(
        "POST",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Needs::Nothing,
        "Gives the proto files, as older tools ask for them",
    ),
];
