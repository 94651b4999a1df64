//! Rows by a cursor of the server.

use std::collections::VecDeque;

use deadpool_postgres::Transaction;
use tokio_postgres::{Portal, Row};

use crate::error::Failed;

/// Rows that are fetched at a time.
const ROWS: i32 = 1_000;

/// The rows of a statement, in its order.
pub(super) struct Rows<'t> {
    transaction: &'t Transaction<'t>,
    portal: Portal,
    buffer: VecDeque<Row>,
    is_over: bool,
}

impl<'t> Rows<'t> {
    pub(super) async fn of(transaction: &'t Transaction<'t>, sql: &str) -> Result<Self, Failed> {
        let portal = transaction.bind(sql, &[]).await?;
        Ok(Rows { transaction, portal, buffer: VecDeque::new(), is_over: false })
    }

    /// The next row, without taking it.
    pub(super) async fn peek(&mut self) -> Result<Option<&Row>, Failed> {
        if self.buffer.is_empty() && !self.is_over {
            let rows = self.transaction.query_portal(&self.portal, ROWS).await?;
            self.is_over = rows.len() < ROWS as usize;
            self.buffer.extend(rows);
        }
        Ok(self.buffer.front())
    }

    pub(super) async fn next(&mut self) -> Result<Option<Row>, Failed> {
        self.peek().await?;
        Ok(self.buffer.pop_front())
    }
}
