//! Forecasts and crowds, with a moved clock, on the reference store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::job::{Http, Method, Spec, Target};
use punctual_engine::forecast::{Asked, By, Forecast};
use punctual_engine::register::{Registered, Waiting};
use punctual_engine::{Clock, Engine, Node, Options};
use punctual_schedule::Schedule;

use crate::support::between::{Between, Old};
use crate::support::world::{TENANT, World, at, engine, pause, spec};

async fn ask(engine: &Engine, change: impl FnOnce(&mut Asked)) -> Forecast {
    let mut asked = Asked::default();
    change(&mut asked);
    engine.forecast(asked.settle(engine.now()).unwrap()).await.unwrap()
}

/// The hours of the day that follows noon.
async fn hours(world: &World) -> Vec<u64> {
    let forecast = ask(&world.engine, |asked| {
        asked.to = Some(world.engine.now() + SignedDuration::from_hours(24));
        asked.resolution = Some(SignedDuration::from_hours(1));
    });
    forecast.await.slots
}

fn with(schedule: &str, change: impl FnOnce(&mut Schedule)) -> Spec {
    let mut spec = spec(schedule);
    change(&mut spec.schedule);
    spec
}

/// Nothing but in these hours after noon.
fn only(hours: &[(usize, u64)]) -> Vec<u64> {
    let mut all = vec![0; 24];
    hours.iter().for_each(|(hour, slots)| all[*hour] = *slots);
    all
}

#[tokio::test]
async fn every_kind_of_schedule_is_foretold_as_it_fires() {
    for (schedule, zone, wanted) in [
        ("0 15 * * *", "UTC", only(&[(3, 1)])),
        // Three in the afternoon in Tokyo is six in the morning here.
        ("0 15 * * *", "Asia/Tokyo", only(&[(18, 1)])),
        ("*/20 * * * *", "UTC", [2].into_iter().chain([3; 23]).collect()),
        ("@every 30m", "UTC", [1].into_iter().chain([2; 23]).collect()),
        ("@every 2h", "UTC", (0..24).map(|hour| u64::from(hour > 0 && hour % 2 == 0)).collect()),
        ("R3/2026-01-01T13:30:00Z/PT1H", "UTC", only(&[(1, 1), (2, 1), (3, 1)])),
        ("@at 2026-01-01T17:59:59Z", "UTC", only(&[(5, 1)])),
        ("@at 2026-01-09T00:00:00Z", "UTC", only(&[])),
        ("@after PT90M", "UTC", only(&[(1, 1)])),
        ("@now", "UTC", only(&[])),
    ] {
        let world = World::new();
        world.try_register(with(schedule, |schedule| schedule.timezone = zone.into())).unwrap();
        assert_eq!(hours(&world).await, wanted, "{schedule} {zone}");
        // What was foretold happens, and what happened is foretold no more.
        let mut fired = vec![0; 24];
        for minute in 0..24 * 60 {
            let step = SignedDuration::from_secs(60) - SignedDuration::from_millis(i64::from(minute == 0));
            fired[minute / 60] += world.advance(step).runs.len() as u64;
            if minute == 12 * 60 - 1 {
                let left = hours(&world).await;
                assert_eq!((left[0], &left[1..13]), (0, &wanted[12..]), "{schedule} {zone}");
            }
        }
        assert_eq!(fired, wanted, "{schedule} {zone}");
    }
}

#[tokio::test]
async fn a_day_with_a_change_of_the_clock_has_the_slots_that_it_has() {
    let world = World::new();
    // In Berlin, 02:00 to 03:00 is left out on 29 March 2026.
    world.try_register(with("30 * * * *", |schedule| schedule.timezone = "Europe/Berlin".into())).unwrap();
    world.try_register(with("30 2 * * *", |schedule| schedule.timezone = "Europe/Berlin".into())).unwrap();
    world.try_register(with("30 3 * * *", |schedule| schedule.timezone = "Europe/Berlin".into())).unwrap();
    let day = |from: &str, to: &str| {
        let (from, to): (Timestamp, Timestamp) = (from.parse().unwrap(), to.parse().unwrap());
        let engine = world.engine.clone();
        async move {
            let forecast = ask(&engine, |asked| {
                asked.from = Some(from);
                asked.to = Some(to);
                asked.resolution = Some(SignedDuration::from_hours(1));
            });
            forecast.await.slots
        }
    };
    let spring = day("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z").await;
    // 00:30, 01:30, then 03:00 for the slot in the gap, 03:30 for two: the hour of the gap has no slot of its own.
    assert_eq!(spring, [[1, 1, 3].as_slice(), &[1; 20]].concat());
    let summer = day("2026-06-30T22:00:00Z", "2026-07-01T22:00:00Z").await;
    assert_eq!(summer, [[1, 1, 2, 2].as_slice(), &[1; 20]].concat());
}

