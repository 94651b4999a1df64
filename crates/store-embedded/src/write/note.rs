//! Note: what attempts say while they run.

use punctual_domain::{Note, Papers, lifecycle};

use super::{Answer, refuse};
use crate::papers;
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn note(&mut self, note: Note) -> Answer<()> {
        self.check()?;
        let (worker, held) = (note.worker, note.held);
        let running = self.memory.running.get(&held.sequence);
        if running.is_none_or(|entry| !entry.run.is_held(worker, held.attempt)) {
            refuse!(lifecycle::Refused::StaleLease { attempt: held.attempt });
        }
        let said = Papers::from(note);
        if !said.is_empty() {
            papers::add(self.connection, held.sequence, said)?;
            self.memory.noted.insert(held.sequence);
        }
        Ok(Ok(()))
    }
}
