//! Register: jobs, keys, versions, requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::job::{Job, JobState};
use punctual_domain::lifecycle::Verdict;
use punctual_domain::run::RunState;
use punctual_domain::{Outcome, TenantId, TenantName, Version};

use super::world::{World, birth};
use crate::error::Refused;
use crate::page::PageRequest;
use crate::store::Store;
use crate::verbs::{Birth, JobFilter, Put, RunFilter, Subject, Trigger};

/// Everything that was given comes back, and its due entry is in place.
pub async fn a_job_is_there_when_put_returns(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("nightly");
    job.spec.key = Some("nightly-report".into());
    job.spec.kind = Some("report".into());
    job.spec.labels.insert("team".into(), "finance".into());
    job.spec.correlation_id = Some("corr-1".into());
    job.spec.priority = -3;
    let at = world.after(60);
    world.try_put(world.put(job.clone(), Some(at))).await.expect("registered");
    let found = store.jobs(&[job.id, world.job("unknown").id]).await.expect("jobs");
    assert_eq!(found[0].as_ref().map(|stored| &*stored.job), Some(&job));
    assert_eq!(found[1], None);
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "nightly-report").await.expect("by key"), Some(job.id));
    let due = world.due_until(at).await;
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].key.job, due[0].key.at, due[0].version), (job.id, at, Version::FIRST));
}

/// Nobody changes what they have not seen.
pub async fn a_put_expects_a_version(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.register("edited", world.after(60)).await;
    assert_eq!(
        world.try_put(world.put(job.clone(), None)).await,
        Err(Refused::WrongVersion { current: Version(1) })
    );
    job.version = Version(2);
    job.spec.name = "edited again".into();
    world.try_put(world.put(job.clone(), None)).await.expect("changed");
    assert_eq!(
        world.try_put(world.put(job.clone(), None)).await,
        Err(Refused::WrongVersion { current: Version(2) })
    );
    let stored = store.jobs(&[job.id]).await.expect("jobs").remove(0).expect("there");
    assert_eq!(stored.job.spec.name, "edited again");
    let mut ghost = world.job("ghost");
    ghost.version = Version(2);
    assert_eq!(world.try_put(world.put(ghost, None)).await, Err(Refused::NoJob));
}

/// A key belongs to one job of a tenant; another tenant may use it too.
pub async fn a_key_is_unique_in_its_tenant(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut first = world.job_of("taken", "first");
    first.spec.key = Some("taken".into());
    world.try_put(world.put(first.clone(), None)).await.expect("registered");
    let mut second = world.job_of("taken", "second");
    second.spec.key = Some("taken".into());
    assert_eq!(world.try_put(world.put(second.clone(), None)).await, Err(Refused::KeyTaken { by: first.id }));
    assert_eq!(store.jobs(&[second.id]).await.expect("jobs"), [None]);
    second.tenant =
        store.put_tenant(&"acme".parse::<TenantName>().expect("valid"), world.now).await.expect("tenant").id;
    world.try_put(world.put(second.clone(), None)).await.expect("another tenant");
    assert_eq!(store.job_by_key(second.tenant, "taken").await.expect("by key"), Some(second.id));
    // A job may give its key up, and another take it.
    first.version = Version(2);
    first.spec.key = None;
    world.try_put(world.put(first, None)).await.expect("changed");
    let mut third = world.job("third");
    third.spec.key = Some("taken".into());
    world.try_put(world.put(third, None)).await.expect("the key is free");
}

