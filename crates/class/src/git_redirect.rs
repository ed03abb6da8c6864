//! Settings that run nothing and still decide where the user's next push goes, or what the next fetch gets.

use std::collections::BTreeMap;

use super::git_settings::{GitSetting, git_settings};

/// A setting of a git configuration that has other values than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirected {
    /// The name of the setting in git, such as `remote.origin.url`.
    pub setting: String,
    /// Whether it had a value before.
    pub was_set: bool,
    /// Its values now, without what is secret in an address; none where it is gone.
    pub values: Vec<String>,
}

/// Returns the settings of that kind that differ between two texts of a configuration.
#[must_use]
pub fn redirected(before: &[u8], after: &[u8]) -> Vec<Redirected> {
    let (before, after) = (directing(before), directing(after));
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    let out = changed.map(|name| Redirected {
        setting: name.clone(),
        was_set: before.contains_key(name),
        values: after.get(name).into_iter().flatten().map(|value| without_secret(value)).collect(),
    });
    out.filter(|change| change.was_set || !is_said_once(&change.setting)).collect()
}

/// A branch or a remote that is new has to say where it comes from; only a change of that is news.
fn is_said_once(setting: &str) -> bool {
    setting.starts_with("branch.") && (setting.ends_with(".remote") || setting.ends_with(".merge"))
        || setting.starts_with("remote.") && setting.ends_with(".fetch")
}

fn directing(text: &[u8]) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut out: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for setting in git_settings(text).into_iter().filter(directs) {
        let value = setting.value.clone().unwrap_or_else(|| b"true".to_vec());
        // A repository with a work tree says that it is not bare, or nothing.
        if setting.is("core", "bare") && value == b"false" {
            continue;
        }
        out.entry(setting.name()).or_default().push(value);
    }
    out
}

fn directs(setting: &GitSetting) -> bool {
    let GitSetting { section, subsection, key, .. } = setting;
    match (section.as_slice(), subsection, key.as_slice()) {
        (b"remote", Some(_), b"url" | b"pushurl" | b"push" | b"mirror" | b"fetch")
        | (b"remote", None, b"pushdefault")
        | (b"branch", Some(_), b"remote" | b"pushremote" | b"merge")
        | (b"submodule", Some(_), b"url")
        | (b"url", Some(_), _)
        | (b"push", None, b"default")
        | (b"core", None, b"bare") => true,
        (_, _, _) => false,
    }
}

/// An address without the name and password in it; the name alone may be a token, but for those that log in with a key.
fn without_secret(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let Some((scheme, rest)) = text.split_once("://") else { return text.into_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, _)) if scheme.ends_with("ssh") && !user.contains(':') => text.into_owned(),
        Some((_, host)) => format!("{scheme}://[redacted]@{host}{path}"),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_goes_elsewhere() {
        let before =
            b"[core]\nbare = false\n[remote \"origin\"]\nurl = https://host/a\npushurl = b\nfetch = x\n\
            [branch \"main\"]\nremote = origin\n[user]\nname = a\n";
        let after =
            b"[core]\nbare = true\n[remote \"origin\"]\nurl = https://u:p@evil/a\nfetch = y\nmirror\n\
            [branch \"main\"]\nremote = evil\n[branch \"new\"]\nremote = origin\nmerge = refs/heads/new\n\
            [remote \"evil\"]\nurl = ssh://git@evil/x\n";
        let shown: Vec<String> = redirected(before, after)
            .into_iter()
            .map(|one| format!("{} {} {}", one.setting, one.was_set, one.values.join(",")))
            .collect();
        let expected = [
            "branch.main.remote true evil",
            "remote.origin.fetch true y",
            "remote.origin.pushurl true ",
            "remote.origin.url true https://[redacted]@evil/a",
            "core.bare false true",
            "remote.evil.url false ssh://git@evil/x",
            "remote.origin.mirror false true",
        ];
        assert_eq!(shown, expected);
        assert_eq!(redirected(before, before), []);
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (address, shown) in [
            ("https://token@host/a@b", "https://[redacted]@host/a@b"),
            ("https://u:p@ss@host", "https://[redacted]@host"),
            ("ssh://git:p@host/a", "ssh://[redacted]@host/a"),
            ("git@host:a/b", "git@host:a/b"),
            ("https://host/a@b", "https://host/a@b"),
        ] {
            assert_eq!(without_secret(address.as_bytes()), shown);
        }
    }
}
