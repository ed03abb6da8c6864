//! Keys that check nothing: they let a signal pass that would decide the verdict otherwise.

use super::{Check, Effect, Key, Softened, check};
use crate::finding::Finding;
use crate::run::Run;
use crate::value::{IsolationKey, NonEmpty, Text, Yes};

pub(super) const KEYS: &[Key] = &[
    AutoAllow::KEY,
    Stall::KEY,
    OutputsDelete::KEY,
    DeleteIn::KEY,
    MissingCapability::KEY,
    PluginDivergence::KEY,
    Undelivered::KEY,
    WithoutIsolation::KEY,
];

check! {
    /// Lets `permissive_auto_allow` pass: tools that no rule of the scenario names may have been allowed.
    AutoAllow(Modifiers, "allow_permissive_auto_allow", NotNeeded): Yes
}
check! {
    /// Lets `stalled` pass: the agent may end on a question of its own.
    Stall(Modifiers, "allow_stall", NotNeeded): Yes
}
check! {
    /// Lets `outputs_delete` pass: files of the outputs may be gone.
    OutputsDelete(Modifiers, "allow_outputs_delete", NotNeeded): Yes
}
check! {
    /// Lets `mount_delete` pass for these directories, by their names.
    DeleteIn(Modifiers, "allow_delete_in", NotNeeded): NonEmpty<Text>
}
check! {
    /// Lets `missing_capability` pass: the image may lack what `requires_capabilities` names.
    MissingCapability(Modifiers, "allow_missing_capability", NotNeeded): Yes
}
check! {
    /// Read and kept for other tools; belljar holds nothing against a run that this would let pass.
    PluginDivergence(Modifiers, "allow_l0_plugin_divergence", NotNeeded): Yes
}
check! {
    /// Read and kept for other tools; belljar holds nothing against a run that this would let pass.
    Undelivered(Modifiers, "allow_undelivered_deliverables", NotNeeded): Yes
}

check! {
    /// Without a sandbox (`fidelity: protocol`, the backend `host`) these checks do not count, by their keys: each is
    /// reported as waived where it would be unknown for want of isolation. A failure that was seen still counts. With a
    /// sandbox it does nothing.
    WithoutIsolation(Modifiers, "allow_without_isolation", NotNeeded): NonEmpty<IsolationKey>
}

/// A modifier says nothing about the run, so it has nothing to show.
fn says_nothing() -> Finding {
    Finding::pass("lets a signal pass")
}

macro_rules! softens {
    ($($name:ident => $softened:expr;)+) => {$(
        impl Check for $name {
            fn judge(&self, _run: &Run<'_>) -> Finding {
                let Yes = self.0;
                says_nothing()
            }

            fn effect(&self) -> Effect {
                Effect::Softens($softened)
            }
        }
    )+};
}

softens! {
    AutoAllow => Softened::PermissiveAutoAllow;
    Stall => Softened::Stall;
    OutputsDelete => Softened::OutputsDelete;
    MissingCapability => Softened::MissingCapability;
    PluginDivergence => Softened::Nothing;
    Undelivered => Softened::Nothing;
}

impl Check for WithoutIsolation {
    fn judge(&self, _run: &Run<'_>) -> Finding {
        Finding::pass("lets checks be waived that need a sandbox")
    }

    fn effect(&self) -> Effect {
        Effect::WaivesIsolation(self.0.0.iter().map(|key| key.0).collect())
    }
}

impl Check for DeleteIn {
    fn judge(&self, _run: &Run<'_>) -> Finding {
        says_nothing()
    }

    fn effect(&self) -> Effect {
        Effect::Softens(Softened::DeleteIn(self.0.0.iter().map(|text| text.0.clone()).collect()))
    }
}
