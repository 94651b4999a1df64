//! Why a job did or did not run, and the account of a range, with a moved clock on the reference store.

use crate::support::world;
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::account::{Row, What};
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, WorkerId};
use punctual_domain::job::{Pause, Spec};
use punctual_domain::ledger::Fate;
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::policy::overlap::Overlap;
use punctual_domain::run::Run;
use punctual_domain::why::{Answer, Reason};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report};
use punctual_engine::Error;
use punctual_engine::backfill;
use punctual_engine::dead_letters::DeadFilter;
use punctual_engine::ledger::Range;
use punctual_engine::register::Waiting;
use punctual_engine::why::When;
use punctual_schedule::{Binding, Schedule, Tzdb};
use punctual_store::{Claim, PageRequest, RunFilter, Shards, Store};

use crate::support::world::{TENANT, World, at, spec};
use punctual_engine::Clock;

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

fn why(world: &World, job: JobId, when: When) -> Answer {
    block_on(world.engine.why(TENANT, job, when)).unwrap()
}

#[track_caller]
fn expect(world: &World, job: JobId, time: &str, reason: Reason, words: &[&str]) -> Answer {
    let when = if time.is_empty() { When::Latest } else { When::At(at(time)) };
    let answer = why(world, job, when);
    assert_eq!(answer.reason, reason, "{}", answer.text);
    for word in words {
        assert!(answer.text.contains(word), "`{word}` in: {}", answer.text);
    }
    answer
}

/// Claims everything that waits and ends it so.
fn work(world: &World, outcome: Outcome, message: &str) -> Vec<Run> {
    let now = world.clock.now();
    let worker = WorkerId::new(now, 77);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    let claimed = block_on(world.store.claim(claim, now)).unwrap();
    let finished = claimed.iter().map(|run| {
        let error = (outcome != Outcome::Succeeded).then(|| Failure {
            code: message.split(':').next().unwrap().into(),
            message: message.into(),
            is_retryable: message.starts_with("http_status"),
            retry_after: None,
        });
        let report = Report { outcome, error, ..Report::lost(now, now) };
        Finished { worker, run: run.clone(), job: world.job_of(run), report: Some(report) }
    });
    let finished: Vec<Finished> = finished.collect();
    block_on(world.engine.complete(finished)).unwrap();
    claimed
}

fn change(world: &World, job: JobId, spec: Spec) {
    block_on(world.engine.update(TENANT, job, None, spec, Waiting::Keep)).unwrap();
}

/// The rows of a range, `from-to count state/reason`, newest first, in pages of so many.
fn ledger(world: &World, job: JobId, range: (&str, &str), limit: usize) -> Vec<String> {
    rows(world, job, range, limit)
        .iter()
        .map(|row| {
            let (state, reason) = row.what.as_str();
            let clock = |at: Timestamp| at.strftime("%H:%M").to_string();
            match row.from == row.to {
                true => format!("{} {} {state}/{reason}", clock(row.from), row.slots),
                false => format!("{}-{} {} {state}/{reason}", clock(row.from), clock(row.to), row.slots),
            }
        })
        .collect()
}

fn rows(world: &World, job: JobId, (from, to): (&str, &str), limit: usize) -> Vec<Row> {
    let range = Range { from: Some(at(from)), to: Some(at(to)) };
    let (mut rows, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let page = block_on(world.engine.account(TENANT, job, range, PageRequest { after, limit })).unwrap();
        rows.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => return rows,
        }
    }
    panic!("there is no end to the pages");
}

/// Every slot of an hour of minutes is in exactly one row.
#[track_caller]
fn covers(world: &World, job: JobId, range: (&str, &str), slots: u64) {
    for limit in [1, 2, 3, 7, 50, 1_000] {
        let rows = rows(world, job, range, limit);
        let counted: u64 = rows.iter().map(|row| row.slots).sum();
        assert_eq!(counted, slots, "in pages of {limit}: {rows:#?}");
        assert!(rows.windows(2).all(|pair| pair[0].from >= pair[1].from), "newest first in pages of {limit}");
    }
}

