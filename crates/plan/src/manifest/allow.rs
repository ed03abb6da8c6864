//! What may be reached, as a manifest writes it: a host, or a host and the requests that it may get.

use belljar_contract::decode::{At, Decode, Fault, Faults, Kind, Many, Node, table};
use belljar_contract::{HostPattern, HostTarget, Method, Methods, PathPattern, Paths, RequestRule};
use serde_json::{Value, json};

/// A rule that opens: short as a string, or as a table.
#[derive(Debug, Clone, PartialEq)]
pub struct AllowText {
    pub host: HostPattern,
    /// The requests; `None` where every one is meant.
    pub request: Option<RequestRule>,
}

const FORMS: &str = "write `\"api.example.org\"`, or `{ host = \"api.example.org\", methods = [\"GET\"], paths = [\"/v1/**\"] }`";

table! {
    /// A host, and the requests that it may get. They are seen because its TLS is intercepted.
    "a rule"
    pub struct AllowSpec {
        /// A host or `*.domain`, with an optional port; 443 without one.
        host: At<HostPattern>,
        /// Only these methods; every one when absent.
        methods: Option<At<Many<At<Method>>>>,
        /// Only these paths, such as `/repos/mine/**`; every one when absent.
        paths: Option<At<Many<At<PathPattern>>>>,
    }
}

impl Decode for AllowText {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(_) => HostPattern::decode(node, faults).map(|host| Self { host, request: None }),
            Kind::Table(_) => Self::from_table(AllowSpec::decode(node, faults)?, node, faults),
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Foreign(_) => {
                let message = format!("expected a host or a table, found {}", node.describe());
                faults.wrong_type(node, Fault::new(message).help(FORMS))
            }
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [HostPattern::schema(), AllowSpec::schema()]})
    }
}

impl AllowText {
    fn from_table(spec: AllowSpec, node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let AllowSpec { host, methods, paths } = spec;
        let host = host.value;
        if methods.is_none() && paths.is_none() {
            return Some(Self { host, request: None });
        }
        match host.target {
            HostTarget::Exact(_) | HostTarget::AnyUnder(_) => {}
            HostTarget::Address(_) | HostTarget::Range(_) => {
                let fault = Fault::new("requests to an address cannot be looked into: TLS knows names");
                return faults.invalid(node, fault.help("name the host, or leave `methods` and `paths` out"));
            }
        }
        let methods = methods.map_or(Methods::Any, |list| {
            Methods::Only(list.value.0.into_iter().map(|method| method.value).collect())
        });
        let paths = paths.map_or(Paths::Any, |list| {
            Paths::Only(list.value.0.into_iter().map(|path| path.value).collect())
        });
        Some(Self { host, request: Some(RequestRule { methods, paths }) })
    }
}

impl std::fmt::Display for AllowText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.request {
            None => self.host.fmt(f),
            Some(request) => write!(f, "{}: {request}", self.host),
        }
    }
}
