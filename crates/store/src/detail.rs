//! A run with everything about it, and how stores keep that apart.

use punctual_domain::papers::{Log, Said};
use punctual_domain::{Attempt, Papers, Run};

/// A run with its attempts and what they said.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Its attempts, oldest first, with their outputs.
    pub attempts: Vec<Attempt>,
    /// What else they said.
    pub papers: Papers,
}

impl RunDetail {
    /// Of a run as it is stored: an output goes into the report it came with. One of an older version has it there already.
    pub fn of(run: Run, mut attempts: Vec<Attempt>, mut papers: Papers) -> Self {
        for said in &mut papers.said {
            let attempt = attempts.iter_mut().find(|attempt| attempt.number == said.attempt);
            if let Some(report) = attempt.and_then(|attempt| attempt.report.as_mut()) {
                report.output = said.output.take().or(report.output.take());
            }
        }
        papers.said.retain(|said| *said != Said { attempt: said.attempt, ..Said::default() });
        RunDetail { run, attempts, papers }
    }

    /// As it is stored: a run, its attempts, and apart from them what they said.
    pub fn apart(self) -> (Run, Vec<Attempt>, Papers) {
        let RunDetail { run, mut attempts, mut papers } = self;
        for attempt in &mut attempts {
            papers.add(Said::take(attempt.number, attempt.report.as_mut()));
        }
        (run, attempts, papers)
    }

    /// The log of an attempt, if it has one.
    pub fn log(&self, attempt: u32) -> Option<&Log> {
        self.papers.of(attempt).map(|said| &said.log)
    }
}
