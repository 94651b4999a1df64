//! Pieces of a cron text that remember where they stand, so that errors can point at them.

use std::ops::Range;

/// A piece of the text and where it starts.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl<'a> Token<'a> {
    pub(super) fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    pub(super) fn sub(self, from: usize, to: usize) -> Token<'a> {
        Token { text: &self.text[from..to], start: self.start + from }
    }

    pub(super) fn split_once(self, separator: char) -> Option<(Token<'a>, Token<'a>)> {
        let at = self.text.find(separator)?;
        Some((self.sub(0, at), self.sub(at + 1, self.text.len())))
    }

    pub(super) fn strip_suffix_ignore_case(self, suffix: char) -> Option<Token<'a>> {
        let last = self.text.chars().next_back()?;
        last.eq_ignore_ascii_case(&suffix).then(|| self.sub(0, self.text.len() - 1))
    }

    pub(super) fn is(self, text: &str) -> bool {
        self.text.eq_ignore_ascii_case(text)
    }
}

pub(super) fn span_of(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}
