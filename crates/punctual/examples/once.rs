//! A worker whose effect and its record are in one database: each run takes effect exactly once, however often it is delivered.
//!
//! `cargo run --release --example once`, beside `punctual serve` and a job with the target
//! `{"worker": {"handler": "charge"}}` and a payload such as `{"customer": "acme", "amount": 7}`.

use punctual_client::once::{Store, Transaction, once};
use punctual_client::worker::Failed;
use punctual_client::{Client, Options, Worker};
use rusqlite::{Connection, OptionalExtension, params};

/// A database of yours, with a table for the records beside its own.
struct Database {
    path: String,
}

/// A transaction of it that has taken a key. Closing the connection undoes it.
struct Taken {
    connection: Connection,
    key: String,
    recorded: Option<String>,
}

impl Store for Database {
    type Transaction = Taken;

    async fn begin(&self, key: &str) -> Result<Taken, Failed> {
        let (path, key) = (self.path.clone(), key.to_string());
        // Whoever else writes is waited for, on a thread that may wait.
        let taken = tokio::task::spawn_blocking(move || -> rusqlite::Result<Taken> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(std::time::Duration::from_secs(30))?;
            connection.execute_batch("begin immediate")?;
            let sql = "select record from punctual_once where key = ?1";
            let recorded = connection.query_row(sql, [&key], |row| row.get(0)).optional()?;
            Ok(Taken { connection, key, recorded })
        });
        Ok(taken.await??)
    }
}

impl Transaction for Taken {
    fn recorded(&self) -> Option<String> {
        self.recorded.clone()
    }

    async fn commit(self, record: String) -> Result<(), Failed> {
        let committed = tokio::task::spawn_blocking(move || {
            let sql = "insert into punctual_once (key, record) values (?1, ?2)";
            self.connection.execute(sql, params![self.key, record])?;
            self.connection.execute_batch("commit")
        });
        Ok(committed.await??)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "charges.db".into());
    Connection::open(&path)?.execute_batch(
        "create table if not exists charges (customer text not null, amount integer not null);
         create table if not exists punctual_once (key text primary key, record text not null,
             recorded_at timestamp not null default current_timestamp);",
    )?;
    let server = std::env::var("PUNCTUAL_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7171".into());
    let client = Client::new(server.parse()?, &Options::default())?;
    let charge = once(Database { path }, |task, taken: Taken| async move {
        let payload = task.payload();
        let (customer, amount) = (payload["customer"].as_str().unwrap_or("nobody"), &payload["amount"]);
        let amount = amount.as_i64().ok_or_else(|| Failed::for_good("the amount is missing"))?;
        taken.connection.execute("insert into charges values (?1, ?2)", params![customer, amount])?;
        Ok((taken, Some(format!("charged {amount}"))))
    });
    Worker::new(client, ["payments"]).handler("charge", charge).run().await?;
    Ok(())
}
