//! The sockets that the guest opens inside, where the supervisor answers.

use crate::backend::Lowering;
use belljar_contract::{GuestAddress, GuestListener, GuestSpec, OsText, Plan, SyntheticAddresses, Workload};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The directory of the unix sockets.
pub(in crate::backend) const SOCKETS: &str = "/run/belljar";
/// The listener of the model's gateway.
pub const MODEL_LISTENER: &str = "model";
/// The listener of the agent that signs for ssh.
pub const SSH_LISTENER: &str = "ssh-agent";
/// The listener of the egress proxy.
pub const PROXY_LISTENER: &str = "proxy";
/// Where programs reach the egress proxy.
pub const PROXY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// The listeners that every backend opens: the model, ssh and the proxy, each where the plan has it.
pub(in crate::backend) fn listeners(lowering: &Lowering<'_>) -> Vec<GuestListener> {
    let Lowering { plan, workload, .. } = lowering;
    let unix = |name: &str, file: &str| {
        let path = OsText::new(format!("{SOCKETS}/{file}")).ok()?;
        Some(GuestListener { name: name.to_owned(), at: GuestAddress::Unix { path, mode: 0o600 } })
    };
    let proxy = || GuestListener {
        name: PROXY_LISTENER.to_owned(),
        at: GuestAddress::Tcp { address: PROXY_ADDRESS },
    };
    let model = matches!(workload, Workload::Agent(_)) && plan.egress.model;
    let wanted = [
        model.then(|| unix(MODEL_LISTENER, "model.sock")).flatten(),
        (!plan.ssh.is_empty()).then(|| unix(SSH_LISTENER, "ssh-agent.sock")).flatten(),
        plan.has_proxy().then(proxy),
    ];
    wanted.into_iter().flatten().collect()
}

/// Adds the resolver, and a listener for each address that an allowed host name resolves to inside.
pub(in crate::backend) fn with_allowed_hosts(mut spec: GuestSpec, plan: &Plan) -> GuestSpec {
    // Also without an address: only in a namespace of its own can the guest open the resolver's port.
    spec.range = Some(SyntheticAddresses::RANGE);
    spec.listeners.extend(SyntheticAddresses::of(&plan.egress).listeners());
    spec
}
