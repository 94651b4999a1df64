//! The signs of life of a worker: everything it holds, and what attempts say of themselves.
//!
//! Promise: one that is not answered in time is followed by another while the lease lasts, and one that is refused for what attempts say
//! by one that says only what is held.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_api::worker::{HeartbeatAnswer, HeldAttempt, WorkerHeartbeat};
use tokio::sync::watch;

use super::notes::Notes;
use super::{Identity, Key, PAUSE, Shared, Stop, is_lost, is_refusal, lock};

/// The shortest time in which a server must answer: a busy one takes a while, however often it wants to hear of a worker.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// Bytes that attempts say in one heartbeat: what one of them may have waiting fits, and if all of it is written as escapes, six bytes
/// for one, it is less than the 8 MiB that a server takes.
const NOTES_BYTES: usize = 1 << 20;

/// Signs of life, with what attempts say.
pub(super) async fn beat(shared: Arc<Shared>, mut stop: watch::Receiver<Stop>) {
    let mut failures = 0;
    loop {
        let identity = lock(&shared.identity).clone();
        let mut pause = identity.as_ref().map_or(PAUSE, |identity| identity.heartbeat_every);
        if let Some(identity) = identity {
            let beating = shared.beating.lock().await;
            let is_answered = beat_once(&shared, &identity).await;
            drop(beating);
            match is_answered {
                true => failures = 0,
                false => {
                    // Sooner than the next would be: the lease goes on.
                    pause = pause.min(PAUSE * (1 << failures));
                    failures = (failures + 1).min(4);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shared.beat_now.notified() => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
    }
}

/// Tells where the next attempts of these go on: that must be known before there are any. Whether it is.
pub(super) async fn tell_checkpoints(shared: &Shared, worker: &str, ended: &[Key]) -> bool {
    // One that is on its way has taken them along.
    let _beating = shared.beating.lock().await;
    let is_waiting = || {
        let held = lock(&shared.held);
        ended.iter().filter_map(|key| held.get(key)).any(|holding| lock(&holding.notes).checkpoint.is_some())
    };
    let identity = lock(&shared.identity).clone().filter(|identity| identity.worker == worker);
    match identity {
        Some(identity) if is_waiting() => {
            beat_once(shared, &identity).await;
            !is_waiting()
        }
        _ => true,
    }
}

/// Whether it was answered. The caller has `beating`.
async fn beat_once(shared: &Shared, identity: &Identity) -> bool {
    let worker = identity.worker.as_str();
    // The time until the next: then there are as many tries in a lease as it has heartbeats, less one.
    let within = identity.heartbeat_every.max(ANSWER_MIN);
    let (heartbeat, said) = with_notes(shared);
    let mut answered = shared.link.heartbeat(worker, &heartbeat, within).await;
    let is_said = match &answered {
        // What is held must be kept, whatever is wrong with what attempts say: that is not said again.
        Err(error) if is_refusal(error) && !said.is_empty() => {
            answered = shared.link.heartbeat(worker, &without_notes(heartbeat), within).await;
            true
        }
        answered => answered.is_ok(),
    };
    if !is_said {
        said.into_iter().for_each(|(notes, older)| lock(&notes).put_back(older));
    }
    match answered {
        Ok(answer) => {
            obey(shared, worker, &answer);
            true
        }
        Err(error) if is_lost(&error) => {
            shared.begin_anew(worker);
            true
        }
        Err(_) => false,
    }
}

/// Notes that are on their way, and where they go back if they do not arrive.
type Said = Vec<(Arc<Mutex<Notes>>, Notes)>;

/// Everything that is held, with what has been said of it since the last one, as far as there is room.
fn with_notes(shared: &Shared) -> (WorkerHeartbeat, Said) {
    let (mut said, mut room) = (Said::new(), NOTES_BYTES);
    let held: Vec<HeldAttempt> = lock(&shared.held)
        .iter()
        .map(|((run_id, attempt), holding)| {
            let mut waiting = lock(&holding.notes);
            let mut notes = Notes::default();
            match room.checked_sub(waiting.bytes()) {
                Some(rest) => (room, notes) = (rest, std::mem::take(&mut *waiting)),
                None => shared.beat_now.notify_one(), // There is more than one heartbeat takes.
            }
            let listed = HeldAttempt {
                run_id: Some(run_id.clone()),
                attempt: Some(*attempt),
                progress: notes.progress.clone(),
                checkpoint: notes.checkpoint.clone(),
                log: notes.told(),
            };
            if !notes.is_empty() {
                said.push((Arc::clone(&holding.notes), notes));
            }
            listed
        })
        .collect();
    let concurrency = shared.worker.concurrency;
    let saturation = Some((held.len() as f64 / concurrency as f64).min(1.0));
    let heartbeat = WorkerHeartbeat { held: Some(held), concurrency: Some(concurrency as u32), saturation };
    (heartbeat, said)
}

fn without_notes(heartbeat: WorkerHeartbeat) -> WorkerHeartbeat {
    let alone = |held: HeldAttempt| HeldAttempt { progress: None, checkpoint: None, log: None, ..held };
    let held = heartbeat.held.map(|held| held.into_iter().map(alone).collect());
    WorkerHeartbeat { held, ..heartbeat }
}

fn obey(shared: &Shared, worker: &str, answer: &HeartbeatAnswer) {
    for one in &answer.cancelled {
        shared.cancel(worker, &(one.run_id.clone(), one.attempt));
    }
    for one in &answer.not_held {
        // What is being reported is on its way: its answer says what became of it.
        let key = (one.run_id.clone(), one.attempt);
        let is_running = lock(&shared.held).get(&key).is_some_and(|held| held.executing.is_some());
        if is_running {
            shared.let_go(&key);
        }
    }
}
