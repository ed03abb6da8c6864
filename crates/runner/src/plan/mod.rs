//! From a directory to a plan: reads manifests, gathers facts of the host, looks up agreements.

pub(crate) mod agent_version;
pub(crate) mod agreed_files;
pub(crate) mod agreements;
pub(crate) mod allowances;
pub(crate) mod arguments;
pub(crate) mod facts;
pub(crate) mod init;
pub(crate) mod manifests;
pub(crate) mod mounted;
pub(crate) mod planned;
pub(crate) mod planner;
pub(crate) mod project;
pub(crate) mod secret_values;
pub(crate) mod shared_values;
