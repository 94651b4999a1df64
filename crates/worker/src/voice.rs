//! What a handler of this process says while it runs, and how it hears that it is to stop.
//!
//! Each attempt of a `function` has one; the handler speaks into it, the worker tells the engine about once a second and before the
//! attempt is reported. Promise: what was said before an attempt ends is stored before its end is, and so the next attempt has
//! the last checkpoint; however much is said, no more is held in memory than is kept of an attempt.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Note;
use punctual_domain::id::WorkerId;
use punctual_domain::papers::{CHECKPOINT_MAX, Line, Log, Progress};
use punctual_domain::work::Held;
use tokio::sync::{OwnedMutexGuard, watch};

/// A handler that listens for it has so long to end when it is to stop; one that does not is stopped at once.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Voice {
    said: Mutex<Said>,
    /// Held while something is being told, so that nothing overtakes it.
    telling: Arc<tokio::sync::Mutex<()>>,
    stop: watch::Sender<bool>,
    /// The handler has asked whether it is to stop.
    listens: AtomicBool,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// What an attempt said since it was last told.
#[derive(Debug, Default)]
pub(crate) struct Said {
    progress: Option<Progress>,
    checkpoint: Option<Box<str>>,
    log: Log,
}

impl Said {
    fn is_nothing(&self) -> bool {
        self.progress.is_none() && self.checkpoint.is_none() && self.log == Log::default()
    }

    /// Its lines, if there is nothing else: they can go with the report.
    pub(crate) fn only_lines(&mut self) -> Option<Vec<Line>> {
        let is_only = self.progress.is_none() && self.checkpoint.is_none();
        is_only.then(|| lines(std::mem::take(&mut self.log)))
    }

    pub(crate) fn note(&self, worker: WorkerId, held: Held) -> Note {
        let (progress, checkpoint) = (self.progress.clone(), self.checkpoint.clone());
        Note { worker, held, progress, checkpoint, lines: lines(self.log.clone()) }
    }
}

/// The lines of a log. Those that were left out are told as one.
fn lines(log: Log) -> Vec<Line> {
    let left_out = log.lines.first().filter(|_| log.dropped > 0).map(|first| Line {
        at: first.at,
        text: format!("{} lines were left out here: they came faster than they are kept", log.dropped),
    });
    left_out.into_iter().chain(log.lines).collect()
}

/// A checkpoint that is too large to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a checkpoint of {bytes} bytes is too large, at most {CHECKPOINT_MAX}: keep what is larger yourself, and where it is in the checkpoint"
)]
pub struct CheckpointTooLarge {
    /// What it has, as JSON.
    pub bytes: usize,
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voice").field("is_stopped", &*self.stop.borrow()).finish_non_exhaustive()
    }
}

impl Voice {
    pub(crate) fn new(now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Arc<Self> {
        Arc::new(Voice {
            said: Mutex::default(),
            telling: Arc::default(),
            stop: watch::Sender::new(false),
            listens: AtomicBool::new(false),
            now,
        })
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn progress(&self, percent: u8, message: String) {
        let message = Some(message).filter(|message| !message.is_empty());
        self.said().progress = Some(Progress { percent: Some(percent.min(100)), message });
    }

    pub(crate) fn checkpoint(&self, json: String) -> Result<(), CheckpointTooLarge> {
        if json.len() > CHECKPOINT_MAX {
            return Err(CheckpointTooLarge { bytes: json.len() });
        }
        self.said().checkpoint = Some(json.into());
        Ok(())
    }

    pub(crate) fn log(&self, text: String) {
        let line = Line { at: (self.now)(), text };
        self.said().log.add([line]);
    }

    /// The handler is to stop.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether it is to stop. Who asks is given time to.
    pub(crate) fn is_stopped(&self) -> bool {
        self.listens.store(true, Ordering::Relaxed);
        *self.stop.borrow()
    }

    /// Waits until it is to stop. Who asks is given time to.
    pub(crate) async fn stopped(&self) {
        self.listens.store(true, Ordering::Relaxed);
        self.heard().await;
    }

    async fn heard(&self) {
        // The sender is here, so that there is always one.
        let _ = self.stop.subscribe().wait_for(|is_stopped| *is_stopped).await;
    }

    /// Waits until it is to stop and has had its time.
    pub(crate) async fn over(&self) {
        self.heard().await;
        if self.listens.load(Ordering::Relaxed) {
            tokio::time::sleep(GRACE).await;
        }
    }

    /// What was said and is to be told, unless something of it is being told. Nothing is told beside it while the guard is held.
    pub(crate) fn take(&self) -> Option<(Said, OwnedMutexGuard<()>)> {
        let telling = Arc::clone(&self.telling).try_lock_owned().ok()?;
        let said = std::mem::take(&mut *self.said());
        (!said.is_nothing()).then_some((said, telling))
    }

    /// What is left to be told when nothing is being told any more.
    pub(crate) async fn take_last(&self) -> Option<Said> {
        let _telling = self.telling.lock().await;
        let said = std::mem::take(&mut *self.said());
        (!said.is_nothing()).then_some(said)
    }

    /// What could not be told comes before what was said since.
    pub(crate) fn put_back(&self, older: Said) {
        let mut said = self.said();
        said.progress = said.progress.take().or(older.progress);
        said.checkpoint = said.checkpoint.take().or(older.checkpoint);
        let newer = std::mem::replace(&mut said.log, older.log);
        said.log.dropped += newer.dropped;
        said.log.add(newer.lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice() -> Arc<Voice> {
        Voice::new(Arc::new(|| Timestamp::UNIX_EPOCH))
    }

    fn texts(said: &Said) -> Vec<String> {
        lines(said.log.clone()).into_iter().map(|line| line.text).collect()
    }

    #[tokio::test]
    async fn what_could_not_be_told_comes_before_what_was_said_since() {
        let voice = voice();
        voice.log("one".into());
        voice.progress(10, "begun".into());
        voice.checkpoint("1".into()).expect("it is small");
        let (said, telling) = voice.take().expect("there is something");
        assert!(voice.take().is_none(), "it is being told");
        voice.log("two".into());
        voice.checkpoint("2".into()).expect("it is small");
        voice.put_back(said);
        drop(telling);
        let said = voice.take_last().await.expect("there is something");
        assert_eq!(texts(&said), ["one", "two"]);
        assert_eq!(said.checkpoint.as_deref(), Some("2"));
        assert_eq!(said.progress.and_then(|progress| progress.percent), Some(10));
        assert!(voice.take_last().await.is_none());
    }

    #[tokio::test]
    async fn more_lines_than_are_kept_are_counted_and_not_held() {
        let voice = voice();
        (0..5_000).for_each(|n| voice.log(n.to_string()));
        let (mut said, _telling) = voice.take().expect("there is something");
        let lines = said.only_lines().expect("nothing else was said");
        assert_eq!(lines.len(), 1_001);
        assert!(lines[0].text.starts_with("4000 lines were left out"), "{}", lines[0].text);
        assert_eq!(lines[1].text, "4000");
    }

    #[test]
    fn a_checkpoint_that_is_too_large_is_refused_and_the_last_one_stays() {
        let voice = voice();
        voice.checkpoint("1".into()).expect("it is small");
        let refused = voice.checkpoint("1".repeat(CHECKPOINT_MAX + 1));
        assert_eq!(refused, Err(CheckpointTooLarge { bytes: CHECKPOINT_MAX + 1 }));
        let (said, _telling) = voice.take().expect("there is something");
        assert_eq!(said.checkpoint.as_deref(), Some("1"));
    }
}
