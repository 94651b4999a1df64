//! The nodes together: who runs, who answers, and which of them a request goes to.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::api::{Answer, Api};
use crate::node::{Clock, Node};

/// How often every node is asked whether it answers.
const ASK: Duration = Duration::from_millis(200);

/// How long it may take to say so.
const ANSWER_WITHIN: Duration = Duration::from_millis(800);

/// Where requests may go.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) api: Api,
    doors: Arc<[Door]>,
}

struct Door {
    address: SocketAddr,
    answers: AtomicBool,
}

impl Front {
    fn new(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        let doors = addresses.map(|address| Door { address, answers: AtomicBool::new(false) }).collect();
        let front = Front { api: Api::new(), doors };
        for door in 0..front.doors.len() {
            tokio::spawn(front.clone().watch(door));
        }
        front
    }

    /// Asks a node again and again whether it answers.
    async fn watch(self, door: usize) {
        let door = &self.doors[door];
        loop {
            let answer = self.api.get(door.address, "/livez", ANSWER_WITHIN).await;
            door.answers.store(matches!(answer, Answer::Done(_)), Ordering::Release);
            tokio::time::sleep(ASK).await;
        }
    }

    /// A node that answered when it was last asked.
    pub(crate) fn pick(&self, random: &mut Rng) -> Option<SocketAddr> {
        let answering: Vec<SocketAddr> = self.answering().map(|door| door.address).collect();
        (!answering.is_empty()).then(|| answering[random.usize(..answering.len())])
    }

    /// A node that answered when it was last asked; waits for one.
    pub(crate) async fn wait(&self, random: &mut Rng) -> SocketAddr {
        loop {
            if let Some(address) = self.pick(random) {
                return address;
            }
            tokio::time::sleep(ASK / 4).await;
        }
    }

    pub(crate) fn answers(&self, node: usize) -> bool {
        self.doors[node].answers.load(Ordering::Acquire)
    }

    fn answering(&self) -> impl Iterator<Item = &Door> {
        self.doors.iter().filter(|door| door.answers.load(Ordering::Acquire))
    }
}

/// The nodes.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    /// Nodes that are there from the start; the others come and go.
    pub(crate) regular: usize,
    pub(crate) front: Front,
    /// What nodes did that nobody asked them to.
    pub(crate) falls: Vec<String>,
}

impl Cluster {
    /// Starts the regular nodes. There is a place for one more.
    pub(crate) async fn start(
        regular: usize,
        program: &Path,
        folder: &Path,
        databases: [u16; 2],
    ) -> Result<Cluster> {
        let mut nodes = Vec::new();
        for number in 0..=regular {
            nodes.push(Node::new(number, program, folder, databases).await?);
        }
        let front = Front::new(nodes.iter().map(|node| node.address));
        let mut cluster = Cluster { nodes, regular, front, falls: Vec::new() };
        for node in 0..regular {
            cluster.nodes[node].start(Clock::default())?;
        }
        Ok(cluster)
    }

    /// A running node to do something to: one that answers, if there is one.
    pub(crate) fn victim(&self, random: &mut Rng) -> usize {
        let running: Vec<usize> = (0..self.regular).filter(|node| self.nodes[*node].is_running()).collect();
        let answering: Vec<usize> =
            running.iter().copied().filter(|node| self.front.answers(*node)).collect();
        let from = if answering.is_empty() { &running } else { &answering };
        if from.is_empty() { 0 } else { from[random.usize(..from.len())] }
    }

    /// Starts nodes again that ended by themselves, as an init system would, and keeps account of it.
    pub(crate) fn pick_up(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            if let Some(status) = node.has_fallen() {
                self.falls.push(format!("node {} ended by itself ({status})", node.number));
                node.start(Clock::default())?;
            }
        }
        Ok(())
    }

    /// Waits a while, and picks up what falls meanwhile.
    pub(crate) async fn wait(&mut self, time: Duration) -> Result<()> {
        let until = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(250).min(until - tokio::time::Instant::now())).await;
            self.pick_up()?;
        }
        Ok(())
    }
}
