//! Limits with a moved clock: keys of templates, rules of administrators, rates, edits, on the reference store.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::WorkerId;
use punctual_domain::job::Spec;
use punctual_domain::policy::limit::{
    Across, Allowance, Concurrency, Dimension, RULES_MAX, Rate, RateLimit, Rule,
};
use punctual_domain::run::{Run, RunState, WaitingFor};
use punctual_domain::work::Finished;
use punctual_domain::{JobId, Outcome, Report};
use punctual_engine::register::Waiting;
use punctual_engine::{Clock, Error};
use punctual_store::{Claim, Shards, Store};

use crate::support::world::{TENANT, World, spec};

const WAITING: RunState = RunState::Pending(WaitingFor::Limit);
const READY: RunState = RunState::Pending(WaitingFor::Capacity);

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

/// One at once for each customer of the tenant.
fn of_customer(customer: &str) -> Spec {
    let mut spec = spec("@every 1h");
    spec.payload = Some(format!(r#"{{"customer":{{"id":"{customer}"}}}}"#).into());
    spec.policies.concurrency = Some(Concurrency {
        max: number(1),
        key: Some("{payload.customer.id}".parse().unwrap()),
        across: Across::Tenant,
        holds_retries: true,
    });
    spec
}

fn register(world: &World, spec: Spec) -> JobId {
    world.try_register(spec).unwrap().job.id
}

fn trigger(world: &World, job: JobId) -> Run {
    world.clock.advance(SignedDuration::from_millis(1));
    block_on(world.engine.trigger(TENANT, job, None, None)).unwrap()
}

fn claim(world: &World) -> Vec<Run> {
    let worker = WorkerId::new(world.clock.now(), 5 << 52 | 5);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 100 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

fn finish(world: &World, run: &Run, outcome: Outcome) -> Run {
    let now = world.clock.now();
    let failure = Failure { code: "x".into(), message: "x".into(), is_retryable: true, retry_after: None };
    let error = (outcome != Outcome::Succeeded).then_some(failure);
    let report = Some(Report { outcome, error, ..Report::lost(now, now) });
    let worker = run.lease().unwrap().worker;
    let finished = Finished { worker, run: run.clone(), job: world.job_of(run), report };
    block_on(world.engine.complete(vec![finished])).unwrap().remove(0).unwrap()
}

fn state(world: &World, run: &Run) -> RunState {
    block_on(world.engine.run(TENANT, run.id())).unwrap().run.state
}

fn advance(world: &World) -> Option<jiff::Timestamp> {
    block_on(world.engine.advance(&Shards::All)).unwrap().next_at
}

fn rule(name: &str, allowance: Allowance) -> Rule {
    Rule {
        name: name.into(),
        tenant: None,
        queue: None,
        kind: None,
        by: Vec::new(),
        allowance,
        holds_retries: false,
        breaker: None,
    }
}

fn at_most(max: u32) -> Allowance {
    Allowance { max: Some(number(max)), rate: None }
}

fn put(world: &World, rule: Rule) -> bool {
    block_on(world.engine.put_rule(rule, None)).unwrap().1
}

#[test]
fn runs_of_one_customer_go_one_after_the_other_whatever_job_they_are_of() {
    let world = World::new();
    let jobs: Vec<JobId> =
        ["acme", "acme", "other"].iter().map(|customer| register(&world, of_customer(customer))).collect();
    let runs: Vec<Run> = jobs.iter().map(|job| trigger(&world, *job)).collect();
    assert_eq!(runs.iter().map(|run| run.state).collect::<Vec<_>>(), [READY, WAITING, READY]);
    let claimed = claim(&world);
    assert_eq!(claimed.len(), 2);
    // A failed attempt keeps its place.
    let retried = finish(&world, &claimed[0], Outcome::Failed);
    assert_eq!((retried.state, retried.passed), (RunState::Pending(WaitingFor::Retry), 1));
    assert_eq!(state(&world, &runs[1]), WAITING);
    world.clock.advance(SignedDuration::from_secs(10));
    let again = claim(&world);
    assert_eq!(again.iter().map(Run::id).collect::<Vec<_>>(), [runs[0].id()]);
    finish(&world, &again[0], Outcome::Succeeded);
    assert_eq!(state(&world, &runs[1]), READY);
}

#[test]
fn a_place_that_names_nothing_is_empty_text_and_a_warning() {
    let world = World::new();
    let mut without = of_customer("acme");
    without.payload = Some(r#"{"client":"acme"}"#.into());
    let (one, other) = (register(&world, without.clone()), register(&world, without));
    assert_eq!((trigger(&world, one).state, trigger(&world, other).state), (READY, WAITING));
    let warnings = |job: JobId| {
        let seen = block_on(world.engine.job(TENANT, job)).unwrap();
        let recent = block_on(world.engine.recent(&seen.job)).unwrap();
        world.engine.warnings(&seen.job, &recent).join("\n")
    };
    assert!(warnings(one).contains("`{payload.customer.id}`"), "{}", warnings(one));
    let with = register(&world, of_customer("acme"));
    assert!(!warnings(with).contains("payload.customer"), "{}", warnings(with));
}

#[test]
fn an_administrators_limit_is_for_the_runs_it_names() {
    let world = World::new();
    let mail = Rule { queue: Some("mail".into()), by: vec![Dimension::Tenant], ..rule("mail", at_most(1)) };
    assert!(put(&world, mail.clone()));
    let mut spec = spec("@every 1h");
    let free = register(&world, spec.clone());
    spec.queue = "mail".into();
    let (one, other) = (register(&world, spec.clone()), register(&world, spec));
    let runs = [one, other, free].map(|job| trigger(&world, job));
    assert_eq!(runs.each_ref().map(|run| run.state), [READY, WAITING, READY]);
    // A change counts for those who wait.
    assert!(!put(&world, Rule { allowance: at_most(2), ..mail }));
    advance(&world);
    assert_eq!(state(&world, &runs[1]), READY);
    assert_eq!(trigger(&world, one).state, WAITING);
    assert!(block_on(world.engine.delete_rule("mail", None)).unwrap());
    assert!(!block_on(world.engine.delete_rule("mail", None)).unwrap());
    advance(&world);
    assert!(world.runs().iter().all(|run| run.state == READY), "{:?}", world.runs());
    assert!(trigger(&world, one).limits.is_empty());
}

#[test]
fn no_more_limits_are_set_than_one_run_can_have() {
    let world = World::new();
    for n in 0..RULES_MAX {
        assert!(put(&world, rule(&format!("limit-{n}"), at_most(1))));
    }
    let one_more = rule("more", at_most(1));
    assert_eq!(block_on(world.engine.put_rule(one_more.clone(), None)), Err(Error::TooManyLimits));
    // One that is there may be changed.
    assert!(!put(&world, rule("limit-0", at_most(5))));
    let job = register(&world, of_customer("acme"));
    assert_eq!(trigger(&world, job).limits.len(), RULES_MAX + 1);
}

#[test]
fn a_rate_is_kept_within_five_percent_over_ten_seconds() {
    for (limit, burst) in [(10, 1), (50, 5), (200, 20)] {
        let world = World::new();
        let rate = Rate { limit: number(limit), per: Duration::from_secs(1), burst: number(burst) };
        let mut spec = spec("@every 1h");
        spec.policies.rate = Some(RateLimit { rate, key: None, across: Across::Job });
        let job = register(&world, spec);
        let most = limit * 10 + burst;
        for _ in 0..most + 20 {
            block_on(world.engine.trigger(TENANT, job, None, None)).unwrap();
        }
        let (begin, mut started) = (world.clock.now(), 0);
        loop {
            for run in claim(&world) {
                finish(&world, &run, Outcome::Succeeded);
                started += 1;
            }
            let next_at = advance(&world).unwrap();
            if next_at.duration_since(begin) >= SignedDuration::from_secs(10) {
                break;
            }
            let step = next_at.duration_since(world.clock.now());
            world.clock.advance(step.max(SignedDuration::ZERO));
            advance(&world);
        }
        assert!(started <= most && started * 100 >= limit * 10 * 95, "{started} of {limit} a second");
    }
}

#[test]
fn an_edit_may_ask_to_give_waiting_runs_its_limits() {
    let world = World::new();
    let job = register(&world, of_customer("acme"));
    let runs = [trigger(&world, job), trigger(&world, job)];
    assert_eq!(state(&world, &runs[1]), WAITING);
    let mut wider = of_customer("acme");
    wider.policies.concurrency.as_mut().unwrap().max = number(2);
    block_on(world.engine.update(TENANT, job, None, wider.clone(), Waiting::Keep)).unwrap();
    assert_eq!(state(&world, &runs[1]), WAITING);
    wider.policies.concurrency = None;
    block_on(world.engine.update(TENANT, job, None, wider, Waiting::Update)).unwrap();
    assert_eq!(runs.each_ref().map(|run| state(&world, run)), [READY, READY]);
}
