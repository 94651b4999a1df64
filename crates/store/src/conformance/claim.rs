//! Claim: in order, once, in the version that was fired.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::job::{Job, Lane};
use punctual_domain::lifecycle::{Charge, Verdict};
use punctual_domain::run::{Cause, WaitingFor};
use punctual_domain::work::{About, Held, Presence};
use punctual_domain::{Labels, Outcome, TenantId, Version};

use super::world::{World, birth};
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Birth, Cancellation, Claim, OpenRuns, RunFilter, Shards, Trigger};

/// Of one tenant: priority before time, in one claim lane before priority; each run to one worker only.
pub async fn runs_are_claimed_in_order(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (first, second) = (world.worker(), world.worker());
    let mut names = Vec::new();
    for (fired, claims) in [
        (
            vec![("b", Lane::Standard, 0), ("c", Lane::Standard, 0), ("a", Lane::Standard, 5)],
            [(first, 1), (second, 1)],
        ),
        (
            vec![
                ("g", Lane::Batch, 9),
                ("f", Lane::Standard, -1),
                ("e", Lane::Critical, -5),
                ("d", Lane::Critical, 0),
            ],
            [(first, 10), (second, 10)],
        ),
    ] {
        for (name, lane, priority) in fired {
            let mut job = world.job(name);
            job.spec.lane = lane;
            job.spec.priority = priority;
            world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
            world.try_fire(&job, world.now).await.expect("fired");
            // Several databases agree on an order by time.
            world.advance(Duration::from_millis(10));
        }
        for (worker, limit) in claims {
            let claimed = world.claim(worker, limit).await;
            assert!(claimed.len() <= limit);
            for (run, job) in claimed.iter().zip(world.jobs_of(&claimed).await) {
                assert_eq!(run.lease().expect("leased").worker, worker);
                names.push(job.spec.name.clone());
            }
        }
    }
    assert_eq!(names, ["a", "b", "d", "e", "c", "f", "g"]);
}

/// A worker gets what it serves and has room for.
pub async fn a_claim_respects_queues_and_limits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for n in 0..6 {
        let mut job = world.job(&format!("job-{n}"));
        job.spec.queue = if n % 2 == 0 { "mail".into() } else { "reports".into() };
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
    }
    let worker = world.worker();
    let claim = |queues: &[&str], limit| Claim {
        worker,
        queues: queues.iter().map(|q| (*q).into()).collect(),
        labels: Labels::NONE,
        shards: Shards::All,
        limit,
    };
    let mail = store.claim(claim(&["mail"], 2), world.now).await.expect("claim");
    assert_eq!(mail.iter().map(|one| &*one.queue).collect::<Vec<_>>(), ["mail", "mail"]);
    assert_eq!(store.claim(claim(&["other"], 9), world.now).await.expect("claim"), []);
    assert_eq!(store.claim(claim(&["mail", "reports"], 9), world.now).await.expect("claim").len(), 4);
    assert_eq!(store.claim(claim(&[], 9), world.now).await.expect("claim"), []);
}

/// However many wait for others, a worker gets what is in its own queue.
pub async fn a_queue_is_not_held_up_by_another(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (slow, quick) = (world.job("slow"), world.job("quick"));
    for job in [&slow, &quick] {
        world.try_put(world.put(job.clone(), None)).await.expect("registered");
    }
    let of = |job: &Job, part: u32, queue: &str| Trigger {
        job: job.id,
        version: job.version,
        birth: Birth { cause: Cause::Trigger, part, queue: queue.into(), ..birth(job, world.now) },
        is_over: false,
        request: None,
        audit: None,
    };
    let mut triggers: Vec<Trigger> = (0..1_000).map(|part| of(&slow, part, "a")).collect();
    triggers.push(of(&quick, 0, "b"));
    store.trigger(triggers, world.now).await.expect("trigger");
    assert_eq!(store.figures().waiting.of(Lane::Standard), 1_001);
    let worker = world.worker();
    let claim = |queues: &[&str]| Claim {
        worker,
        queues: queues.iter().map(|queue| (*queue).into()).collect(),
        labels: Labels::NONE,
        shards: Shards::All,
        limit: 10,
    };
    let claimed = store.claim(claim(&["b"]), world.now).await.expect("claim");
    assert_eq!(claimed.iter().map(|run| run.job).collect::<Vec<_>>(), [quick.id]);
    let claimed = store.claim(claim(&["b", "a", "a"]), world.now).await.expect("claim");
    assert_eq!(
        claimed.iter().map(|run| run.part).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>(),
        "in order"
    );
    assert_eq!(store.figures().waiting.of(Lane::Standard), 990);
}

