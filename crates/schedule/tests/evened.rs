//! What all jobs with an `H` have together: every slot that one of them has, and its share of them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use punctual_schedule::{Binding, Schedule, Seed, Tzdb};

#[test]
fn the_evened_schedule_has_the_slots_of_all_jobs_and_says_how_many_one_has() {
    let tzdb = Tzdb::bundled();
    let (from, to): (Timestamp, Timestamp) =
        ("2026-03-01T00:00:00Z".parse().unwrap(), "2026-03-29T00:00:00Z".parse().unwrap());
    for (text, tolerance) in [
        ("H 9 * * *", 1e-9),
        ("H H(0-5) * * *", 1e-9),
        ("H/15 3 * * *", 1e-9),
        ("H(10-29)/7 3 * * *", 0.03),
        ("0 0 H * *", 1e-9),
        ("30 4 * * H", 1e-9),
        // What is always there and what is hashed may be the same.
        ("0,H 3 * * *", 0.03),
        ("5 9 * * *", 1e-9),
    ] {
        let schedule = Schedule::parse(text).unwrap();
        let (evened, share) = schedule.evened();
        let evened = evened.timetable(&tzdb, &Binding::default()).unwrap();
        let (mut slots, mut of_jobs) = (BTreeSet::new(), 0);
        const JOBS: u64 = 4_000;
        for job in 0..JOBS {
            let binding = Binding { seed: Seed::of(&format!("job-{job}")), ..Binding::default() };
            let timetable = schedule.timetable(&tzdb, &binding).unwrap();
            of_jobs += timetable.count(from, to);
            slots.extend(
                timetable.upcoming(from - std::time::Duration::from_nanos(1)).take_while(|at| *at < to),
            );
        }
        let all: BTreeSet<Timestamp> =
            evened.upcoming(from - std::time::Duration::from_nanos(1)).take_while(|at| *at < to).collect();
        assert_eq!(slots, all, "{text}");
        let (told, counted) = (share * all.len() as f64, of_jobs as f64 / JOBS as f64);
        assert!((told / counted - 1.0).abs() <= tolerance, "{text}: {told} instead of {counted}");
    }
}
