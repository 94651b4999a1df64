//! The table of routes: for each its method, path, role, what it takes and what it gives.
//!
//! The router, the gate and the OpenAPI document are made from it, so a route that is not here does not exist, and one
//! that is here says who may call it. A test walks it.

use axum::Router;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use punctual_api::alert::{Alarm, Alert, AlertSpec};
use punctual_api::backfill::{Backfill, BackfillSlots};
use punctual_api::batch::{Batch, BatchRun, BatchSpec};
use punctual_api::breaker::Breaker;
use punctual_api::bulk::{BulkPreview, CancelRuns, EditJobs, PauseJobs, SelectJobs};
use punctual_api::calendar::{Calendar, CalendarSpec};
use punctual_api::dead_letter::{DeadLetterGroups, Selection, SelectionResult};
use punctual_api::defaults::JobDefaults;
use punctual_api::forecast::Forecast;
use punctual_api::health::{Readiness, Version};
use punctual_api::import::{BulkResult, ImportLine};
use punctual_api::job::{Pause, Trigger, Upcoming};
use punctual_api::key::{Key, KeyRotation, KeySpec, NewKey};
use punctual_api::ledger::{LedgerEntry, Why};
use punctual_api::limit::{Limit, LimitSpec};
use punctual_api::node::{Database, MoveShards, Node, Shard};
use punctual_api::operation::Operation;
use punctual_api::queue::Queue;
use punctual_api::report::{AttemptEnd, AttemptHeard, AttemptHeartbeat};
use punctual_api::run::{RunAnswer, RunLogLine};
use punctual_api::tenant::{Tenant, TenantSpec};
use punctual_api::worker::{
    Claim, Claimed, HeartbeatAnswer, ResultTaken, Results, ResultsTaken, Worker, WorkerHeartbeat,
};
use punctual_api::{Job, JobSpec, Run, RunSummary};

use crate::access::{Needs, gate};
use crate::grpc::Services;
use crate::openapi::{Shape, json, list_of, ndjson, nothing, page_of, text};
use crate::query::Param;
use crate::state::{Shared, State};
use crate::{
    alerts, batches, breakers, bulk, calendars, console, dead_letters, forecast, front, import, jobs, keys,
    limits, many, meta, nodes, operations, queues, reports, runs, tenants, workers,
};

/// A route.
#[derive(Debug)]
pub struct Endpoint {
    /// The method.
    pub method: &'static str,
    /// The path, with `{name}` where a value goes.
    pub path: &'static str,
    /// Who may call it.
    pub needs: Needs,
    /// It is about all tenants: a key of one does not open it, whatever its role.
    pub is_for_all: bool,
    /// What it does.
    pub about: &'static str,
    pub(crate) query: &'static [Param],
    pub(crate) takes: Shape,
    pub(crate) gives: (u16, Shape),
    /// Another answer that is no refusal.
    pub(crate) or_gives: Option<(u16, Shape)>,
    handler: fn() -> MethodRouter<Shared>,
}

pub(crate) const fn on(
    method: &'static str,
    path: &'static str,
    needs: Needs,
    about: &'static str,
) -> Endpoint {
    let handler: fn() -> MethodRouter<Shared> = || get(meta::no_such_route);
    Endpoint {
        method,
        path,
        needs,
        is_for_all: false,
        about,
        query: &[],
        takes: nothing(),
        gives: (204, nothing()),
        or_gives: None,
        handler,
    }
}

impl Endpoint {
    pub(crate) const fn for_all(self) -> Self {
        Endpoint { is_for_all: true, ..self }
    }

    pub(crate) const fn query(self, query: &'static [Param]) -> Self {
        Endpoint { query, ..self }
    }

    const fn takes(self, takes: Shape) -> Self {
        Endpoint { takes, ..self }
    }

    const fn gives(self, status: u16, shape: Shape) -> Self {
        Endpoint { gives: (status, shape), ..self }
    }

    const fn or_gives(self, status: u16, shape: Shape) -> Self {
        Endpoint { or_gives: Some((status, shape)), ..self }
    }

    pub(crate) const fn by(self, handler: fn() -> MethodRouter<Shared>) -> Self {
        Endpoint { handler, ..self }
    }
}

pub(crate) const fn param(name: &'static str, about: &'static str) -> Param {
    Param { name, about }
}

