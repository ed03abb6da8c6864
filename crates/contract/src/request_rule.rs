//! Which requests to a host are allowed, by method and path.
//!
//! Paths are compared only in normal form. A path that two programs could interpret differently is refused, not
//! repaired, because the server must see the same path that was checked.

mod path;

pub use path::{PathPattern, PathPatternError, PathRefusal, RequestPath};

use crate::{DenialReason, Destination, Egress, EgressPolicy, EgressRule, RuleEffect};
use serde::{Serialize, Serializer};
use std::fmt;

/// An HTTP method in capitals, such as `GET`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method(String);

/// Why a text is not a method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a method: write `GET`, `POST` and the like in capitals")]
pub struct MethodError(pub String);

impl Method {
    /// Accepts 1 to 20 capital letters; no method in use has other characters.
    ///
    /// # Errors
    /// For every other text.
    pub fn new(text: &str) -> Result<Self, MethodError> {
        let valid = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase());
        if valid { Ok(Self(text.to_owned())) } else { Err(MethodError(text.escape_debug().to_string())) }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The methods that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Methods {
    Any,
    /// These methods; an empty list matches nothing.
    Only(Vec<Method>),
}

/// The paths that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paths {
    Any,
    /// Paths that match one of these; an empty list matches nothing.
    Only(Vec<PathPattern>),
}

/// The requests that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestRule {
    pub methods: Methods,
    /// By path; the query is ignored.
    pub paths: Paths,
}

impl RequestRule {
    fn speaks_of(&self, method: &str, path: Option<&RequestPath>) -> bool {
        let method = match &self.methods {
            Methods::Any => true,
            Methods::Only(list) => list.iter().any(|allowed| allowed.0 == method),
        };
        let path = match &self.paths {
            Paths::Any => true,
            Paths::Only(list) => path.is_some_and(|path| list.iter().any(|pattern| pattern.matches(path))),
        };
        method && path
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: Vec<String>, any: &str| if all.is_empty() { any.to_owned() } else { all.join(", ") };
        let methods = match &self.methods {
            Methods::Any => "any method".to_owned(),
            Methods::Only(methods) => list(methods.iter().map(ToString::to_string).collect(), "no method"),
        };
        let paths = match &self.paths {
            Paths::Any => "any path".to_owned(),
            Paths::Only(paths) => list(paths.iter().map(ToString::to_string).collect(), "no path"),
        };
        write!(f, "{methods} on {paths}")
    }
}

/// A request that a rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestAdmission<'r> {
    pub rule: &'r EgressRule,
    /// The normalised path that was checked, if a rule looks at paths. This is the path to send.
    pub path: Option<RequestPath>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestDenial {
    /// No rule matches the host.
    NoRule,
    /// A rule denies such requests.
    Denied { rule: String },
    /// Rules allow the host, but none of them allows this request.
    NotAllowed {
        /// Their ids, each with a description of what it allows.
        rules: Vec<(String, String)>,
    },
    /// The path is ambiguous, and a rule for the host looks at paths.
    Path {
        /// The first rule that looks at paths.
        rule: String,
        /// What is wrong with it.
        why: PathRefusal,
    },
}

impl RequestDenial {
    /// The rule to name in a log line.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        match self {
            RequestDenial::NoRule => None,
            RequestDenial::Denied { rule } | RequestDenial::Path { rule, .. } => Some(rule),
            RequestDenial::NotAllowed { rules } => rules.first().map(|(id, _)| id.as_str()),
        }
    }
}

impl fmt::Display for RequestDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestDenial::NoRule => f.write_str("no rule allows this host"),
            RequestDenial::Denied { rule } => write!(f, "rule {rule} denies it"),
            RequestDenial::NotAllowed { rules } => {
                let all: Vec<String> =
                    rules.iter().map(|(id, allows)| format!("rule {id} allows {allows}")).collect();
                f.write_str(&all.join("; "))
            }
            RequestDenial::Path { rule, why } => write!(f, "rule {rule} looks at paths, and {why}"),
        }
    }
}

/// Decides on one request to a destination. `path` does not include the query.
///
/// # Errors
/// The refusal. A deny rule wins. A path that cannot be normalised is refused if any rule for the host has paths.
pub fn request_allowed<'r>(
    rules: &'r [EgressRule],
    destination: &Destination,
    method: &str,
    path: &[u8],
) -> Result<RequestAdmission<'r>, RequestDenial> {
    let about: Vec<&EgressRule> = rules.iter().filter(|rule| names(rule, destination)).collect();
    let has_paths = |rule: &&&EgressRule| {
        rule.request.as_ref().is_some_and(|request| matches!(request.paths, Paths::Only(_)))
    };
    let path = match about.iter().find(has_paths) {
        None => None,
        Some(rule) => {
            Some(RequestPath::parse(path).map_err(|why| RequestDenial::Path { rule: rule.id.clone(), why })?)
        }
    };
    let covers = |rule: &&&EgressRule| {
        rule.request.as_ref().is_none_or(|request| request.speaks_of(method, path.as_ref()))
    };
    let with = |effect| about.iter().filter(move |rule| rule.effect == effect);
    if let Some(rule) = with(RuleEffect::Deny).find(covers) {
        return Err(RequestDenial::Denied { rule: rule.id.clone() });
    }
    if let Some(rule) = with(RuleEffect::Allow).find(covers) {
        return Ok(RequestAdmission { rule, path });
    }
    let allows = |rule: &&EgressRule| Some((rule.id.clone(), rule.request.as_ref()?.to_string()));
    let rules: Vec<(String, String)> = with(RuleEffect::Allow).filter_map(allows).collect();
    Err(if rules.is_empty() { RequestDenial::NoRule } else { RequestDenial::NotAllowed { rules } })
}

