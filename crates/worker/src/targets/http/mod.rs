//! The HTTP callback: calls a URL and reports what came of it.
//!
//! A worker parses a job's [`Target`] and [`Headers`] once and then makes a [`Call`] per attempt
//! with a [`Client`]. Promises:
//! - The [`guard`] is the only way out: only an address that it judged is dialled, and a pooled
//!   connection is judged again for every call.
//! - An [`Answer`] always comes within the call's timeout and says where the time went.
//! - A failure says whether the receiver can have seen anything of the call.
//! - Redirects are not followed, responses are capped, certificates are verified.
//!
//! ```no_run
//! use punctual_worker::targets::http::{Call, Client, Headers, Method, Options, Secret, Target};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), punctual_worker::Error> {
//! let client = Client::new(Options::default())?;
//! let target = Target::parse("https://example.com/hooks/nightly")?;
//! let headers = Headers::parse([("X-Team", "billing")])?;
//! let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
//! let answer = client
//!     .send(&Call {
//!         target: &target,
//!         method: Method::POST,
//!         headers: &headers,
//!         own: &[],
//!         body: "{}".into(),
//!         webhook_id: "run_1",
//!         timestamp_s: 1_700_000_000,
//!         secrets: &[secret],
//!         timeout: Duration::from_secs(30),
//!         connect_timeout: Duration::from_secs(5),
//!         kept_bytes_max: 64 * 1024,
//!         tenant_policy: None,
//!         identity: None,
//!     })
//!     .await;
//! match answer.result {
//!     Ok(response) => println!("{} after {:?}", response.status, answer.timings.total()),
//!     Err(failure) => println!("{failure}; may have had an effect: {}", failure.is_effect_possible()),
//! }
//! # Ok(())
//! # }
//! ```

pub mod guard;

mod answer;
mod call;
mod client;
mod connection;
mod connector;
mod headers;
mod identity;
mod pool;
mod retry_after;
mod signature;
mod stream;
mod target;

pub use ::http::{HeaderName, HeaderValue, Method, StatusCode};
pub use answer::{Answer, Cause, Failure, Phase, Response, Timings};
pub use call::Call;
pub use client::{Client, Options};
pub use connector::{BoxFuture, Dialer, Resolver, SystemDialer, SystemResolver};
pub use guard::{Policy, Refusal};
pub use headers::{HEADER_BYTES_MAX, HEADERS_MAX, Headers, names};
pub use identity::Identity;
pub use retry_after::RETRY_AFTER_MAX;
pub use signature::{Secret, TOLERANCE_S, sign, verify};
pub use target::{Target, URL_MAX};
