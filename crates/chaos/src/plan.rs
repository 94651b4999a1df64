//! What is done to the cluster, and how much it has to do meanwhile. The same seed is the same plan.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// kill -9 of a node, started again some seconds later.
    KillNode,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    FreezeNode,
    /// kill -9 of PostgreSQL, started again on the same files.
    KillPostgres,
    /// kill -9 of PostgreSQL, or SIGSTOP; its synchronous standby is promoted.
    PromoteStandby,
    /// Every connection to PostgreSQL is ended by it.
    TerminateBackends,
    /// The connections of one node to PostgreSQL break, and new ones too.
    CutNode,
    /// Nothing passes between one node and PostgreSQL, and neither is told.
    StallNode,
    /// What one node says arrives; what PostgreSQL answers does not.
    StallAnswers,
    /// A node whose clock is off.
    ClockOffset,
    /// SIGTERM to one node after the other, each started again.
    RollingRestart,
    /// A node joins, and leaves again by SIGTERM.
    JoinAndLeave,
    /// The target refuses connections.
    TargetDown,
    /// The target accepts and does not answer.
    TargetHang,
}

impl Fault {
    /// Every fault.
    pub(crate) const ALL: [Fault; 13] = [
        Fault::KillNode,
        Fault::FreezeNode,
        Fault::KillPostgres,
        Fault::TerminateBackends,
        Fault::CutNode,
        Fault::StallNode,
        Fault::StallAnswers,
        Fault::RollingRestart,
        Fault::JoinAndLeave,
        Fault::TargetDown,
        Fault::TargetHang,
        Fault::ClockOffset,
        Fault::PromoteStandby,
    ];

    /// Its name, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillNode => "kill-node",
            Fault::FreezeNode => "freeze-node",
            Fault::KillPostgres => "kill-postgres",
            Fault::PromoteStandby => "promote-standby",
            Fault::TerminateBackends => "terminate-backends",
            Fault::CutNode => "cut-node",
            Fault::StallNode => "stall-node",
            Fault::StallAnswers => "stall-answers",
            Fault::ClockOffset => "clock-offset",
            Fault::RollingRestart => "rolling-restart",
            Fault::JoinAndLeave => "join-and-leave",
            Fault::TargetDown => "target-down",
            Fault::TargetHang => "target-hang",
        }
    }

    /// How long it lasts, at random within what makes sense.
    fn lasts(self, random: &mut Rng) -> Duration {
        let seconds = match self {
            // Until the node is started again.
            Fault::KillNode => random.f64() * 4.0,
            Fault::FreezeNode => 15.0,
            Fault::KillPostgres | Fault::PromoteStandby => random.f64() * 2.0,
            Fault::TerminateBackends => 0.0,
            // Longer and shorter than a lease.
            Fault::CutNode | Fault::StallNode | Fault::StallAnswers => 3.0 + random.f64() * 6.0,
            Fault::ClockOffset => 10.0,
            // Between the end of one node and the next.
            Fault::RollingRestart => 1.0,
            Fault::JoinAndLeave => 6.0,
            Fault::TargetDown | Fault::TargetHang => 3.0 + random.f64() * 3.0,
        };
        Duration::from_secs_f64(seconds)
    }

    /// How long it takes in all, about, to fill the time of a plan.
    fn takes(self, lasts: Duration, nodes: usize) -> Duration {
        match self {
            Fault::RollingRestart => Duration::from_secs(4) * nodes as u32,
            Fault::PromoteStandby => lasts + Duration::from_secs(8),
            Fault::JoinAndLeave | Fault::ClockOffset => lasts + Duration::from_secs(3),
            _ => lasts,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fault and the quiet after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
    pub(crate) gap: Duration,
}

/// What is done, and how much is to do meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// Slots per second.
    pub(crate) rate: usize,
    /// Repeating jobs from the start.
    pub(crate) jobs: usize,
    pub(crate) steps: Vec<Step>,
    /// How long the load goes on, faults included.
    pub(crate) length: Duration,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    /// None: every fault once, quickly.
    pub(crate) minutes: Option<u64>,
    pub(crate) rate: Option<usize>,
    /// Only these; all, if empty.
    pub(crate) faults: Vec<Fault>,
}

/// Before the first fault and after the last: what is measured there is health.
pub(crate) const CALM: Duration = Duration::from_secs(10);

/// One job in this many seconds has a slot, on average.
const SECONDS_PER_SLOT: usize = 5;

/// Slots per second of the short plan, and of the long ones.
const RATE_SHORT: usize = 1_000;
const RATE_LONG: usize = 5_000;

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(wanted: &Wanted) -> Plan {
        let mut random = Rng::with_seed(wanted.seed);
        let nodes = wanted.nodes;
        let faults = if wanted.faults.is_empty() { Fault::ALL.to_vec() } else { wanted.faults.clone() };
        // Faults that meet the end of the one before find more, but the account per fault is clearer with a gap.
        let (gap, most) = match wanted.minutes {
            None => (5.0, Duration::ZERO),
            Some(minutes) => (10.0, Duration::from_secs(60 * minutes).saturating_sub(4 * CALM)),
        };
        let mut steps = Vec::new();
        let mut length = 2 * CALM;
        loop {
            let mut round = faults.clone();
            random.shuffle(&mut round);
            for fault in round {
                let lasts = fault.lasts(&mut random);
                let gap = Duration::from_secs_f64(gap + random.f64() * 2.0);
                length += fault.takes(lasts, nodes) + gap;
                steps.push(Step { fault, lasts, gap });
            }
            if length >= most {
                break;
            }
        }
        let rate = wanted.rate.unwrap_or(if wanted.minutes.is_some() { RATE_LONG } else { RATE_SHORT });
        Plan { seed: wanted.seed, nodes, rate, jobs: rate * SECONDS_PER_SLOT, steps, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(minutes: Option<u64>) -> Wanted {
        Wanted { seed: 7, nodes: 3, minutes, rate: None, faults: Vec::new() }
    }

    fn times(plan: &Plan, fault: Fault) -> usize {
        plan.steps.iter().filter(|step| step.fault == fault).count()
    }

    #[test]
    fn the_short_plan_has_every_fault_once_and_the_long_one_at_least_three_times() {
        let (short, long) = (Plan::new(&wanted(None)), Plan::new(&wanted(Some(30))));
        for fault in Fault::ALL {
            assert_eq!(times(&short, fault), 1, "{fault}");
            assert!(times(&long, fault) >= 3, "{fault}");
        }
        assert!(short.jobs >= 5_000 && short.length < Duration::from_secs(240), "{:?}", short.length);
    }

    #[test]
    fn the_same_seed_is_the_same_plan() {
        let text = |plan: &Plan| format!("{plan:?}");
        assert_eq!(text(&Plan::new(&wanted(Some(10)))), text(&Plan::new(&wanted(Some(10)))));
    }
}
