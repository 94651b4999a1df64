//! Due and fire: one run per slot, whatever races.

use std::sync::Arc;

use jiff::SignedDuration;
use punctual_domain::job::{Job, JobState, Lane, Pause};
use punctual_domain::ledger::{Fate, LedgerEntry};
use punctual_domain::run::{Cause, RunState};
use punctual_domain::{Epoch, Version};
use punctual_schedule::Progress;

use super::world::{World, birth, due};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Carry, CarryTo, DueQuery, RunFilter, Shards, Trigger};

/// Time first, then lane, tenant and job; pages follow each other; shards narrow the list.
pub async fn due_entries_come_in_the_order_of_firing(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for n in 0..30 {
        let mut job = world.job(&format!("job-{n}"));
        job.spec.lane = Lane::ALL[n % 3];
        let at = world.after((n as i64 * 7) % 10);
        world.try_put(world.put(job, Some(at))).await.expect("registered");
    }
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let query = DueQuery { shards: Shards::All, after, until: world.after(100), limit: 7 };
        let page = store.due(query).await.expect("due");
        keys.extend(page.entries.iter().map(|entry| entry.key));
        match page.entries.last() {
            Some(last) => after = Some(last.key),
            None => break,
        }
    }
    assert_eq!(keys.len(), 30);
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    let shard = keys[0].job.shard();
    let query =
        DueQuery { shards: Shards::Some(vec![shard]), after: None, until: world.after(100), limit: 100 };
    let own = store.due(query).await.expect("due").entries;
    assert_eq!(own.len(), keys.iter().filter(|key| key.job.shard() == shard).count());
    let query = DueQuery { shards: Shards::All, after: None, until: world.after(4), limit: 100 };
    let early = store.due(query).await.expect("due").entries;
    assert_eq!(early.len(), keys.iter().filter(|key| key.at <= world.after(4)).count());
}

/// A page does not end between two versions of one entry: the cursor does not tell them apart, and the second, which
/// counts, would never be read.
pub async fn a_page_of_due_entries_keeps_versions_together(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("edited", world.now).await;
    for _ in 0..3 {
        job.version = job.version.next();
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("changed");
    }
    let (mut versions, mut after) = (Vec::new(), None);
    loop {
        let query = DueQuery { shards: Shards::All, after, until: world.now, limit: 1 };
        let page = store.due(query).await.expect("due");
        versions.extend(page.entries.iter().map(|entry| entry.version));
        match page.entries.last() {
            Some(last) => after = Some(last.key),
            None => break,
        }
    }
    assert!(versions.contains(&job.version), "{versions:?}");
}

/// The entry moves on with the birth of the run; firing it again is refused and does nothing.
pub async fn a_slot_is_fired_once(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("once", world.now).await;
    let runs = world.try_fire(&job, world.now).await.expect("fired");
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].cause, runs[0].scheduled_for, runs[0].version),
        (Cause::Schedule, world.now, Version(1))
    );
    for _ in 0..3 {
        assert_eq!(world.try_fire(&job, world.now).await, Err(Refused::NotDue));
    }
    // Twice in one list is once, too.
    let next = world.after(60);
    let both = vec![world.firing(&job, next), world.firing(&job, next)];
    let answers = store.fire(both, next).await.expect("fire");
    assert!(answers[0].is_ok());
    assert_eq!(answers[1], Err(Refused::NotDue));
    let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
    assert_eq!(store.runs(&filter, PageRequest::first(10)).await.expect("runs").items.len(), 2);
    let entries = world.due_until(world.after(1_000)).await;
    assert_eq!(entries, [due(&job, world.after(120))]);
    assert_eq!(
        store.is_due(&[due(&job, world.now), due(&job, world.after(120))]).await.expect("is_due"),
        [false, true]
    );
}