#[test]
fn a_slot_that_ran_was_retried_and_failed_is_explained() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    expect(&world, id, "", Reason::NotYetDue, &["fires first at 2026-01-01 12:10 UTC, in 10m"]);
    world.advance(minutes(10));
    expect(&world, id, "", Reason::WaitsForQueue, &["no worker serves"]);
    let seat = world.engine.seat(world.engine.new_worker_id(), Vec::new(), Default::default());
    expect(&world, id, "", Reason::WaitsForRoom, &["has waited 0ms for a worker with room"]);
    let run = work(&world, Outcome::Succeeded, "").remove(0);
    let answer = expect(&world, id, "", Reason::RanOnTime, &["2026-01-01 12:10 UTC", "on time"]);
    assert_eq!((answer.slot, answer.run), (Some(at("12:10:00")), Some(run.id())));
    assert_eq!(answer.next, Some(at("12:20:00")));
    world.advance(minutes(10));
    work(&world, Outcome::Failed, "http_status: the target answered 503");
    expect(
        &world,
        id,
        "",
        Reason::Retrying,
        &["Attempt 1 ended at 12:20", "answered 503", "attempt 2; 3 count"],
    );
    expect(&world, id, "12:10:00", Reason::RanOnTime, &[]);
    for _ in 0..2 {
        world.clock.advance(minutes(1));
        work(&world, Outcome::Failed, "http_status: the target answered 503");
    }
    let answer = expect(&world, id, "12:20:00", Reason::Failed, &["after 3 attempts", "dead letter"]);
    block_on(world.engine.acknowledge(TENANT, &[answer.run.unwrap()])).unwrap();
    expect(&world, id, "12:20:00", Reason::Failed, &["taken out of the dead letters"]);
    expect(
        &world,
        id,
        "12:25:00",
        Reason::NotASlot,
        &["before is 2026-01-01 12:20", "after is 2026-01-01 12:30"],
    );
    expect(&world, id, "11:50:00", Reason::BeforeTheJob, &["registered later, at 12:00"]);
    expect(&world, id, "13:00:00", Reason::NotYetDue, &["in 38m"]);
    drop(seat);
}

#[test]
fn downtime_is_explained_by_the_catch_up_policy() {
    for (policy, newest) in [(CatchUp::default(), Reason::CaughtUp), (CatchUp::None, Reason::MissedCatchUp)] {
        let world = World::new();
        let mut minutely = spec("* * * * *");
        minutely.policies.catch_up = policy;
        let id = world.try_register(minutely).unwrap().job.id;
        world.advance(minutes(30));
        work(&world, Outcome::Succeeded, "");
        expect(&world, id, "12:10:00", Reason::MissedCatchUp, &["catch_up", "one of", "at 12:30"]);
        expect(&world, id, "12:28:00", newest, &["2026-01-01 12:28 UTC"]);
        expect(&world, id, "12:30:00", Reason::RanOnTime, &[]);
        covers(&world, id, ("12:00:30", "12:30:30"), 30);
    }
    let world = World::new();
    let mut all = spec("* * * * *");
    all.policies.catch_up = CatchUp::All { window: Duration::from_secs(600), max: 100, rate: 5 };
    let id = world.try_register(all).unwrap().job.id;
    world.advance(minutes(30));
    for _ in 0..20 {
        world.operate();
        world.clock.advance(SignedDuration::from_secs(1));
    }
    work(&world, Outcome::Succeeded, "");
    expect(&world, id, "12:25:00", Reason::CaughtUp, &["catch_up all"]);
    expect(&world, id, "12:05:00", Reason::MissedCatchUp, &["newest 100 slots within 10m"]);
    covers(&world, id, ("12:00:30", "12:30:10"), 30);
}

