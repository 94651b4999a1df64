//! Real services for tests.
//!
//! Promise: a service is started on a free port of the loopback interface, with its files in a temporary folder; it
//! ends when the test process does, however that ends; and one that cannot be had fails the test loudly.

pub mod clock;
pub mod mail;
pub mod pgbouncer;
pub mod postgres;

pub use clock::Clock;
pub use mail::MailServer;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
