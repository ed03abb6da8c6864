//! The thread of the egress services.

use crate::session::conversation::{ModelCall, ModelCalls};
use belljar_egress::gateway::{self, FrontLimits, Responder};
use belljar_egress::proxy::{self, ProxyConfig, ProxySummary};
use belljar_egress::script::Listen;
use belljar_egress::ssh::{self, SshConfig};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct Services {
    pub proxy: Option<ProxyConfig>,
    pub broker: Option<(UnixListener, SshConfig)>,
    pub model: Option<(OwnedFd, Arc<dyn Responder>)>,
    pub calls: [Option<(ModelCalls, Arc<dyn Responder>)>; 2],
}

impl Services {
    /// Serves until `stop` says so, or until one of the services fails.
    pub fn run(self, stop: watch::Receiver<bool>) -> io::Result<Option<ProxySummary>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.serve(stop))
    }

    async fn serve(self, stop: watch::Receiver<bool>) -> io::Result<Option<ProxySummary>> {
        let Self { proxy, broker, model, calls } = self;
        let ended = |mut stop: watch::Receiver<bool>| async move {
            // An error means that the sender was dropped, which also ends the services.
            stop.wait_for(|end| *end).await.map(drop).unwrap_or(());
        };
        let proxying = {
            let stop = ended(stop.clone());
            async {
                match proxy {
                    Some(config) => proxy::serve(config, stop).await.map(Some).map_err(io::Error::other),
                    None => {
                        stop.await;
                        Ok(None)
                    }
                }
            }
        };
        let brokering = {
            let stop = ended(stop.clone());
            async {
                match broker {
                    Some((listener, config)) => {
                        listener.set_nonblocking(true)?;
                        let listener = tokio::net::UnixListener::from_std(listener)?;
                        ssh::serve(config, listener, stop).await;
                    }
                    None => stop.await,
                }
                io::Result::Ok(())
            }
        };
        let asking = {
            let stop = ended(stop.clone());
            let [deciders, judge] = calls;
            async {
                tokio::select! {
                    ((), ()) = async { tokio::join!(pass_on(deciders), pass_on(judge)) } => {}
                    () = stop => {}
                }
                io::Result::Ok(())
            }
        };
        let answering = {
            let stop = ended(stop);
            async {
                match model {
                    Some((socket, answer)) => {
                        let bound = Listen::BoundUnix(socket.into()).open().map_err(io::Error::other)?.0;
                        let listener = bound.listener().map_err(io::Error::other)?;
                        tokio::select! {
                            () = gateway::serve(listener, answer, FrontLimits::default()) => {
                                return Err(io::Error::other("the model's gateway ended"));
                            }
                            () = stop => {}
                        }
                    }
                    None => stop.await,
                }
                io::Result::Ok(())
            }
        };
        let (summary, (), (), ()) = tokio::try_join!(proxying, brokering, asking, answering)?;
        Ok(summary)
    }
}

/// Answers requests of a decider on a thread of their own, without a run, until all senders are dropped.
pub(crate) fn answer_calls(calls: ModelCalls, answer: Arc<dyn Responder>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || runtime.block_on(pass_on(Some((calls, answer))));
    std::thread::Builder::new().name("model".to_owned()).spawn(serve).map(drop)
}

/// Passes requests to the model one after the other, until all senders are dropped.
async fn pass_on(calls: Option<(ModelCalls, Arc<dyn Responder>)>) {
    let Some((mut calls, answer)) = calls else { return };
    while let Some(ModelCall { request, reply }) = calls.0.recv().await {
        let answered = gateway::ask(&*answer, &request).await.map_err(|error| error.to_string());
        // The caller may have given up.
        reply.send(answered).ok();
    }
}
