//! The audit: entries in the order of their ids.

use jiff::Timestamp;
use punctual_domain::audit::{Entry, EntryId, Filter, KEPT};

use super::state::State;
use crate::page::{Page, PageRequest};

impl State {
    /// Appends what a change carries.
    pub(super) fn append(&mut self, entry: Option<Box<Entry>>) {
        self.audit.extend(entry.map(|entry| (entry.id, *entry)));
    }

    pub(super) fn list_audit(&self, filter: &Filter, page: &PageRequest<EntryId>) -> Page<Entry, EntryId> {
        let first = filter.first();
        let wanted = self.audit.range(..filter.below(page.after)).rev().take_while(|(id, _)| **id >= first);
        page.fill(wanted.map(|(id, entry)| (*id, filter.takes(entry).then_some(entry))))
    }

    /// Forgets the oldest that are old enough. Returns how many.
    pub(super) fn forget_audit(&mut self, now: Timestamp, limit: usize) -> usize {
        let kept = EntryId { at: (now - KEPT).as_millisecond(), number: i64::MIN };
        let old: Vec<EntryId> = self.audit.range(..kept).map(|(id, _)| *id).take(limit).collect();
        old.iter().for_each(|id| drop(self.audit.remove(id)));
        old.len()
    }
}
