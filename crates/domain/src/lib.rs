//! The nouns and the rules: what a job, a run, an attempt and a lease are, and every decision
//! about them as a pure function.
//!
//! No I/O, no async, no clock: time and randomness come in as arguments. Read in this order:
//! [`job`] is what is registered, [`run`] what happens for one cause, [`lifecycle`] the only place
//! where a run changes state, [`papers`] what its attempts say of themselves, [`receiver`] who reports an attempt later, under a [`token`], [`parts`] how a slot becomes several runs, [`policy`] the decisions, [`ledger`] the account of every slot, [`operation`] long work
//! over many jobs or runs, [`document`] what people write for all of them, [`message`] what the system tells of itself, [`link`] which jobs follow others, [`alert`] of what somebody is told, [`bulk`] which of them and what becomes of each, [`key`] who may ask for what, [`audit`] who changed what, [`placement`] which node fires what, [`shares`] which lane
//! goes next, [`turns`] which tenant.

pub mod account;
pub mod alert;
pub mod attempt;
pub mod audit;
pub mod batch;
pub mod bulk;
pub mod calendar;
pub mod document;
pub mod id;
pub mod idempotency;
pub mod invariants;
pub mod job;
pub mod key;
pub mod labels;
pub mod ledger;
pub mod lifecycle;
pub mod link;
pub mod message;
pub mod operation;
pub mod papers;
pub mod parts;
pub mod placement;
pub mod policy;
pub mod receiver;
pub mod run;
pub mod shares;
pub mod tenant;
pub mod token;
pub mod turns;
pub mod why;
pub mod work;

pub use attempt::{Attempt, Outcome, Report};
pub use batch::Batch;
pub use document::Document;
pub use id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
pub use idempotency::IdempotencyKey;
pub use job::{Job, Lane, Spec, Target};
pub use key::{Key, KeyId};
pub use labels::Labels;
pub use ledger::LedgerEntry;
pub use link::Link;
pub use operation::Operation;
pub use papers::{Note, Papers};
pub use parts::{Part, Parts};
pub use placement::{Node, Ownership, Placement, Roles};
pub use receiver::Receiver;
pub use run::{Cause, CausedBy, Lease, Limit, Run, RunState, StartBy, WaitingFor};
pub use shares::Shares;
pub use tenant::{Tenant, TenantName};
pub use turns::{Ask, Division, Turns, Waiters};
pub use work::{Finished, Held, Leased};