/// Whether a rule for the destination looks at single requests.
#[must_use]
pub fn requests_matter(rules: &[EgressRule], destination: &Destination) -> bool {
    rules.iter().any(|rule| rule.request.is_some() && names(rule, destination))
}

/// Whether a rule matches the destination. Uses the egress policy, so that both always agree.
fn names(rule: &EgressRule, destination: &Destination) -> bool {
    let alone = EgressPolicy::new(&Egress { model: false, rules: vec![rule.clone()] });
    match alone.admit(destination) {
        Ok(_) => true,
        Err(denial) => denial.reason == DenialReason::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostPattern;

    fn rule(id: &str, effect: RuleEffect, host: &str, methods: &[&str], paths: &[&str]) -> EgressRule {
        let methods = match methods {
            [] => Methods::Any,
            list => Methods::Only(list.iter().map(|method| Method::new(method).unwrap()).collect()),
        };
        let paths = match paths {
            [] => Paths::Any,
            list => Paths::Only(list.iter().map(|path| PathPattern::parse(path).unwrap()).collect()),
        };
        let host = HostPattern::parse(host).unwrap();
        EgressRule { id: id.to_owned(), effect, host, request: Some(RequestRule { methods, paths }) }
    }

    fn decide(rules: &[EgressRule], method: &str, path: &str) -> Result<String, String> {
        let destination = Destination::parse_authority(b"api.test:443").unwrap();
        request_allowed(rules, &destination, method, path.as_bytes())
            .map(|admission| admission.rule.id.clone())
            .map_err(|denial| denial.to_string())
    }

    #[test]
    fn by_method_and_path() {
        use RuleEffect::{Allow, Deny};
        let rules = [
            rule("deny-1", Deny, "api.test", &[], &["/repos/ok/secret/**"]),
            rule("allow-1", Allow, "api.test", &["GET", "HEAD"], &["/repos/ok/**", "/v1/*/items"]),
            rule("allow-2", Allow, "*.test", &["POST"], &["/repos/ok/issues"]),
            rule("allow-3", Allow, "other.test", &[], &[]),
        ];
        for (method, path, rule) in [
            ("GET", "/repos/ok/a", "allow-1"),
            ("GET", "/repos/ok/a/b/c", "allow-1"),
            ("HEAD", "/v1/x/items", "allow-1"),
            ("GET", "/repos/%6fk/%61", "allow-1"),
            ("POST", "/repos/ok/issues", "allow-2"),
        ] {
            assert_eq!(decide(&rules, method, path).as_deref(), Ok(rule), "{method} {path}");
        }
        for (method, path) in [
            ("GET", "/repos/ok"),
            ("GET", "/repos/okay/a"),
            ("GET", "/repos/evil"),
            ("GET", "/v1/items"),
            ("GET", "/v1/x/y/items"),
            ("GET", "/v1//items"),
            ("DELETE", "/repos/ok/a"),
            ("get", "/repos/ok/a"),
            ("POST", "/repos/ok/a"),
            ("GET", "/repos/ok/secret/x"),
            ("GET", "/repos/ok/%73ecret/x"),
            ("GET", "*"),
            ("GET", ""),
        ] {
            assert!(decide(&rules, method, path).is_err(), "{method} {path}");
        }
        assert_eq!(
            decide(&rules, "PUT", "/x").unwrap_err(),
            "rule allow-1 allows GET, HEAD on /repos/ok/**, /v1/*/items; rule allow-2 allows POST on /repos/ok/issues"
        );
        assert_eq!(decide(&rules, "GET", "/repos/ok/secret/x").unwrap_err(), "rule deny-1 denies it");
    }

    #[test]
    fn a_path_that_cannot_be_compared_is_refused_where_paths_matter() {
        use RuleEffect::Allow;
        let open = EgressRule { request: None, ..rule("allow-2", Allow, "api.test", &[], &[]) };
        let strict = [rule("allow-1", Allow, "api.test", &[], &["/ok/**"]), open.clone()];
        assert!(
            decide(&strict, "GET", "/ok/../evil").unwrap_err().starts_with("rule allow-1 looks at paths")
        );
        assert_eq!(decide(&[open], "GET", "/ok/../evil").as_deref(), Ok("allow-2"));
    }

    #[test]
    fn nothing_allows_nothing() {
        use RuleEffect::Allow;
        assert_eq!(decide(&[], "GET", "/").unwrap_err(), "no rule allows this host");
        let mut empty = rule("allow-1", Allow, "api.test", &[], &[]);
        empty.request = Some(RequestRule { methods: Methods::Only(vec![]), paths: Paths::Any });
        assert_eq!(
            decide(&[empty.clone()], "GET", "/").unwrap_err(),
            "rule allow-1 allows no method on any path"
        );
        empty.request = Some(RequestRule { methods: Methods::Any, paths: Paths::Only(vec![]) });
        assert_eq!(decide(&[empty], "GET", "/").unwrap_err(), "rule allow-1 allows any method on no path");
    }
}
