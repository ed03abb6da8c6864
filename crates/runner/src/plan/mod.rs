//! From a directory to a plan: manifests are read, facts of the host gathered, agreements looked up.

pub(crate) mod agent_version;
pub(crate) mod agreed_files;
pub(crate) mod agreements;
pub(crate) mod allowances;
pub(crate) mod facts;
pub(crate) mod init;
pub(crate) mod manifests;
pub(crate) mod planner;
pub(crate) mod project;
pub(crate) mod secret_values;
pub(crate) mod shared_values;
