//! Where a run is executed: one module per kind of target.

pub mod function;
pub mod http;
pub mod mail;