/// A run that requires something is taken by workers that have it, in its turn; by others it is not even in the way.
pub async fn a_run_waits_for_a_worker_that_has_what_it_requires(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for (name, lane, queue, requires) in [
        ("d", Lane::Standard, "a", ""),
        ("e", Lane::Standard, "b", "zone=eu"),
        ("c", Lane::Standard, "a", "zone=eu"),
        ("a", Lane::Critical, "a", "gpu=true,zone=eu"),
        ("f", Lane::Batch, "a", "zone=us"),
        ("b", Lane::Critical, "b", ""),
    ] {
        let mut job = world.job(name);
        (job.spec.lane, job.spec.queue) = (lane, queue.into());
        job.spec.requires = requires.parse().expect("labels");
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let run = world.try_fire(&job, world.now).await.expect("fired").remove(0);
        assert_eq!(run.requires, job.spec.requires);
        assert_eq!(world.detail(run.id()).await.run.requires, job.spec.requires);
    }
    let worker = world.worker();
    let waiting = || Lane::ALL.map(|lane| store.figures().waiting.of(lane));
    assert_eq!(waiting(), [2, 3, 1], "whatever they require");
    for (labels, queues, limit, expected) in [
        // What nobody here has is not taken, and does not use up the limit.
        ("", vec!["b"], 1, vec!["b"]),
        ("zone=eu", vec!["b"], 9, vec!["e"]),
        ("zone=eu", vec![], 1, vec!["d"]),
        ("gpu=true,zone=asia", vec![], 9, vec![]),
        ("", vec![], 9, vec![]),
        ("gpu=true,ssd=true,zone=eu", vec![], 9, vec!["a", "c"]),
        ("zone=us", vec!["b"], 9, vec![]),
        ("zone=us", vec!["b", "a"], 9, vec!["f"]),
    ] {
        let claim = Claim {
            worker,
            queues: queues.into_iter().map(Arc::from).collect(),
            labels: labels.parse().expect("labels"),
            shards: Shards::All,
            limit,
        };
        let claimed = store.claim(claim, world.now).await.expect("claim");
        let jobs = world.jobs_of(&claimed).await;
        let names: Vec<&str> = jobs.iter().map(|job| job.spec.name.as_str()).collect();
        assert_eq!(names, expected, "{labels}");
    }
    assert_eq!(waiting(), [0, 0, 0]);
}

/// Runs with and without requirements are one line for who may take both; a retry and a delay change nothing, and an edit is followed.
pub async fn what_a_run_requires_stays_with_it(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut jobs = Vec::new();
    for (name, requires) in [("a", "zone=eu"), ("b", ""), ("c", "zone=eu"), ("d", "")] {
        let mut job = world.job(name);
        job.spec.requires = requires.parse().expect("labels");
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let mut firing = world.firing(&job, world.now);
        firing.births[0].available_at = world.after(30);
        world.try_firing(firing).await.expect("fired");
        jobs.push(job);
        // Births of one moment have no order where there are several databases.
        world.advance(Duration::from_millis(1));
    }
    let worker = world.worker();
    let claim = |labels: &str, limit| Claim {
        worker,
        queues: Vec::new(),
        labels: labels.parse().expect("labels"),
        shards: Shards::All,
        limit,
    };
    assert_eq!(store.claim(claim("zone=eu", 9), world.now).await.expect("claim"), []);
    world.advance(Duration::from_secs(30));
    let claimed = store.claim(claim("zone=eu", 3), world.now).await.expect("claim");
    let names = |claimed: &[punctual_domain::Run]| {
        let name =
            |run: &punctual_domain::Run| jobs.iter().find(|job| job.id == run.job).map(|job| &job.spec.name);
        claimed.iter().filter_map(name).cloned().collect::<Vec<String>>()
    };
    assert_eq!(names(&claimed), ["a", "b", "c"], "in the order of all");
    let later = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    world.conclude(worker, &claimed[0], Outcome::Failed, later).await.expect("recorded");
    let now = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    world.conclude(worker, &claimed[2], Outcome::Failed, now).await.expect("recorded");
    // Waiting runs follow the edit: this one requires nothing any more.
    let mut edited = jobs[2].clone();
    (edited.version, edited.spec.requires) = (Version(2), Labels::NONE);
    let mut put = world.put(edited, None);
    put.open_runs = OpenRuns::Update;
    world.try_put(put).await.expect("changed");
    let mut free = names(&store.claim(claim("", 9), world.now).await.expect("claim"));
    free.sort();
    assert_eq!(free, ["c", "d"]);
    world.advance(Duration::from_secs(60));
    assert_eq!(store.claim(claim("", 9), world.now).await.expect("claim"), []);
    let next = store.next_available_at(&Shards::All).await.expect("next");
    assert!(next.is_some_and(|at| at <= world.now), "somebody else may take them");
    let filter = RunFilter { queue: Some("default".into()), ..RunFilter::default() };
    let page = store.runs(&filter, PageRequest::first(9)).await.expect("runs");
    assert_eq!(page.items.len(), 4, "their queue is their queue");
    let filter = RunFilter { job: Some(jobs[0].id), ..RunFilter::default() };
    let waiting = store.runs(&filter, PageRequest::first(1)).await.expect("runs").items.remove(0);
    let cancellation = Cancellation { run: waiting.id(), successor: None };
    store.cancel(vec![cancellation], world.now).await.expect("cancel")[0].as_ref().expect("cancelled");
    assert_eq!(store.claim(claim("zone=eu", 9), world.now).await.expect("claim"), []);
    assert_eq!(store.figures().waiting.of(Lane::Standard), 0);
}

