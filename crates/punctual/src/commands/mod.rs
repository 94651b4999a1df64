//! One file per command.

pub(crate) mod bench;
pub(crate) mod explain;
pub(crate) mod output;
pub(crate) mod serve;
pub(crate) mod tzdata;