/// A deleted job is gone from every list; its key may be used again.
pub async fn a_deleted_job_frees_its_key_and_is_gone(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let mut job = world.job("short-lived");
    job.spec.key = Some("reused".into());
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let slot = job.clone();
    job.version = Version(2);
    job.state = JobState::Deleted;
    world.try_put(world.put(job.clone(), None)).await.expect("deleted");
    assert_eq!(store.jobs(&[job.id]).await.expect("jobs"), [None]);
    assert_eq!(store.job_by_key(job.tenant, "reused").await.expect("by key"), None);
    let listed = store.list_jobs(&JobFilter::default(), PageRequest::first(10)).await.expect("list");
    assert_eq!(listed.items, []);
    assert_eq!(world.try_fire(&slot, world.now).await, Err(Refused::NotDue));
    let mut next = world.job("next");
    next.spec.key = Some("reused".into());
    world.try_put(world.put(next, None)).await.expect("the key is free");
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Pages follow each other without gaps or repeats, also through filters.
pub async fn jobs_are_listed_in_pages(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    for n in 0..25 {
        let mut job = world.job(&format!("job-{n}"));
        job.spec.queue = if n % 5 == 0 { "slow".into() } else { "fast".into() };
        job.spec.kind = (n % 6 == 0).then(|| "report".into());
        job.spec.labels = labels(&[("parity", &(n % 2).to_string()), ("third", &(n % 3).to_string())]);
        // Every third has a key that begins with `eu/`, the others have none or another.
        job.spec.key = match n % 3 {
            0 => Some(format!("eu/{n}")),
            1 => Some(format!("us/{n}")),
            _ => None,
        };
        world.try_put(world.put(job, None)).await.expect("registered");
        world.advance(Duration::from_millis(3));
    }
    for (filter, expected) in [
        (JobFilter::default(), 25),
        (JobFilter { queue: Some("slow".into()), ..JobFilter::default() }, 5),
        (JobFilter { kind: Some("report".into()), ..JobFilter::default() }, 5),
        (JobFilter { kind: Some("other".into()), ..JobFilter::default() }, 0),
        (JobFilter { labels: labels(&[("parity", "1")]), ..JobFilter::default() }, 12),
        (JobFilter { labels: labels(&[("parity", "0"), ("third", "0")]), ..JobFilter::default() }, 5),
        (JobFilter { labels: labels(&[("parity", "0"), ("third", "3")]), ..JobFilter::default() }, 0),
        (JobFilter { name: Some("b-1".into()), ..JobFilter::default() }, 11),
        (JobFilter { name: Some("B-1".into()), ..JobFilter::default() }, 0),
        (JobFilter { key_prefix: Some("eu/".into()), ..JobFilter::default() }, 9),
        (JobFilter { key_prefix: Some("u/".into()), ..JobFilter::default() }, 0),
        (
            JobFilter {
                key_prefix: Some("eu/".into()),
                name: Some("job-2".into()),
                queue: Some("fast".into()),
                ..JobFilter::default()
            },
            2,
        ),
        (JobFilter { state: Some("active"), ..JobFilter::default() }, 25),
        (JobFilter { state: Some("paused"), ..JobFilter::default() }, 0),
        (JobFilter { tenant: Some(TenantId(99)), ..JobFilter::default() }, 0),
    ] {
        let mut ids = Vec::new();
        let mut page = PageRequest::first(4);
        loop {
            let found = store.list_jobs(&filter, page).await.expect("list");
            assert!(found.items.len() <= 4);
            ids.extend(found.items.iter().map(|stored| stored.job.id));
            match found.next {
                Some(after) => page = PageRequest { after: Some(after), limit: 4 },
                None => break,
            }
        }
        assert_eq!(ids.len(), expected, "{filter:?}");
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
    }
}

/// Each item of a list stands for itself.
pub async fn one_bad_put_does_not_spoil_the_others(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let (good, other) = (world.job("good"), world.job("other"));
    let mut bad = world.job("bad");
    bad.version = Version(7);
    let ids = [good.id, bad.id, other.id];
    let puts = vec![world.put(good, None), world.put(bad, None), world.put(other, None)];
    let answers = store.put_jobs(puts, world.now).await.expect("put_jobs");
    assert_eq!(answers, [Ok(()), Err(Refused::NoJob), Ok(())]);
    let there: Vec<bool> = store.jobs(&ids).await.expect("jobs").iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true]);
}

