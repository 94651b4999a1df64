//! Makes things go wrong, one after the other, and right again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use punctual_testing::clock;

use crate::cluster::Cluster;
use crate::node::Clock;
use crate::plan::{CALM, Fault, Plan, Step};
use crate::postgres::{End, Postgres};
use crate::proxy::Link;
use crate::receiver::{Mode, Receiver, now};
use crate::schedule::Millis;

/// When a fault was there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) fault: Fault,
    pub(crate) from: Millis,
    /// When everything was as before: processes run, connections pass.
    pub(crate) healed_at: Millis,
    /// How long its consequences may be felt.
    pub(crate) until: Millis,
}

/// How long after a fault its consequences may last: a lease, the next heartbeat, and catching up.
const RECOVERY: Millis = 10_000;

/// How far ahead the clock of a node is that has a wrong one: more than slots are apart, less than what is noticed at once.
pub(crate) const AHEAD_MS: i64 = 1_500;

/// What can be broken.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) postgres: Postgres,
    /// The receiver that may be taken down.
    pub(crate) target: Receiver,
}

impl World {
    /// Goes through the plan.
    pub(crate) async fn suffer(&mut self, plan: &Plan) -> Result<Vec<Window>> {
        let mut random = Rng::with_seed(plan.seed ^ 0x5eed);
        let mut windows: Vec<Window> = Vec::new();
        self.cluster.wait(CALM).await?;
        for step in &plan.steps {
            if step.fault == Fault::ClockOffset && clock::library().is_none() {
                println!("  {:18} left out: libfaketime is not installed", step.fault.name());
                continue;
            }
            if step.fault == Fault::PromoteStandby {
                self.postgres.add_standby().await?;
            }
            let from = now();
            let what = self.inject(step, &mut random).await.with_context(|| step.fault.name())?;
            let healed_at = now();
            println!("  {:18} {:5.1} s  {what}", step.fault.name(), (healed_at - from) as f64 / 1_000.0);
            windows.push(Window { fault: step.fault, from, healed_at, until: healed_at + RECOVERY });
            self.cluster.wait(step.gap).await?;
        }
        self.cluster.wait(CALM).await?;
        // What comes after the next fault is the next one's.
        for place in 1..windows.len() {
            windows[place - 1].until = windows[place - 1].until.min(windows[place].from);
        }
        Ok(windows)
    }

    /// One fault, until it is over. Says what it was done to.
    async fn inject(&mut self, step: &Step, random: &mut Rng) -> Result<String> {
        let node = self.cluster.victim(random);
        let about = format!("node {node}");
        match step.fault {
            Fault::KillNode => {
                self.cluster.nodes[node].kill()?;
                self.cluster.wait(step.lasts).await?;
                self.cluster.nodes[node].start(Clock::default())?;
            }
            Fault::FreezeNode => {
                self.cluster.nodes[node].signal("STOP")?;
                self.cluster.wait(step.lasts).await?;
                self.cluster.nodes[node].signal("CONT")?;
            }
            Fault::KillPostgres => {
                self.postgres.kill_and_restart(step.lasts).await?;
                return Ok("the primary".into());
            }
            Fault::PromoteStandby => {
                let end = if random.bool() { End::Killed } else { End::Frozen };
                self.postgres.promote(end).await?;
                return Ok(format!("the primary, {end:?}").to_lowercase());
            }
            Fault::TerminateBackends => {
                self.postgres.terminate_backends().await?;
                return Ok("all connections".into());
            }
            Fault::CutNode => self.unlink(node, Link::Cut, step.lasts).await?,
            Fault::StallNode => self.unlink(node, Link::Stalled, step.lasts).await?,
            Fault::StallAnswers => self.unlink(node, Link::AnswersStalled, step.lasts).await?,
            Fault::ClockOffset => {
                let ahead_ms = if random.bool() { AHEAD_MS } else { -AHEAD_MS };
                self.cluster.nodes[node].stop().await?;
                self.cluster.nodes[node].start(Clock { ahead_ms })?;
                self.cluster.wait(step.lasts).await?;
                self.cluster.nodes[node].stop().await?;
                self.cluster.nodes[node].start(Clock::default())?;
                return Ok(format!("{about}, {ahead_ms} ms"));
            }
            Fault::RollingRestart => {
                for node in 0..self.cluster.regular {
                    self.cluster.nodes[node].stop().await?;
                    self.cluster.nodes[node].start(Clock::default())?;
                    self.cluster.wait(step.lasts).await?;
                }
                return Ok("all nodes".into());
            }
            Fault::JoinAndLeave => {
                let extra = self.cluster.regular;
                self.cluster.nodes[extra].start(Clock::default())?;
                self.cluster.wait(step.lasts).await?;
                self.cluster.nodes[extra].stop().await?;
                return Ok(format!("node {extra}"));
            }
            Fault::TargetDown => return self.target_is(Mode::Down, step.lasts).await,
            Fault::TargetHang => return self.target_is(Mode::Hang, step.lasts).await,
        }
        Ok(about)
    }

    async fn unlink(&mut self, node: usize, link: Link, lasts: Duration) -> Result<()> {
        self.cluster.nodes[node].link(link);
        let waited = self.cluster.wait(lasts).await;
        self.cluster.nodes[node].link(Link::Open);
        waited
    }

    async fn target_is(&mut self, mode: Mode, lasts: Duration) -> Result<String> {
        self.target.set(mode);
        let waited = self.cluster.wait(lasts).await;
        self.target.set(Mode::Up);
        waited.map(|()| "one job in eight".into())
    }
}
