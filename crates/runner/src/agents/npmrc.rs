//! The settings file of npm, as far as a download needs it. Pure: text in, keys and values out.

use std::collections::BTreeMap;

/// The settings of one file. A value is kept as it is written; variables are expanded when it is used.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Npmrc(BTreeMap<String, String>);

/// A variable that a setting names and that is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnsetVariable(pub String);

impl Npmrc {
    /// Reads the lines `key = value`. Comments, sections and lists are skipped: no setting of a download is in them.
    pub fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut out = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                // What follows belongs to a section, which npm ignores.
                break;
            }
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            let (key, value) = match line.split_once('=') {
                Some((key, value)) => (unquoted(key.trim()), unquoted(value.trim())),
                None => (line.to_owned(), "true".to_owned()),
            };
            if !key.ends_with("[]") {
                out.insert(key, value);
            }
        }
        Self(out)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn insert(&mut self, key: String, value: String) {
        self.0.insert(key, value);
    }
}

/// Removes quotes, or an unquoted comment behind a value.
fn unquoted(text: &str) -> String {
    if text.len() > 1 && text.starts_with('"') && text.ends_with('"') {
        return serde_json::from_str(text).unwrap_or_else(|_| text[1..text.len() - 1].to_owned());
    }
    if text.len() > 1 && text.starts_with('\'') && text.ends_with('\'') {
        return text[1..text.len() - 1].to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for char in text.chars() {
        match (escaped, char) {
            (true, ';' | '#' | '\\') => out.push(char),
            (true, char) => out.extend(['\\', char]),
            (false, ';' | '#') => break,
            (false, '\\') => {}
            (false, char) => out.push(char),
        }
        escaped = !escaped && char == '\\';
    }
    if escaped {
        out.push('\\');
    }
    out.trim_end().to_owned()
}

/// Replaces `${NAME}`. `${NAME?}` is empty if the variable is not set; the other form is an error then.
pub(super) fn expanded(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, UnsetVariable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            out.push_str("${");
            rest = after;
            continue;
        };
        let (name, optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, false),
        };
        match variable(name) {
            Some(value) => out.push_str(&value),
            None if optional => {}
            None => return Err(UnsetVariable(name.to_owned())),
        }
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys_and_values() {
        let file = Npmrc::parse(
            "\u{feff}; a comment\n# another\nregistry = https://mirror.example/npm/\r\n\
             @scope:registry=https://scope.example\n//mirror.example/npm/:_authToken=\"a;b#c\"\nstrict-ssl\n\
             cafile=/etc/ca.pem ; the company's\nlist[]=1\nempty=\nescaped=a\\;b\\\\c\\d\n[section]\nregistry=other\n",
        );
        for (key, value) in [
            ("registry", Some("https://mirror.example/npm/")),
            ("@scope:registry", Some("https://scope.example")),
            ("//mirror.example/npm/:_authToken", Some("a;b#c")),
            ("strict-ssl", Some("true")),
            ("cafile", Some("/etc/ca.pem")),
            ("list[]", None),
            ("empty", Some("")),
            ("escaped", Some("a;b\\c\\d")),
        ] {
            assert_eq!(file.get(key), value, "{key}");
        }
    }

    #[test]
    fn variables_are_expanded_and_an_unset_one_is_named() {
        let variable = |name: &str| (name == "TOKEN").then(|| "hush".to_owned());
        assert_eq!(expanded("a${TOKEN}b${TOKEN}", variable).unwrap(), "ahushbhush");
        assert_eq!(expanded("${OTHER?}x$y${", variable).unwrap(), "x$y${");
        assert_eq!(expanded("${OTHER}", variable), Err(UnsetVariable("OTHER".to_owned())));
    }

    #[test]
    fn any_text_is_read() {
        bolero::check!().with_type::<String>().for_each(|text: &String| {
            let file = Npmrc::parse(text);
            for value in file.0.values() {
                drop(expanded(value, |name| Some(name.to_owned())));
            }
        });
    }
}
