//! The name of a check that needs a sandbox.

use crate::check::{Key, keys};
use belljar_contract::decode::{Decode, Fault, Faults, Node, shown};
use belljar_contract::nearest;
use serde_json::{Value, json};

/// The key of a check whose findings rest on a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IsolationKey(pub &'static str);

fn all() -> impl Iterator<Item = &'static Key> {
    keys().filter(|key| key.isolation.reason().is_some())
}

impl Decode for IsolationKey {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let text = String::decode(node, faults)?;
        if let Some(key) = all().find(|key| key.name == text) {
            return Some(Self(key.name));
        }
        let names: Vec<&str> = all().map(|key| key.name).collect();
        let mut fault = match keys().find(|key| key.name == text) {
            Some(_) => {
                Fault::new(format!("`{}` does not need isolation, so it cannot be waived", shown(&text)))
            }
            None => Fault::new(format!("unknown check `{}`", shown(&text))),
        };
        if let Some(near) = nearest(&text, names.iter().copied()) {
            fault = fault.label(format!("did you mean `{near}`?"));
        }
        faults.invalid(node, fault.help(format!("these need isolation: {}", names.join(", "))))
    }

    fn schema() -> Value {
        json!({"enum": all().map(|key| key.name).collect::<Vec<_>>()})
    }
}
