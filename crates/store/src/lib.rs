//! The seam to storage.
//!
//! [`Store`] has one verb per step of a run's life; every verb takes and returns lists. [`memory`]
//! is the readable reference that says what each verb means; [`conformance`] is the one suite that
//! every store passes. Nothing here knows SQL, HTTP or a clock.

mod admission;
mod attendance;
pub mod check;
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
mod page;
pub mod record;
mod store;
pub mod transfer;
mod verbs;

pub mod conformance;

pub use admission::{Admission, Admitted, is_ruled};
pub use attendance::{Attendance, Attendances};
pub use error::{Error, Refused};
pub use figures::{Durations, Fault, Figures, Replica, Waiting};
pub use gates::{GO_ON_MAX, Gates, Passage};
pub use health::Health;
pub use kinds::Kinds;
pub use line::{MARK, line_of, may_take};
pub use lists::Lists;
pub use liveness::Liveness;
pub use memory::Memory;
pub use page::{EXAMINED_MAX, Page, PageRequest};
pub use store::{Hint, LOOK_AHEAD, Store};
pub use verbs::{
    Advanced, Birth, Cancellation, Carry, CarryTo, Claim, Concluded, Conclusion, Due, DueKey, DuePage,
    DueQuery, DueWhen, Effect, Expect, Firing, Heartbeat, Held, Home, JobFilter, Lapse, Lapsed, MoveState,
    MoveStep, Moved, OpenRuns, OperationFilter, Otherwise, Parent, Planned, Put, RuleChange, RunDetail,
    RunFilter, Runnable, Shards, Step, Stepped, Stored, Subject, Successor, Trigger, claim_born,
    ledger_entry,
};
