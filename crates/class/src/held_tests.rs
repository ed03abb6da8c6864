use super::*;
use crate::class::Alias;

#[derive(Default)]
struct Around {
    git: &'static str,
    aliases: Vec<Alias>,
    named: Vec<PathBuf>,
}

impl TreeFacts for Around {
    fn is_git_directory(&self, directory: &Path) -> bool {
        !self.git.is_empty() && directory == Path::new(self.git)
    }

    fn link_target(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    fn named(&self) -> &[PathBuf] {
        &self.named
    }
}

fn is_held(path: &str, making: Making) -> bool {
    held(Path::new(path), making, &Around { git: "bare", ..Around::default() }).is_some()
}

#[test]
fn holds_the_guarded_part_of_the_class() {
    use Making::{Directory, File, Link, Probe};
    for (path, making) in [
        (".envrc", File),
        ("a/b/.vscode/tasks.json", File),
        (".git/hooks/pre-commit", File),
        (".git/hooks/pre-commit.sample/x", File),
        (".git/hooks/d", Directory),
        (".claude/hooks", Directory),
        (".claude/hooks/a.sample", File),
        (".idea", Directory),
        (".git", File),
        ("sub/.GIT", Link),
        (".vscode", Link),
        (".git/hooks", Link),
        (".git/modules", Link),
        (".git/modules/a", Link),
        (".git/worktrees", Link),
        (".git/worktrees/w", Link),
        (".git/modules", Probe),
        (".vscode", Probe),
        (".git/FETCH_HEAD", Probe),
        (".git/logs/tABCdef", Probe),
        (".git/logs/HEAD", Link),
        (".git/objects/ab/x", Link),
        (".git/tABCdef", Link),
        ("bare/logs/HEAD", Link),
        (".git/worktrees/w/modules/m/config.worktree", File),
        ("bare/config", File),
        ("bare/hooks/update", File),
        (".git/config.lock", File),
        (".git/config.lock", Link),
        (".git/Config.Lock", File),
        (".git/modules/a/config.lock", File),
        (".git/worktrees/w/config.worktree.lock", File),
        ("bare/config.lock", File),
    ] {
        assert!(is_held(path, making), "{path} {making:?}");
    }
    for (path, making) in [
        ("src/main.rs", File),
        (".git/index.lock", File),
        (".git/config.lock", Directory),
        ("config.lock", File),
        (".git/hooks", Directory),
        (".git/hooks/pre-commit.sample", File),
        (".git", Directory),
        (".envrc", Directory),
        (".vscode", Directory),
        (".git/tABCdef", Probe),
        (".git/modules/a/tABCdef", Probe),
        ("bare/t12XyzA", Probe),
        ("bare/_git2_12XyzA", Probe),
        ("config", File),
        ("other/config", File),
        (".env", File),
        ("node_modules/.bin/tsc", Link),
        (".claude/skills/a/SKILL.md", File),
    ] {
        assert!(!is_held(path, making), "{path} {making:?}");
    }
}

#[test]
fn says_what_content_could_excuse() {
    let unless = |path: &str| held(Path::new(path), Making::File, &Around::default()).map(|held| held.unless);
    assert_eq!(unless(".git/config"), Some(Unless::HarmlessConfig));
    assert_eq!(unless(".git/modules/a/b/config"), Some(Unless::HarmlessConfig));
    assert_eq!(unless(".git/Config"), Some(Unless::Never));
    assert_eq!(unless(".git/worktrees/w/commondir"), Some(Unless::OwnRepository));
    assert_eq!(unless("wt/.git"), Some(Unless::KnownRepository));
    assert_eq!(unless(".cargo/config"), Some(Unless::Never));
    assert_eq!(unless(".git/config.lock"), Some(Unless::ConfigLock));
    assert_eq!(unless(".git/config.LOCK"), Some(Unless::Never));
    assert_eq!(unless(".git/hooks/pre-commit"), Some(Unless::Never));
}

#[test]
fn holds_what_stands_in_and_what_was_named() {
    let alias = Alias { place: ".git/hooks".into(), leads_to: "tools/hooks".into() };
    let config = Alias { place: ".git/config".into(), leads_to: "more.cfg".into() };
    let around = Around { git: "", aliases: vec![alias, config], named: vec!["scripts/token.sh".into()] };
    let held = |path: &str, making| held(Path::new(path), making, &around);
    assert!(held("tools/hooks/pre-commit", Making::File).is_some());
    assert!(held("tools/hooks", Making::Link).is_some() && held("tools", Making::Link).is_some());
    assert!(held("tools/hooks", Making::Directory).is_none() && held("tools/x", Making::File).is_none());
    assert_eq!(held("more.cfg", Making::File).map(|held| held.unless), Some(Unless::Never));
    assert!(held("more.cfg.lock", Making::File).is_some() && held("other.lock", Making::File).is_none());
    assert!(held("scripts/token.sh", Making::File).is_some() && held("scripts", Making::Link).is_some());
    assert!(held("scripts/other.sh", Making::File).is_none());
}
