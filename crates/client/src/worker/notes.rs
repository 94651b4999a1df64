//! What attempts say of themselves, until it is told.
//!
//! Promise: however much a handler says and however long the server is away, no more waits here than is kept of an attempt, and what
//! was left out is counted.

use std::collections::VecDeque;

use punctual_api::payload::Payload;
use punctual_api::worker::AttemptProgress;

use crate::error::Error;

/// The bytes of a checkpoint that a server takes.
const CHECKPOINT_MAX: usize = 64 << 10;

/// The bytes that are kept of a line.
const LINE_MAX: usize = 4 << 10;

/// The lines that are kept of an attempt, and the bytes of all of them: the newest.
const LINES_MAX: usize = 1_000;
const LOG_MAX: usize = 64 << 10;

/// The bytes that are kept of what progress says.
const MESSAGE_MAX: usize = 1 << 10;

/// What an attempt said since the last heartbeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) progress: Option<AttemptProgress>,
    pub(super) checkpoint: Option<Payload>,
    lines: VecDeque<String>,
    line_bytes: usize,
    left_out: usize,
}

impl Notes {
    pub(super) fn progress(&mut self, percent: u8, message: String) {
        let (percent, message) = (u16::from(percent.min(100)), shortened(message, MESSAGE_MAX));
        self.progress = Some(AttemptProgress { percent: Some(percent), message: Some(message) });
    }

    /// Refused here, because a server that refuses it refuses all that comes with it.
    pub(super) fn checkpoint(&mut self, json: String) -> Result<(), Error> {
        let bytes = json.len();
        if bytes > CHECKPOINT_MAX {
            return Err(Error::Request(format!(
                "a checkpoint of {bytes} bytes is too large, at most {CHECKPOINT_MAX}; keep the data and say where it is"
            )));
        }
        self.checkpoint = Payload::new(json);
        Ok(())
    }

    pub(super) fn log(&mut self, line: String) {
        let line = shortened(line, LINE_MAX);
        self.line_bytes += line.len();
        self.lines.push_back(line);
        self.make_room();
    }

    /// What could not be delivered comes before what was said since.
    pub(super) fn put_back(&mut self, older: Notes) {
        self.progress = self.progress.take().or(older.progress);
        self.checkpoint = self.checkpoint.take().or(older.checkpoint);
        let mut lines = older.lines;
        lines.append(&mut self.lines);
        self.lines = lines;
        self.line_bytes += older.line_bytes;
        self.left_out += older.left_out;
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.lines.len() > LINES_MAX || self.line_bytes > LOG_MAX {
            let Some(line) = self.lines.pop_front() else { return };
            self.line_bytes -= line.len();
            self.left_out += 1;
        }
    }

    /// About how many bytes it is.
    pub(super) fn bytes(&self) -> usize {
        let message = self.progress.as_ref().map_or(0, |_| MESSAGE_MAX);
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.as_str().len()) + self.line_bytes + message
    }

    pub(super) fn is_empty(&self) -> bool {
        self.progress.is_none() && self.checkpoint.is_none() && self.lines.is_empty() && self.left_out == 0
    }

    /// The lines, the first of which says how many are missing.
    pub(super) fn told(&self) -> Option<Vec<String>> {
        let left_out = (self.left_out > 0).then(|| format!("({} lines are left out)", self.left_out));
        let lines: Vec<String> = left_out.into_iter().chain(self.lines.iter().cloned()).collect();
        Some(lines).filter(|lines| !lines.is_empty())
    }

    /// The lines alone are taken: they go with the result.
    pub(super) fn take_lines(&mut self) -> Option<Vec<String>> {
        let told = self.told();
        self.lines.clear();
        (self.line_bytes, self.left_out) = (0, 0);
        told
    }
}

/// At most so many bytes, cut between characters.
pub(super) fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_wait_and_the_others_are_counted() {
        let mut notes = Notes::default();
        for number in 0..LINES_MAX + 7 {
            notes.log(format!("{number}"));
        }
        let told = notes.told().expect("lines");
        assert_eq!((told.len(), told[0].as_str()), (LINES_MAX + 1, "(7 lines are left out)"));
        assert_eq!(told[1], "7");

        notes.log("x".repeat(LINE_MAX + 1));
        assert_eq!(notes.lines.back().map(String::len), Some(LINE_MAX));
        for _ in 0..100 {
            notes.log("x".repeat(LINE_MAX));
        }
        assert_eq!((notes.lines.len(), notes.line_bytes), (LOG_MAX / LINE_MAX, LOG_MAX));
        assert_eq!(notes.left_out, LINES_MAX + 7 + 101 - LOG_MAX / LINE_MAX);
    }

    #[test]
    fn what_is_put_back_is_bounded_too_and_comes_before_what_was_said_since() {
        let mut older = Notes::default();
        older.checkpoint("1".into()).expect("a checkpoint");
        (0..LINES_MAX).for_each(|number| older.log(format!("older {number}")));
        let mut notes = Notes::default();
        notes.progress(50, "half".into());
        notes.log("newer".into());
        notes.put_back(older);
        let told = notes.take_lines().expect("lines");
        assert_eq!(told[..2], ["(1 lines are left out)", "older 1"]);
        assert_eq!(told.last().map(String::as_str), Some("newer"));
        assert!(notes.checkpoint.is_some() && notes.progress.is_some());
        assert_eq!((notes.told(), notes.line_bytes), (None, 0));
    }

    #[test]
    fn a_checkpoint_that_no_server_takes_is_refused_and_the_last_one_stays() {
        let mut notes = Notes::default();
        let largest = format!("\"{}\"", "x".repeat(CHECKPOINT_MAX - 2));
        notes.checkpoint(largest.clone()).expect("it just fits");
        let error = notes.checkpoint(format!("{largest} ")).expect_err("a byte more");
        assert!(error.to_string().contains("65537 bytes is too large"), "{error}");
        assert_eq!(notes.checkpoint.as_ref().map(Payload::as_str), Some(largest.as_str()));
    }
}