const LIMIT: Param = param("limit", "How many items, 1 to 1000; 50.");
const CURSOR: Param = param("cursor", "The `next_cursor` of the page before.");
const STATE: Param =
    param("state", "`pending`, `running`, `succeeded`, `failed`, `timed_out` or `cancelled`.");
const DEAD: Param = param("dead", "`true`: dead letters only; `false`: all others.");
const WAITING_FOR: Param = param(
    "waiting_for",
    "`time`, `capacity`, `retry`, `earlier_run`, `limit` (breakers too) or `answer`: pending runs that wait for it.",
);
const JOB: Param = param("job", "Of this job, by id.");
const TYPE: Param = param("type", "Of this type.");
const QUEUE: Param = param("queue", "In this queue.");
const FROM: Param = param("from", "Born at or after: RFC 3339 or epoch seconds.");
const TO: Param = param("to", "Born before: RFC 3339 or epoch seconds.");
const TENANT: Param = param("tenant", "Of this tenant; `*` is all of them, for an admin.");
const PENDING: Param = param(
    "pending",
    "`keep` (the default): waiting runs keep their version; `update`: they take the new one.",
);

const JOB_LIST: &[Param] = &[
    param("state", "`active`, `paused` or `ended`."),
    param("label", "`name=value`: jobs with this label; given several times, with all of them."),
    param("name", "Jobs with this text in their names."),
    param("key_prefix", "Jobs with keys that begin like this."),
    QUEUE,
    TYPE,
    LIMIT,
    CURSOR,
];
const RUN_LIST: &[Param] = &[STATE, DEAD, WAITING_FOR, JOB, TYPE, TENANT, QUEUE, FROM, TO, LIMIT, CURSOR];
const JOB_RUNS: &[Param] = &[STATE, DEAD, WAITING_FOR, FROM, TO, LIMIT, CURSOR];
const LOG: &[Param] = &[
    param("attempt", "Of this attempt; of all."),
    param(
        "follow",
        "`true`: waits up to 20 seconds for more, and gives a `next_cursor` as long as there may be more.",
    ),
    LIMIT,
    CURSOR,
];
const ERROR: Param = param("error", "The error of the last attempt has this code, such as `connect_failed`.");
const LABEL: Param = param("label", "`name=value`: of jobs with this label.");
const DEAD_LIST: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, LIMIT, CURSOR];
const DEAD_GROUPS: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, CURSOR];
const LEDGER: &[Param] = &[
    param("from", "Slots at or after; with `from` or `to` every slot is accounted for, also those that ran."),
    param("to", "Slots before; now."),
    LIMIT,
    CURSOR,
];
const WHY: &[Param] = &[param(
    "at",
    "The time that is asked about: RFC 3339, epoch seconds, or `2026-12-24T18:00` on the clock of the job; \
     the latest slot.",
)];
const OPERATION_LIST: &[Param] =
    &[param("state", "`running`, `succeeded`, `failed` or `cancelled`."), LIMIT, CURSOR];
const FORECAST: &[Param] = &[
    param("from", "From when on: RFC 3339 or epoch seconds; now."),
    param("to", "To when, at most 31 days later; an hour later."),
    param("resolution", "The length of a bucket, as `PT1M`; at most 1440 buckets. What gives 60 at most."),
    param(
        "by",
        "What groups are told apart by: `tenant`, `type` and `target`, with commas between; all three.",
    ),
    param("groups", "How many groups are told apart, 0 to 100; 20. The others are one."),
    TENANT,
];
const UPCOMING: &[Param] = &[param("from", "Slots after this time; now."), LIMIT];

