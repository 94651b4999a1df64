//! The one suite that every store passes.
//!
//! A store's tests call [`conformance!`](crate::conformance!) with a function that runs one case on a
//! fresh store. Store behaviour is tested here and nowhere else; a new rule is a new case.

pub mod alone;
pub mod answer;
pub mod audit;
pub mod backlog;
pub mod batch;
pub mod behind;
pub mod breaker;
pub mod claim;
pub mod complete;
pub mod document;
pub mod ended;
pub mod entrust;
pub mod fire;
pub mod forecast;
pub mod history;
pub mod interrupted;
pub mod lapse;
pub mod limit;
pub mod link;
pub mod message;
pub mod operation;
pub mod overlap;
pub mod papers;
pub mod parts;
pub mod placement;
pub mod queues;
pub mod reclaim;
pub mod register;
pub mod retention;
pub mod straight;
pub mod transfer;
pub mod turns;
mod world;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use world::{World, birth};

use crate::store::Store;

/// A case: a story told to a fresh, empty store with 16 shards.
pub type Case = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// How many shards a store under test is created with.
pub const SHARDS: u16 = 16;

/// All cases, by name.
pub fn cases() -> Vec<(&'static str, Case)> {
    crate::conformance!(@all list)
}

/// Makes a test of every case: `conformance!(run)`, where `run(case: Case)` makes a fresh store,
/// runs the case on it and may look at the store afterwards.
#[macro_export]
macro_rules! conformance {
    ($run:path) => {
        $crate::conformance! { @all tests $run }
    };
    (@all $made:ident $($run:path)?) => {
        $crate::conformance! { @$made $($run)?;
            placement: shards_are_owned_by_one_at_a_time, a_renewed_shard_stays_with_its_owner,
                a_new_owner_fences_the_old_one, a_released_shard_is_free_at_once, a_shard_is_handed_over, a_shard_that_a_dead_node_was_given_is_free_with_it,
                nodes_that_attend_are_live, an_owner_hears_what_others_make_due;
            register: a_job_is_there_when_put_returns, a_put_expects_a_version, a_key_is_unique_in_its_tenant,
                a_deleted_job_frees_its_key_and_is_gone, jobs_are_listed_in_pages, one_bad_put_does_not_spoil_the_others, a_refused_put_leaves_nothing_behind,
                a_request_is_remembered_with_what_it_did, a_trigger_is_remembered_with_its_run,
                a_request_is_remembered_by_itself, a_now_job_gets_its_run_in_the_same_commit, a_now_job_is_born_leased_to_who_waits,
                tenants_are_created_once;
            fire: due_entries_come_in_the_order_of_firing, a_page_of_due_entries_keeps_versions_together,
                a_slot_is_fired_once, firing_needs_the_current_epoch,
                an_edit_makes_the_old_entry_stale,
                an_edit_does_not_bring_back_a_slot_that_was_fired_meanwhile, an_edit_carries_a_slot_that_is_not_fired_yet,
                a_pause_accounts_for_a_slot_that_is_not_fired_yet, a_paused_job_does_not_fire, an_edit_takes_the_old_entry_away, a_slot_may_be_only_accounted_for,
                firing_counts_progress, a_run_may_be_born_running, the_next_due_time_is_told, trigger_needs_a_job;
            forecast: jobs_tell_when_and_where_they_run, only_active_jobs_are_planned,
                due_entries_of_a_second_are_counted_up_to_a_limit;
            claim: runs_are_claimed_in_order, an_edit_may_move_waiting_runs, a_claim_respects_queues_and_limits, a_queue_is_not_held_up_by_another,
                a_run_waits_for_a_worker_that_has_what_it_requires, what_a_run_requires_stays_with_it,
                waiting_runs_are_counted_by_lane, a_run_waits_for_its_time,
                a_run_keeps_the_version_it_was_fired_with, an_edit_may_update_waiting_runs,
                what_is_pulled_is_for_those_who_pull, those_who_pull_are_listed_while_they_live;
            queues: what_waits_and_runs_is_counted_by_queue, what_waits_for_its_time_is_in_no_queue_yet;
            turns: a_tenant_with_very_many_does_not_delay_another, tenants_take_turns, priority_counts_inside_a_tenant,
                lanes_have_their_shares, what_a_lane_leaves_is_lent, queues_and_requirements_have_turns_of_their_own;
            complete: a_success_ends_the_run, a_retry_waits_and_continues_the_attempts, a_stale_result_is_refused,
                an_outcome_is_recorded_once, giving_back_charges_nothing, a_completion_may_bring_the_next_slot,
                runs_that_end_together_bring_one_slot, a_due_entry_may_wait_for_the_open_run,
                a_cancelled_waiting_run_ends, a_running_run_is_asked_to_stop, whoever_asks_whether_to_stop_gives_no_sign_of_life,
                deleting_a_job_cancels_what_waits;
            papers: what_an_attempt_answered_is_kept_with_its_run, a_worker_says_how_far_its_attempt_is,
                a_note_of_somebody_else_is_refused, a_log_keeps_its_newest_lines, a_checkpoint_is_handed_from_attempt_to_attempt,
                a_checkpoint_outlives_a_lost_worker, a_dead_letter_keeps_its_checkpoint, a_checkpoint_ends_with_its_run,
                what_was_said_stays_with_a_run_that_is_cancelled, what_was_said_stays_with_a_dead_letter_that_outlives_its_partition,
                what_was_said_goes_with_its_run, notes_and_ends_at_once_lose_nothing;
            parts: the_parts_of_a_slot_are_runs_of_their_own, a_part_for_one_worker_is_claimed_by_it_alone,
                the_parts_of_a_request_are_born_together_or_not_at_all;
            batch: a_batch_is_kept_with_its_items, every_item_of_a_slot_has_one_run,
                the_end_of_an_operation_brings_its_message;
            alone: a_run_that_was_lost_often_is_claimed_by_who_asks_for_such_runs, a_suspect_is_for_those_it_was_for,
                a_suspect_keeps_to_its_limits, a_suspect_waits_for_its_time_and_a_redriven_one_is_as_any_other;
            reclaim: a_silent_worker_loses_its_runs_after_the_lease, an_attempt_that_is_not_listed_is_released,
                a_dead_worker_stays_dead, an_attempt_is_nobody_elses_for_a_lease,
                a_worker_that_lists_its_attempts_keeps_them;
            entrust: an_entrusted_attempt_is_its_receivers, who_need_not_be_heard_of_has_until_the_end,
                who_must_be_heard_of_keeps_its_attempt_while_it_is, who_is_silent_for_too_long_loses_its_attempt,
                what_an_entrusted_attempt_says_is_kept, a_receiver_hears_that_its_run_is_to_stop;
            lapse: a_run_that_waits_too_long_is_missed, a_late_run_makes_way_for_the_others,
                a_run_with_a_lease_does_not_lapse, a_retry_that_waits_too_long_ends_the_run,
                runs_lapse_in_the_order_of_their_limits, a_lapse_may_bring_the_next_slot, what_has_ended_does_not_lapse,
                an_edit_may_change_when_waiting_runs_lapse;
            answer: a_run_waits_for_its_answer_and_is_tried_again, an_answer_ends_a_run,
                a_run_without_an_answer_is_cancelled_or_lapses, a_run_that_asks_lets_nobody_pass,
                a_run_that_asks_keeps_what_a_retry_keeps, an_answer_is_a_completion, a_run_that_asks_follows_its_job;
            message: a_dead_letter_brings_its_message, what_does_not_die_brings_no_message,
                a_refused_conclusion_brings_no_message, every_death_has_one_message,
                runs_that_die_together_have_a_message_each, a_lapse_that_makes_a_dead_letter_brings_its_message,
                the_message_of_a_deleted_job_is_delivered;
            link: an_end_brings_what_follows_it, what_follows_waits_in_its_own_queue,
                a_run_keeps_its_own_payload_to_its_end, a_payload_is_born_with_its_run, a_link_is_followed_once;
            history: a_run_is_found_by_its_id, runs_are_listed_newest_first_in_pages, filters_narrow_the_list,
                runs_are_found_by_type_queue_and_what_they_wait_for, a_search_examines_a_bounded_number_of_rows,
                the_history_of_a_job_is_its_own, the_history_of_a_tenant_is_its_own, what_outlives_its_retention_stays_its_jobs,
                the_ledger_keeps_ranges, dead_letters_are_redriven_as_the_same_run, dead_letters_are_acknowledged,
                retention_forgets_what_is_old, a_run_that_ends_late_is_kept_as_long_as_any_other,
                ids_follow_time_and_never_repeat;
            operation: an_operation_is_there_when_it_is_started, an_operation_is_started_once_per_request,
                operations_are_listed_newest_first_in_pages, a_step_is_done_once, a_step_needs_the_current_epoch,
                an_ended_operation_takes_no_step, the_longest_waiting_operation_is_next,
                a_step_redrives_with_its_cursor, a_step_acknowledges_with_its_cursor,
                a_step_changes_jobs_with_its_cursor, a_step_cancels_runs_with_its_cursor,
                a_step_gives_birth_with_its_cursor, a_step_accounts_for_slots, a_firing_starts_an_operation,
                ended_operations_are_forgotten;
            document: a_document_is_there_when_put_returns, a_document_is_changed_by_whoever_knows_it,
                a_document_is_made_once, documents_are_listed_in_pages;
            audit: an_entry_is_there_with_its_change, a_refused_change_leaves_no_entry, each_change_of_a_list_has_its_own_entry,
                entries_are_listed_newest_first_and_narrowed, old_entries_are_forgotten;
            overlap: under_allow_runs_run_beside_each_other, under_skip_slots_get_no_run_while_one_is_open,
                under_queue_one_a_single_run_waits, under_queue_all_runs_wait_oldest_slot_first,
                under_cancel_running_the_new_run_takes_the_place_of_others, a_retry_lets_nobody_pass,
                a_cancelled_run_lets_the_next_go_on, a_lost_run_holds_the_next_until_it_is_reclaimed,
                a_redriven_run_waits_for_its_turn, an_edit_of_the_policy_keeps_or_releases_what_waits,
                an_edit_finds_the_runs_that_are_open, deleting_a_job_cancels_what_waits_for_an_earlier_run,
                a_pause_keeps_what_waits, a_trigger_is_refused_where_there_is_no_place,
                a_step_waits_for_room_or_counts_what_it_skips, a_slot_is_accounted_for_once,
                a_slot_without_a_run_is_no_fire, runs_that_end_together_let_one_go_on,
                births_and_ends_at_once_leave_nobody_behind;
            behind: a_run_lapses_while_it_waits_for_an_earlier_one, a_lapse_lets_the_next_go_on,
                runs_that_lapse_together_let_one_go_on, what_was_missed_is_over_for_the_next_slot,
                a_retry_that_lapses_lets_the_next_go_on, a_retry_that_waits_makes_way_for_a_newer_run,
                a_lapse_goes_on_while_the_job_is_paused, the_time_of_a_backfill_begins_with_its_turn,
                the_time_of_a_redriven_run_begins_with_its_turn, an_edit_gives_limits_to_runs_that_wait;
            limit: no_more_than_are_allowed_go_on_at_once, a_limit_of_one_is_strict_order_by_slot,
                a_retry_that_holds_lets_nobody_pass, a_retry_that_does_not_hold_gets_in_line_again,
                a_run_passes_all_its_limits_narrow_ones_first, every_end_gives_its_permits_back,
                a_dead_workers_permits_come_back, a_rate_is_kept_over_time, a_burst_comes_after_a_quiet_time,
                a_rule_counts_as_soon_as_it_is_changed, a_run_whose_gates_are_open_is_born_running,
                a_cancelled_run_leaves_its_line, a_redriven_run_gets_in_line, an_edit_may_give_waiting_runs_other_limits,
                a_run_comes_to_its_gates_with_its_time, overlap_comes_before_limits, a_step_gives_birth_into_lines,
                urgent_runs_stand_before_others, births_and_ends_at_once_keep_the_limit;
            breaker: a_claimed_run_is_put_back_into_the_line_of_a_breaker, a_run_that_is_put_back_gives_back_what_it_held,
                a_retry_may_get_other_limits, a_breaker_is_a_rule;
            backlog: runs_that_wait_are_counted_by_tenant, whatever_a_run_waits_for_it_is_counted,
                a_slot_over_a_cap_is_accounted_for, a_run_that_may_not_wait_is_born_running_or_not_at_all,
                a_throttled_slot_is_no_fire;
            straight: a_batch_of_firings_passes_its_gates, firings_and_ends_at_once_keep_the_limit;
            ended: a_job_that_is_over_goes_with_its_history, a_now_job_goes_too, an_open_run_keeps_its_job,
                a_dead_letter_keeps_its_job, a_later_run_keeps_its_job, a_job_that_was_changed_since_stays,
                a_deleted_job_goes_with_its_history, a_deleted_job_is_kept_with_what_it_was, a_period_from_completion_is_over_when_its_last_run_says_so;
            retention: successes_go_after_a_day_where_failures_are_kept, a_redriven_failure_that_succeeds_is_kept_as_a_success,
                a_job_goes_with_a_failure_that_was_mended, a_late_failure_is_kept_for_its_class, an_edit_of_what_is_kept_counts_for_what_is_born_later,
                a_job_that_keeps_failures_goes_with_its_last_run, a_list_may_be_limited_to_the_newest_runs_of_a_job;
        }
    };
    (@list; $($file:ident: $($case:ident),+;)+) => {
        vec![$($({
            let case: $crate::conformance::Case = |store| Box::pin($crate::conformance::$file::$case(store));
            (stringify!($case), case)
        },)+)+]
    };
    (@tests $run:path; $($file:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $run(|store| Box::pin($crate::conformance::$file::$case(store)));
            }
        )+)+
    };
}
