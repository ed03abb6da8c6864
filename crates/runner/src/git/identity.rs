//! The parts of the user's git configuration that enter a sandbox: name, address, default branch, and ignore rules.
//!
//! The files are parsed here, with the files that they include for this project. Credential helpers, signing keys,
//! aliases and everything else that git would run or reach stay outside.

use super::user::{ProjectPlace, UserSettings, settings_at};
use super::{LARGEST_TEXT, UserFiles, bounded};
use belljar_contract::{FileContent, GitFile, Plan, RunFiles};
use std::path::Path;

/// Longer than any real name.
const LONGEST_VALUE: usize = 1000;
/// The path of the program inside the sandbox, if the system has it.
const LFS: &str = "/usr/bin/git-lfs";
/// The filter as `git lfs install` writes it.
const LFS_FILTER: &str = "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\
                          \tprocess = git-lfs filter-process\n\trequired = true\n";

/// Adds git's files with the user's values; returns why git outside may use other ones.
pub(crate) fn identity_files(plan: &Plan, user: &UserFiles, out: &mut RunFiles) -> Vec<String> {
    let place = ProjectPlace::of(&plan.workspace.source);
    let mut notices = Vec::new();
    let has_lfs = plan.image.is_none() && Path::new(LFS).exists();
    for file in &plan.files {
        let FileContent::Git(git) = &file.content else { continue };
        let bytes = match git {
            GitFile::Config { of_user, name, email } => {
                let (own, doubts) =
                    if *of_user { Values::of(user, &place) } else { (Values::default(), Vec::new()) };
                if name.is_none() || email.is_none() {
                    let so = "name and e-mail of commits inside may not be those that git would use outside";
                    notices.extend(doubts.into_iter().map(|doubt| format!("{doubt}; {so}")));
                }
                let values = Values {
                    name: name.clone().map(String::into_bytes).or(own.name),
                    email: email.clone().map(String::into_bytes).or(own.email),
                    ..own
                };
                values.config(has_lfs)
            }
            // An unreadable file is treated as missing.
            GitFile::Ignore => user
                .ignore_file()
                .ok()
                .and_then(|path| bounded(&path, LARGEST_TEXT).ok().flatten())
                .unwrap_or_default(),
        };
        out.add(&file.content, bytes);
    }
    notices
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Values {
    name: Option<Vec<u8>>,
    email: Option<Vec<u8>>,
    branch: Option<Vec<u8>>,
    lfs: bool,
}

impl Values {
    fn of(user: &UserFiles, place: &ProjectPlace) -> (Self, Vec<String>) {
        let UserSettings { settings, doubts } = settings_at(user, place);
        let last = |section: &str, key: &str| {
            settings
                .iter()
                .rfind(|setting| setting.is(section, key))
                .and_then(|setting| setting.value.clone())
        };
        let is_lfs = |setting: &belljar_sandbox::GitSetting| {
            setting.section == b"filter" && setting.subsection.as_deref() == Some(b"lfs")
        };
        let values = Values {
            name: last("user", "name"),
            email: last("user", "email"),
            branch: last("init", "defaultbranch"),
            lfs: settings.iter().any(is_lfs),
        };
        (values, doubts)
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

/// A value, quoted so that git reads it back; `None` if git could read more than a value.
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
    use belljar_sandbox::git_settings;
    use belljar_testkit::require;
    use std::fs;
    use std::process::Command;

    fn values(user: &UserFiles) -> Values {
        Values::of(user, &ProjectPlace::default()).0
    }

    /// Asks git about the same conditions, and compares.
    #[test]
    fn includes_are_followed_as_git_follows_them() {
        require!(Git);
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (home, project) = (top.join("home"), top.join("home/Work/x"));
        fs::create_dir_all(home.join("inc")).unwrap();
        fs::create_dir_all(&project).unwrap();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(arguments).current_dir(&project).env("HOME", &home).env("GIT_CONFIG_NOSYSTEM", "1");
            git.env_remove("XDG_CONFIG_HOME").env_remove("GIT_DIR");
            let done = git.output().unwrap();
            String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
        };
        git(&["init", "-q", "-b", "feature/a"]);
        git(&["remote", "add", "origin", "https://host/team/x.git"]);
        let user = UserFiles { home: AbsPath::new(&home).unwrap(), config: home.join(".config") };
        let project = AbsPath::new(&project).unwrap();
        fs::write(home.join("inc/other"), "[user]\n\temail = other@x\n[include]\n\tpath = deeper\n").unwrap();
        fs::write(home.join("inc/deeper"), "[user]\n\tname = Deeper\n").unwrap();
        let absolute = format!("gitdir:{}/", home.join("Work").display());
        for condition in [
            "gitdir:~/Work/",
            "gitdir:~/work/",
            "gitdir/i:~/work/",
            "gitdir:~/Wor",
            "gitdir:Work/",
            "gitdir:x/.git",
            "gitdir:./Work/",
            "gitdir:./inc/",
            "gitdir:/nowhere/",
            "gitdir:~/Work/*",
            "gitdir:~/Work/**",
            absolute.as_str(),
            "onbranch:feature/",
            "onbranch:feature/a",
            "onbranch:main",
            "onbranch:feature/*",
            "hasconfig:remote.*.url:https://host/team/**",
            "hasconfig:remote.*.url:https://host/other/**",
        ] {
            let text = format!(
                "[user]\n\tname = A\n\temail = own@x\n[includeIf \"{condition}\"]\n\tpath = ~/inc/other\n"
            );
            fs::write(home.join(".gitconfig"), text).unwrap();
            let (found, doubts) = Values::of(&user, &ProjectPlace::of(&project));
            let shown = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap()).unwrap();
            let found = [shown(found.name), shown(found.email)];
            assert_eq!(found, [git(&["config", "user.name"]), git(&["config", "user.email"])], "{condition}");
            assert_eq!(doubts, Vec::<String>::new(), "{condition}");
        }
        fs::write(home.join(".gitconfig"), "[include]\n\tpath = inc/other\n").unwrap();
        assert_eq!(values(&user).email.as_deref(), Some(&b"other@x"[..]));
        // Unknown conditions are reported, and files that include themselves do not loop.
        fs::write(home.join(".gitconfig"), "[includeIf \"new:x\"]\n\tpath = inc/other\n").unwrap();
        let (found, doubts) = Values::of(&user, &ProjectPlace::of(&project));
        assert!(found.email.is_none() && doubts.len() == 1 && doubts[0].contains("`new:x`"), "{doubts:?}");
        fs::write(home.join(".gitconfig"), "[include]\n\tpath = .gitconfig\n\tpath = .gitconfig\n").unwrap();
        let (_, doubts) = Values::of(&user, &ProjectPlace::of(&project));
        assert!(doubts.iter().any(|doubt| doubt.contains("too many files")), "{doubts:?}");
    }

    #[test]
    fn nothing_but_the_named_values_is_taken() {
        let home = tempfile::tempdir().unwrap();
        let user =
            UserFiles { home: AbsPath::new(home.path()).unwrap(), config: home.path().join(".config") };
        assert_eq!(values(&user).config(true), b"");
        std::fs::create_dir_all(home.path().join(".config/git")).unwrap();
        std::fs::write(home.path().join(".config/git/config"), "[user]\n\tname = Old\n\temail = e@x\n")
            .unwrap();
        let text = "[user]\n\tname = \"A \\\"B\\\" # C\"\n\tsigningKey = secret\n[credential]\n\thelper = !evil\n\
                    [include]\n\tpath = other\n[alias]\n\tx = !evil\n[init]\n\tdefaultBranch = trunk\n\
                    [filter \"lfs\"]\n\tclean = evil\n[core]\n\tfsmonitor = evil\n";
        std::fs::write(home.path().join(".gitconfig"), text).unwrap();
        let written = values(&user).config(true);
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
        assert!(!String::from_utf8(values(&user).config(false)).unwrap().contains("lfs"));
    }

    #[test]
    fn a_value_stays_a_value() {
        assert_eq!(quoted(b"a\\b\"c"), Some(b"\"a\\\\b\\\"c\"".to_vec()));
        assert_eq!(quoted(b"a\n[core]"), None);
    }
}
