//! The schema: made and brought up to date, forward only.
//!
//! Each migration is applied once, in order, in a transaction of its own, under a lock, so that of many nodes that
//! start at once one migrates and the others wait. Promise: a database of a newer schema is not touched, and not used
//! unless that schema says that this version can.

use jiff::Timestamp;

use crate::client::Client;
use crate::connect::{Connections, Options};
use crate::error::OpenError;
use crate::row::timestamp;
use crate::wakeups::Hints;

/// A step from one schema to the next.
struct Migration {
    name: &'static str,
    sql: &'static str,
    /// The oldest schema whose program can still work when this step is done: its nodes run on while others are upgraded.
    compatible_with: i32,
}

/// All migrations. The number is the place in the list, from 1.
const MIGRATIONS: [Migration; 14] = [
    Migration { name: "start", sql: include_str!("../migrations/0001_start.sql"), compatible_with: 1 },
    // A node of the first schema owns all shards or none, and answers nobody while it owns none: those that come after
    // it wait until it goes.
    Migration { name: "nodes", sql: include_str!("../migrations/0002_nodes.sql"), compatible_with: 1 },
    // Older nodes do not look into the lists: what newer ones note is forgotten when these do.
    Migration {
        name: "ended_lists",
        sql: include_str!("../migrations/0003_ended_lists.sql"),
        compatible_with: 1,
    },
    // Nodes of older schemas know of one database; they are shut out when another joins.
    Migration {
        name: "databases",
        sql: include_str!("../migrations/0004_databases.sql"),
        compatible_with: 1,
    },
    // Older nodes do not know that a run may start until a time, and cannot read one that was missed.
    Migration { name: "lapses", sql: include_str!("../migrations/0005_lapses.sql"), compatible_with: 1 },
    // Older nodes know of no overlap policy: they make runs as if it were allowed, and leave runs behind when they end one
    // that others wait for; those are found when a newer node looks.
    Migration { name: "overlap", sql: include_str!("../migrations/0006_overlap.sql"), compatible_with: 1 },
    // Nodes of older schemas do not find runs that require something, but give those that wait for their time to anybody.
    Migration {
        name: "requirements",
        sql: include_str!("../migrations/0007_requirements.sql"),
        compatible_with: 1,
    },
    // Nodes of older schemas claim by lane and priority, whatever the tenant.
    Migration { name: "turns", sql: include_str!("../migrations/0008_turns.sql"), compatible_with: 1 },
    // Nodes of older schemas know of no limits: they neither take permits nor give any back.
    Migration { name: "limits", sql: include_str!("../migrations/0009_limits.sql"), compatible_with: 1 },
    // Nodes of older schemas know of no documents, and neither calendars nor alerts nor defaults.
    Migration {
        name: "documents",
        sql: include_str!("../migrations/0010_documents.sql"),
        compatible_with: 1,
    },
    // Nodes of older schemas know of no caps, and of slots that one kept from running they tell that they were missed.
    Migration { name: "backlog", sql: include_str!("../migrations/0011_backlog.sql"), compatible_with: 1 },
    // Nodes of older schemas keep outputs in the records of runs. What a newer node kept apart they do not show; of a run that they end
    // it is brought to history by a newer one, and of a dead letter that they redrive it is lost.
    Migration { name: "papers", sql: include_str!("../migrations/0012_papers.sql"), compatible_with: 1 },
    // Nodes of older schemas do not tell who pulls.
    Migration { name: "workers", sql: include_str!("../migrations/0013_workers.sql"), compatible_with: 1 },
    // Nodes of older schemas change things without an entry in the audit.
    Migration { name: "audit", sql: include_str!("../migrations/0014_audit.sql"), compatible_with: 1 },
];

/// The oldest schema that knows of several databases.
pub(crate) const SEVERAL: i32 = 4;

/// What a database without a wish gets.
const SHARDS: u16 = 256;

/// Any number, the same for all nodes: "Punctual".
const LOCK: i64 = 0x5075_6e63_7475_616c;

/// Where migrations are noted. The last column is not in the oldest databases.
const VERSIONS: &str = "
create table if not exists schema_versions (version int primary key, applied_at timestamptz not null);
alter table schema_versions add column if not exists compatible_with int";

/// The schema of a database, beside what this version knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The last migration that was applied; 0 in an empty database.
    pub found: i32,
    /// The last migration that this version knows.
    pub known: i32,
    /// Whether this version can work with it as it is.
    pub is_usable: bool,
    /// Every migration, those of newer versions too.
    pub steps: Vec<SchemaStep>,
}

