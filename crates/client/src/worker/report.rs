//! Results on their way to the server.
//!
//! Promise: a result is reported until the server has taken it, or says that its attempt is not held any more. Only one that no server
//! takes is told as a failure, and only it: those beside it are sent without it. Before an attempt that has a next one is reported, the server
//! knows where that goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_api::worker::{AttemptResult, ResultTaken, Results, ResultsTaken};
use tokio::sync::{mpsc, watch};

use super::beat::tell_checkpoints;
use super::{Failed, Key, PAUSE, PAUSE_MAX, Shared, Stop, failed, is_lost, is_refusal, lock};
use crate::error::Error;

/// Results of one request.
const BATCH: usize = 500;

/// Bytes that results of one request say, more or less: half of what a server takes.
const BATCH_BYTES: usize = 4 << 20;

/// The code of a result that was refused.
const REFUSED: &str = "result_refused";

/// Reports in batches, each until it is delivered.
pub(super) async fn report(
    shared: Arc<Shared>,
    mut results: mpsc::UnboundedReceiver<(String, AttemptResult)>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            _ = results.recv_many(&mut batch, BATCH) => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
        let delivering = async {
            for (worker, results) in parts(batch.drain(..)) {
                deliver(&shared, &worker, results).await;
            }
        };
        tokio::select! {
            () = delivering => {}
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
    }
}

/// What one request takes, each of one life: results of two in one batch happen once in a worker's life.
fn parts(batch: impl Iterator<Item = (String, AttemptResult)>) -> Vec<(String, Vec<AttemptResult>)> {
    let mut lives: BTreeMap<String, Vec<(usize, Vec<AttemptResult>)>> = BTreeMap::new();
    for (worker, result) in batch {
        let lines = result.log.iter().flatten().map(String::len).sum::<usize>();
        let bytes = lines + result.output.as_ref().map_or(0, String::len);
        let parts = lives.entry(worker).or_default();
        match parts.last_mut().filter(|(before, _)| before + bytes <= BATCH_BYTES) {
            Some((before, part)) => {
                *before += bytes;
                part.push(result);
            }
            None => parts.push((bytes, vec![result])),
        }
    }
    let parts = lives
        .into_iter()
        .flat_map(|(worker, parts)| parts.into_iter().map(move |part| (worker.clone(), part)));
    parts.map(|(worker, (_, results))| (worker, results)).collect()
}

/// Reports until the server has taken what it takes. One request at first; if that is refused for what it says, one for each result.
async fn deliver(shared: &Shared, worker: &str, results: Vec<AttemptResult>) {
    let mut waiting = vec![results];
    while let Some(results) = waiting.pop() {
        match deliver_part(shared, worker, results).await {
            Part::Over => {}
            Part::Refused(mut results, error) => match results.pop() {
                Some(only) if results.is_empty() => match lessened(only, &error) {
                    Ok(less) => waiting.push(vec![less]),
                    Err(key) => shared.let_go(&key),
                },
                last => waiting.extend(last.into_iter().chain(results).map(|one| vec![one])),
            },
        }
    }
}

/// What became of a request.
enum Part {
    /// Nothing of it is left to report.
    Over,
    /// It is refused for what it says.
    Refused(Vec<AttemptResult>, Error),
}

async fn deliver_part(shared: &Shared, worker: &str, mut results: Vec<AttemptResult>) -> Part {
    let mut pause = PAUSE;
    loop {
        // What was lost with the identity has no one to report it.
        results.retain(|result| key(result).is_some_and(|key| lock(&shared.held).contains_key(&key)));
        if results.is_empty() {
            return Part::Over;
        }
        let (answer, sent) = send(shared, worker, results).await;
        results = sent;
        match answer {
            Ok(None) => {}
            Ok(Some(taken)) => results = left(shared, results, &taken.results),
            Err(error) if is_lost(&error) => {
                shared.begin_anew(worker);
                results.iter().filter_map(key).for_each(|key| shared.let_go(&key));
                return Part::Over;
            }
            Err(error) if is_refusal(&error) => return Part::Refused(results, error),
            // A key may be renewed, a server come back: the work is done, and waits for it.
            Err(_) => {}
        }
        if !results.is_empty() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Sends results, unless what has to be known before them cannot be told now.
async fn send(
    shared: &Shared,
    worker: &str,
    results: Vec<AttemptResult>,
) -> (Result<Option<ResultsTaken>, Error>, Vec<AttemptResult>) {
    let has_next = |result: &&AttemptResult| {
        matches!(result.outcome.as_deref(), Some("failed" | "timed_out" | "released"))
    };
    let ended: Vec<Key> = results.iter().filter(has_next).filter_map(key).collect();
    if !ended.is_empty() && !tell_checkpoints(shared, worker, &ended).await {
        return (Ok(None), results);
    }
    let request = Results { results: Some(results) };
    let answer = shared.link.report(worker, &request).await;
    (answer.map(Some), request.results.unwrap_or_default())
}

/// Lets go of what was taken, or is not held any more; what was not taken for now is left.
fn left(shared: &Shared, results: Vec<AttemptResult>, answers: &[ResultTaken]) -> Vec<AttemptResult> {
    let is_put_off = |answer: Option<&ResultTaken>| {
        answer.and_then(|answer| answer.problem.as_ref()).is_some_and(|problem| problem.status >= 500)
    };
    let mut left = Vec::new();
    for (index, result) in results.into_iter().enumerate() {
        match (is_put_off(answers.get(index)), key(&result)) {
            (false, Some(key)) => shared.let_go(&key),
            _ => left.push(result),
        }
    }
    left
}

/// A result that was refused alone, with less in it: without its log, then as a failure for good, so that its work is not done again to
/// be refused again. Nothing is left after that.
fn lessened(result: AttemptResult, error: &Error) -> Result<AttemptResult, Key> {
    let AttemptResult { run_id, attempt, .. } = result.clone();
    if result.log.is_some() {
        return Ok(AttemptResult { log: None, ..result });
    }
    if result.error.as_ref().is_some_and(|error| error.code.as_deref() == Some(REFUSED)) {
        return Err((run_id.unwrap_or_default(), attempt.unwrap_or_default()));
    }
    let refused = failed("failed", Failed::for_good(error.to_string()).code(REFUSED));
    Ok(AttemptResult { run_id, attempt, ..refused })
}

fn key(result: &AttemptResult) -> Option<Key> {
    Some((result.run_id.clone()?, result.attempt?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(output: usize) -> AttemptResult {
        AttemptResult { output: Some("x".repeat(output)), ..AttemptResult::default() }
    }

    #[test]
    fn a_request_has_results_of_one_life_and_no_more_than_a_server_reads() {
        let half = BATCH_BYTES / 2;
        let batch =
            [("a", half), ("b", 1), ("a", half), ("a", 1), ("b", 1), ("a", 2 * BATCH_BYTES), ("a", 1)];
        let parts = parts(batch.into_iter().map(|(worker, output)| (worker.to_string(), result(output))));
        let lengths: Vec<(&str, usize)> =
            parts.iter().map(|(worker, part)| (worker.as_str(), part.len())).collect();
        assert_eq!(lengths, [("a", 2), ("a", 1), ("a", 1), ("a", 1), ("b", 2)]);
    }
}
