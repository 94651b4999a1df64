//! The audit with a store that loses answers and is out of reach: no change without its entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_executor::block_on;
use punctual_domain::audit::{Filter, SIDE_MAX, Who};
use punctual_domain::run::Cause;
use punctual_engine::audit::{Act, Show, Thing};
use punctual_engine::register::Waiting;
use punctual_engine::{Engine, Error};
use punctual_store::{PageRequest, Store};

use crate::support::between::Between;
use crate::support::world::{TENANT, World, pause, spec};

/// Shows the names of jobs, so many times over.
struct Names(usize);

impl Show for Names {
    fn show(&self, thing: Thing<'_>) -> Option<Box<str>> {
        match thing {
            Thing::Job(job) => Some(format!("\"{}\"", job.spec.name.repeat(self.0)).into()),
            _ => None,
        }
    }
}

fn acting(engine: &Engine, times: usize) -> Engine {
    engine.acting(Act {
        who: Who { key: Some("0011".into()), name: "ci".into() },
        from: Some("192.0.2.7".into()),
        request_id: Some("r-1".into()),
        show: Arc::new(Names(times)),
    })
}

/// What the audit says, oldest first: what was done, and to what.
fn told(world: &World) -> Vec<String> {
    let page = block_on(world.store.audit(&Filter::default(), PageRequest::first(100))).unwrap();
    page.items.iter().rev().map(|entry| format!("{} {}", entry.kind, entry.action)).collect()
}

fn second() -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(1)
}

#[test]
fn a_change_has_an_entry_if_somebody_asks_for_it() {
    let world = World::new();
    let engine = acting(&world.engine, 1);
    let job =
        block_on(engine.register(TENANT, vec![(spec("0 * * * *"), None)])).unwrap().remove(0).unwrap().job;
    world.clock.advance(second());
    let mut other = spec("0 * * * *");
    other.name = "other".into();
    block_on(engine.update(TENANT, job.id, None, other.clone(), Waiting::Keep)).unwrap();
    block_on(engine.update(TENANT, job.id, None, other, Waiting::Keep)).unwrap(); // Nothing changes.
    world.clock.advance(second());
    block_on(engine.pause(TENANT, job.id, None, pause())).unwrap();
    world.clock.advance(second());
    block_on(engine.resume(TENANT, job.id, None)).unwrap();
    world.clock.advance(second());
    let run = block_on(engine.trigger(TENANT, job.id, None, None)).unwrap();
    assert_eq!(run.cause, Cause::Trigger);
    world.clock.advance(second());
    block_on(engine.cancel(TENANT, run.id())).unwrap();
    world.clock.advance(second());
    block_on(engine.delete(TENANT, job.id, None)).unwrap();
    let wanted =
        ["job create", "job edit", "job pause", "job resume", "run trigger", "run cancel", "job delete"];
    assert_eq!(told(&world), wanted);
    let edits = Filter { action: Some("edit".into()), ..Filter::default() };
    let entry = block_on(engine.audit(&edits, PageRequest::first(9))).unwrap().items.remove(0);
    assert_eq!((entry.before.as_deref(), entry.after.as_deref()), (Some("\"job\""), Some("\"other\"")));
    assert_eq!((entry.who.name.as_ref(), entry.from.as_deref()), ("ci", Some("192.0.2.7")));
    let triggers = Filter { action: Some("trigger".into()), ..Filter::default() };
    let entry = block_on(engine.audit(&triggers, PageRequest::first(9))).unwrap().items.remove(0);
    assert_eq!(*entry.subject, *run.id().to_string());
    // Whoever acts for nobody leaves none.
    world.register("0 * * * *");
    assert_eq!(told(&world), wanted);
}

#[test]
fn a_change_whose_answer_is_lost_has_its_entry() {
    let world = World::new();
    let store = Arc::new(Between::new(world.store.clone()));
    let engine = acting(&world.twin(store.clone()).engine, 1);
    store.loses_answers.store(true, Ordering::Relaxed);
    let answer = block_on(engine.register(TENANT, vec![(spec("0 * * * *"), None)]));
    assert!(matches!(answer, Err(Error::Store(_))), "{answer:?}");
    assert_eq!(told(&world), ["job create"]);
}

#[test]
fn what_is_written_ahead_is_written_before_anything_is_changed() {
    let world = World::new();
    let store = Arc::new(Between::new(world.store.clone()));
    let engine = acting(&world.twin(store.clone()).engine, 1);
    let job = world.register("0 * * * *").job;
    let run = block_on(world.engine.trigger(TENANT, job.id, None, None)).unwrap();
    // The entry may or may not be there: so nothing is done.
    store.loses_answers.store(true, Ordering::Relaxed);
    assert!(block_on(engine.cancel(TENANT, run.id())).is_err());
    store.loses_answers.store(false, Ordering::Relaxed);
    let kept = block_on(world.store.run(run.id())).unwrap().unwrap().run;
    assert!(!kept.state.is_ended(), "{kept:?}");
    block_on(engine.cancel(TENANT, run.id())).unwrap();
    assert_eq!(told(&world), ["run cancel", "run cancel"], "it was asked for twice");
}

#[test]
fn what_is_too_large_is_left_out() {
    let world = World::new();
    let engine = acting(&world.engine, SIDE_MAX);
    block_on(engine.register(TENANT, vec![(spec("0 * * * *"), None)])).unwrap().remove(0).unwrap();
    let entry = block_on(engine.audit(&Filter::default(), PageRequest::first(9))).unwrap().items.remove(0);
    let after = entry.after.unwrap();
    assert!(after.starts_with(r#"{"left_out_bytes":"#) && after.len() < 200, "{after}");
}