#[test]
fn a_pause_tells_who_when_and_how_long() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    world.advance(minutes(12));
    work(&world, Outcome::Succeeded, "");
    let pause =
        Pause { reason: Some("move".into()), by: Some("ada".into()), since: at("00:00:00"), until: None };
    block_on(world.engine.pause(TENANT, id, None, pause)).unwrap();
    world.advance(minutes(20)); // 12:32.
    expect(
        &world,
        id,
        "",
        Reason::Paused,
        &["paused since 12:12 by ada (\"move\"); 2 slots were skipped", "job resume"],
    );
    expect(&world, id, "12:20:00", Reason::Paused, &["is skipped"]);
    expect(&world, id, "12:40:00", Reason::Paused, &["will be skipped"]);
    assert_eq!(
        ledger(&world, id, ("12:00:30", "12:50:00"), 50),
        ["12:40 1 skipped/pause", "12:20-12:30 2 skipped/pause", "12:10 1 succeeded/schedule"]
    );
    block_on(world.engine.resume(TENANT, id, None)).unwrap();
    expect(
        &world,
        id,
        "12:20:00",
        Reason::Paused,
        &["was paused from 12:12 to 12:32 by ada (\"move\")", "one of 2"],
    );
    let rows = rows(&world, id, ("12:00:30", "12:50:00"), 50);
    let What::Entry(entry, Some(held)) = &rows[2].what else { panic!("{rows:#?}") };
    assert_eq!((entry.fate, entry.slots), (Fate::SkippedPause, 2));
    assert_eq!((held.pause.by.as_deref(), held.ended_at), (Some("ada"), Some(at("12:32:00"))));
    covers(&world, id, ("12:00:30", "12:50:00"), 4);
}

#[test]
fn an_edit_does_not_rewrite_the_past() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    world.advance(minutes(10));
    world.clock.advance(minutes(5));
    change(&world, id, spec("*/15 * * * *"));
    world.advance(minutes(15));
    world.clock.advance(minutes(5)); // 12:35.
    work(&world, Outcome::Succeeded, "");
    expect(&world, id, "12:10:00", Reason::RanLate, &["version 1 of the job, which is at version 2"]);
    expect(&world, id, "12:15:00", Reason::Edited, &["changed at 12:15"]);
    expect(&world, id, "12:20:00", Reason::NotASlot, &["`*/15 * * * *`"]);
    expect(
        &world,
        id,
        "12:05:00",
        Reason::NotASlot,
        &["the schedule that it had until 12:15, `*/10 * * * *`"],
    );
    change(&world, id, spec("*/5 * * * *"));
    expect(&world, id, "12:25:00", Reason::Edited, &["`*/15 * * * *`", "changed at 12:35"]);
    let answer = expect(&world, id, "", Reason::RanLate, &["12:30"]);
    assert_eq!(answer.slot, Some(at("12:30:00")), "the new schedule has named none yet");
    covers(&world, id, ("12:00:30", "12:34:00"), 2);
}

#[test]
fn overlap_queues_and_cancels_are_explained() {
    let world = World::new();
    let mut skip = spec("*/10 * * * *");
    skip.policies.overlap = Overlap::Skip;
    let skipping = world.try_register(skip).unwrap().job.id;
    let mut queue = spec("*/10 * * * *");
    queue.policies.overlap = Overlap::QueueOne;
    let queueing = world.try_register(queue).unwrap().job.id;
    world.advance(minutes(10));
    world.advance(minutes(10));
    expect(&world, skipping, "", Reason::SkippedOverlap, &["still open", "overlap skip", "is open now"]);
    let answer =
        expect(&world, queueing, "", Reason::WaitsForEarlierRun, &["overlap queue_one", "which is pending"]);
    block_on(world.engine.cancel(TENANT, answer.run.unwrap())).unwrap();
    expect(&world, queueing, "", Reason::Cancelled, &["before it started, because somebody asked"]);
    world.advance(minutes(10));
    assert_eq!(
        ledger(&world, skipping, ("12:00:30", "12:31:00"), 50),
        ["12:20-12:30 2 skipped/overlap", "12:10 1 pending/schedule"]
    );
}

