//! The service of workers that pull, with the meaning of `/v1/claims` and `/v1/workers`.

use std::time::Duration;

use punctual_api::read::Unread;
use punctual_api::worker::ReadHeartbeat;
use punctual_domain::TenantId;
use punctual_rpc::v1::workers_server::Workers;
use punctual_rpc::{status, v1};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status, Streaming};

use super::outbound::{Outbound, WAITING_MAX};
use super::stream::Session;
use crate::access::Caller;
use crate::call::{check_standing, tenant_of};
use crate::error::Error;
use crate::runs::named_tenant_of;
use crate::state::Shared;
use crate::workers::{about, beat_outside, present, reported, taken, worker_id};

/// Who opens a stream and says nothing is not waited for longer.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Service(pub(super) Shared);

/// As gRPC tells it.
fn refused(error: Error) -> Status {
    status::of(&error.problem())
}

impl Service {
    /// Who calls, and for whom.
    async fn caller<T>(&self, request: &Request<T>) -> Result<(Caller, TenantId), Status> {
        let Some(caller) = request.extensions().get::<Caller>().cloned() else {
            return Err(refused(Error::Forbidden("this method is in no table".into()))); // No gate, no way in.
        };
        let headers = request.metadata().clone().into_headers();
        let (tenant, _) = tenant_of(&self.0, &caller, &headers).await.map_err(refused)?;
        Ok((caller, tenant))
    }

    async fn tenant<T>(&self, request: &Request<T>) -> Result<TenantId, Status> {
        Ok(self.caller(request).await?.1)
    }
}

/// A sign of life as it can be taken, or everything that is wrong.
pub(super) fn heartbeat_of(heartbeat: &v1::Heartbeat) -> Result<ReadHeartbeat, Error> {
    let read = heartbeat.to_api().map_err(|place| {
        Error::wrong(&format!("/held/{place}/checkpoint"), "wrong_type", "this is not JSON")
    })?;
    Ok(read.to_domain()?)
}

#[tonic::async_trait]
impl Workers for Service {
    type ClaimStream = Outbound;

    async fn claim(
        &self,
        request: Request<Streaming<v1::ClaimRequest>>,
    ) -> Result<Response<Outbound>, Status> {
        let (caller, tenant) = self.caller(&request).await?;
        check_standing(&self.0, &caller, tenant, false).map_err(refused)?;
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(HELLO_MAX, inbound.message()).await;
        let Ok(Ok(Some(v1::ClaimRequest { message: Some(v1::claim_request::Message::Hello(hello)) }))) =
            first
        else {
            return Err(refused(Error::wrong(
                "/hello",
                "required",
                "the first message says who comes: hello",
            )));
        };
        let claim = hello.to_claim().to_domain().map_err(|wrong: Unread| refused(wrong.into()))?;
        if hello.concurrency == 0 {
            let detail = "how many attempts the worker can execute at a time in all";
            return Err(refused(Error::wrong("/concurrency", "required", detail)));
        }
        let engine = &self.0.engine;
        let worker = claim.worker.unwrap_or_else(|| engine.new_worker_id());
        let concurrency = claim.concurrency;
        let stay = engine.stay(worker, about(claim, tenant, engine)).await;
        let stay = stay.map_err(|error| refused(error.into()))?;
        let (out, waiting) = mpsc::channel(WAITING_MAX);
        let session = Session::new(engine.clone(), stay, caller.pass, concurrency, out);
        let outbound = Outbound::new(session.stay.clone(), waiting);
        // A task of its own: what is given while the worker goes away must be given back.
        tokio::spawn(session.serve(hello.capacity, inbound));
        Ok(Response::new(outbound))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<Response<v1::HeartbeatTaken>, Status> {
        let tenant = self.tenant(&request).await?;
        let request = request.into_inner();
        let worker = worker_id(&request.worker).map_err(refused)?;
        let heartbeat = request.heartbeat.unwrap_or_default();
        let beat = heartbeat_of(&heartbeat).map_err(refused)?;
        let answer = beat_outside(&self.0.engine, tenant, worker, beat).await.map_err(refused)?;
        Ok(Response::new(v1::HeartbeatTaken::of(heartbeat.number, answer)))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportTaken>, Status> {
        let tenant = self.tenant(&request).await?;
        let request = request.into_inner();
        let worker = worker_id(&request.worker).map_err(refused)?;
        let report = request.report.unwrap_or_default();
        let (names, ends) = reported(&report.to_api()).map_err(refused)?;
        let answers = self.0.engine.report(tenant, worker, ends).await;
        let answers = answers.map_err(|error| refused(error.into()))?;
        Ok(Response::new(v1::ReportTaken::of(report.number, taken(names, answers))))
    }

    async fn dismiss(
        &self,
        request: Request<v1::DismissRequest>,
    ) -> Result<Response<v1::DismissResponse>, Status> {
        let tenant = self.tenant(&request).await?;
        let worker = worker_id(&request.get_ref().worker).map_err(refused)?;
        self.0.engine.dismiss(tenant, worker).await.map_err(|error| refused(error.into()))?;
        Ok(Response::new(v1::DismissResponse {}))
    }

    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let (caller, own) = self.caller(&request).await?;
        let tenant = match request.get_ref().tenant.as_str() {
            "" => Some(own),
            name => named_tenant_of(&self.0, &caller, name).await.map_err(refused)?,
        };
        let workers = present(&self.0, tenant).await.map_err(refused)?;
        Ok(Response::new(v1::ListWorkersResponse { workers: workers.into_iter().map(Into::into).collect() }))
    }
}