#[tokio::test]
async fn what_depends_on_a_jobs_id_is_counted_evenly_over_its_window() {
    let world = World::new();
    for _ in 0..120 {
        world.register("H 15 * * *");
    }
    for _ in 0..60 {
        world.try_register(with("0 13 * * *", |of| of.spread = Some(Duration::from_secs(3_600)))).unwrap();
    }
    let forecast = ask(&world.engine, |asked| {
        asked.from = Some(at("13:00:00"));
        asked.to = Some(at("16:00:00"));
        asked.resolution = Some(SignedDuration::from_mins(1));
    });
    let forecast = forecast.await;
    let wanted: Vec<u64> = [[1; 60], [0; 60], [2; 60]].concat();
    assert_eq!(forecast.slots, wanted);
    assert_eq!(forecast.estimated, ["180 jobs with `H` or a spread are counted evenly over their windows"]);
}

#[tokio::test]
async fn periods_from_completion_and_limited_fires_are_told() {
    let world = World::new();
    world.register("@every 10m from completion");
    let forecast = ask(&world.engine, |asked| asked.resolution = Some(SignedDuration::from_mins(30))).await;
    assert_eq!(forecast.slots, [3, 3]);
    assert!(forecast.estimated[0].contains("from completion"), "{:?}", forecast.estimated);

    let world = World::new();
    let limited = with("*/10 * * * *", |of| of.bounds.max_fires = std::num::NonZeroU64::new(5));
    world.try_register(limited).unwrap();
    assert_eq!(hours(&world).await.iter().sum::<u64>(), 5);
    assert_eq!(world.advance(SignedDuration::from_mins(10)).runs.len(), 1);
    assert_eq!(world.advance(SignedDuration::from_mins(10)).runs.len(), 1);
    assert_eq!(hours(&world).await.iter().sum::<u64>(), 3, "two of five have fired");
}

#[tokio::test]
async fn only_jobs_that_fire_are_foretold_and_changes_are_seen() {
    let world = World::new();
    let jobs: Vec<Registered> = (0..4).map(|_| world.register("0 15 * * *")).collect();
    let at_three = async |world: &World| hours(world).await[3];
    assert_eq!(at_three(&world).await, 4);
    world.engine.pause(TENANT, jobs[0].job.id, None, pause()).await.unwrap();
    assert_eq!(at_three(&world).await, 3);
    world.engine.delete(TENANT, jobs[1].job.id, None).await.unwrap();
    assert_eq!(at_three(&world).await, 2);
    let later = spec("0 16 * * *");
    world.engine.update(TENANT, jobs[2].job.id, None, later, Waiting::Keep).await.unwrap();
    assert_eq!(hours(&world).await, only(&[(3, 1), (4, 1)]));
    world.engine.resume(TENANT, jobs[0].job.id, None).await.unwrap();
    assert_eq!(at_three(&world).await, 2);
    world.register("0 15 * * *");
    assert_eq!(at_three(&world).await, 3);
}

#[tokio::test]
async fn groups_are_told_apart_by_tenant_type_and_target() {
    let world = World::new();
    let acme = world.engine.put_tenant(&"acme".parse().unwrap()).await.unwrap().id;
    let hook = |host: &str| {
        Target::Http(Http {
            url: format!("https://{host}/x"),
            method: Method::Post,
            headers: Vec::new(),
            tls: None,
        })
    };
    for (tenant, kind, target, jobs) in [
        (TENANT, Some("mail"), hook("a.example"), 3),
        (TENANT, None, hook("a.example"), 2),
        (acme, Some("mail"), hook("b.example"), 4),
    ] {
        let job = Spec { kind: kind.map(String::from), target, ..spec("30 * * * *") };
        let specs = vec![(job, None); jobs];
        world.engine.register(tenant, specs).await.unwrap().into_iter().for_each(|job| drop(job.unwrap()));
    }
    let groups = async |by: By, tenant| {
        let forecast = ask(&world.engine, |asked| {
            asked.by = by;
            asked.tenant = tenant;
        });
        let name = |text: Option<Arc<str>>| text.map_or("-".to_string(), |text| text.to_string());
        let groups = forecast.await.groups.into_iter().map(|group| {
            let tenant = group.tenant.map_or(0, |tenant| tenant.0);
            (tenant, name(group.kind), name(group.destination), group.slots.iter().sum::<u64>())
        });
        groups.collect::<Vec<_>>()
    };
    let line =
        |tenant, kind: &str, target: &str, slots| (tenant, kind.to_string(), target.to_string(), slots);
    assert_eq!(
        groups(By::default(), None).await,
        [
            line(acme.0, "mail", "http b.example", 4),
            line(1, "mail", "http a.example", 3),
            line(1, "-", "http a.example", 2)
        ]
    );
    let by_kind = By { tenant: false, kind: true, destination: false, queue: false };
    assert_eq!(groups(by_kind, None).await, [line(0, "mail", "-", 7), line(0, "-", "-", 2)]);
    let by_target = By { tenant: false, kind: false, destination: true, queue: false };
    assert_eq!(groups(by_target, Some(TENANT)).await, [line(0, "-", "http a.example", 5)]);
}

