//! Suspects: runs that were lost with their worker more than once, which are tried alone.

use std::sync::Arc;

use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::policy::retry::SUSPECT_FROM;
use punctual_domain::run::Run;
use punctual_domain::{Labels, Outcome};

use super::World;
use super::limit::{at_most, born, only, own, registered, state};
use crate::store::Store;
use crate::verbs::{Claim, Shards};

const LOST: Charge = Charge::Lost;

async fn claim(world: &World, worker: WorkerId, labels: Labels, limit: usize) -> Vec<Run> {
    let claim = Claim { worker, queues: Vec::new(), labels, shards: Shards::All, limit };
    world.store.claim(claim, world.now).await.expect("claim")
}

/// A run's worker is lost, and the run is to go on at once.
async fn lose(world: &World, worker: WorkerId, run: &Run) -> Run {
    let retry = Verdict::Retry { available_at: world.now, charge: LOST, start_by: None };
    world.conclude(worker, run, Outcome::Lost, retry).await.expect("current")
}

/// Loses all runs that a worker with these labels is given, as often as makes suspects of them.
async fn make_suspects(world: &mut World, has: &Labels, count: usize) -> Vec<Run> {
    let mut lost = Vec::new();
    for _ in 0..SUSPECT_FROM {
        let worker = world.worker();
        let given = claim(world, worker, has.clone(), 100).await;
        assert_eq!(given.len(), count, "a run that was lost once goes on as any other");
        lost.clear();
        for run in &given {
            lost.push(lose(world, worker, run).await);
        }
    }
    lost
}

fn ids(runs: &[Run]) -> Vec<punctual_domain::RunId> {
    runs.iter().map(Run::id).collect()
}

/// Who does not ask for suspects is given none, who asks for them nothing else; who has one is known.
pub async fn a_run_that_was_lost_often_is_claimed_by_who_asks_for_such_runs(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.fired("one").await;
    world.fired("two").await;
    assert_eq!(store.addressed().await.expect("addressed"), []);
    let suspects = make_suspects(&mut world, &Labels::NONE, 2).await;
    assert!(suspects.iter().all(|run| run.requires.are_alone() && run.lost == SUSPECT_FROM));
    let plain = world.fired("plain").await;
    assert_eq!(store.addressed().await.expect("addressed"), [Labels::NONE.alone()]);
    let (worker, other) = (world.worker(), world.worker());
    assert_eq!(ids(&world.claim(worker, 10).await), [plain.id()], "they are not among the others");
    assert_eq!(store.suspected().await.expect("suspected"), []);
    let first = claim(&world, worker, Labels::NONE.alone(), 1).await;
    assert_eq!(ids(&first), [suspects[0].id()], "in their order");
    assert_eq!(first[0].attempt, SUSPECT_FROM + 1);
    let second = claim(&world, other, Labels::NONE.alone(), 10).await;
    assert_eq!(ids(&second), [suspects[1].id()]);
    assert_eq!(store.addressed().await.expect("addressed"), []);
    let mut holders = store.suspected().await.expect("suspected");
    let mut both = vec![worker, other];
    holders.sort_unstable();
    both.sort_unstable();
    assert_eq!(holders, both);
    // What is given back is still a suspect; what is done is none.
    let back = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    world.conclude(worker, &first[0], Outcome::Failed, back).await.expect("current");
    assert_eq!(store.addressed().await.expect("addressed"), [Labels::NONE.alone()]);
    world.conclude(other, &second[0], Outcome::Succeeded, Verdict::Succeed).await.expect("current");
    assert_eq!(store.suspected().await.expect("suspected"), []);
    assert_eq!(claim(&world, other, Labels::NONE.alone(), 10).await.len(), 1);
    assert_eq!(store.suspected().await.expect("suspected"), [other]);
}

/// What a suspect requires and who pulls it is what it was.
pub async fn a_suspect_is_for_those_it_was_for(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("pulled");
    job.spec.requires = "zone=eu".parse::<Labels>().expect("labels").pulling(TenantId::DEFAULT);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    world.try_fire(&job, world.now).await.expect("fired");
    let has = "gpu=true,zone=eu".parse::<Labels>().expect("labels").pulling(TenantId::DEFAULT);
    make_suspects(&mut world, &has, 1).await;
    let worker = world.worker();
    for wrong in [
        has.clone(),
        has.without_own().alone(),
        Labels::NONE.alone(),
        Labels::NONE.pulling(TenantId::DEFAULT).alone(),
        has.pulling(TenantId(77)).alone(),
    ] {
        assert_eq!(claim(&world, worker, wrong.clone(), 10).await, [], "{wrong}");
    }
    assert_eq!(store.addressed().await.expect("addressed"), [job.spec.requires.alone()]);
    assert_eq!(claim(&world, worker, has.alone(), 10).await.len(), 1);
}

/// A suspect keeps its permits, or gets in line for them, as any retry.
pub async fn a_suspect_keeps_to_its_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = registered(&mut world, "limited").await;
    let limits = only(own(1, at_most(1)));
    let suspect = born(&world, &job, 0, &limits).await;
    make_suspects(&mut world, &Labels::NONE, 1).await;
    let next = born(&world, &job, -1, &limits).await;
    let worker = world.worker();
    assert_eq!(claim(&world, worker, Labels::NONE, 10).await, [], "the permit is the suspect's");
    let taken = claim(&world, worker, Labels::NONE.alone(), 10).await;
    assert_eq!(ids(&taken), [suspect.id()]);
    assert_eq!(state(&world, &next).await, super::limit::WAITING);
    world.conclude(worker, &taken[0], Outcome::Succeeded, Verdict::Succeed).await.expect("current");
    assert_eq!(ids(&claim(&world, worker, Labels::NONE, 10).await), [next.id()]);
}

/// A suspect that waits for its time is in no line; a dead letter that is redriven is suspected of nothing.
pub async fn a_suspect_waits_for_its_time_and_a_redriven_one_is_as_any_other(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    world.fired("one").await;
    make_suspects(&mut world, &Labels::NONE, 1).await;
    let worker = world.worker();
    let taken = claim(&world, worker, Labels::NONE.alone(), 1).await.remove(0);
    let later = world.after(30);
    let retry = Verdict::Retry { available_at: later, charge: Charge::Attempt, start_by: None };
    let delayed = world.conclude(worker, &taken, Outcome::Failed, retry).await.expect("current");
    assert!(delayed.requires.are_alone());
    assert_eq!(claim(&world, worker, Labels::NONE.alone(), 1).await, []);
    assert_eq!(store.next_available_at(&Shards::All).await.expect("next"), Some(later));
    world.advance(std::time::Duration::from_secs(30));
    let taken = claim(&world, worker, Labels::NONE.alone(), 1).await.remove(0);
    let dead = world.conclude(worker, &taken, Outcome::Lost, Verdict::Fail).await.expect("current");
    let redriven = store.redrive(&[dead.id()], world.now).await.expect("redrive").remove(0).expect("dead");
    assert!(!redriven.requires.are_alone());
    assert_eq!(store.addressed().await.expect("addressed"), []);
    assert_eq!(ids(&claim(&world, worker, Labels::NONE, 1).await), [dead.id()]);
    assert_eq!(store.suspected().await.expect("suspected"), []);
}
