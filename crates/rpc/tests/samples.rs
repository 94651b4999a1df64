//! Every message that is JSON of REST, with every field set: to JSON and back, over the wire and back, it is the same.
#![allow(clippy::unwrap_used, reason = "what is not there fails the test")]

use std::collections::BTreeMap;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use punctual_api::{Code, Problem};
use punctual_rpc::v1;
use serde_json::{Map, Value, json};

const PACKAGE: &str = ".punctual.v1.";

/// Messages by their full names; those of the workers' file apart.
fn described() -> (BTreeMap<String, DescriptorProto>, BTreeMap<String, DescriptorProto>) {
    let files: FileDescriptorSet = prost::Message::decode(punctual_rpc::FILE_DESCRIPTOR_SET).unwrap();
    let (mut ours, mut workers) = (BTreeMap::new(), BTreeMap::new());
    for file in files.file.iter().filter(|file| file.package() == "punctual.v1") {
        let messages = if file.name().ends_with("/workers.proto") { &mut workers } else { &mut ours };
        messages.extend(
            file.message_type.iter().map(|message| (format!("{PACKAGE}{}", message.name()), message.clone())),
        );
    }
    (ours, workers)
}

struct Samples {
    messages: BTreeMap<String, DescriptorProto>,
}

impl Samples {
    fn of(&self, name: &str) -> Value {
        let message = self.messages.get(name).unwrap_or_else(|| panic!("no message {name}"));
        let members =
            message.field.iter().map(|field| (field.name().to_string(), self.member(message, field)));
        Value::Object(members.collect::<Map<_, _>>())
    }

    fn member(&self, message: &DescriptorProto, field: &FieldDescriptorProto) -> Value {
        let entry = format!("{PACKAGE}{}.", message.name());
        if field.type_name().starts_with(&entry) {
            return json!({ "b": "1", "a": "2" });
        }
        let is_json = ["payload", "checkpoint"].contains(&field.name())
            || (message.name(), field.name()) == ("Operation", "patch");
        let one = match (field.r#type(), field.type_name()) {
            (Type::String, _) if is_json => json!({ "a": [1.5, null] }),
            (Type::String, _) => json!(format!("some {}", field.name())),
            (Type::Bool, _) => json!(true),
            (Type::Double, _) => json!(0.5),
            (Type::Int32 | Type::Int64, _) => json!(-7),
            (Type::Uint32, _) => json!(7),
            (Type::Uint64, _) => json!(u64::MAX),
            (Type::Message, ".google.protobuf.Timestamp") => json!("2026-12-24T18:00:00.25Z"),
            (Type::Message, ".google.protobuf.Duration") => json!("PT1M30S"),
            (Type::Message, ".google.protobuf.FieldMask") => json!(["schedule.cron"]),
            (Type::Message, ".punctual.v1.Problem") => {
                serde_json::to_value(Problem::new(Code::Internal, 500, "what is wrong")).unwrap()
            }
            (Type::Message, ".punctual.v1.Parts") => json!({ "count": 4 }),
            (Type::Message, name) => self.of(name),
            (other, _) => panic!("no sample of {other:?}"),
        };
        match field.label() {
            Label::Repeated => json!([one.clone(), one]),
            _ => one,
        }
    }

