//! Named calendars, with a moved clock: what a change of one does to the jobs that use it, through crashes, lost answers and on two
//! nodes; what is said about slots that a calendar excludes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, at, engine, pause, spec};
use futures_executor::block_on;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::account::What;
use punctual_domain::document;
use punctual_domain::id::{OperationId, TenantId};
use punctual_domain::job::Spec;
use punctual_domain::ledger::Fate;
use punctual_domain::operation::{Kind, Replan, State};
use punctual_domain::why::Reason;
use punctual_engine::calendars::Put;
use punctual_engine::fire::Fired;
use punctual_engine::forecast::Asked;
use punctual_engine::ledger::Range;
use punctual_engine::register::{Registered, Waiting};
use punctual_engine::why::When;
use punctual_engine::{Clock, Error};
use punctual_schedule::calendar::{Calendar, OnExcluded};
use punctual_store::{JobFilter, Memory, PageRequest, Store};

/// More than three steps' worth.
const MANY: usize = 350;

fn day(text: &str) -> Timestamp {
    format!("2026-01-{text}Z").parse().unwrap()
}

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

/// Moves the clock to a time and fires everything that is due.
fn at_last(world: &World, time: Timestamp) -> Fired {
    world.advance(time.duration_since(world.clock.now()))
}

fn closed(dates: &[&str]) -> Calendar {
    dates.iter().fold(Calendar::new(), |calendar, date| calendar.exclude_date(date).unwrap())
}

fn open(dates: &[&str]) -> Calendar {
    dates.iter().fold(Calendar::new(), |calendar, date| calendar.include_date(date).unwrap())
}

fn put(world: &World, calendar: Calendar) -> Put {
    block_on(world.engine.put_calendar(TENANT, "holidays", None, calendar)).unwrap()
}

/// A world with a calendar that excludes the second of January.
fn closed_on_the_second() -> World {
    let world = World::new();
    put(&world, closed(&["2026-01-02"]));
    world
}

fn using(schedule: &str) -> Spec {
    let mut spec = spec(schedule);
    spec.schedule.calendars = vec!["holidays".into()];
    spec
}

fn register(world: &World, schedule: &str) -> Registered {
    world.try_register(using(schedule)).unwrap()
}

/// Does what there is to do, which waits until everybody goes by the change.
fn operate(world: &World) {
    world.operate();
    world.clock.advance(SignedDuration::from_secs(2));
    world.operate();
}

/// The slots of all entries, stale ones too.
fn entries(world: &World) -> Vec<(Timestamp, u32)> {
    world.due().iter().map(|due| (due.slot, due.version.0)).collect()
}

fn state(world: &World, id: OperationId) -> (State, u64, u64) {
    let operation = block_on(world.engine.operation(TENANT, id)).unwrap();
    (operation.state, operation.done, operation.failed)
}

fn why(world: &World, job: &Registered, at: Timestamp) -> (Reason, String) {
    let answer = block_on(world.engine.why(TENANT, job.job.id, When::At(at))).unwrap();
    (answer.reason, answer.text)
}

/// The account of a range as `from-to count state/reason`, newest first.
fn account(world: &World, job: &Registered, from: Timestamp, to: Timestamp) -> Vec<String> {
    let range = Range { from: Some(from), to: Some(to) };
    let page = block_on(world.engine.account(TENANT, job.job.id, range, PageRequest::first(100))).unwrap();
    let show = |at: Timestamp| at.strftime("%dT%H:%M").to_string();
    let rows = page.items.iter().map(|row| {
        if let What::Excluded(names) = &row.what {
            assert_eq!(names, &["holidays"]);
        }
        let (state, reason) = row.what.as_str();
        format!("{}-{} {} {state}/{reason}", show(row.from), show(row.to), row.slots)
    });
    rows.collect()
}

