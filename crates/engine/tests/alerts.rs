//! Alerts with a moved clock: raised once, told once, counted, told again, and over once; through crashes, beside other nodes, in storms.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::between::Between;
use crate::support::world::{TENANT, World, engine, pause, spec};
use futures_executor::block_on;
use jiff::SignedDuration;
use punctual_domain::alert::{self, ALARMS_MAX, Alarm, Alert, On, Subject, To, Which};
use punctual_domain::attempt::Failure;
use punctual_domain::id::{JobId, TenantId, WorkerId};
use punctual_domain::job::{Spec, Target};
use punctual_domain::policy::breaker::{Breaker, Of, Stage};
use punctual_domain::run::{Run, RunState};
use punctual_domain::work::Finished;
use punctual_domain::{Outcome, Report, message};
use punctual_engine::alarms::Alarmed;
use punctual_engine::unwell::Rounds;
use punctual_engine::{Clock, Engine};
use punctual_schedule::calendar::Calendar;
use punctual_store::{Claim, JobFilter, PageRequest, RuleChange, Shards, Store};
use serde_json::Value;

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn alert(world: &World, on: On) -> Alert {
    Alert {
        name: "pager".into(),
        tenant: TENANT,
        on,
        jobs: Which::default(),
        to: To::Webhook { url: "http://127.0.0.1:9/alert".into() },
        repeat_every: alert::REPEAT_EVERY,
        since: world.clock.now(),
    }
}

/// A world with an alert, and how far its node has come.
fn watching(on: On) -> (World, Rounds) {
    let world = World::new();
    assert!(block_on(world.engine.put_alert(&alert(&world, on), None)).unwrap().is_new, "it is new");
    (world, Rounds::default())
}

fn pass(world: &World, rounds: &mut Rounds) -> Alarmed {
    block_on(world.engine.look_after_alarms(&world.epochs, rounds)).unwrap()
}

fn alarms(world: &World) -> Vec<Alarm> {
    block_on(world.engine.alarms(TENANT, None, usize::MAX)).unwrap()
}

/// What was told, oldest first.
fn told(world: &World) -> Vec<Value> {
    let filter = JobFilter { kind: Some(alert::MESSAGE.into()), ..JobFilter::default() };
    let jobs = block_on(world.store.list_jobs(&filter, PageRequest::first(5_000))).unwrap().items;
    let mut told: Vec<_> =
        jobs.iter().map(|stored| (stored.job.created_at, stored.job.spec.clone())).collect();
    told.sort_by_key(|(at, spec)| (*at, spec.key.clone()));
    told.iter().map(|(_, spec)| serde_json::from_str(spec.payload.as_deref().unwrap()).unwrap()).collect()
}

fn states(world: &World) -> Vec<String> {
    told(world).iter().map(|told| told["state"].as_str().unwrap().to_string()).collect()
}

fn claim(world: &World, n: u64) -> Vec<Run> {
    let worker = WorkerId::new(world.clock.now(), n << 52 | n);
    let claim =
        Claim { worker, queues: Vec::new(), labels: Default::default(), shards: Shards::All, limit: 5_000 };
    block_on(world.store.claim(claim, world.clock.now())).unwrap()
}

/// Ends what waits, but no message; by this engine.
fn work_by(world: &World, engine: &Engine, outcome: Outcome) -> Vec<RunState> {
    let now = world.clock.now();
    let failure = Failure {
        code: "http_status".into(),
        message: "the target answered 503".into(),
        is_retryable: false,
        retry_after: None,
    };
    let error = (outcome != Outcome::Succeeded).then_some(failure);
    let report = Report { outcome, error, ..Report::lost(now, now) };
    let claimed = claim(world, 3).into_iter().filter(|run| !message::is_reserved(run.kind.as_deref()));
    let finished = claimed.map(|run| Finished {
        worker: run.lease().unwrap().worker,
        job: world.job_of(&run),
        report: Some(report.clone()),
        run,
    });
    let ended = block_on(engine.complete(finished.collect())).unwrap();
    ended.into_iter().map(|run| run.unwrap().state).collect()
}

