//! Moving a whole installation from one store to another, of whatever kind.
//!
//! Runs from `punctual copy`, while nobody uses either store. What is stored leaves one as [`Piece`]s, page by page in a
//! stable order, and enters the other as it was: ids, versions and sequences are kept. Promise: [`copy()`] ends with
//! everything of FROM in TO, read back and compared, or says why not; one that was interrupted goes on where it was,
//! because TO keeps a [`Note`] of how far it is, written in one commit with the pieces.
//!
//! Not moved, because they are about processes and not about jobs: who owns a shard and under which epoch, which nodes
//! and workers are live. What a worker held when FROM was stopped is lost to it after a lease, as after any stop.

mod copy;
mod note;
mod piece;
mod place;
mod tally;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::error::Error;
pub use copy::{CopyError, Phase, Progress, Report, copy};
pub use note::{Cursor, Identity, Note};
pub use piece::{EndedJob, EndedRun, Kind, Piece};
pub use place::Place;
pub use tally::{Sum, Tally};

/// A store that nobody uses, to be read or filled as a whole.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// How many shards jobs are spread over.
    fn shard_count(&self) -> u16;

    /// Which installation it is, and whether it was used meanwhile.
    async fn identity(&self) -> Result<Identity, Error>;

    /// How many pieces of a kind there are.
    async fn count(&self, kind: Kind) -> Result<u64, Error>;

    /// The first pieces of a kind after a place in its order, each with its place.
    async fn pieces(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Piece)>, Error>;

    /// The pieces after a cursor, at most `limit`, and the cursor behind them; none behind the last.
    async fn export(&self, cursor: &Cursor, limit: usize) -> Result<(Vec<Piece>, Option<Cursor>), Error> {
        let (mut kind, mut after) = (cursor.kind, cursor.after.clone());
        loop {
            let page = self.pieces(kind, after.as_deref(), limit).await?;
            let last = page.last().map(|(place, _)| place.clone());
            let next = match last {
                Some(place) if page.len() >= limit => Some(Cursor { kind, after: Some(place) }),
                _ => kind.next().map(|kind| Cursor { kind, after: None }),
            };
            match next {
                // Kinds of which there is nothing are no pages.
                Some(next) if page.is_empty() => (kind, after) = (next.kind, next.after),
                next => return Ok((page.into_iter().map(|(_, piece)| piece).collect(), next)),
            }
        }
    }

    /// The note of a copy into this store that is not finished.
    async fn note(&self) -> Result<Option<Note>, Error>;

    /// Begins a copy into this store: no node starts on it until [`Transfer::finish`].
    async fn begin(&self, note: &Note) -> Result<(), Error>;

    /// Takes pieces, and the note of how far the copy is with them, in one commit. The same piece twice is once.
    async fn import(&self, pieces: Vec<Piece>, note: &Note) -> Result<(), Error>;

    /// Everything is there: makes what is made of all of it. Sequences that are given out from now on are above
    /// everything that was imported.
    async fn seal(&self, now: Timestamp) -> Result<(), Error>;

    /// The copy is done, and nodes may start.
    async fn finish(&self) -> Result<(), Error>;
}
