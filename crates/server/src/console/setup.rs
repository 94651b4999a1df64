//! What is set up: calendars, alerts, keys, tenants, and what this node runs with.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use punctual_api::alert::{Alarm, Alert, AlertSpec};
use punctual_api::calendar::{Calendar, CalendarSpec};
use punctual_api::key::{Key, NewKey};
use punctual_api::page::Page;
use punctual_api::tenant::Tenant;
use serde_json::json;

use super::form::{self, Form};
use super::frame::{Frame, go, html};
use super::shown::{self, View};
use super::table::{Cell, Deed, Row, Table, TablePage, columns};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::{alerts as rest_alerts, calendars as rest_calendars, keys as rest_keys, tenants as rest_tenants};

type Outcome = Result<Response, Error>;

fn cursor(call: &Call) -> String {
    call.query.text("cursor").unwrap_or("").to_string()
}

/// Where a list goes on.
fn next(path: &str, cursor: Option<&str>) -> String {
    cursor.map_or(String::new(), |cursor| format!("{path}{}", form::query(&[("cursor", cursor)])))
}

pub(crate) async fn calendars(call: Call) -> Outcome {
    let view = View::of(&call);
    let cursor = cursor(&call);
    let page: Page<Calendar> =
        rest_calendars::list(call.asking(&[("cursor", cursor.as_str())])).await?.read()?;
    let row = |calendar: &Calendar| {
        Row::from(vec![
            Cell::text(&calendar.name),
            Cell::text(allows(&calendar.spec)),
            Cell::text(calendar.spec.timezone.clone().unwrap_or_else(|| "that of each schedule".into())),
            Cell::number(calendar.version.to_string()),
            Cell::time(Some(view.moment(calendar.updated_at)), ""),
        ])
    };
    let table = Table {
        columns: columns(&["Calendar", "What it says", "Zone", "#Version", "Changed"]),
        rows: page.items.iter().map(row).collect(),
        empty: "No calendar is named. With punctual calendar put holidays --exclude-date 2026-12-25 there is one, and \
                a schedule uses it with \"calendars\": [\"holidays\"]."
            .into(),
        next: next("/console/calendars", page.next_cursor.as_deref()),
        ..Table::default()
    };
    TablePage {
        frame: Frame::new(&call, "calendars", "Calendars").same("punctual calendar list", "/v1/calendars"),
        about: "Days and times that schedules share. A change plans the jobs that use it anew.".into(),
        tables: vec![table],
    }
    .answer()
}

