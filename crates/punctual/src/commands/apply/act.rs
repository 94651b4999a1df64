//! Does what was planned, step by step.
//!
//! What has a version is changed only if it still has the one that the plan saw (`If-Match`). Alerts, limits and defaults have none in the
//! API: they are read again right before. One refusal does not keep the others from being done; all are told.

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
        let (mut refused, mut first) = (Vec::new(), None);
        for wave in plan.waves() {
            // What is written at once shares commits of the server.
            let mut done = stream::iter(wave).map(|step| self.step(step)).buffered(AT_ONCE);
            let mut steps = wave.iter();
            while let (Some(done), Some(step)) = (done.next().await, steps.next()) {
                match done {
                    Ok(()) => {}
                    Err(failure @ Failure::Unreachable(_)) => return Err(failure),
                    Err(failure) => {
                        refused.push(placed(step, &failure));
                        first.get_or_insert(failure);
                    }
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let message = format!("{} could not be applied\n  {}", refused.len(), refused.join("\n  "));
        Err(match first {
            Failure::Input(_) => Failure::Input(message),
            Failure::NotFound(_) => Failure::NotFound(message),
            Failure::Conflict(_) => Failure::Conflict(message),
            Failure::Unreachable(_) | Failure::Different | Failure::Other(_) => {
                Failure::Other(anyhow::anyhow!(message))
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
        Ok(self.client.delete_job(id, current.version).await?)
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
                client.put_calendar(name, &*wanted.sent, version).await?;
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

    async fn put_job(&self, step: &Step, wanted: &Wanted) -> Result<(), Failure> {
        let id = match &step.current {
            None => self.client.create_job(&*wanted.sent, None).await?.value.status.id,
            Some(current) => {
                let id = current.id.clone().unwrap_or_default();
                let is_more = |path: &[String]| path.first().is_some_and(|name| name != "paused");
                if matches!(&step.action, Action::Change(changes) if changes.iter().any(|one| is_more(&one.path)))
                {
                    self.client.replace_job(&id, &*wanted.sent, current.version).await?;
                }
                id
            }
        };
        let was_paused = step.current.as_ref().is_some_and(|current| current.paused.is_some());
        let changes_pause = match &step.action {
            Action::Change(changes) => {
                changes.iter().any(|one| one.path.first().is_some_and(|name| name == "paused"))
            }
            _ => true,
        };
        let Some(paused) = wanted.paused.as_ref().filter(|_| changes_pause) else { return Ok(()) };
        match &paused.value {
            Value::Bool(false) if was_paused => drop(self.client.resume_job(&id).await?),
            Value::Bool(false) => {}
            _ => drop(self.client.pause_job(&id, &pause(paused)).await?),
        }
        Ok(())
    }

    /// Refuses if it is not any more what the plan saw.
    async fn unchanged(&self, step: &Step) -> Result<(), Failure> {
        match self.one(step.kind, &step.name).await? == step.current {
            true => Ok(()),
            false => Err(Failure::Conflict("it has changed since it was read".into())),
        }
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
        Failure::Conflict(_) => {
            "somebody else has changed it since it was read; apply again to see a new plan".into()
        }
        Failure::Input(message) | Failure::NotFound(message) | Failure::Unreachable(message) => {
            message.clone()
        }
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