#[test]
fn a_holiday_that_is_added_before_a_slot_leaves_it_out_and_the_account_says_why() {
    let world = World::new();
    put(&world, closed(&["12-25"]));
    let job = register(&world, "0 9 * * *");
    assert_eq!(entries(&world), [(day("02T09:00:00"), 1)]);
    let changed = put(&world, closed(&["12-25", "2026-01-02"]));
    assert_eq!((changed.calendar.version, changed.is_new), (2, false));
    operate(&world);
    assert_eq!(state(&world, changed.operation.unwrap().id), (State::Succeeded, 1, 0));
    assert_eq!(entries(&world), [(day("03T09:00:00"), 2)], "the old entry is gone");
    assert_eq!(at_last(&world, day("02T09:00:00")).runs.len(), 0);
    let (reason, text) = why(&world, &job, day("02T09:00:00"));
    assert_eq!(reason, Reason::ExcludedByCalendar, "{text}");
    assert!(text.contains("(holidays)") && text.contains("2026-01-03 09:00"), "{text}");
    assert_eq!(
        account(&world, &job, at("12:00:00"), day("03T12:00:00")),
        ["03T09:00-03T09:00 1 to_come/schedule", "02T09:00-02T09:00 1 skipped/calendar"]
    );
    assert_eq!(at_last(&world, day("03T09:00:00")).runs.len(), 1);
}

#[test]
fn a_holiday_that_is_taken_out_before_a_slot_lets_it_run() {
    let world = closed_on_the_second();
    let job = register(&world, "0 9 * * *");
    assert_eq!(entries(&world), [(day("03T09:00:00"), 1)]);
    put(&world, Calendar::new());
    operate(&world);
    assert_eq!(entries(&world), [(day("02T09:00:00"), 2)]);
    let runs = at_last(&world, day("02T09:00:00")).runs;
    assert_eq!(runs.iter().map(|(run, _)| run.scheduled_for).collect::<Vec<_>>(), [day("02T09:00:00")]);
    // What was left out before the change is told by the calendar of then.
    world.advance(hours(3));
    put(&world, closed(&["2026-01-02", "2026-01-01"]));
    assert_eq!(
        account(&world, &job, at("12:00:00"), day("02T12:00:00")),
        ["02T09:00-02T09:00 1 pending/schedule"]
    );
}

#[test]
fn what_a_calendar_excluded_when_it_was_due_is_told_though_it_is_allowed_now() {
    let world = closed_on_the_second();
    let job = register(&world, "0 9 * * *");
    world.advance(hours(24));
    put(&world, Calendar::new());
    operate(&world);
    assert_eq!(
        account(&world, &job, at("12:00:00"), day("02T12:00:00")),
        ["02T09:00-02T09:00 1 skipped/calendar"]
    );
    let (reason, text) = why(&world, &job, day("02T09:00:00"));
    assert_eq!(reason, Reason::ExcludedByCalendar, "{text}");
}

#[test]
fn a_slot_that_was_planned_before_the_change_is_judged_when_it_is_fired() {
    let world = World::new();
    put(&world, Calendar::new());
    let job = register(&world, "0 9 * * *");
    let operation = put(&world, closed(&["2026-01-02"])).operation.unwrap().id;
    // Nobody has planned it anew.
    let fired = at_last(&world, day("02T09:00:00"));
    assert_eq!((fired.runs.len(), fired.missed), (0, 1));
    assert_eq!(entries(&world), [(day("03T09:00:00"), 1)]);
    let entry = block_on(world.store.ledger(job.job.id, PageRequest::first(10))).unwrap().items.remove(0);
    assert_eq!((entry.from, entry.slots, entry.fate), (day("02T09:00:00"), 1, Fate::SkippedCalendar));
    let (reason, text) = why(&world, &job, day("02T09:00:00"));
    assert_eq!(reason, Reason::ExcludedByCalendar);
    assert!(text.contains("(holidays), which was changed after the slot had been planned"), "{text}");
    assert_eq!(
        account(&world, &job, at("12:00:00"), day("02T12:00:00")),
        ["02T09:00-02T09:00 1 skipped/calendar"]
    );
    // The entry is where it belongs by now.
    operate(&world);
    assert_eq!((state(&world, operation), entries(&world)[0].1), ((State::Succeeded, 0, 0), 1));
}

