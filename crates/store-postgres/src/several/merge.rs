//! Answers of several databases as one.

use std::cmp::Reverse;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::policy::backlog::Pending;
use punctual_store::{Due, DuePage, Error, Figures, Lapsed, Page, Runnable};

/// Pages in ascending order of their cursors, as one.
///
/// A page that has more says up to where it is complete; beyond that, what others have must wait for the next page.
pub(super) fn ascending<T, C: Copy + Ord>(
    pages: Vec<Page<T, C>>,
    cursor: impl Fn(&T) -> C,
    limit: usize,
) -> Page<T, C> {
    let complete_to = pages.iter().filter_map(|page| page.next).min();
    let mut items: Vec<T> = pages.into_iter().flat_map(|page| page.items).collect();
    items.retain(|item| complete_to.is_none_or(|bound| cursor(item) <= bound));
    items.sort_by_key(&cursor);
    let next = match items.len() > limit {
        true => {
            items.truncate(limit);
            items.last().map(&cursor)
        }
        false => complete_to,
    };
    Page { items, next }
}

/// Pages in descending order of their cursors, as one.
pub(super) fn descending<T, C: Copy + Ord>(
    pages: Vec<Page<T, C>>,
    cursor: impl Fn(&T) -> C,
    limit: usize,
) -> Page<T, C> {
    let turn = |page: Page<T, C>| Page { items: page.items, next: page.next.map(Reverse) };
    let page = ascending(pages.into_iter().map(turn).collect(), |item| Reverse(cursor(item)), limit);
    Page { items: page.items, next: page.next.map(|Reverse(next)| next) }
}

/// Due entries in the order of firing.
pub(super) fn due(pages: Vec<DuePage>, until: Timestamp, limit: usize) -> DuePage {
    let mut next_at = pages.iter().filter_map(|page| page.next_at).min();
    // A page that has more may have it right after its last entry.
    let has_more = |page: &&DuePage| page.next_at.is_some_and(|at| at <= until);
    let complete_to =
        pages.iter().filter(has_more).filter_map(|page| page.entries.last().map(|due| due.key)).min();
    let mut entries: Vec<Due> = pages.into_iter().flat_map(|page| page.entries).collect();
    entries.sort_by_key(|due| (due.key, due.version));
    let known = entries.iter().take_while(|due| complete_to.is_none_or(|bound| due.key <= bound)).count();
    // Entries for several versions of a job are not torn apart: the next page begins after their key.
    let mut cut = known.min(limit);
    while cut > 0 && cut < known && entries[cut].key == entries[cut - 1].key {
        cut += 1;
    }
    let rest = entries.split_off(cut);
    if let Some(first) = rest.first() {
        next_at = Some(next_at.map_or(first.key.at, |at| at.min(first.key.at)));
    }
    DuePage { entries, next_at }
}

/// Operations to go on with, the longest waiting first.
pub(super) fn runnable(answers: Vec<Runnable>, limit: usize) -> Runnable {
    let mut next_at = answers.iter().filter_map(|answer| answer.next_at).min();
    let mut operations: Vec<_> = answers.into_iter().flat_map(|answer| answer.operations).collect();
    operations.sort_by_key(|operation| (operation.resume_at, operation.id));
    if let Some(first) = operations.get(limit) {
        next_at = Some(next_at.map_or(first.resume_at, |at| at.min(first.resume_at)));
        operations.truncate(limit);
    }
    Runnable { operations, next_at }
}

/// Runs that may not start any more, the longest overdue first.
pub(super) fn lapsed(answers: Vec<Lapsed>, limit: usize) -> Lapsed {
    let mut next_at = answers.iter().filter_map(|answer| answer.next_at).min();
    let mut runs: Vec<_> = answers.into_iter().flat_map(|answer| answer.runs).collect();
    runs.sort_by_key(|run| (run.lapses_after(), run.sequence));
    if let Some(first) = runs.get(limit).and_then(Run::lapses_after) {
        next_at = Some(next_at.map_or(first, |at| at.min(first)));
        runs.truncate(limit);
    }
    Lapsed { runs, next_at }
}

/// What all of them have counted.
pub(super) fn figures(all: impl Iterator<Item = Figures>) -> Figures {
    all.fold(Figures::default(), Figures::plus)
}

