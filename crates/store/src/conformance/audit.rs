//! The audit: an entry is there with its change, or not at all.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use punctual_domain::Operation;
use punctual_domain::audit::{Entry, EntryId, Filter, KEPT, Who};
use punctual_domain::document;
use punctual_domain::id::{OperationId, ShardId, TenantId, Version};
use punctual_domain::operation::{DeadLetters, Kind};

use super::world::{World, birth};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{DocumentChange, Effect, Expected, Put, Step, Trigger};

/// An entry about a thing; ids follow the numbers.
pub(super) fn entry(world: &World, number: u32, kind: &str, subject: &str, action: &str) -> Box<Entry> {
    Box::new(Entry {
        id: EntryId::new(world.now, number, 7),
        tenant: TenantId::DEFAULT,
        kind: kind.into(),
        subject: subject.into(),
        action: action.into(),
        who: Who { key: Some("00112233".into()), name: "ci".into() },
        from: Some("192.0.2.7".into()),
        request_id: Some("request-1".into()),
        before: None,
        after: Some(r#"{"name":"ä","n":1.0}"#.into()),
    })
}

async fn all(world: &World, filter: &Filter) -> Vec<Entry> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(2));
    loop {
        let next = world.store.audit(filter, page).await.expect("audit");
        found.extend(next.items);
        match next.next {
            Some(after) => page = PageRequest { after: Some(after), limit: 2 },
            None => return found,
        }
    }
}

async fn told(world: &World) -> Vec<(String, String, String)> {
    let entries = all(world, &Filter::default()).await;
    let told = |entry: Entry| (entry.kind.into(), entry.subject.into(), entry.action.into());
    entries.into_iter().map(told).collect()
}

fn operation(world: &World) -> Step {
    let id = OperationId::new(world.now, ShardId(3), 3);
    let operation = Operation::new(id, TenantId::DEFAULT, Kind::Redrive(DeadLetters::default()), world.now);
    let audit = Some(entry(world, 4, "operation", "redrive", "start"));
    Step { operation, epoch: None, effect: Effect::Nothing, ledger: Vec::new(), request: None, audit }
}

fn calendar(world: &World, expect: Expected) -> DocumentChange {
    DocumentChange {
        kind: document::Kind::Calendar,
        tenant: TenantId::DEFAULT,
        name: "holidays".into(),
        expect,
        body: Some("{}".into()),
        audit: Some(entry(world, 3, "calendar", "holidays", "create")),
    }
}

/// Whatever carries an entry brings it, whole, in its commit.
pub async fn an_entry_is_there_with_its_change(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.job("job");
    let written = entry(&world, 1, "job", "job", "create");
    let put = Put { audit: Some(written.clone()), ..world.put(job.clone(), Some(world.after(60))) };
    world.try_put(put).await.expect("registered");
    assert_eq!(all(&world, &Filter::default()).await, [*written]);
    let mut edited = job.clone();
    (edited.version, edited.spec.name) = (Version(2), "edited".into());
    let audit = Some(entry(&world, 2, "job", "job", "edit"));
    world.try_put(Put { audit, ..world.put(edited.clone(), Some(world.after(90))) }).await.expect("edited");
    let change = calendar(&world, Expected::Absent);
    store.put_documents(vec![change], world.now).await.expect("put_documents").remove(0).expect("made");
    store.step(vec![operation(&world)], world.now).await.expect("step").remove(0).expect("started");
    let trigger = Trigger {
        job: job.id,
        version: Version(2),
        birth: birth(&edited, world.now),
        is_over: false,
        request: None,
        audit: Some(entry(&world, 5, "run", "", "trigger")),
    };
    let run = store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("born");
    let wanted = [
        ("run", run.id().to_string(), "trigger"), // It has the name of its run.
        ("operation", "redrive".into(), "start"),
        ("calendar", "holidays".into(), "create"),
        ("job", "job".into(), "edit"),
        ("job", "job".into(), "create"),
    ];
    let wanted = wanted.map(|(kind, subject, action)| (kind.to_string(), subject, action.to_string()));
    assert_eq!(told(&world).await, wanted);
}

/// What was refused was not done, and nobody did it.
pub async fn a_refused_change_leaves_no_entry(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("job", world.after(60)).await;
    let audit = |number| Some(entry(&world, number, "job", "job", "create"));
    let (again, late) = (audit(1), audit(2));
    let again = Put { audit: again, ..world.put(job.clone(), None) };
    assert!(world.try_put(again).await.is_err());
    let mut edited = job.clone();
    edited.version = Version(3);
    assert!(world.try_put(Put { audit: late, ..world.put(edited, None) }).await.is_err());
    let refused = store.put_documents(vec![calendar(&world, Expected::Version(7))], world.now).await;
    assert_eq!(refused.expect("put_documents"), [Err(Refused::DocumentChanged)]);
    let mut stale = operation(&world);
    stale.operation.version = Version(2);
    assert!(store.step(vec![stale], world.now).await.expect("step")[0].is_err());
    let trigger = Trigger {
        job: job.id,
        version: Version(7),
        birth: birth(&job, world.now),
        is_over: false,
        request: None,
        audit: Some(entry(&world, 5, "run", "", "trigger")),
    };
    assert!(store.trigger(vec![trigger], world.now).await.expect("trigger")[0].is_err());
    assert!(told(&world).await.is_empty());
}

