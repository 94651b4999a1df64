//! Verifies a database: everything that must be true, as of one moment.
//!
//! Runs also while nodes use the database: it reads in one transaction that sees one moment, locks nothing and writes
//! nothing. Rows come by cursors and are judged one by one, so memory does not grow with the data; sorting is the server's. Promise:
//! whatever is wrong becomes a finding that names the thing and the place, not an end of the check.
//!
//! [`jobs`] walks jobs with their due entries, open runs and notes side by side, [`runs`] walks open runs and history, [`papers`] what they have said, [`tables`]
//! looks at the rest.

mod jobs;
mod papers;
mod runs;
mod tables;
mod walk;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use punctual_store::check::Checked;
use tokio_postgres::IsolationLevel;

use crate::connect::{Options, sessions};
use crate::error::{Failed, OpenError};
use crate::migrate::Schema;

/// Whole tables are read, in the order that is best for that; and it takes as long as it takes.
const SETTINGS: &str = "
set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0;
set local enable_seqscan = on; set local enable_hashjoin = on; set local enable_mergejoin = on; set local enable_material = on";

/// Checks a database. `now` decides which jobs have slots to come.
pub async fn check(options: &Options, now: Timestamp) -> Result<Checked, OpenError> {
    let schema = Schema::read(options).await?;
    schema.check()?;
    let pool = sessions(&Options { connections: 1, ..options.clone() })?;
    let mut client = pool.get().await.map_err(|error| OpenError::from(&error))?;
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let transaction = transaction.start().await?;
    transaction.batch_execute(SETTINGS).await?;
    let mut checked = Checked { format: schema.found.into(), ..Checked::default() };
    let done = parts(&mut checked, &transaction, now).await;
    // After an error the transaction reads no more, so there is no going on.
    done.map_err(|failed| OpenError::Unreachable { reason: failed.told().1.to_string() })?;
    Ok(checked)
}

async fn parts(checked: &mut Checked, transaction: &Transaction<'_>, now: Timestamp) -> Result<(), Failed> {
    tables::check(checked, transaction).await?;
    jobs::check(checked, transaction, now).await?;
    runs::check(checked, transaction).await?;
    papers::check(checked, transaction).await
}