#[test]
fn a_run_that_no_worker_may_take_says_what_it_waits_for() {
    let world = World::new();
    let mut picky = spec("@at 2026-01-01T12:10:00Z");
    picky.requires = "gpu=true".parse().unwrap();
    picky.policies.timeouts.start_window = Some(Duration::from_secs(300));
    let id = world.try_register(picky).unwrap().job.id;
    world.advance(minutes(10));
    expect(&world, id, "12:10:00", Reason::WaitsForLabels, &["gpu=true", "by 12:15, it is missed"]);
    world.clock.advance(minutes(6));
    block_on(world.engine.lapse(&world.epochs)).unwrap();
    let words = ["a worker with gpu=true", "start window was over at 12:15", "punctual job backfill"];
    expect(&world, id, "12:10:00", Reason::MissedStartWindow, &words);
    expect(&world, id, "", Reason::MissedStartWindow, &["its schedule has no more slots", "was missed"]);
}

#[test]
fn a_deleted_job_is_explained_and_accounted_for_while_it_is_kept() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    world.advance(minutes(15));
    block_on(world.engine.delete(TENANT, id, None)).unwrap();
    world.clock.advance(minutes(20));
    expect(&world, id, "", Reason::Deleted, &["was deleted at 2026-01-01 12:15 UTC"]);
    expect(&world, id, "12:20:00", Reason::Deleted, &[]);
    expect(&world, id, "12:10:00", Reason::Cancelled, &["because the job was deleted"]);
    assert_eq!(
        ledger(&world, id, ("12:00:30", "12:35:00"), 50),
        ["12:20-12:30 2 none/deleted", "12:10 1 cancelled/schedule"]
    );
    let other = punctual_domain::TenantId(9);
    let refused = block_on(world.engine.why(other, id, When::Latest));
    assert_eq!(refused, Err(Error::JobNotFound(id.to_string())), "another tenant's job is not there");
}

#[test]
fn a_job_that_has_fired_as_often_as_it_may_is_over() {
    let world = World::new();
    let mut twice = spec("*/10 * * * *");
    twice.schedule.bounds.max_fires = std::num::NonZeroU64::new(2);
    let id = world.try_register(twice).unwrap().job.id;
    world.advance(minutes(10));
    world.advance(minutes(10));
    work(&world, Outcome::Succeeded, "");
    world.clock.advance(minutes(30));
    expect(&world, id, "", Reason::Ended, &["fired 2 times", "max_fires"]);
    expect(&world, id, "12:30:00", Reason::Ended, &["does not run"]);
}

#[test]
fn a_slot_nobody_fires_says_so() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    world.clock.advance(minutes(12));
    expect(
        &world,
        id,
        "",
        Reason::NotFired,
        &["was due 2m ago", "no live node has its shard", "punctual nodes"],
    );
}

#[test]
fn a_local_time_that_does_not_exist_is_explained() {
    let world = World::new();
    let mut nightly = spec("30 2 * * *");
    nightly.schedule.timezone = "Europe/Paris".into();
    let id = world.try_register(nightly).unwrap().job.id;
    let answer = why(&world, id, When::parse("2026-03-29T02:30").unwrap());
    assert_eq!(answer.reason, Reason::DstGap, "{}", answer.text);
    assert!(answer.text.contains("the slot of 2026-03-29 03:00 Europe/Paris"), "{}", answer.text);
    let answer = why(&world, id, When::parse("2026-03-29T03:00").unwrap());
    assert_eq!(answer.reason, Reason::NotYetDue, "{}", answer.text);
    assert!(answer.text.contains("DST: 02:30 does not exist"), "{}", answer.text);
}