fn work(world: &World, outcome: Outcome) -> Vec<RunState> {
    work_by(world, &world.engine, outcome)
}

fn job(world: &World, schedule: &str) -> JobId {
    world.try_register(Spec { name: "invoices".into(), ..spec(schedule) }).unwrap().job.id
}

#[test]
fn dead_letters_of_a_job_are_one_alarm_that_is_over_with_its_next_success() {
    let (world, mut rounds) = watching(On::DeadLetter);
    let id = job(&world, "* * * * *");
    assert_eq!(pass(&world, &mut rounds), Alarmed::default(), "nothing happened");
    for _ in 0..5 {
        world.advance(seconds(60));
        assert_eq!(work(&world, Outcome::Failed), [RunState::Failed]);
        pass(&world, &mut rounds);
    }
    let raised = alarms(&world).remove(0);
    assert_eq!((&raised.subject, raised.count, raised.told), (&Subject::Job(id), 5, 1));
    assert_eq!((alarms(&world).len(), states(&world)), (1, vec!["raised".to_string()]), "told once");
    let payload = told(&world).remove(0);
    assert_eq!((&payload["kind"], &payload["on"]), (&"alarm".into(), &"dead_letter".into()));
    assert_eq!(payload["subject"]["job"]["id"], id.to_string());
    assert!(payload["text"].as_str().unwrap().contains("invoices"), "{payload}");
    assert!(payload["detail"].as_str().unwrap().ends_with("the target answered 503"), "{payload}");
    world.advance(seconds(60));
    assert_eq!(work(&world, Outcome::Succeeded), [RunState::Succeeded]);
    let ended = pass(&world, &mut rounds);
    assert_eq!((ended.told, ended.ended, alarms(&world).len()), (1, 1, 0));
    assert_eq!(states(&world), ["raised", "over"]);
    for _ in 0..3 {
        world.clock.advance(seconds(10));
        pass(&world, &mut rounds);
    }
    assert_eq!(states(&world), ["raised", "over"], "the dead letters are still listed, and not raised again");
    world.advance(seconds(30));
    assert_eq!(work(&world, Outcome::Failed), [RunState::Failed]);
    pass(&world, &mut rounds);
    assert_eq!(states(&world), ["raised", "over", "raised"], "what happens again is told again");
}

#[test]
fn an_alarm_that_goes_on_is_told_again() {
    let (world, mut rounds) = watching(On::DeadLetter);
    job(&world, "0 13 * * *");
    world.advance(seconds(3_600));
    work(&world, Outcome::Failed);
    let next_at = pass(&world, &mut rounds);
    assert_eq!(next_at.told, 1);
    let next_at = pass(&world, &mut rounds).next_at.unwrap();
    assert_eq!(next_at, world.clock.now() + seconds(3_600));
    world.clock.advance(seconds(3_599));
    assert_eq!(pass(&world, &mut rounds).told, 0);
    world.clock.advance(seconds(1));
    assert_eq!(pass(&world, &mut rounds).told, 1);
    assert_eq!(states(&world), ["raised", "repeated"]);
}

#[test]
fn what_is_redriven_or_acknowledged_is_over() {
    let (world, mut rounds) = watching(On::DeadLetter);
    for is_redriven in [true, false] {
        job(&world, "@now");
        work(&world, Outcome::Failed);
        let run = world.runs().into_iter().find(|run| run.state == RunState::Failed).unwrap();
        pass(&world, &mut rounds);
        assert_eq!(alarms(&world).len(), 1);
        match is_redriven {
            true => drop(block_on(world.engine.redrive(TENANT, &[run.id()])).unwrap().remove(0).unwrap()),
            false => block_on(world.engine.acknowledge(TENANT, &[run.id()])).unwrap().remove(0).unwrap(),
        }
        world.clock.advance(seconds(6));
        assert_eq!(pass(&world, &mut rounds).ended, 1);
        work(&world, Outcome::Succeeded);
    }
    assert_eq!(states(&world), ["raised", "over", "raised", "over"]);
}

