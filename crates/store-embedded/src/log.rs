//! Reads the log before SQLite does.
//!
//! SQLite takes the first frame whose checksum is wrong for the end of the log: right after a power cut, where the
//! last commit may be torn; wrong for a flipped bit in the middle, which would silently undo everything after it.
//! The two can be told apart. A transaction is written only after the one before it was synced; so if frames of a
//! later transaction are there, a wrong frame before them was once right. Each frame's checksum goes on from the
//! one stored in the frame before, so frames after a wrong one can still be recognised.
//!
//! What cannot be told apart from a torn write is damage in the very last transaction.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// The running checksum, as stored.
type Sum = (u32, u32);

/// Whether the log is as it was written, up to a torn end. Says what is wrong and where.
pub(crate) fn verify(path: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(said(error)),
    };
    let length = file.metadata().map_err(said)?.len();
    // Without a frame there is nothing to lose.
    if length < (HEADER + FRAME_HEADER) as u64 {
        return Ok(());
    }
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER];
    reader.read_exact(&mut header).map_err(said)?;
    let log = Header::read(&header).ok_or("the log's header is damaged")?;
    let mut frame = vec![0; FRAME_HEADER + log.page_size];
    let frames = (length - HEADER as u64) / frame.len() as u64;
    let mut before = log.sum;
    let mut wrong: Option<u64> = None;
    // A transaction has ended since the wrong frame: what follows was written after a sync of it.
    let mut was_synced = false;
    for number in 0..frames {
        reader.read_exact(&mut frame).map_err(said)?;
        let is_ours = frame[8..16] == log.salt;
        let stored = (big(&frame, 16), big(&frame, 20));
        let is_right =
            is_ours && log.sum_of(log.sum_of(before, &frame[..8]), &frame[FRAME_HEADER..]) == stored;
        match wrong {
            None if is_right => {}
            None => wrong = Some(number),
            Some(first) if is_right && was_synced => {
                return Err(format!("frame {} of {frames} in the log is damaged", first + 1));
            }
            Some(_) => {}
        }
        // The last frame of a transaction has the size of the database in it.
        was_synced |= wrong.is_some() && is_ours && big(&frame, 4) != 0;
        before = stored;
    }
    Ok(())
}

/// What a log's header says.
struct Header {
    page_size: usize,
    salt: [u8; 8],
    sum: Sum,
    is_big_endian: bool,
}

impl Header {
    fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let is_big_endian = match big(bytes, 0) {
            0x377f_0682 => false,
            0x377f_0683 => true,
            _ => return None,
        };
        let page_size = big(bytes, 8);
        if !page_size.is_power_of_two() || !(512..=65_536).contains(&page_size) {
            return None;
        }
        let mut salt = [0; 8];
        salt.copy_from_slice(&bytes[16..24]);
        let sum = (big(bytes, 24), big(bytes, 28));
        let header = Header { page_size: page_size as usize, salt, sum, is_big_endian };
        (header.sum_of((0, 0), &bytes[..24]) == sum).then_some(header)
    }

    fn sum_of(&self, (mut one, mut two): Sum, bytes: &[u8]) -> Sum {
        let word = |at: &[u8]| match self.is_big_endian {
            true => big(at, 0),
            false => big(at, 0).swap_bytes(),
        };
        for pair in bytes.chunks_exact(8) {
            one = one.wrapping_add(word(pair)).wrapping_add(two);
            two = two.wrapping_add(word(&pair[4..])).wrapping_add(one);
        }
        (one, two)
    }
}

/// A number of four bytes, the first one highest.
fn big(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
