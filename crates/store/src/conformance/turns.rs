//! Turns: lanes have their shares, tenants one run each, and a tenant's own go by priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::job::{Job, Lane};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::run::{Cause, Run};
use punctual_domain::{Labels, Outcome};

use super::world::{World, birth};
use crate::store::Store;
use crate::verbs::{Birth, Claim, Shards, Trigger};

/// What to trigger of a job.
#[derive(Clone, Copy)]
struct Wanted {
    runs: u32,
    lane: Lane,
    priority: i16,
    queue: &'static str,
    requires: &'static str,
}

const PLAIN: Wanted = Wanted { runs: 1, lane: Lane::Standard, priority: 0, queue: "default", requires: "" };

/// A world with so many tenants that have a job each.
async fn tenants(store: Arc<dyn Store>, count: usize) -> (World, Vec<Job>) {
    let mut world = World::new(store.clone()).await;
    let mut jobs = Vec::new();
    for number in 0..count {
        let name = format!("tenant-{number}").parse().expect("a name");
        let tenant = store.put_tenant(&name, world.now).await.expect("put_tenant").id;
        let job = Job { tenant, ..world.job("job") };
        world.try_put(world.put(job.clone(), None)).await.expect("registered");
        jobs.push(job);
    }
    (world, jobs)
}

/// Makes runs that wait. Parts are numbered on, so that no run is there twice.
async fn wait(world: &World, job: &Job, first_part: u32, wanted: Wanted) {
    let trigger = |part: u32| Trigger {
        job: job.id,
        version: job.version,
        birth: Birth {
            cause: Cause::Trigger,
            part,
            lane: wanted.lane,
            priority: wanted.priority,
            queue: wanted.queue.into(),
            requires: wanted.requires.parse().expect("labels"),
            ..birth(job, world.now)
        },
        is_over: false,
        request: None,
        audit: None,
    };
    let triggers = (first_part..first_part + wanted.runs).map(trigger).collect();
    for answer in world.store.trigger(triggers, world.now).await.expect("trigger") {
        answer.expect("triggered");
    }
}

/// A worker that has given a sign of life: from then on a store that is opened again and again stays open.
async fn worker(world: &mut World) -> WorkerId {
    let worker = world.worker();
    world.store.heartbeat(worker, Vec::new(), world.now).await.expect("heartbeat");
    worker
}

async fn claim(world: &World, worker: WorkerId, queues: &[&str], labels: &str, limit: usize) -> Vec<Run> {
    let queues = queues.iter().map(|queue| (*queue).into()).collect();
    let labels: Labels = labels.parse().expect("labels");
    let claim = Claim { worker, queues, labels, shards: Shards::All, limit };
    world.store.claim(claim, world.now).await.expect("claim")
}

fn of(runs: &[Run]) -> BTreeMap<TenantId, usize> {
    let mut counts = BTreeMap::new();
    runs.iter().for_each(|run| *counts.entry(run.tenant).or_insert(0) += 1);
    counts
}

fn lanes(runs: &[Run]) -> [usize; Lane::COUNT] {
    Lane::ALL.map(|lane| runs.iter().filter(|run| run.lane == lane).count())
}

/// However many wait of one, a single run of another is among the next; also one that waited for its time, and a retry.
pub async fn a_tenant_with_very_many_does_not_delay_another(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 2).await;
    let (noisy, quiet) = (&jobs[0], &jobs[1]);
    let worker = worker(&mut world).await;
    wait(&world, noisy, 0, Wanted { runs: 1_000, ..PLAIN }).await;
    assert_eq!(claim(&world, worker, &[], "", 10).await.len(), 10);
    wait(&world, quiet, 0, PLAIN).await;
    let next = claim(&world, worker, &[], "", 2).await;
    let run = next.iter().find(|run| run.tenant == quiet.tenant).expect("it is among the first two");
    for (seconds, charge) in [(0, Charge::Nothing), (30, Charge::Attempt)] {
        let again = Verdict::Retry { available_at: world.after(seconds), charge, start_by: None };
        let run = world.detail(run.id()).await.run;
        world.conclude(worker, &run, Outcome::Failed, again).await.expect("recorded");
        if seconds > 0 {
            assert_eq!(of(&claim(&world, worker, &[], "", 5).await), [(noisy.tenant, 5)].into());
        }
        world.advance(std::time::Duration::from_secs(seconds.unsigned_abs()));
        let next = claim(&world, worker, &[], "", 2).await;
        assert_eq!(of(&next), [(noisy.tenant, 1), (quiet.tenant, 1)].into(), "after {seconds} s");
    }
    // Those of one tenant keep their order.
    let parts: Vec<u32> = claim(&world, worker, &[], "", 100).await.iter().map(|run| run.part).collect();
    let first = parts[0];
    assert_eq!(parts, (first..first + 100).collect::<Vec<_>>());
}

