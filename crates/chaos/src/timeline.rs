//! A picture of slots against faults: what was owed in each second, what of it was on time, late or never.

use std::fmt::Write as _;

use crate::verdict::{Evidence, ON_TIME, Verdict};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 130.0;

#[derive(Clone, Copy, Default)]
struct Second {
    on_time: u32,
    late: u32,
    without: u32,
    is_accepting: bool,
}

/// The picture, as SVG.
pub(crate) fn draw(verdict: &Verdict, evidence: &Evidence<'_>) -> String {
    let start = evidence.began_at.div_euclid(1_000);
    let length = (evidence.horizon.div_euclid(1_000) - start + 1).max(1) as usize;
    let mut seconds = vec![Second::default(); length];
    let place = |at: i64| usize::try_from(at.div_euclid(1_000) - start).ok().filter(|place| *place < length);
    for (slot, late) in &verdict.slots {
        let Some(second) = place(*slot).map(|place| &mut seconds[place]) else { continue };
        match late {
            Some(late) if *late <= ON_TIME => second.on_time += 1,
            Some(_) => second.late += 1,
            None => second.without += 1,
        }
    }
    for at in evidence.accepted {
        if let Some(place) = place(*at) {
            seconds[place].is_accepting = true;
        }
    }
    let scale = (1_600.0 / length as f64).clamp(0.5, 8.0);
    let most = seconds.iter().map(|s| s.on_time + s.late + s.without).max().unwrap_or(1).max(1);
    let width = LEFT + length as f64 * scale + 20.0;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0}' height='{:.0}' font-family='sans-serif' font-size='11'>\n\
         <rect width='100%' height='100%' fill='white'/>\n\
         <text x='{LEFT}' y='16'>seed {}: slots per second: green on time, orange late, red without a run; \
         grey bands are faults; the bar below says whether creates were accepted</text>",
        TOP + HEIGHT + 50.0,
        evidence.plan.seed
    );
    for (number, window) in evidence.windows.iter().enumerate() {
        let at = |millis: i64| LEFT + (millis - start * 1_000) as f64 / 1_000.0 * scale;
        let (from, to) = (at(window.from), at(window.healed_at));
        let _ = writeln!(
            svg,
            "<rect x='{from:.1}' y='{TOP}' width='{:.1}' height='{HEIGHT}' fill='#ddd'/>\
             <text transform='translate({:.1} {:.1}) rotate(-40)'>{}</text>",
            (to - from).max(1.0),
            from + 4.0,
            TOP - 4.0 - (number % 2) as f64 * 6.0,
            window.fault
        );
    }
    for (number, second) in seconds.iter().enumerate() {
        let x = LEFT + number as f64 * scale;
        let mut y = TOP + HEIGHT;
        for (count, colour) in [(second.on_time, "#3a3"), (second.late, "#e90"), (second.without, "#d00")] {
            if count > 0 {
                let height = f64::from(count) / f64::from(most) * HEIGHT;
                y -= height;
                let _ = writeln!(
                    svg,
                    "<rect x='{x:.1}' y='{y:.1}' width='{scale:.1}' height='{height:.1}' fill='{colour}'/>"
                );
            }
        }
        let colour = if second.is_accepting { "#3a3" } else { "#d00" };
        let y = TOP + HEIGHT + 6.0;
        let _ = writeln!(svg, "<rect x='{x:.1}' y='{y}' width='{scale:.1}' height='8' fill='{colour}'/>");
    }
    for at in (0..length).step_by(30) {
        let (x, y) = (LEFT + at as f64 * scale, TOP + HEIGHT + 30.0);
        let _ = writeln!(svg, "<text x='{x:.1}' y='{y}'>{at} s</text>");
    }
    let _ = writeln!(svg, "<text x='4' y='{}'>{most}/s</text>\n</svg>", TOP + 10.0);
    svg
}