/// Only the owner of the shard fires, and only under its epoch.
pub async fn firing_needs_the_current_epoch(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = world.register("guarded", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.epoch = Epoch(firing.epoch.0 + 1);
    assert_eq!(world.try_firing(firing.clone()).await, Err(Refused::StaleEpoch));
    firing.epoch = Epoch(0);
    assert_eq!(world.try_firing(firing).await, Err(Refused::StaleEpoch));
    assert_eq!(world.try_fire(&job, world.now).await.expect("fired").len(), 1);
}

/// After an edit only the new entry counts, also when both are for the same time.
pub async fn an_edit_makes_the_old_entry_stale(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let old = world.register("edited", world.now).await;
    let mut new = old.clone();
    new.version = Version(2);
    world.try_put(world.put(new.clone(), Some(world.now))).await.expect("changed");
    assert_eq!(world.try_fire(&old, world.now).await, Err(Refused::NotDue));
    assert_eq!(world.try_fire(&new, world.now).await.expect("fired")[0].version, Version(2));
    assert_eq!(world.try_fire(&old, world.now).await, Err(Refused::NotDue));
    let left: Vec<_> = world.due_until(world.now).await;
    assert_eq!(left, [], "the stale entry was dropped when it was reached");
}

/// A change that was decided before a slot was fired, and is committed after it, does not bring the slot back.
pub async fn an_edit_does_not_bring_back_a_slot_that_was_fired_meanwhile(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let old = world.register("edited", world.now).await;
    let mut new = old.clone();
    new.version = Version(2);
    let mut put = world.put(new.clone(), Some(world.now));
    put.unfired = vec![due(&old, world.now)];
    world.try_fire(&old, world.now).await.expect("fired");
    assert_eq!(world.try_put(put.clone()).await, Err(Refused::NotDue));
    assert_eq!(world.try_fire(&new, world.now).await, Err(Refused::NotDue));
    let other = world.register("another", world.now).await;
    put.unfired = vec![due(&other, world.now)];
    put.job = Arc::new(Job { version: Version(2), ..other });
    put.due = None;
    world.try_put(put).await.expect("nothing was fired");
}

/// A slot that was due but not fired when its job changed is due under the new version; if it was fired,
/// the edit's own entry stands. Either way it is fired once.
pub async fn an_edit_carries_a_slot_that_is_not_fired_yet(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for is_fired in [false, true] {
        let old = world.register("edited", world.now).await;
        if is_fired {
            let mut firing = world.firing(&old, world.now);
            firing.next = None;
            world.try_firing(firing).await.expect("fired");
        }
        let mut new = old.clone();
        new.version = Version(2);
        new.spec.lane = Lane::Critical;
        let mut put = world.put(new.clone(), Some(world.after(60)));
        let candidates = vec![due(&old, world.after(-60)), due(&old, world.now)];
        put.carry = Some(Carry { candidates, to: CarryTo::Due });
        world.try_put(put).await.expect("changed");
        assert_eq!(world.try_fire(&old, world.now).await, Err(Refused::NotDue));
        let slots: Vec<_> = world.due_until(world.after(60)).await;
        let expected = if is_fired { due(&new, world.after(60)) } else { due(&new, world.now) };
        assert_eq!(slots, [expected], "fired before: {is_fired}");
        world.try_fire(&new, expected.slot).await.expect("fired");
        world.advance(std::time::Duration::from_secs(1_000));
        let mut gone = new.clone();
        gone.version = Version(3);
        gone.state = JobState::Deleted;
        world.try_put(world.put(gone.clone(), None)).await.expect("deleted");
        assert_eq!(
            world.try_fire(&new, expected.slot + SignedDuration::from_secs(60)).await,
            Err(Refused::NotDue)
        );
    }
}

/// Pausing does not lose a slot that was due: it is accounted for.
pub async fn a_pause_accounts_for_a_slot_that_is_not_fired_yet(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("paused", world.after(-60)).await;
    let mut paused = job.clone();
    paused.version = Version(2);
    paused.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until: None });
    let mut put = world.put(paused, None);
    let candidates = vec![due(&job, world.after(-120)), due(&job, world.after(-60)), due(&job, world.now)];
    put.carry = Some(Carry { candidates, to: CarryTo::Ledger(Fate::SkippedPause) });
    world.try_put(put).await.expect("paused");
    let ledger = store.ledger(job.id, PageRequest::first(10)).await.expect("ledger").items;
    assert_eq!(ledger.len(), 1);
    assert_eq!((ledger[0].from, ledger[0].to, ledger[0].slots), (world.after(-60), world.now, 2));
    assert_eq!(world.due_until(world.after(1_000)).await, []);
}

/// A paused job has no entry that counts, even if an old one is still in the list.
pub async fn a_paused_job_does_not_fire(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let job = world.register("paused", world.now).await;
    let mut paused = job.clone();
    paused.version = Version(2);
    paused.state =
        JobState::Paused(Pause { reason: Some("why".into()), by: None, since: world.now, until: None });
    world.try_put(world.put(paused.clone(), None)).await.expect("paused");
    assert_eq!(world.try_fire(&job, world.now).await, Err(Refused::NotDue));
    assert_eq!(world.try_fire(&paused, world.now).await, Err(Refused::NotDue));
}

/// An entry that is known to be there goes with its version; one that may be there goes if it is. Neither is
/// accounted for.
pub async fn an_edit_takes_the_old_entry_away(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("edited", world.after(60)).await;
    let unfired = vec![due(&job, world.after(-60)), due(&job, world.after(60))];
    job.version = Version(2);
    let mut put = world.put(job.clone(), Some(world.after(90)));
    put.unfired = unfired;
    world.try_put(put).await.expect("changed");
    assert_eq!(world.due_until(world.after(1_000)).await, [due(&job, world.after(90))]);
    // A pause that ends by itself has an entry, and is over when somebody ends it.
    let until = Some(world.after(300));
    let state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until });
    let paused = Job { version: Version(3), state, ..job.clone() };
    let mut put = world.put(paused.clone(), until);
    put.unfired = vec![due(&job, world.after(90))];
    world.try_put(put).await.expect("paused");
    let end = due(&paused, world.after(300));
    assert_eq!(world.due_until(world.after(1_000)).await, [end]);
    let resumed = Job { version: Version(4), ..job };
    let mut put = world.put(resumed.clone(), Some(world.after(120)));
    put.carry = Some(Carry { candidates: vec![end], to: CarryTo::Nothing });
    world.try_put(put).await.expect("resumed");
    assert_eq!(world.due_until(world.after(1_000)).await, [due(&resumed, world.after(120))]);
    assert_eq!(store.ledger(resumed.id, PageRequest::first(9)).await.expect("ledger").items, []);
}

