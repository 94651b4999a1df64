//! Who has room on this node, and what they are given.
//!
//! A worker takes a seat and grants room; fire and claim spend it and hand over leased runs. Promise: nobody is
//! given more than the room he granted, and room that was taken but not used comes back. What is pulled goes to those who
//! pull, each batch to whoever has most room; the others have no part in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use punctual_domain::id::WorkerId;
use punctual_domain::job::Spec;
use punctual_domain::work::Leased;
use punctual_domain::{Labels, Run};
use tokio::sync::{Notify, mpsc, watch};

use crate::fire::Room;

/// The workers of this node.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    seats: Mutex<Seats>,
    /// Room was granted, or came back: one for each loop that waits for it, so that neither takes the other's.
    pub(crate) room_for_fire: Arc<Notify>,
    pub(crate) room_for_claim: Arc<Notify>,
    /// Runs wait, or may: they are ahead of what is fired now.
    pub(crate) has_backlog: AtomicBool,
    last_freed: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Seats {
    own: Vec<Arc<Place>>,
    pulling: Vec<Arc<Place>>,
}

/// What the desk knows about a worker.
#[derive(Debug)]
struct Place {
    worker: WorkerId,
    queues: Arc<[Arc<str>]>,
    labels: Labels,
    room: AtomicUsize,
    is_open: AtomicBool,
    /// Room that was taken and has not been answered yet.
    taken: watch::Sender<usize>,
    /// Of those who pull: runs may wait that are ahead of what is fired now.
    is_behind: AtomicBool,
    // Not bounded by itself: never holds more than the room that was granted.
    given: mpsc::UnboundedSender<Vec<Leased>>,
}

