//! What was copied, summed up so that two stores can be compared whatever order they give their pieces in.

use serde::{Deserialize, Serialize};

use super::piece::{Kind, Piece};
use crate::error::Error;

/// Pieces of one kind: how many, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    #[serde(with = "hex")]
    hashes: u128,
}

/// Sums of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally([Sum; Kind::ALL.len()]);

impl Tally {
    /// Adds a piece.
    pub fn add(&mut self, piece: &Piece) -> Result<(), Error> {
        let hash = blake3::hash(&piece.encode()?);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        let sum = &mut self.0[piece.kind() as usize];
        sum.count += 1;
        // Not combined by exclusive or: a piece that is there twice must show.
        sum.hashes = sum.hashes.wrapping_add(u128::from_le_bytes(bytes));
        Ok(())
    }

    /// The sum of a kind.
    pub fn of(&self, kind: Kind) -> Sum {
        self.0[kind as usize]
    }

    /// How many pieces of all kinds.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|sum| sum.count).sum()
    }
}

/// A number that JSON has no room for.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(hashes: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{hashes:032x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(de::Error::custom)
    }
}
