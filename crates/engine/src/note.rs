//! What attempts say while they run.
//!
//! Runs when a worker sends it, with a heartbeat or by itself. Promise: what was taken is stored, and taken from whoever holds the
//! attempt alone; the next attempt is handed the last checkpoint ([`Leased`](punctual_domain::work::Leased)).

use punctual_domain::Note;
use punctual_domain::papers::CHECKPOINT_MAX;
use punctual_store::Refused;

use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Keeps what workers say about attempts that they hold, each for itself.
    pub async fn note(&self, notes: Vec<Note>) -> Result<Vec<Result<(), Refused>>, Error> {
        let is_small = |note: &Note| note.checkpoint.as_ref().is_none_or(|text| text.len() <= CHECKPOINT_MAX);
        let small: Vec<bool> = notes.iter().map(is_small).collect();
        let taken: Vec<Note> = notes.into_iter().filter(is_small).collect();
        let mut answers = match taken.is_empty() {
            true => Vec::new(),
            false => self.store.note(taken, self.clock.now()).await?,
        }
        .into_iter();
        let answer = |is_small| match is_small {
            true => answers.next().unwrap_or(Err(Refused::NoRun)),
            false => Err(Refused::CheckpointTooLarge),
        };
        Ok(small.into_iter().map(answer).collect())
    }
}
