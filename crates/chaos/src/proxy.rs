//! A TCP proxy between one node and one database server, which can be cut and stalled.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to what passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// It passes.
    Open,
    /// Connections break, and new ones too.
    Cut,
    /// Nothing passes, and nobody is told.
    Stalled,
    /// What the node says arrives; what the database says does not.
    AnswersStalled,
}

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    link: watch::Sender<Link>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToDatabase,
    ToNode,
}

impl Proxy {
    /// Listens on a free port for a server on this machine.
    pub(crate) async fn start(database: u16) -> Result<Proxy> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).await.context("listen for a node's connections")?;
        let port = listener.local_addr().context("the proxy's address")?.port();
        let (link, links) = watch::channel(Link::Open);
        let database = SocketAddr::from(([127, 0, 0, 1], database));
        tokio::spawn(async move {
            loop {
                let Ok((node, _)) = listener.accept().await else { continue };
                tokio::spawn(join(node, database, links.clone()));
            }
        });
        Ok(Proxy { port, link })
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

async fn join(node: TcpStream, database: SocketAddr, mut links: watch::Receiver<Link>) {
    if *links.borrow() == Link::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(database).await else { return };
    let _ = node.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_node, to_node) = node.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass(from_node, to_server, links.clone(), Direction::ToDatabase) => {}
        () = pass(from_server, to_node, links.clone(), Direction::ToNode) => {}
        _ = links.wait_for(|link| *link == Link::Cut) => {}
    }
}

/// Passes bytes on until one side ends.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut links: watch::Receiver<Link>,
    direction: Direction,
) {
    let passes = |link: &Link| match link {
        Link::Open | Link::Cut => true,
        Link::Stalled => false,
        Link::AnswersStalled => direction == Direction::ToDatabase,
    };
    let mut chunk = vec![0; 64 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else { return };
        if links.wait_for(passes).await.is_err() || to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}
