//! The URL reader and the signature verifier against garbage: no panic, and what is read has one
//! reading. A short random run with every test run; `cargo bolero test` goes on for as long as one
//! likes.

use std::net::IpAddr;

use bolero::check;
use punctual_worker::targets::http::guard::{Cidr, HostSuffix};
use punctual_worker::targets::http::{Headers, Policy, Secret, Target, verify};

/// Pieces of URLs, so that random choices often make almost valid ones.
const PIECES: [&str; 40] = [
    "http",
    "https",
    "HTTP",
    "file",
    "://",
    ":",
    "/",
    "//",
    "@",
    "?",
    "#",
    "\\",
    "%",
    "%40",
    "[",
    "]",
    "::",
    "1",
    "0",
    "127",
    ".",
    "127.0.0.1",
    "0x7f",
    "0177",
    "2130706433",
    "ffff",
    "64:ff9b:",
    "localhost",
    "example",
    "com",
    "-",
    "_",
    "a",
    "80",
    "443",
    "65536",
    "\t",
    "é",
    " ",
    "..",
];

#[test]
fn a_url_that_is_read_has_one_reading() {
    check!().with_type::<Vec<u8>>().for_each(|choices: &Vec<u8>| {
        let pieces = choices.iter().map(|choice| PIECES[usize::from(*choice) % PIECES.len()]);
        let rest: String = pieces.collect();
        for url in [rest.clone(), format!("http://{rest}"), format!("https://{rest}/")] {
            let Ok(target) = Target::parse(&url) else { continue };
            let again = Target::parse(&target.to_string()).unwrap();
            assert_eq!((again.host(), again.port()), (target.host(), target.port()), "{url}");
            assert!(!target.host().contains(['@', '/', '\\', '%', '#', '?']), "{url}");
            // What the system would read as an address must be one for the guard too.
            let is_number =
                target.host().rsplit('.').next().unwrap().starts_with(|c: char| c.is_ascii_digit());
            assert!(!is_number || target.host().parse::<IpAddr>().is_ok(), "{url}");
            let _ = Policy::default().check(&target);
        }
    });
}

#[test]
fn garbage_makes_no_parser_panic() {
    let secrets = [Secret::from_random(&[1; 24]).unwrap()];
    check!().with_type::<(String, String, Vec<u8>)>().for_each(|(first, second, bytes)| {
        let _ = Target::parse(first);
        let _ = Headers::parse([(first.as_str(), second.as_str())]);
        let _ = Secret::parse(first);
        let _ = Secret::parse(&format!("whsec_{first}"));
        let _ = (first.parse::<Cidr>(), first.parse::<HostSuffix>());
        let mut headers = http::HeaderMap::new();
        for (name, value) in
            [("webhook-id", first), ("webhook-timestamp", second), ("webhook-signature", first)]
        {
            if let Ok(value) = value.parse() {
                headers.insert(name, value);
            }
        }
        assert!(verify(&secrets, &headers, bytes, 0).is_err());
    });
}
