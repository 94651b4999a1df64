//! How much of everything a job may have. Each number is what a person or a program plausibly needs, and keeps one
//! job small enough that ten million of them fit a disk.

/// Bytes of a job's body.
pub const BODY_MAX: usize = 1 << 20;
/// Bytes of a payload.
pub const PAYLOAD_MAX: usize = 256 << 10;
/// Objects and lists inside each other; deeper JSON is an attack or an accident.
pub const DEPTH_MAX: usize = 64;
/// Wrong fields told at once; a body with more is wrong as a whole.
pub const ERRORS_MAX: usize = 50;
/// Characters of a name.
pub const NAME_MAX: usize = 200;
/// Bytes of a key, a type, a queue or a correlation id.
pub const WORD_MAX: usize = 200;
/// Labels of a job.
pub const LABELS_MAX: usize = 32;
/// Bytes of a label's name, and of its value.
pub const LABEL_MAX: usize = 128;
/// Bytes of a URL; common servers refuse longer ones too.
pub const URL_MAX: usize = 2_048;
/// Headers of an HTTP target.
pub const HEADERS_MAX: usize = 50;
/// Attempts of a run.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// Delays of a list; the last one repeats.
pub const DELAYS_MAX: usize = 100;
/// Statuses or codes in one list of failures.
pub const FAILURES_MAX: usize = 50;
/// Slots that one catch-up runs.
pub const CATCH_UP_MAX: u32 = 10_000;
/// Slots per second of a catch-up.
pub const CATCH_UP_RATE_MAX: u32 = 10_000;
/// Slots per second of a backfill.
pub const BACKFILL_RATE_MAX: u32 = 10_000;
/// Runs of one job that wait for each other.
pub const QUEUE_ALL_MAX: u32 = 1_000;
/// Runs that go on at once under one limit.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// Starts in a time, and together.
pub const RATE_MAX: u32 = 1_000_000;
/// The time of a rate.
pub const RATE_PER_MAX: std::time::Duration = std::time::Duration::from_secs(86_400);
/// Failures that open a job's breaker.
pub const BREAKER_FAILURES_MAX: u32 = 1_000;
/// Ended runs that a list of a job's runs may be limited to: so many are looked through for every page.
pub const LAST_MAX: u32 = 1_000;
/// Bytes of an attempt's output: as many as of a payload.
pub const OUTPUT_MAX: u32 = 256 << 10;
/// Jobs in one bulk request; more is an import.
pub const BULK_MAX: usize = 1_000;
/// Bytes of a patch of many jobs: it is kept with the operation and written with every step.
pub const PATCH_MAX: usize = 16 << 10;
/// Runs named in one request.
pub const RUNS_MAX: usize = 1_000;
/// Items of a page, unless asked for more.
pub const PAGE_DEFAULT: usize = 50;
/// Items of a page.
pub const PAGE_MAX: usize = 1_000;