/// A firing without a birth moves the entry and writes the ledger.
pub async fn a_slot_may_be_only_accounted_for(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("late", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births.clear();
    firing.ledger.push(LedgerEntry {
        job: job.id,
        tenant: job.tenant,
        from: world.now,
        to: world.after(540),
        slots: 10,
        fate: Fate::MissedCatchUp,
        decided_at: world.now,
    });
    firing.next = Some(due(&job, world.after(600)));
    assert_eq!(world.try_firing(firing).await, Ok(Vec::new()));
    let ledger = store.ledger(job.id, PageRequest::first(10)).await.expect("ledger");
    assert_eq!(ledger.items.len(), 1);
    assert_eq!((ledger.items[0].slots, ledger.items[0].fate), (10, Fate::MissedCatchUp));
    assert_eq!(world.due_until(world.after(600)).await, [due(&job, world.after(600))]);
}

/// What has been counted comes back with the job, and an edit keeps it.
pub async fn firing_counts_progress(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("counted", world.now).await;
    let mut firing = world.firing(&job, world.now);
    let progress = Progress { fired: 3, last_completion: Some(world.after(-5)) };
    firing.progress = Some(progress);
    world.try_firing(firing).await.expect("fired");
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.progress, progress);
    job.version = Version(2);
    world.try_put(world.put(job.clone(), None)).await.expect("changed");
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!((stored.progress, stored.job.version), (progress, Version(2)));
}

/// Fire and claim in one write: the run is leased from its birth and nobody else can claim it.
pub async fn a_run_may_be_born_running(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("direct", world.now).await;
    let (holder, other) = (world.worker(), world.worker());
    let mut firing = world.firing(&job, world.now);
    firing.births[0].claimed_by = Some(holder);
    let run = world.try_firing(firing).await.expect("fired").remove(0);
    let lease = run.lease().expect("leased");
    assert_eq!((lease.worker, lease.attempt, run.attempt), (holder, 1, 1));
    assert_eq!(world.claim(other, 10).await, []);
    let detail = world.detail(run.id()).await;
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!((detail.attempts[0].number, detail.attempts[0].worker), (1, holder));
}

/// The loader can sleep until the first entry, however far it is.
pub async fn the_next_due_time_is_told(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let query = |until| DueQuery { shards: Shards::All, after: None, until, limit: 10 };
    assert_eq!(store.due(query(world.after(10))).await.expect("due").next_at, None);
    let far = world.after(86_400 * 365);
    world.register("far", far).await;
    world.register("near", world.after(5)).await;
    let page = store.due(query(world.after(10))).await.expect("due");
    assert_eq!((page.entries.len(), page.next_at), (1, Some(far)));
    let page = store.due(DueQuery { limit: 1, ..query(far) }).await.expect("due");
    assert_eq!((page.entries.len(), page.next_at), (1, Some(far)), "cut short by the limit");
    let later = far + SignedDuration::from_secs(1);
    assert_eq!(store.due(query(later)).await.expect("due").next_at, None);
}

/// A trigger gives birth to a run of the current version, also while the job is paused; not of a
/// job that is not there.
pub async fn trigger_needs_a_job(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("triggered", world.after(600)).await;
    job.version = Version(2);
    job.state = JobState::Paused(Pause { reason: None, by: None, since: world.now, until: None });
    world.try_put(world.put(job.clone(), None)).await.expect("paused");
    let mut born = birth(&job, world.now);
    born.cause = Cause::Trigger;
    born.correlation_id = Some("asked".into());
    let trigger = |job, version| Trigger {
        job,
        version,
        birth: born.clone(),
        is_over: false,
        request: None,
        audit: None,
    };
    let unknown = world.job("unknown").id;
    let asked = vec![trigger(unknown, Version(1)), trigger(job.id, Version(1)), trigger(job.id, Version(2))];
    let mut answers = store.trigger(asked, world.now).await.expect("trigger");
    assert_eq!(answers.remove(0), Err(Refused::NoJob));
    assert_eq!(answers.remove(0), Err(Refused::WrongVersion { current: Version(2) }));
    let run = answers.remove(0).expect("triggered");
    assert_eq!(
        (run.cause, run.version, run.correlation_id.as_deref()),
        (Cause::Trigger, Version(2), Some("asked"))
    );
    assert!(matches!(run.state, RunState::Pending(_)));
}
