//! Copies that stop in the middle, and copies that go wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;

use super::transfer::STORY_ENDS;
use crate::error::Error;
use crate::transfer::{CopyError, Cursor, Identity, Kind, Note, Piece, Report, Tally, Transfer, copy};

/// Pieces of a page: few, so that there are many pages.
const PAGE: usize = 5;

fn now() -> Timestamp {
    Timestamp::from_second(STORY_ENDS).expect("in range")
}

/// Copies in pages of some pieces, and lets nodes start on the copy.
pub async fn copy_all(from: &dyn Transfer, to: &dyn Transfer, page: usize) -> Report {
    let report = copy(from, to, page, now(), &mut |_| {}).await.expect("copied");
    assert_eq!(report.copied, report.verified);
    to.finish().await.expect("finish");
    assert_eq!(to.note().await, Ok(None));
    report
}

/// A copy that stops before or after any of its commits goes on when it is started again, and ends with the same.
/// `open` opens the store of a number, anew every time.
pub async fn assert_resumes<F>(from: &dyn Transfer, mut open: impl FnMut(usize) -> F)
where
    F: Future<Output = Arc<dyn Transfer>>,
{
    let whole = copy_all(from, &*open(0).await, PAGE).await;
    let mut stops = 0;
    for commits in 1.. {
        for is_done in [false, true] {
            stops += 1;
            let broken = Broken {
                to: open(stops).await,
                left: AtomicUsize::new(commits),
                fault: Fault::Stop(is_done),
            };
            match copy(from, &broken, PAGE, now(), &mut |_| {}).await {
                // There were not so many commits.
                Ok(report) => {
                    assert_eq!(report, whole);
                    assert!(stops > 20, "{stops} pages are too few to tell");
                    return;
                }
                Err(CopyError::To(_)) => {}
                Err(error) => panic!("{error}"),
            }
            drop(broken);
            assert_eq!(copy_all(from, &*open(stops).await, PAGE).await, whole, "stopped at commit {commits}");
        }
    }
}

/// A piece that comes twice is there once.
pub async fn assert_idempotent(from: &dyn Transfer, to: &dyn Transfer) {
    let mut note = Note::new(from.identity().await.expect("identity"), now());
    to.begin(&note).await.expect("begin");
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let (pieces, next) = from.export(&at, 7).await.expect("export");
        for piece in &pieces {
            note.tally.add(piece).expect("encoded");
        }
        note.cursor = next.clone();
        to.import(pieces.clone(), &note).await.expect("import");
        to.import(pieces, &note).await.expect("import");
        cursor = next;
    }
    to.seal(now()).await.expect("seal");
    to.seal(now()).await.expect("seal");
    let mut found = Tally::default();
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let (pieces, next) = to.export(&at, 9).await.expect("export");
        pieces.iter().for_each(|piece| found.add(piece).expect("encoded"));
        cursor = next;
    }
    assert_eq!(found, note.tally);
    for kind in Kind::ALL {
        assert_eq!(to.count(kind).await.expect("count"), found.of(kind).count, "{kind}");
    }
}

/// A copy that lost or changed anything is refused, and stays unfinished. `open` opens an empty store of a number.
pub async fn assert_verified<F>(from: &dyn Transfer, mut open: impl FnMut(usize) -> F)
where
    F: Future<Output = Arc<dyn Transfer>>,
{
    for (n, kind) in Kind::ALL.into_iter().enumerate() {
        // The first tenant is there without being copied.
        let left = AtomicUsize::new(if kind == Kind::Tenants { 2 } else { 1 });
        let broken = Broken { to: open(n).await, left, fault: Fault::Lose(kind) };
        match copy(from, &broken, 1, now(), &mut |_| {}).await {
            Err(CopyError::Different { report }) => assert_eq!(report.differences(), [kind]),
            other => panic!("lost one of the {kind}: {other:?}"),
        }
        assert!(broken.to.note().await.expect("note").is_some(), "it is not finished");
    }
}

/// A store of which something goes wrong.
struct Broken {
    to: Arc<dyn Transfer>,
    /// After so many imports.
    left: AtomicUsize,
    fault: Fault,
}

enum Fault {
    /// It fails, having done it or not.
    Stop(bool),
    /// A piece of a kind is not written.
    Lose(Kind),
}

#[async_trait]
impl Transfer for Broken {
    fn shard_count(&self) -> u16 {
        self.to.shard_count()
    }

    async fn identity(&self) -> Result<Identity, Error> {
        self.to.identity().await
    }

    async fn count(&self, kind: Kind) -> Result<u64, Error> {
        self.to.count(kind).await
    }

    async fn pieces(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Piece)>, Error> {
        self.to.pieces(kind, after, limit).await
    }

    async fn note(&self) -> Result<Option<Note>, Error> {
        self.to.note().await
    }

    async fn begin(&self, note: &Note) -> Result<(), Error> {
        self.to.begin(note).await
    }

    async fn import(&self, mut pieces: Vec<Piece>, note: &Note) -> Result<(), Error> {
        match self.fault {
            Fault::Stop(is_done) => {
                let is_time = self.left.fetch_sub(1, Ordering::Relaxed) == 1;
                if !is_time || is_done {
                    self.to.import(pieces, note).await?;
                }
                match is_time {
                    true => Err(Error::Unavailable { reason: "stopped by the test".into() }),
                    false => Ok(()),
                }
            }
            Fault::Lose(kind) => {
                let at = pieces.iter().position(|piece| piece.kind() == kind);
                if let Some(at) = at.filter(|_| self.left.fetch_sub(1, Ordering::Relaxed) == 1) {
                    pieces.remove(at);
                }
                self.to.import(pieces, note).await
            }
        }
    }

    async fn seal(&self, now: Timestamp) -> Result<(), Error> {
        self.to.seal(now).await
    }

    async fn finish(&self) -> Result<(), Error> {
        self.to.finish().await
    }
}
