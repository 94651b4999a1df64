//! The forecast: how many slots are planned, minute by minute for a day and hour by hour for two weeks.

use askama::Template;
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use punctual_api::forecast::{Bucket, Forecast};

use super::draw::{self, Svg};
use super::frame::{Frame, html};
use super::shown::{self, Moment, View};
use crate::call::Call;
use crate::error::Error;
use crate::forecast as rest;

#[derive(Template)]
#[template(path = "forecast.html")]
struct ForecastPage {
    frame: Frame,
    total: String,
    is_exact: bool,
    is_complete: bool,
    estimated: Vec<String>,
    day: Svg,
    day_rows: Vec<String>,
    weeks: Svg,
    weeks_rows: Vec<String>,
    hot: Vec<Hot>,
    groups: Vec<Group>,
}

struct Hot {
    at: Moment,
    slots: String,
}

struct Group {
    name: String,
    slots: String,
    peak: String,
}

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let view = View::of(&call);
    let now = call.shared.engine.now();
    let minute = floor(now, 60);
    let day = asked(&call, minute, SignedDuration::from_hours(24), "PT1M", "10").await?;
    let hour = floor(now, 3600);
    let weeks = asked(&call, hour, SignedDuration::from_hours(14 * 24), "PT1H", "0").await?;
    let (day_rows, day_cells) =
        rows(&day.buckets, &view, "%a %-d %b %H:00", |at| view.hour_and_minute(at).1 as usize, 60);
    let (weeks_rows, weeks_cells) =
        rows(&weeks.buckets, &view, "%a %-d %b", |at| view.hour_and_minute(at).0 as usize, 24);
    let mut fullest: Vec<&Bucket> = day.buckets.iter().filter(|bucket| bucket.slots > 0).collect();
    fullest.sort_by_key(|bucket| std::cmp::Reverse(bucket.slots));
    let told = |of: &Forecast, per: &str| match of.peak {
        Some(peak) => format!(
            "Planned slots per {per}. Fullest: {} at {}.",
            shown::number(peak.slots),
            view.moment(peak.at).text
        ),
        None => format!("Planned slots per {per}: none."),
    };
    let hot = fullest
        .iter()
        .take(5)
        .map(|bucket| Hot { at: view.moment(bucket.at), slots: shown::number(bucket.slots) });
    let groups = day.groups.iter().filter(|group| group.slots > 0).map(|group| Group {
        name: match group.is_rest {
            true => "all others".into(),
            false => {
                [&group.kind, &group.target].into_iter().flatten().cloned().collect::<Vec<_>>().join(" to ")
            }
        },
        slots: shown::number(group.slots),
        peak: shown::number(group.buckets.iter().copied().max().unwrap_or(0)),
    });
    html(&ForecastPage {
        frame: Frame::new(&call, "forecast", "Forecast")
            .same("punctual forecast --resolution 1m", "/v1/forecast?resolution=PT1M"),
        total: shown::number(day.slots),
        is_exact: day.is_exact,
        is_complete: day.is_complete,
        estimated: day.estimated.clone(),
        day: draw::heat(&day_cells, 60, &told(&day, "minute")),
        day_rows,
        weeks: draw::heat(&weeks_cells, 24, &told(&weeks, "hour")),
        weeks_rows,
        hot: hot.collect(),
        groups: groups.collect(),
    })
}

/// A forecast from a time on.
pub(crate) async fn asked(
    call: &Call,
    from: Timestamp,
    length: SignedDuration,
    resolution: &str,
    groups: &str,
) -> Result<Forecast, Error> {
    let (from, to) = (from.to_string(), (from + length).to_string());
    let pairs = [
        ("from", from.as_str()),
        ("to", to.as_str()),
        ("resolution", resolution),
        ("by", "type,target"),
        ("groups", groups),
    ];
    rest::get(call.asking(&pairs)).await?.read()
}

/// The beginning of the minute or hour.
fn floor(at: Timestamp, seconds: i64) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(seconds)).unwrap_or(at)
}

/// Buckets as rows of a heat map: those with the same title are a row, in which `place` says where a bucket is.
fn rows(
    buckets: &[Bucket],
    view: &View,
    title: &str,
    place: impl Fn(Timestamp) -> usize,
    columns: usize,
) -> (Vec<String>, Vec<Vec<u64>>) {
    let (mut titles, mut cells): (Vec<String>, Vec<Vec<u64>>) = (Vec::new(), Vec::new());
    for bucket in buckets {
        let title = view.format(bucket.at, title);
        if titles.last() != Some(&title) {
            titles.push(title);
            cells.push(vec![0; columns]);
        }
        // An hour that a clock change repeats is twice in its row.
        if let Some(cell) = cells.last_mut().and_then(|row| row.get_mut(place(bucket.at))) {
            *cell += bucket.slots;
        }
    }
    (titles, cells)
}
