//! TLS that moves much at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncRead;
use tokio::io::{AsyncBufRead, AsyncWrite, ReadBuf};

/// What one copy in memory takes. From 4 KiB on the C library before its version 2.40 lets the processor copy by one
/// instruction, and on some (Zen 3) that is 20 times slower where the two places lie a few bytes apart in their pages,
/// as blocks that were allocated one after the other do.
const COPY: usize = 2 << 10;

/// A stream of TLS. It is read until the buffer is full or nothing more is there: TLS alone gives one record at a time, and
/// each piece of a body costs whoever passes it on a turn and a write of its own.
pub(super) struct Bulk<S> {
    stream: S,
    /// Met behind bytes that had to be given first.
    failed: Option<io::Error>,
}

impl<S> Bulk<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, failed: None }
    }
}

impl<S: AsyncBufRead + Unpin> AsyncRead for Bulk<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        while buffer.remaining() > 0 {
            let found = buffer.filled().len() > before;
            let taken = match Pin::new(&mut self.stream).poll_fill_buf(context) {
                Poll::Ready(Ok(record)) => {
                    let taken = record.len().min(buffer.remaining());
                    record[..taken].chunks(COPY).for_each(|part| buffer.put_slice(part));
                    taken
                }
                Poll::Ready(Err(error)) if found => {
                    self.failed = Some(error);
                    break;
                }
                Poll::Pending if found => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            if taken == 0 {
                break;
            }
            Pin::new(&mut self.stream).consume(taken);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bulk<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let parts: Vec<IoSlice<'_>> =
            parts.iter().flat_map(|part| part.chunks(COPY)).map(IoSlice::new).collect();
        Pin::new(&mut self.stream).poll_write_vectored(context, &parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;

    enum Step {
        Record(Vec<u8>),
        Wait,
        Break,
    }

    /// Gives what it is told to, and then its end.
    #[derive(Default)]
    struct Told {
        steps: VecDeque<Step>,
        written: Vec<usize>,
    }

    impl AsyncRead for Told {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            unreachable!("records are looked at where they are")
        }
    }

    impl AsyncBufRead for Told {
        fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let steps = &mut self.get_mut().steps;
            if let Some(Step::Wait | Step::Break) = steps.front() {
                return match steps.pop_front() {
                    Some(Step::Break) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                    _ => Poll::Pending,
                };
            }
            match steps.front() {
                Some(Step::Record(record)) => Poll::Ready(Ok(record)),
                _ => Poll::Ready(Ok(&[])),
            }
        }

        fn consume(mut self: Pin<&mut Self>, count: usize) {
            let Some(Step::Record(record)) = self.steps.front_mut() else { panic!("nothing was given") };
            record.drain(..count);
            if record.is_empty() {
                self.steps.pop_front();
            }
        }
    }

    impl AsyncWrite for Told {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            unreachable!("what is written comes in parts")
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.written.extend(parts.iter().map(|part| part.len()));
            Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn told(steps: impl IntoIterator<Item = Step>) -> Bulk<Told> {
        Bulk::new(Told { steps: steps.into_iter().collect(), written: Vec::new() })
    }

    /// One read into so much room: the bytes, or that there are none yet, or the fault.
    fn read(stream: &mut Bulk<Told>, room: usize) -> Option<Result<Vec<u8>, io::ErrorKind>> {
        let mut space = vec![0; room];
        let mut buffer = ReadBuf::new(&mut space);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(stream).poll_read(&mut context, &mut buffer) {
            Poll::Ready(Ok(())) => Some(Ok(buffer.filled().to_vec())),
            Poll::Ready(Err(error)) => Some(Err(error.kind())),
            Poll::Pending => None,
        }
    }

    #[test]
    fn records_are_gathered_until_nothing_is_there() {
        let bytes: Vec<u8> = (0..5000_u32).map(|number| number as u8).collect();
        let mut stream = told([
            Step::Record(bytes.clone()),
            Step::Record(b"end".to_vec()),
            Step::Wait,
            Step::Wait,
            Step::Record(b"more".to_vec()),
        ]);
        assert_eq!(read(&mut stream, 9000), Some(Ok([&bytes[..], b"end"].concat())));
        assert_eq!(read(&mut stream, 9000), None);
        assert_eq!(read(&mut stream, 9000), Some(Ok(b"more".to_vec())));
        assert_eq!(read(&mut stream, 9000), Some(Ok(Vec::new())));
    }

    #[test]
    fn a_full_buffer_leaves_the_rest_for_the_next() {
        let mut stream = told([Step::Record(b"abc".to_vec()), Step::Record(b"def".to_vec())]);
        assert_eq!(read(&mut stream, 4), Some(Ok(b"abcd".to_vec())));
        assert_eq!(read(&mut stream, 4), Some(Ok(b"ef".to_vec())));
    }

    #[test]
    fn a_fault_comes_behind_the_bytes_before_it_and_is_not_lost() {
        let mut stream = told([Step::Record(b"abc".to_vec()), Step::Break]);
        assert_eq!(read(&mut stream, 9), Some(Ok(b"abc".to_vec())));
        assert_eq!(read(&mut stream, 9), Some(Err(io::ErrorKind::ConnectionReset)));
    }

    #[test]
    fn what_is_written_is_copied_in_short_parts() {
        let mut stream = told([]);
        let mut context = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut stream).poll_write(&mut context, &[0; COPY + 1]);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == COPY + 1));
        let parts = [IoSlice::new(b"head"), IoSlice::new(&[0; 2 * COPY])];
        let written = Pin::new(&mut stream).poll_write_vectored(&mut context, &parts);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == 2 * COPY + 4));
        assert_eq!(stream.stream.written, [COPY, 1, 4, COPY, COPY]);
    }
}
