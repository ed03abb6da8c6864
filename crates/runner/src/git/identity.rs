//! What of the user's git configuration enters a sandbox: a name, an address, the first branch, and what is ignored.
//!
//! The files are read here, as data, without their includes. Helpers for credentials, keys for signatures, aliases and
//! everything else that git would run or reach stay outside.

use super::{LARGEST_TEXT, UserFiles, bounded};
use belljar_contract::{FileContent, GitFile, Plan};
use belljar_sandbox::git_settings;
use std::path::Path;

/// Longer than any name.
const LONGEST_VALUE: usize = 1000;
/// Where the sandbox would have the program, if the system has it.
const LFS: &str = "/usr/bin/git-lfs";
/// As `git lfs install` writes it.
const LFS_FILTER: &str = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\
                          \tprocess = git-lfs filter-process\n\trequired = true\n";

/// Puts the user's values into the files of a plan.
pub(crate) fn fill(plan: &mut Plan, user: &UserFiles) {
    let has_lfs = plan.image.is_none() && Path::new(LFS).exists();
    for file in &mut plan.files {
        let FileContent::Git(git) = &file.content else { continue };
        let bytes = match git {
            GitFile::Config { of_user, name, email } => {
                let own = if *of_user { Values::of(user) } else { Values::default() };
                let values = Values {
                    name: name.clone().map(String::into_bytes).or(own.name),
                    email: email.clone().map(String::into_bytes).or(own.email),
                    ..own
                };
                values.config(has_lfs)
            }
            // One that cannot be read is as good as none.
            GitFile::Ignore => user
                .ignore_file()
                .ok()
                .and_then(|path| bounded(&path, LARGEST_TEXT).ok().flatten())
                .unwrap_or_default(),
        };
        file.content = FileContent::Bytes(bytes);
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Values {
    name: Option<Vec<u8>>,
    email: Option<Vec<u8>>,
    branch: Option<Vec<u8>>,
    lfs: bool,
}

impl Values {
    fn of(user: &UserFiles) -> Self {
        let texts = user.configurations().into_iter().filter_map(|path| bounded(&path, LARGEST_TEXT).ok()?);
        let settings: Vec<_> = texts.flat_map(|text| git_settings(&text)).collect();
        let last = |section: &str, key: &str| {
            settings
                .iter()
                .rfind(|setting| setting.is(section, key))
                .and_then(|setting| setting.value.clone())
        };
        let is_lfs = |setting: &belljar_sandbox::GitSetting| {
            setting.section == b"filter" && setting.subsection.as_deref() == Some(b"lfs")
        };
        Values {
            name: last("user", "name"),
            email: last("user", "email"),
            branch: last("init", "defaultbranch"),
            lfs: settings.iter().any(is_lfs),
        }
    }

    fn config(&self, has_lfs: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut set = |section: &str, key: &str, value: &Option<Vec<u8>>| {
            let Some(value) = value.as_deref().and_then(quoted) else { return };
            out.extend(format!("[{section}]\n\t{key} = ").as_bytes());
            out.extend(value);
            out.push(b'\n');
        };
        set("user", "name", &self.name);
        set("user", "email", &self.email);
        set("init", "defaultBranch", &self.branch);
        if self.lfs && has_lfs {
            out.extend(LFS_FILTER.as_bytes());
        }
        out
    }
}

/// A value as git reads it back; `None` where it could be read as more than a value.
fn quoted(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() > LONGEST_VALUE || value.iter().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let mut out = vec![b'"'];
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::AbsPath;

    #[test]
    fn nothing_but_the_named_values_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let user =
            UserFiles { home: AbsPath::new(home.path()).unwrap(), config: home.path().join(".config") };
        assert_eq!(Values::of(&user).config(true), b"");
        std::fs::create_dir_all(home.path().join(".config/git")).unwrap();
        std::fs::write(home.path().join(".config/git/config"), "[user]\n\tname = Old\n\temail = e@x\n")
            .unwrap();
        let text = "[user]\n\tname = \"A \\\"B\\\" # C\"\n\tsigningKey = secret\n[credential]\n\thelper = !evil\n\
                    [include]\n\tpath = other\n[alias]\n\tx = !evil\n[init]\n\tdefaultBranch = trunk\n\
                    [filter \"lfs\"]\n\tclean = evil\n[core]\n\tfsmonitor = evil\n";
        std::fs::write(home.path().join(".gitconfig"), text).unwrap();
        let written = Values::of(&user).config(true);
        let settings = git_settings(&written);
        let of = |section: &str, key: &str| {
            settings.iter().find(|one| one.is(section, key)).and_then(|one| one.value.clone())
        };
        assert_eq!(of("user", "name").as_deref(), Some(&b"A \"B\" # C"[..]));
        assert_eq!(of("user", "email").as_deref(), Some(&b"e@x"[..]));
        assert_eq!(of("init", "defaultbranch").as_deref(), Some(&b"trunk"[..]));
        let text = String::from_utf8(written).unwrap();
        assert!(!text.contains("evil") && !text.contains("secret") && !text.contains("include"), "{text}");
        assert!(text.contains("git-lfs filter-process"), "{text}");
        assert!(!String::from_utf8(Values::of(&user).config(false)).unwrap().contains("lfs"));
    }

    #[test]
    fn a_value_stays_a_value() {
        assert_eq!(quoted(b"a\\b\"c"), Some(b"\"a\\\\b\\\"c\"".to_vec()));
        assert_eq!(quoted(b"a\n[core]"), None);
    }
}
