//! Decides which parts of a text in the user's configuration are values.

use belljar_contract::{COMMON_BELOW, EnvName};
use belljar_egress::tape::Private;

/// Schemes that precede a credential in a header.
const SCHEMES: [&str; 3] = ["Bearer", "Basic", "token"];

/// The parts of a value that the file itself contains. `${NAME}` is filled in by the agent, from an environment that
/// the plan lists in full; a default (`${NAME:-text}`) is part of the file.
pub(super) fn literals(text: &str) -> Vec<&str> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inner, behind)) = after.split_once('}') else { break };
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        if EnvName::new(name).is_err() {
            return vec![credential(text)];
        }
        out.extend([before, default]);
        rest = behind;
    }
    if out.is_empty() {
        return Vec::from_iter((!text.is_empty()).then(|| credential(text)));
    }
    out.push(rest);
    let parts = out.into_iter().map(|part| credential(part.trim()));
    let parts = parts.map(|part| part.split_once("://").map_or(part, |(_scheme, rest)| rest));
    let scheme = |part: &str| SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(part));
    parts.filter(|part| part.contains(|c: char| c.is_alphanumeric()) && !scheme(part)).collect()
}

/// The credential of a header without its scheme: records may contain it alone.
fn credential(text: &str) -> &str {
    let rest = text.split_once(' ').filter(|(first, rest)| {
        rest.len() >= COMMON_BELOW && SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(first))
    });
    rest.map_or(text, |(_scheme, rest)| rest)
}

/// Whether the name of a variable, header, option or parameter suggests a secret.
pub(super) fn secret_name(name: &str) -> bool {
    let mut plain = String::new();
    for c in name.trim_matches(['-', '"', '\'', ' ']).chars() {
        if c.is_ascii_uppercase() && plain.ends_with(|before: char| before.is_ascii_lowercase()) {
            plain.push('_');
        }
        plain.push(if c == '-' || c == '.' { '_' } else { c });
    }
    plain.eq_ignore_ascii_case("authorization") || EnvName::new(plain).is_ok_and(|name| name.looks_secret())
}

/// The parts of a command's arguments that look like secrets.
pub(super) fn of_arguments<'a>(arguments: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut out, mut awaited) = (Vec::new(), false);
    for argument in arguments {
        if awaited && !argument.starts_with("--") {
            out.push(argument);
        } else if let Some(value) = assigned(argument) {
            out.push(value);
        } else {
            out.extend(of_url(argument));
        }
        awaited = argument.starts_with('-') && !argument.contains(['=', ':']) && secret_name(argument);
    }
    out
}

/// The value of `NAME=value`, `--name=value` or `Name: value`, where the name suggests a secret.
fn assigned(argument: &str) -> Option<&str> {
    let split = ['=', ':'].into_iter().filter_map(|sign| argument.split_once(sign));
    let mut secret = split.filter(|(name, value)| secret_name(name) && !value.trim().is_empty());
    secret.next().map(|(_name, value)| value.trim())
}

/// The parts of an address that look like secrets: user information, parameters whose names suggest a secret, and texts
/// in the form of a token.
pub(super) fn of_url(text: &str) -> Vec<&str> {
    let mut out: Vec<&str> = Private::Token.places(text).into_iter().map(|place| &text[place]).collect();
    let Some((_scheme, rest)) = text.split_once("://") else { return out };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if let Some((user, _host)) = authority.rsplit_once('@') {
        out.push(user.split_once(':').map_or(user, |(_name, password)| password));
    }
    let parameters = rest.split(['?', '#', '&', ';']).skip(1).filter_map(|one| one.split_once('='));
    out.extend(
        parameters.filter(|(name, value)| secret_name(name) && !value.is_empty()).map(|(_, value)| value),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_stands_beside_a_variable() {
        for (text, wanted) in [
            ("${TOKEN}", &[][..]),
            ("Bearer ${TOKEN}", &[]),
            ("Bearer sk-live-4711${X}", &["sk-live-4711"]),
            ("Bearer sk-live${X}", &["Bearer sk-live"]),
            ("${A:-fallback-value}", &["fallback-value"]),
            ("https://${HOST}/hooks/T0001", &["/hooks/T0001"]),
            ("left-part${A}right-part", &["left-part", "right-part"]),
            ("pa${ss w}ord", &["pa${ss w}ord"]),
            ("open${end", &["open${end"]),
            ("Bearer header-value", &["header-value"]),
            ("plain", &["plain"]),
            ("", &[]),
        ] {
            assert_eq!(literals(text), wanted, "{text}");
        }
    }

    #[test]
    fn finds_secrets_in_arguments_and_addresses() {
        let arguments = ["-y", "--api-key", "k-one", "--token=k-two", "PLAIN=x", "DB_PASSWORD=k-three"];
        let more =
            ["--header", "Authorization: Bearer k-four", "--accessToken", "--verbose", "http://u:k-five@h/"];
        let found = of_arguments(arguments.into_iter().chain(more));
        assert_eq!(found, ["k-one", "k-two", "k-three", "Bearer k-four", "k-five"]);
        assert_eq!(of_url("https://h.example/mcp?mode=a&api_key=k-six#token=k-seven"), ["k-six", "k-seven"]);
        assert_eq!(of_url("https://k-eight@h.example/"), ["k-eight"]);
        assert!(of_url("https://h.example/mcp?mode=a").is_empty());
    }
}
