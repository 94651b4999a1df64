//! A connection's bytes, plain or encrypted, and whether a request has left through them.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A socket below the HTTP library.
pub(super) struct Stream {
    io: Io,
    wire: Arc<Wire>,
}

pub(super) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What the caller and the stream tell each other; the HTTP library is between them.
#[derive(Default)]
pub(super) struct Wire {
    sent: AtomicBool,
    rested: AtomicBool,
}

impl Wire {
    /// Starts to watch for the bytes of a new request. Over HTTP/1.1 nothing else is ever written.
    pub(super) fn begin(&self) {
        self.sent.store(false, Relaxed);
    }

    /// Whether the socket took any byte since [`Wire::begin`].
    pub(super) fn has_sent(&self) -> bool {
        self.sent.load(Relaxed)
    }

    /// Makes the next read ask the system whether the peer has closed, instead of waiting to be
    /// told: a connection that nobody watched may have ended long ago.
    pub(super) fn rested(&self) {
        self.rested.store(true, Relaxed);
    }
}

impl Stream {
    pub(super) fn new(io: Io, wire: Arc<Wire>) -> Stream {
        Stream { io, wire }
    }

    /// Notes what a write did. A failed write over TLS may have sent a part.
    fn note(&self, written: &Poll<io::Result<usize>>) {
        let sent = match (written, &self.io) {
            (Poll::Ready(Ok(bytes)), _) => *bytes > 0,
            (Poll::Ready(Err(_)), Io::Tls(_)) => true,
            (Poll::Ready(Err(_)), Io::Plain(_)) | (Poll::Pending, _) => false,
        };
        if sent {
            self.wire.sent.store(true, Relaxed);
        }
    }

    /// Whether anything can be read now. Between two calls that is an end or something worse.
    fn has_something_to_read(&self) -> bool {
        let socket = match &self.io {
            Io::Plain(socket) => socket,
            Io::Tls(tls) => tls.get_ref().0,
        };
        match SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.wire.rested.load(Relaxed) {
            this.wire.rested.store(false, Relaxed);
            if this.has_something_to_read() {
                // To the HTTP library this is the end of the connection.
                return Poll::Ready(Ok(()));
            }
        }
        match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        };
        this.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = match &mut this.io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        };
        this.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
