//! What attempts say of themselves: an output, log lines, how far they are, where the next one goes on.
//!
//! Kept apart from runs, because lists of runs do not show it. [`Note`] is what a worker sends while an attempt runs; what comes
//! at the end is in its report. Promise: whatever is sent, no more is kept of a run than the caps here allow for each attempt,
//! and what was left out is counted.

use jiff::Timestamp;

use crate::attempt::{Output, Report};
use crate::id::WorkerId;
use crate::run::RunState;
use crate::work::Held;

/// The bytes of a checkpoint: it says where to go on, and is handed to every later attempt. What is larger belongs to the worker.
pub const CHECKPOINT_MAX: usize = 64 << 10;

/// The bytes of a line: people read it, and a stack trace fits.
pub const LINE_MAX: usize = 4 << 10;

/// The lines of an attempt: a page that somebody scrolls through.
pub const LINES_MAX: usize = 1_000;

/// The bytes of an attempt's lines: as many as are kept of an output unless the job says otherwise.
pub const LOG_MAX: usize = 64 << 10;

/// The bytes of what progress says: a line on a screen.
pub const MESSAGE_MAX: usize = 1 << 10;

/// How far an attempt is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of a hundred.
    pub percent: Option<u8>,
    /// For people.
    pub message: Option<String>,
}

impl Progress {
    /// No more of it than is kept.
    fn capped(self) -> Self {
        let message = self.message.map(|message| cut(message, MESSAGE_MAX));
        Progress { percent: self.percent.map(|percent| percent.min(100)), message }
    }
}

/// A line of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, by whoever wrote it or took it.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// The log of an attempt: the newest lines. Who looks at an attempt that failed or hangs wants to know what it did last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The lines, oldest first.
    pub lines: Vec<Line>,
    /// How many older ones were left out.
    pub dropped: u64,
}

impl Log {
    /// Adds lines, and leaves out the oldest that are too many.
    pub fn add(&mut self, lines: impl IntoIterator<Item = Line>) {
        let capped = |line: Line| Line { text: cut(line.text, LINE_MAX), ..line };
        self.lines.extend(lines.into_iter().map(capped));
        let mut bytes = 0;
        let newest = self.lines.iter().rev().take(LINES_MAX);
        let fits = |line: &&Line| {
            bytes += line.text.len();
            bytes <= LOG_MAX
        };
        let old = self.lines.len() - newest.take_while(fits).count();
        self.lines.drain(..old);
        self.dropped += old as u64;
    }
}

/// A line's place in the log of a run. The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Of this attempt.
    pub attempt: u32,
    /// Counted from 1, those that were left out too: a gap says that they were.
    pub number: u64,
}

/// What a worker says about an attempt that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Who.
    pub worker: WorkerId,
    /// Which attempt of which run.
    pub held: Held,
    /// How far it is; the last word counts.
    pub progress: Option<Progress>,
    /// Where the next attempt goes on, as JSON text; the last word counts.
    pub checkpoint: Option<Box<str>>,
    /// What happened since the last note.
    pub lines: Vec<Line>,
}

/// What one attempt said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Which.
    pub attempt: u32,
    /// How far it was.
    pub progress: Option<Progress>,
    /// The target's answer.
    pub output: Option<Output>,
    /// Its log.
    pub log: Log,
}

impl Said {
    /// Takes what is kept apart out of a report; nothing if there is nothing.
    pub fn take(attempt: u32, report: Option<&mut Report>) -> Option<Self> {
        let report = report?;
        let (output, lines) = (report.output.take(), std::mem::take(&mut report.lines));
        if output.is_none() && lines.is_empty() {
            return None;
        }
        let mut log = Log::default();
        log.add(lines);
        Some(Said { attempt, progress: None, output, log })
    }

