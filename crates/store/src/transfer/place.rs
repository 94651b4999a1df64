//! A place in the order of a kind, as text in a cursor.

use std::fmt::Display;
use std::str::FromStr;

use crate::error::Error;

/// A place: its parts, with a blank between two. The last part may have blanks of its own.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a>(Option<&'a str>);

impl<'a> Place<'a> {
    /// The place of a cursor; none is before everything.
    pub fn new(text: Option<&'a str>) -> Self {
        Place(text)
    }

    /// The text of a place.
    pub fn text<const N: usize>(parts: [&dyn Display; N]) -> String {
        parts.map(ToString::to_string).join(" ")
    }

    fn part<T: FromStr>(text: &str) -> Result<T, Error> {
        text.parse().map_err(|_| Error::Damaged { what: format!("`{text}` is no place in an export") })
    }

    /// The only part.
    pub fn first<T: FromStr>(&self) -> Result<Option<T>, Error> {
        self.0.map(Self::part).transpose()
    }

    /// Both parts.
    pub fn two<A: FromStr, B: FromStr>(&self) -> Result<Option<(A, B)>, Error> {
        self.tail(0)
    }

    /// All three parts.
    pub fn three<A: FromStr, B: FromStr, C: FromStr>(&self) -> Result<Option<(A, B, C)>, Error> {
        let Some(text) = self.0 else { return Ok(None) };
        let first = Self::part(text.split(' ').next().unwrap_or_default())?;
        Ok(self.tail(1)?.map(|(second, third)| (first, second, third)))
    }

    /// The two parts after some.
    pub fn tail<A: FromStr, B: FromStr>(&self, skipped: usize) -> Result<Option<(A, B)>, Error> {
        let Some(text) = self.0 else { return Ok(None) };
        let mut parts = text.splitn(skipped + 2, ' ').skip(skipped);
        let mut part = || parts.next().unwrap_or_default();
        Ok(Some((Self::part(part())?, Self::part(part())?)))
    }

    /// The first parts, which are numbers.
    pub fn numbers<const N: usize>(&self) -> Result<Option<[i64; N]>, Error> {
        let Some(text) = self.0 else { return Ok(None) };
        let mut numbers = [0; N];
        let mut parts = text.split(' ');
        for number in &mut numbers {
            *number = Self::part(parts.next().unwrap_or_default())?;
        }
        Ok(Some(numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back_as_they_were_written() {
        let text = Place::text([&7, &-3, &"a key: with blanks"]);
        let place = Place::new(Some(&text));
        assert_eq!(place.numbers::<2>(), Ok(Some([7, -3])));
        assert_eq!(place.tail::<i64, String>(1), Ok(Some((-3, "a key: with blanks".into()))));
        assert_eq!(place.three::<u8, i8, String>(), Ok(Some((7, -3, "a key: with blanks".into()))));
        assert!(place.first::<i64>().is_err() && place.two::<i64, i64>().is_err());
        assert_eq!(Place::new(None).two::<i64, i64>(), Ok(None));
    }
}
