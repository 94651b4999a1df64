//! The token under which a receiver reports: signed, for one attempt of one run, until that must have ended.
//!
//! Made when a call is sent; read when somebody reports. Promise: whoever has one can heartbeat and end the attempt that it names and
//! nothing else. Whether the attempt still goes on is not in it: that is for the store to say.

use std::fmt;
use std::fmt::Write as _;

use jiff::Timestamp;

use crate::id::{RunId, Sequence, ShardId, WorkerId};
use crate::work::Held;

/// Tells ours from others, for people and for scanners of secrets.
const PREFIX: &str = "prt_";

/// Sequence, shard, attempt, receiver.
const SAID: usize = 8 + 2 + 4 + 16;

/// What is signed begins so, so that no other use of the key can be taken for it.
const CONTEXT: &[u8] = b"punctual report token 1";

/// Signs tokens; the same on all nodes of an installation. Not the secret that signs callbacks, which receivers know.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The run.
    pub run: RunId,
    /// The attempt.
    pub attempt: u32,
    /// Who holds the attempt when it was answered; knows when that must have ended.
    pub receiver: WorkerId,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is none, or somebody else made it.
    #[error("the token was not made by this installation")]
    Invalid,
    /// The time of its attempt is over.
    #[error("the token has expired: its attempt must have ended at {0}")]
    Expired(Timestamp),
}

impl Token {
    /// For an attempt.
    pub fn new(run: RunId, attempt: u32, receiver: WorkerId) -> Self {
        Token { run, attempt, receiver }
    }

    /// The attempt.
    pub fn held(&self) -> Held {
        Held { sequence: self.run.sequence(), attempt: self.attempt }
    }

    fn bytes(&self) -> [u8; SAID] {
        let mut bytes = [0; SAID];
        bytes[..8].copy_from_slice(&self.run.sequence().as_i64().to_be_bytes());
        bytes[8..10].copy_from_slice(&self.run.shard().0.to_be_bytes());
        bytes[10..14].copy_from_slice(&self.attempt.to_be_bytes());
        bytes[14..].copy_from_slice(self.receiver.as_bytes());
        bytes
    }

    fn read(bytes: &[u8; SAID]) -> Self {
        let (mut sequence, mut receiver) = ([0; 8], [0; 16]);
        sequence.copy_from_slice(&bytes[..8]);
        receiver.copy_from_slice(&bytes[14..]);
        let shard = ShardId(u16::from_be_bytes([bytes[8], bytes[9]]));
        Token {
            run: RunId::new(Sequence::from_i64(i64::from_be_bytes(sequence)), shard),
            attempt: u32::from_be_bytes([bytes[10], bytes[11], bytes[12], bytes[13]]),
            receiver: WorkerId::from_bytes(receiver),
        }
    }
}

impl Key {
    /// Of bytes that nobody else knows, which the caller brings.
    pub fn new(bytes: [u8; 32]) -> Self {
        Key(bytes)
    }

    /// Of a secret text.
    pub fn of_secret(text: &str) -> Self {
        Key(blake3::derive_key("punctual report tokens, key of the installation, 1", text.as_bytes()))
    }

    fn tag(&self, said: &[u8; SAID]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(CONTEXT);
        hasher.update(said);
        hasher.finalize()
    }

    /// The text of a token.
    pub fn sign(&self, token: &Token) -> String {
        let said = token.bytes();
        let mut text = String::with_capacity(PREFIX.len() + 2 * (SAID + 32));
        text.push_str(PREFIX);
        for byte in said.iter().chain(self.tag(&said).as_bytes()) {
            let _ = write!(text, "{byte:02x}"); // A string takes everything.
        }
        text
    }

    /// What a token says that we have made, and whose time is not over.
    pub fn read(&self, text: &str, now: Timestamp) -> Result<Token, Refused> {
        let encoded = text.strip_prefix(PREFIX).ok_or(Refused::Invalid)?;
        let bytes: [u8; SAID + 32] = unhex(encoded).ok_or(Refused::Invalid)?;
        let (mut said, mut tag) = ([0; SAID], [0; 32]);
        said.copy_from_slice(&bytes[..SAID]);
        tag.copy_from_slice(&bytes[SAID..]);
        // The comparison of hashes takes the same time wherever they differ.
        if self.tag(&said) != blake3::Hash::from_bytes(tag) {
            return Err(Refused::Invalid);
        }
        let token = Token::read(&said);
        match token.receiver.receiver() {
            Some(terms) if now <= terms.ends_at => Ok(token),
            Some(terms) => Err(Refused::Expired(terms.ends_at)),
            None => Err(Refused::Invalid),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Lower case alone: a token has one form.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::at;
    use crate::receiver::Receiver;

    fn token(attempt: u32) -> Token {
        let run = RunId::new(Sequence::first_at(at(0), 3), ShardId(77));
        let held = Held { sequence: run.sequence(), attempt };
        Token::new(run, attempt, Receiver { ends_at: at(60), heartbeat: None }.id(held))
    }

    #[test]
    fn a_token_says_its_run_and_attempt_until_its_end() {
        let key = Key::new([7; 32]);
        let text = key.sign(&token(2));
        assert!(text.starts_with(PREFIX) && text.len() < 200 && text.is_ascii(), "{text}");
        assert_eq!(key.read(&text, at(0)), Ok(token(2)));
        assert_eq!(key.read(&text, at(60)), Ok(token(2)));
        assert_eq!(key.read(&text, at(61)), Err(Refused::Expired(at(60))));
    }

    #[test]
    fn no_other_text_is_a_token() {
        let key = Key::new([7; 32]);
        let text = key.sign(&token(2));
        assert_eq!(Key::new([8; 32]).read(&text, at(0)), Err(Refused::Invalid), "of another installation");
        for place in PREFIX.len()..text.len() {
            let other = if &text[place..=place] == "0" { "1" } else { "0" };
            let forged = format!("{}{other}{}", &text[..place], &text[place + 1..]);
            assert_eq!(key.read(&forged, at(0)), Err(Refused::Invalid), "a change at {place}");
            assert_eq!(key.read(&text[..place], at(0)), Err(Refused::Invalid), "cut at {place}");
        }
        let (upper, long) = (text.to_uppercase(), format!("{text}00"));
        for other in ["", "prt_", "prt_ä", "Bearer x", &upper, &long] {
            assert_eq!(key.read(other, at(0)), Err(Refused::Invalid), "{other}");
        }
    }

    #[test]
    fn a_key_is_not_printed_by_accident() {
        assert_eq!(format!("{:?}", Key::new([7; 32])), "Key(…)");
    }
}
