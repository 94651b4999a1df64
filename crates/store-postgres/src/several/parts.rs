//! What a shard is made of: its rows in each table.
//!
//! Rows go from database to database as JSON, by the names of their columns, and are found by the keys of their tables. A
//! row that is there already is replaced, so that everything may be done twice.

/// The rows of a table that belong to shards.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) table: &'static str,
    /// The primary key, in its order, with the types of its columns.
    pub(super) key: &'static [(&'static str, &'static str)],
    /// The shard of a row `r`.
    pub(super) shard: &'static str,
    /// Rows that go at once when the shard has gone, because somebody might write to them; the others go bit by bit.
    pub(super) is_hot: bool,
}

const OF_JOB: &str = "punctual_shard(r.job)";

/// In the order in which they are copied. The number of a part is its place in this list.
pub(super) const PARTS: [Part; 13] = [
    Part { table: "jobs", key: &[("id", "uuid")], shard: "punctual_shard(r.id)", is_hot: false },
    Part {
        table: "job_versions",
        key: &[("id", "uuid"), ("version", "int")],
        shard: "punctual_shard(r.id)",
        is_hot: false,
    },
    Part { table: "job_keys", key: &[("tenant", "int"), ("key", "text")], shard: OF_JOB, is_hot: false },
    Part {
        table: "ended_jobs",
        key: &[("forget_at", "bigint"), ("job", "uuid"), ("version", "int")],
        shard: OF_JOB,
        is_hot: false,
    },
    // A row has jobs of many shards: each goes for itself, as `ENDED_JOBS`.
    Part {
        table: "ended_lists",
        key: &[("forget_at", "bigint"), ("id", "bigint")],
        shard: OF_JOB,
        is_hot: false,
    },
    Part { table: "requests", key: &[("tenant", "int"), ("key", "text")], shard: "r.shard", is_hot: false },
    Part { table: "ledger", key: &[("job", "uuid"), ("from_slot", "bigint")], shard: OF_JOB, is_hot: false },
    Part { table: "history", key: &[("class", "smallint"), ("seq", "bigint")], shard: OF_JOB, is_hot: false },
    Part { table: "dead_letters", key: &[("seq", "bigint")], shard: OF_JOB, is_hot: true },
    Part { table: "operations", key: &[("id", "uuid")], shard: "r.shard", is_hot: true },
    Part {
        table: "due",
        key: &[
            ("shard", "smallint"),
            ("at", "bigint"),
            ("lane", "smallint"),
            ("tenant", "int"),
            ("job", "uuid"),
            ("version", "int"),
        ],
        shard: "r.shard",
        is_hot: true,
    },
    Part { table: "open_runs", key: &[("seq", "bigint")], shard: "r.shard", is_hot: true },
    // After their runs, as everywhere: who holds a run may write what it says.
    Part {
        table: "open_papers",
        key: &[("seq", "bigint"), ("attempt", "int")],
        shard: "r.shard",
        is_hot: true,
    },
];

/// Where what is in lists goes.
const ENDED_JOBS: usize = 3;

impl Part {
    /// Whether its rows are lists, whose items are rows of another part.
    pub(super) fn is_list(&self) -> bool {
        self.table == "ended_lists"
    }

