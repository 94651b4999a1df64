//! Crowds: says so when a job is about to be one of very many in its second.
//!
//! Asked when a single job is registered or changed, not for imports. Promise: one bounded look at the index of due entries, and
//! none for a second that was looked at a moment ago; a hint that cannot be had is left out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::TenantId;
use punctual_domain::job::Spec;
use punctual_schedule::every::Origin;
use punctual_schedule::{Kind, length};

use crate::engine::Engine;

/// More slots than this in a second are worth a hint: a node on two cores starts about as many.
pub const HOT_SECOND: usize = 10_000;

/// A crowd is counted up to so many times the bound.
const COUNTED: usize = 4;

/// What was counted is believed for so long, with whoever asked since: jobs of one crowd are often registered together.
const BELIEVED: SignedDuration = SignedDuration::from_secs(5);

/// Seconds that are remembered.
const SECONDS_MAX: usize = 1_000;

/// Windows to suggest, in seconds.
const WINDOWS: [u64; 5] = [10, 60, 300, 900, 3_600];

/// What is known of crowds.
#[derive(Debug)]
pub(crate) struct Crowds {
    bound: AtomicUsize,
    /// By second: how many there are, and when they were counted.
    seconds: Mutex<HashMap<i64, (usize, Timestamp)>>,
}

impl Crowds {
    fn seconds(&self) -> MutexGuard<'_, HashMap<i64, (usize, Timestamp)>> {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Crowds {
    fn default() -> Self {
        Crowds { bound: AtomicUsize::new(HOT_SECOND), seconds: Mutex::default() }
    }
}

impl Engine {
    /// Sets how many slots in a second are worth a hint; none if 0.
    pub fn set_hot_second(&self, slots: usize) {
        self.crowds.bound.store(slots, Ordering::Relaxed);
    }

    /// What to say about a job whose next slot is in a second with very many others, and how to get out of it. Nothing about
    /// jobs with `H` or a spread, which have a place of their own.
    pub async fn crowded(&self, tenant: TenantId, spec: &Spec) -> Option<String> {
        let bound = self.crowds.bound.load(Ordering::Relaxed);
        let is_own = match &spec.schedule.kind {
            Kind::Now | Kind::After(_) => true,
            Kind::Cron(expression) => expression.is_hashed(),
            Kind::Every(every) => *every.origin() == Origin::Completion,
            Kind::At(_) | Kind::Interval(_) => false,
        };
        if bound == 0 || is_own || spec.schedule.spread.is_some() {
            return None;
        }
        let now = self.clock.now();
        let named = spec.schedule.calendars.iter().map(|name| (tenant, name.clone()));
        self.learn(self.not_believed(named.collect())).await.ok()?;
        let timetable = self.timetables.bound(tenant, &spec.schedule).ok()?;
        let slot = timetable.next_after(now)?;
        let slots = self.slots_in(slot.as_second(), bound.saturating_mul(COUNTED), now).await?;
        if slots <= bound {
            return None;
        }
        let interval = timetable.next_after(slot).map(|next| next.duration_since(slot));
        let counted = match slots >= bound.saturating_mul(COUNTED) {
            true => format!("{slots} or more jobs"),
            false => format!("{slots} jobs"),
        };
        let second = Timestamp::from_second(slot.as_second()).unwrap_or(slot);
        let way_out = match window(slots, bound, interval) {
            Some(window) => {
                let or_hash = match spec.schedule.kind {
                    Kind::Cron(_) => ", or `H` in its expression,",
                    _ => "",
                };
                format!("a `spread` of `PT{}S`{or_hash} gives it a time of its own", window.as_secs())
            }
            None => format!("it comes every {}; another phase gives it a time of its own", length(interval?)),
        };
        Some(format!(
            "{counted} are due at {second} already, and with more than {bound} in a second some start late; {way_out}"
        ))
    }

    async fn slots_in(&self, second: i64, limit: usize, now: Timestamp) -> Option<usize> {
        let is_believed = |counted_at: Timestamp| now.duration_since(counted_at).abs() < BELIEVED;
        if let Some((slots, _)) = self.crowds.seconds().get_mut(&second).filter(|known| is_believed(known.1))
        {
            // Whoever asks is about to be one more.
            let before = *slots;
            *slots = (before + 1).min(limit);
            return Some(before);
        }
        let (from, to) = (Timestamp::from_second(second).ok()?, Timestamp::from_second(second + 1).ok()?);
        let slots = self.store.count_due(from, to, limit).await.ok()?;
        let mut seconds = self.crowds.seconds();
        if seconds.len() >= SECONDS_MAX {
            seconds.clear(); // Those that matter come back at once.
        }
        seconds.insert(second, ((slots + 1).min(limit), now));
        Some(slots)
    }
}

/// The shortest window that brings a second with so many slots well under the bound, if all of them had it, and that ends before the
/// next slot.
fn window(slots: usize, bound: usize, interval: Option<SignedDuration>) -> Option<Duration> {
    let fits = |seconds: &u64| {
        interval.is_none_or(|interval| SignedDuration::from_secs(*seconds as i64) <= interval)
    };
    let brings_under = |seconds: &u64| slots as u64 / seconds < (bound as u64).div_ceil(2);
    let windows = || WINDOWS.iter().filter(|seconds| fits(seconds));
    let found = windows().find(|seconds| brings_under(seconds)).or_else(|| windows().next_back());
    found.map(|seconds| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_brings_a_crowd_under_the_bound_before_the_next_slot() {
        let seconds = SignedDuration::from_secs;
        for (slots, bound, interval, wanted) in [
            (10_001, 10_000, None, Some(10)),
            (40_000, 10_000, None, Some(10)),
            (40_000, 1_000, None, Some(300)),
            (40_000, 1_000, Some(seconds(60)), Some(60)),
            (40_000, 1_000, Some(seconds(5)), None),
            (2, 1, None, Some(10)),
        ] {
            let found = window(slots, bound, interval).map(|window| window.as_secs());
            assert_eq!(found, wanted, "{slots} {bound} {interval:?}");
        }
    }
}