#[test]
fn a_job_whose_next_slot_stays_is_not_touched() {
    let world = World::new();
    put(&world, Calendar::new());
    register(&world, "0 9 * * *");
    world.register("0 9 * * *");
    let operation = put(&world, closed(&["12-25"])).operation.unwrap().id;
    operate(&world);
    assert_eq!(state(&world, operation), (State::Succeeded, 0, 0));
    assert!(entries(&world).iter().all(|(_, version)| *version == 1));
    // Nothing is done for the same calendar again.
    let same = put(&world, closed(&["12-25"]));
    assert_eq!((same.calendar.version, same.operation), (2, None));
}

#[test]
fn planning_anew_goes_on_after_a_crash_between_any_two_steps() {
    let mut world = World::new();
    put(&world, Calendar::new());
    let specs = (0..MANY).map(|_| (using("0 9 * * *"), None)).collect();
    block_on(world.engine.register(TENANT, specs)).unwrap();
    for _ in 0..20 {
        world.register("0 9 * * *");
    }
    let operation = put(&world, closed(&["2026-01-02"])).operation.unwrap().id;
    let mut kills = 0;
    while block_on(world.engine.operation(TENANT, operation)).unwrap().is_running() {
        block_on(world.engine.operate(&world.epochs)).unwrap();
        kills += 1;
        world = world.killed_and_started(20 + kills);
        assert!(kills < 20, "there is no end to the steps");
    }
    assert!(kills > 3, "{kills}");
    assert_eq!(state(&world, operation), (State::Succeeded, MANY as u64, 0));
    let jobs =
        block_on(world.store.list_jobs(&JobFilter::default(), PageRequest::first(1_000))).unwrap().items;
    for stored in jobs {
        let uses = !stored.job.spec.schedule.calendars.is_empty();
        assert_eq!(stored.job.version.0, 1 + u32::from(uses));
    }
    let fired = at_last(&world, day("02T09:00:00"));
    assert_eq!((fired.runs.len(), fired.missed), (20, 0), "only those without the calendar");
    assert_eq!(at_last(&world, day("03T09:00:00")).runs.len(), MANY + 20);
}

#[test]
fn a_change_whose_answer_is_lost_is_planned_all_the_same() {
    let world = World::new();
    put(&world, Calendar::new());
    register(&world, "0 9 * * *");
    let between = Arc::new(Between::new(world.store.clone()));
    let twin = world.twin(between.clone());
    // The operation is started, and then the answer to the change is lost.
    let loses = between.clone();
    *between.each_step.lock().unwrap() =
        Some(Box::new(move || loses.loses_documents.store(true, Ordering::Relaxed)));
    let lost = block_on(twin.engine.put_calendar(TENANT, "holidays", None, closed(&["2026-01-02"])));
    assert!(matches!(lost, Err(Error::Store(_))), "{lost:?}");
    *between.each_step.lock().unwrap() = None;
    operate(&world);
    assert_eq!(entries(&world), [(day("03T09:00:00"), 2)]);
}

#[test]
fn an_operation_whose_change_was_never_made_ends() {
    let world = World::new();
    put(&world, Calendar::new());
    register(&world, "0 9 * * *");
    let kind = Kind::Replan(Replan { calendar: "holidays".into(), version: 2 });
    let id = block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id;
    operate(&world);
    assert_eq!(state(&world, id).0, State::Running, "it may be written any moment");
    world.clock.advance(SignedDuration::from_mins(3));
    operate(&world);
    assert_eq!(state(&world, id), (State::Cancelled, 0, 0));
    assert_eq!(entries(&world), [(day("02T09:00:00"), 1)]);
}

