//! Jobs in parts: several runs of one slot, and those that are for one worker alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_domain::Labels;
use punctual_domain::id::{TenantId, Version, WorkerId};
use punctual_domain::job::{Job, Target};
use punctual_domain::parts::{self, Parts};
use punctual_domain::run::{Cause, Run};

use super::{World, birth};
use crate::PageRequest;
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{Birth, Claim, Firing, RunFilter, Shards, Subject, Trigger};

/// The firing of a slot of a job in parts.
fn firing(world: &World, job: &Job, workers: &[WorkerId]) -> Firing {
    let slot = world.now;
    let parts = parts::of(job.spec.parts, 0, workers);
    let births = parts.iter().map(|part| Birth {
        part: part.part,
        parts: part.of,
        requires: part.requires(&job.spec.requires),
        ..birth(job, slot)
    });
    Firing { births: births.collect(), ..world.firing(job, slot) }
}

async fn claim(world: &World, worker: WorkerId, labels: Labels) -> Vec<Run> {
    let claim = Claim { worker, queues: vec!["all".into()], labels, shards: Shards::All, limit: 10 };
    world.store.claim(claim, world.now).await.expect("claim")
}

/// Each part is a run with a number and a key of its own, from its birth to its history.
pub async fn the_parts_of_a_slot_are_runs_of_their_own(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("in parts");
    job.spec.parts = Some(Parts::Count(3));
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there").job;
    assert_eq!(stored.spec.parts, Some(Parts::Count(3)));
    let born = world.try_firing(firing(&world, &job, &[])).await.expect("fired");
    assert_eq!(born.iter().map(Run::part_of).collect::<Vec<_>>(), [1, 2, 3].map(|part| Some((part, 3))));
    let keys: BTreeSet<String> = born.iter().map(|run| run.idempotency_key().to_string()).collect();
    assert_eq!(keys.len(), 3);
    assert!(world.try_firing(firing(&world, &job, &[])).await.is_err(), "the slot is fired once");
    let worker = world.worker();
    let claimed = world.claim(worker, 10).await;
    assert_eq!(claimed.len(), 3);
    for run in &claimed {
        let known = born.iter().find(|one| one.id() == run.id()).expect("born");
        assert_eq!((run.part_of(), run.idempotency_key()), (known.part_of(), known.idempotency_key()));
        world
            .conclude(
                worker,
                run,
                punctual_domain::Outcome::Succeeded,
                punctual_domain::lifecycle::Verdict::Succeed,
            )
            .await
            .expect("ended");
        let detail = store.run(run.id()).await.expect("run").expect("kept");
        assert_eq!(detail.run.part_of(), known.part_of());
    }
}

