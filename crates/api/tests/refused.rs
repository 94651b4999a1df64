//! Bad input as data: every line of `testdata/refused.txt` is a body and what is said about it.

use punctual_api::batch::read_batch;
use punctual_api::job::{Purpose, read_job};
use punctual_api::read::Unread;
use punctual_api::{FieldError, Rules};
use punctual_schedule::Tzdb;

const TARGET: &str = r#""target":{"discard":{}}"#;
const SCHEDULE: &str = r#"{"every":"PT5S"}"#;

#[test]
fn every_wrong_field_is_named_with_a_code_and_a_way_out() {
    let tzdb = Tzdb::bundled();
    let read = |body: &str| read_job(body, Purpose::Create, &Rules::new(&tzdb)).map(drop);
    check(include_str!("../testdata/refused.txt"), read);
}

#[test]
fn every_wrong_field_of_a_batch_is_named_too() {
    let tzdb = Tzdb::bundled();
    let read = |body: &str| read_batch(body, None, &Rules::new(&tzdb)).map(drop);
    check(include_str!("../testdata/refused_batches.txt"), read);
}

fn check(cases: &str, read: impl Fn(&str) -> Result<(), Unread>) {
    let mut wrong = Vec::new();
    for (number, line) in cases.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (body, expected) = line.split_once(" => ").expect("a body and what is said");
        let body = body.trim().replace("$T", TARGET).replace("$S", SCHEDULE);
        let said = match read(&body) {
            Ok(_) => vec!["accepted".to_string()],
            Err(Unread::Malformed(reason)) => vec![format!("malformed: {reason}")],
            Err(Unread::Wrong(errors)) => errors.iter().map(shown).collect(),
        };
        let expected: Vec<&str> = expected.split(" && ").collect();
        let agrees = said.len() == expected.len()
            && said.iter().zip(&expected).all(|(said, expected)| said.starts_with(expected));
        if !agrees {
            wrong.push(format!("line {}:\n  expected {expected:#?}\n  said {said:#?}", number + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn shown(error: &FieldError) -> String {
    format!("{} {}: {}", error.pointer, error.code, error.detail)
}

#[test]
fn deep_json_is_refused_and_brackets_in_text_do_not_count() {
    let tzdb = Tzdb::bundled();
    let rules = Rules::new(&tzdb);
    let body = |payload: &str| format!(r#"{{"schedule":{SCHEDULE},{TARGET},"payload":{payload}}}"#);
    let nested = |depth: usize| body(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    assert!(read_job(&nested(63), Purpose::Create, &rules).is_ok());
    let Err(Unread::Malformed(reason)) = read_job(&nested(64), Purpose::Create, &rules) else {
        panic!("too deep")
    };
    assert!(reason.contains("deeper than 64"), "{reason}");
    assert!(matches!(read_job(&nested(500_000), Purpose::Create, &rules), Err(Unread::Malformed(_))));
    let text = body(&format!(r#""{}\"{}""#, "[".repeat(1000), "{".repeat(1000)));
    assert!(read_job(&text, Purpose::Create, &rules).is_ok());
}

#[test]
fn a_payload_that_is_too_large_is_refused_by_its_place() {
    let tzdb = Tzdb::bundled();
    let body = format!(r#"{{"schedule":{SCHEDULE},{TARGET},"payload":"{}"}}"#, "x".repeat(256 << 10));
    let Err(Unread::Wrong(errors)) = read_job(&body, Purpose::Create, &Rules::new(&tzdb)) else {
        panic!("too large")
    };
    assert_eq!((errors[0].pointer.as_str(), &*errors[0].code), ("/payload", "too_long"));
}

#[test]
fn the_number_of_errors_is_bounded() {
    let tzdb = Tzdb::bundled();
    let many: Vec<String> = (0..10_000).map(|n| format!(r#""q{n}zz":1"#)).collect();
    let body = format!("{{{}}}", many.join(","));
    let Err(Unread::Wrong(errors)) = read_job(&body, Purpose::Create, &Rules::new(&tzdb)) else {
        panic!("unknown")
    };
    assert_eq!(errors.len(), 50);
}