/// It died while the node that heard of it knew no alert, or was killed before it could tell.
#[test]
fn a_dead_letter_that_nobody_noticed_is_found() {
    let (world, mut rounds) = watching(On::DeadLetter);
    job(&world, "* * * * *");
    world.advance(seconds(60));
    let deaf = engine(world.store.clone(), world.clock.clone(), 9);
    assert_eq!(work_by(&world, &deaf, Outcome::Failed), [RunState::Failed]);
    assert_eq!((pass(&world, &mut rounds).raised, states(&world)), (1, vec!["raised".to_string()]));
    assert_eq!(pass(&world, &mut rounds).raised, 0);
}

/// Most of what died there is not what the alert is about.
#[test]
fn dead_letters_that_nobody_noticed_are_found_behind_any_number_of_others() {
    let world = World::new();
    let jobs = Which { queue: Some("billing".into()), ..Which::default() };
    block_on(world.engine.put_alert(&Alert { jobs, ..alert(&world, On::DeadLetter) }, None)).unwrap();
    let specs = (0..420).map(|n| match n % 20 {
        0 => (Spec { queue: "billing".into(), ..spec("@now") }, None),
        _ => (spec("@now"), None),
    });
    block_on(world.engine.register(TENANT, specs.collect())).unwrap();
    let deaf = engine(world.store.clone(), world.clock.clone(), 9);
    assert_eq!(work_by(&world, &deaf, Outcome::Failed).len(), 420);
    let mut rounds = Rounds::default();
    let raised: usize = (0..4).map(|_| pass(&world, &mut rounds).raised).sum();
    assert_eq!(raised, 21);
}

#[test]
fn what_died_before_the_alert_was_set_is_not_told() {
    let world = World::new();
    job(&world, "* * * * *");
    world.advance(seconds(60));
    work(&world, Outcome::Failed);
    world.clock.advance(seconds(5));
    block_on(world.engine.put_alert(&alert(&world, On::DeadLetter), None)).unwrap();
    assert_eq!(pass(&world, &mut Rounds::default()).raised, 0);
}

/// Every write is done and its answer lost, one after the other: the pass is tried again, as after a crash.
#[test]
fn a_crash_between_alarm_and_message_loses_and_doubles_nothing() {
    for lost in 0..4 {
        let (world, mut rounds) = watching(On::DeadLetter);
        job(&world, "* * * * *");
        let between = Arc::new(Between::new(world.store.clone()));
        let unlucky = engine(between.clone(), world.clock.clone(), 5);
        block_on(unlucky.read_alerts()).unwrap();
        for (round, outcome) in [Outcome::Failed, Outcome::Succeeded].into_iter().enumerate() {
            world.advance(seconds(60));
            work_by(&world, &unlucky, outcome);
            between.loses_answers.store(round * 2 <= lost && lost < round * 2 + 2, Ordering::SeqCst);
            for _ in 0..=lost % 2 {
                let _ = block_on(unlucky.look_after_alarms(&world.epochs, &mut rounds));
            }
            between.loses_answers.store(false, Ordering::SeqCst);
            world.clock.advance(seconds(20));
            for _ in 0..3 {
                pass(&world, &mut rounds);
            }
        }
        assert_eq!(states(&world), ["raised", "over"], "{lost}");
        assert_eq!(alarms(&world), []);
    }
}