impl Place {
    /// Takes up to `wanted` of its room. Called by who has the list of seats.
    fn take(&self, wanted: usize) -> usize {
        let mut attempts = 0;
        if !self.is_open.load(Ordering::Acquire) {
            return 0;
        }
        // The closure always returns a value, so the update cannot fail.
        let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| {
            attempts = room.min(wanted);
            Some(room - attempts)
        });
        if attempts > 0 {
            self.taken.send_modify(|taken| *taken += attempts);
        }
        attempts
    }

    fn free(&self) -> usize {
        if self.is_open.load(Ordering::Acquire) { self.room.load(Ordering::Relaxed) } else { 0 }
    }

    fn room_of(&self, attempts: usize) -> Room {
        Room { worker: self.worker, queues: Arc::clone(&self.queues), labels: self.labels.clone(), attempts }
    }
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
        let is_pulling = labels.are_pulling();
        let place = Arc::new(Place {
            worker,
            queues: queues.into(),
            labels,
            room: AtomicUsize::new(0),
            is_open: AtomicBool::new(true),
            taken: watch::Sender::new(0),
            is_behind: AtomicBool::new(true),
            given: sender,
        });
        let mut seats = desk.seats();
        // What waits is not known, unless somebody of its kind has just looked.
        let is_known = seats.pulling.iter().any(|other| {
            other.labels == place.labels
                && other.queues == place.queues
                && !other.is_behind.load(Ordering::Acquire)
        });
        place.is_behind.store(!is_known, Ordering::Release);
        let of_its_kind = if is_pulling { &mut seats.pulling } else { &mut seats.own };
        of_its_kind.push(Arc::clone(&place));
        drop(seats);
        Seat {
            desk: Arc::clone(desk),
            place,
            given: tokio::sync::Mutex::new(receiver),
            is_closed: watch::Sender::new(false),
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `wanted` room from the worker of this node that has most.
    pub(crate) fn take(&self, wanted: usize) -> Option<Room> {
        let seats = self.seats();
        let place = seats.own.iter().max_by_key(|place| place.free())?;
        let attempts = place.take(wanted);
        (attempts > 0).then(|| place.room_of(attempts))
    }

    /// Takes the room for one attempt of a job that is pulled, from who has most. None while runs may wait that are ahead of it.
    fn take_for(&self, job: &Spec) -> Option<Arc<Place>> {
        let seats = self.seats();
        let may_have = |place: &&Arc<Place>| {
            place.queues.contains(&job.queue)
                && place.labels.meet(&job.requires)
                && !place.is_behind.load(Ordering::Acquire)
        };
        let place = seats.pulling.iter().filter(may_have).max_by_key(|place| place.free())?;
        (place.take(1) == 1).then(|| Arc::clone(place))
    }

    /// Runs were born that wait: what is fired for those who pull comes behind them.
    pub(crate) fn fall_behind(&self) {
        for place in &self.seats().pulling {
            place.is_behind.store(true, Ordering::Release);
        }
    }

    /// Whether anybody pulls.
    pub(crate) fn has_pulling(&self) -> bool {
        !self.seats().pulling.is_empty()
    }

    /// How many pull.
    pub(crate) fn count_pulling(&self) -> usize {
        self.seats().pulling.len()
    }

    /// Whether somebody who pulls is behind and has room.
    pub(crate) fn is_behind(&self) -> bool {
        self.seats().pulling.iter().any(|place| place.is_behind.load(Ordering::Acquire) && place.free() > 0)
    }

    /// Takes up to `wanted` room of one of those who pull and are behind.
    pub(crate) fn take_pulling(&self, wanted: usize) -> Option<Taken<'_>> {
        let seats = self.seats();
        let is_behind = |place: &&Arc<Place>| place.is_behind.load(Ordering::Acquire) && place.free() > 0;
        let place = seats.pulling.iter().filter(is_behind).max_by_key(|place| place.free())?;
        let attempts = place.take(wanted);
        (attempts > 0).then(|| Taken::of(self, place, attempts))
    }

    /// Takes all room of those among who pull that something waits for.
    pub(crate) fn take_addressed(&self, is_addressed: impl Fn(WorkerId) -> bool) -> Vec<Taken<'_>> {
        let seats = self.seats();
        let mut all = Vec::new();
        for place in seats.pulling.iter().filter(|place| is_addressed(place.worker)) {
            let attempts = place.take(usize::MAX);
            if attempts > 0 {
                all.push(Taken::of(self, place, attempts));
            }
        }
        all
    }

    /// Takes the room for one attempt of anybody who may have it, from who has most.
    pub(crate) fn take_one(&self, may_have: impl Fn(&Room) -> bool) -> Option<Taken<'_>> {
        let seats = self.seats();
        let is_for = |place: &&Arc<Place>| place.free() > 0 && may_have(&place.room_of(1));
        let place = seats.own.iter().chain(&seats.pulling).filter(is_for).max_by_key(|place| place.free())?;
        (place.take(1) == 1).then(|| Taken::of(self, place, 1))
    }

    /// A worker that pulls is given nothing more.
    pub(crate) fn expel(&self, worker: WorkerId) {
        for place in self.seats().pulling.iter().filter(|place| place.worker == worker) {
            place.is_open.store(false, Ordering::Release);
        }
    }

    /// Nothing is left that waits for workers of this kind.
    pub(crate) fn caught_up(&self, kind: &Room) {
        for place in &self.seats().pulling {
            if place.labels == kind.labels && place.queues == kind.queues {
                place.is_behind.store(false, Ordering::Release);
            }
        }
    }

    /// Room of this node's own workers that nobody uses.
    pub(crate) fn free(&self) -> usize {
        self.seats().own.iter().map(|place| place.free()).sum()
    }

    /// Whether a worker has not left.
    pub(crate) fn is_seated(&self, worker: WorkerId) -> bool {
        self.seats().own.iter().any(|place| place.worker == worker)
    }

    /// Whether a worker of this node serves a queue.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        let serves = |place: &Arc<Place>| {
            place.queues.is_empty() || place.queues.iter().any(|served| **served == *queue)
        };
        self.seats().own.iter().any(serves)
    }

    /// Hands over runs that were leased with this room, and takes back the room that is left.
    pub(crate) fn give(&self, room: &Room, leased: Vec<Leased>) {
        let place = self.seats().own.iter().find(|place| place.worker == room.worker).cloned();
        // A worker that has left does not list these runs in its heartbeats: they are reclaimed.
        if let Some(place) = place {
            self.settle(&place, room.attempts, leased);
        }
    }

    /// Hands over runs that were leased with so much room of a place, and takes back what is left of it.
    fn settle(&self, place: &Place, attempts: usize, leased: Vec<Leased>) {
        let unused = attempts.saturating_sub(leased.len());
        if unused > 0 {
            place.room.fetch_add(unused, Ordering::AcqRel);
            // Who pulls and has looked for what waits is in no need of room.
            if !place.labels.are_pulling() || place.is_behind.load(Ordering::Acquire) {
                self.tell();
            }
        }
        if !leased.is_empty() {
            let _ = place.given.send(leased);
        }
        place.taken.send_modify(|taken| *taken = taken.saturating_sub(attempts));
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

/// Room of one who pulls, or of one place. A worker may ask more than once at a time, so it is the place that counts. What is not used
/// comes back, also when claiming for it, or for another, fails.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) room: Room,
    desk: &'a Desk,
    place: Arc<Place>,
    is_settled: bool,
}