#[test]
fn a_trigger_and_a_backfill_are_in_the_account() {
    let world = World::new();
    let id = world.register("*/10 * * * *").job.id;
    world.advance(minutes(15));
    let run = block_on(world.engine.trigger(TENANT, id, None, None)).unwrap();
    expect(&world, id, "12:15:00", Reason::WaitsForQueue, &["somebody asked for at 2026-01-01 12:15"]);
    assert_eq!(run.scheduled_for, at("12:15:00"));
    assert_eq!(
        ledger(&world, id, ("12:00:30", "12:16:00"), 50),
        ["12:15 0 pending/trigger", "12:10 1 pending/schedule"]
    );
    let asked = backfill::Asked { from: at("11:45:00"), to: at("12:15:00"), rate: 50, overlap: None };
    block_on(world.engine.backfill(TENANT, id, asked, None, |_, _| ())).unwrap();
    world.operate();
    world.clock.advance(minutes(60));
    assert_eq!(
        ledger(&world, id, ("11:45:00", "12:16:00"), 50),
        [
            "12:15 0 pending/backfill",
            "12:15 0 pending/backfill",
            "12:15 0 pending/backfill",
            "12:15 0 pending/trigger",
            "12:10 1 pending/schedule",
            "11:50-12:00 2 none/before_the_job",
        ],
        "a backfill stands where it was asked for"
    );
    covers(&world, id, ("11:45:00", "12:16:00"), 3);
}

#[test]
fn a_long_range_costs_a_few_rows_and_pages_lose_nothing() {
    let world = World::new();
    let id = world.register("* * * * * *").job.id;
    for _ in 0..90 {
        world.advance(SignedDuration::from_secs(1));
    }
    work(&world, Outcome::Succeeded, "");
    let pause = Pause { reason: None, by: None, since: at("00:00:00"), until: None };
    block_on(world.engine.pause(TENANT, id, None, pause)).unwrap();
    world.clock.advance(SignedDuration::from_hours(5));
    block_on(world.engine.resume(TENANT, id, None)).unwrap();
    covers(&world, id, ("12:00:00.500", "17:01:30.500"), 90 + 5 * 3_600);
    let rows = rows(&world, id, ("12:00:00.500", "17:01:30.500"), 1_000);
    assert_eq!(rows.len(), 92, "90 runs, the pause and its end");
    let year = Range { from: Some(at("12:00:00") - SignedDuration::from_hours(8_760)), to: None };
    let page = block_on(world.engine.account(TENANT, id, year, PageRequest::first(10))).unwrap();
    assert!(page.items.len() <= 11 && page.next.is_some());
}

#[test]
fn dead_letters_are_found_by_error_and_label_and_grouped() {
    let world = World::new();
    for n in 0..7 {
        let mut one = spec(&format!("@at 2026-01-01T12:{:02}:00Z", n + 1));
        if n < 2 {
            one.labels.insert("team".into(), "a".into());
        }
        world.try_register(one).unwrap();
        world.advance(minutes(1));
        let message = if n % 3 == 0 {
            format!("dns_failed: no host h{n}")
        } else {
            format!("connect_failed: {n} refused")
        };
        work(&world, Outcome::Failed, &message);
    }
    let tenant = RunFilter { tenant: Some(TENANT), ..RunFilter::default() };
    let all = DeadFilter { runs: tenant, ..DeadFilter::default() };
    let groups = block_on(world.engine.dead_letter_groups(&all, None)).unwrap();
    let found: Vec<(&str, &str, u64, u64)> =
        groups.groups.iter().map(|group| (&*group.code, &*group.message, group.count, group.jobs)).collect();
    assert_eq!(
        found,
        [
            ("connect_failed", "connect_failed: # refused", 4, 4),
            ("dns_failed", "dns_failed: no host #", 3, 3)
        ]
    );
    assert_eq!((groups.examined, groups.next), (7, None));
    assert!(groups.groups[0].first_at < groups.groups[0].last_at);
    let count = |filter: &DeadFilter| {
        block_on(world.engine.dead_letters(filter, PageRequest::first(50))).unwrap().items.len()
    };
    let dns = DeadFilter { error: Some(Arc::from("dns_failed")), ..all.clone() };
    let team = DeadFilter { label: Some(("team".into(), "a".into())), ..all.clone() };
    let both = DeadFilter { error: dns.error.clone(), ..team.clone() };
    assert_eq!((count(&all), count(&dns), count(&team), count(&both)), (7, 3, 2, 1));
    let mut page = PageRequest::first(1);
    let mut met = 0;
    loop {
        let found = block_on(world.engine.dead_letters(&dns, page)).unwrap();
        met += found.items.len();
        let Some(after) = found.next else { break };
        page = PageRequest { after: Some(after), limit: 1 };
    }
    assert_eq!(met, 3, "in pages");
}

