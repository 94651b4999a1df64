//! Breakers with a moved clock: targets and jobs that fail, are left alone, and come back; targets that never answer.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::support::world::{Counter, TENANT, at, spec};
use jiff::SignedDuration;
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, RunId};
use punctual_domain::job::{Http, Method, Spec, Target};
use punctual_domain::policy::breaker::{Breaker, OfJob, Stage};
use punctual_domain::policy::retry::Backoff;
use punctual_domain::run::{Run, RunState, WaitingFor};
use punctual_domain::work::{Finished, Leased};
use punctual_domain::{Outcome, Report};
use punctual_engine::why::When;
use punctual_engine::{Clock, Engine, ManualClock, Node, Options, Seat};
use punctual_schedule::Tzdb;
use punctual_store::{Memory, PageRequest, RunFilter, Store};

const UNWELL: &str = "http api.example.com";

/// A node and one seat, without room until some is granted.
struct Running {
    store: Arc<Memory>,
    clock: Arc<ManualClock>,
    engine: Arc<Engine>,
    seat: Seat,
    node: Node,
}

impl Running {
    async fn start(room: usize) -> Self {
        let store = Arc::new(Memory::new(16));
        let clock = Arc::new(ManualClock::new(at("12:00:00")));
        let (entropy, tzdb) = (Arc::new(Counter::default()), Arc::new(Tzdb::bundled()));
        let engine = Arc::new(Engine::new(store.clone(), clock.clone(), entropy, tzdb));
        let seat = engine.seat(engine.new_worker_id(), Vec::new(), Default::default());
        seat.grant(room);
        let id = engine.new_worker_id();
        let node = Node::start(engine.clone(), id, Options::default()).await.unwrap();
        settle().await;
        Running { store, clock, engine, seat, node }
    }

    /// Jobs that run now.
    async fn register(&self, count: usize, spec: &Spec) -> Vec<JobId> {
        let specs = (0..count).map(|_| (spec.clone(), None)).collect();
        let answers = self.engine.register(TENANT, specs).await.unwrap();
        settle().await;
        answers.into_iter().map(|answer| answer.unwrap().job.id).collect()
    }

    /// Lets time pass as it does: in small steps.
    async fn wait(&self, seconds: i64) {
        for _ in 0..seconds * 2 {
            self.clock.advance(SignedDuration::from_millis(500));
            settle().await;
        }
    }

    async fn given(&self) -> Vec<Leased> {
        let mut all = Vec::new();
        loop {
            settle().await;
            let given = tokio::select! {
                biased;
                given = self.seat.next() => given,
                () = settle() => return all,
            };
            all.extend(given);
        }
    }

    /// An attempt ends, and its room is free again.
    async fn finish(&self, leased: Leased, report: Report) -> Run {
        let worker = self.seat.worker();
        let finished = Finished { worker, run: leased.run, job: leased.job, report: Some(report) };
        let run = self.engine.complete(vec![finished]).await.unwrap().remove(0).unwrap();
        self.seat.grant(1);
        settle().await;
        run
    }

    fn failed(&self, code: &str, status: Option<i32>) -> Report {
        let now = self.clock.now();
        let error =
            Failure { code: code.into(), message: "refused".into(), is_retryable: true, retry_after: None };
        let report = Report::lost(now, now);
        Report { outcome: Outcome::Failed, error: Some(error), status, ..report }
    }

    fn refused(&self) -> Report {
        self.failed("connect_failed", None)
    }

    fn succeeded(&self) -> Report {
        let now = self.clock.now();
        Report { outcome: Outcome::Succeeded, error: None, status: Some(200), ..Report::lost(now, now) }
    }

    /// So many failures, the last of them two seconds after the first: it opens.
    async fn open(&self) {
        let jobs = self.register(10, &http("api.example.com")).await;
        let mut given = self.given().await;
        let last = given.pop().unwrap();
        assert_eq!(given.len() + 1, jobs.len());
        for leased in given {
            self.finish(leased, self.refused()).await;
        }
        self.clock.advance(SignedDuration::from_secs(2));
        settle().await;
        // Those that were tried a second time.
        let again = self.given().await;
        assert!(self.breakers().await.is_empty());
        self.finish(last, self.refused()).await;
        assert_eq!(self.stages().await, [open(5)]);
        for leased in again {
            self.finish(leased, self.refused()).await;
        }
    }

    async fn breakers(&self) -> Vec<Breaker> {
        self.engine.breakers().await.unwrap()
    }

    async fn stages(&self) -> Vec<Stage> {
        self.breakers().await.iter().map(|breaker| breaker.stage).collect()
    }

    async fn runs(&self) -> Vec<Run> {
        self.store.runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap().items
    }

    async fn run(&self, id: RunId) -> Run {
        self.store.run(id).await.unwrap().unwrap().run
    }