    /// The part that its rows are written to.
    pub(super) fn goes_to(&self) -> &'static Part {
        let is_it = |part: &&Part| part.table == self.table;
        if self.is_list() { &PARTS[ENDED_JOBS] } else { PARTS.iter().find(is_it).unwrap_or(&PARTS[0]) }
    }

    fn number(&self) -> usize {
        PARTS.iter().position(|part| part.table == self.goes_to().table).unwrap_or(0)
    }

    /// The rows that those of a table stand for.
    fn rows(&self) -> &'static str {
        match self.is_list() {
            true => "(select forget_at, unnest(jobs) as job, unnest(versions) as version from %I) r",
            false => "%I r",
        }
    }

    fn columns(&self, of: &str) -> String {
        let columns: Vec<String> = self.key.iter().map(|(name, _)| format!("{of}{name}")).collect();
        columns.join(", ")
    }

    /// A row's key as a JSON array, which [`Part::page`] continues after.
    fn key_of(&self, of: &str) -> String {
        format!("jsonb_build_array({})::text", self.columns(of))
    }

    /// The next rows of the table after the key $2, at most $3: each with its key, and whole if it is of shards $1.
    pub(super) fn page(&self, is_first: bool) -> String {
        let after =
            self.key.iter().enumerate().map(|(n, (_, kind))| format!("($2::text::jsonb ->> {n})::{kind}"));
        let after = after.collect::<Vec<_>>().join(", ");
        let Part { table, shard, .. } = self;
        let (columns, key) = (self.columns("r."), self.key_of("r."));
        // The first page has no key to begin after; its parameter is there all the same.
        let from = if is_first { "$2::text is null".into() } else { format!("({columns}) > ({after})") };
        let row = match self.is_list() {
            true => {
                "(select string_agg(jsonb_build_object('forget_at', r.forget_at, 'job', x.job, 'version', x.version)::text, \
                 ',') from unnest(r.jobs, r.versions) x (job, version) where punctual_shard(x.job) = any($1::smallint[]))"
            }
            false => &format!("case when {shard} = any($1::smallint[]) then to_jsonb(r)::text end"),
        };
        format!("select {key}, {row} from {table} r where {from} order by {columns} limit $3")
    }

    fn matched(&self) -> String {
        self.key.iter().map(|(name, _)| format!("r.{name} = n.{name}")).collect::<Vec<_>>().join(" and ")
    }

    /// Takes away what has the keys of the rows $1.
    pub(super) fn delete(&self) -> String {
        let (table, matched) = (self.table, self.matched());
        format!(
            "delete from {table} r using jsonb_populate_recordset(null::{table}, $1::text::jsonb) n where {matched}"
        )
    }

    /// Writes the rows $1, which are not there.
    pub(super) fn insert(&self) -> String {
        let table = self.table;
        format!("insert into {table} select * from jsonb_populate_recordset(null::{table}, $1::text::jsonb)")
    }

    /// Takes away all rows of shards $1.
    pub(super) fn clear(&self) -> String {
        let Part { table, shard, .. } = self;
        format!("delete from {table} r where {shard} = any($1::smallint[])")
    }

    /// Locks all rows of shards $1.
    pub(super) fn hold(&self) -> String {
        let Part { table, shard, .. } = self;
        let columns = self.columns("r.");
        format!("select 1 from {table} r where {shard} = any($1::smallint[]) order by {columns} for update")
    }

    /// The key of a row, as text.
    pub(super) fn name_of(&self, of: &str) -> String {
        let columns: Vec<String> = self.key.iter().map(|(name, _)| format!("{of} ->> '{name}'")).collect();
        format!("jsonb_build_array({})::text", columns.join(", "))
    }

    /// Begins to note what changes, and ends it.
    pub(super) fn watch(&self) -> String {
        let Part { table, shard, .. } = self;
        let (number, stand_for) = (self.number(), self.rows());
        let one = |event: &str, rows: &str| {
            format!(
                "create or replace trigger punctual_note_{event} after {event} on {table} referencing {rows} \
                 for each statement execute function punctual_note('{number}', '{stand_for}', '{shard}');"
            )
        };
        [
            one("insert", "new table as new_rows"),
            one("update", "old table as old_rows new table as new_rows"),
            one("delete", "old table as old_rows"),
        ]
        .concat()
    }

    /// Ends it.
    pub(super) fn unwatch(&self) -> String {
        let drop = |event| format!("drop trigger if exists punctual_note_{event} on {};", self.table);
        ["insert", "update", "delete"].map(drop).concat()
    }
}
