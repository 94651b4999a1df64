//! The parameters of routes: their names, what they are for, and what may be written.
//!
//! The table of routes names them, `query.rs` reads them, the OpenAPI document describes them. Promise: what the document allows is what
//! is taken; a test asks every route for every parameter, with what it allows and with what it does not.

use punctual_api::limits::PAGE_MAX;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Required, Schema};

use crate::runs::STATES;

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
}

/// What may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Printable ASCII without spaces.
    Word {
        /// So many characters at most.
        most: usize,
    },
    /// A version in quotes, or `*`.
    Etag,
    /// A whole number.
    Whole {
        /// The smallest.
        least: i64,
        /// The largest.
        most: i64,
    },
    /// One of these words.
    Words(&'static [&'static str]),
    /// Some of these words, with commas between.
    Several(&'static [&'static str]),
    /// RFC 3339, or epoch seconds.
    Time,
    /// As a time, or on the clock of the job.
    Moment,
    /// A length, as `PT1M` or `1m`.
    Duration,
    /// `true` or `false`.
    Flag,
    /// `name=value`.
    Label,
    /// `name=value`, and again for another one.
    Labels,
    /// The id of a job, a run, an operation or a worker.
    Id,
    /// The id of a key.
    KeyId,
    /// The name of a tenant.
    Tenant,
    /// The name of a tenant, or `*`.
    AnyTenant,
}

/// A UUIDv7, as we print it.
const ID: &str = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";

/// As keys are named.
const KEY_ID: &str = "^[0-9a-f]{16}$";

/// As `TenantName` reads it.
const TENANT_NAME: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// The times there are, in epoch seconds.
const SECONDS: (i64, i64) = (-377_705_023_201, 253_402_207_200);

impl Kind {
    /// As the OpenAPI document says it.
    pub(crate) fn schema(self) -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        match self {
            Kind::Text => text().min_length(Some(1)).into(),
            Kind::Word { most } => text().pattern(Some(format!("^[!-~]{{1,{most}}}$"))).into(),
            Kind::Etag => text().pattern(Some("^(\"[0-9]{1,9}\"|\\*)$")).example(Some("\"3\"".into())).into(),
            Kind::Whole { least, most } => whole(least, most),
            Kind::Words(words) => text().enum_values(Some(words.iter().copied())).into(),
            Kind::Several(words) => several(words.iter().map(|word| (*word).to_string())),
            Kind::Time => {
                let written = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
                AnyOfBuilder::new().item(written).item(whole(SECONDS.0, SECONDS.1)).into()
            }
            Kind::Moment => text().min_length(Some(1)).example(Some("2026-12-24T18:00".into())).into(),
            Kind::Duration => text().min_length(Some(1)).example(Some("PT1M".into())).into(),
            Kind::Flag => ObjectBuilder::new().schema_type(Type::Boolean).into(),
            Kind::Label => text().pattern(Some("=")).example(Some("team=billing".into())).into(),
            Kind::Labels => ArrayBuilder::new().items(Kind::Label.schema()).into(),
            Kind::Id => text().pattern(Some(ID)).into(),
            Kind::KeyId => text().pattern(Some(KEY_ID)).into(),
            Kind::Tenant => text().pattern(Some(TENANT_NAME)).into(),
            Kind::AnyTenant => text().pattern(Some(format!("{TENANT_NAME}|^\\*$"))).into(),
        }
    }

    /// Whether several values are written into one, with commas between.
    fn is_joined(self) -> bool {
        matches!(self, Kind::Several(_))
    }
}

fn whole(least: i64, most: i64) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(least))
        .maximum(Some(most))
        .into()
}

/// A list of words.
pub(crate) fn several(words: impl Iterator<Item = String>) -> RefOr<Schema> {
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    ArrayBuilder::new().items(word).into()
}

impl Param {
    /// As a part of a query in the OpenAPI document.
    pub(crate) fn described(&self) -> Parameter {
        let explode = self.kind.is_joined().then_some(false);
        described(self.name, ParameterIn::Query, self.about, self.kind.schema(), explode)
    }
}

/// A part of a path in the OpenAPI document: which one is meant follows from the noun before it.
pub(crate) fn in_path(path: &str, name: &str) -> Parameter {
    let noun = path.trim_start_matches("/v1/").split('/').next().unwrap_or("");
    let (kind, about) = match (noun, name) {
        ("jobs", "id") => (Kind::Id, "The job's id."),
        ("jobs", _) => (Kind::Text, "The job's key."),
        ("runs", _) => (Kind::Id, "The run's id."),
        ("operations", _) => (Kind::Id, "The operation's id."),
        ("workers", _) => (Kind::Id, "The worker's id."),
        ("batches", _) => (Kind::Text, "The batch's id, as its owner chose it."),
        ("keys", _) => (Kind::KeyId, "The key's id: what stands between `pk_` and the next `_`."),
        ("tenants", _) => (Kind::Tenant, "The tenant's name."),
        _ => (Kind::Text, "Its name."),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .description(Some(about))
        .required(Required::True)
        .schema(Some(kind.schema()))
        .build()
}

/// A parameter that may be left out.
pub(crate) fn described(
    name: &str,
    place: ParameterIn,
    about: &str,
    schema: RefOr<Schema>,
    explode: Option<bool>,
) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .description(Some(about))
        .required(Required::False)
        .schema(Some(schema))
        .explode(explode)
        .build()
}

