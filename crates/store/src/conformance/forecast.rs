//! Forecast: what a look at all jobs tells, and how many are due in a second.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::job::{Http, JobState, Method, Pause, Target};
use punctual_domain::{Job, TenantName, Version};
use punctual_schedule::Schedule;

use super::world::World;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::Planned;

/// All of them, in pages of two.
async fn planned(store: &Arc<dyn Store>) -> Vec<Planned> {
    let (mut all, mut page) = (Vec::new(), PageRequest::first(2));
    loop {
        let found = store.planned(page.clone()).await.expect("planned");
        assert!(found.items.len() <= 2, "a page is as long as it was asked for");
        all.extend(found.items);
        match found.next {
            Some(next) => page.after = Some(next),
            None => return all,
        }
    }
}

fn plan_of(job: &Job, fired: u64) -> Planned {
    Planned {
        job: job.id,
        tenant: job.tenant,
        kind: job.spec.kind.as_deref().map(Arc::from),
        destination: job.spec.target.destination().into(),
        queue: Arc::clone(&job.spec.queue),
        schedule: Arc::new(job.spec.schedule.clone()),
        registered_at: job.created_at,
        fired,
    }
}

/// Everything that decides when and where a job runs comes back, in the order of ids.
pub async fn jobs_tell_when_and_where_they_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    assert_eq!(planned(&store).await, []);
    let acme: TenantName = "acme".parse().expect("valid");
    let acme = store.put_tenant(&acme, world.now).await.expect("tenant").id;
    let url = "https://Hooks.Example.com:8443/a?b=c";
    let http =
        Http { url: url.into(), method: Method::Put, headers: vec![("x".into(), "y".into())], tls: None };
    let mut jobs = Vec::new();
    for target in [Target::Discard, Target::Http(http), Target::Function { name: "report".into() }] {
        let mut job = world.job("planned");
        job.spec.target = target;
        jobs.push(job);
        world.advance(Duration::from_secs(1));
    }
    jobs[0].tenant = acme;
    jobs[1].spec.kind = Some("mail".into());
    // What is no concern of a plan does not disturb it, whatever it says.
    jobs[1].spec.payload = Some(r#"{"schedule":{"at":"@now"},"\u0000":"\ud800"}"#.into());
    jobs[1].spec.labels.insert("payload".into(), "\",\"schedule\":".into());
    let mut schedule = Schedule::parse("H 9 * * 1-5").expect("valid");
    schedule.timezone = "Europe/Berlin".into();
    schedule.spread = Some(Duration::from_secs(90));
    schedule.bounds.start = Some(world.now);
    schedule.bounds.max_fires = NonZeroU64::new(5);
    jobs[2].spec.schedule = schedule;
    for job in &jobs {
        world.try_put(world.put(job.clone(), Some(world.after(60)))).await.expect("registered");
    }
    let plans: Vec<Planned> = jobs.iter().map(|job| plan_of(job, 0)).collect();
    assert_eq!(planned(&store).await, plans);
    let destinations: Vec<&str> = plans.iter().map(|plan| &*plan.destination).collect();
    assert_eq!(destinations, ["discard", "http hooks.example.com:8443", "function report"]);
    // What has been fired of a limited number is told.
    let mut firing = world.firing(&jobs[2], world.after(60));
    firing.progress = Some(punctual_schedule::Progress { fired: 3, last_completion: None });
    world.advance(Duration::from_secs(60));
    world.try_firing(firing).await.expect("fired");
    assert_eq!(planned(&store).await[2], plan_of(&jobs[2], 3));
}

/// Jobs that do not fire are passed over, wherever they are.
pub async fn only_active_jobs_are_planned(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(world.register("planned", world.after(60)).await);
        world.advance(Duration::from_secs(1));
    }
    let pause = Pause { reason: None, by: None, since: world.now, until: None };
    for (number, state) in [
        (0, JobState::Paused(pause.clone())),
        (2, JobState::Deleted),
        (3, JobState::Paused(pause)),
        (5, JobState::Ended),
    ] {
        let job: &mut Job = &mut jobs[number];
        job.version = Version(2);
        job.state = state;
        world.try_put(world.put(job.clone(), None)).await.expect("changed");
    }
    let ids = |planned: Vec<Planned>| planned.iter().map(|plan| plan.job).collect::<Vec<_>>();
    assert_eq!(ids(planned(&store).await), [jobs[1].id, jobs[4].id]);
    // A change is told: to other times, and to fire again.
    jobs[1].version = Version(2);
    jobs[1].spec.schedule = Schedule::parse("@every 7s").expect("valid");
    world.try_put(world.put(jobs[1].clone(), Some(world.after(7)))).await.expect("changed");
    jobs[3].version = Version(3);
    jobs[3].state = JobState::Active;
    world.try_put(world.put(jobs[3].clone(), Some(world.after(60)))).await.expect("resumed");
    let told = planned(&store).await;
    assert_eq!(told[0], plan_of(&jobs[1], 0));
    assert_eq!(ids(told), [jobs[1].id, jobs[3].id, jobs[4].id]);
}

/// The entries of a stretch of time are counted, in all shards, but not more than was asked.
pub async fn due_entries_of_a_second_are_counted_up_to_a_limit(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for (second, jobs) in [(9, 1), (10, 25), (11, 2)] {
        for number in 0..jobs {
            let at = world.after(second) + jiff::SignedDuration::from_millis(number * 39);
            world.register("crowd", at).await;
        }
    }
    let count = |from: i64, to: i64, limit: usize| {
        let (store, from, to) = (store.clone(), world.after(from), world.after(to));
        async move { store.count_due(from, to, limit).await.expect("count_due") }
    };
    assert_eq!(count(10, 11, 1_000).await, 25, "the whole second, and no other");
    assert_eq!(count(10, 11, 7).await, 7);
    assert_eq!(count(0, 100, 1_000).await, 28);
    assert_eq!(count(12, 100, 1_000).await, 0);
    assert_eq!(count(11, 10, 1_000).await, 0, "from later to earlier");
}
