//! Named calendars.

use http::Method;
use punctual_api::calendar::Calendar;
use serde::Serialize;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

impl Client {
    /// Calendars, by name.
    pub fn calendars(&self) -> List<Calendar> {
        List::new(self, "/v1/calendars", &[])
    }

    /// A calendar.
    pub async fn calendar(&self, name: &str) -> Result<Answer<Calendar>, Error> {
        self.call(Call::get(path(name))).await
    }

    /// Sets a calendar, new or not: a [`punctual_api::calendar::CalendarSpec`], or JSON text as a `RawValue`. Only if it still has
    /// this version, if one is given.
    pub async fn put_calendar(
        &self,
        name: &str,
        spec: &(impl Serialize + ?Sized),
        version: Option<u32>,
    ) -> Result<Answer<Calendar>, Error> {
        self.call(Call::new(Method::PUT, path(name)).body(spec)?.of_version(version)).await
    }

    /// Deletes a calendar that no job uses.
    pub async fn delete_calendar(&self, name: &str, version: Option<u32>) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path(name)).of_version(version)).await
    }
}

fn path(name: &str) -> String {
    format!("/v1/calendars/{}", escaped(name))
}
