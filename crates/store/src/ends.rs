//! How attempts and runs end: what is recorded with an end, and what follows from it in the same commit.

use jiff::Timestamp;
use punctual_domain::Report;
use punctual_domain::id::{RunId, Version, WorkerId};
use punctual_domain::lifecycle::{self, Event, Verdict};
use punctual_domain::link::On;
use punctual_domain::policy::limit::Limits;
use punctual_domain::policy::retention::Retention;
use punctual_domain::policy::unknown::Answer;
use punctual_domain::run::{Run, RunState};
use punctual_domain::work::Held;

use crate::verbs::{Due, Put};

/// The end of an attempt, and what was decided.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// Who held it.
    pub worker: WorkerId,
    /// Which attempt of which run.
    pub held: Held,
    /// What the worker reports; nothing if the attempt is given back unfinished.
    pub report: Option<Report>,
    /// What follows.
    pub verdict: Verdict,
    /// If the run ends: what that means for a job that counts from completion.
    pub successor: Option<Successor>,
    /// If it ends the run: who is told, and what follows.
    pub messages: Vec<Message>,
    /// If it goes on: what limits it from now on. It gives back what it held, and comes to all gates anew.
    pub limits: Option<Limits>,
}

impl Conclusion {
    /// Changes the run, or refuses.
    pub fn apply(&self, run: &mut Run, now: Timestamp) -> Result<(), lifecycle::Refused> {
        let started_at = self.report.as_ref().map(|report| report.started_at);
        let (worker, attempt, verdict) = (self.worker, self.held.attempt, self.verdict);
        lifecycle::apply(run, Event::Concluded { worker, attempt, started_at, verdict, at: now })?;
        if let (RunState::Pending(_), Some(limits)) = (run.state, &self.limits) {
            run.limit_anew(limits);
        }
        Ok(())
    }
}

/// A new job that tells of the end of a run, with its run: registered in the commit that ends the run so, and only then. It
/// is in the shard of the run's job. One that is there already is left as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// By which end.
    pub on: On,
    /// The job.
    pub put: Box<Put>,
}

impl Message {
    /// Those of them that tell of a run that is in this state now.
    pub fn due(messages: &[Message], state: RunState) -> impl Iterator<Item = &Put> {
        messages.iter().filter(move |message| message.on.is_met(state)).map(|message| &*message.put)
    }
}

/// What the end of an attempt came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Concluded {
    /// The run as it is now.
    pub run: Run,
    /// The run that waited for it and goes on.
    pub released: Option<RunId>,
}

impl From<Run> for Concluded {
    fn from(run: Run) -> Self {
        Concluded { run, released: None }
    }
}

/// What the end of a run brings, for jobs that count from completion. The end is recorded as the job's last
/// completion; all of it only if the job still has this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The version for which it was decided.
    pub version: Version,
    /// The next due entry; none if the job is paused or at its end.
    pub due: Option<Due>,
    /// If it is at its end: how long the job is kept.
    pub over: Option<Retention>,
}

/// Asks a run to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancellation {
    /// Which.
    pub run: RunId,
    /// If that ends it: what that means for a job that counts from completion.
    pub successor: Option<Successor>,
}

/// Ends a run whose next attempt did not start in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Lapse {
    /// Which.
    pub run: RunId,
    /// What that means for a job that counts from completion.
    pub successor: Option<Successor>,
    /// Who is told, and what follows, if it makes a dead letter of the run.
    pub messages: Vec<Message>,
}

/// Says what became of a run that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answering {
    /// Which.
    pub run: RunId,
    /// The answer.
    pub answer: Answer,
    /// If that ends it: what that means for a job that counts from completion.
    pub successor: Option<Successor>,
    /// If that ends it: who is told, and what follows.
    pub messages: Vec<Message>,
}

/// Waiting runs whose next attempt did not start in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lapsed {
    /// The runs, the longest overdue first.
    pub runs: Vec<Run>,
    /// When the first of the others lapses, whenever that is.
    pub next_at: Option<Timestamp>,
}