    /// How many wait in the line of a breaker.
    async fn waiting(&self) -> usize {
        self.runs().await.iter().filter(|run| run.waits_for_breaker().is_some()).count()
    }
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A job that runs now and calls a host; tried three times, a second apart.
fn http(host: &str) -> Spec {
    let mut spec = spec("@now");
    let url = format!("http://{host}/hook");
    spec.target = Target::Http(Http { url, method: Method::Post, headers: Vec::new(), tls: None });
    spec.policies.retry.backoff = Backoff::Fixed { delay: Duration::from_secs(1) };
    spec
}

fn open(seconds: u64) -> Stage {
    Stage::Open { interval: Duration::from_secs(seconds), asking: NonZeroU32::MIN }
}

fn widening(max: u32) -> Stage {
    Stage::Widening { max: NonZeroU32::new(max).unwrap() }
}

#[tokio::test]
async fn a_breaker_opens_after_ten_failures_that_are_not_one_event() {
    let running = Running::start(50).await;
    running.register(30, &http("api.example.com")).await;
    let mut given = running.given().await;
    assert_eq!(given.len(), 30);
    for leased in given.split_off(15) {
        running.finish(leased, running.refused()).await;
    }
    assert!(running.breakers().await.is_empty(), "all of them failed in one moment");
    running.clock.advance(SignedDuration::from_secs(1));
    running.finish(given.remove(0), running.refused()).await;
    assert!(running.breakers().await.is_empty());
    running.clock.advance(SignedDuration::from_secs(1));
    running.finish(given.remove(0), running.refused()).await;
    let breakers = running.breakers().await;
    assert_eq!((breakers.len(), breakers[0].of.name().as_str()), (1, UNWELL));
    assert_eq!((breakers[0].stage, breakers[0].since), (open(5), running.clock.now()));
    assert_eq!(breakers[0].cause.as_deref(), Some("connect_failed: refused"));
    assert!(running.engine.rules().await.unwrap().is_empty(), "it is no administrator's limit");
    let text = running.engine.metrics().text();
    assert!(text.contains("punctual_breakers{state=\"open\"} 1"), "{text}");
    assert!(text.contains("punctual_breaker_changes_total{state=\"open\"} 1"), "{text}");
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_of_any_kind_begins_anew_and_other_targets_have_nothing_to_do_with_it() {
    let running = Running::start(50).await;
    running.register(20, &http("api.example.com")).await;
    running.register(5, &http("other.example.com")).await;
    for (n, leased) in running.given().await.into_iter().enumerate() {
        running.clock.advance(SignedDuration::from_millis(500));
        let is_other = leased.job.spec.target.destination() != UNWELL;
        let report = match n {
            _ if is_other => running.refused(),
            9 | 18 => running.failed("http_status", Some(500)),
            _ => running.failed("http_status", Some(503)),
        };
        running.finish(leased, report).await;
    }
    assert!(running.breakers().await.is_empty());
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn while_it_is_open_one_at_a_time_asks_ever_more_seldom_and_nobody_is_charged() {
    let running = Running::start(50).await;
    running.open().await;
    // The first asks at once; everybody else waits, whenever it was born.
    running.register(3, &http("api.example.com")).await;
    running.wait(2).await;
    let mut probes = running.given().await;
    assert_eq!(probes.len(), 1);
    let pending = running.runs().await.into_iter().filter(|run| matches!(run.state, RunState::Pending(_)));
    assert_eq!(pending.count(), 12);
    let mut interval = 5;
    let mut asked = HashSet::new();
    for _ in 0..3 {
        let probe = probes.remove(0);
        let (id, charged) = (probe.run.id(), probe.run.charged);
        assert!(asked.insert(id), "what fails may be its own fault: another one asks next");
        let run = running.finish(probe, running.refused()).await;
        assert_eq!((run.charged, run.state), (charged, RunState::Pending(WaitingFor::Retry)), "{id}");
        assert_eq!(running.stages().await, [open(interval * 2)]);
        assert!(running.given().await.is_empty());
        running.wait(interval as i64).await;
        probes = running.given().await;
        assert_eq!(probes.len(), 1, "after {interval} seconds");
        interval *= 2;
    }
    let dead = running.runs().await.iter().filter(|run| run.state.is_dead()).count();
    assert_eq!(dead, 0, "no retries were burnt");
    let waiting = running.runs().await.into_iter().find(|run| run.waits_for_breaker().is_some()).unwrap();
    let why = running.engine.why(TENANT, waiting.job, When::Latest).await.unwrap();
    assert!(why.text.contains("because the breaker of `http api.example.com` is open since"), "{}", why.text);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn one_that_may_ask_and_cannot_keeps_nobody_else_from_asking() {
    let running = Running::start(50).await;
    running.open().await;
    // It is the first in the line, and waits for a worker that nobody starts.
    let stuck = Spec { priority: 100, requires: "gpu=true".parse().unwrap(), ..http("api.example.com") };
    running.register(1, &stuck).await;
    running.wait(20).await;
    assert!(running.given().await.is_empty(), "one at a time, and it is its turn");
    running.wait(12).await;
    let mut probes = running.given().await;
    assert_eq!(probes.len(), 1, "after half a minute another one asks");
    running.finish(probes.remove(0), running.succeeded()).await;
    assert_eq!(running.stages().await, [widening(16)]);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn it_closes_in_steps_and_everybody_goes_on() {
    let running = Running::start(50).await;
    running.open().await;
    running.register(40, &http("api.example.com")).await;
    running.wait(2).await;
    let probe = running.given().await.remove(0);
    running.finish(probe, running.succeeded()).await;
    assert_eq!(running.stages().await, [widening(16)]);
    let mut given = running.given().await;
    assert_eq!(given.len(), 16, "no more at once");
    // A failure opens it again.
    let last = given.pop().unwrap();
    let under_way = running.refused();
    running.clock.advance(SignedDuration::from_secs(1));
    running.finish(last, running.refused()).await;
    assert_eq!(running.stages().await, [open(5)]);
    for leased in given {
        running.finish(leased, under_way.clone()).await;
    }
    assert_eq!(running.stages().await, [open(5)], "they began before");
    running.wait(10).await;
    let probe = running.given().await.remove(0);
    running.finish(probe, running.succeeded()).await;
    let mut steps = vec![running.stages().await];
    for _ in 0..200 {
        let given = running.given().await;
        if given.is_empty() && running.breakers().await.is_empty() {
            break;
        }
        running.clock.advance(SignedDuration::from_millis(250));
        for leased in given {
            running.finish(leased, running.succeeded()).await;
            let stages = running.stages().await;
            if steps.last() != Some(&stages) {
                steps.push(stages);
            }
        }
        if running.runs().await.iter().all(|run| run.state.is_ended()) {
            running.register(20, &http("api.example.com")).await;
        }
    }
    assert_eq!(steps, [vec![widening(16)], vec![widening(64)], vec![widening(256)], vec![]]);
    // Those that stood back come last.
    for _ in 0..10 {
        running.wait(2).await;
        for leased in running.given().await {
            running.finish(leased, running.succeeded()).await;
        }
    }
    let left: Vec<Run> =
        running.runs().await.into_iter().filter(|run| run.state != RunState::Succeeded).collect();
    assert_eq!(left, [], "everybody went on");
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn runs_that_were_born_before_it_opened_are_put_back_without_being_executed() {
    let running = Running::start(50).await;
    let blocked = running.register(50, &http("slow.example.com")).await;
    let held = running.given().await;
    assert_eq!(held.len(), blocked.len(), "there is no more room");
    running.register(20, &http("api.example.com")).await;
    let before: Vec<Run> =
        running.runs().await.into_iter().filter(|run| matches!(run.state, RunState::Pending(_))).collect();
    assert!(before.iter().all(|run| run.limits.is_empty() && run.attempt == 0));
    assert_eq!(before.len(), 20);
    // As another node sets it.
    let now = running.clock.now();
    let of = punctual_domain::policy::breaker::Of::Destination(UNWELL.into());
    let breaker = Breaker { of, since: now, changed_at: now, stage: open(5), cause: None };
    let change = punctual_store::RuleChange { name: breaker.of.rule_name(), rule: Some(breaker.rule()) };
    running.store.put_rules(vec![change], now).await.unwrap();
    running.engine.read_rules().await.unwrap();
    for leased in held {
        running.finish(leased, running.succeeded()).await;
    }
    let given = running.given().await;
    assert_eq!(given.len(), 1, "one asks");
    assert!(given[0].run.limits.has_breaker(&running.breakers().await[0]));
    let mut waiting = 0;
    for run in before {
        let run = running.run(run.id()).await;
        waiting += usize::from(run.waits_for_breaker().is_some());
        assert_eq!((run.charged, run.lost, run.started_at), (0, 0, None));
    }
    assert_eq!(waiting, 19);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_has_a_breaker_of_its_own_if_it_says_so() {
    let running = Running::start(50).await;
    let mut own = http("api.example.com");
    own.schedule = punctual_schedule::Schedule::parse("@every 1s").unwrap();
    own.policies.breaker = Some(OfJob { failures: NonZeroU32::new(3).unwrap() });
    let job = running.register(1, &own).await.remove(0);
    let mut without = http("api.example.com");
    without.schedule = own.schedule.clone();
    running.register(1, &without).await;
    for _ in 0..4 {
        running.wait(1).await;
        for leased in running.given().await {
            // The host is there: it is the job that fails.
            running.finish(leased, running.failed("http_status", Some(500))).await;
        }
    }
    let breakers = running.breakers().await;
    assert_eq!(breakers.len(), 1);
    assert_eq!(breakers[0].of.name(), format!("job {job}"));
    running.wait(3).await;
    let waits = running.runs().await.into_iter().find(|run| run.waits_for_breaker().is_some()).unwrap();
    assert_eq!(waits.job, job, "the other goes on");
    // Edited to have none, it goes on too.
    assert!(running.engine.reset_breaker(&format!("job {job}")).await.unwrap());
    assert!(!running.engine.reset_breaker(&format!("job {job}")).await.unwrap());
    running.wait(2).await;
    assert_eq!(running.waiting().await, 0);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_target_that_never_answers_leaves_room_for_others() {
    let running = Running::start(100).await;
    running.register(300, &http("black-hole.example.com")).await;
    let hanging = running.given().await;
    assert_eq!(hanging.len(), 50, "half of the room, nothing being known of it");
    assert_eq!(running.waiting().await, 250);
    let guess = Stage::Crowded { max: NonZeroU32::new(50).unwrap(), is_guess: true };
    assert_eq!(running.stages().await, [guess]);
    running.register(10, &http("api.example.com")).await;
    let others = running.given().await;
    assert_eq!(others.len(), 10);
    assert!(others.iter().all(|leased| leased.job.spec.target.destination() == UNWELL));
    for leased in others {
        running.finish(leased, running.succeeded()).await;
    }
    running.wait(7).await;
    let crowded = Stage::Crowded { max: NonZeroU32::new(8).unwrap(), is_guess: false };
    assert_eq!(running.stages().await, [crowded], "they really hang");
    // It answers again: more are let through, and in the end all.
    let mut answered = 0;
    let mut under_way = hanging;
    for _ in 0..400 {
        for leased in std::mem::take(&mut under_way) {
            running.finish(leased, running.succeeded()).await;
            answered += 1;
        }
        running.clock.advance(SignedDuration::from_millis(500));
        settle().await;
        under_way = running.given().await;
        if answered == 300 {
            break;
        }
    }
    assert_eq!(answered, 300);
    running.wait(70).await;
    assert!(running.breakers().await.is_empty());
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_that_has_just_begun_has_shares_too() {
    let running = Running::start(0).await;
    running.register(300, &http("black-hole.example.com")).await;
    // A claim takes all of it before anybody saw it free.
    running.seat.grant(100);
    assert_eq!(running.given().await.len(), 50);
    running.register(10, &http("api.example.com")).await;
    assert_eq!(running.given().await.len(), 10);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn what_went_through_while_it_was_not_set_comes_to_it_anew() {
    let running = Running::start(100).await;
    running.register(300, &http("black-hole.example.com")).await;
    let hanging = running.given().await;
    running.wait(7).await;
    let name = "http black-hole.example.com";
    assert!(running.engine.reset_breaker(name).await.unwrap());
    running.wait(2).await;
    let more = running.given().await;
    assert!(hanging.len() + more.len() <= 66, "{} more", more.len());
    assert_eq!(running.breakers().await.len(), 1, "it is set again");
    running.register(10, &http("api.example.com")).await;
    assert_eq!(running.given().await.len(), 10, "there is room for others");
    assert!(running.waiting().await >= 230);
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn a_busy_target_that_answers_is_never_crowded() {
    let running = Running::start(100).await;
    running.register(20, &http("api.example.com")).await;
    for leased in running.given().await {
        running.finish(leased, running.succeeded()).await;
    }
    running.register(500, &http("api.example.com")).await;
    for _ in 0..60 {
        let given = running.given().await;
        running.clock.advance(SignedDuration::from_millis(900));
        // It is slow, and the node is full of it, but it answers.
        for leased in given {
            running.finish(leased, running.succeeded()).await;
        }
        assert!(running.breakers().await.is_empty());
        assert_eq!(running.waiting().await, 0);
    }
    let runs = running.runs().await;
    assert!(runs.iter().all(|run| run.state == RunState::Succeeded && run.limits.is_empty()));
    running.node.stop().await.unwrap();
}

#[tokio::test]
async fn with_breakers_off_nothing_is_left_alone() {
    let running = Running::start(100).await;
    running.engine.set_breaker_failures(0);
    running.register(90, &http("api.example.com")).await;
    let given = running.given().await;
    assert_eq!(given.len(), 90);
    for (n, leased) in given.into_iter().enumerate() {
        running.clock.advance(SignedDuration::from_millis(100 * (n as i64 % 3)));
        running.finish(leased, running.refused()).await;
    }
    assert!(running.breakers().await.is_empty());
    running.node.stop().await.unwrap();
}
