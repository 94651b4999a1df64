//! A receiver that answers with everything it was sent: what it is told comes back, as it came and undone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Paths that begin with `/fail` are answered 500.
pub(crate) struct Echo {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    pub(crate) fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(stream, &all));
            }
        });
        Echo { url, received }
    }

    /// Requests, each whole: its head and its body.
    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().expect("not poisoned").clone()
    }
}

fn serve(stream: TcpStream, all: &Mutex<Vec<String>>) {
    let Ok(mut output) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    while let Some(request) = read(&mut input) {
        let is_failing = request.split(' ').nth(1).is_some_and(|path| path.starts_with("/fail"));
        let status = if is_failing { "500 Internal Server Error" } else { "200 OK" };
        // The path a second time without percent-encoding, as servers read it.
        let body = format!("{request}\n{}", decoded(request.lines().next().unwrap_or_default()));
        all.lock().expect("not poisoned").push(request);
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        if output.write_all(head.as_bytes()).and_then(|()| output.write_all(body.as_bytes())).is_err() {
            return;
        }
    }
}

fn read(input: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut whole, mut length) = (String::new(), 0);
    loop {
        let begin = whole.len();
        input.read_line(&mut whole).ok().filter(|read| *read > 0)?;
        let line = whole[begin..].trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    whole.push_str(&String::from_utf8(body).ok()?);
    Some(whole)
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let hex = |at: usize| more.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
