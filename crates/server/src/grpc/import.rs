//! The import as streams: each message is a line of the body that REST takes, each line of its answer a message.
//!
//! Promise: that of the import of REST, which does it.

use std::pin::Pin;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use punctual_rpc::{Codec, status, v1};
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};

use super::unary::{Asked, Parts, unreadable};
use crate::state::Shared;

/// The method.
pub(super) fn import() -> MethodRouter<Shared> {
    post(serve)
}

async fn serve(State(shared): State<Shared>, request: Request) -> Response {
    let codec: Codec<v1::ImportLine, v1::ImportJobsRequest> = Codec::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(shared.limits.bulk_max);
    grpc.streaming(Import, request).await.into_response()
}

type Lines = Pin<Box<dyn Stream<Item = Result<v1::ImportLine, Status>> + Send>>;

struct Import;

impl StreamingService<v1::ImportJobsRequest> for Import {
    type Response = v1::ImportLine;
    type ResponseStream = Lines;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Lines>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<v1::ImportJobsRequest>>) -> Self::Future {
        Box::pin(answer(request))
    }
}

async fn answer(
    request: tonic::Request<Streaming<v1::ImportJobsRequest>>,
) -> Result<tonic::Response<Lines>, Status> {
    let (metadata, extensions, jobs) = request.into_parts();
    let asked = Asked::new(&extensions)?;
    let body = Body::from_stream(jobs.map(|message| message.map(|message| line(&message))));
    let parts = Parts::of_stream(asked.route, body);
    let told = asked.ask(parts, metadata.into_headers()).await.map_err(|problem| status::of(&problem))?;
    Ok(tonic::Response::new(lines(told.into_body())))
}

/// A job as a line. One whose payload is no JSON is a line that is none, and is refused by its number.
fn line(message: &v1::ImportJobsRequest) -> Bytes {
    let job = message.job.clone().unwrap_or_default();
    let mut text = serde_json::to_vec(&job).unwrap_or_else(|error| error.to_string().into_bytes());
    // JSON has breaks only where it has spaces, in payloads that were written over several lines.
    text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    text.push(b'\n');
    text.into()
}

fn lines(body: Body) -> Lines {
    let state = (body.into_data_stream(), Vec::<u8>::new());
    Box::pin(unfold(state, |(mut body, mut read)| async move {
        loop {
            if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = read.drain(..=end).collect();
                let told =
                    serde_json::from_slice::<v1::ImportLine>(&line).map_err(|error| unreadable(&error));
                return Some((told, (body, read)));
            }
            match body.next().await {
                Some(Ok(data)) => read.extend_from_slice(&data),
                Some(Err(error)) => return Some((Err(unreadable(&error)), (body, read))),
                None => return None,
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_one_line_whatever_its_payload_looks_like() {
        let of = |payload: &str| {
            let job = v1::JobSpec { payload: Some(payload.into()), ..v1::JobSpec::default() };
            String::from_utf8(line(&v1::ImportJobsRequest { job: Some(job) }).to_vec()).expect("text")
        };
        assert_eq!(of("{\n\"a\": 1.50\r\n}"), "{\"payload\":{ \"a\": 1.50  }}\n");
        assert!(!of("{").starts_with('{'), "what is no JSON is no object either");
        assert_eq!(line(&v1::ImportJobsRequest::default()), "{}\n");
    }
}
