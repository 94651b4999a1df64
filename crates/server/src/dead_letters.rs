//! Dead letters: listed, grouped by error; redriven or acknowledged, by id at once, or by filter as an operation.

use punctual_api::dead_letter::{
    DeadLetterGroup, DeadLetterGroups, Filter, Selection, SelectionItem, SelectionResult,
};
use punctual_api::limits::RUNS_MAX;
use punctual_api::page::Page;
use punctual_api::read::{self, At, Errors};
use punctual_domain::operation::{DeadLetters, Kind};
use punctual_domain::{JobId, RunId};
use punctual_engine::Error as EngineError;
use punctual_engine::dead_letters::DeadFilter;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::shorten;
use crate::once::once;
use crate::{operations, runs};

type Outcome = Result<Answer, Error>;

/// What is done to each run.
#[derive(Clone, Copy)]
enum Deed {
    Redrive,
    Acknowledge,
}

pub(crate) async fn redrive(call: Call, text: Text) -> Outcome {
    treat(call, text, Deed::Redrive).await
}

pub(crate) async fn acknowledge(call: Call, text: Text) -> Outcome {
    treat(call, text, Deed::Acknowledge).await
}

async fn treat(call: Call, Text(text): Text, deed: Deed) -> Outcome {
    call.query.check()?;
    let selection: Selection = read::read(&text)?;
    match (selection.runs, selection.filter) {
        (Some(ids), None) if ids.is_empty() || ids.len() > RUNS_MAX => {
            let detail = format!("name 1 to {RUNS_MAX} runs; for more use `filter`");
            Err(Error::wrong("/runs", "out_of_range", detail))
        }
        (Some(ids), None) => once(&call, &text, by_ids(&call, ids, deed)).await,
        (None, Some(filter)) => {
            let which = dead_letters(&filter)?;
            let kind = match deed {
                Deed::Redrive => Kind::Redrive(which),
                Deed::Acknowledge => Kind::Acknowledge(which),
            };
            operations::start(&call, &text, kind).await
        }
        _ => Err(Error::wrong(
            "",
            "conflict",
            "write one of `runs` and `filter`; `{\"filter\":{}}` is all of them",
        )),
    }
}

async fn by_ids(call: &Call, ids: Vec<String>, deed: Deed) -> Outcome {
    let mut items: Vec<SelectionItem> = Vec::with_capacity(ids.len());
    let (mut known, mut places): (Vec<RunId>, Vec<usize>) = (Vec::new(), Vec::new());
    for (place, id) in ids.into_iter().enumerate() {
        let mut item = SelectionItem { id: shorten(&id), run: None, problem: None };
        match id.parse() {
            Ok(id) => {
                known.push(id);
                places.push(place);
            }
            Err(_) => item.problem = Some(Error::from(EngineError::RunNotFound(item.id.clone())).problem()),
        }
        items.push(item);
    }
    match deed {
        Deed::Redrive => {
            let answers = call.acting().redrive(call.tenant, &known).await?;
            for (place, answer) in places.into_iter().zip(answers) {
                match answer {
                    Ok(run) => items[place].run = runs::summaries(call, &[run]).await?.into_iter().next(),
                    Err(error) => items[place].problem = Some(Error::from(error).problem()),
                }
            }
        }
        Deed::Acknowledge => {
            let answers = call.acting().acknowledge(call.tenant, &known).await?;
            for (place, answer) in places.into_iter().zip(answers) {
                items[place].problem = answer.err().map(|error| Error::from(error).problem());
            }
        }
    }
    let failed = items.iter().filter(|item| item.problem.is_some()).count() as u64;
    Ok(Answer::ok(&SelectionResult { done: items.len() as u64 - failed, failed, items }))
}

/// A filter as an operation has it.
fn dead_letters(filter: &Filter) -> Result<DeadLetters, Error> {
    let mut errors = Errors::default();
    let at = At::ROOT.member("filter");
    let job = filter.job.as_ref().and_then(|id| {
        let parsed = id.parse::<JobId>();
        parsed.map_err(|error| errors.add(&at.member("job"), "wrong_type", error.to_string())).ok()
    });
    let born_from = filter.from.as_ref().and_then(|time| time.instant(&at.member("from"), &mut errors));
    let born_before = filter.to.as_ref().and_then(|time| time.instant(&at.member("to"), &mut errors));
    let label = filter.label.as_deref().and_then(|text| {
        let label = split_label(text);
        if label.is_none() {
            errors.add(&at.member("label"), "wrong_type", "write a label as `name=value`");
        }
        label
    });
    if !errors.is_empty() {
        return Err(Error::Wrong(errors.into_vec()));
    }
    Ok(DeadLetters {
        job,
        kind: filter.r#type.as_deref().map(Into::into),
        queue: filter.queue.as_deref().map(Into::into),
        born_from,
        born_before,
        error: filter.error.as_deref().map(Into::into),
        label,
    })
}

/// `name=value`.
fn split_label(text: &str) -> Option<(String, String)> {
    text.split_once('=').map(|(name, value)| (name.to_string(), value.to_string()))
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let filter = filter(&mut call).await?;
    let page = call.query.page();
    call.query.check()?;
    let page = call.shared.engine.dead_letters(&filter, page).await?;
    let items = runs::summaries(&call, &page.items).await?;
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}

pub(crate) async fn groups(mut call: Call) -> Outcome {
    let filter = filter(&mut call).await?;
    let after = call.query.page().after;
    call.query.check()?;
    let found = call.shared.engine.dead_letter_groups(&filter, after).await?;
    let items = found.groups.into_iter().map(|group| DeadLetterGroup {
        error: group.code,
        status: group.status,
        message: group.message,
        count: group.count,
        jobs: group.jobs,
        first_at: group.first_at,
        last_at: group.last_at,
        example_run_id: group.example.to_string(),
    });
    Ok(Answer::ok(&DeadLetterGroups {
        items: items.collect(),
        examined: found.examined,
        is_complete: found.next.is_none(),
        next_cursor: found.next.map(|next| next.encode()),
    }))
}

/// What dead letters are narrowed by.
async fn filter(call: &mut Call) -> Result<DeadFilter, Error> {
    let mut filter = runs::filter(call);
    if let Some(name) = call.query.text("tenant").map(str::to_string) {
        filter.tenant = runs::named_tenant(call, &name).await?;
    }
    let label = call.query.text("label").map(|text| {
        split_label(text).ok_or_else(|| Error::wrong("label", "wrong_type", "write a label as `name=value`"))
    });
    Ok(DeadFilter {
        runs: filter,
        error: call.query.text("error").map(Into::into),
        label: label.transpose()?,
    })
}
