//! Copies bytes between two sockets, one direction at a time.
//!
//! The buffer of a direction exists only while there are bytes to copy, so that thousands of idle tunnels take no memory.
//! A direction that has copied a lot continues with `splice` through a pipe, which keeps the bytes in the kernel.

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::Interest;
use tokio::net::TcpStream;

const BUFFER: usize = 32 * 1024;

/// A direction that has copied this much continues with `splice`. For less, creating a pipe costs more than it saves.
const SPLICE_FROM: u64 = 256 * 1024;

/// How much one `splice` call is asked to move; it moves what fits.
const SPLICE_SIZE: usize = 1024 * 1024;

/// Copies until `from` ends, then shuts down the writing side of `to`.
pub(super) async fn one_way(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<()> {
    if buffered(from, to, moved).await? == Next::Splice {
        spliced(from, to, moved).await?;
    }
    match rustix::net::shutdown(to, Shutdown::Write) {
        // The connection is gone already; the other direction reports it.
        Err(Errno::NOTCONN) => Ok(()),
        result => Ok(result?),
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Done,
    Splice,
}

async fn buffered(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<Next> {
    let mut begun = 0;
    let mut buffer = Vec::new();
    loop {
        from.readable().await?;
        buffer.resize(BUFFER, 0);
        match from.try_read(&mut buffer) {
            Ok(0) => return Ok(Next::Done),
            Ok(count) => {
                write_all(to, &buffer[..count], moved).await?;
                begun += count as u64;
                if begun >= SPLICE_FROM {
                    return Ok(Next::Splice);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => buffer = Vec::new(),
            Err(error) => return Err(error),
        }
    }
}

/// Writes everything and counts what was written.
pub(super) async fn write_all(to: &TcpStream, mut bytes: &[u8], moved: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(count) => {
                moved.fetch_add(count as u64, Ordering::Relaxed);
                bytes = &bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn spliced(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<()> {
    let (out, into) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // A larger pipe is faster but not needed; the kernel limits the total size of pipes for each user.
    rustix::pipe::fcntl_setpipe_size(&into, SPLICE_SIZE).ok();
    loop {
        let mut inside = from.async_io(Interest::READABLE, || splice_in(from, &into)).await?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            let count = to.async_io(Interest::WRITABLE, || splice_out(&out, to, inside)).await?;
            moved.fetch_add(count as u64, Ordering::Relaxed);
            inside -= count;
        }
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

fn splice_in(from: &TcpStream, into: &OwnedFd) -> io::Result<usize> {
    Ok(rustix::pipe::splice(from, None, into, None, SPLICE_SIZE, FLAGS)?)
}

fn splice_out(out: &OwnedFd, to: &TcpStream, count: usize) -> io::Result<usize> {
    Ok(rustix::pipe::splice(out, None, to, None, count, FLAGS)?)
}