/// A waiting run goes where its job goes: to another queue, with another priority, into another lane; and it is counted there.
pub async fn an_edit_may_move_waiting_runs(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (worker, mut job) = (world.worker(), world.job("moves"));
    job.spec.queue = "slow".into();
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let run = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    world.advance(Duration::from_secs(60));
    let rival = world.fired("rival").await;
    (job.version, job.spec.queue) = (Version(2), "default".into());
    (job.spec.lane, job.spec.priority) = (Lane::Critical, 5);
    let mut put = world.put(job.clone(), None);
    put.open_runs = OpenRuns::Update;
    world.try_put(put).await.expect("changed");
    assert_eq!(Lane::ALL.map(|lane| store.figures().waiting.of(lane)), [1, 1, 0]);
    let claim = |queue: &str| Claim {
        worker,
        queues: vec![queue.into()],
        labels: Labels::NONE,
        shards: Shards::All,
        limit: 1,
    };
    assert_eq!(store.claim(claim("slow"), world.now).await.expect("claim"), []);
    for expected in [run.id(), rival.id()] {
        let claimed = store.claim(claim("default"), world.now).await.expect("claim");
        assert_eq!(claimed.iter().map(punctual_domain::Run::id).collect::<Vec<_>>(), [expected]);
    }
    let found = world.detail(run.id()).await.run;
    assert_eq!((&*found.queue, found.lane, found.priority), ("default", Lane::Critical, 5));
    assert_eq!(Lane::ALL.map(|lane| store.figures().waiting.of(lane)), [0, 0, 0]);
}

/// A store knows how many runs wait for a worker, and does not count those whose time has not come.
pub async fn waiting_runs_are_counted_by_lane(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let waiting = || Lane::ALL.map(|lane| store.figures().waiting.of(lane));
    assert_eq!(waiting(), [0, 0, 0]);
    for (lane, seconds) in [(Lane::Critical, 0), (Lane::Batch, 0), (Lane::Batch, 0), (Lane::Batch, 30)] {
        let mut job = world.job("waits");
        job.spec.lane = lane;
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        let mut firing = world.firing(&job, world.now);
        firing.births[0].available_at = world.after(seconds);
        world.try_firing(firing).await.expect("fired");
    }
    assert_eq!(waiting(), [1, 0, 2]);
    let worker = world.worker();
    let claimed = world.claim(worker, 2).await;
    assert_eq!(waiting(), [0, 0, 1]);
    let later = Verdict::Retry { available_at: world.after(60), charge: Charge::Attempt, start_by: None };
    world.conclude(worker, &claimed[0], Outcome::Failed, later).await.expect("recorded");
    let now = Verdict::Retry { available_at: world.now, charge: Charge::Nothing, start_by: None };
    world.conclude(worker, &claimed[1], Outcome::Failed, now).await.expect("recorded");
    assert_eq!(waiting(), [0, 0, 2]);
    let pending = RunFilter { waiting_for: Some(WaitingFor::Capacity), ..RunFilter::default() };
    let run = store.runs(&pending, PageRequest::first(1)).await.expect("runs").items.remove(0);
    let cancellation = Cancellation { run: run.id(), successor: None };
    store.cancel(vec![cancellation], world.now).await.expect("cancel")[0].as_ref().expect("cancelled");
    assert_eq!(waiting(), [0, 0, 1]);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.claim(worker, 1).await.len(), 1);
    assert_eq!(waiting(), [0, 0, 2], "the times of two have come, and one of the three was taken");
}

