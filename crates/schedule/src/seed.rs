//! The stable hash behind `H` and spread.
//!
//! Promise: the same id gives the same number in every version, on every machine, for ever; a
//! change here would move the slots of every job that uses `H`. A test pins the values.

/// What `H` and spread hash: made from a job's id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// The seed of a job id.
    pub fn of(id: &str) -> Self {
        // FNV-1a over the bytes: short, public and easy to repeat in another language.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in id.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Seed(hash)
    }

    /// A number in `0..bound`, different for each `purpose`.
    pub(crate) fn pick(self, purpose: u64, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        // The splitmix64 finaliser: FNV alone leaves similar ids with similar low bits.
        let mut z = self.0.wrapping_add((purpose + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_an_id_never_changes() {
        let picks = |id: &str| -> Vec<u64> { (0..4).map(|p| Seed::of(id).pick(p, 60)).collect() };
        assert_eq!(picks(""), PINNED_EMPTY);
        assert_eq!(picks("0192f0c1-7e2a-7000-8000-000000000001"), PINNED_ID);
    }

    // Computed by another program, in another language.
    const PINNED_EMPTY: [u64; 4] = [48, 22, 35, 22];
    const PINNED_ID: [u64; 4] = [18, 12, 0, 46];

    #[test]
    fn ten_thousand_ids_spread_evenly_over_an_hour() {
        let mut minutes = [0u32; 60];
        for n in 0..10_000 {
            minutes[Seed::of(&format!("job-{n}")).pick(1, 60) as usize] += 1;
        }
        assert!(minutes.iter().all(|&n| (100..=240).contains(&n)), "{minutes:?}");
    }
}
