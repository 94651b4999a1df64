//! Charts as SVG. The only text that templates do not escape: it is made of numbers and of words of our own, never of anybody's text.

use std::fmt::{self, Write as _};

/// SVG that is written as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Svg(String);

impl fmt::Display for Svg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of a run, as a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    Ok,
    /// Succeeded after another attempt.
    Retried,
    Late,
    Failed,
    TimedOut,
    Running,
    Waiting,
    Skipped,
    Missed,
}

impl Bar {
    /// How a run went: its state, its attempts, and whether it was on time.
    pub(crate) fn of(state: &str, attempts: u32, lateness_ms: Option<i64>) -> Self {
        match state {
            "succeeded" if lateness_ms.is_some_and(|late| late > PROMISE_MS) => Bar::Late,
            "succeeded" if attempts > 1 => Bar::Retried,
            "succeeded" => Bar::Ok,
            "failed" => Bar::Failed,
            "timed_out" => Bar::TimedOut,
            "running" => Bar::Running,
            "missed" => Bar::Missed,
            "pending" => Bar::Waiting,
            _ => Bar::Skipped,
        }
    }

    const ALL: [(Bar, &'static str); 9] = [
        (Bar::Ok, "succeeded"),
        (Bar::Retried, "after a retry"),
        (Bar::Late, "late"),
        (Bar::Failed, "failed"),
        (Bar::TimedOut, "timed out"),
        (Bar::Running, "running"),
        (Bar::Waiting, "waiting"),
        (Bar::Skipped, "cancelled"),
        (Bar::Missed, "missed"),
    ];
}

/// What counts as late: the promise is a start within a second.
pub(crate) const PROMISE_MS: i64 = 1000;

/// Recent runs, the newest at the right; `is_wide` fills its place.
pub(crate) fn strip(bars: &[Bar], is_wide: bool) -> Svg {
    let width = (bars.len() * 7).saturating_sub(2).max(5);
    let title = told(bars);
    let mut svg = match is_wide {
        true => format!(
            r#"<svg class="strip strip-wide" viewBox="0 0 {width} 20" preserveAspectRatio="none" role="img"><title>{title}</title>"#
        ),
        false => format!(r#"<svg class="strip" width="{width}" role="img"><title>{title}</title>"#),
    };
    let path = |wanted: &[Bar], shape: &dyn Fn(usize) -> String| -> String {
        let places = bars.iter().enumerate().filter(|(_, bar)| wanted.contains(bar));
        places.map(|(place, _)| shape(place * 7)).collect()
    };
    let paths = [
        ("o-ok", path(&[Bar::Ok, Bar::Retried], &|x| format!("M{x} 15h5"))),
        ("o-cap", path(&[Bar::Retried], &|x| format!("M{x} 7h5"))),
        ("o-late", path(&[Bar::Late], &|x| format!("M{x} 12.5h5"))),
        ("o-bad", path(&[Bar::Failed], &|x| format!("M{x} 10h5"))),
        ("o-half", path(&[Bar::TimedOut], &|x| format!("M{x} 4.5h5M{x} 15.5h5"))),
        ("o-run", path(&[Bar::Running], &|x| format!("M{x} 10h5"))),
        ("o-wait", path(&[Bar::Waiting], &|x| format!("M{x} 19h5"))),
        ("o-skip", path(&[Bar::Skipped], &|x| format!("M{x}.5 13.5h4v6h-4z"))),
        ("o-miss", path(&[Bar::Missed], &|x| format!("M{x}.5 .5h4v19h-4z"))),
    ];
    for (class, d) in paths.iter().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(svg, r#"<path class="{class}" d="{d}"/>"#);
    }
    svg.push_str("</svg>");
    Svg(svg)
}

/// Bars in words: `24 runs: 22 succeeded, 1 failed`.
pub(crate) fn told(bars: &[Bar]) -> String {
    let count = |wanted: Bar| bars.iter().filter(|bar| **bar == wanted).count();
    let parts: Vec<String> = Bar::ALL
        .iter()
        .map(|(bar, word)| (count(*bar), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match bars.len() {
        0 => "no runs yet".into(),
        1 => format!("1 run: {}", parts.join(", ")),
        runs => format!("{runs} runs: {}", parts.join(", ")),
    }
}

/// Where a lateness is on the scale from 1 ms to 1 min, from 0 to 1.
fn on_scale(late_ms: i64) -> f64 {
    let late = late_ms.clamp(1, 60_000) as f64;
    late.log10() / 60_000_f64.log10()
}

/// The spread of lateness on one log scale, with the promise as a line.
pub(crate) fn scale(lateness_ms: &[i64]) -> Svg {
    const BINS: usize = 24;
    let mut bins = [0_u32; BINS];
    for late in lateness_ms {
        let place = (on_scale(*late) * BINS as f64) as usize;
        bins[place.min(BINS - 1)] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(0).max(1);
    let promise = on_scale(PROMISE_MS);
    let (mut early, mut late) = (String::new(), String::new());
    for (place, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let top = 38.0 - 34.0 * f64::from(*count) / f64::from(most);
        let side = if (place as f64) / (BINS as f64) < promise { &mut early } else { &mut late };
        let _ = write!(side, "M{} 40V{top:.1}", place * 10 + 5);
    }
    let over = lateness_ms.iter().filter(|late| **late > PROMISE_MS).count();
    let promise = promise * 100.0;
    let mut svg = format!(
        r#"<svg class="scale" width="100%" height="62" role="img" aria-label="Spread of lateness of {} runs from 1 ms to 1 min; {over} started more than 1 s after their slot">"#,
        lateness_ms.len()
    );
    let _ = write!(
        svg,
        r#"<svg width="100%" height="40" viewBox="0 0 240 40" preserveAspectRatio="none"><path class="bars" stroke-width="8" d="{early}"/><path class="bars bars-late" stroke-width="8" d="{late}"/></svg>"#
    );
    let _ = write!(
        svg,
        r#"<line class="scale-base" x1="0" x2="100%" y1="40.5" y2="40.5"/><line class="scale-promise" x1="{promise:.1}%" x2="{promise:.1}%" y1="2" y2="46"/><text x="0%" y="58">1 ms</text><text x="20.9%" y="58" text-anchor="middle">10</text><text x="41.9%" y="58" text-anchor="middle">100</text><text x="62.8%" y="58" text-anchor="middle">1 s</text><text x="100%" y="58" text-anchor="end">1 min</text></svg>"#
    );
    Svg(svg)
}

/// Lateness run by run, oldest at the left; what did not start has no dot.
pub(crate) fn lateness(runs: &[(Bar, Option<i64>)]) -> Svg {
    let width = (runs.len() * 10).max(10);
    let (mut fine, mut late, mut bad) = (String::new(), String::new(), String::new());
    for (place, (bar, late_ms)) in runs.iter().enumerate() {
        let Some(late_ms) = late_ms else { continue };
        let dots = match bar {
            Bar::Failed | Bar::TimedOut => &mut bad,
            _ if *late_ms > PROMISE_MS => &mut late,
            _ => &mut fine,
        };
        let _ = write!(dots, "M{} {:.1}h0", place * 10 + 5, 120.0 * (1.0 - on_scale(*late_ms)));
    }
    let worst = runs.iter().filter_map(|(_, late)| *late).max().unwrap_or(0);
    let y = |late: i64| 4.0 + 120.0 * (1.0 - on_scale(late));
    let mut svg = format!(
        r#"<svg class="chart" width="100%" height="132" role="img" aria-label="Lateness of the last {} runs on a log scale; the latest started {} after its slot">"#,
        runs.len(),
        super::shown::millis(worst)
    );
    for (late, word) in [(1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1000, "1 s"), (10_000, "10 s")] {
        let class = if late == 1000 { "promise-line" } else { "grid-line" };
        let y = y(late);
        let _ = write!(
            svg,
            r#"<line class="{class}" x1="52" x2="100%" y1="{y:.1}" y2="{y:.1}"/><text x="0" y="{:.1}">{word}</text>"#,
            y + 4.0
        );
    }
    let _ = write!(
        svg,
        r#"<svg x="8%" y="4" width="92%" height="120" viewBox="0 0 {width} 120" preserveAspectRatio="none"><path class="dots" d="{fine}"/><path class="dots dots-late" d="{late}"/><path class="dots dots-bad" d="{bad}"/></svg></svg>"#
    );
    Svg(svg)
}

/// Bars from left to right; those over `hot` are marked.
pub(crate) fn columns(values: &[u64], hot: u64, told: &str) -> Svg {
    let most = values.iter().copied().max().unwrap_or(0).max(1) as f64;
    let (mut cool, mut warm) = (String::new(), String::new());
    for (place, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
        let side = if *value > hot { &mut warm } else { &mut cool };
        let _ = write!(side, "M{} 70V{:.1}", place * 10 + 5, 68.0 - 64.0 * *value as f64 / most);
    }
    let width = (values.len() * 10).max(10);
    // `told` is written by us, of numbers and times.
    Svg(format!(
        r#"<svg class="chart" width="100%" height="76" role="img" aria-label="{told}"><line class="grid-line" x1="0" x2="100%" y1="70" y2="70"/><svg height="70" width="100%" viewBox="0 0 {width} 70" preserveAspectRatio="none"><path class="bars" stroke-width="8" d="{cool}"/><path class="bars bars-late" stroke-width="8" d="{warm}"/></svg></svg>"#
    ))
}

/// How full a cell is, from 0 (nothing) to 5, by the logarithm of what the fullest has.
pub(crate) fn heat_level(value: u64, most: u64) -> usize {
    match (value, most) {
        (0, _) | (_, 0) => 0,
        (value, most) if value >= most => 5,
        (value, most) => 1 + (4.0 * (value as f64).ln_1p() / (most as f64).ln_1p()) as usize,
    }
}

/// A heat map, row by row: one path for each level, each cell a dash.
pub(crate) fn heat(rows: &[Vec<u64>], columns: usize, told: &str) -> Svg {
    let most = rows.iter().flatten().copied().max().unwrap_or(0);
    let mut levels: [String; 6] = Default::default();
    for (y, row) in rows.iter().enumerate() {
        for (x, value) in row.iter().take(columns).enumerate() {
            let level = heat_level(*value, most);
            let _ = write!(levels[level], "M{x} {y}h1");
        }
    }
    let mut svg = format!(
        r#"<svg viewBox="0 0 {columns} {}" preserveAspectRatio="none" role="img" aria-label="{told}"><g transform="translate(.07 .5)">"#,
        rows.len().max(1)
    );
    for (level, d) in levels.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let _ = write!(svg, r#"<path class="h{level}" d="{d}"/>"#);
    }
    svg.push_str("</g></svg>");
    Svg(svg)
}

/// A stretch of an attempt: its class, from when to when, in milliseconds after the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) class: &'static str,
    pub(crate) from_ms: f64,
    pub(crate) to_ms: f64,
}

/// An attempt on the axis of its run, which is `whole_ms` long.
pub(crate) fn attempt(number: u32, stretches: &[Stretch], is_ok: bool, whole_ms: f64) -> Svg {
    let percent = |ms: f64| (100.0 * ms / whole_ms.max(1.0)).clamp(0.0, 100.0);
    let mut svg = format!(r#"<svg role="img" aria-label="Attempt {number} on the time axis of the run">"#);
    for stretch in stretches {
        let (x, width) = (percent(stretch.from_ms), percent(stretch.to_ms - stretch.from_ms).max(0.35));
        let _ = write!(
            svg,
            r#"<rect class="{}" x="{x:.2}%" y="2" width="{width:.2}%" height="14"/>"#,
            stretch.class
        );
    }
    if let Some(last) = stretches.last() {
        let ok = if is_ok { " is-ok" } else { "" };
        let x = percent(last.to_ms);
        let _ = write!(svg, r#"<rect class="p-end{ok}" x="{x:.2}%" y="0" width="3" height="18"/>"#);
    }
    svg.push_str("</svg>");
    Svg(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_says_in_words_what_it_shows() {
        let bars = [Bar::Ok, Bar::Retried, Bar::Failed, Bar::Ok];
        assert_eq!(told(&bars), "4 runs: 2 succeeded, 1 after a retry, 1 failed");
        let svg = strip(&bars, false).to_string();
        assert!(svg.contains("<title>4 runs") && svg.contains(r#"class="o-bad" d="M14 10h5""#), "{svg}");
        assert_eq!(told(&[]), "no runs yet");
    }

    #[test]
    fn a_run_that_succeeded_late_is_late_and_one_that_failed_is_failed() {
        assert_eq!(Bar::of("succeeded", 1, Some(1001)), Bar::Late);
        assert_eq!(Bar::of("succeeded", 2, Some(3)), Bar::Retried);
        assert_eq!(Bar::of("failed", 3, Some(5000)), Bar::Failed);
        assert_eq!(Bar::of("pending", 0, None), Bar::Waiting);
    }

    #[test]
    fn heat_goes_from_nothing_to_the_fullest_cell() {
        assert_eq!((heat_level(0, 100), heat_level(100, 100), heat_level(5, 0)), (0, 5, 0));
        let levels: Vec<usize> = (1..100).map(|value| heat_level(value, 100)).collect();
        assert!(levels.is_sorted() && levels.iter().all(|level| (1..=5).contains(level)), "{levels:?}");
    }

    #[test]
    fn charts_of_nothing_are_charts() {
        for svg in [
            strip(&[], true),
            scale(&[]),
            lateness(&[]),
            columns(&[], 0, ""),
            heat(&[], 60, ""),
            attempt(1, &[], true, 0.0),
        ] {
            let text = svg.to_string();
            assert!(text.starts_with("<svg") && text.ends_with("</svg>") && !text.contains("NaN"), "{text}");
        }
    }
}