    /// The lines of its log with their places.
    fn lines(&self) -> impl Iterator<Item = (Place, &Line)> + use<'_> {
        let (attempt, dropped) = (self.attempt, self.log.dropped);
        let place = move |at: usize| Place { attempt, number: dropped + at as u64 + 1 };
        self.log.lines.iter().enumerate().map(move |(at, line)| (place(at), line))
    }

    /// Adds what the same attempt said later.
    fn add(&mut self, later: Said) {
        self.progress = later.progress.or(self.progress.take());
        self.output = later.output.or(self.output.take());
        self.log.dropped += later.log.dropped;
        self.log.add(later.log.lines);
    }
}

/// What all attempts of a run said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Papers {
    /// Where the next attempt goes on, as JSON text.
    pub checkpoint: Option<Box<str>>,
    /// Those that said something, by number.
    pub said: Vec<Said>,
}

impl Papers {
    /// Whether nobody said anything.
    pub fn is_empty(&self) -> bool {
        self.checkpoint.is_none() && self.said.is_empty()
    }

    /// What an attempt said.
    pub fn of(&self, attempt: u32) -> Option<&Said> {
        self.said.iter().find(|said| said.attempt == attempt)
    }

    /// The lines after a place, oldest first: of one attempt, or of all.
    pub fn lines_after(
        &self,
        after: Place,
        attempt: Option<u32>,
    ) -> impl Iterator<Item = (Place, &Line)> + use<'_> {
        let is_wanted = move |said: &&Said| attempt.is_none_or(|attempt| attempt == said.attempt);
        self.said.iter().filter(is_wanted).flat_map(Said::lines).filter(move |(place, _)| *place > after)
    }

    /// Adds what an attempt said.
    pub fn add(&mut self, said: impl IntoIterator<Item = Said>) {
        for said in said {
            match self.said.binary_search_by_key(&said.attempt, |known| known.attempt) {
                Ok(place) => self.said[place].add(said),
                Err(place) => self.said.insert(place, said),
            }
        }
    }

    /// Adds others of the same run; of two checkpoints theirs.
    pub fn join(&mut self, others: Papers) {
        self.checkpoint = others.checkpoint.or(self.checkpoint.take());
        self.add(others.said);
    }

    /// The same, apart by attempt: the checkpoint, which is the run's, under 0.
    pub fn apart(self) -> Vec<(u32, Papers)> {
        let checkpoint = self.checkpoint.map(|text| (0, Papers { checkpoint: Some(text), said: Vec::new() }));
        let said = self.said.into_iter().map(|said| {
            let attempt = said.attempt;
            (attempt, Papers { checkpoint: None, said: vec![said] })
        });
        checkpoint.into_iter().chain(said).collect()
    }

    /// What is kept of it when the run has ended: a checkpoint only if another attempt may follow, of a dead letter.
    pub fn ended(self, state: RunState) -> Papers {
        Papers { checkpoint: self.checkpoint.filter(|_| state.is_dead()), ..self }
    }
}

impl From<Note> for Papers {
    fn from(note: Note) -> Self {
        let mut log = Log::default();
        log.add(note.lines);
        let (attempt, progress) = (note.held.attempt, note.progress.map(Progress::capped));
        let is_silent = progress.is_none() && log == Log::default();
        let said = Said { attempt, progress, output: None, log };
        Papers { checkpoint: note.checkpoint, said: if is_silent { Vec::new() } else { vec![said] } }
    }
}

