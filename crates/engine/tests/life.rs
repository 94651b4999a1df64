//! The life of a run with a moved clock: fire, complete, reclaim, on the reference store.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::WorkerId;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::run::{Run, RunState, WaitingFor};
use punctual_domain::work::Finished;
use punctual_domain::{Job, Outcome, Report, Spec};
use punctual_engine::Clock;
use punctual_engine::fire::{Epochs, Fired, Room};
use punctual_engine::register::Waiting;
use punctual_store::{Claim, Held, PageRequest, Refused, Shards, Store};

use crate::support::world::{TENANT, World, at, spec};

const LEASE: Duration = Duration::from_secs(10);

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn slots(fired: &Fired) -> Vec<String> {
    fired.runs.iter().map(|(run, _)| run.scheduled_for.to_string()[11..19].to_string()).collect()
}

fn worker(world: &World, n: u64) -> WorkerId {
    WorkerId::new(world.clock.now(), n << 52 | n)
}

fn claim(world: &World, worker: WorkerId) -> Vec<Run> {
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    let mut claimed = block_on(world.store.claim(claim.clone(), world.clock.now())).unwrap();
    // And one that is tried alone.
    let alone = Claim { labels: claim.labels.alone(), limit: 1, ..claim };
    claimed.extend(block_on(world.store.claim(alone, world.clock.now())).unwrap());
    claimed
}

fn report(world: &World, outcome: Outcome) -> Report {
    let now = world.clock.now();
    let failure =
        Failure { code: "http_status".into(), message: "503".into(), is_retryable: true, retry_after: None };
    let error = (outcome != Outcome::Succeeded).then_some(failure);
    Report { outcome, error, ..Report::lost(now, now) }
}

fn finish(
    world: &World,
    worker: WorkerId,
    run: &Run,
    job: &Arc<Job>,
    outcome: Option<Outcome>,
) -> Result<Run, Refused> {
    let report = outcome.map(|outcome| report(world, outcome));
    let finished = Finished { worker, run: run.clone(), job: Arc::clone(job), report };
    block_on(world.engine.complete(vec![finished])).unwrap().remove(0)
}

#[test]
fn each_slot_becomes_one_run_and_the_entry_moves_on() {
    let world = World::new();
    world.register("*/10 * * * *");
    assert_eq!(slots(&world.advance(minutes(5))), [""; 0]);
    assert_eq!(slots(&world.advance(minutes(5))), ["12:10:00"]);
    assert_eq!(slots(&world.fire(None)), [""; 0], "firing again does nothing");
    assert_eq!(slots(&world.advance(minutes(10))), ["12:20:00"]);
    // Ten seconds late is simply late.
    assert_eq!(slots(&world.advance(SignedDuration::from_secs(610))), ["12:30:00"]);
    assert_eq!(world.runs().len(), 3);
}

#[test]
fn downtime_is_handled_by_the_catch_up_policy() {
    let hours = |count: u64| Duration::from_secs(count * 3600);
    for (policy, expected, owed, missed) in [
        (CatchUp::Latest { window: hours(1) }, vec!["14:50:00", "15:00:00"], 0, 16),
        (CatchUp::Latest { window: Duration::from_secs(60) }, vec!["15:00:00"], 0, 17),
        (CatchUp::None, vec!["15:00:00"], 0, 17),
        (CatchUp::All { window: hours(9), max: 1, rate: 50 }, vec!["14:50:00", "15:00:00"], 0, 16),
        (CatchUp::All { window: hours(9), max: 3, rate: 50 }, vec!["15:00:00"], 3, 14),
        (CatchUp::All { window: hours(9), max: 100, rate: 50 }, vec!["15:00:00"], 17, 0),
    ] {
        let world = World::new();
        let mut every_ten = spec("*/10 * * * *");
        every_ten.policies.catch_up = policy;
        let registered = world.try_register(every_ten).unwrap();
        let fired = world.advance(SignedDuration::from_secs(3 * 3600 + 30)); // 15:00:30
        assert_eq!(slots(&fired), expected, "{policy:?}");
        assert_eq!((fired.missed, fired.operations), (missed, usize::from(owed > 0)), "{policy:?}");
        let ledger = block_on(world.store.ledger(registered.job.id, PageRequest::first(9))).unwrap().items;
        assert_eq!(ledger.iter().map(|entry| entry.slots).sum::<u64>(), missed, "one entry for a long range");
        assert!(ledger.len() <= 1);
        world.operate();
        assert_eq!(world.runs().len(), expected.len() + owed, "{policy:?}");
        assert_eq!(slots(&world.advance(minutes(10))), ["15:10:00"], "and then on time");
    }
}

