//! The parameters of queries, as the table of routes names them.

use crate::query::Param;

const fn param(name: &'static str, about: &'static str) -> Param {
    Param { name, about }
}

pub(crate) const LIMIT: Param = param("limit", "How many items, 1 to 1000; 50.");
pub(crate) const CURSOR: Param = param("cursor", "The `next_cursor` of the page before.");
pub(crate) const STATE: Param =
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
pub(crate) const TENANT: Param = param("tenant", "Of this tenant; `*` is all of them, for an admin.");
pub(crate) const PENDING: Param = param(
    "pending",
    "`keep` (the default): waiting runs keep their version; `update`: they take the new one.",
);

pub(crate) const JOB_LIST: &[Param] = &[
    param("state", "`active`, `paused` or `ended`."),
    param("label", "`name=value`: jobs with this label; given several times, with all of them."),
    param("name", "Jobs with this text in their names."),
    param("key_prefix", "Jobs with keys that begin like this."),
    QUEUE,
    TYPE,
    LIMIT,
    CURSOR,
];
pub(crate) const RUN_LIST: &[Param] =
    &[STATE, DEAD, WAITING_FOR, JOB, TYPE, TENANT, QUEUE, FROM, TO, LIMIT, CURSOR];
pub(crate) const JOB_RUNS: &[Param] = &[STATE, DEAD, WAITING_FOR, FROM, TO, LIMIT, CURSOR];
pub(crate) const LOG: &[Param] = &[
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
pub(crate) const DEAD_LIST: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, LIMIT, CURSOR];
pub(crate) const DEAD_GROUPS: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, CURSOR];
pub(crate) const LEDGER: &[Param] = &[
    param("from", "Slots at or after; with `from` or `to` every slot is accounted for, also those that ran."),
    param("to", "Slots before; now."),
    LIMIT,
    CURSOR,
];
pub(crate) const WHY: &[Param] = &[param(
    "at",
    "The time that is asked about: RFC 3339, epoch seconds, or `2026-12-24T18:00` on the clock of the job; \
     the latest slot.",
)];
pub(crate) const OPERATION_LIST: &[Param] =
    &[param("state", "`running`, `succeeded`, `failed` or `cancelled`."), LIMIT, CURSOR];
pub(crate) const FORECAST: &[Param] = &[
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
pub(crate) const AUDIT: &[Param] = &[
    param("from", "Made at or after: RFC 3339 or epoch seconds."),
    param("to", "Made before: RFC 3339 or epoch seconds."),
    param("who", "By the key of this id or name; `loopback` is whoever showed none."),
    param("action", "What was done, such as `create`, `edit` or `delete`."),
    param("kind", "What was changed, such as `job`, `calendar` or `key`."),
    param("subject", "Which: an id or a name."),
    TENANT,
    LIMIT,
    CURSOR,
];
pub(crate) const UPCOMING: &[Param] = &[param("from", "Slots after this time; now."), LIMIT];
