//! Answer: somebody says what became of a run.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_store::{Answering, Refused};

use crate::complete::{Rows, Wanted};
use crate::error::Failed;
use crate::postgres::Postgres;

impl Postgres {
    pub(crate) async fn answer(
        &self,
        answers: &[Answering],
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let wanted: Vec<Wanted> = answers.iter().map(|one| (one.run.sequence(), one.successor)).collect();
        let answer = |rows: &mut Rows| -> Vec<Result<Run, Refused>> {
            answers.iter().map(|one| rows.answer(one, now)).collect()
        };
        let messages = self.messages(answers.iter().map(|one| &one.messages), now).await?;
        let (runs, _) = self.with_rows(&wanted, &messages, now, answer).await?;
        let mut told = Vec::with_capacity(runs.len());
        for (run, answering) in runs.into_iter().zip(answers) {
            told.push(match run {
                Err(Refused::NoRun) => Err(self.why_not(answering.run, "answered").await?),
                run => run,
            });
        }
        Ok(told)
    }
}