/// Each gets one, round after round, in small claims and in large ones; who has no more leaves room to the others.
pub async fn tenants_take_turns(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 3).await;
    let worker = worker(&mut world).await;
    for (job, runs) in jobs.iter().zip([60, 40, 20]) {
        wait(&world, job, 0, Wanted { runs, ..PLAIN }).await;
    }
    let mut taken = Vec::new();
    for _ in 0..3 {
        let mut round = Vec::new();
        for _ in 0..3 {
            round.extend(claim(&world, worker, &[], "", 1).await);
        }
        assert_eq!(of(&round), jobs.iter().map(|job| (job.tenant, 1)).collect());
        taken.extend(round);
    }
    for limit in [5, 5, 20, 21] {
        let some = claim(&world, worker, &[], "", limit).await;
        assert_eq!(some.len(), limit);
        taken.extend(some);
        let counts = of(&taken);
        let (least, most) = (counts.values().min(), counts.values().max());
        assert!(most.copied() <= least.map(|least| least + 1), "{counts:?}");
    }
    assert_eq!(of(&taken).values().copied().collect::<Vec<_>>(), [20, 20, 20]);
    let rest = claim(&world, worker, &[], "", 50).await;
    assert_eq!(of(&rest), [(jobs[0].tenant, 30), (jobs[1].tenant, 20)].into());
    assert_eq!(claim(&world, worker, &[], "", 50).await.len(), 10);
    assert_eq!(world.store.figures().waiting.of(Lane::Standard), 0);
}

/// A tenant's urgent runs go before its others, however late they came, and not before those of anybody else.
pub async fn priority_counts_inside_a_tenant(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 2).await;
    let worker = worker(&mut world).await;
    wait(&world, &jobs[0], 0, Wanted { runs: 30, ..PLAIN }).await;
    wait(&world, &jobs[1], 0, Wanted { runs: 30, priority: -700, ..PLAIN }).await;
    wait(&world, &jobs[0], 30, Wanted { runs: 5, priority: 7, ..PLAIN }).await;
    wait(&world, &jobs[0], 35, Wanted { runs: 5, priority: 700, ..PLAIN }).await;
    let mut taken = Vec::new();
    for limit in [1, 3, 20] {
        taken.extend(claim(&world, worker, &[], "", limit).await);
    }
    assert_eq!(of(&taken).into_values().collect::<Vec<_>>(), [12, 12]);
    let parts = |tenant: TenantId| -> Vec<u32> {
        taken.iter().filter(|run| run.tenant == tenant).map(|run| run.part).collect()
    };
    assert_eq!(parts(jobs[0].tenant), [35, 36, 37, 38, 39, 30, 31, 32, 33, 34, 0, 1]);
    assert_eq!(parts(jobs[1].tenant), (0..12).collect::<Vec<_>>());
}

/// While all lanes have runs waiting, each gets its share, in small claims and in large ones.
pub async fn lanes_have_their_shares(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 2).await;
    let worker = worker(&mut world).await;
    for (job, tenant) in jobs.iter().zip(0..) {
        for (lane, place) in Lane::ALL.into_iter().zip(0..) {
            wait(&world, job, tenant * 1_000 + place * 300, Wanted { runs: 150, lane, ..PLAIN }).await;
        }
    }
    for (claims, limit) in [(1, 100), (20, 5), (100, 1)] {
        let mut taken = Vec::new();
        for _ in 0..claims {
            taken.extend(claim(&world, worker, &[], "", limit).await);
        }
        let shares = lanes(&taken);
        assert_eq!(shares.iter().sum::<usize>(), 100);
        let is_near = |(got, share): (usize, usize)| got.abs_diff(share) <= 1;
        assert!(shares.into_iter().zip([70, 25, 5]).all(is_near), "{shares:?} of {claims} claims");
        let counts = of(&taken);
        assert!(counts.values().all(|count| count.abs_diff(50) <= 3), "{counts:?}");
    }
    // In one claim urgent ones come first.
    let order: Vec<Lane> = claim(&world, worker, &[], "", 40).await.iter().map(|run| run.lane).collect();
    assert!(order.is_sorted());
}

