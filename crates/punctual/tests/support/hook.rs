//! A receiver of callbacks that remembers what it was sent.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Longer than the period of a job of every second.
const SLOW: Duration = Duration::from_millis(1_300);

/// A callback as it arrived; header names in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// The receiver. Paths that begin with `/fail` and bodies that say `"fail":true` are answered 500, `/hang` never, `/hold` when they are released, `/slow` after
/// more than a second.
pub(crate) struct Hook {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    is_released: Mutex<bool>,
    released: Condvar,
}

impl Hook {
    pub(crate) fn start() -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared::default());
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, &all));
            }
        });
        Hook { url, shared }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().expect("not poisoned").clone()
    }

    /// Answers what was held.
    pub(crate) fn release(&self) {
        *self.shared.is_released.lock().expect("not poisoned") = true;
        self.shared.released.notify_all();
    }
}

/// Answers until the connection ends; a caller that was killed just goes away.
fn serve(stream: TcpStream, shared: &Shared) {
    let Ok(mut output) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    while let Some(received) = read(&mut input) {
        let (path, is_failing) = (received.path.clone(), received.body.contains("\"fail\":true"));
        shared.received.lock().expect("not poisoned").push(received);
        let status = match path.as_str() {
            path if path.starts_with("/hang") => loop {
                std::thread::park();
            },
            path if path.starts_with("/hold") => {
                let is_released = shared.is_released.lock().expect("not poisoned");
                drop(shared.released.wait_while(is_released, |is_released| !*is_released));
                if is_failing { "500 Internal Server Error" } else { "200 OK" }
            }
            path if path.starts_with("/slow") => {
                std::thread::sleep(SLOW);
                "200 OK"
            }
            _ if is_failing => "500 Internal Server Error",
            path if path.starts_with("/fail") => "500 Internal Server Error",
            _ => "200 OK",
        };
        if output.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").as_bytes()).is_err() {
            return;
        }
    }
}

fn read(input: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Received { path, headers, body: String::from_utf8(body).ok()? })
}
