//! Everything that belljar keeps on disk: instances, locks, names of runs, records, findings; and its removal.

pub(crate) mod findings;
pub(crate) mod instances;
pub(crate) mod journal;
pub(crate) mod keeper;
pub(crate) mod kept_run;
pub(crate) mod leftovers;
pub(crate) mod locks;
pub(crate) mod machine_key;
pub(crate) mod names;
pub(crate) mod runs;
pub(crate) mod runtime;
pub(crate) mod seal;
pub(crate) mod summary;
pub(crate) mod sweep;