/// A run whose time has not come is not claimed, and the store says when it will.
pub async fn a_run_waits_for_its_time(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("delayed", world.now).await;
    let mut firing = world.firing(&job, world.now);
    firing.births = vec![birth(&job, world.now)];
    firing.births[0].available_at = world.after(30);
    world.try_firing(firing).await.expect("fired");
    let worker = world.worker();
    assert_eq!(world.claim(worker, 9).await, []);
    let next = store.next_available_at(&Shards::All).await.expect("next");
    assert_eq!(next, Some(world.after(30)));
    world.advance(Duration::from_secs(30));
    assert_eq!(world.claim(worker, 9).await.len(), 1);
    assert_eq!(store.next_available_at(&Shards::All).await.expect("next"), None);
}

/// An edit does not change what was fired before it.
pub async fn a_run_keeps_the_version_it_was_fired_with(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("before", world.now).await;
    let run = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    job.version = Version(2);
    job.spec.name = "after".into();
    world.try_put(world.put(job.clone(), None)).await.expect("changed");
    let worker = world.worker();
    let claimed = world.claim(worker, 1).await;
    assert_eq!((claimed[0].version, claimed[0].id()), (Version(1), run.id()));
    assert_eq!(world.jobs_of(&claimed).await[0].spec.name, "before");
    let current = store.job_versions(&[(job.id, Version(2))]).await.expect("job_versions").remove(0);
    assert_eq!(current.expect("current").job.spec.name, "after");
}

/// An edit may ask that waiting runs follow it; running ones do not.
pub async fn an_edit_may_update_waiting_runs(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("before", world.now).await;
    let first = world.try_fire(&job, world.now).await.expect("fired").remove(0);
    let worker = world.worker();
    assert_eq!(world.claim(worker, 1).await.len(), 1);
    world.advance(Duration::from_secs(60));
    world.try_fire(&job, world.now).await.expect("fired");
    job.version = Version(2);
    job.spec.name = "after".into();
    let mut put = world.put(job.clone(), None);
    put.open_runs = OpenRuns::Update;
    world.try_put(put).await.expect("changed");
    let claimed = world.claim(worker, 1).await;
    assert_eq!(claimed[0].version, Version(2));
    assert_eq!(world.jobs_of(&claimed).await[0].spec.name, "after");
    assert_eq!(world.detail(first.id()).await.run.version, Version(1));
}

/// What is pulled goes to those who pull for its tenant, whatever else waits; they get nothing else, and nobody else gets it.
pub async fn what_is_pulled_is_for_those_who_pull(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let name = "other".parse().expect("a name");
    let (mine, other) = (TenantId::DEFAULT, store.put_tenant(&name, world.now).await.expect("created").id);
    for (name, tenant, queue, requires, is_pulled) in [
        ("a", mine, "mail", "", true),
        ("b", mine, "mail", "", false),
        ("c", mine, "mail", "zone=eu", true),
        ("d", mine, "mail", "zone=eu", false),
        ("e", other, "mail", "", true),
        ("f", mine, "chat", "", true),
    ] {
        let mut job = world.job(name);
        (job.tenant, job.spec.queue) = (tenant, queue.into());
        let requires: Labels = requires.parse().expect("labels");
        job.spec.requires = if is_pulled { requires.pulling(tenant) } else { requires };
        world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
        world.try_fire(&job, world.now).await.expect("fired");
        // Births of one moment have no order where there are several databases.
        world.advance(Duration::from_millis(1));
    }
    let worker = world.worker();
    let zone: Labels = "zone=eu".parse().expect("labels");
    for (labels, queues, limit, expected) in [
        (Labels::NONE.pulling(other), vec!["chat"], 9, vec![]),
        (Labels::NONE.pulling(mine), vec!["mail"], 9, vec!["a"]),
        (zone.clone(), vec!["mail"], 9, vec!["b", "d"]),
        (zone.clone(), vec![], 9, vec![]),
        (zone.pulling(mine), vec!["mail", "chat"], 1, vec!["c"]),
        (zone.pulling(mine), vec!["mail", "chat"], 9, vec!["f"]),
        (Labels::NONE.pulling(other), vec!["mail"], 9, vec!["e"]),
    ] {
        let shown = labels.clone();
        let queues = queues.into_iter().map(Arc::from).collect();
        let claim = Claim { worker, queues, labels, shards: Shards::All, limit };
        let claimed = store.claim(claim, world.now).await.expect("claim");
        let jobs = world.jobs_of(&claimed).await;
        let names: Vec<&str> = jobs.iter().map(|job| job.spec.name.as_str()).collect();
        assert_eq!(names, expected, "{shown}");
    }
}

