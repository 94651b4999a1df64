//! Tenants with a moved clock: quotas, suspension and deletion, on one node and on another that knows only the store.

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::ledger::Fate;
use punctual_domain::policy::backlog::Cap;
use punctual_domain::tenant::{Quotas, State};
use punctual_domain::{JobId, RunState, TenantId};
use punctual_engine::Error;
use punctual_store::{JobFilter, PageRequest, Store};

use crate::support::world::{World, engine, spec};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A world with a tenant beside the one that is always there.
fn world() -> (World, TenantId) {
    let world = World::new();
    let tenant = block_on(world.engine.put_tenant(&"acme".parse().unwrap())).unwrap().id;
    (world, tenant)
}

fn register(world: &World, tenant: TenantId) -> Result<JobId, Error> {
    let answer = block_on(world.engine.register(tenant, vec![(spec("@every 1h"), None)])).unwrap();
    answer.into_iter().next().unwrap().map(|registered| registered.job.id)
}

fn runs(world: &World, tenant: TenantId) -> usize {
    world.runs().iter().filter(|run| run.tenant == tenant).count()
}

#[test]
fn no_slot_of_a_suspended_tenant_fires_and_each_is_accounted_for() {
    let (world, tenant) = world();
    let job = register(&world, tenant).unwrap();
    let ours = world.register("@every 1h").job.id;
    world.advance(HOUR);
    assert_eq!(runs(&world, tenant), 1);
    block_on(world.engine.suspend_tenant(tenant, Some("unpaid".into()))).unwrap();
    world.operate();
    let open = world.runs().iter().filter(|run| run.tenant == tenant && !run.state.is_ended()).count();
    assert_eq!(open, 0, "what waited has ended");
    for _ in 0..3 {
        world.advance(HOUR);
    }
    assert_eq!(runs(&world, tenant), 1, "none was born");
    let others = world.runs().iter().filter(|run| run.job == ours).count();
    assert_eq!(others, 4, "others go on");
    let ledger = block_on(world.engine.ledger(tenant, job, PageRequest::first(10))).unwrap().items;
    let slots: u64 = ledger
        .iter()
        .filter(|entry| entry.fate == Fate::Throttled(Cap::Suspended))
        .map(|entry| entry.slots)
        .sum();
    assert_eq!(slots, 3, "{ledger:?}");
    let asked = block_on(world.engine.trigger(tenant, job, None, None));
    assert!(
        matches!(&asked, Err(Error::TenantSuspended { reason: Some(why), .. }) if why == "unpaid"),
        "{asked:?}"
    );
    block_on(world.engine.resume_tenant(tenant)).unwrap();
    world.advance(HOUR);
    assert_eq!(runs(&world, tenant), 2, "the slots to come fire");
}

#[test]
fn another_node_follows_when_it_has_looked() {
    let (world, tenant) = world();
    let other = engine(world.store.clone(), world.clock.clone(), 2);
    block_on(world.engine.suspend_tenant(tenant, None)).unwrap();
    assert_eq!(other.standing(tenant).state, State::Active, "it has not looked yet");
    block_on(other.read_tenancies()).unwrap();
    assert_eq!(other.standing(tenant).state, State::Suspended);
}

#[test]
fn quotas_are_held_and_changed_only_by_who_saw_the_last_version() {
    let (world, tenant) = world();
    let quotas = Quotas { jobs: Some(2), payload_bytes: Some(4), history_days: Some(7), ..Quotas::default() };
    assert_eq!(block_on(world.engine.put_quotas(tenant, quotas, None)), Ok(1));
    assert!(matches!(block_on(world.engine.put_quotas(tenant, quotas, Some(7))), Err(Error::Changed { .. })));
    let ids = [register(&world, tenant).unwrap(), register(&world, tenant).unwrap()];
    let third = register(&world, tenant);
    assert!(
        matches!(&third, Err(Error::QuotaExceeded { exceeded, .. }) if exceeded.quota == "jobs"),
        "{third:?}"
    );
    block_on(world.engine.delete(tenant, ids[0], None)).unwrap();
    world.clock.advance(SignedDuration::from_secs(1));
    assert!(register(&world, tenant).is_ok(), "there is room again");
    let mut large = spec("@every 1h");
    large.payload = Some("[1,2]".into());
    let refused = block_on(world.engine.update(tenant, ids[1], None, large.clone(), Default::default()));
    assert!(
        matches!(&refused, Err(Error::QuotaExceeded { exceeded, .. }) if exceeded.asked == 5),
        "{refused:?}"
    );
    assert!(world.try_register(large).is_ok(), "others have none");
}

#[test]
fn a_deleted_tenant_loses_its_jobs_and_keeps_its_name() {
    let (world, tenant) = world();
    for _ in 0..5 {
        register(&world, tenant).unwrap();
    }
    world.advance(HOUR);
    block_on(world.engine.delete_tenant(tenant)).unwrap();
    world.operate();
    let filter = JobFilter { tenant: Some(tenant), ..JobFilter::default() };
    assert_eq!(block_on(world.store.list_jobs(&filter, PageRequest::first(10))).unwrap().items.len(), 0);
    let all = world.runs();
    assert!(
        all.iter().filter(|run| run.tenant == tenant).all(|run| run.state == RunState::Cancelled),
        "{all:?}"
    );
    assert!(matches!(block_on(world.engine.resume_tenant(tenant)), Err(Error::TenantGone(_))));
    assert!(matches!(block_on(world.engine.suspend_tenant(tenant, None)), Err(Error::TenantGone(_))));
}

#[test]
fn the_tenant_that_is_always_there_stays() {
    let world = World::new();
    let answers = [
        block_on(world.engine.suspend_tenant(TenantId::DEFAULT, None)),
        block_on(world.engine.delete_tenant(TenantId::DEFAULT)),
    ];
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::TenantKept(_)))));
}
