//! A table that lists runs by their sequences, walked along with the runs in the order of births.

use rusqlite::{Row, Rows};

use super::Checked;

pub(super) struct Listed<'a, T> {
    table: &'static str,
    rows: Rows<'a>,
    read: fn(&Row<'_>) -> rusqlite::Result<(i64, T)>,
    next: Option<(i64, T)>,
    /// The walk has come to the run of `next`.
    is_met: bool,
    /// Rows so far.
    pub(super) count: u64,
}

impl<'a, T> Listed<'a, T> {
    /// Of rows in the order of their sequences.
    pub(super) fn new(
        checked: &mut Checked,
        table: &'static str,
        rows: Rows<'a>,
        read: fn(&Row<'_>) -> rusqlite::Result<(i64, T)>,
    ) -> Self {
        let mut listed = Listed { table, rows, read, next: None, is_met: false, count: 0 };
        listed.advance(checked);
        listed
    }

    /// What is listed of the run that the walk has come to.
    pub(super) fn at(&mut self, checked: &mut Checked, sequence: i64) -> Option<&T> {
        while self.next.as_ref().is_some_and(|(next, _)| *next < sequence) {
            self.pass(checked);
        }
        let found = self.next.as_ref().filter(|(next, _)| *next == sequence);
        self.is_met |= found.is_some();
        found.map(|(_, listed)| listed)
    }

    /// There are no more runs.
    pub(super) fn finish(&mut self, checked: &mut Checked) {
        while self.next.is_some() {
            self.pass(checked);
        }
    }

    /// What the walk passes without having met its run is of none.
    fn pass(&mut self, checked: &mut Checked) {
        if let Some((sequence, _)) = self.next.as_ref().filter(|_| !self.is_met) {
            checked.find(self.table, format!("run {sequence} is not there"));
        }
        self.advance(checked);
    }

    /// On to the next row that can be read.
    fn advance(&mut self, checked: &mut Checked) {
        (self.next, self.is_met) = (None, false);
        while self.next.is_none() {
            match self.rows.next() {
                Ok(None) => return,
                Ok(Some(row)) => {
                    self.count += 1;
                    match (self.read)(row) {
                        Ok(listed) => self.next = Some(listed),
                        Err(error) => checked.find(self.table, error.to_string()),
                    }
                }
                // Nothing after this can be read.
                Err(error) => {
                    checked.find(self.table, error.to_string());
                    return;
                }
            }
        }
    }
}