/// Workers that pull tell of themselves until they go or are taken for dead; what they hold is listed with them.
pub async fn those_who_pull_are_listed_while_they_live(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (one, two, three) = (world.worker(), world.worker(), world.worker());
    let about = |tenant, name: &str| About {
        tenant,
        name: name.into(),
        queues: vec!["mail".into()],
        labels: "zone=eu".parse().expect("labels"),
        concurrency: 7,
        saturation: None,
        started_at: world.now,
    };
    let (mine, other) = (about(TenantId::DEFAULT, "one"), about(TenantId(77), "two"));
    assert!(store.introduce(one, mine.clone(), world.now).await.expect("told"));
    assert!(store.introduce(two, other.clone(), world.now).await.expect("told"));
    assert!(!store.introduce(two, mine.clone(), world.now).await.expect("told"), "it is another tenant's");
    store.heartbeat(three, Vec::new(), world.now).await.expect("heartbeat");
    assert!(
        !store.introduce(three, mine.clone(), world.now).await.expect("told"),
        "it executes for everybody"
    );
    let names = |workers: Vec<Presence>| -> Vec<String> {
        workers.into_iter().map(|present| present.about.name).collect()
    };
    let run = world.fired("job").await;
    let held = Held { sequence: run.sequence, attempt: 1 };
    let busy = About { saturation: Some(80), ..mine };
    assert!(store.introduce(one, busy.clone(), world.now).await.expect("told"));
    world.advance(Duration::from_secs(1));
    store.heartbeat(one, vec![held], world.now).await.expect("heartbeat");
    let all = store.workers(None).await.expect("workers");
    assert_eq!(names(all.clone()).len(), 2, "who executes for everybody is a node");
    let seen = all.into_iter().find(|present| present.worker == one).expect("listed");
    assert_eq!((seen.about, seen.held, seen.seen_at), (busy.clone(), vec![held], world.now));
    assert_eq!(names(store.workers(Some(TenantId(77))).await.expect("workers")), ["two"]);
    world.advance(Duration::from_secs(10));
    assert!(store.introduce(one, busy.clone(), world.now).await.expect("told"));
    assert!(store.introduce(two, other.clone(), world.now).await.expect("told"));
    world.advance(Duration::from_secs(10));
    assert!(store.expired(Duration::from_secs(15), world.now, 10).await.expect("expired").is_empty());
    let seen = store.workers(Some(TenantId::DEFAULT)).await.expect("workers").remove(0);
    assert_eq!(seen.held, vec![held], "telling is a sign of life, and takes nothing away");
    store.dismiss(two, world.now).await.expect("dismissed");
    assert_eq!(names(store.workers(None).await.expect("workers")), ["one"]);
    assert!(!store.introduce(two, other, world.now).await.expect("told"), "it is gone");
    let reply = store.heartbeat(two, vec![held], world.now).await.expect("heartbeat");
    assert!(reply.is_refused);
    world.advance(Duration::from_secs(20));
    store.expired(Duration::from_secs(15), world.now, 10).await.expect("expired");
    assert_eq!(names(store.workers(None).await.expect("workers")), [""; 0], "it is silent");
    assert!(!store.introduce(one, busy, world.now).await.expect("told"));
}
