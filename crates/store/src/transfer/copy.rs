//! The copy itself: page by page, then read back.

use jiff::Timestamp;

use super::note::{Cursor, Note};
use super::piece::Kind;
use super::tally::{Sum, Tally};
use super::{Identity, Transfer};
use crate::error::Error;

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How many pieces of it are done.
    pub done: u64,
    /// Of how many.
    pub total: u64,
}

/// What a copy is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Moving pieces.
    Copying,
    /// Making indexes of all of them.
    Sealing,
    /// Reading them back.
    Verifying,
}

/// What a copy has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Read from FROM.
    pub copied: Tally,
    /// Read from TO afterwards.
    pub verified: Tally,
}

impl Report {
    /// Kinds that are not the same on both sides.
    pub fn differences(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.copied.of(*kind) != self.verified.of(*kind)).collect()
    }

    /// Every kind with what was copied and what was read back.
    pub fn rows(&self) -> impl Iterator<Item = (Kind, Sum, Sum)> {
        Kind::ALL.into_iter().map(|kind| (kind, self.copied.of(kind), self.verified.of(kind)))
    }
}

/// A copy that did not happen, or is not finished.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// FROM cannot be read.
    #[error("cannot read what is to be copied: {0}")]
    From(#[source] Error),
    /// TO cannot be written or read.
    #[error("cannot write the copy: {0}")]
    To(#[source] Error),
    /// Job ids say their shard.
    #[error(
        "FROM has {from} shards and TO has {to}, and a job's id says its shard: \
         give a TO that does not exist yet, it gets {from} shards"
    )]
    Shards {
        /// Shards of FROM.
        from: u16,
        /// Shards of TO.
        to: u16,
    },
    /// TO has something of its own.
    #[error("TO is not empty ({count} {kind}): give one that is empty or does not exist")]
    NotEmpty {
        /// What there is.
        kind: Kind,
        /// How many.
        count: u64,
    },
    /// TO holds a copy of something else.
    #[error("TO holds an unfinished copy of {}: finish that one, or give another TO", .of.name)]
    OtherCopy {
        /// Of what.
        of: Identity,
    },
    /// FROM is not what it was.
    #[error(
        "{} was in use since this copy began, so what was copied is not what is there now: \
         stop every node that uses it, empty TO, and begin anew", .of.name
    )]
    Used {
        /// What was in use.
        of: Identity,
    },
    /// FROM is no whole installation.
    #[error("FROM is itself an unfinished copy, of {}: finish that one first", .of.name)]
    Unfinished {
        /// Of what.
        of: Identity,
    },
    /// What was read back is not what was copied.
    #[error("what was read back differs in {}; the copy stays unfinished: empty TO and begin anew", names(.report))]
    Different {
        /// Both sides.
        report: Box<Report>,
    },
}

fn names(report: &Report) -> String {
    let names: Vec<String> = report
        .rows()
        .filter(|(_, copied, verified)| copied != verified)
        .map(|(kind, copied, verified)| {
            format!("{kind} ({} copied, {} read back)", copied.count, verified.count)
        })
        .collect();
    names.join(", ")
}

/// Copies everything from one store to another, in pages of at most `page` pieces, and verifies it. Goes on with a copy
/// that was interrupted. TO is not usable until the caller has called [`Transfer::finish`] on it.
pub async fn copy(
    from: &dyn Transfer,
    to: &dyn Transfer,
    page: usize,
    now: Timestamp,
    tell: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report, CopyError> {
    let mut note = begin(from, to, now).await?;
    let mut total = 0;
    for kind in Kind::ALL {
        total += from.count(kind).await.map_err(CopyError::From)?;
    }
    while let Some(cursor) = note.cursor.take() {
        tell(Progress { phase: Phase::Copying, done: note.tally.count(), total });
        let (pieces, next) = from.export(&cursor, page).await.map_err(CopyError::From)?;
        for piece in &pieces {
            note.tally.add(piece).map_err(CopyError::From)?;
        }
        note.cursor = next;
        to.import(pieces, &note).await.map_err(CopyError::To)?;
    }
    let total = note.tally.count();
    tell(Progress { phase: Phase::Sealing, done: total, total });
    to.seal(now).await.map_err(CopyError::To)?;
    let mut verified = Tally::default();
    let mut cursor = Some(Cursor::START);
    while let Some(from) = cursor {
        tell(Progress { phase: Phase::Verifying, done: verified.count(), total });
        let (pieces, next) = to.export(&from, page).await.map_err(CopyError::To)?;
        for piece in &pieces {
            verified.add(piece).map_err(CopyError::To)?;
        }
        cursor = next;
    }
    let report = Report { copied: note.tally, verified };
    if !report.differences().is_empty() {
        return Err(CopyError::Different { report: Box::new(report) });
    }
    // Last: whatever a node did to it while it was read shows in its state.
    match from.identity().await.map_err(CopyError::From)? {
        identity if identity == note.from => Ok(report),
        of => Err(CopyError::Used { of }),
    }
}

/// The note to go on with: of a copy of the same, or of a new one.
async fn begin(from: &dyn Transfer, to: &dyn Transfer, now: Timestamp) -> Result<Note, CopyError> {
    if from.shard_count() != to.shard_count() {
        return Err(CopyError::Shards { from: from.shard_count(), to: to.shard_count() });
    }
    if let Some(note) = from.note().await.map_err(CopyError::From)? {
        return Err(CopyError::Unfinished { of: note.from });
    }
    let identity = from.identity().await.map_err(CopyError::From)?;
    match to.note().await.map_err(CopyError::To)? {
        Some(note) if note.from == identity => return Ok(note),
        Some(note) if note.from.name == identity.name => return Err(CopyError::Used { of: identity }),
        Some(note) => return Err(CopyError::OtherCopy { of: note.from }),
        None => {}
    }
    for kind in Kind::ALL {
        let count = to.count(kind).await.map_err(CopyError::To)?;
        // The default tenant is always there.
        if count > u64::from(kind == Kind::Tenants) {
            return Err(CopyError::NotEmpty { kind, count });
        }
    }
    let note = Note::new(identity, now);
    to.begin(&note).await.map_err(CopyError::To)?;
    Ok(note)
}