#[test]
fn nodes_that_look_at_once_tell_once() {
    let (world, mut rounds) = watching(On::DeadLetter);
    let other = world.twin(world.store.clone());
    block_on(other.engine.read_alerts()).unwrap();
    let mut others = Rounds::default();
    job(&world, "* * * * *");
    for (round, outcome) in [Outcome::Failed, Outcome::Failed, Outcome::Succeeded].into_iter().enumerate() {
        world.advance(seconds(60));
        work_by(&world, if round % 2 == 0 { &world.engine } else { &other.engine }, outcome);
        for _ in 0..2 {
            pass(&other, &mut others);
            pass(&world, &mut rounds);
        }
    }
    assert_eq!(states(&world), ["raised", "over"]);
}

#[test]
fn slots_that_are_missed_are_over_after_a_quiet_time_with_a_run() {
    let (world, mut rounds) = watching(On::Missed);
    let mut windowed = spec("* * * * *");
    windowed.policies.timeouts.start_window = Some(Duration::from_secs(30));
    world.try_register(windowed).unwrap();
    for minute in 0..3 {
        world.advance(seconds(if minute == 0 { 60 } else { 29 }));
        world.clock.advance(seconds(31));
        assert_eq!(block_on(world.engine.lapse(&world.epochs)).unwrap().runs[0].state, RunState::Missed);
        pass(&world, &mut rounds);
    }
    assert_eq!((alarms(&world).len(), states(&world)), (1, vec!["raised".to_string()]));
    for minute in 1..=11 {
        world.advance(seconds(if minute == 1 { 29 } else { 60 }));
        assert_eq!(work(&world, Outcome::Succeeded), [RunState::Succeeded]);
        pass(&world, &mut rounds);
        assert_eq!(alarms(&world).is_empty(), minute == 11, "minute {minute}");
    }
    assert_eq!(states(&world), ["raised", "over"]);
}

#[test]
fn slots_that_an_outage_took_are_told() {
    let (world, mut rounds) = watching(On::Missed);
    job(&world, "* * * * *");
    world.advance(seconds(6 * 3_600));
    pass(&world, &mut rounds);
    assert!(alarms(&world)[0].count > 200, "{:?}", alarms(&world));
    assert_eq!(states(&world), ["raised"]);
}

#[test]
fn a_run_that_starts_too_late_is_told() {
    let (world, mut rounds) = watching(On::Late { over: Duration::from_secs(20) });
    job(&world, "0 * * * *");
    world.advance(seconds(3_600));
    world.clock.advance(seconds(20));
    work(&world, Outcome::Succeeded);
    assert_eq!(pass(&world, &mut rounds).raised, 0, "so late is not late yet");
    world.advance(seconds(3_580));
    world.clock.advance(seconds(21));
    work(&world, Outcome::Succeeded);
    assert_eq!(pass(&world, &mut rounds).raised, 1);
    assert!(told(&world)[0]["detail"].as_str().unwrap().contains("21.0 s late"), "{:?}", told(&world));
    world.advance(seconds(3_579));
    assert_eq!(pass(&world, &mut rounds).ended, 0, "nobody knows yet whether it starts on time");
    work(&world, Outcome::Succeeded);
    world.clock.advance(seconds(6));
    assert_eq!(pass(&world, &mut rounds).ended, 1, "a job more seldom than the quiet time: its next run");
    assert_eq!(states(&world), ["raised", "over"]);
}

#[test]
fn a_late_run_of_a_job_with_calendars_is_told_by_a_node_that_has_not_read_them() {
    let (world, _) = watching(On::Late { over: Duration::from_secs(20) });
    block_on(world.engine.put_calendar(TENANT, "open", None, Calendar::new())).unwrap();
    let mut hourly = spec("0 * * * *");
    hourly.schedule.calendars = vec!["open".into()];
    world.try_register(hourly).unwrap();
    world.advance(seconds(3_600));
    world.clock.advance(seconds(21));
    let twin = world.twin(world.store.clone());
    block_on(twin.engine.read_alerts()).unwrap();
    work(&twin, Outcome::Succeeded);
    assert_eq!(pass(&twin, &mut Rounds::default()).raised, 1);
}