/// Every route.
pub static TABLE: &[Endpoint] = &[
    on("GET", "/livez", Needs::Nothing, "Says that the process answers")
        .gives(200, text())
        .by(|| get(meta::livez)),
    on("GET", "/readyz", Needs::Nothing, "Says whether the process can work, check by check")
        .gives(200, json::<Readiness>())
        .or_gives(503, json::<Readiness>())
        .by(|| get(meta::readyz)),
    on("GET", "/metrics", Needs::Viewer, "Gives the metrics, as Prometheus reads them")
        .for_all()
        .gives(200, text())
        .by(|| get(meta::metrics)),
    on("GET", "/v1/version", Needs::Nothing, "Says what is running")
        .gives(200, json::<Version>())
        .by(|| get(meta::version)),
    on("GET", "/v1/openapi.json", Needs::Nothing, "Gives this document")
        .gives(200, text())
        .by(|| get(meta::openapi)),
    on("POST", "/v1/jobs", Needs::Operator, "Registers a job")
        .takes(json::<JobSpec>())
        .gives(201, json::<Job>())
        .by(|| post(jobs::create)),
    on("GET", "/v1/jobs", Needs::Viewer, "Lists jobs in the order of their ids")
        .query(JOB_LIST)
        .gives(200, page_of::<Job>())
        .by(|| get(jobs::list)),
    on("POST", "/v1/jobs/bulk", Needs::Operator, "Registers up to 1000 jobs, each for itself")
        .takes(list_of::<JobSpec>())
        .gives(200, json::<BulkResult>())
        .by(|| post(bulk::create)),
    on(
        "POST",
        "/v1/jobs/import",
        Needs::Operator,
        "Registers a stream of jobs, one a line, and answers while it reads",
    )
    .takes(ndjson::<JobSpec>())
    .gives(200, ndjson::<ImportLine>())
    .by(|| post(import::create)),
    on("POST", "/v1/jobs/bulk/pause", Needs::Operator, "Pauses all jobs of a filter, as an operation")
        .takes(json::<PauseJobs>())
        .gives(202, json::<Operation>())
        .or_gives(200, json::<BulkPreview>())
        .by(|| post(many::pause)),
    on("POST", "/v1/jobs/bulk/resume", Needs::Operator, "Resumes all jobs of a filter, as an operation")
        .takes(json::<SelectJobs>())
        .gives(202, json::<Operation>())
        .or_gives(200, json::<BulkPreview>())
        .by(|| post(many::resume)),
    on("POST", "/v1/jobs/bulk/delete", Needs::Operator, "Deletes all jobs of a filter, as an operation")
        .takes(json::<SelectJobs>())
        .gives(202, json::<Operation>())
        .or_gives(200, json::<BulkPreview>())
        .by(|| post(many::delete)),
    on(
        "POST",
        "/v1/jobs/bulk/edit",
        Needs::Operator,
        "Edits all jobs of a filter by a patch, as an operation",
    )
    .takes(json::<EditJobs>())
    .gives(202, json::<Operation>())
    .or_gives(200, json::<BulkPreview>())
    .by(|| post(many::edit)),
    on("GET", "/v1/jobs/key/{key}", Needs::Viewer, "Reads the job with a key")
        .gives(200, json::<Job>())
        .by(|| get(jobs::get_by_key)),
    on("PUT", "/v1/jobs/key/{key}", Needs::Operator, "Registers the job with a key, or changes it")
        .takes(json::<JobSpec>())
        .gives(200, json::<Job>())
        .or_gives(201, json::<Job>())
        .by(|| put(jobs::upsert)),
    on("GET", "/v1/jobs/{id}", Needs::Viewer, "Reads a job").gives(200, json::<Job>()).by(|| get(jobs::get)),
    on("PUT", "/v1/jobs/{id}", Needs::Operator, "Replaces what a job's owner asked for")
        .query(&[PENDING])
        .takes(json::<JobSpec>())
        .gives(200, json::<Job>())
        .by(|| put(jobs::put)),
    on("PATCH", "/v1/jobs/{id}", Needs::Operator, "Changes a job by a JSON merge patch (RFC 7396)")
        .query(&[PENDING])
        .takes(json::<JobSpec>())
        .gives(200, json::<Job>())
        .by(|| patch(jobs::patch)),
    on("DELETE", "/v1/jobs/{id}", Needs::Operator, "Deletes a job; its history stays until it expires")
        .by(|| delete(jobs::delete)),
    on("POST", "/v1/jobs/{id}/pause", Needs::Operator, "Pauses a job, until it is resumed or until a time")
        .takes(json::<Pause>())
        .gives(200, json::<Job>())
        .by(|| post(jobs::pause)),
    on("POST", "/v1/jobs/{id}/resume", Needs::Operator, "Resumes a job; the slots in between are skipped")
        .gives(200, json::<Job>())
        .by(|| post(jobs::resume)),
    on("POST", "/v1/jobs/{id}/trigger", Needs::Operator, "Runs a job now")
        .takes(json::<Trigger>())
        .gives(201, json::<RunSummary>())
        .by(|| post(jobs::trigger)),
    on("POST", "/v1/jobs/{id}/backfill", Needs::Operator, "Runs slots of the past, as an operation")
        .takes(json::<Backfill>())
        .gives(202, json::<Operation>())
        .or_gives(200, json::<BackfillSlots>())
        .by(|| post(jobs::backfill)),
    on("GET", "/v1/jobs/{id}/runs", Needs::Viewer, "Lists the runs of a job, newest first")
        .query(JOB_RUNS)
        .gives(200, page_of::<RunSummary>())
        .by(|| get(runs::list_of_job)),
    on("GET", "/v1/jobs/{id}/upcoming", Needs::Viewer, "Lists the slots to come")
        .query(UPCOMING)
        .gives(200, page_of::<Upcoming>())
        .by(|| get(jobs::upcoming)),
    on(
        "GET",
        "/v1/jobs/{id}/ledger",
        Needs::Viewer,
        "Accounts for slots that did not simply run, or for all slots of a range, newest first",
    )
    .query(LEDGER)
    .gives(200, page_of::<LedgerEntry>())
    .by(|| get(jobs::ledger)),
    on("GET", "/v1/jobs/{id}/why", Needs::Viewer, "Says why a job did or did not run at a time")
        .query(WHY)
        .gives(200, json::<Why>())
        .by(|| get(jobs::why)),
    on(
        "POST",
        "/v1/batches",
        Needs::Operator,
        "Registers a batch: a job with items, each of which is a run; the same again is the same batch",
    )
    .takes(json::<BatchSpec>())
    .gives(201, json::<Batch>())
    .or_gives(200, json::<Batch>())
    .by(|| post(batches::create)),
    on(
        "GET",
        "/v1/batches",
        Needs::Viewer,
        "Lists batches in the order of their jobs' ids, at most 50 at a time",
    )
    .query(&[LIMIT, CURSOR])
    .gives(200, page_of::<Batch>())
    .by(|| get(batches::list)),
    on("GET", "/v1/batches/{id}", Needs::Viewer, "Reads a batch, and counts the items of its newest slot")
        .gives(200, json::<Batch>())
        .by(|| get(batches::get)),
    on(
        "GET",
        "/v1/batches/{id}/items",
        Needs::Viewer,
        "Lists the items of a batch that have runs, newest first",
    )
    .query(&[STATE, LIMIT, CURSOR])
    .gives(200, page_of::<BatchRun>())
    .by(|| get(batches::items)),
    on(
        "POST",
        "/v1/batches/{id}/cancel",
        Needs::Operator,
        "Ends a batch: no slot comes, what waits ends, what runs is asked to stop",
    )
    .gives(200, json::<Batch>())
    .by(|| post(batches::cancel)),
    on(
        "DELETE",
        "/v1/batches/{id}",
        Needs::Operator,
        "Deletes a batch; its history stays until it expires, and its completion is not told",
    )
    .by(|| delete(batches::delete)),
    on("GET", "/v1/runs", Needs::Viewer, "Lists runs, newest first")
        .query(RUN_LIST)
        .gives(200, page_of::<RunSummary>())
        .by(|| get(runs::list)),
    on("POST", "/v1/runs/bulk/cancel", Needs::Operator, "Cancels all open runs of a filter, as an operation")
        .takes(json::<CancelRuns>())
        .gives(202, json::<Operation>())
        .or_gives(200, json::<BulkPreview>())
        .by(|| post(many::cancel)),
    on("GET", "/v1/runs/{id}", Needs::Viewer, "Reads a run with its attempts")
        .gives(200, json::<Run>())
        .by(|| get(runs::get)),
    on("GET", "/v1/runs/{id}/log", Needs::Viewer, "Reads the log of a run, oldest lines first")
        .query(LOG)
        .gives(200, page_of::<RunLogLine>())
        .by(|| get(runs::log)),
    on("POST", "/v1/runs/{id}/cancel", Needs::Operator, "Ends a waiting run, or asks a running one to stop")
        .gives(200, json::<RunSummary>())
        .by(|| post(runs::cancel)),
    on("POST", "/v1/runs/{id}/retry", Needs::Operator, "Lets a dead run go on with its next attempt")
        .gives(200, json::<RunSummary>())
        .by(|| post(runs::retry)),
    on(
        "POST",
        "/v1/runs/{id}/answer",
        Needs::Operator,
        "Says what became of a run that waits for an answer (`on_unknown` is `ask`)",
    )
    .takes(json::<RunAnswer>())
    .gives(200, json::<RunSummary>())
    .by(|| post(runs::answer)),
    on(
        "POST",
        "/v1/runs/{id}/heartbeat",
        Needs::Token,
        "Says that an attempt goes on whose receiver reports later (`completion` is `token`)",
    )
    .takes(json::<AttemptHeartbeat>())
    .gives(200, json::<AttemptHeard>())
    .by(|| post(reports::heartbeat)),
    on(
        "POST",
        "/v1/runs/{id}/complete",
        Needs::Token,
        "Says what became of an attempt whose receiver reports later (`completion` is `token`)",
    )
    .takes(json::<AttemptEnd>())
    .gives(200, json::<ResultTaken>())
    .by(|| post(reports::complete)),
    on(
        "POST",
        "/v1/claims",
        Needs::Worker,
        "Gives runs to a worker that asks for them; waits until there are any",
    )
    .takes(json::<Claim>())
    .gives(200, json::<Claimed>())
    .by(|| post(workers::claim)),
    on("GET", "/v1/workers", Needs::Viewer, "Lists workers that pull and live")
        .query(&[TENANT])
        .gives(200, page_of::<Worker>())
        .by(|| get(workers::list)),
    on("GET", "/v1/workers/{id}", Needs::Viewer, "Reads a worker")
        .gives(200, json::<Worker>())
        .by(|| get(workers::get)),
    on("DELETE", "/v1/workers/{id}", Needs::Worker, "A worker goes: what it still holds goes back")
        .by(|| delete(workers::dismiss)),
    on(
        "POST",
        "/v1/workers/{id}/heartbeat",
        Needs::Worker,
        "A worker's sign of life, with everything it holds",
    )
    .takes(json::<WorkerHeartbeat>())
    .gives(200, json::<HeartbeatAnswer>())
    .by(|| post(workers::heartbeat)),
    on("POST", "/v1/workers/{id}/results", Needs::Worker, "Reports up to 1000 attempts that are over")
        .takes(json::<Results>())
        .gives(200, json::<ResultsTaken>())
        .by(|| post(workers::results)),
    on(
        "GET",
        "/v1/queues",
        Needs::Viewer,
        "Lists queues: what waits and runs, who serves them, what is planned",
    )
    .query(&[TENANT])
    .gives(200, page_of::<Queue>())
    .by(|| get(queues::list)),
    on("GET", "/v1/dead-letters", Needs::Viewer, "Lists runs that ended badly and wait for somebody")
        .query(DEAD_LIST)
        .gives(200, page_of::<RunSummary>())
        .by(|| get(dead_letters::list)),
    on(
        "GET",
        "/v1/dead-letters/groups",
        Needs::Viewer,
        "Groups the newest dead letters by error, the largest group first",
    )
    .query(DEAD_GROUPS)
    .gives(200, json::<DeadLetterGroups>())
    .by(|| get(dead_letters::groups)),
    on(
        "POST",
        "/v1/dead-letters/redrive",
        Needs::Operator,
        "Lets dead runs go on; by filter it is an operation",
    )
    .takes(json::<Selection>())
    .gives(200, json::<SelectionResult>())
    .or_gives(202, json::<Operation>())
    .by(|| post(dead_letters::redrive)),
    on(
        "POST",
        "/v1/dead-letters/acknowledge",
        Needs::Operator,
        "Takes runs out of the dead letters; by filter it is an operation",
    )
    .takes(json::<Selection>())
    .gives(200, json::<SelectionResult>())
    .or_gives(202, json::<Operation>())
    .by(|| post(dead_letters::acknowledge)),
    on("GET", "/v1/operations", Needs::Viewer, "Lists operations, newest first")
        .query(OPERATION_LIST)
        .gives(200, page_of::<Operation>())
        .by(|| get(operations::list)),
    on("GET", "/v1/operations/{id}", Needs::Viewer, "Reads an operation, until a week after its end")
        .gives(200, json::<Operation>())
        .by(|| get(operations::get)),
    on(
        "POST",
        "/v1/operations/{id}/cancel",
        Needs::Operator,
        "Ends an operation between two steps; what it did stays done",
    )
    .gives(200, json::<Operation>())
    .by(|| post(operations::cancel)),
    on("GET", "/v1/forecast", Needs::Viewer, "Says how many slots are planned, by time and by group")
        .query(FORECAST)
        .gives(200, json::<Forecast>())
        .by(|| get(forecast::get)),
    on("GET", "/v1/calendars", Needs::Viewer, "Lists calendars by name")
        .query(&[LIMIT, CURSOR])
        .gives(200, page_of::<Calendar>())
        .by(|| get(calendars::list)),
    on("GET", "/v1/calendars/{name}", Needs::Viewer, "Reads a calendar")
        .gives(200, json::<Calendar>())
        .by(|| get(calendars::get)),
    on(
        "PUT",
        "/v1/calendars/{name}",
        Needs::Operator,
        "Sets a calendar; the jobs that use it are planned anew, as an operation",
    )
    .takes(json::<CalendarSpec>())
    .gives(200, json::<Calendar>())
    .or_gives(201, json::<Calendar>())
    .by(|| put(calendars::put)),
    on("DELETE", "/v1/calendars/{name}", Needs::Operator, "Deletes a calendar that no job uses")
        .by(|| delete(calendars::delete)),
    on("GET", "/v1/nodes", Needs::Admin, "Lists the live nodes of the cluster")
        .for_all()
        .gives(200, page_of::<Node>())
        .by(|| get(nodes::list)),
    on("GET", "/v1/shards", Needs::Admin, "Lists the shards and the nodes that fire them")
        .for_all()
        .gives(200, page_of::<Shard>())
        .by(|| get(nodes::shards)),
    on("POST", "/v1/shards/move", Needs::Admin, "Moves shards to another database, as an operation")
        .for_all()
        .takes(json::<MoveShards>())
        .gives(202, json::<Operation>())
        .by(|| post(nodes::move_shards)),
    on("GET", "/v1/databases", Needs::Admin, "Lists the databases and the shards that live in each")
        .for_all()
        .gives(200, page_of::<Database>())
        .by(|| get(nodes::databases)),
    on("GET", "/v1/limits", Needs::Admin, "Lists the limits that administrators set")
        .for_all()
        .gives(200, page_of::<Limit>())
        .by(|| get(limits::list)),
    on("GET", "/v1/limits/{name}", Needs::Admin, "Reads a limit")
        .for_all()
        .gives(200, json::<Limit>())
        .by(|| get(limits::get)),
    on("PUT", "/v1/limits/{name}", Needs::Admin, "Sets a limit, which counts within two seconds")
        .for_all()
        .takes(json::<LimitSpec>())
        .gives(201, json::<Limit>())
        .or_gives(200, json::<Limit>())
        .by(|| put(limits::put)),
    on("DELETE", "/v1/limits/{name}", Needs::Admin, "Deletes a limit; who waits for it goes on")
        .for_all()
        .by(|| delete(limits::delete)),
    on("GET", "/v1/breakers", Needs::Admin, "Lists the targets and jobs that are left alone")
        .for_all()
        .gives(200, page_of::<Breaker>())
        .by(|| get(breakers::list)),
    on("DELETE", "/v1/breakers/{name}", Needs::Admin, "Resets a breaker; who waits for it goes on")
        .for_all()
        .by(|| delete(breakers::reset)),
    on("GET", "/v1/alerts", Needs::Viewer, "Lists what somebody wants to be told of")
        .gives(200, page_of::<Alert>())
        .by(|| get(alerts::list)),
    on("GET", "/v1/alerts/{name}", Needs::Viewer, "Reads an alert")
        .gives(200, json::<Alert>())
        .by(|| get(alerts::get)),
    on("PUT", "/v1/alerts/{name}", Needs::Operator, "Sets an alert, for what happens from now on")
        .takes(json::<AlertSpec>())
        .gives(201, json::<Alert>())
        .or_gives(200, json::<Alert>())
        .by(|| put(alerts::put)),
    on("DELETE", "/v1/alerts/{name}", Needs::Operator, "Deletes an alert, with its alarms")
        .by(|| delete(alerts::delete)),
    on("GET", "/v1/alarms", Needs::Viewer, "Lists what is raised now, and since when")
        .query(&[LIMIT, CURSOR])
        .gives(200, page_of::<Alarm>())
        .by(|| get(alerts::alarms)),
    on("POST", "/v1/keys", Needs::Admin, "Creates a key, and shows it this once")
        .takes(json::<KeySpec>())
        .gives(201, json::<NewKey>())
        .by(|| post(keys::create)),
    on("GET", "/v1/keys", Needs::Admin, "Lists keys, of a tenant or of all, without what proves them")
        .query(&[TENANT, LIMIT, CURSOR])
        .gives(200, page_of::<Key>())
        .by(|| get(keys::list)),
    on("GET", "/v1/keys/{id}", Needs::Admin, "Reads a key").gives(200, json::<Key>()).by(|| get(keys::get)),
    on("DELETE", "/v1/keys/{id}", Needs::Admin, "Revokes a key, within a second on every node")
        .by(|| delete(keys::revoke)),
    on(
        "POST",
        "/v1/keys/{id}/rotate",
        Needs::Admin,
        "Gives a key a new secret; the old one stays good for a while",
    )
    .takes(json::<KeyRotation>())
    .gives(200, json::<NewKey>())
    .by(|| post(keys::rotate)),
    on("GET", "/v1/tenants", Needs::Admin, "Lists the tenants")
        .gives(200, page_of::<Tenant>())
        .by(|| get(tenants::list)),
    on("POST", "/v1/tenants", Needs::Admin, "Creates a tenant, or finds it")
        .for_all()
        .takes(json::<TenantSpec>())
        .gives(201, json::<Tenant>())
        .or_gives(200, json::<Tenant>())
        .by(|| post(tenants::create)),
    on(
        "GET",
        "/v1/tenants/{name}/defaults",
        Needs::Viewer,
        "Reads what holds for jobs of a tenant that do not say",
    )
    .gives(200, json::<JobDefaults>())
    .by(|| get(tenants::defaults)),
    on(
        "PUT",
        "/v1/tenants/{name}/defaults",
        Needs::Admin,
        "Sets it, for jobs that are registered or replaced from then on",
    )
    .takes(json::<JobDefaults>())
    .gives(200, json::<JobDefaults>())
    .by(|| put(tenants::put_defaults)),
    on("DELETE", "/v1/tenants/{name}/defaults", Needs::Admin, "Takes it away; jobs keep what they have")
        .by(|| delete(tenants::delete_defaults)),
];

