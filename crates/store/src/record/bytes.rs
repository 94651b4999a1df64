//! Numbers and texts as few bytes: what is written once per run.

use super::damaged;
use crate::error::Error;

/// Writes.
#[derive(Debug)]
pub(crate) struct Put(pub(crate) Vec<u8>);

impl Put {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Small ones are short on both sides of zero.
    pub(crate) fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.fixed(bytes);
    }
}

/// Reads back.
#[derive(Debug)]
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.0.split_first().ok_or_else(short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(damaged("a number of more than 64 bits"))
    }

    pub(crate) fn small(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| damaged("a number of more than 32 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Error> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.number()?;
        let (bytes, rest) =
            usize::try_from(length).ok().and_then(|at| self.0.split_at_checked(at)).ok_or_else(short)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged("a text that is not UTF-8"))
    }
}

fn short() -> Error {
    damaged("a record that ends too early")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_read_back() {
        let mut put = Put(Vec::new());
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, 63, -64, 64, i64::MIN, i64::MAX];
        numbers.iter().for_each(|number| put.number(*number));
        signed.iter().for_each(|number| put.signed(*number));
        put.bytes(b"text");
        let mut take = Take(&put.0);
        assert!(numbers.iter().all(|number| take.number() == Ok(*number)));
        assert!(signed.iter().all(|number| take.signed() == Ok(*number)));
        assert_eq!(take.text(), Ok("text"));
        assert!(
            take.byte().is_err() && Take(&[0xff; 11]).number().is_err() && Take(&[9, 1]).bytes().is_err()
        );
    }
}
