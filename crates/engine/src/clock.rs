//! Time and randomness, handed in.

use std::fmt::Debug;
use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

/// A wait for a time.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What time it is.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now, to the millisecond.
    fn now(&self) -> Timestamp;

    /// Waits until it is at least this time.
    fn sleep_until(&self, at: Timestamp) -> Sleep<'_>;

    /// Is told how far it is ahead of the clock that all nodes share, and goes by that one from now on. Returns the
    /// correction in force: none for a clock that takes none.
    fn correct(&self, ahead: SignedDuration) -> SignedDuration {
        let _ = ahead;
        SignedDuration::ZERO
    }

    /// Why its time is not to be believed at the moment, if so.
    fn doubt(&self) -> Option<String> {
        None
    }
}

/// Where random numbers come from.
pub trait Entropy: Debug + Send + Sync + 'static {
    /// 64 random bits, which are no secret.
    fn bits(&self) -> u64;

    /// Bytes that nobody can guess.
    fn secret(&self) -> std::io::Result<[u8; 32]>;
}

/// The machine's clock. A step forward by more than a minute is not believed for ten seconds: firing a day's
/// slots because of a mistyped date cannot be undone, and waiting ten seconds can.
#[derive(Debug)]
pub struct SystemClock {
    reading: Mutex<Reading>,
    /// How far the machine's clock is ahead of the one that all nodes share, in milliseconds.
    ahead: AtomicI64,
}

/// The wall clock when it was last believed, and the monotonic clock at the same moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall: Timestamp,
    at: Instant,
    /// Since when the wall clock says something unbelievable.
    stepped: Option<Instant>,
}

/// A larger step forward is held.
const STEP_MAX: SignedDuration = SignedDuration::from_secs(60);

/// How long a step is held.
const HELD_FOR: Duration = Duration::from_secs(10);

/// A sleep looks at the wall clock at least this often, because it may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Default for SystemClock {
    fn default() -> Self {
        let reading = Reading { wall: to_millis(Timestamp::now()), at: Instant::now(), stepped: None };
        SystemClock { reading: Mutex::new(reading), ahead: AtomicI64::new(0) }
    }
}

impl Reading {
    /// What to believe, given what both clocks say now.
    fn believe(self, wall: Timestamp, at: Instant) -> Reading {
        let passed = SignedDuration::try_from(at.duration_since(self.at)).unwrap_or_default();
        let expected = self.wall.checked_add(passed).unwrap_or(self.wall);
        if wall.duration_since(expected) <= STEP_MAX {
            return Reading { wall, at, stepped: None };
        }
        let since = self.stepped.unwrap_or(at);
        match at.duration_since(since) >= HELD_FOR {
            true => Reading { wall, at, stepped: None },
            false => Reading { wall: to_millis(expected), at, stepped: Some(since) },
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        *reading = reading.believe(to_millis(Timestamp::now()), Instant::now());
        reading.wall - SignedDuration::from_millis(self.ahead.load(Ordering::Relaxed))
    }

    fn correct(&self, ahead: SignedDuration) -> SignedDuration {
        self.ahead.store(i64::try_from(ahead.as_millis()).unwrap_or_default(), Ordering::Relaxed);
        ahead
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move {
            loop {
                let left = at.duration_since(self.now());
                if left <= SignedDuration::ZERO {
                    return;
                }
                tokio::time::sleep(left.unsigned_abs().min(SLEEP_MAX)).await;
            }
        })
    }

    fn doubt(&self) -> Option<String> {
        let reading = *self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = Timestamp::now();
        reading.stepped.map(|_| {
            format!(
                "the clock stepped forward from about {} to {wall}; it is believed after 10 s",
                reading.wall
            )
        })
    }
}

/// Stores keep milliseconds, so time is cut to them where it enters.
fn to_millis(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// The operating system's randomness, stretched.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        fastrand::u64(..)
    }

    fn secret(&self) -> std::io::Result<[u8; 32]> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A clock that stands still until it is moved: for tests, simulations and for users' own tests.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    moved: Notify,
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn new(at: Timestamp) -> Self {
        ManualClock { now: AtomicI64::new(at.as_millisecond()), moved: Notify::new() }
    }

    /// Moves it, forwards or backwards.
    pub fn advance(&self, by: SignedDuration) {
        self.now.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        Box::pin(async move {
            loop {
                // Listening starts before looking, so that no move is missed.
                let moved = self.moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn seconds(count: i64) -> SignedDuration {
        SignedDuration::from_secs(count)
    }

    #[test]
    fn a_step_of_more_than_a_minute_is_believed_after_ten_seconds() {
        let (wall, at) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let reading = Reading { wall, at, stepped: None };
        let small = reading.believe(wall + seconds(61), at + Duration::from_secs(1));
        assert_eq!((small.wall, small.stepped), (wall + seconds(61), None));
        let held = reading.believe(wall + seconds(86_400), at + Duration::from_secs(1));
        assert_eq!(held.wall, wall + seconds(1), "time goes on as if nothing had happened");
        let still = held.believe(wall + seconds(86_409), at + Duration::from_secs(10));
        assert_eq!(still.wall, wall + seconds(10));
        let believed = still.believe(wall + seconds(86_410), at + Duration::from_secs(11));
        assert_eq!((believed.wall, believed.stepped), (wall + seconds(86_410), None));
    }

    #[test]
    fn a_clock_that_is_ahead_goes_by_the_one_that_all_share() {
        let clock = SystemClock::default();
        assert_eq!(clock.correct(seconds(3)), seconds(3));
        let behind = Timestamp::now().duration_since(clock.now());
        assert!(behind >= seconds(3) && behind < seconds(4), "{behind}");
    }

    #[test]
    fn a_step_that_is_taken_back_was_nothing() {
        let (wall, at) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let held =
            Reading { wall, at, stepped: None }.believe(wall + seconds(86_400), at + Duration::from_secs(1));
        let back = held.believe(wall + seconds(2), at + Duration::from_secs(2));
        assert_eq!((back.wall, back.stepped), (wall + seconds(2), None));
    }

    #[test]
    fn a_step_back_is_believed_at_once() {
        let (wall, at) = (Timestamp::from_second(1_000_000).unwrap(), Instant::now());
        let back =
            Reading { wall, at, stepped: None }.believe(wall - seconds(3_600), at + Duration::from_secs(1));
        assert_eq!(back.wall, wall - seconds(3_600));
    }
}