/// A part of a broadcast is claimed by the worker that it is for, and by no other of its kind.
pub async fn a_part_for_one_worker_is_claimed_by_it_alone(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    assert_eq!(store.addressed().await.expect("addressed"), []);
    let (one, two, other) = (world.worker(), world.worker(), world.worker());
    let mut job = world.job("for all");
    job.spec.target = Target::Worker { handler: "h".into() };
    job.spec.queue = "all".into();
    job.spec.parts = Some(Parts::Broadcast);
    job.spec.requires = "zone=eu".parse::<Labels>().expect("labels").pulling(TenantId::DEFAULT);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let born = world.try_firing(firing(&world, &job, &[one, two])).await.expect("fired");
    assert_eq!(born.len(), 2);
    let has = "gpu=true,zone=eu".parse::<Labels>().expect("labels").pulling(TenantId::DEFAULT);
    let waits = |worker| job.spec.requires.of_worker(worker);
    let mut all = [waits(one), waits(two)];
    all.sort();
    assert_eq!(store.addressed().await.expect("addressed"), all);
    assert_eq!(claim(&world, one, has.clone()).await, [], "who does not say who he is gets none");
    assert_eq!(claim(&world, other, has.of_worker(other)).await, []);
    let mine = claim(&world, two, has.of_worker(two)).await;
    assert_eq!(mine.iter().map(Run::part_of).collect::<Vec<_>>(), [Some((2, 2))]);
    assert_eq!(mine[0].requires.worker(), Some(two));
    assert_eq!(store.addressed().await.expect("addressed"), [waits(one)]);
    // Beside it waits what any of them may take, in this queue and in another.
    let mut plain = Vec::new();
    for (queue, requires) in [("all", ""), ("other", ""), ("all", "zone=eu")] {
        let mut job = world.job("for any");
        job.spec.target = Target::Worker { handler: "h".into() };
        job.spec.queue = queue.into();
        job.spec.requires = requires.parse::<Labels>().expect("labels").pulling(TenantId::DEFAULT);
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        plain.extend(world.try_firing(world.firing(&job, world.now)).await.expect("fired"));
    }
    assert_eq!(plain.len(), 3);
    // Whoever does it in the stead of one that is gone needs what the run requires, and no queue. Nothing else is taken.
    let queues = Vec::new();
    let instead = Claim { worker: other, queues, labels: waits(one), shards: Shards::All, limit: 10 };
    let taken = store.claim(instead, world.now).await.expect("claim");
    assert_eq!(taken.iter().map(Run::part_of).collect::<Vec<_>>(), [Some((1, 2))]);
    assert_eq!(store.addressed().await.expect("addressed"), []);
    let queues = vec!["all".into(), "other".into()];
    let any = Claim { worker: other, queues, labels: has, shards: Shards::All, limit: 10 };
    assert_eq!(store.claim(any, world.now).await.expect("claim").len(), 3);
}

/// Whoever asks for a job in parts gets all of them or none: under a key that is remembered, and of another version.
pub async fn the_parts_of_a_request_are_born_together_or_not_at_all(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("in parts");
    job.spec.parts = Some(Parts::Count(3));
    world.try_put(world.put(job.clone(), None)).await.expect("registered");
    let whole = world.register("whole", world.now).await;
    let request = Subject {
        tenant: TenantId::DEFAULT,
        key: "req".into(),
        fingerprint: [7; 16],
        expires_at: world.after(3600),
        result: String::new(),
    };
    let asked = |base: u32, version: Version| -> Vec<Trigger> {
        let parts = parts::of(job.spec.parts, base, &[]);
        let trigger = |part: &parts::Part| {
            let (cause, birth) = (Cause::Trigger, birth(&job, world.now));
            let birth = Birth { cause, part: part.part, parts: part.of, ..birth };
            let request = (part.part == parts[0].part).then(|| request.clone());
            Trigger { job: job.id, version, birth, is_over: false, request, audit: None }
        };
        parts.iter().map(trigger).collect()
    };
    let born = store.trigger(asked(1 << 10, job.version), world.now).await.expect("trigger");
    assert_eq!(born.iter().flatten().count(), 3);
    // What has nothing to do with it is not touched.
    let cause = Cause::Trigger;
    let other = Trigger {
        job: whole.id,
        version: whole.version,
        birth: Birth { cause, ..birth(&whole, world.now) },
        is_over: false,
        request: None,
        audit: None,
    };
    let mut all = asked(2 << 10, job.version);
    all.push(other);
    let answers = store.trigger(all, world.now).await.expect("trigger");
    assert_eq!(answers[..3], [(); 3].map(|()| Err(Refused::Repeated)));
    assert!(answers[3].is_ok());
    let current = job.version;
    let answers = store.trigger(asked(3 << 10, Version(current.0 + 1)), world.now).await.expect("trigger");
    assert_eq!(answers, [(); 3].map(|()| Err(Refused::WrongVersion { current })));
    let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
    let runs = store.runs(&filter, PageRequest::first(10)).await.expect("runs").items;
    assert_eq!(runs.len(), 3);
}