#[test]
fn a_clock_that_jumps_fires_no_slot_twice_and_loses_none() {
    let world = World::new();
    world.register("*/10 * * * *");
    world.advance(minutes(30));
    let before = world.runs().len();
    world.clock.advance(minutes(-25));
    assert_eq!(slots(&world.fire(None)), [""; 0], "backwards: those slots have been");
    assert_eq!(world.runs().len(), before);
    let fired = world.advance(minutes(40)); // 12:45
    assert_eq!(slots(&fired), ["12:40:00"]);
}

#[test]
fn a_fired_run_is_born_running_where_there_is_room() {
    let world = World::new();
    for _ in 0..5 {
        world.register("*/10 * * * *");
    }
    world.clock.advance(minutes(10));
    let worker = worker(&world, 1);
    let fired = world.fire(Some(Room { worker, queues: [].into(), labels: Default::default(), attempts: 3 }));
    let leased: Vec<bool> = fired.runs.iter().map(|(run, _)| run.lease().is_some()).collect();
    assert_eq!(leased, [true, true, true, false, false]);
    assert_eq!(claim(&world, worker).len(), 2, "the others wait their turn");
}

#[test]
fn only_the_owner_of_a_shard_fires() {
    let world = World::new();
    world.register("*/10 * * * *");
    world.clock.advance(minutes(10));
    let entries = world.due();
    let fired = block_on(world.engine.fire(entries.clone(), &Epochs::default(), None)).unwrap();
    assert_eq!((fired.runs.len(), fired.stale), (0, 1));
    assert_eq!(block_on(world.engine.fire(entries, &world.epochs, None)).unwrap().runs.len(), 1);
}

#[test]
fn failures_are_retried_with_growing_delays_and_end_as_dead_letters() {
    let world = World::new();
    world.register("@now");
    let worker = worker(&world, 1);
    let mut delays = Vec::new();
    for attempt in 1..=3 {
        let run = claim(&world, worker).remove(0);
        assert_eq!(run.attempt, attempt);
        let job = world.job_of(&run);
        let after = finish(&world, worker, &run, &job, Some(Outcome::Failed)).unwrap();
        match after.state {
            RunState::Pending(WaitingFor::Retry) => {
                let delay = after.available_at.duration_since(world.clock.now());
                delays.push(delay.as_millis());
                world.clock.advance(delay);
            }
            state => assert_eq!((state, attempt), (RunState::Failed, 3)),
        }
    }
    assert!((1_000..=1_300).contains(&delays[0]) && (2_000..=2_600).contains(&delays[1]), "{delays:?}");
    assert!(world.runs()[0].state.is_dead());
}

#[test]
fn periods_from_completion_start_when_the_run_has_ended_however_it_ended() {
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Lost] {
        let world = World::new();
        let mut polling = spec("@every 5m from completion");
        polling.policies.retry.max_attempts = 1;
        world.try_register(polling).unwrap();
        let fired = world.fire(None);
        assert_eq!(slots(&fired), ["12:00:00"]);
        assert_eq!(world.due(), [], "nothing is due while it runs");
        world.clock.advance(minutes(20));
        for n in 1..=5 {
            let worker = worker(&world, n);
            let Some(run) = claim(&world, worker).pop() else { break };
            let job = world.job_of(&run);
            finish(&world, worker, &run, &job, Some(outcome)).unwrap();
        }
        assert!(world.runs()[0].state.is_ended(), "{outcome:?}");
        assert_eq!(world.due()[0].slot, at("12:25:00"), "{outcome:?}");
    }
}

#[test]
fn a_triggered_run_moves_the_next_period_and_starts_no_second_chain() {
    let world = World::new();
    let registered = world.register("@every 5m from completion");
    let worker = worker(&world, 1);
    let complete = |world: &World| {
        for run in claim(world, worker) {
            let job = world.job_of(&run);
            finish(world, worker, &run, &job, Some(Outcome::Succeeded)).unwrap();
        }
    };
    world.fire(None);
    complete(&world);
    world.clock.advance(minutes(2));
    block_on(world.engine.trigger(TENANT, registered.job.id, None, None)).unwrap();
    complete(&world);
    let mut all = Vec::new();
    for _ in 0..20 {
        all.extend(slots(&world.advance(minutes(1))));
        complete(&world);
    }
    assert_eq!(all, ["12:07:00", "12:12:00", "12:17:00", "12:22:00"]);
    assert_eq!(world.due().len(), 1);
}

