//! Where this database's sequences begin, and under which number.
//!
//! A restored database is older than the one it stands in for: what that one gave out after the backup is not in
//! it. So every restore takes the next number and begins above its own time, the backup's and everything stored.
//! The number alone keeps the two apart if the clock has gone back; the time alone if there were more restores than
//! numbers.

use jiff::Timestamp;
use punctual_domain::id::Sequence;
use punctual_store::Error;
use rusqlite::{Connection, OptionalExtension};

use crate::error::failed;
use crate::row::damaged;

/// See the module. A database that was never restored has number 0 and begins anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) database: u8,
    /// Every sequence made under this number is above; all others are below.
    pub(crate) floor: Sequence,
}

impl Origin {
    pub(crate) fn load(connection: &Connection) -> Result<Self, Error> {
        let number = |name: &str| -> Result<i64, Error> {
            let sql = "select value from meta where name = ?1";
            let found: Option<i64> =
                connection.query_row(sql, [name], |row| row.get(0)).optional().map_err(failed)?;
            Ok(found.unwrap_or(0))
        };
        let database = number("database")?;
        let database = u8::try_from(database).ok().filter(|number| *number < Sequence::DATABASES);
        Ok(Origin {
            database: database.ok_or_else(|| damaged("the number of the database is out of range"))?,
            floor: Sequence::from_i64(number("floor")?),
        })
    }

    /// The origin of a restored database.
    pub(crate) fn after_restore(self, newest: Sequence, backup_at: Timestamp, now: Timestamp) -> Self {
        let database = (self.database + 1) % Sequence::DATABASES;
        // The millisecond after the newest: in its own, an older number may stand above ours.
        let millisecond = jiff::SignedDuration::from_millis(1);
        let after = newest.max(self.floor).born_at().saturating_add(millisecond);
        let begin = after.unwrap_or(Timestamp::MAX).max(backup_at).max(now);
        Origin { database, floor: Sequence::first_at(begin, database) }
    }

    pub(crate) fn save(self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "insert or replace into meta values ('database', ?1), ('floor', ?2)";
        connection.execute(sql, rusqlite::params![self.database, self.floor.as_i64()]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("in range")
    }

    #[test]
    fn a_restored_database_begins_above_everything_even_if_the_clock_went_back() {
        let first = Origin { database: 0, floor: Sequence::from_i64(0) };
        let newest = Sequence::first_at(at(5_000), 0).next();
        let second = first.after_restore(newest, at(4_000), at(3_000));
        assert_eq!((second.database, second.floor.born_at()), (1, at(5_001)));
        // What the original goes on to give out has another number, whatever its clock says.
        let original = Sequence::first_at(at(9_000), 0);
        assert_ne!(Sequence::first_at(at(9_000), second.database), original);
        let later = second.after_restore(second.floor, at(8_000), at(9_000));
        assert_eq!((later.database, later.floor.born_at()), (2, at(9_000)));
        let wrapped = Origin { database: 63, ..second }.after_restore(second.floor, at(0), at(0));
        assert_eq!(wrapped.database, 0);
        assert!(wrapped.floor > second.floor, "also when the numbers begin anew");
    }
}