/// Of two jobs with the same key in one list the first is taken; of the other, nothing is kept.
pub async fn a_refused_put_leaves_nothing_behind(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let request = |key: &str| Subject {
        tenant: TenantId::DEFAULT,
        key: key.into(),
        fingerprint: [7; 16],
        expires_at: world.after(3600),
        result: "job".into(),
    };
    let requests = ["first", "second", "third"].map(request);
    let (mut first, mut second) = (world.job_of("wanted", "first"), world.job_of("wanted", "second"));
    first.spec.key = Some("wanted".into());
    second.spec.key = Some("wanted".into());
    // The same job once more, with a key that is free.
    let mut third = first.clone();
    third.spec.key = Some("free".into());
    let jobs = [&first, &second, &third];
    let puts = jobs.into_iter().zip(&requests).map(|(job, request)| {
        let mut put = world.put(job.clone(), Some(world.after(60)));
        put.request = Some(request.clone());
        put
    });
    let answers = store.put_jobs(puts.collect(), world.now).await.expect("put_jobs");
    let refused = [Refused::KeyTaken { by: first.id }, Refused::WrongVersion { current: Version(1) }];
    assert_eq!(answers, [Ok(()), Err(refused[0].clone()), Err(refused[1].clone())]);
    for (request, expected) in requests.iter().zip([Some(&requests[0]), None, None]) {
        let known = store.request(TenantId::DEFAULT, &request.key, world.now).await.expect("request");
        assert_eq!(known.as_ref(), expected, "{}", request.key);
    }
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "wanted").await.expect("by key"), Some(first.id));
    assert_eq!(store.job_by_key(TenantId::DEFAULT, "free").await.expect("by key"), None);
    let found = store.jobs(&[first.id, second.id]).await.expect("jobs");
    assert_eq!(found[0].as_ref().map(|stored| &*stored.job), Some(&first));
    assert_eq!(found[1], None);
    assert_eq!(world.due_until(world.after(60)).await.len(), 1);
}

/// The same request does nothing the second time, until it is forgotten.
pub async fn a_request_is_remembered_with_what_it_did(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let subject = Subject {
        tenant: TenantId::DEFAULT,
        key: "req-1".into(),
        fingerprint: [7; 16],
        expires_at: world.after(3600),
        result: "job".into(),
    };
    let job = world.job_of("req-1", "once");
    let mut put = world.put(job.clone(), None);
    put.request = Some(subject.clone());
    world.try_put(put).await.expect("registered");
    let known = store.request(TenantId::DEFAULT, "req-1", world.now).await.expect("request");
    assert_eq!(known, Some(subject.clone()));
    let twin = world.job_of("req-1", "twin");
    let mut put = world.put(twin.clone(), None);
    put.request = Some(subject.clone());
    assert_eq!(world.try_put(put).await, Err(Refused::Repeated));
    assert_eq!(store.jobs(&[twin.id]).await.expect("jobs"), [None], "nothing of it was done");
    let trigger = Trigger {
        job: job.id,
        version: job.version,
        birth: birth(&job, world.now),
        is_over: false,
        request: Some(subject.clone()),
        audit: None,
    };
    let answers = store.trigger(vec![trigger.clone()], world.now).await.expect("trigger");
    assert_eq!(answers, [Err(Refused::Repeated)]);
    world.advance(Duration::from_secs(3601));
    assert_eq!(store.request(TenantId::DEFAULT, "req-1", world.now).await.expect("request"), None);
    let later = Trigger { request: Some(Subject { expires_at: world.after(3600), ..subject }), ..trigger };
    assert!(store.trigger(vec![later], world.now).await.expect("trigger")[0].is_ok());
}

/// A trigger without a result of its own is remembered with its run.
pub async fn a_trigger_is_remembered_with_its_run(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.register("job", world.now).await;
    let request = Subject {
        tenant: TenantId::DEFAULT,
        key: "req-2".into(),
        fingerprint: [7; 16],
        expires_at: world.after(3600),
        result: String::new(),
    };
    let birth = birth(&job, world.now);
    let trigger = Trigger {
        job: job.id,
        version: job.version,
        birth,
        is_over: false,
        request: Some(request.clone()),
        audit: None,
    };
    let run = store.trigger(vec![trigger], world.now).await.expect("trigger").remove(0).expect("triggered");
    let known = store.request(TenantId::DEFAULT, "req-2", world.now).await.expect("request");
    assert_eq!(known, Some(Subject { result: run.id().to_string(), ..request }));
}

