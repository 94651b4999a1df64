//! A worker in ten lines: it executes the runs of jobs with the target `worker`, the queue `emails` and the handler `welcome`.

use punctual_client::{Client, Error, Options, Worker};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let server = std::env::var("PUNCTUAL_SERVER").unwrap_or("http://127.0.0.1:7171".into());
    Worker::new(Client::new(server.parse()?, &Options::default())?, ["emails"])
        .handler("welcome", |task| async move { Ok(Some(format!("sent {}", task.payload()["n"]))) })
        .run()
        .await
}