#[test]
fn nobody_hears_of_another_tenants_job_by_its_id() {
    let world = World::new();
    let id = job(&world, "* * * * *");
    let other = TenantId(7);
    for on in [On::Silent { after: Duration::from_secs(60) }, On::DeadLetter, On::Missed] {
        let jobs = Which { job: Some(id), ..Which::default() };
        let curious = Alert { name: on.as_str().into(), tenant: other, jobs, ..alert(&world, on) };
        block_on(world.engine.put_alert(&curious, None)).unwrap();
    }
    let mut rounds = Rounds::default();
    world.advance(seconds(60));
    assert_eq!(work(&world, Outcome::Failed), [RunState::Failed]);
    world.clock.advance(seconds(3_600));
    pass(&world, &mut rounds);
    assert_eq!(block_on(world.engine.alarms(other, None, usize::MAX)).unwrap(), []);
    assert_eq!(told(&world), Vec::<Value>::new());
}

#[test]
fn a_job_that_is_silent_for_too_long_is_told_until_it_succeeds() {
    let (world, mut rounds) = watching(On::Silent { after: Duration::from_secs(1_800) });
    let id = job(&world, "*/10 * * * *");
    let paused = job(&world, "*/10 * * * *");
    block_on(world.engine.pause(TENANT, paused, None, pause())).unwrap();
    job(&world, "@at 2027-01-01T00:00:00Z");
    let all: Vec<Subject> = (0..4)
        .flat_map(|_| {
            world.advance(seconds(600));
            work(&world, Outcome::Failed);
            pass(&world, &mut rounds);
            alarms(&world).into_iter().map(|alarm| alarm.subject).collect::<Vec<_>>()
        })
        .collect();
    assert!(all.contains(&Subject::Job(id)) && !all.contains(&Subject::Job(paused)), "{all:?}");
    world.advance(seconds(600));
    work(&world, Outcome::Succeeded);
    pass(&world, &mut rounds);
    let left: Vec<Subject> = alarms(&world).into_iter().map(|alarm| alarm.subject).collect();
    assert!(!left.contains(&Subject::Job(id)), "{left:?}");
}

#[test]
fn a_breaker_that_is_open_is_told_until_it_closes() {
    let (world, mut rounds) = watching(On::BreakerOpen);
    let name = "http api.example.com";
    let of = Of::named(name).unwrap();
    let now = world.clock.now();
    let stage = Stage::OPENED;
    let breaker = Breaker { of: of.clone(), since: now, changed_at: now, stage, cause: Some("503".into()) };
    let widening = Breaker { stage: Stage::Widening { max: NonZeroU32::MIN }, ..breaker.clone() };
    for (rule, count) in [(Some(breaker.rule()), 1), (Some(widening.rule()), 1), (None, 0)] {
        let change = RuleChange { name: of.rule_name(), rule };
        block_on(world.store.put_rules(vec![change], world.clock.now())).unwrap();
        block_on(world.engine.read_rules()).unwrap();
        for _ in 0..3 {
            pass(&world, &mut rounds);
            world.clock.advance(seconds(1));
        }
        assert_eq!(alarms(&world).len(), count);
    }
    assert_eq!(states(&world), ["raised", "over"]);
    assert_eq!(told(&world)[0]["subject"]["breaker"], "http api.example.com");
}

