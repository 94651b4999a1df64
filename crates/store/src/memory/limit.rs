//! Limits: runs that wait in the line of a key, and go on.

use jiff::Timestamp;
use punctual_domain::id::Sequence;
use punctual_domain::policy::limit::Key;

use super::state::State;
use crate::gates::GO_ON_MAX;
use crate::verbs::{Advanced, Shards};

impl State {
    /// Before a commit: who waits goes on where something came back.
    pub(super) fn go_on(&mut self, now: Timestamp) -> u64 {
        self.go_on_within(now, GO_ON_MAX)
    }

    fn go_on_within(&mut self, now: Timestamp, limit: usize) -> u64 {
        let mut gone = 0;
        while let Some(key) = self.gates.touched() {
            while let Some(sequence) = self.first_in_line(key) {
                if gone >= limit as u64 {
                    self.gates.look_at(key, now);
                    break;
                }
                let Some(before) = self.open.get(&sequence).map(|entry| entry.run.clone()) else { break };
                let mut run = before.clone();
                if !self.gates.go_on(&mut run, now) {
                    break;
                }
                gone += 1;
                self.unstand(&before);
                self.stand(&run, now);
                if let Some(entry) = self.open.get_mut(&sequence) {
                    entry.run = run;
                }
            }
        }
        gone
    }

    fn first_in_line(&self, key: Key) -> Option<Sequence> {
        let from = (
            key,
            (
                punctual_domain::Lane::Critical,
                std::cmp::Reverse(i16::MAX),
                Timestamp::MIN,
                Sequence::from_i64(0),
            ),
        );
        let (found, (_, _, _, sequence)) = self.lines.range(from..).next()?;
        (*found == key).then_some(*sequence)
    }

    pub(super) fn advance(&mut self, shards: &Shards, now: Timestamp, limit: usize) -> Advanced {
        self.promote(now);
        let count = self.shards.len() as u16;
        self.gates.ripen(shards, count, now);
        let runs = self.go_on_within(now, limit);
        Advanced { runs, next_at: self.gates.next_at(shards, count) }
    }
}
