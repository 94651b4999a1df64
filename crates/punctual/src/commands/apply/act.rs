//! Does what was planned, step by step.
//!
//! What has a version is changed, paused or resumed only if it still has the one that the plan saw (`If-Match`). Alerts, limits and defaults are
//! read again right before, which leaves a moment. One refusal does not keep others from being done, but for what rests on it: without its
//! defaults and calendars no job is changed, and nothing is deleted unless everything else was done. What was not done is told.

use futures_util::{StreamExt, stream};
use punctual_api::Time;
use punctual_api::job::Pause;
use punctual_client::Error;

use super::look::{AT_ONCE, Here};
use super::plan::{Action, Plan, Step};
use super::wanted::{Kind, Wanted, told};
use crate::document::{Node, Value};
use crate::failure::Failure;

impl Here<'_> {
    /// Does all of it, or tells everything that was refused.
    pub(super) async fn act(&self, plan: &Plan) -> Result<(), Failure> {
        let (mut refused, mut first, mut done, mut undone) = (Vec::new(), None, 0, 0);
        let mut is_over = false;
        for wave in plan.waves() {
            let is_deletion = wave.first().is_some_and(|step| step.action == Action::Delete);
            if is_over || is_deletion && !refused.is_empty() {
                undone += wave.iter().filter(|step| step.action != Action::Keep).count();
                continue;
            }
            // What is written at once shares commits of the server.
            let mut answers = stream::iter(wave).map(|step| self.step(step)).buffered(AT_ONCE);
            let mut steps = wave.iter();
            while let (Some(answer), Some(step)) = (answers.next().await, steps.next()) {
                match answer {
                    Ok(()) => done += usize::from(step.action != Action::Keep),
                    Err(failure) => {
                        // Jobs rest on these; and who is out of reach is not asked a thousand times.
                        is_over |= matches!(step.kind, Kind::Defaults | Kind::Calendar) || is_away(&failure);
                        refused.push(placed(step, &failure));
                        first.get_or_insert(failure);
                    }
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let mut message = format!("{} could not be applied\n  {}", refused.len(), refused.join("\n  "));
        if undone > 0 {
            message.push_str(&format!(
                "\n{undone} more were not tried, because they rest on these; apply again"
            ));
        }
        Err(match first {
            Failure::Input(_) => Failure::Input(message),
            Failure::NotFound(_) => Failure::NotFound(message),
            Failure::Conflict(_) => Failure::Conflict(message),
            // It means that nothing was sent.
            Failure::Unreachable(_) if done == 0 => Failure::Unreachable(message),
            Failure::Unreachable(_) | Failure::Different | Failure::Other(_) => {
                Failure::Other(anyhow::anyhow!("{message}\n{done} were applied before"))
            }
        })
    }

    async fn step(&self, step: &Step) -> Result<(), Failure> {
        match (&step.action, &step.wanted) {
            (Action::Keep, _) => Ok(()),
            (Action::Delete, _) => self.delete(step).await,
            (Action::Create | Action::Change(_), Some(wanted)) => self.put(step, wanted).await,
            (Action::Create | Action::Change(_), None) => Ok(()),
        }
    }

    async fn delete(&self, step: &Step) -> Result<(), Failure> {
        let Some(current) = &step.current else { return Ok(()) };
        let id = current.id.as_deref().unwrap_or_default();
        self.client.delete_job(id, current.version).await.map_err(refused)
    }

    async fn put(&self, step: &Step, wanted: &Wanted) -> Result<(), Failure> {
        let version = step.current.as_ref().and_then(|current| current.version);
        let (client, name) = (self.client, wanted.name.as_str());
        match wanted.kind {
            Kind::Job => self.put_job(step, wanted).await,
            Kind::Calendar => {
                if version.is_none() {
                    self.unchanged(step).await?;
                }
                client.put_calendar(name, &*wanted.sent, version).await.map_err(refused)?;
                Ok(())
            }
            Kind::Defaults => {
                self.unchanged(step).await?;
                client.put_defaults(self.tenant, &*wanted.sent).await?;
                Ok(())
            }
            Kind::Alert => {
                self.unchanged(step).await?;
                client.put_alert(name, &*wanted.sent).await?;
                Ok(())
            }
            Kind::Limit => {
                self.unchanged(step).await?;
                client.put_limit(name, &*wanted.sent).await?;
                Ok(())
            }
        }
    }

    /// A pause comes before everything else and its end after it, so that a job never fires in between by what is not meant yet.
    async fn put_job(&self, step: &Step, wanted: &Wanted) -> Result<(), Failure> {
        let (is_changed, is_pause_changed) = match &step.action {
            Action::Change(changes) => {
                let is_pause = |path: &[String]| path.first().is_some_and(|name| name == "paused");
                (
                    changes.iter().any(|one| !is_pause(&one.path)),
                    changes.iter().any(|one| is_pause(&one.path)),
                )
            }
            _ => (true, true),
        };
        let paused = wanted.paused.as_ref().filter(|_| is_pause_changed);
        let pauses = paused.filter(|said| !matches!(said.value, Value::Bool(false)));
        let Some(current) = &step.current else {
            let job = self.client.create_job(&*wanted.sent, None).await.map_err(refused)?.value;
            if let Some(said) = pauses {
                let (id, version) = (&job.status.id, Some(job.status.version));
                self.client.pause_job(id, &pause(said), version).await.map_err(|error| {
                    let reason = format!("it was created and is active, but could not be paused: {error}");
                    Failure::Other(anyhow::anyhow!(reason))
                })?;
            }
            return Ok(());
        };
        let (id, mut version) = (current.id.clone().unwrap_or_default(), current.version);
        if let Some(said) = pauses {
            let job = self.client.pause_job(&id, &pause(said), version).await.map_err(refused)?;
            version = Some(job.status.version);
        }
        if is_changed {
            let job = self.client.replace_job(&id, &*wanted.sent, version).await.map_err(refused)?;
            version = Some(job.status.version);
        }
        if paused.is_some() && pauses.is_none() && current.paused.is_some() {
            self.client.resume_job(&id, version).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Refuses if it is not any more what the plan saw.
    async fn unchanged(&self, step: &Step) -> Result<(), Failure> {
        match self.one(step.kind, &step.name).await? == step.current {
            true => Ok(()),
            false => Err(Failure::Conflict(CHANGED.into())),
        }
    }
}

/// What somebody else did meanwhile.
const CHANGED: &str = "somebody else has changed it since it was read; apply again to see a new plan";

/// Why the server did not do it; of a version that is gone and a key that is taken, in words that say what to do.
fn refused(error: Error) -> Failure {
    match error.problem().map(|problem| problem.code.as_str()) {
        Some("version_conflict" | "key_taken") => Failure::Conflict(CHANGED.into()),
        _ => error.into(),
    }
}

/// Whether the next step would not get through either.
fn is_away(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable(_) => true,
        Failure::Other(error) => matches!(error.downcast_ref(), Some(Error::Broken { .. })),
        Failure::Input(_) | Failure::NotFound(_) | Failure::Conflict(_) | Failure::Different => false,
    }
}

fn pause(said: &Node) -> Pause {
    let text = |name: &str| said.get(name).and_then(Node::text).map(String::from);
    Pause { reason: text("reason"), by: text("by"), until: text("until").map(Time::Text) }
}

/// A refusal with the place of the document.
fn placed(step: &Step, failure: &Failure) -> String {
    let what = told(step.kind, &step.name);
    let reason = match failure {
        Failure::Input(message)
        | Failure::NotFound(message)
        | Failure::Conflict(message)
        | Failure::Unreachable(message) => message.clone(),
        Failure::Other(error) => match error.downcast_ref::<Error>() {
            Some(error) => error.to_string(),
            None => format!("{error:#}"),
        },
        Failure::Different => String::new(),
    };
    match &step.wanted {
        Some(wanted) => format!("{}: {what}: {reason}", wanted.document.place),
        None => format!("{what}: {reason}"),
    }
}