#[test]
fn of_several_changes_the_last_counts_and_every_job_is_found_where_it_was() {
    let world = World::new();
    put(&world, Calendar::new());
    let first = register(&world, "0 9 * * *");
    put(&world, closed(&["2026-01-02"]));
    let second = register(&world, "0 9 * * *");
    world.clock.advance(SignedDuration::from_secs(2));
    let operation = put(&world, closed(&["2026-01-02", "2026-01-03", "2026-01-04"])).operation.unwrap().id;
    operate(&world);
    assert_eq!(state(&world, operation), (State::Succeeded, 2, 0));
    let wanted = day("05T09:00:00");
    assert_eq!((world.slots(&first, 2), world.slots(&second, 2)), (vec![wanted], vec![wanted]));
    assert_eq!(entries(&world).len(), 2, "no stale ones are left");
}

#[test]
fn a_job_is_paused_edited_and_deleted_before_it_was_planned_anew() {
    let edits: [fn(&World, &Registered); 3] = [
        |world, job| drop(block_on(world.engine.pause(TENANT, job.job.id, None, pause())).unwrap()),
        |world, job| {
            let renamed = Spec { name: "other".into(), ..job.job.spec.clone() };
            let edited = world.engine.update(TENANT, job.job.id, None, renamed, Waiting::Keep);
            assert_eq!(block_on(edited).unwrap().next_slot, Some(day("03T09:00:00")));
        },
        |world, job| drop(block_on(world.engine.delete(TENANT, job.job.id, None)).unwrap()),
    ];
    for (index, edit) in edits.into_iter().enumerate() {
        let world = World::new();
        put(&world, Calendar::new());
        let job = register(&world, "0 9 * * *");
        put(&world, closed(&["2026-01-02"]));
        edit(&world, &job);
        let wanted: &[_] = if index == 1 { &[(day("03T09:00:00"), 2)] } else { &[] };
        assert_eq!(entries(&world), wanted, "{index}");
    }
}

#[test]
fn another_node_goes_by_a_change_within_a_second_and_plans_after_that() {
    let store = Arc::new(Memory::shared(16));
    let mut world = World::new();
    world.engine = engine(store.clone(), world.clock.clone(), 0);
    (world.store, world.epochs) = (store.clone(), held(&store, &world));
    let twin = world.twin(store);
    put(&world, Calendar::new());
    register(&world, "0 * * * *");
    // The twin has read the calendar, and believes it for a second.
    assert_eq!(twin.advance(hours(1)).runs.len(), 1);
    assert_eq!(entries(&world), [(at("14:00:00"), 1)]);
    let closed = Calendar::new().exclude_window("14:00-15:00").unwrap();
    let operation = put(&world, closed).operation.unwrap().id;
    world.operate();
    assert_eq!(state(&world, operation), (State::Running, 0, 0), "others may not know of the change yet");
    twin.clock.advance(SignedDuration::from_secs(2));
    twin.operate();
    assert_eq!(state(&world, operation), (State::Succeeded, 1, 0));
    assert_eq!(entries(&world), [(at("15:00:00"), 2)]);
    assert_eq!(twin.advance(hours(1)).runs.len(), 0);
    // And without planning: it is judged by what the other node wrote.
    block_on(world.engine.put_calendar(
        TENANT,
        "holidays",
        None,
        Calendar::new().exclude_window("15:00-16:00").unwrap(),
    ))
    .unwrap();
    let fired = twin.advance(hours(1));
    assert_eq!((fired.runs.len(), fired.missed), (0, 1));
    assert_eq!(entries(&world).iter().map(|entry| entry.0).collect::<Vec<_>>(), [at("16:00:00")]);
}

fn held(store: &Arc<Memory>, world: &World) -> punctual_engine::fire::Epochs {
    let node = punctual_domain::id::WorkerId::new(at("00:00:00"), 7);
    let ttl = std::time::Duration::from_secs(1_000_000);
    let all = punctual_store::Shards::All;
    punctual_engine::fire::Epochs::new(block_on(store.acquire(node, all, ttl, world.clock.now())).unwrap())
}