    fn check<T: punctual_rpc::json::Message + PartialEq>(&self, name: &str) {
        let sample = self.of(&format!("{PACKAGE}{name}"));
        let message: T =
            serde_json::from_str(&sample.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let written: Value = serde_json::from_str(&serde_json::to_string(&message).unwrap()).unwrap();
        assert_eq!(written, sample, "{name}");
        let sent = T::decode(message.encode_to_vec().as_slice()).unwrap();
        assert!(sent == message, "{name} is another after it was sent");
    }
}

macro_rules! check {
    ($($name:ident,)*) => {{
        let (ours, workers) = described();
        let samples = Samples { messages: ours.clone().into_iter().chain(workers).collect() };
        $(samples.check::<v1::$name>(stringify!($name));)*
        let listed = [$(stringify!($name)),*];
        for name in ours.keys().map(|name| name.trim_start_matches(PACKAGE)) {
            // Parts are written otherwise, as every job in the list has them.
            assert!(listed.contains(&name) || name == "Parts", "{name} is not in the list");
        }
    }};
}

#[test]
fn every_message_says_in_json_what_it_says() {
    check! {
        AcknowledgeDeadLettersRequest,
        Alarm,
        Alert,
        AlertJobs,
        AlertMail,
        AlertSpec,
        AlertTo,
        AlertUrl,
        AnswerRunRequest,
        AttemptError,
        AttemptHeard,
        Backfill,
        BackfillAnswer,
        BackfillJobRequest,
        BackfillSlots,
        Batch,
        BatchCounts,
        BatchItem,
        BatchRun,
        BatchSpec,
        Breaker,
        Bucket,
        BulkAnswer,
        BulkExample,
        BulkItem,
        BulkPreview,
        BulkResult,
        Calendar,
        CalendarSpec,
        CancelBatchRequest,
        CancelOperationRequest,
        CancelRunRequest,
        CancelRunsRequest,
        CatchUp,
        CausedBy,
        CompleteAttemptRequest,
        CompleteAttemptResponse,
        Concurrency,
        CreateBatchRequest,
        CreateJobRequest,
        CreateJobsRequest,
        CreateKeyRequest,
        CreateTenantRequest,
        Database,
        DeadLetterFilter,
        DeadLetterGroup,
        DeadLetterGroups,
        DeleteAlertRequest,
        DeleteAlertResponse,
        DeleteBatchRequest,
        DeleteBatchResponse,
        DeleteCalendarRequest,
        DeleteCalendarResponse,
        DeleteDefaultsRequest,
        DeleteDefaultsResponse,
        DeleteJobRequest,
        DeleteJobResponse,
        DeleteJobsRequest,
        DeleteLimitRequest,
        DeleteLimitResponse,
        DiscardTarget,
        EditJobsRequest,
        ExplainJobRequest,
        Failures,
        Forecast,
        ForecastGroup,
        FunctionTarget,
        GetAlertRequest,
        GetBatchRequest,
        GetCalendarRequest,
        GetDefaultsRequest,
        GetForecastRequest,
        GetJobByKeyRequest,
        GetJobRequest,
        GetKeyRequest,
        GetLimitRequest,
        GetOperationRequest,
        GetRunRequest,
        GetVersionRequest,
        GroupDeadLettersRequest,
        HeartbeatAttemptRequest,
        HttpTarget,
        ImportCount,
        ImportJobsRequest,
        ImportLine,
        Job,
        JobBreaker,
        JobDefaults,
        JobFilter,
        JobSpec,
        Key,
        LastRun,
        LedgerEntry,
        LedgerPause,
        LedgerRun,
        Limit,
        LimitSpec,
        Link,
        ListAlarmsRequest,
        ListAlarmsResponse,
        ListAlertsRequest,
        ListAlertsResponse,
        ListBatchItemsRequest,
        ListBatchItemsResponse,
        ListBatchesRequest,
        ListBatchesResponse,
        ListBreakersRequest,
        ListBreakersResponse,
        ListCalendarsRequest,
        ListCalendarsResponse,
        ListDatabasesRequest,
        ListDatabasesResponse,
        ListDeadLettersRequest,
        ListDeadLettersResponse,
        ListJobRunsRequest,
        ListJobRunsResponse,
        ListJobsRequest,
        ListJobsResponse,
        ListKeysRequest,
        ListKeysResponse,
        ListLedgerRequest,
        ListLedgerResponse,
        ListLimitsRequest,
        ListLimitsResponse,
        ListNodesRequest,
        ListNodesResponse,
        ListOperationsRequest,
        ListOperationsResponse,
        ListQueuesRequest,
        ListQueuesResponse,
        ListRunLogRequest,
        ListRunLogResponse,
        ListRunsRequest,
        ListRunsResponse,
        ListShardsRequest,
        ListShardsResponse,
        ListTenantsRequest,
        ListTenantsResponse,
        ListUpcomingRequest,
        ListUpcomingResponse,
        LogLine,
        MoveShards,
        MoveShardsRequest,
        NewKey,
        Node,
        OpenRunFilter,
        Operation,
        Output,
        Overlap,
        PatchJobRequest,
        Pause,
        PauseJobRequest,
        PauseJobsRequest,
        Paused,
        Phase,
        Progress,
        PutAlertRequest,
        PutCalendarRequest,
        PutDefaultsRequest,
        PutJobByKeyRequest,
        PutLimitRequest,
        Queue,
        Rate,
        RateLimit,
        RedriveDeadLettersRequest,
        RefusedLine,
        ReplaceJobRequest,
        ResetBreakerRequest,
        ResetBreakerResponse,
        ResultError,
        ResumeJobRequest,
        ResumeJobsRequest,
        Retention,
        Retry,
        RetryRunRequest,
        RevokeKeyRequest,
        RevokeKeyResponse,
        RotateKeyRequest,
        Run,
        RunAttempt,
        RunLogLine,
        RunSummary,
        Schedule,
        ScheduleDefaults,
        SelectionAnswer,
        SelectionItem,
        SelectionResult,
        Shard,
        Target,
        Tenant,
        TriggerJobRequest,
        Upcoming,
        Version,
        Why,
        Worker,
        WorkerTarget,
    }
}