/// A thousand pages are more than a question waits for. The rest is counted by the loop.
#[tokio::test]
async fn what_a_question_does_not_wait_for_is_counted_in_the_background() {
    let world = World::new();
    world.engine.register(TENANT, vec![(spec("30 * * * *"), None); 10_000]).await.unwrap();
    let between = Arc::new(Between::new(Arc::clone(&world.store)));
    between.page_max.store(10, Ordering::Relaxed);
    let engine = Arc::new(engine(between.clone(), world.clock.clone(), 9));
    let first = ask(&engine, |_| {}).await;
    assert_eq!((first.is_complete, first.jobs, first.total()), (false, 400, 400));
    assert_eq!(first.estimated, ["jobs are still being counted, 400 so far: ask again"]);
    // The shards are another's; it counts all the same.
    let node = Node::start(Arc::clone(&engine), engine.new_worker_id(), Options::default()).await.unwrap();
    for _ in 0..1_000_000 {
        if between.planned.load(Ordering::Relaxed) >= 1_000 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let whole = ask(&engine, |_| {}).await;
    node.stop().await.unwrap();
    assert_eq!((whole.is_complete, whole.jobs, whole.total()), (true, 10_000, 10_000));
    assert_eq!(whole.estimated, Vec::<String>::new());
    // While the next census goes on, jobs that were registered since are added to the last one.
    world.clock.advance(SignedDuration::from_secs(1));
    world.register("30 * * * *");
    let next = ask(&engine, |_| {}).await;
    assert_eq!((next.is_complete, next.jobs, next.total()), (true, 10_001, 10_001));
}

/// A copy of the store may be behind, and is good enough.
#[tokio::test]
async fn jobs_are_counted_where_lists_are_read() {
    let world = World::new();
    world.register("30 * * * *");
    let mut between = Between::new(Arc::clone(&world.store));
    between.copy = Some(Old(punctual_store::Memory::new(16)));
    let between = Arc::new(between);
    let engine = engine(between.clone(), world.clock.clone(), 9);
    assert_eq!(ask(&engine, |_| {}).await.jobs, 0, "the copy knows nothing yet");
    between.is_down.store(true, Ordering::Relaxed);
    assert_eq!(ask(&engine, |_| {}).await.jobs, 0, "the store itself was not asked");
}

#[tokio::test]
async fn a_job_of_a_crowded_second_gets_a_hint_and_a_way_out() {
    let world = World::new();
    world.engine.set_hot_second(20);
    let hint = async |schedule: &str| {
        // What was counted before is not believed any more.
        world.clock.advance(SignedDuration::from_secs(6));
        world.engine.crowded(TENANT, &spec(schedule)).await
    };
    for _ in 0..20 {
        world.register("0 15 * * *");
    }
    assert_eq!(hint("0 15 * * *").await, None, "twenty are no crowd");
    world.register("0 0 15 1 1 *");
    let said = hint("0 15 * * *").await.unwrap();
    let wanted = "21 jobs are due at 2026-01-01T15:00:00Z already, and with more than 20 in a second some start late; \
                  a `spread` of `PT10S`, or `H` in its expression, gives it a time of its own";
    assert_eq!(said, wanted);
    let wanted = wanted.replace(", or `H` in its expression,", "");
    assert_eq!(hint("@at 2026-01-01T15:00:00Z").await.as_ref(), Some(&wanted));
    assert_eq!(hint("@every 3h").await.as_ref(), Some(&wanted), "it begins in that second");
    assert_eq!(hint("1 15 * * *").await, None, "the minute after");
    assert_eq!(hint("H 15 * * *").await, None, "it has a time of its own");
    let spread = with("0 15 * * *", |schedule| schedule.spread = Some(Duration::from_secs(10)));
    assert_eq!(world.engine.crowded(TENANT, &spread).await, None, "it has one, too");
    world.engine.set_hot_second(0);
    assert_eq!(hint("0 15 * * *").await, None, "nobody wants to know");
}

/// A crowd is counted once in a while, however many register into it.
#[tokio::test]
async fn a_crowd_is_not_counted_for_every_job() {
    let world = World::new();
    for _ in 0..30 {
        world.register("0 15 * * *");
    }
    let between = Arc::new(Between::new(Arc::clone(&world.store)));
    let engine = engine(between.clone(), world.clock.clone(), 9);
    engine.set_hot_second(20);
    for _ in 0..100 {
        assert!(engine.crowded(TENANT, &spec("0 15 * * *")).await.is_some());
    }
    assert_eq!(between.calls.load(Ordering::Relaxed), 1);
    world.clock.advance(SignedDuration::from_secs(5));
    assert!(engine.crowded(TENANT, &spec("0 15 * * *")).await.is_some());
    assert_eq!(between.calls.load(Ordering::Relaxed), 2, "after a while it is looked at again");
    between.is_down.store(true, Ordering::Relaxed);
    assert_eq!(engine.crowded(TENANT, &spec("0 18 * * *")).await, None, "a hint is not worth a failure");
    assert_eq!(engine.now(), world.clock.now());
}