/// A generator of numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Pauses, edits and downtimes as they come: every slot of the schedule of the time is in one row, and none is unaccounted for.
#[test]
fn whatever_happens_to_a_job_every_slot_is_accounted_for_once() {
    let schedules = ["* * * * *", "*/7 * * * *", "30 */5 * * * *"];
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let world = World::new();
        let mut first = spec(schedules[0]);
        first.policies.catch_up = match seed % 3 {
            0 => CatchUp::default(),
            1 => CatchUp::None,
            _ => CatchUp::All { window: Duration::from_secs(1_800), max: 20, rate: 1_000 },
        };
        let id = world.try_register(first.clone()).unwrap().job.id;
        let mut begun = world.clock.now();
        let begin = begun + SignedDuration::from_millis(1);
        let mut current = first.schedule.clone();
        let mut expected = 0;
        let count = |schedule: &Schedule, from: Timestamp, to: Timestamp| {
            let timetable = schedule.timetable(&Tzdb::bundled(), &Binding::default()).unwrap();
            let nanosecond = SignedDuration::from_nanos(1);
            timetable.count(from + nanosecond, to + nanosecond)
        };
        for _ in 0..40 {
            let seconds = match dice.below(10) {
                0 => dice.below(9_000),
                _ => 1 + dice.below(50),
            };
            world.advance(SignedDuration::from_secs(seconds as i64));
            world.operate();
            match dice.below(8) {
                0 => drop(block_on(world.engine.pause(TENANT, id, None, world::pause()))),
                1 => drop(block_on(world.engine.resume(TENANT, id, None))),
                2 => {
                    let mut edited = spec(schedules[dice.below(3) as usize]);
                    edited.policies = first.policies.clone();
                    let now = world.clock.now();
                    expected += count(&current, begun, now);
                    (begun, current) = (now, edited.schedule.clone());
                    change(&world, id, edited);
                }
                3 => drop(block_on(world.engine.trigger(TENANT, id, None, None))),
                4 => drop(work(&world, Outcome::Succeeded, "")),
                _ => {}
            }
        }
        let now = world.clock.now();
        expected += count(&current, begun, now);
        let range = Range { from: Some(begin), to: Some(now + SignedDuration::from_millis(1)) };
        for limit in [1, 3, 10, 1_000] {
            let (mut rows, mut after) = (Vec::new(), None);
            loop {
                let page = PageRequest { after, limit };
                let page = block_on(world.engine.account(TENANT, id, range, page)).unwrap();
                rows.extend(page.items);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let unaccounted: Vec<&Row> = rows.iter().filter(|row| row.what == What::Unrecorded).collect();
            assert!(unaccounted.is_empty(), "seed {seed}, pages of {limit}: {unaccounted:#?}");
            let counted: u64 = rows.iter().map(|row| row.slots).sum();
            assert_eq!(counted, expected, "seed {seed}, pages of {limit}: {rows:#?}");
        }
    }
}