/// What a lane does not use is for the others, and is not owed to it afterwards.
pub async fn what_a_lane_leaves_is_lent(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 1).await;
    let worker = worker(&mut world).await;
    let of_lane = |runs, lane| Wanted { runs, lane, ..PLAIN };
    wait(&world, &jobs[0], 0, of_lane(3, Lane::Critical)).await;
    wait(&world, &jobs[0], 100, of_lane(300, Lane::Batch)).await;
    assert_eq!(lanes(&claim(&world, worker, &[], "", 50).await), [3, 0, 47]);
    for _ in 0..10 {
        assert_eq!(
            claim(&world, worker, &[], "", 1).await.len(),
            1,
            "nothing waits for a lane that is empty"
        );
    }
    wait(&world, &jobs[0], 500, of_lane(100, Lane::Standard)).await;
    let shares = lanes(&claim(&world, worker, &[], "", 60).await);
    assert!(shares[1].abs_diff(50) <= 1 && shares[2].abs_diff(10) <= 1, "{shares:?}");
    // What waits in the least urgent lane gets its turn beside the others.
    wait(&world, &jobs[0], 700, of_lane(100, Lane::Critical)).await;
    let mut taken = Vec::new();
    for _ in 0..30 {
        taken.extend(claim(&world, worker, &[], "", 1).await);
    }
    assert!(lanes(&taken)[2] >= 1, "{:?}", lanes(&taken));
}

/// What waits in one queue, or for one kind of worker, changes nothing for who waits elsewhere, or in the same queue.
pub async fn queues_and_requirements_have_turns_of_their_own(store: Arc<dyn Store>) {
    let (mut world, jobs) = tenants(store, 3).await;
    let worker = worker(&mut world).await;
    let (noisy, quiet, third) = (&jobs[0], &jobs[1], &jobs[2]);
    let in_queue = |runs, queue| Wanted { runs, queue, ..PLAIN };
    let gpu = |runs, queue| Wanted { runs, queue, requires: "gpu=true", ..PLAIN };
    wait(&world, noisy, 0, in_queue(300, "a")).await;
    wait(&world, noisy, 300, gpu(100, "a")).await;
    assert_eq!(of(&claim(&world, worker, &["a"], "", 50).await), [(noisy.tenant, 50)].into());
    wait(&world, quiet, 0, in_queue(3, "b")).await;
    wait(&world, third, 0, in_queue(1, "a")).await;
    wait(&world, quiet, 3, gpu(2, "b")).await;
    // Who serves one queue has nothing to do with the other; who comes to the long one is next there.
    assert_eq!(of(&claim(&world, worker, &["b"], "", 1).await), [(quiet.tenant, 1)].into());
    assert_eq!(
        of(&claim(&world, worker, &["a"], "", 2).await),
        [(noisy.tenant, 1), (third.tenant, 1)].into()
    );
    // Who serves all has a turn for each tenant, wherever its runs are.
    assert_eq!(of(&claim(&world, worker, &[], "", 2).await), [(noisy.tenant, 1), (quiet.tenant, 1)].into());
    let both = claim(&world, worker, &["a", "b"], "gpu=true", 4).await;
    assert_eq!(of(&both), [(noisy.tenant, 2), (quiet.tenant, 2)].into());
    let required = both.iter().filter(|run| run.tenant == quiet.tenant && !run.requires.is_empty());
    assert_eq!(required.count(), 1, "one that requires something, and one that does not");
    let rest = claim(&world, worker, &[], "gpu=true", 500).await;
    assert_eq!(of(&rest)[&quiet.tenant], 1);
    assert_eq!(world.store.figures().waiting.of(Lane::Standard), 0);
}
