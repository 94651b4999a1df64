//! Limits of runs that are fired in batches: most find their gates open, and nobody waits.

use std::sync::Arc;

use punctual_domain::Outcome;
use punctual_domain::id::WorkerId;
use punctual_domain::job::Job;
use punctual_domain::lifecycle::Verdict;
use punctual_domain::policy::limit::Limits;
use punctual_domain::run::Run;

use super::limit::{READY, WAITING, at_most, drain, end, only, own, state};
use super::world::{World, at_once, at_once_two, conclusion};
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{Firing, Shards};

/// A job that is due now. All of them are in one shard: limits that are wider are counted in each database.
async fn due_now(world: &mut World, name: &str) -> Job {
    let job = world.job_of("straight", name);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    job
}

fn firing(world: &World, job: &Job, limits: &Limits, worker: Option<WorkerId>) -> Firing {
    let mut firing = world.firing(job, world.now);
    for birth in &mut firing.births {
        birth.limits = limits.clone();
        birth.claimed_by = worker;
    }
    firing
}

async fn fire(world: &World, firings: Vec<Firing>) -> Vec<Result<Run, Refused>> {
    let answers = world.store.fire(firings, world.now).await.expect("fire");
    answers.into_iter().map(|answer| answer.map(|mut runs| runs.remove(0))).collect()
}

/// Each passes as it would alone: leased where there is room, in line where there is none, and what is not due takes no permit.
pub async fn a_batch_of_firings_passes_its_gates(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let (few, one, other) = (own(1, at_most(2)), own(2, at_most(1)), own(3, at_most(1)));
    let of_few = only(few.clone());
    let mut jobs = Vec::new();
    for n in 0..7 {
        jobs.push(due_now(&mut world, &format!("job-{n}")).await);
    }
    fire(&world, vec![firing(&world, &jobs[6], &Limits::NONE, None)]).await.remove(0).expect("fired");
    let firings = vec![
        firing(&world, &jobs[0], &of_few, Some(worker)),
        firing(&world, &jobs[1], &only(one.clone()), Some(worker)),
        firing(&world, &jobs[2], &of_few, None),
        firing(&world, &jobs[3], &Limits::new(vec![few, other.clone()]), Some(worker)),
        firing(&world, &jobs[4], &Limits::NONE, Some(worker)),
        firing(&world, &jobs[6], &only(own(4, at_most(1))), Some(worker)),
    ];
    let mut answers = fire(&world, firings).await;
    assert_eq!(answers.pop(), Some(Err(Refused::NotDue)));
    let runs: Vec<Run> = answers.into_iter().map(|answer| answer.expect("fired")).collect();
    let leased: Vec<bool> = runs.iter().map(|run| run.lease().is_some()).collect();
    assert_eq!(leased, [true, true, false, false, true]);
    assert_eq!((runs[2].state, runs[3].state), (READY, WAITING), "two of three");
    let passed: Vec<u8> = runs.iter().map(|run| run.passed).collect();
    assert_eq!(passed, [1, 1, 1, 0, 0]);
    // Neither who was refused nor who waits holds anything.
    let limits = Limits::new(vec![other, own(4, at_most(1))]);
    let last = fire(&world, vec![firing(&world, &jobs[5], &limits, Some(worker))]).await;
    let last = last.into_iter().next().expect("one").expect("fired");
    assert!(last.lease().is_some(), "both gates are open");
    // Who waits goes on when one of the two has ended, as far as the last has ended too.
    end(&world, worker, &runs[0], Verdict::Succeed).await;
    assert_eq!(state(&world, &runs[3]).await, WAITING, "at the other gate");
    end(&world, worker, &last, Verdict::Succeed).await;
    assert_eq!(state(&world, &runs[3]).await, READY);
    for run in [&runs[1], &runs[4]] {
        end(&world, worker, run, Verdict::Succeed).await;
    }
    assert_eq!(drain(&mut world, 3).await.len(), 3, "two that were ready, and the one without limits");
    let again = due_now(&mut world, "again").await;
    let run = fire(&world, vec![firing(&world, &again, &only(one), Some(worker))]).await.remove(0);
    assert!(run.expect("fired").lease().is_some(), "what ended has given its permit back");
}

/// Batches are fired and runs end at the same time: never more than are allowed, and nobody is left in line.
pub async fn firings_and_ends_at_once_keep_the_limit(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let (mut born, mut ended) = (0, 0);
    let mut held: Vec<Run> = Vec::new();
    for round in 0..8_u64 {
        let mut batches = Vec::new();
        for batch in 0..3_u64 {
            let mut firings = Vec::new();
            for n in 0..4_u64 {
                let job = due_now(&mut world, &format!("job-{round}-{batch}-{n}")).await;
                // Keys of their own in some rounds, and the same in others.
                let customer = if round % 2 == 0 { batch * 4 + n } else { n };
                firings.push(firing(&world, &job, &only(own(customer, at_most(1))), Some(worker)));
            }
            batches.push(firings);
        }
        let batches: Vec<_> =
            batches.into_iter().map(|firings| world.store.fire(firings, world.now)).collect();
        let ends: Vec<_> = held
            .drain(..)
            .map(|run| {
                let report = Some(world.report(Outcome::Succeeded));
                world.store.complete(vec![conclusion(worker, &run, report, Verdict::Succeed)], world.now)
            })
            .collect();
        let both = at_once_two(async { at_once(batches).await }, async { at_once(ends).await }).await;
        for answer in both.1 {
            answer.expect("complete").remove(0).expect("recorded");
            ended += 1;
        }
        for answers in both.0 {
            for answer in answers.expect("fire") {
                born += 1;
                held.extend(answer.expect("fired").into_iter().filter(|run| run.lease().is_some()));
            }
        }
        world.store.advance(&Shards::All, world.now, 1_000).await.expect("advance");
        held.extend(world.claim(worker, 100).await);
        let mut keys: Vec<u64> = held.iter().flat_map(|run| run.limits.all()).map(|one| one.key.0).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a customer has one at once: {keys:?}");
    }
    for run in std::mem::take(&mut held) {
        end(&world, worker, &run, Verdict::Succeed).await;
        ended += 1;
    }
    ended += drain(&mut world, 12).await.len();
    assert_eq!((born, ended), (96, 96), "nobody is left in line");
}
