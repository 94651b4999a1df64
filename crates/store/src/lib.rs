//! The seam to storage.
//!
//! [`Store`] has one verb per step of a run's life; every verb takes and returns lists. [`memory`]
//! is the readable reference that says what each verb means; [`conformance`] is the one suite that
//! every store passes. Nothing here knows SQL, HTTP or a clock.

mod admission;
mod attendance;
pub mod audit;
mod backlog;
pub mod check;
mod detail;
mod documents;

mod ends;
mod error;
mod figures;
mod filters;
mod gates;
mod health;
mod kinds;
mod line;
mod lists;
mod liveness;
mod memory;
mod moves;
mod page;
pub mod queues;
pub mod record;
mod store;
pub mod transfer;
mod verbs;

pub mod conformance;

pub use admission::{Admission, Admitted, Skipped, is_full, is_ruled};
pub use attendance::{Attendance, Attendances};
pub use backlog::Backlog;
pub use detail::RunDetail;
pub use error::{Error, Refused};
pub use figures::{Durations, Fault, Figures, Replica, Waiting};
pub use gates::{GO_ON_MAX, Gates, Passage};
pub use health::Health;
pub use kinds::Kinds;
pub use line::{MARK, addressed, is_addressed, line_of, may_take, queue_of};
pub use lists::Lists;
pub use liveness::{Liveness, asked_to_stop, suspected};
pub use memory::Memory;
pub use page::{EXAMINED_MAX, Page, PageRequest};
pub use queues::{Queue, Queues};
pub use store::{Hint, LOOK_AHEAD, Store};
pub use verbs::{
    Advanced, Answering, Birth, Cancellation, Carry, CarryTo, Claim, Concluded, Conclusion, DocumentChange,
    Due, DueKey, DuePage, DueQuery, DueWhen, Effect, Expect, Expected, Firing, Heartbeat, Held, Home,
    JobFilter, Lapse, Lapsed, Message, MoveState, MoveStep, Moved, OpenRuns, OperationFilter, Otherwise,
    Parent, Planned, Put, RuleChange, RunFilter, Runnable, Shards, Step, Stepped, Stored, Subject, Successor,
    Trigger, claim_born, ledger_entry, together,
};