/// The beginning of a text, cut between two characters.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Sequence;
    use crate::lifecycle::tests::at;

    fn line(text: impl Into<String>) -> Line {
        Line { at: at(0), text: text.into() }
    }

    #[test]
    fn a_log_keeps_the_newest_lines_and_counts_the_others() {
        let mut log = Log::default();
        log.add((0..LINES_MAX + 5).map(|n| line(n.to_string())));
        assert_eq!((log.lines.len(), log.dropped, &*log.lines[0].text), (LINES_MAX, 5, "5"));
        log.add([line("last")]);
        assert_eq!((log.lines.len(), log.dropped), (LINES_MAX, 6));
        assert_eq!(log.lines.last().map(|line| &*line.text), Some("last"));
    }

    #[test]
    fn a_log_keeps_so_many_bytes() {
        let mut log = Log::default();
        let many = LOG_MAX / LINE_MAX + 3;
        log.add((0..many).map(|_| line("x".repeat(LINE_MAX))));
        assert_eq!((log.lines.len(), log.dropped), (LOG_MAX / LINE_MAX, 3));
    }

    #[test]
    fn the_lines_of_all_attempts_are_read_on_from_a_place_that_stays_when_older_ones_go() {
        let mut papers = Papers::default();
        let said = |attempt, texts: &[&str]| {
            let mut log = Log::default();
            log.add(texts.iter().map(|text| line(*text)));
            Said { attempt, log, ..Said::default() }
        };
        papers.add([said(1, &["a", "b"]), said(3, &["c"])]);
        let read = |papers: &Papers, after: Place, attempt| {
            let lines = papers.lines_after(after, attempt);
            lines.map(|(place, line)| (place.attempt, place.number, line.text.clone())).collect::<Vec<_>>()
        };
        let all = [(1, 1, "a"), (1, 2, "b"), (3, 1, "c")].map(|(a, n, text)| (a, n, text.to_string()));
        assert_eq!(read(&papers, Place::default(), None), all);
        assert_eq!(read(&papers, Place { attempt: 1, number: 1 }, None), all[1..]);
        assert_eq!(read(&papers, Place { attempt: 1, number: 1 }, Some(1)), all[1..2]);
        assert_eq!(read(&papers, Place { attempt: 3, number: 1 }, None), []);
        let many: Vec<String> = (0..LINES_MAX).map(|n| n.to_string()).collect();
        papers.add([said(3, &many.iter().map(String::as_str).collect::<Vec<_>>())]);
        let next = read(&papers, Place { attempt: 3, number: 1 }, None);
        assert_eq!((next.len(), &next[0]), (LINES_MAX, &(3, 2, "0".to_string())));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut log = Log::default();
        log.add([line(format!("x{}", "\u{fc}".repeat(LINE_MAX)))]);
        assert_eq!(log.lines[0].text.len(), LINE_MAX - 1);
        let progress = Progress { percent: Some(250), message: Some("\u{20ac}".repeat(MESSAGE_MAX)) };
        let capped = progress.capped();
        assert_eq!((capped.percent, capped.message.map(|text| text.len())), (Some(100), Some(1_023)));
    }

    #[test]
    fn what_is_said_later_counts_and_lines_add_up() {
        let note = |attempt, percent, checkpoint: Option<&str>, text: &str| Note {
            worker: WorkerId::new(at(0), 1),
            held: Held { sequence: Sequence::first_at(at(0), 0), attempt },
            progress: Some(Progress { percent: Some(percent), message: None }),
            checkpoint: checkpoint.map(Into::into),
            lines: vec![line(text)],
        };
        let mut papers = Papers::default();
        papers.join(note(2, 10, Some("1"), "a").into());
        papers.join(note(2, 20, None, "b").into());
        papers.join(note(1, 90, None, "c").into());
        assert_eq!(papers.checkpoint.as_deref(), Some("1"));
        assert_eq!(papers.said.iter().map(|said| said.attempt).collect::<Vec<_>>(), [1, 2]);
        let second = papers.of(2).expect("said something");
        assert_eq!(second.progress.as_ref().and_then(|progress| progress.percent), Some(20));
        assert_eq!(second.log.lines, [line("a"), line("b")]);
        let mut joined = Papers::default();
        papers.clone().apart().into_iter().for_each(|(_, part)| joined.join(part));
        assert_eq!(joined, papers);
        assert_eq!(papers.clone().ended(RunState::Failed).checkpoint.as_deref(), Some("1"));
        assert_eq!(papers.ended(RunState::Succeeded).checkpoint, None);
    }
}
