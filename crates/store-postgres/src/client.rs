//! Where statements are sent: a connection, or a transaction on it, with a session or without.
//!
//! With a session, statements are prepared by name, once a connection, and its settings are made when it is connected.
//! Behind a pool that gives a server's connection away after every transaction there is none: statements are sent as
//! text, every transaction brings the settings along, and a statement by itself is a transaction. None of that costs a
//! round trip. Promise: a verb does not know which it is, and without a session nothing stays behind.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

/// A connection, or a transaction on one.
pub(crate) struct Client<'c> {
    via: Via<'c>,
    /// What every transaction begins with, where there is no session.
    settings: Option<Arc<str>>,
    /// Whether they were sent.
    is_set: AtomicBool,
}

enum Via<'c> {
    /// Each statement is committed by itself.
    Connection(Object),
    Transaction(Transaction<'c>),
}

/// A statement: by the name it has in the session, or as text.
#[derive(Clone)]
pub(crate) enum Statement<'s> {
    Named(tokio_postgres::Statement),
    Text(&'s str),
}

impl<'s> From<&'s str> for Statement<'s> {
    fn from(text: &'s str) -> Self {
        Statement::Text(text)
    }
}

impl<'s> From<&Statement<'s>> for Statement<'s> {
    fn from(statement: &Statement<'s>) -> Self {
        statement.clone()
    }
}

/// The types of all values that statements are given.
const TYPES: [Type; 13] = [
    Type::BOOL,
    Type::INT8,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::INT4_ARRAY,
    Type::UUID_ARRAY,
    Type::UUID,
    Type::INT4,
    Type::INT2,
    Type::TEXT,
    Type::TEXT_ARRAY,
    Type::BYTEA,
    Type::BYTEA_ARRAY,
];

/// Values with their types, as a statement that is not prepared must have them. A value goes into one type alone, the one
/// that the server would find for its place in the statement.
fn typed<'v>(values: &[&'v (dyn ToSql + Sync)]) -> Vec<(&'v (dyn ToSql + Sync), Type)> {
    let goes_into =
        |value: &(dyn ToSql + Sync), ty: &Type| value.to_sql_checked(ty, &mut Default::default()).is_ok();
    let type_of = |value| TYPES.into_iter().find(|ty| goes_into(value, ty)).unwrap_or(Type::UNKNOWN);
    values.iter().map(|value| (*value, type_of(*value))).collect()
}

impl Client<'static> {
    /// A connection; with settings, if it has no session that could keep them.
    pub(crate) fn new(connection: Object, settings: Option<Arc<str>>) -> Self {
        Client { via: Via::Connection(connection), settings, is_set: AtomicBool::new(false) }
    }
}