#[test]
fn a_name_that_is_not_there_is_refused_where_a_schedule_comes_to_name_it() {
    let world = World::new();
    let refused = world.try_register(using("0 9 * * *")).unwrap_err().to_string();
    assert!(refused.contains("calendar `holidays` not found"), "{refused}");
    let job = world.register("0 9 * * *");
    let edited = world.engine.update(TENANT, job.job.id, None, using("0 9 * * *"), Waiting::Keep);
    assert!(block_on(edited).unwrap_err().to_string().contains("`holidays` not found"));
    put(&world, closed(&["2026-01-02"]));
    let edited = world.engine.update(TENANT, job.job.id, None, using("0 9 * * *"), Waiting::Keep);
    assert_eq!(block_on(edited).unwrap().next_slot, Some(day("03T09:00:00")));
    // Another tenant's calendars are its own.
    let other =
        block_on(world.engine.register(TenantId(7), vec![(using("0 9 * * *"), None)])).unwrap().remove(0);
    assert!(other.unwrap_err().to_string().contains("not found"));
}

#[test]
fn a_calendar_that_jobs_use_is_not_deleted_and_keeps_its_zone() {
    let world = closed_on_the_second();
    let job = register(&world, "0 9 * * *");
    let id = job.job.id;
    let in_use = |error: Error| matches!(error, Error::CalendarInUse { jobs, .. } if jobs == [id]);
    let delete = |expected| block_on(world.engine.delete_calendar(TENANT, "holidays", expected));
    assert!(in_use(delete(None).unwrap_err()));
    let moved = Calendar::new().in_zone("Asia/Tokyo");
    let moved = || block_on(world.engine.put_calendar(TENANT, "holidays", None, moved.clone()));
    assert!(in_use(moved().unwrap_err()));
    // A paused job uses it, too.
    block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
    assert!(in_use(delete(None).unwrap_err()));
    block_on(world.engine.delete(TENANT, id, None)).unwrap();
    assert_eq!(moved().unwrap().calendar.version, 2);
    assert_eq!(delete(Some(1)).unwrap_err(), Error::CalendarChanged { expected: 1, current: 2 });
    delete(Some(2)).unwrap();
    assert_eq!(delete(None).unwrap_err(), Error::CalendarNotFound("holidays".into()));
}

#[test]
fn a_calendar_that_is_gone_all_the_same_excludes_nothing_and_the_job_says_so() {
    let world = closed_on_the_second();
    let job = register(&world, "0 9 * * *");
    // As by a race of two requests, which nothing but the store sees.
    let change = punctual_store::DocumentChange {
        kind: document::Kind::Calendar,
        tenant: TENANT,
        name: "holidays".into(),
        expect: punctual_store::Expected::Any,
        body: None,
        audit: None,
    };
    block_on(world.store.put_documents(vec![change], world.clock.now())).unwrap();
    world.clock.advance(SignedDuration::from_secs(2));
    let seen = block_on(world.engine.job(TENANT, job.job.id)).unwrap();
    let warnings = world.engine.warnings(&seen.job, &block_on(world.engine.recent(&seen.job)).unwrap());
    assert!(
        warnings.iter().any(|warning| warning.contains("`holidays` is not there any more")),
        "{warnings:?}"
    );
    assert_eq!(at_last(&world, day("03T09:00:00")).runs.len(), 1);
    put(&world, closed(&["2026-01-04"]));
    assert_eq!(at_last(&world, day("04T09:00:00")).missed, 1, "it is there again");
}