/// What waits in all of them. Of a tenant that is in several, most may be a little less than there are.
pub(super) fn pending(answers: Vec<Result<Pending, Error>>) -> Result<Pending, Error> {
    let is_silent = answers.iter().all(Result::is_err);
    let mut sum = Pending::default();
    for answer in answers {
        match answer {
            Ok(pending) => sum = sum.plus(pending),
            Err(error) if is_silent => return Err(error),
            Err(_) => {}
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use punctual_domain::id::{JobId, ShardId, TenantId, Version};
    use punctual_domain::job::Lane;
    use punctual_store::DueKey;

    use super::*;

    fn page(items: &[i32], next: Option<i32>) -> Page<i32, i32> {
        Page { items: items.to_vec(), next }
    }

    #[test]
    fn pages_are_in_order_and_stop_where_one_of_them_is_not_known_to_go_on() {
        let merged = ascending(vec![page(&[1, 4, 6], None), page(&[2, 3], None)], |item| *item, 10);
        assert_eq!(merged, page(&[1, 2, 3, 4, 6], None));
        let merged = ascending(vec![page(&[1, 4, 6], None), page(&[2, 3], Some(3))], |item| *item, 10);
        assert_eq!(merged, page(&[1, 2, 3], Some(3)), "5 may follow 3 in the second");
        let merged = ascending(vec![page(&[1, 4], Some(4)), page(&[], Some(2))], |item| *item, 10);
        assert_eq!(merged, page(&[1], Some(2)), "nothing was found up to 2");
        let merged = ascending(vec![page(&[1, 4], None), page(&[2, 3], None)], |item| *item, 2);
        assert_eq!(merged, page(&[1, 2], Some(2)));
        let merged = descending(vec![page(&[9, 4], Some(4)), page(&[8, 2], None)], |item| *item, 10);
        assert_eq!(merged, page(&[9, 8, 4], Some(4)));
    }

    /// Every list that is read page by page through the merge is the whole list.
    #[test]
    fn all_items_of_all_lists_are_met_once() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let lists: Vec<Vec<i32>> = (0..3)
                .map(|list| (0..rng.i32(0..12)).map(|_| rng.i32(0..40) * 3 + list).collect::<Vec<_>>())
                .map(|mut list| {
                    list.sort_unstable();
                    list.dedup();
                    list
                })
                .collect();
            let mut all: Vec<i32> = lists.concat();
            all.sort_unstable();
            let limit = rng.usize(1..6);
            let (mut met, mut after) = (Vec::new(), None);
            loop {
                let read = |list: &Vec<i32>| {
                    let rest: Vec<i32> =
                        list.iter().copied().filter(|item| after.is_none_or(|after| *item > after)).collect();
                    let items: Vec<i32> = rest.iter().copied().take(limit).collect();
                    let next = if rest.len() > limit { items.last().copied() } else { None };
                    Page { items, next }
                };
                let merged = ascending(lists.iter().map(read).collect(), |item| *item, limit);
                assert!(merged.items.len() <= limit);
                met.extend(merged.items);
                match merged.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(met, all);
        }
    }

    #[test]
    fn due_entries_are_fired_in_order_over_all_databases() {
        let entry = |second: i64, shard: u16| {
            let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
            let job = JobId::new(at, ShardId(shard), 1);
            let key = DueKey { at, lane: Lane::default(), tenant: TenantId::DEFAULT, job };
            Due { key, version: Version::FIRST, slot: at }
        };
        let at = |second: i64| Some(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second));
        let one = DuePage { entries: vec![entry(1, 0), entry(5, 0)], next_at: at(6) };
        let other = DuePage { entries: vec![entry(2, 1)], next_at: at(90) };
        let until = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(60);
        let merged = due(vec![one.clone(), other.clone()], until, 2);
        assert_eq!((merged.entries, merged.next_at), (vec![entry(1, 0), entry(2, 1)], at(5)));
        let merged = due(vec![one, other], until, 9);
        assert_eq!((merged.entries.len(), merged.next_at), (3, at(6)));
        let short = DuePage { entries: vec![entry(1, 0)], next_at: at(1) };
        let other = DuePage { entries: vec![entry(2, 1)], next_at: None };
        let merged = due(vec![short, other], until, 9);
        assert_eq!((merged.entries, merged.next_at), (vec![entry(1, 0)], at(1)), "more may be due before 2");
    }
}
