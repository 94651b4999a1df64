//! Who has room on this node, and what they are given.
//!
//! A worker takes a seat and grants room; fire and claim spend it and hand over leased runs. Promise: nobody is
//! given more than the room he granted, and room that was taken but not used comes back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use punctual_domain::Labels;
use punctual_domain::id::WorkerId;
use punctual_domain::work::Leased;
use tokio::sync::{Notify, mpsc, watch};

use crate::fire::Room;

/// The workers of this node.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    seats: Mutex<Vec<Arc<Place>>>,
    /// Room was granted, or came back: one for each loop that waits for it, so that neither takes the other's.
    pub(crate) room_for_fire: Arc<Notify>,
    pub(crate) room_for_claim: Arc<Notify>,
    /// Runs wait, or may: they are ahead of what is fired now.
    pub(crate) has_backlog: AtomicBool,
    last_freed: Mutex<Option<Instant>>,
}

/// What the desk knows about a worker.
#[derive(Debug)]
struct Place {
    worker: WorkerId,
    queues: Arc<[Arc<str>]>,
    labels: Labels,
    room: AtomicUsize,
    // Not bounded by itself: never holds more than the room that was granted.
    given: mpsc::UnboundedSender<Vec<Leased>>,
}

/// A worker's seat at the desk. Leaving it gives up what was not taken.
#[derive(Debug)]
pub struct Seat {
    desk: Arc<Desk>,
    place: Arc<Place>,
    given: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<Leased>>>,
    is_closed: watch::Sender<bool>,
}

impl Desk {
    /// Seats a worker that has these labels and serves these queues; all, if none is named.
    pub(crate) fn seat(desk: &Arc<Desk>, worker: WorkerId, queues: Vec<Arc<str>>, labels: Labels) -> Seat {
        let (sender, receiver) = mpsc::unbounded_channel();
        let room = AtomicUsize::new(0);
        let place = Arc::new(Place { worker, queues: queues.into(), labels, room, given: sender });
        desk.seats.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&place));
        Seat {
            desk: Arc::clone(desk),
            place,
            given: tokio::sync::Mutex::new(receiver),
            is_closed: watch::Sender::new(false),
        }
    }

    /// Takes up to `wanted` room from the worker that has most.
    pub(crate) fn take(&self, wanted: usize) -> Option<Room> {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let place = seats.iter().max_by_key(|place| place.room.load(Ordering::Relaxed))?;
        let mut attempts = 0;
        // The closure always returns a value, so the update cannot fail.
        let _ = place.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| {
            attempts = room.min(wanted);
            Some(room - attempts)
        });
        (attempts > 0).then(|| Room {
            worker: place.worker,
            queues: Arc::clone(&place.queues),
            labels: place.labels.clone(),
            attempts,
        })
    }

    /// Whether a worker of this node serves a queue.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats
            .iter()
            .any(|place| place.queues.is_empty() || place.queues.iter().any(|served| **served == *queue))
    }

    /// Hands over runs that were leased with this room, and takes back the room that is left.
    pub(crate) fn give(&self, room: &Room, leased: Vec<Leased>) {
        let unused = room.attempts.saturating_sub(leased.len());
        let place = {
            let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.iter().find(|place| place.worker == room.worker).cloned()
        };
        // A worker that has left does not list these runs in its heartbeats: they are reclaimed.
        let Some(place) = place else { return };
        if unused > 0 {
            place.room.fetch_add(unused, Ordering::AcqRel);
            self.tell();
        }
        if !leased.is_empty() {
            let _ = place.given.send(leased);
        }
    }

    fn tell(&self) {
        self.room_for_fire.notify_one();
        self.room_for_claim.notify_one();
    }

    /// When a worker last said that it has room again.
    pub(crate) fn last_freed(&self) -> Option<Instant> {
        *self.last_freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Whose seat it is.
    pub fn worker(&self) -> WorkerId {
        self.place.worker
    }

    /// Grants room for so many more attempts.
    pub fn grant(&self, attempts: usize) {
        self.place.room.fetch_add(attempts, Ordering::AcqRel);
        *self.desk.last_freed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.desk.tell();
    }

    /// Waits for runs, each leased to this worker. Nothing, once the seat is closed and everything was taken.
    pub async fn next(&self) -> Vec<Leased> {
        let mut given = self.given.lock().await;
        let mut closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            Some(leased) = given.recv() => leased,
            _ = closed.wait_for(|is_closed| *is_closed) => Vec::new(),
        }
    }

    /// Takes back all room that was granted and not used.
    pub fn close(&self) {
        self.place.room.store(0, Ordering::Release);
        let mut seats = self.desk.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|place| place.worker != self.place.worker);
        drop(seats);
        self.is_closed.send_replace(true);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.close();
    }
}