#[test]
fn a_triggered_run_that_ends_first_leaves_one_chain() {
    let world = World::new();
    let registered = world.register("@every 5m from completion");
    let worker = worker(&world, 1);
    world.fire(None);
    let own = claim(&world, worker).remove(0);
    block_on(world.engine.trigger(TENANT, registered.job.id, None, None)).unwrap();
    let triggered = claim(&world, worker).remove(0);
    for run in [triggered, own] {
        world.clock.advance(minutes(1));
        let job = world.job_of(&run);
        finish(&world, worker, &run, &job, Some(Outcome::Succeeded)).unwrap();
    }
    assert_eq!(slots(&world.advance(minutes(20))), ["12:07:00"]);
    assert_eq!(world.due(), [], "both entries are gone");
}

#[test]
fn an_edit_while_a_run_is_open_does_not_lose_the_next_period() {
    let world = World::new();
    let registered = world.register("@every 5m from completion");
    world.fire(None);
    let worker = worker(&world, 1);
    let run = claim(&world, worker).remove(0);
    let job = world.job_of(&run);
    let slower = Spec { name: "slower".into(), ..spec("@every 9m from completion") };
    block_on(world.engine.update(TENANT, registered.job.id, None, slower, Waiting::Keep)).unwrap();
    assert_eq!(world.due(), []);
    finish(&world, worker, &run, &job, Some(Outcome::Succeeded)).unwrap();
    assert_eq!(world.due()[0].slot, at("12:09:00"));
}

#[test]
fn a_maximum_number_of_fires_ends_the_job() {
    let world = World::new();
    let mut twice = spec("*/10 * * * *");
    twice.schedule.bounds.max_fires = NonZeroU64::new(2);
    world.try_register(twice).unwrap();
    for expected in [1, 1, 0, 0] {
        assert_eq!(world.advance(minutes(10)).runs.len(), expected);
    }
    assert_eq!(world.due(), []);
}

#[test]
fn a_lost_worker_returns_its_run_after_the_lease() {
    let world = World::new();
    world.register("@now");
    let (frozen, other) = (worker(&world, 1), worker(&world, 2));
    let run = claim(&world, frozen).remove(0);
    let held = Held { sequence: run.sequence, attempt: 1 };
    block_on(world.store.heartbeat(frozen, vec![held], world.clock.now())).unwrap();
    world.clock.advance(SignedDuration::from_secs(10));
    assert_eq!(block_on(world.engine.reclaim(LEASE)).unwrap(), []);
    world.clock.advance(SignedDuration::from_secs(1));
    let reclaimed = block_on(world.engine.reclaim(LEASE)).unwrap();
    assert_eq!((reclaimed.len(), reclaimed[0].lost, reclaimed[0].charged), (1, 1, 0));
    let again = claim(&world, other).remove(0);
    assert_eq!((again.id(), again.attempt), (run.id(), 2));
    let job = world.job_of(&again);
    let late = finish(&world, frozen, &run, &job, Some(Outcome::Succeeded));
    assert!(matches!(late, Err(Refused::Lifecycle(_))), "the frozen worker's result is refused");
    let ended = finish(&world, other, &again, &job, Some(Outcome::Succeeded)).unwrap();
    assert_eq!((ended.state, ended.idempotency_key()), (RunState::Succeeded, run.idempotency_key()));
}

#[test]
fn a_run_that_kills_its_workers_ends_as_lost() {
    let world = World::new();
    world.register("@now");
    for n in 1..=5 {
        let doomed = worker(&world, n);
        assert_eq!(claim(&world, doomed).len(), 1, "attempt {n}");
        world.clock.advance(SignedDuration::from_secs(11));
        block_on(world.engine.reclaim(LEASE)).unwrap();
    }
    let run = &world.runs()[0];
    assert_eq!((run.state, run.attempt, run.charged), (RunState::Failed, 5, 0));
}

#[test]
fn what_is_given_back_is_not_charged() {
    let world = World::new();
    world.register("@now");
    let worker = worker(&world, 1);
    let run = claim(&world, worker).remove(0);
    let job = world.job_of(&run);
    let back = finish(&world, worker, &run, &job, None).unwrap();
    assert_eq!((back.charged, back.lost), (0, 0));
    assert_eq!(claim(&world, worker).remove(0).attempt, 2);
}
