//! Time and randomness, handed in.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// What time it is.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now, to the millisecond.
    fn now(&self) -> Timestamp;
}

/// Where random numbers come from.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// 64 random bits.
    fn bits(&self) -> u64;
}

/// A clock that stands still until it is moved: for tests, simulations and for users' own tests.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows this time.
    pub fn new(at: Timestamp) -> Self {
        ManualClock(AtomicI64::new(at.as_millisecond()))
    }

    /// Moves it, forwards or backwards.
    pub fn advance(&self, by: SignedDuration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }
}
