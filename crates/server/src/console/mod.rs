//! The console: pages for people.
//!
//! Every page is a row of [`PAGES`]. A request passes [`gate`](gate::gate), which knows who looks, and a handler in the file of its page.
//! What a page shows it asks of the handlers of REST, in the process, and what it changes too; templates are in `templates/`, what
//! browsers keep is in `assets/`. Promise: a page shows nothing that REST would not show to the same caller, reads no more than a page of
//! anything, and works without JavaScript. See decision 46.

mod assets;
mod dead_letters;
mod draw;
mod edit_job;
mod find;
mod fleet;
mod forecast;
mod form;
mod frame;
mod gate;
mod job;
mod jobs;
mod live;
mod new_job;
mod overview;
mod run;
mod runs;
mod setup;
mod shown;
mod sign;
mod table;

use axum::routing::{get, post};

pub(crate) use gate::gate;

use crate::access::Needs;
use crate::query::Param;
use crate::routes::{Endpoint, on, param};

/// Where the console is.
pub(crate) const HOME: &str = "/console";

const DONE: Param = param("done", "What was just done, as a word of ours.");
const CURSOR: Param = param("cursor", "Where the list goes on.");

const JOBS: &[Param] = &[
    param("name", "Jobs with this text in their names."),
    param("state", "`active`, `paused` or `ended`."),
    param("label", "`name=value`."),
    param("queue", "In this queue."),
    param("type", "Of this type."),
    param("key_prefix", "Jobs with keys that begin like this."),
    CURSOR,
    DONE,
];
const JOB: &[Param] = &[param("at", "The time that is asked about."), CURSOR, DONE];
const RUNS: &[Param] = &[
    param("state", "Runs in this state."),
    param("waiting_for", "Pending runs that wait for it."),
    param("dead", "`true`: dead letters only."),
    param("queue", "In this queue."),
    param("type", "Of this type."),
    param("job", "Of this job."),
    CURSOR,
];
const DEAD: &[Param] = &[param("error", "With this error."), param("job", "Of this job."), CURSOR, DONE];
const LIST: &[Param] = &[CURSOR, DONE];
const FIND: &[Param] = &[param("q", "What is looked for.")];
const LIVE: &[Param] = &[param("of", "What the page is about.")];
const SIGN_IN: &[Param] = &[param("to", "Where to go afterwards.")];
const NEW_JOB: &[Param] = &[param("from", "The job that is copied.")];