/// What is done without a put or a trigger can be remembered by itself, once.
pub async fn a_request_is_remembered_by_itself(store: Arc<dyn Store>) {
    let world = World::new(store.clone()).await;
    let request = |key: &str, result: &str| Subject {
        tenant: TenantId::DEFAULT,
        key: key.into(),
        fingerprint: [7; 16],
        expires_at: world.after(3600),
        result: result.into(),
    };
    let requests = vec![request("a", "1"), request("b", "2"), request("a", "3")];
    let answers = store.remember(requests, world.now).await.expect("remember");
    assert_eq!(answers, [Ok(()), Ok(()), Err(Refused::Repeated)]);
    let known = store.request(TenantId::DEFAULT, "a", world.now).await.expect("request");
    assert_eq!(known, Some(request("a", "1")));
    assert_eq!(
        store.request(TenantId(7), "a", world.now).await.expect("request"),
        None,
        "it is the tenant's"
    );
}

/// There is no moment in which a `now` job exists without its run.
pub async fn a_now_job_gets_its_run_in_the_same_commit(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let job = world.job("now");
    let mut put = world.put(job.clone(), None);
    put.birth = Some(birth(&job, world.now));
    world.try_put(put).await.expect("registered");
    let filter = RunFilter { job: Some(job.id), ..RunFilter::default() };
    let runs = store.runs(&filter, PageRequest::first(10)).await.expect("runs");
    assert_eq!(runs.items.len(), 1);
    assert_eq!((runs.items[0].scheduled_for, runs.items[0].attempt), (world.now, 0));
}

/// Whoever waits for it has it in the commit that makes it; what is refused has no run.
pub async fn a_now_job_is_born_leased_to_who_waits(store: Arc<dyn Store>) {
    let mut world = World::new(store.clone()).await;
    let worker = world.worker();
    let (waited_for, other, plain) = (world.job("now"), world.job("other"), world.job("plain"));
    let put = |job: &Job, claimed_by| {
        let born = Birth { claimed_by, ..birth(job, world.now) };
        Put { birth: Some(born), ..world.put(job.clone(), None) }
    };
    let no_birth = world.put(plain, Some(world.now));
    let puts = vec![put(&waited_for, Some(worker)), put(&other, None), no_birth, put(&other, Some(worker))];
    let born = store.put_born(puts, world.now).await.expect("put");
    let run = born[0].clone().expect("registered").expect("born");
    assert!(run.lease().is_some_and(|lease| lease.worker == worker && lease.attempt == 1), "{run:?}");
    assert_eq!((run.job, world.detail(run.id()).await.run), (waited_for.id, run.clone()));
    let waits = born[1].clone().expect("registered").expect("born");
    assert_eq!((waits.job, waits.lease()), (other.id, None));
    assert_eq!(born[2], Ok(None));
    assert!(matches!(born[3], Err(Refused::WrongVersion { .. })), "{:?}", born[3]);
    let ended = world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(ended.state, RunState::Succeeded);
}

/// Asking for a tenant twice gives the same one.
pub async fn tenants_are_created_once(store: Arc<dyn Store>) {
    let world = World::new(store.clone()).await;
    let name: TenantName = "acme".parse().expect("valid");
    let first = store.put_tenant(&name, world.now).await.expect("tenant");
    let again = store.put_tenant(&name, world.after(5)).await.expect("tenant");
    assert_eq!(first, again);
    let all: Vec<String> =
        store.tenants().await.expect("tenants").iter().map(|tenant| tenant.name.to_string()).collect();
    assert_eq!(all, ["default", "acme"]);
}
