//! Lists that are read from a copy of the store which is far behind: here one that has nothing at all. Whatever decides does
//! not look there.

use std::sync::Arc;

use crate::support::between::{Between, Old};
use crate::support::world::{TENANT, World, at, pause, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::{Outcome, Report};
use punctual_domain::id::WorkerId;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::operation::{DeadLetters, Kind, State};
use punctual_domain::policy::catch_up::CatchUp;
use punctual_domain::{Run, Spec};
use punctual_engine::Clock;
use punctual_engine::history::{JobFilter, PageRequest, RunFilter};
use punctual_engine::register::Waiting;
use punctual_store::{Claim, Conclusion, Held, Memory, OperationFilter, Shards, Store};

/// A world whose lists are of long ago.
fn world() -> World {
    let world = World::new();
    let store = Between { copy: Some(Old(Memory::new(16))), ..Between::new(world.store.clone()) };
    world.twin(Arc::new(store))
}

#[test]
fn lists_are_read_from_the_copy_and_everything_else_is_not() {
    let world = world();
    let id = world.register("@every 10s").job.id;
    let run = world.advance(SignedDuration::from_secs(10)).runs.remove(0).0;
    block_on(world.engine.start_operation(TENANT, Kind::Redrive(DeadLetters::default()), None, |_, _| ()))
        .unwrap();
    let engine = &world.engine;
    let jobs = block_on(engine.list_jobs(&JobFilter::default(), PageRequest::first(9))).unwrap();
    let runs = block_on(engine.runs(&RunFilter::default(), PageRequest::first(9))).unwrap();
    let ledger = block_on(engine.ledger(TENANT, id, PageRequest::first(9))).unwrap();
    let filter = OperationFilter { tenant: Some(TENANT), ..OperationFilter::default() };
    let operations = block_on(engine.operations(&filter, PageRequest::first(9))).unwrap();
    let found = [jobs.items.len(), runs.items.len(), ledger.items.len(), operations.items.len()];
    assert_eq!(found, [0; 4], "the copy has none");
    let job = block_on(engine.job(TENANT, id)).unwrap().job;
    assert_eq!(job.id, id);
    assert_eq!(block_on(engine.run(TENANT, run.id())).unwrap().run.id(), run.id());
    assert_eq!(block_on(engine.recent(&job)).unwrap().last().map(Run::id), Some(run.id()));
}

#[test]
fn an_edit_goes_by_what_was_fired_or_accounted_for() {
    for is_accounted_for in [false, true] {
        for is_paused in [false, true] {
            let world = world();
            let job = Spec { name: "new".into(), ..spec("*/10 * * * *") };
            let mut old = spec("*/10 * * * *");
            old.policies.catch_up = CatchUp::None;
            let id = world.try_register(old).unwrap().job.id;
            match is_accounted_for {
                true => drop(world.advance(SignedDuration::from_mins(35))),
                false => (0..3).for_each(|_| drop(world.advance(SignedDuration::from_mins(10)))),
            }
            let before = world.runs();
            // The clock steps back: 12:10 to 12:30 come again, and are not to be fired again.
            world.clock.advance(at("12:05:00").duration_since(world.clock.now()));
            if is_paused {
                block_on(world.engine.pause(TENANT, id, None, pause())).unwrap();
                block_on(world.engine.resume(TENANT, id, None)).unwrap();
            } else {
                block_on(world.engine.update(TENANT, id, None, job, Waiting::Keep)).unwrap();
            }
            assert_eq!(world.advance(SignedDuration::from_mins(30)).runs.len(), 0, "it is 12:35 again");
            assert_eq!(world.runs(), before);
            let next = world.advance(SignedDuration::from_mins(5)).runs.remove(0).0;
            assert_eq!(next.scheduled_for, at("12:40:00"), "and it goes on");
        }
    }
}

#[test]
fn dead_letters_are_found_where_they_are() {
    let world = world();
    world.register("@now");
    let now = world.clock.now();
    let worker = WorkerId::new(now, 1);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 9 };
    let run = block_on(world.store.claim(claim, now)).unwrap().remove(0);
    let report = Some(Report { outcome: Outcome::Failed, ..Report::lost(now, now) });
    let (held, verdict) = (Held::from(&run), Verdict::Fail);
    let failed =
        Conclusion { worker, held, report, verdict, successor: None, messages: Vec::new(), limits: None };
    block_on(world.store.complete(vec![failed], now)).unwrap();
    let kind = Kind::Redrive(DeadLetters::default());
    let id = block_on(world.engine.start_operation(TENANT, kind, None, |_, _| ())).unwrap().id;
    world.operate();
    let operation = block_on(world.engine.operation(TENANT, id)).unwrap();
    assert_eq!((operation.state, operation.done), (State::Succeeded, 1));
}
