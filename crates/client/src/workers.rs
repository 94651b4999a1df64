//! Workers that pull: what they call, and who is there.

use http::Method;
use punctual_api::Page;
use punctual_api::queue::Queue;
use punctual_api::worker::{Claim, Claimed, HeartbeatAnswer, Results, ResultsTaken, Worker, WorkerHeartbeat};

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::escaped;

impl Client {
    /// Asks for runs, and waits until there are any or the claim's time is over.
    pub async fn claim(&self, claim: &Claim) -> Result<Answer<Claimed>, Error> {
        self.call(Call::post("/v1/claims").body(claim)?).await
    }

    /// A worker's sign of life.
    pub async fn heartbeat(
        &self,
        worker: &str,
        heartbeat: &WorkerHeartbeat,
    ) -> Result<Answer<HeartbeatAnswer>, Error> {
        self.call(Call::post(format!("/v1/workers/{worker}/heartbeat")).body(heartbeat)?).await
    }

    /// Reports attempts that are over.
    pub async fn report(&self, worker: &str, results: &Results) -> Result<Answer<ResultsTaken>, Error> {
        self.call(Call::post(format!("/v1/workers/{worker}/results")).body(results)?).await
    }

    /// Workers that pull and live; of one tenant, if it is named, or of all with `*`.
    pub async fn workers(&self, tenant: Option<&str>) -> Result<Answer<Page<Worker>>, Error> {
        let path = match tenant {
            Some(tenant) => format!("/v1/workers?tenant={}", escaped(tenant)),
            None => "/v1/workers".into(),
        };
        self.call(Call::get(path)).await
    }

    /// Queues: what waits and runs, who serves them, what is planned; of one tenant, if it is named, or of all with `*`.
    pub async fn queues(&self, tenant: Option<&str>) -> Result<Answer<Page<Queue>>, Error> {
        let path = match tenant {
            Some(tenant) => format!("/v1/queues?tenant={}", escaped(tenant)),
            None => "/v1/queues".into(),
        };
        self.call(Call::get(path)).await
    }

    /// A worker.
    pub async fn worker(&self, id: &str) -> Result<Answer<Worker>, Error> {
        self.call(Call::get(format!("/v1/workers/{id}"))).await
    }

    /// A worker goes: what it still holds goes back.
    pub async fn dismiss_worker(&self, id: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, format!("/v1/workers/{id}"))).await
    }
}
