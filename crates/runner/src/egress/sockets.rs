//! The sockets that the guest opened inside the sandbox and passed out.

use belljar_contract::{Plan, RESOLVER_LISTENER, SyntheticAddresses};
use belljar_egress::proxy::TransparentListeners;
use belljar_sandbox::{MODEL_LISTENER, PROXY_LISTENER, Running, SSH_LISTENER};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

/// The sockets that the guest opened inside the sandbox and passed out.
pub(super) struct Sockets {
    pub(super) names: Vec<String>,
    pub(super) model: Option<OwnedFd>,
    pub(super) ssh: Option<UnixListener>,
    pub(super) proxy: Option<OwnedFd>,
    pub(super) addresses: Option<TransparentListeners>,
}

impl Sockets {
    pub(super) fn take(plan: &Plan, running: &mut Running) -> Self {
        let mut names = Vec::new();
        let mut take = |name: &str| {
            let taken = running.take_listener(name);
            names.extend(taken.is_some().then(|| name.to_owned()));
            taken
        };
        let model = take(MODEL_LISTENER);
        let ssh = take(SSH_LISTENER).map(UnixListener::from);
        let proxy = take(PROXY_LISTENER);
        let addresses = SyntheticAddresses::of(&plan.egress);
        let resolver = take(RESOLVER_LISTENER).map(std::net::UdpSocket::from);
        let open = resolver.map(|resolver| TransparentListeners {
            listeners: addresses
                .listeners()
                .iter()
                .filter_map(|listener| take(&listener.name))
                .map(Into::into)
                .collect(),
            addresses,
            resolver,
        });
        Self { names, model, ssh, proxy, addresses: open }
    }
}