impl<'a> Taken<'a> {
    fn of(desk: &'a Desk, place: &Arc<Place>, attempts: usize) -> Self {
        Taken { room: place.room_of(attempts), desk, place: Arc::clone(place), is_settled: false }
    }

    /// Hands over runs that were leased with this room, and gives back what is left of it.
    pub(crate) fn give(mut self, leased: Vec<Leased>) {
        self.is_settled = true;
        self.desk.settle(&self.place, self.room.attempts, leased);
    }

    /// The room itself, for who settles it.
    pub(crate) fn into_room(mut self) -> Room {
        self.is_settled = true;
        self.room.clone()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.desk.settle(&self.place, self.room.attempts, Vec::new());
        }
    }
}

/// Room of those who pull, taken one by one for what is being written. What is not used comes back, also when writing fails.
#[derive(Debug)]
pub(crate) struct Pulled<'a> {
    desk: &'a Desk,
    taken: Vec<(Arc<Place>, usize)>,
}

impl<'a> Pulled<'a> {
    pub(crate) fn new(desk: &'a Desk) -> Self {
        Pulled { desk, taken: Vec::new() }
    }

    /// Who executes a job that is pulled, if there is room for it.
    pub(crate) fn take(&mut self, job: &Spec) -> Option<WorkerId> {
        if !job.requires.are_pulling() {
            return None;
        }
        let place = self.desk.take_for(job)?;
        let worker = place.worker;
        match self.taken.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &place)) {
            Some((_, attempts)) => *attempts += 1,
            None => self.taken.push((place, 1)),
        }
        Some(worker)
    }

    /// Whether a run was leased with this room.
    pub(crate) fn is_for(&self, run: &Run) -> bool {
        run.lease().is_some_and(|lease| self.taken.iter().any(|(place, _)| place.worker == lease.worker))
    }

    /// Hands over what was leased, to whom it was leased.
    pub(crate) fn give(mut self, leased: Vec<Leased>) {
        let mut by_worker: HashMap<WorkerId, Vec<Leased>> = HashMap::new();
        for one in leased {
            if let Some(lease) = one.run.lease() {
                by_worker.entry(lease.worker).or_default().push(one);
            }
        }
        for (place, attempts) in std::mem::take(&mut self.taken) {
            let of_it = by_worker.entry(place.worker).or_default();
            let rest = of_it.split_off(attempts.min(of_it.len()));
            self.desk.settle(&place, attempts, std::mem::replace(of_it, rest));
        }
    }
}

impl Drop for Pulled<'_> {
    fn drop(&mut self) {
        for (place, attempts) in std::mem::take(&mut self.taken) {
            self.desk.settle(&place, attempts, Vec::new());
        }
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
        if !self.place.labels.are_pulling() {
            *self.desk.last_freed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
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

    /// Takes back all room that was granted and not used, waits for what is being given, and takes all of it.
    pub async fn collect(&self) -> Vec<Leased> {
        {
            let _seats = self.desk.seats(); // Whoever takes has taken.
            self.place.is_open.store(false, Ordering::Release);
        }
        // The sender is in the place, which this seat has.
        let _ = self.place.taken.subscribe().wait_for(|taken| *taken == 0).await;
        let mut given = self.given.lock().await;
        let mut all = Vec::new();
        while let Ok(leased) = given.try_recv() {
            all.extend(leased);
        }
        all
    }

    /// Takes back all room that was granted and not used.
    pub fn close(&self) {
        self.place.is_open.store(false, Ordering::Release);
        let mut seats = self.desk.seats();
        seats.own.retain(|place| !Arc::ptr_eq(place, &self.place));
        seats.pulling.retain(|place| !Arc::ptr_eq(place, &self.place));
        drop(seats);
        self.is_closed.send_replace(true);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.close();
    }
}