/// What a calendar says, shortened.
fn allows(spec: &CalendarSpec) -> String {
    let lists = [
        ("only on", &spec.include_dates),
        ("not on", &spec.exclude_dates),
        ("only on", &spec.include_weekdays),
        ("not on", &spec.exclude_weekdays),
        ("only in", &spec.include_windows),
        ("not in", &spec.exclude_windows),
    ];
    let told = lists.iter().filter_map(|(word, list)| {
        let list = list.as_ref().filter(|list| !list.is_empty())?;
        let first: Vec<&str> = list.iter().take(4).map(String::as_str).collect();
        let more = if list.len() > 4 { format!(" and {} more", list.len() - 4) } else { String::new() };
        Some(format!("{word} {}{more}", first.join(", ")))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "allows everything".into() } else { told.join("; ") }
}

pub(crate) async fn alerts(call: Call) -> Outcome {
    let view = View::of(&call);
    let cursor = cursor(&call);
    let alerts: Page<Alert> = rest_alerts::list(call.asking(&[])).await?.read()?;
    let alarms: Page<Alarm> =
        rest_alerts::alarms(call.asking(&[("cursor", cursor.as_str())])).await?.read()?;
    let alarm = |alarm: &Alarm| {
        let subject = match &alarm.job {
            Some(job) => Cell::link(&alarm.name, format!("/console/jobs/{}", form::encoded(job))),
            None => Cell::text(&alarm.name),
        };
        Row::from(vec![
            subject.under(&alarm.detail),
            Cell::text(alarm.on.replace('_', " ")).under(format!("alert {}", alarm.alert)),
            Cell::time(Some(view.moment(alarm.since)), ""),
            Cell::number(shown::number(alarm.count)),
            Cell::time(view.maybe(alarm.told_at), "not told yet"),
        ])
    };
    let alert = |alert: &Alert| {
        Row::from(vec![
            Cell::text(&alert.name),
            Cell::text(alert.spec.on.clone().unwrap_or_default().replace('_', " ")),
            Cell::text(about_jobs(&alert.spec)),
            Cell::text(goes_to(&alert.spec)),
        ])
    };
    let tables = vec![
        Table {
            title: "Raised now".into(),
            columns: columns(&["What", "Because of", "Since", "#Times", "Told"]),
            rows: alarms.items.iter().map(alarm).collect(),
            empty: "Nothing is raised.".into(),
            next: next("/console/alerts", alarms.next_cursor.as_deref()),
            ..Table::default()
        },
        Table {
            title: "Alerts".into(),
            note: "what somebody wants to be told of".into(),
            columns: columns(&["Alert", "On", "Jobs", "Told to"]),
            rows: alerts.items.iter().map(alert).collect(),
            empty: "Nobody is told of anything. punctual alert put --help shows how.".into(),
            ..Table::default()
        },
    ];
    TablePage {
        frame: Frame::new(&call, "alerts", "Alerts")
            .same("punctual alert alarms", "/v1/alarms")
            .live("alarms"),
        about: "Dead letters, open breakers, missed slots, late runs and silent jobs.".into(),
        tables,
    }
    .answer()
}

fn about_jobs(spec: &AlertSpec) -> String {
    let Some(jobs) = &spec.jobs else { return "all of the tenant".into() };
    let words = [("", &jobs.id), ("key ", &jobs.key), ("type ", &jobs.r#type), ("queue ", &jobs.queue)];
    let mut told: Vec<String> = words
        .iter()
        .filter_map(|(word, value)| value.as_ref().map(|value| format!("{word}{value}")))
        .collect();
    told.extend(jobs.labels.iter().flatten().map(|(name, value)| format!("{name}={value}")));
    if told.is_empty() { "all of the tenant".into() } else { told.join(", ") }
}

/// Where it goes, without what may be a secret: the path of a hook often is one.
fn goes_to(spec: &AlertSpec) -> String {
    let Some(to) = &spec.to else { return "nowhere".into() };
    let host = |url: Option<&String>| {
        let rest = url.and_then(|url| url.split_once("://")).map_or("", |(_, rest)| rest);
        let host = rest.split(['/', '?', '#']).next().unwrap_or("");
        host.rsplit('@').next().unwrap_or("").to_string()
    };
    if let Some(hook) = &to.webhook {
        return format!("webhook at {}", host(hook.url.as_ref()));
    }
    if let Some(slack) = &to.slack {
        return format!("slack at {}", host(slack.url.as_ref()));
    }
    match &to.mail {
        Some(mail) => format!("mail to {}", mail.to.clone().unwrap_or_default().join(", ")),
        None => "nowhere".into(),
    }
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: Frame,
    tables: Vec<Table>,
    /// A key that was made by this request: it is shown this once.
    new: Option<NewKey>,
    tenants: Vec<String>,
}

pub(crate) async fn keys(call: Call) -> Outcome {
    keys_page(&call, None).await
}

async fn keys_page(call: &Call, new: Option<NewKey>) -> Outcome {
    let view = View::of(call);
    let cursor = cursor(call);
    let page: Page<Key> = rest_keys::list(call.asking(&[("cursor", cursor.as_str())])).await?.read()?;
    let tenants: Page<Tenant> = rest_tenants::list(call.asking(&[])).await?.read()?;
    let row = |key: &Key| {
        let deed = (key.state == "active").then(|| Deed {
            path: format!("/console/keys/{}/revoke", form::encoded(&key.id)),
            name: "id",
            value: key.id.clone(),
            label: "Revoke".into(),
            is_danger: true,
        });
        let cells = vec![
            Cell::text(&key.name).under(format!("pk_{}_…", key.id)),
            Cell::pill(shown::state(&key.state)),
            Cell::text(&key.role)
                .under(key.tenant.as_ref().map_or("all tenants".into(), |name| format!("tenant {name}"))),
            Cell::time(view.maybe(key.last_used_at), "never"),
            Cell::time(view.maybe(key.expires_at), "not by itself"),
            Cell::time(Some(view.moment(key.created_at)), "").under(format!("by {}", key.created_by)),
        ];
        Row { cells, deed }
    };
    let table = Table {
        columns: columns(&["Key", "State", "Role", "Last used", "Ends", "Made", ""]),
        rows: page.items.iter().map(row).collect(),
        empty: "There is no key, so only this machine is served. From the first key on, everybody needs one, from \
                this machine too."
            .into(),
        next: next("/console/keys", page.next_cursor.as_deref()),
        ..Table::default()
    };
    html(&KeysPage {
        frame: Frame::new(call, "keys", "Keys").same("punctual key list", "/v1/keys"),
        tables: vec![table],
        new,
        tenants: tenants.items.into_iter().map(|tenant| tenant.name).collect(),
    })
}

/// The key is in this answer and nowhere else, so this form does not go on to another page.
pub(crate) async fn create_key(call: Call, Text(text): Text) -> Outcome {
    let form = Form::read(&text)?;
    let mut body = json!({"name": form.text("name"), "role": form.text("role")});
    for (field, member) in [("tenant", "tenant"), ("expires_after", "expires_after")] {
        if let Some(value) = form.given(field) {
            body[member] = value.into();
        }
    }
    let made: NewKey = rest_keys::create(call.asking(&[]), Text(body.to_string())).await?.read()?;
    if call.caller.pass.is_none() {
        // It was the first one: whoever has no session cannot look at the list any more, but must see the key.
        let frame = Frame::new(&call, "keys", "Keys").same("punctual key list", "/v1/keys");
        return html(&KeysPage { frame, tables: Vec::new(), new: Some(made), tenants: Vec::new() });
    }
    keys_page(&call, Some(made)).await
}

pub(crate) async fn revoke_key(call: Call, Path(id): Path<String>, Text(_): Text) -> Outcome {
    rest_keys::revoke(call.asking(&[]), Path(id)).await?;
    Ok(go("/console/keys?done=revoked"))
}

pub(crate) async fn tenants(call: Call) -> Outcome {
    let view = View::of(&call);
    let page: Page<Tenant> = rest_tenants::list(call.asking(&[])).await?.read()?;
    let may_choose = call.caller.tenant.is_none();
    let row = |tenant: &Tenant| {
        let deed = (may_choose && *tenant.name != *call.tenant_name).then(|| Deed {
            path: "/console/look".into(),
            name: "tenant",
            value: tenant.name.clone(),
            label: "Look at it".into(),
            is_danger: false,
        });
        let cells = vec![
            Cell::text(&tenant.name),
            Cell::number(shown::number(tenant.pending_runs))
                .under(format!("at most {}", shown::number(tenant.pending_max))),
            Cell::time(Some(view.moment(tenant.created_at)), ""),
        ];
        Row { cells, deed }
    };
    let table = Table {
        columns: columns(&["Tenant", "#Runs that wait", "Since", ""]),
        rows: page.items.iter().map(row).collect(),
        ..Table::default()
    };
    TablePage {
        frame: Frame::new(&call, "tenants", "Tenants").same("punctual tenant list", "/v1/tenants"),
        about: "Each has its own jobs, runs, calendars and alerts, and sees nothing of the others.".into(),
        tables: vec![table],
    }
    .answer()
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    tables: Vec<Table>,
}

/// What this node runs with, as far as it is no secret.
pub(crate) async fn settings(call: Call) -> Outcome {
    let (shared, limits) = (&call.shared, call.shared.limits);
    let fact = |name: &str, value: String| Row::from(vec![Cell::text(name), Cell::mono(value)]);
    let bytes = |count: usize| format!("{} bytes", shown::number(count as u64));
    let version = &shared.version;
    let facts = vec![
        fact("Version", version.version.clone()),
        fact("Commit", version.commit.clone().unwrap_or_else(|| "not known".into())),
        fact("Time zones", version.tzdata.clone().unwrap_or_else(|| "not known".into())),
        fact("Shards", shared.engine.shard_count().to_string()),
        fact(
            "Lease of a worker",
            shown::long(jiff::SignedDuration::try_from(shared.engine.lease()).unwrap_or_default()),
        ),
        fact("Mail", if shared.has_mail { "can be sent".into() } else { "not set up".into() }),
        fact("Body of a request", bytes(limits.body_max)),
        fact("Payload of a job", bytes(limits.payload_max)),
        fact("Body of a bulk request", bytes(limits.bulk_max)),
    ];
    let checks = shared.health.ready();
    let check = |check: &punctual_api::health::Check| {
        let pill = shown::state(if check.is_ok { "active" } else { "failed" });
        let word = if check.is_ok { "fine" } else { "not fine" };
        Row::from(vec![
            Cell::text(&check.name),
            Cell::pill(shown::Pill { word: word.into(), ..pill })
                .under(check.detail.clone().unwrap_or_default()),
        ])
    };
    let tables = vec![
        Table {
            title: "Can it work?".into(),
            columns: columns(&["Check", "State"]),
            rows: checks.iter().map(check).collect(),
            ..Table::default()
        },
        Table {
            title: "This node runs with".into(),
            columns: columns(&["Setting", "Value"]),
            rows: facts,
            ..Table::default()
        },
    ];
    html(&SettingsPage {
        frame: Frame::new(&call, "settings", "Settings").same("punctual --version", "/v1/version"),
        tables,
    })
}
