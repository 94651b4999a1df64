//! A TCP proxy between a worker and servers, which a test may cut: then every connection ends, and none is made.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where the proxy listens; new connections go to the first of its servers that takes them.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    servers: Vec<SocketAddr>,
    is_cut: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn start(servers: Vec<SocketAddr>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared =
            Arc::new(Shared { servers, is_cut: AtomicBool::new(false), connections: Mutex::default() });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Dropped while it is cut, or where nobody listens.
                all.connect(stream);
            }
        });
        Proxy { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Nothing passes any more.
    pub(crate) fn cut(&self) {
        let mut connections = self.shared.connections.lock().expect("not poisoned");
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for stream in connections.drain(..) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Everything passes again.
    pub(crate) fn mend(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    fn connect(&self, worker: TcpStream) {
        let reach = |address: &SocketAddr| TcpStream::connect_timeout(address, Duration::from_secs(5)).ok();
        let Some(server) = self.servers.iter().find_map(reach) else { return };
        let mut connections = self.connections.lock().expect("not poisoned");
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        for (from, to) in [(&worker, &server), (&server, &worker)] {
            let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone()) else {
                return;
            };
            connections.push(kept);
            std::thread::spawn(move || pass(from, to));
        }
    }
}

/// Passes on what comes, until one of them ends; then both do.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // They may have ended already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
