//! A worker as a program in any language would be one: it knows the API alone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::{Server, call};

/// Nothing here takes nearly so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A worker as a program in any language would be one: it knows the API alone.
pub(crate) struct Puller {
    pub(crate) address: SocketAddr,
    pub(crate) id: Option<String>,
    pub(crate) queue: &'static str,
    pub(crate) labels: Value,
}

impl Puller {
    pub(crate) fn new(server: &Server, queue: &'static str) -> Puller {
        Puller::at(server.address, queue)
    }

    pub(crate) fn at(address: SocketAddr, queue: &'static str) -> Puller {
        Puller { address, id: None, queue, labels: json!({}) }
    }

    pub(crate) fn claim(&mut self, capacity: u32) -> Vec<Value> {
        let mut body = json!({"queues": [self.queue], "labels": self.labels, "capacity": capacity,
            "name": "test", "concurrency": 50, "wait": "PT0.5S"});
        if let Some(id) = &self.id {
            body["worker"] = json!(id);
        }
        let answer = call(self.address, "POST", "/v1/claims", &[], &body.to_string()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        self.id = Some(answer["worker"].as_str().unwrap().to_string());
        answer["attempts"].as_array().unwrap().clone()
    }

    /// Claims until there is something.
    pub(crate) fn next(&mut self) -> Value {
        let mut given = Vec::new();
        wait_until("a run to execute", || {
            given = self.claim(1);
            assert_eq!(self.beat(&given.iter().collect::<Vec<_>>(), &json!({})).0, 200);
            !given.is_empty()
        });
        given.remove(0)
    }

    /// The status, and the answer.
    pub(crate) fn beat(&self, held: &[&Value], more: &Value) -> (u16, Value) {
        let named = held.iter().map(|one| {
            let mut named = json!({"run_id": one["run_id"], "attempt": one["attempt"]});
            named.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            named
        });
        let body = json!({"held": named.collect::<Vec<Value>>()}).to_string();
        let path = format!("/v1/workers/{}/heartbeat", self.id.as_ref().unwrap());
        let answer = call(self.address, "POST", &path, &[], &body).unwrap();
        (answer.status, answer.json())
    }

    pub(crate) fn report(&self, attempt: &Value, outcome: &str) -> Value {
        let result = json!({"run_id": attempt["run_id"], "attempt": attempt["attempt"], "outcome": outcome});
        let path = format!("/v1/workers/{}/results", self.id.as_ref().unwrap());
        let answer =
            call(self.address, "POST", &path, &[], &json!({"results": [result]}).to_string()).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["results"][0].clone()
    }
}
