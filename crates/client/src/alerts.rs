//! Alerts, and the alarms that are raised.

use http::Method;
use punctual_api::Page;
use punctual_api::alert::{Alarm, Alert};
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

impl Client {
    /// All alerts, by name.
    pub async fn alerts(&self) -> Result<Answer<Page<Alert>>, Error> {
        self.call(Call::get("/v1/alerts")).await
    }

    /// An alert.
    pub async fn alert(&self, name: &str) -> Result<Answer<Alert>, Error> {
        self.call(Call::get(path(name))).await
    }

    /// Sets an alert, new or not.
    pub async fn put_alert(
        &self,
        name: &str,
        spec: &(impl Serialize + ?Sized),
    ) -> Result<Answer<Alert>, Error> {
        self.call(Call::new(Method::PUT, path(name)).body(spec)?).await
    }

    /// Deletes an alert, with its alarms.
    pub async fn delete_alert(&self, name: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path(name))).await
    }

    /// What is raised now.
    pub fn alarms(&self) -> List<Alarm> {
        List::new(self, "/v1/alarms", &[])
    }
}

fn path(name: &str) -> String {
    format!("/v1/alerts/{}", escaped(name))
}