/// The methods of gRPC, as routes: the same gate, the same roles.
pub static METHODS: &[Endpoint] = &[
    on(
        "POST",
        "/punctual.v1.Workers/Claim",
        Needs::Worker,
        "Gives runs to a worker for as long as its stream lives",
    ),
    on(
        "POST",
        "/punctual.v1.Workers/Heartbeat",
        Needs::Worker,
        "A worker's sign of life, with everything it holds",
    ),
    on("POST", "/punctual.v1.Workers/Report", Needs::Worker, "Reports up to 1000 attempts that are over"),
    on("POST", "/punctual.v1.Workers/Dismiss", Needs::Worker, "A worker goes: what it still holds goes back"),
    on("POST", "/punctual.v1.Workers/ListWorkers", Needs::Viewer, "Lists workers that pull and live"),
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

/// The API.
///
/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, so that [`crate::Loopback`] knows who calls.
pub fn router(state: State) -> Router {
    routes(state, |_| true)
}

/// What a node answers that has no API: whether it lives and can work, and its metrics.
pub fn probes(state: State) -> Router {
    let is_probe = |endpoint: &Endpoint| {
        ["/livez", "/readyz", "/metrics"].contains(&endpoint.path) || endpoint.path.starts_with("/grpc.")
    };
    routes(state, is_probe)
}

fn routes(state: State, has: fn(&Endpoint) -> bool) -> Router {
    let shared = Shared::new(state);
    let mut router = Router::new();
    for endpoint in TABLE.iter().filter(|endpoint| has(endpoint)) {
        let gate = middleware::from_fn_with_state((shared.clone(), endpoint), gate);
        router = router.route(endpoint.path, (endpoint.handler)().route_layer(gate));
    }
    for page in console::PAGES.iter().filter(|page| has(page)) {
        let gate = middleware::from_fn_with_state((shared.clone(), page), console::gate);
        router = router.route(page.path, (page.handler)().route_layer(gate));
    }
    let services = Services::new(&shared);
    for method in METHODS.iter().filter(|method| has(method)) {
        let gate = middleware::from_fn_with_state((shared.clone(), method), gate);
        if let Some(service) = services.of(method) {
            router = router.route(method.path, service.route_layer(gate));
        }
    }
    router
        .fallback(meta::no_such_route)
        .method_not_allowed_fallback(meta::no_such_method)
        .layer(middleware::from_fn_with_state(shared.clone(), front::front))
        .with_state(shared)
}
