//! A slow line to a database: everything arrives, some time later.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Pieces on their way in one direction of a connection; the sender waits while so many are.
const UNDER_WAY: usize = 64;

/// Listens for connections to a server and holds every piece back by a delay, in both directions.
pub(super) async fn open(server: String, delay: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for a slow line")?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&server).await else { continue };
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::spawn(carry(near_in, far_out, delay));
            tokio::spawn(carry(far_in, near_out, delay));
        }
    });
    Ok(address)
}

async fn carry(
    mut from: impl AsyncReadExt + Unpin + Send + 'static,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Duration,
) {
    let (sender, mut pieces) = tokio::sync::mpsc::channel(UNDER_WAY);
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let due = tokio::time::Instant::now() + delay;
            if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
    });
    while let Some((due, piece)) = pieces.recv().await {
        tokio::time::sleep_until(due).await;
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
}