#[test]
fn a_job_that_its_calendars_leave_no_slot_waits_for_them() {
    let world = World::new();
    put(&world, open(&["2026-01-02"]));
    let job = register(&world, "0 9 * * *");
    assert_eq!(at_last(&world, day("02T09:00:00")).runs.len(), 1);
    assert_eq!(entries(&world), []);
    let seen = || block_on(world.engine.job(TENANT, job.job.id)).unwrap();
    assert!(!seen().is_ended(), "it is not over");
    let warnings = world.engine.warnings(&seen().job, &block_on(world.engine.recent(&seen().job)).unwrap());
    assert!(warnings.iter().any(|warning| warning.contains("(holidays) leave it no slot")), "{warnings:?}");
    // Nor is it forgotten with its history.
    world.clock.advance(hours(24 * 60));
    block_on(world.store.retain(world.clock.now(), 1_000)).unwrap();
    put(&world, open(&["2026-01-02", "2026-04-01"]));
    operate(&world);
    assert_eq!(entries(&world), [("2026-04-01T09:00:00Z".parse().unwrap(), 2)]);
    // One that has none from the start is taken, and says so.
    put(&world, open(&["2026-01-02"]));
    let closed = register(&world, "0 9 * * *");
    assert_eq!(closed.next_slot, None);
    // But not one that would have none without them.
    assert!(world.try_register(using("0 0 30 2 *")).is_err());
}

#[test]
fn slots_that_move_move_by_the_calendar_as_it_is() {
    let world = World::new();
    put(&world, closed(&["2026-01-02"]));
    let mut moving = using("0 9 2 * *");
    moving.schedule.on_excluded = OnExcluded::Next;
    world.try_register(moving).unwrap();
    assert_eq!(entries(&world), [(day("03T09:00:00"), 1)]);
    put(&world, closed(&["2026-01-02", "2026-01-03"]));
    operate(&world);
    assert_eq!(entries(&world), [(day("04T09:00:00"), 2)]);
    // Moved on once more, and not planned anew: it runs where it moved to.
    put(&world, closed(&["2026-01-02", "2026-01-03", "2026-01-04"]));
    assert_eq!(at_last(&world, day("04T09:00:00")).missed, 1);
    let fired = at_last(&world, day("05T09:00:00"));
    assert_eq!(fired.runs.iter().map(|(run, _)| run.scheduled_for).collect::<Vec<_>>(), [day("05T09:00:00")]);
}

#[test]
fn a_period_from_completion_waits_for_the_calendar_as_it_is() {
    let world = World::new();
    put(&world, Calendar::new().include_window("14:00-15:00").unwrap());
    register(&world, "@every 1h from completion");
    assert_eq!(entries(&world), [(at("14:00:00"), 1)]);
    put(&world, Calendar::new().include_window("16:00-17:00").unwrap());
    operate(&world);
    assert_eq!(entries(&world).len(), 1);
    assert_eq!(entries(&world)[0].0, at("16:00:00"));
    assert_eq!(world.advance(hours(4)).runs.len(), 1);
}

#[tokio::test]
async fn forecasts_go_by_the_calendars_of_each_tenant() {
    let world = World::new();
    let other = world.engine.put_tenant(&"other".parse().unwrap()).await.unwrap().id;
    for (tenant, date) in [(TENANT, "2026-01-02"), (other, "2026-01-03")] {
        world.engine.put_calendar(tenant, "holidays", None, closed(&[date])).await.unwrap();
        world.engine.register(tenant, vec![(using("0 9 * * *"), None)]).await.unwrap().remove(0).unwrap();
    }
    let days = |tenant| {
        let (from, to) = (Some(day("02T00:00:00")), Some(day("04T00:00:00")));
        let asked = Asked { from, to, resolution: Some(hours(24)), tenant, ..Asked::default() };
        let question = asked.settle(world.engine.now()).unwrap();
        let engine = &world.engine;
        async move { engine.forecast(question).await.unwrap().slots }
    };
    assert_eq!((days(Some(TENANT)).await, days(Some(other)).await), (vec![0, 1], vec![1, 0]));
    assert_eq!(days(None).await, [1, 1]);
}
