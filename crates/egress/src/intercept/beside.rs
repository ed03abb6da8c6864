//! A second thread for tunnels that are opened.
//!
//! TLS that is opened is decrypted and encrypted again, and one thread is the bound of what passes through it. So where two
//! tunnels are open at once, the second is served beside the thread of the proxy, which is started for it.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// Serves some of the work on a thread of its own.
pub(super) struct Beside {
    /// What is served on the thread that asks.
    here: watch::Sender<usize>,
    /// What is served on the other.
    there: watch::Sender<usize>,
    second: OnceLock<io::Result<Second>>,
}

/// The other thread; it ends with this.
struct Second {
    handle: Handle,
    _ended: oneshot::Sender<()>,
}

impl Second {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (_ended, end) = oneshot::channel::<()>();
        std::thread::Builder::new().name("opened-tls".to_owned()).spawn(move || {
            // Nothing is ever sent: it ends when the sender is gone.
            runtime.block_on(end).ok();
        })?;
        Ok(Self { handle, _ended })
    }
}

impl Beside {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { here: watch::Sender::new(0), there: watch::Sender::new(0), second: OnceLock::new() })
    }

    /// Carries the work out, on whichever thread has less; `None` when it broke off by itself. Dropped, the work ends too.
    pub async fn carry_out<T: Send + 'static>(
        self: Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let crowded = *self.here.borrow() > *self.there.borrow();
        let second = crowded.then(|| self.second.get_or_init(Second::start).as_ref().ok()).flatten();
        let Some(second) = second.map(|second| second.handle.clone()) else {
            let _counted = Counted::new(self, |beside| &beside.here);
            return Some(work.await);
        };
        let mut tasks = JoinSet::new();
        let counted = Counted::new(self, |beside| &beside.there);
        tasks.spawn_on(
            async move {
                // Dropped behind the work, so that nothing of it is left when nobody is counted.
                let _counted = counted;
                work.await
            },
            &second,
        );
        tasks.join_next().await?.ok()
    }

    /// Waits until nothing is served on the other thread: what is dropped here takes a moment to end there.
    pub async fn settled(&self) {
        // The sender is ours and stays.
        self.there.subscribe().wait_for(|count| *count == 0).await.map(drop).unwrap_or(());
    }
}

/// Something that is served, on one of the two threads.
struct Counted {
    beside: Arc<Beside>,
    on: fn(&Beside) -> &watch::Sender<usize>,
}

impl Counted {
    fn new(beside: Arc<Beside>, on: fn(&Beside) -> &watch::Sender<usize>) -> Self {
        on(&beside).send_modify(|count| *count += 1);
        Self { beside, on }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.on)(&self.beside).send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::ThreadId;
    use tokio::sync::Notify;

    fn thread() -> ThreadId {
        std::thread::current().id()
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_second_of_two_is_served_on_another_thread() {
        run(async {
            let beside = Beside::new();
            let (own, both) = (thread(), Arc::new(tokio::sync::Barrier::new(2)));
            let work = || {
                let both = Arc::clone(&both);
                Arc::clone(&beside).carry_out(async move {
                    both.wait().await;
                    thread()
                })
            };
            let (first, second) = tokio::join!(work(), work());
            assert_eq!(first, Some(own));
            assert!(second.is_some_and(|second| second != own));
            let alone = Arc::clone(&beside).carry_out(async { thread() }).await;
            assert_eq!(alone, Some(own), "one alone needs no other thread");
        });
    }

    #[test]
    fn what_is_dropped_ends_there_too_and_is_waited_for() {
        struct Left(Arc<AtomicBool>);
        impl Drop for Left {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        run(async {
            let beside = Beside::new();
            let (ended, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
            let waiting = Arc::clone(&beside).carry_out(std::future::pending::<()>());
            let other = {
                let (left, begun) = (Left(Arc::clone(&ended)), Arc::clone(&begun));
                Arc::clone(&beside).carry_out(async move {
                    let _left = left;
                    begun.notify_one();
                    std::future::pending::<()>().await;
                })
            };
            tokio::select! {
                biased;
                _ = waiting => {}
                _ = other => {}
                () = begun.notified() => {}
            }
            beside.settled().await;
            assert!(ended.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn work_that_panics_breaks_off_alone() {
        run(async {
            let beside = Beside::new();
            let first = Arc::clone(&beside).carry_out(std::future::pending::<()>());
            let second = Arc::clone(&beside).carry_out(async { panic!("as it happens") });
            tokio::select! {
                biased;
                _ = first => {}
                second = second => assert_eq!(second, None::<()>),
            }
            beside.settled().await;
        });
    }
}
