//! Decides whom a target may reach: the guard against server-side request forgery.
//!
//! Pure: a [`Policy`] is asked about the target when a job is registered, and about the target and
//! every address before each call, also when a pooled connection would be reused. The connector
//! dials only an address that was judged here and never looks a name up a second time.
//! Promise: by default nothing but the public internet is reached, and a refusal names the
//! address and the setting that would allow it.

pub mod address;

mod policy;
mod refusal;

pub use policy::{Cidr, HostSuffix, Policy};
pub use refusal::Refusal;