const fn param(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, about, kind }
}

/// The words of a table.
const fn words<T: Copy, const N: usize>(table: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut place = 0;
    while place < N {
        words[place] = table[place].0;
        place += 1;
    }
    words
}

const RUN_STATES: &[&str] = &words(&STATES);
const WAITING: &[&str] = &words(&crate::runs::WAITING_FOR);

pub(crate) const LIMIT: Param =
    param("limit", Kind::Whole { least: 1, most: PAGE_MAX as i64 }, "How many items, 1 to 1000; 50.");
pub(crate) const CURSOR: Param = param("cursor", Kind::Text, "The `next_cursor` of the page before.");
pub(crate) const STATE: Param = param("state", Kind::Words(RUN_STATES), "Runs in this state.");
const DEAD: Param = param("dead", Kind::Flag, "`true`: dead letters only; `false`: all others.");
const WAITING_FOR: Param =
    param("waiting_for", Kind::Words(WAITING), "Pending runs that wait for it; breakers are limits, too.");
const JOB: Param = param("job", Kind::Id, "Of this job, by id.");
const TYPE: Param = param("type", Kind::Text, "Of this type.");
const QUEUE: Param = param("queue", Kind::Text, "In this queue.");
const FROM: Param = param("from", Kind::Time, "Born at or after: RFC 3339 or epoch seconds.");
const TO: Param = param("to", Kind::Time, "Born before: RFC 3339 or epoch seconds.");
pub(crate) const TENANT: Param =
    param("tenant", Kind::AnyTenant, "Of this tenant; `*` is all of them, for an admin.");
pub(crate) const PENDING: Param = param(
    "pending",
    Kind::Words(&["keep", "update"]),
    "`keep` (the default): waiting runs keep their version; `update`: they take the new one.",
);

pub(crate) const PAGE: &[Param] = &[LIMIT, CURSOR];
pub(crate) const JOB_LIST: &[Param] = &[
    param("state", Kind::Words(&["active", "paused", "ended"]), "Jobs in this state."),
    param(
        "label",
        Kind::Labels,
        "`name=value`: jobs with this label; given several times, with all of them.",
    ),
    param("name", Kind::Text, "Jobs with this text in their names."),
    param("key_prefix", Kind::Text, "Jobs with keys that begin like this."),
    QUEUE,
    TYPE,
    LIMIT,
    CURSOR,
];
pub(crate) const RUN_LIST: &[Param] =
    &[STATE, DEAD, WAITING_FOR, JOB, TYPE, TENANT, QUEUE, FROM, TO, LIMIT, CURSOR];
pub(crate) const JOB_RUNS: &[Param] = &[STATE, DEAD, WAITING_FOR, FROM, TO, LIMIT, CURSOR];
pub(crate) const LOG: &[Param] = &[
    param("attempt", Kind::Whole { least: 1, most: u32::MAX as i64 }, "Of this attempt; of all."),
    param(
        "follow",
        Kind::Flag,
        "`true`: waits up to 20 seconds for more, and gives a `next_cursor` as long as there may be more.",
    ),
    LIMIT,
    CURSOR,
];
const ERROR: Param =
    param("error", Kind::Text, "The error of the last attempt has this code, such as `connect_failed`.");
const LABEL: Param = param("label", Kind::Label, "`name=value`: of jobs with this label.");
pub(crate) const DEAD_LIST: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, LIMIT, CURSOR];
pub(crate) const DEAD_GROUPS: &[Param] = &[JOB, TYPE, QUEUE, FROM, TO, ERROR, LABEL, TENANT, CURSOR];
pub(crate) const LEDGER: &[Param] = &[
    param(
        "from",
        Kind::Time,
        "Slots at or after; with `from` or `to` every slot is accounted for, also those that ran.",
    ),
    param("to", Kind::Time, "Slots before; now."),
    LIMIT,
    CURSOR,
];
pub(crate) const WHY: &[Param] = &[param(
    "at",
    Kind::Moment,
    "The time that is asked about: RFC 3339, epoch seconds, or `2026-12-24T18:00` on the clock of the job; \
     the latest slot.",
)];
pub(crate) const OPERATION_LIST: &[Param] = &[
    param(
        "state",
        Kind::Words(&["running", "succeeded", "failed", "cancelled"]),
        "Operations in this state.",
    ),
    LIMIT,
    CURSOR,
];
pub(crate) const FORECAST: &[Param] = &[
    param("from", Kind::Time, "From when on: RFC 3339 or epoch seconds; now."),
    param("to", Kind::Time, "To when, at most 31 days later; an hour later."),
    param(
        "resolution",
        Kind::Duration,
        "The length of a bucket, as `PT1M`; at most 1440 buckets. What gives 60 at most.",
    ),
    param(
        "by",
        Kind::Several(&["tenant", "type", "target"]),
        "What groups are told apart by, with commas between; all three.",
    ),
    param(
        "groups",
        Kind::Whole { least: 0, most: 100 },
        "How many groups are told apart; 20. The others are one.",
    ),
    TENANT,
];
pub(crate) const UPCOMING: &[Param] = &[param("from", Kind::Time, "Slots after this time; now."), LIMIT];
