//! What the attempts of a run said, as one value.

use punctual_domain::Papers;
use punctual_domain::attempt::Output;
use punctual_domain::papers::{Line, Log, Progress, Said};

use super::bytes::{Put, Take};
use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when the layout changes; readers know every older one.
const FORM: u8 = 1;

/// What an attempt said.
const PROGRESS: u8 = 1;
const PERCENT: u8 = 1 << 1;
const MESSAGE: u8 = 1 << 2;
const OUTPUT: u8 = 1 << 3;
const TRUNCATED: u8 = 1 << 4;
const LOG: u8 = 1 << 5;

/// Writes what was said.
pub fn encode_papers(papers: &Papers) -> Vec<u8> {
    let mut put = Put(Vec::with_capacity(64));
    put.byte(FORM);
    put.byte(papers.checkpoint.is_some().into());
    if let Some(checkpoint) = &papers.checkpoint {
        put.bytes(checkpoint.as_bytes());
    }
    put.number(papers.said.len() as u64);
    papers.said.iter().for_each(|said| put_said(&mut put, said));
    put.0
}

/// Reads it back.
pub fn decode_papers(bytes: &[u8]) -> Result<Papers, Error> {
    let mut take = Take(bytes);
    match take.byte()? {
        FORM => {}
        form => return Err(damaged(format!("papers of form {form}"))),
    }
    let checkpoint = match take.byte()? {
        0 => None,
        _ => Some(take.text()?.into()),
    };
    let mut said = Vec::new();
    for _ in 0..take.number()? {
        said.push(take_said(&mut take)?);
    }
    match take.0 {
        [] => Ok(Papers { checkpoint, said }),
        _ => Err(damaged("papers that do not end where they say")),
    }
}

fn put_said(put: &mut Put, said: &Said) {
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    let (progress, output) = (said.progress.as_ref(), said.output.as_ref());
    let (percent, message) = (
        progress.and_then(|progress| progress.percent),
        progress.and_then(|progress| progress.message.as_ref()),
    );
    put.number(said.attempt.into());
    put.byte(
        flag(progress.is_some(), PROGRESS)
            | flag(percent.is_some(), PERCENT)
            | flag(message.is_some(), MESSAGE)
            | flag(output.is_some(), OUTPUT)
            | flag(output.is_some_and(|output| output.is_truncated), TRUNCATED)
            | flag(said.log != Log::default(), LOG),
    );
    if let Some(percent) = percent {
        put.byte(percent);
    }
    if let Some(message) = message {
        put.bytes(message.as_bytes());
    }
    if let Some(output) = output {
        put.bytes(&output.bytes);
    }
    if said.log != Log::default() {
        put.number(said.log.dropped);
        put.number(said.log.lines.len() as u64);
        // Lines follow each other closely.
        let mut before = 0;
        for line in &said.log.lines {
            put.signed(millis(line.at) - before);
            put.bytes(line.text.as_bytes());
            before = millis(line.at);
        }
    }
}

fn take_said(take: &mut Take<'_>) -> Result<Said, Error> {
    let (attempt, has) = (take.small()?, take.byte()?);
    let percent = if has & PERCENT != 0 { Some(take.byte()?) } else { None };
    let message = if has & MESSAGE != 0 { Some(take.text()?.to_string()) } else { None };
    let output = match has & OUTPUT {
        0 => None,
        _ => Some(Output { bytes: take.bytes()?.into(), is_truncated: has & TRUNCATED != 0 }),
    };
    let mut log = Log::default();
    if has & LOG != 0 {
        log.dropped = take.number()?;
        let mut before = 0_i64;
        for _ in 0..take.number()? {
            before = before.checked_add(take.signed()?).ok_or_else(|| damaged("a time out of range"))?;
            log.lines.push(Line { at: timestamp(before)?, text: take.text()?.to_string() });
        }
    }
    let progress = (has & PROGRESS != 0).then_some(Progress { percent, message });
    Ok(Said { attempt, progress, output, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_read_back_as_they_were_written() {
        let line = |ms: i64, text: &str| Line { at: timestamp(ms).expect("in range"), text: text.into() };
        let lines = vec![line(1_800_000_000_000, "begun"), line(1_799_999_999_000, "gr\u{fc}n")];
        let papers = Papers {
            checkpoint: Some(r#"{"row":7}"#.into()),
            said: vec![
                Said {
                    attempt: 1,
                    progress: Some(Progress { percent: Some(40), message: None }),
                    output: Some(Output { bytes: vec![0, 255], is_truncated: true }),
                    log: Log { lines, dropped: 9 },
                },
                Said {
                    attempt: 3,
                    progress: Some(Progress { percent: None, message: Some("page 4".into()) }),
                    ..Said::default()
                },
                Said { attempt: 4, progress: Some(Progress::default()), ..Said::default() },
            ],
        };
        let bytes = encode_papers(&papers);
        assert_eq!(decode_papers(&bytes).expect("decodes"), papers);
        for cut in 0..bytes.len() {
            assert!(decode_papers(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(decode_papers(&[&bytes[..], &[0]].concat()).is_err());
        assert_eq!(decode_papers(&encode_papers(&Papers::default())).expect("decodes"), Papers::default());
    }
}