#[test]
fn an_alert_is_about_the_jobs_it_names_and_messages_are_no_jobs() {
    let world = World::new();
    let jobs = Which { queue: Some("billing".into()), ..Which::default() };
    block_on(world.engine.put_alert(&Alert { jobs, ..alert(&world, On::DeadLetter) }, None)).unwrap();
    let mut rounds = Rounds::default();
    job(&world, "@now");
    work(&world, Outcome::Failed);
    assert_eq!(pass(&world, &mut rounds).raised, 0);
    world.try_register(Spec { queue: "billing".into(), ..spec("@now") }).unwrap();
    work(&world, Outcome::Failed);
    assert_eq!(pass(&world, &mut rounds).raised, 1);
    world.clock.advance(seconds(1));
    block_on(world.engine.put_alert(&alert(&world, On::DeadLetter), None)).unwrap();
    for _ in 0..12 {
        let held = claim(&world, 4);
        let now = world.clock.now();
        let report = Some(Report { outcome: Outcome::Failed, ..Report::lost(now, now) });
        let all = held.into_iter().map(|run| Finished {
            worker: run.lease().unwrap().worker,
            job: world.job_of(&run),
            report: report.clone(),
            run,
        });
        block_on(world.engine.complete(all.collect())).unwrap();
        world.clock.advance(seconds(4_000));
        pass(&world, &mut rounds);
    }
    let subjects = alarms(&world).len();
    assert_eq!(subjects, 1, "a message that dies raises nothing: {:?}", alarms(&world));
}

#[test]
fn a_storm_is_a_thousand_alarms_and_one_for_the_rest() {
    let (world, mut rounds) = watching(On::DeadLetter);
    let count = ALARMS_MAX + 30;
    let specs = (0..count).map(|_| (spec("@now"), None)).collect();
    block_on(world.engine.register(TENANT, specs)).unwrap();
    assert_eq!(work(&world, Outcome::Failed).len(), count);
    for _ in 0..8 {
        pass(&world, &mut rounds);
    }
    let raised = alarms(&world);
    assert_eq!(raised.len(), ALARMS_MAX + 1);
    let rest: Vec<&Alarm> = raised.iter().filter(|alarm| alarm.subject == Subject::Rest).collect();
    assert_eq!((rest.len(), rest[0].name.as_str()), (1, "and more"));
    assert_eq!(told(&world).len(), ALARMS_MAX + 1, "each is told once");
}

#[test]
fn an_alert_that_is_taken_away_takes_its_alarms_along() {
    let (world, mut rounds) = watching(On::DeadLetter);
    job(&world, "@now");
    work(&world, Outcome::Failed);
    pass(&world, &mut rounds);
    assert_eq!(alarms(&world).len(), 1);
    assert!(block_on(world.engine.delete_alert(TENANT, "pager", None)).unwrap());
    assert_eq!((alarms(&world).len(), states(&world)), (0, vec!["raised".to_string()]), "nobody is told");
    assert!(!block_on(world.engine.delete_alert(TENANT, "pager", None)).unwrap());
}

#[test]
fn everybody_is_told_in_the_form_he_reads() {
    let to = ["a@example.com".to_string(), "b@example.com".into()];
    for (to, expected) in [
        (To::Slack { url: "http://127.0.0.1:9/slack".into() }, "http"),
        (To::Mail { to: to.to_vec() }, "function"),
    ] {
        let world = World::new();
        block_on(world.engine.put_alert(&Alert { to, ..alert(&world, On::DeadLetter) }, None)).unwrap();
        job(&world, "@now");
        work(&world, Outcome::Failed);
        pass(&world, &mut Rounds::default());
        let filter = JobFilter { kind: Some(alert::MESSAGE.into()), ..JobFilter::default() };
        let sent = block_on(world.store.list_jobs(&filter, PageRequest::first(9))).unwrap().items.remove(0);
        assert_eq!(sent.job.spec.target.as_str(), expected);
        let payload = told(&world).remove(0);
        match &sent.job.spec.target {
            Target::Function { name } => {
                assert_eq!((name.as_str(), &payload["to"][1]), (alert::MAIL, &"b@example.com".into()));
                assert_eq!(payload["subject"], "[punctual] raised pager: invoices");
            }
            _ => assert_eq!(payload.as_object().unwrap().len(), 1, "{payload}"),
        }
        assert!(
            payload["text"].as_str().unwrap().starts_with("pager: dead letters of job invoices"),
            "{payload}"
        );
    }
}
