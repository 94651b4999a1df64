//! One file per command.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod dead_letter;
pub(crate) mod explain;
pub(crate) mod forecast;
pub(crate) mod job;
pub(crate) mod limit;
mod many;
pub(crate) mod migrate;
pub(crate) mod moment;
pub(crate) mod node;
pub(crate) mod operation;
pub(crate) mod output;
pub(crate) mod remote;
pub(crate) mod restore;
pub(crate) mod run;
mod secret;
pub(crate) mod serve;
pub(crate) mod tenant;
pub(crate) mod tzdata;