/// Of several changes in one call those are told that were done.
pub async fn each_change_of_a_list_has_its_own_entry(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let known = world.register("known", world.after(60)).await;
    let mut puts = Vec::new();
    for (number, name) in [(1, "a"), (2, "b")] {
        let job = world.job(name);
        let audit = Some(entry(&world, number, "job", name, "create"));
        puts.push(Put { audit, ..world.put(job, None) });
    }
    let audit = Some(entry(&world, 3, "job", "known", "create"));
    puts.insert(1, Put { audit, ..world.put(known, None) });
    let answers = store.put_jobs(puts, world.now).await.expect("put_jobs");
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let told: Vec<String> = told(&world).await.into_iter().map(|(_, subject, _)| subject).collect();
    assert_eq!(told, ["b", "a"]);
}

/// What no change carries is written by itself, and a list is narrowed by all of its parts at once.
pub async fn entries_are_listed_newest_first_and_narrowed(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let begin = world.now;
    for number in 0..10_u32 {
        let (kind, action) = if number % 2 == 0 { ("limit", "put") } else { ("tenant", "create") };
        let mut one = entry(&world, number, kind, &format!("s{}", number % 3), action);
        if number == 7 {
            one.who = Who::loopback();
            one.tenant = TenantId(7);
        }
        store.append_audit(vec![*one]).await.expect("append_audit");
        world.advance(Duration::from_secs(1));
    }
    let at = |seconds| Some(begin + SignedDuration::from_secs(seconds));
    let none = Filter::default();
    let cases: Vec<(Filter, Vec<i64>)> = vec![
        (none.clone(), (0..10).rev().collect()),
        (Filter { from: at(8), ..none.clone() }, vec![9, 8]),
        (Filter { to: at(2), ..none.clone() }, vec![1, 0]),
        (Filter { from: at(3), to: at(5), ..none.clone() }, vec![4, 3]),
        (Filter { from: at(5), to: at(3), ..none.clone() }, vec![]),
        (Filter { kind: Some("limit".into()), ..none.clone() }, vec![8, 6, 4, 2, 0]),
        (Filter { kind: Some("limit".into()), subject: Some("s0".into()), ..none.clone() }, vec![6, 0]),
        (
            Filter { kind: Some("limit".into()), subject: Some("s0".into()), to: at(6), ..none.clone() },
            vec![0],
        ),
        (Filter { subject: Some("s0".into()), ..none.clone() }, vec![9, 6, 3, 0]),
        (Filter { action: Some("create".into()), from: at(5), ..none.clone() }, vec![9, 7, 5]),
        (Filter { who: Some("loopback".into()), ..none.clone() }, vec![7]),
        (Filter { tenant: Some(TenantId(7)), ..none.clone() }, vec![7]),
        (Filter { who: Some("ci".into()), kind: Some("tenant".into()), ..none.clone() }, vec![9, 5, 3, 1]),
        (Filter { who: Some("00112233".into()), to: at(1), ..none }, vec![0]),
    ];
    for (filter, wanted) in cases {
        let found = all(&world, &filter).await;
        let seconds = |entry: &Entry| entry.id.made_at().duration_since(begin).as_secs();
        assert_eq!(found.iter().map(seconds).collect::<Vec<_>>(), wanted, "{filter:?}");
    }
}

/// Entries go when they are old, the oldest first, a bounded number at a time.
pub async fn old_entries_are_forgotten(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for number in 0..3_u32 {
        let one = entry(&world, number, "limit", &number.to_string(), "put");
        store.append_audit(vec![*one]).await.expect("append_audit");
    }
    let day = Duration::from_secs(24 * 3_600);
    world.advance(day);
    store.append_audit(vec![*entry(&world, 9, "limit", "young", "put")]).await.expect("append_audit");
    world.advance(Duration::try_from(KEPT).expect("positive") - Duration::from_secs(3_600));
    store.retain(world.now, 2).await.expect("retain");
    let subjects = |told: Vec<(String, String, String)>| -> Vec<String> {
        told.into_iter().map(|(_, subject, _)| subject).collect()
    };
    assert_eq!(subjects(told(&world).await), ["young", "2"]);
    store.retain(world.now, 2).await.expect("retain");
    assert_eq!(subjects(told(&world).await), ["young"]);
    world.advance(day);
    store.retain(world.now, 2).await.expect("retain");
    assert!(told(&world).await.is_empty());
}