/// Every page and every form.
pub static PAGES: &[Endpoint] = &[
    on("GET", "/", Needs::Nothing, "Goes to the console").by(|| get(sign::home)),
    on("GET", "/console/assets/{name}", Needs::Nothing, "Gives a style sheet or a script")
        .by(|| get(assets::get)),
    on("GET", "/console/sign-in", Needs::Nothing, "Asks for a key").query(SIGN_IN).by(|| get(sign::page)),
    on("POST", "/console/sign-in", Needs::Nothing, "Begins a session").by(|| post(sign::sign_in)),
    on("POST", "/console/sign-out", Needs::Nothing, "Ends a session").by(|| post(sign::sign_out)),
    on("POST", "/console/look", Needs::Viewer, "Chooses the tenant and the zone that are shown")
        .by(|| post(sign::look)),
    on("GET", "/console", Needs::Viewer, "Is everything on time? What failed? What comes?")
        .query(&[DONE])
        .by(|| get(overview::page)),
    on("GET", "/console/live", Needs::Viewer, "Says when a page has changed")
        .query(LIVE)
        .by(|| get(live::stream)),
    on("GET", "/console/find", Needs::Viewer, "Finds jobs, runs and pages")
        .query(FIND)
        .by(|| get(find::page)),
    on("GET", "/console/jobs", Needs::Viewer, "Finds jobs").query(JOBS).by(|| get(jobs::page)),
    on("POST", "/console/jobs", Needs::Operator, "Registers a job, or shows what it would do")
        .by(|| post(new_job::create)),
    on("POST", "/console/jobs/bulk", Needs::Operator, "Pauses, resumes or deletes all jobs of a filter")
        .by(|| post(jobs::many)),
    on("GET", "/console/new-job", Needs::Operator, "Asks for a new job")
        .query(NEW_JOB)
        .by(|| get(new_job::page)),
    on("GET", "/console/jobs/{id}", Needs::Viewer, "Shows a job").query(JOB).by(|| get(job::page)),
    on("GET", "/console/jobs/{id}/edit", Needs::Operator, "Asks how a job is to change")
        .by(|| get(edit_job::page)),
    on("POST", "/console/jobs/{id}/edit", Needs::Operator, "Changes a job, or shows what would change")
        .by(|| post(edit_job::save)),
    on("POST", "/console/jobs/{id}/pause", Needs::Operator, "Pauses a job").by(|| post(job::pause)),
    on("POST", "/console/jobs/{id}/resume", Needs::Operator, "Resumes a job").by(|| post(job::resume)),
    on("POST", "/console/jobs/{id}/trigger", Needs::Operator, "Runs a job now").by(|| post(job::trigger)),
    on("POST", "/console/jobs/{id}/delete", Needs::Operator, "Deletes a job").by(|| post(job::delete)),
    on("GET", "/console/runs", Needs::Viewer, "Lists runs").query(RUNS).by(|| get(runs::page)),
    on("GET", "/console/runs/{id}", Needs::Viewer, "Shows a run").query(&[DONE]).by(|| get(run::page)),
    on(
        "POST",
        "/console/runs/{id}/{deed}",
        Needs::Operator,
        "Cancels, redrives, acknowledges or answers for a run",
    )
    .by(|| post(run::act)),
    on("GET", "/console/dead-letters", Needs::Viewer, "Groups dead letters by error")
        .query(DEAD)
        .by(|| get(dead_letters::page)),
    on("POST", "/console/dead-letters/{deed}", Needs::Operator, "Redrives or acknowledges dead letters")
        .by(|| post(dead_letters::act)),
    on("GET", "/console/forecast", Needs::Viewer, "Shows how many slots are planned")
        .by(|| get(forecast::page)),
    on("GET", "/console/queues", Needs::Viewer, "Shows what waits and runs").by(|| get(fleet::queues)),
    on("GET", "/console/workers", Needs::Viewer, "Shows workers that pull and live")
        .by(|| get(fleet::workers)),
    on("GET", "/console/nodes", Needs::Admin, "Shows nodes, and who owns the shards")
        .for_all()
        .by(|| get(fleet::nodes)),
    on("GET", "/console/operations", Needs::Viewer, "Shows long work over many jobs or runs")
        .query(LIST)
        .by(|| get(fleet::operations)),
    on("GET", "/console/calendars", Needs::Viewer, "Lists calendars")
        .query(LIST)
        .by(|| get(setup::calendars)),
    on("GET", "/console/alerts", Needs::Viewer, "Lists alerts, and what is raised")
        .query(LIST)
        .by(|| get(setup::alerts)),
    on("GET", "/console/keys", Needs::Admin, "Lists keys").query(LIST).by(|| get(setup::keys)),
    on("POST", "/console/keys", Needs::Admin, "Creates a key, and shows it this once")
        .by(|| post(setup::create_key)),
    on("POST", "/console/keys/{id}/revoke", Needs::Admin, "Revokes a key").by(|| post(setup::revoke_key)),
    on("GET", "/console/tenants", Needs::Admin, "Lists tenants").query(LIST).by(|| get(setup::tenants)),
    on("GET", "/console/settings", Needs::Viewer, "Shows what this node runs with")
        .query(LIST)
        .by(|| get(setup::settings)),
    on("GET", "/console/{*rest}", Needs::Viewer, "Says that there is no such page").by(|| get(sign::nothing)),
];
