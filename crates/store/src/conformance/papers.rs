//! Papers: what attempts say of themselves, apart from their runs.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::attempt::Output;
use punctual_domain::id::{RunId, WorkerId};
use punctual_domain::lifecycle::{self, Charge, Verdict};
use punctual_domain::papers::{LINE_MAX, LINES_MAX, Line, Progress};
use punctual_domain::policy::retention::{Keep, Retention};
use punctual_domain::run::RunState;
use punctual_domain::{Note, Outcome, Report, Run};

use super::world::{World, at_once_two, birth, conclusion};
use crate::detail::RunDetail;
use crate::error::Refused;
use crate::store::Store;
use crate::verbs::{Cancellation, Held};

const DAY: Duration = Duration::from_secs(86_400);

fn line(world: &World, text: impl Into<String>) -> Line {
    Line { at: world.now, text: text.into() }
}

fn note(worker: WorkerId, run: &Run) -> Note {
    Note { worker, held: Held::from(run), progress: None, checkpoint: None, lines: Vec::new() }
}

async fn try_note(world: &World, note: Note) -> Result<(), Refused> {
    let mut answers = world.store.note(vec![note], world.now).await.expect("note");
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

/// Notes a checkpoint.
async fn check_in(world: &World, worker: WorkerId, run: &Run, text: &str) {
    let note = Note { checkpoint: Some(text.into()), ..note(worker, run) };
    try_note(world, note).await.expect("noted");
}

async fn checkpoint(world: &World, run: &Run) -> Option<Box<str>> {
    let mut found = world.store.checkpoints(&[run.id()]).await.expect("checkpoints");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Says everything that can be said while an attempt runs.
pub async fn speak(world: &World, worker: WorkerId, run: &Run) {
    let progress = Some(Progress { percent: Some(40), message: Some("page 4".into()) });
    let lines = vec![line(world, "begun")];
    let said = Note { progress, lines, checkpoint: Some(r#"{"row": 7}"#.into()), ..note(worker, run) };
    try_note(world, said).await.expect("noted");
}

/// A report with an output and lines.
pub fn saying(world: &World, outcome: Outcome, output: &str, lines: &[&str]) -> Report {
    Report {
        output: Some(Output { bytes: output.into(), is_truncated: false }),
        lines: lines.iter().map(|text| line(world, *text)).collect(),
        ..world.report(outcome)
    }
}

fn retry(world: &World, charge: Charge) -> Verdict {
    Verdict::Retry { available_at: world.now, charge, start_by: None }
}

/// What each attempt answered.
fn outputs(detail: &RunDetail) -> Vec<Option<&[u8]>> {
    let output = |report: &Report| report.output.is_some();
    let attempts = detail.attempts.iter().map(|attempt| attempt.report.as_ref().filter(|one| output(one)));
    attempts.map(|report| report.and_then(|report| report.output.as_ref()).map(|one| &*one.bytes)).collect()
}

/// The log of an attempt.
fn log(detail: &RunDetail, attempt: u32) -> Vec<&str> {
    let lines = detail.log(attempt).map_or(&[][..], |log| &log.lines);
    lines.iter().map(|line| &*line.text).collect()
}

/// Every attempt has its own answer and its own lines, while the run is open, when it has ended, and when it is redriven.
pub async fn what_an_attempt_answered_is_kept_with_its_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let mut run = world.running("job", worker).await;
    let report = saying(&world, Outcome::Failed, "first", &["a", "b"]);
    let end = conclusion(worker, &run, Some(report.clone()), retry(&world, Charge::Attempt));
    world.try_complete(end).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    assert_eq!((outputs(&detail), log(&detail, 1)), (vec![Some(&b"first"[..])], vec!["a", "b"]));
    let stored = Report { lines: Vec::new(), ..report };
    assert_eq!(detail.attempts[0].report, Some(stored), "nothing else of the report changes");
    run = world.claim(worker, 1).await.remove(0);
    let report = saying(&world, Outcome::Failed, "second", &[]);
    world.try_complete(conclusion(worker, &run, Some(report), Verdict::Fail)).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    assert_eq!(outputs(&detail), [Some(&b"first"[..]), Some(b"second")]);
    world.store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("redriven");
    let detail = world.detail(run.id()).await;
    assert_eq!(
        (outputs(&detail).len(), outputs(&detail)[1], log(&detail, 1).len()),
        (2, Some(&b"second"[..]), 2)
    );
    run = world.claim(worker, 1).await.remove(0);
    let report = saying(&world, Outcome::Succeeded, "third", &["c"]);
    world.try_complete(conclusion(worker, &run, Some(report), Verdict::Succeed)).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    assert_eq!(outputs(&detail), [Some(&b"first"[..]), Some(b"second"), Some(b"third")]);
    assert_eq!((log(&detail, 1), log(&detail, 2), log(&detail, 3)), (vec!["a", "b"], vec![], vec!["c"]));
    // One that says nothing has no papers.
    let silent = world.running("silent", worker).await;
    world.conclude(worker, &silent, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert!(world.detail(silent.id()).await.papers.is_empty());
}

/// Of progress the last word counts, lines add up, and those of the report come last.
pub async fn a_worker_says_how_far_its_attempt_is(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    for (percent, text) in [(10, "one"), (60, "two")] {
        let progress = Some(Progress { percent: Some(percent), message: Some(format!("at {text}")) });
        let lines = vec![line(&world, text)];
        try_note(&world, Note { progress, lines, ..note(worker, &run) }).await.expect("noted");
    }
    // One that says nothing changes nothing.
    try_note(&world, note(worker, &run)).await.expect("noted");
    let progress = Some(Progress { percent: Some(60), message: Some("at two".into()) });
    let detail = world.detail(run.id()).await;
    assert_eq!(detail.run, run, "the run is what it was");
    assert_eq!(detail.papers.of(1).and_then(|said| said.progress.clone()), progress);
    assert_eq!(log(&detail, 1), ["one", "two"]);
    let report = saying(&world, Outcome::Succeeded, "done", &["three"]);
    world.try_complete(conclusion(worker, &run, Some(report), Verdict::Succeed)).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    assert_eq!(log(&detail, 1), ["one", "two", "three"]);
    assert_eq!(detail.papers.of(1).and_then(|said| said.progress.clone()), progress);
    assert_eq!(outputs(&detail), [Some(&b"done"[..])]);
}

/// Each note is for itself, and is taken from whoever holds the attempt.
pub async fn a_note_of_somebody_else_is_refused(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (worker, other) = (world.worker(), world.worker());
    let run = world.running("job", worker).await;
    let ended = world.running("ended", worker).await;
    let waiting = world.fired("waiting").await;
    world.conclude(worker, &ended, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    let say = |worker, held: Held, text: &str| Note {
        held,
        checkpoint: Some("1".into()),
        lines: vec![line(&world, text)],
        ..note(worker, &run)
    };
    let held = Held::from(&run);
    let notes = vec![
        say(other, held, "another worker"),
        say(worker, held, "right"),
        say(worker, Held { attempt: 2, ..held }, "another attempt"),
        say(worker, Held { attempt: 1, ..Held::from(&waiting) }, "it waits"),
        say(worker, Held::from(&ended), "it has ended"),
    ];
    let answers = world.store.note(notes, world.now).await.expect("note");
    let stale = |attempt| Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { attempt }));
    assert_eq!(answers, [stale(1), Ok(()), stale(2), stale(1), stale(1)]);
    assert_eq!(log(&world.detail(run.id()).await, 1), ["right"]);
    for silent in [&waiting, &ended] {
        assert!(world.detail(silent.id()).await.papers.is_empty());
    }
    let back = conclusion(worker, &run, None, retry(&world, Charge::Nothing));
    world.try_complete(back).await.expect("recorded");
    let late = say(worker, held, "too late");
    assert_eq!(try_note(&world, late).await, stale(1));
    assert_eq!(log(&world.detail(run.id()).await, 1), ["right"]);
}

/// Who looks wants to know what happened last; what was left out is counted.
pub async fn a_log_keeps_its_newest_lines(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    for part in 0..3 {
        let lines = (0..400).map(|n| line(&world, format!("{part}/{n}"))).collect();
        try_note(&world, Note { lines, ..note(worker, &run) }).await.expect("noted");
    }
    let long = "\u{fc}".repeat(LINE_MAX);
    let report = saying(&world, Outcome::Succeeded, "done", &[&long]);
    world.try_complete(conclusion(worker, &run, Some(report), Verdict::Succeed)).await.expect("recorded");
    let detail = world.detail(run.id()).await;
    let kept = detail.log(1).expect("a log");
    assert_eq!((kept.lines.len(), kept.dropped), (LINES_MAX, 201));
    assert_eq!((&*kept.lines[0].text, kept.lines[LINES_MAX - 1].text.len()), ("0/201", LINE_MAX));
}

/// The last checkpoint counts, whoever gave it, and is there while the run is open.
pub async fn a_checkpoint_is_handed_from_attempt_to_attempt(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let mut run = world.running("job", worker).await;
    assert_eq!(checkpoint(&world, &run).await, None);
    check_in(&world, worker, &run, r#"{"row": 1}"#).await;
    check_in(&world, worker, &run, r#"{"row": 2}"#).await;
    // A note without one takes none away.
    try_note(&world, Note { lines: vec![line(&world, "on")], ..note(worker, &run) }).await.expect("noted");
    assert_eq!(checkpoint(&world, &run).await.as_deref(), Some(r#"{"row": 2}"#));
    let report = saying(&world, Outcome::Failed, "no", &[]);
    let end = conclusion(worker, &run, Some(report), retry(&world, Charge::Attempt));
    world.try_complete(end).await.expect("recorded");
    assert_eq!(checkpoint(&world, &run).await.as_deref(), Some(r#"{"row": 2}"#));
    run = world.claim(worker, 1).await.remove(0);
    assert_eq!(checkpoint(&world, &run).await.as_deref(), Some(r#"{"row": 2}"#));
    check_in(&world, worker, &run, "3").await;
    let other = world.running("other", worker).await;
    let unknown = RunId::new(run.sequence.next().next(), run.id().shard());
    let found =
        world.store.checkpoints(&[other.id(), run.id(), unknown, run.id()]).await.expect("checkpoints");
    assert_eq!(found, [None, Some("3".into()), None, Some("3".into())]);
    assert_eq!(world.detail(run.id()).await.papers.checkpoint.as_deref(), Some("3"));
}

/// Whoever takes the run over goes on where the last one was.
pub async fn a_checkpoint_outlives_a_lost_worker(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let (lost, next) = (world.worker(), world.worker());
    let run = world.running("job", lost).await;
    let said = Note { lines: vec![line(&world, "begun")], ..note(lost, &run) };
    try_note(&world, Note { checkpoint: Some("7".into()), ..said }).await.expect("noted");
    let end = conclusion(lost, &run, Some(Report::lost(world.now, world.now)), retry(&world, Charge::Lost));
    world.try_complete(end).await.expect("recorded");
    let again = world.claim(next, 1).await.remove(0);
    assert_eq!(checkpoint(&world, &again).await.as_deref(), Some("7"));
    assert_eq!(log(&world.detail(run.id()).await, 1), ["begun"]);
}

/// Somebody may want more attempts of it.
pub async fn a_dead_letter_keeps_its_checkpoint(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    check_in(&world, worker, &run, "7").await;
    world.conclude(worker, &run, Outcome::Failed, Verdict::Fail).await.expect("recorded");
    assert_eq!(world.detail(run.id()).await.papers.checkpoint.as_deref(), Some("7"));
    assert_eq!(checkpoint(&world, &run).await, None, "it is not open");
    world.store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("redriven");
    assert_eq!(checkpoint(&world, &run).await.as_deref(), Some("7"));
    let again = world.claim(worker, 1).await.remove(0);
    assert_eq!((again.attempt, checkpoint(&world, &again).await.as_deref()), (2, Some("7")));
    world.conclude(worker, &again, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(world.detail(run.id()).await.papers.checkpoint, None);
}

/// Nobody goes on with a run that succeeded.
pub async fn a_checkpoint_ends_with_its_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    check_in(&world, worker, &run, "7").await;
    world.conclude(worker, &run, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert!(world.detail(run.id()).await.papers.is_empty());
    assert_eq!(checkpoint(&world, &run).await, None);
}

/// A run that waits for its next attempt ends with what the last one said.
pub async fn what_was_said_stays_with_a_run_that_is_cancelled(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = world.running("job", worker).await;
    let report = saying(&world, Outcome::Failed, "no", &["a"]);
    let end = conclusion(worker, &run, Some(report), retry(&world, Charge::Attempt));
    world.try_complete(end).await.expect("recorded");
    let cancellation = Cancellation { run: run.id(), successor: None };
    let ended = world.store.cancel(vec![cancellation], world.now).await.expect("cancel").remove(0);
    assert_eq!(ended.expect("cancelled").state, RunState::Cancelled);
    let detail = world.detail(run.id()).await;
    assert_eq!((outputs(&detail), log(&detail, 1)), (vec![Some(&b"no"[..])], vec!["a"]));
}

/// Fires a run of a job that is kept for a day, and fails it.
async fn failed(world: &mut World, worker: WorkerId, name: &str) -> Run {
    let mut job = world.job(name);
    job.spec.policies.retention.keep = Keep::All(Retention::Day);
    world.try_put(world.put(job.clone(), Some(world.now))).await.expect("registered");
    let mut firing = world.firing(&job, world.now);
    firing.births = vec![birth(&job, world.now)];
    world.try_firing(firing).await.expect("fired");
    let run = world.claim(worker, 1).await.remove(0);
    check_in(world, worker, &run, "7").await;
    let report = saying(world, Outcome::Failed, "no", &["a"]);
    world.try_complete(conclusion(worker, &run, Some(report), Verdict::Fail)).await.expect("recorded")
}

/// Long after everything else of its time is gone.
pub async fn what_was_said_stays_with_a_dead_letter_that_outlives_its_partition(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = failed(&mut world, worker, "job").await;
    for _ in 0..4 {
        world.advance(DAY);
        world.store.retain(world.now, 100).await.expect("retain");
    }
    let detail = world.detail(run.id()).await;
    assert_eq!((outputs(&detail), log(&detail, 1)), (vec![Some(&b"no"[..])], vec!["a"]));
    world.store.redrive(&[run.id()], world.now).await.expect("redrive").remove(0).expect("redriven");
    assert_eq!(checkpoint(&world, &run).await.as_deref(), Some("7"));
    let again = world.claim(worker, 1).await.remove(0);
    world.conclude(worker, &again, Outcome::Succeeded, Verdict::Succeed).await.expect("recorded");
    assert_eq!(outputs(&world.detail(run.id()).await), [Some(&b"no"[..]), None]);
}

/// Nothing is left of it that somebody would have to take away.
pub async fn what_was_said_goes_with_its_run(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    let run = failed(&mut world, worker, "job").await;
    world.store.acknowledge(&[run.id()]).await.expect("acknowledge").remove(0).expect("acknowledged");
    for _ in 0..4 {
        world.advance(DAY);
        world.store.retain(world.now, 100).await.expect("retain");
    }
    assert_eq!(world.store.run(run.id()).await.expect("run"), None);
}

/// A note that was taken is there, whoever ends the run meanwhile.
pub async fn notes_and_ends_at_once_lose_nothing(store: Arc<dyn Store>) {
    let mut world = World::new(store).await;
    let worker = world.worker();
    for round in 0..10 {
        let run = world.running(&format!("job {round}"), worker).await;
        let said = Note { lines: vec![line(&world, "on")], ..note(worker, &run) };
        let end = conclusion(worker, &run, Some(world.report(Outcome::Succeeded)), Verdict::Succeed);
        let (noted, ended) =
            at_once_two(world.store.note(vec![said], world.now), world.store.complete(vec![end], world.now))
                .await;
        ended.expect("complete").remove(0).expect("recorded");
        let lines = usize::from(noted.expect("note").remove(0).is_ok());
        assert_eq!(log(&world.detail(run.id()).await, 1).len(), lines, "round {round}");
    }
}