/// A migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStep {
    /// Its number.
    pub version: i32,
    /// What it is about; nothing if a newer version made it.
    pub name: Option<&'static str>,
    /// When it was applied, if it was.
    pub applied_at: Option<Timestamp>,
}

impl Schema {
    /// Reads it, and changes nothing.
    pub async fn read(options: &Options) -> Result<Schema, OpenError> {
        read(&connect(options).await?).await
    }

    /// Brings it up to date, and says what it was before.
    pub async fn bring_up(options: &Options) -> Result<Schema, OpenError> {
        let mut client = connect(options).await?;
        let before = read(&client).await?;
        migrate(&mut client, options).await?;
        Ok(before)
    }

    /// Refuses what this version cannot work with, without bringing it up to date.
    pub fn check(&self) -> Result<(), OpenError> {
        let Schema { found, known, .. } = *self;
        match (self.is_usable, found < known) {
            (true, _) => Ok(()),
            (false, true) => Err(OpenError::OlderSchema { found, known }),
            (false, false) => Err(OpenError::NewerSchema { found, known }),
        }
    }
}

async fn connect(options: &Options) -> Result<Client<'static>, OpenError> {
    // It needs no session, and so may not leave anything in one.
    let options = Options { hints: Hints::Off, ..options.clone() };
    Connections::new(&options)?.get().await.map_err(|error| OpenError::from(&error))
}

/// Reads the schema of a database.
pub(crate) async fn read(client: &Client<'_>) -> Result<Schema, OpenError> {
    let known = MIGRATIONS.len() as i32;
    // Not `to_regclass`: within a transaction that waited for another it may remember that the table was not there.
    let is_there = "select exists (select from pg_class \
        where relname = 'schema_versions' and relkind = 'r' and pg_table_is_visible(oid))";
    // As JSON, because the column is not in the oldest databases.
    let applied = "select version, (extract(epoch from applied_at) * 1000)::bigint, \
        coalesce((to_json(s) ->> 'compatible_with')::int, version) from schema_versions s order by version";
    let rows = match client.query_one(is_there, &[]).await?.get(0) {
        true => client.query(applied, &[]).await?,
        false => Vec::new(),
    };
    let mut steps: Vec<SchemaStep> = MIGRATIONS
        .iter()
        .zip(1..)
        .map(|(migration, version)| SchemaStep { version, name: Some(migration.name), applied_at: None })
        .collect();
    let (mut found, mut is_usable) = (0, true);
    for row in &rows {
        let (version, applied_at, compatible_with): (i32, i64, i32) = (row.get(0), row.get(1), row.get(2));
        let applied_at = timestamp(applied_at).ok();
        found = found.max(version);
        match steps.iter_mut().find(|step| step.version == version) {
            Some(step) => step.applied_at = applied_at,
            None => {
                is_usable &= compatible_with <= known;
                steps.push(SchemaStep { version, name: None, applied_at });
            }
        }
    }
    Ok(Schema { found, known, is_usable: is_usable && found >= known, steps })
}

/// Brings the schema up to date and returns the number of shards.
pub(crate) async fn migrate(client: &mut Client<'_>, options: &Options) -> Result<u16, OpenError> {
    loop {
        let transaction = client.transaction().await?;
        // Whoever waits for another node that migrates waits as long as that takes.
        transaction.batch_execute("set local statement_timeout = 0").await?;
        transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        let schema = read(&transaction).await?;
        if schema.found >= schema.known {
            schema.check()?;
            if schema.found > schema.known {
                tracing::warn!(
                    found = schema.found,
                    known = schema.known,
                    "a newer version upgrades this database"
                );
            }
            break;
        }
        transaction.batch_execute(VERSIONS).await?;
        let migration = &MIGRATIONS[schema.found as usize];
        transaction.batch_execute(migration.sql).await?;
        if schema.found == 0 {
            let shards = i32::from(options.shards.unwrap_or(SHARDS));
            let fill = "insert into shards select n, null, 0, 0 from generate_series(0, $1 - 1) n";
            transaction.execute(fill, &[&shards]).await?;
        }
        let version = schema.found + 1;
        let note =
            "insert into schema_versions (version, applied_at, compatible_with) values ($1, now(), $2)";
        transaction.execute(note, &[&version, &migration.compatible_with]).await?;
        transaction.commit().await?;
        tracing::info!(version, name = migration.name, "the schema of the database was brought up to date");
    }
    let count = "select convert_from(value, 'UTF8')::int from settings where name = 'shards'";
    let row = client.query_one(count, &[]).await?;
    let found = row.get::<_, i32>(0) as u16;
    match options.shards {
        Some(wanted) if wanted != found => Err(OpenError::Shards { found, wanted }),
        _ => Ok(found),
    }
}