impl Client<'_> {
    fn client(&self) -> &tokio_postgres::Client {
        match &self.via {
            Via::Connection(connection) => connection,
            Via::Transaction(transaction) => transaction.client(),
        }
    }

    pub(crate) fn has_session(&self) -> bool {
        self.settings.is_none()
    }

    pub(crate) async fn transaction(&mut self) -> Result<Client<'_>, Error> {
        let transaction = match &mut self.via {
            Via::Connection(connection) => connection.transaction().await?,
            Via::Transaction(transaction) => transaction.transaction().await?,
        };
        let is_set = AtomicBool::new(self.is_set.load(Ordering::Relaxed));
        Ok(Client { via: Via::Transaction(transaction), settings: self.settings.clone(), is_set })
    }

    /// Commits a transaction. What was sent outside of one is committed already.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self.via {
            Via::Connection(_) => Ok(()),
            Via::Transaction(transaction) => transaction.commit().await,
        }
    }

    pub(crate) async fn prepare_cached<'s>(&self, text: &'s str) -> Result<Statement<'s>, Error> {
        if !self.has_session() {
            return Ok(Statement::Text(text));
        }
        let named = match &self.via {
            Via::Connection(connection) => connection.prepare_cached(text).await?,
            Via::Transaction(transaction) => transaction.prepare_cached(text).await?,
        };
        Ok(Statement::Named(named))
    }

    pub(crate) async fn query<'s>(
        &self,
        statement: impl Into<Statement<'s>>,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.send(self.query_begun(statement, values)).await
    }

    pub(crate) async fn query_opt<'s>(
        &self,
        statement: impl Into<Statement<'s>>,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        match statement.into() {
            Statement::Named(named) => self.send(self.client().query_opt(&named, values)).await,
            Statement::Text(text) => self.send(self.client().query_typed_opt(text, &typed(values))).await,
        }
    }

    pub(crate) async fn query_one<'s>(
        &self,
        statement: impl Into<Statement<'s>>,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, Error> {
        match statement.into() {
            Statement::Named(named) => self.send(self.client().query_one(&named, values)).await,
            Statement::Text(text) => self.send(self.client().query_typed_one(text, &typed(values))).await,
        }
    }

    pub(crate) async fn execute<'s>(
        &self,
        statement: impl Into<Statement<'s>>,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        match statement.into() {
            Statement::Named(named) => self.send(self.client().execute(&named, values)).await,
            Statement::Text(text) => self.send(self.client().execute_typed(text, &typed(values))).await,
        }
    }

    pub(crate) async fn batch_execute(&self, text: &str) -> Result<(), Error> {
        self.send(self.client().batch_execute(text)).await
    }

    /// Begins a transaction whose statements and end are sent along, without waiting for the answer.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        match &self.settings {
            Some(settings) => self.client().batch_execute(&format!("begin; {settings}")).await,
            None => self.client().batch_execute("begin").await,
        }
    }

    /// A query after [`begin`](Self::begin).
    pub(crate) async fn query_begun<'s>(
        &self,
        statement: impl Into<Statement<'s>>,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        match statement.into() {
            Statement::Named(named) => self.client().query(&named, values).await,
            Statement::Text(text) => self.client().query_typed(text, &typed(values)).await,
        }
    }

    /// The end of what [`begin`](Self::begin) began: a commit, or a rollback if any of it failed.
    pub(crate) async fn end(&self) -> Result<(), Error> {
        self.client().batch_execute("commit").await
    }

    /// Sends a statement with all that it needs. It is on its way when this is first polled, and so is the rest.
    async fn send<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let Some(settings) = &self.settings else { return statement.await };
        match &self.via {
            Via::Connection(_) => {
                let (begun, done, ended) = tokio::join!(self.begin(), statement, self.end());
                begun?;
                let done = done?;
                ended.map(|()| done)
            }
            Via::Transaction(_) if self.is_set.swap(true, Ordering::Relaxed) => statement.await,
            Via::Transaction(_) => {
                let (set, done) = tokio::join!(self.client().batch_execute(settings), statement);
                set.and(done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_value_has_the_type_of_its_place() {
        let check = |value: &(dyn ToSql + Sync), expected: Type| {
            assert_eq!(typed(&[value])[0].1, expected, "{value:?}");
        };
        check(&1_i16, Type::INT2);
        check(&1_i32, Type::INT4);
        check(&1_i64, Type::INT8);
        check(&None::<i64>, Type::INT8);
        check(&"text", Type::TEXT);
        check(&String::new(), Type::TEXT);
        check(&Uuid::nil(), Type::UUID);
        check(&b"bytes".as_slice(), Type::BYTEA);
        check(&vec![0_u8], Type::BYTEA);
        check(&vec![1_i16], Type::INT2_ARRAY);
        check(&None::<Vec<i16>>, Type::INT2_ARRAY);
        check(&[1_i16].as_slice(), Type::INT2_ARRAY);
        check(&Vec::<i32>::new(), Type::INT4_ARRAY);
        check(&vec![Some(1_i64), None], Type::INT8_ARRAY);
        check(&vec![None::<Uuid>], Type::UUID_ARRAY);
        check(&vec!["text"], Type::TEXT_ARRAY);
        check(&vec![vec![0_u8]], Type::BYTEA_ARRAY);
        check(&vec![b"bytes".as_slice()], Type::BYTEA_ARRAY);
    }
}
