//! The places that a git configuration makes git execute or obey, as far as they may lie in the work tree.

use super::git_settings::{GitSetting, git_settings};
use belljar_contract::path_words;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A place that a configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// How git uses it.
    pub what: What,
    /// The path as written.
    pub path: PathBuf,
}

/// How git uses a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Runs the hooks in it. Relative to the work tree.
    Hooks,
    /// Reads it as configuration. Relative to the file that names it.
    Config,
    /// Reads it as attributes. Relative to the work tree.
    Attributes,
    /// Runs it. Relative to the work tree.
    Program,
    /// Takes it for the work tree. Relative to the git directory.
    WorkTree,
}

/// Addresses that begin so name a program.
const EXT: &[u8] = b"ext::";

/// How a setting names a program.
enum Runs {
    /// The value is the path of a program.
    Path,
    /// A line for a shell, whose first word is looked for on the search path unless it has a slash.
    Line,
    /// A line for a shell, when it begins with `!`.
    LineAfterBang,
    /// A program, or a line for a shell when it begins with `!`; else the name of a program of git.
    Helper,
}

/// The places that a configuration names; what is not understood names nothing.
#[must_use]
pub fn named(text: &[u8]) -> Vec<NamedPath> {
    git_settings(text).iter().flat_map(of_setting).collect()
}

fn of_setting(setting: &GitSetting) -> Vec<NamedPath> {
    let GitSetting { section, subsection, key, value } = setting;
    let Some(value) = value else { return Vec::new() };
    // Wherever git takes the address of a repository, this transport runs a command line.
    let replaced = subsection.as_deref().filter(|_| section == b"url");
    if let Some(line) =
        [Some(value.as_slice()), replaced].iter().flatten().find_map(|url| url.strip_prefix(EXT))
    {
        return programs(&with_spaces(line));
    }
    let one = |what, path: &[u8]| vec![NamedPath { what, path: PathBuf::from(OsStr::from_bytes(path)) }];
    match (section.as_slice(), key.as_slice()) {
        (b"core", b"hookspath") | (b"init", b"templatedir") => one(What::Hooks, value),
        (b"core", b"attributesfile") => one(What::Attributes, value),
        (b"core", b"worktree") => one(What::WorkTree, value),
        (b"include" | b"includeif", b"path") => one(What::Config, value),
        (section, key) => match runs(section, key) {
            None => Vec::new(),
            Some(Runs::Path) => one(What::Program, value),
            Some(Runs::Line) => programs(value),
            Some(Runs::LineAfterBang) => value.strip_prefix(b"!").map(programs).unwrap_or_default(),
            Some(Runs::Helper) => match value.strip_prefix(b"!") {
                Some(line) => programs(line),
                None if value.contains(&b'/') => programs(value),
                None => Vec::new(),
            },
        },
    }
}

/// The settings whose value git runs.
fn runs(section: &[u8], key: &[u8]) -> Option<Runs> {
    Some(match (section, key) {
        (b"core", b"fsmonitor") => Runs::Path,
        (
            b"core",
            b"sshcommand" | b"pager" | b"editor" | b"askpass" | b"gitproxy" | b"alternaterefscommand",
        )
        | (b"sequence", b"editor")
        | (b"gpg", b"program" | b"defaultkeycommand")
        | (b"filter", b"clean" | b"smudge" | b"process")
        | (b"diff", b"external" | b"command" | b"textconv")
        | (b"merge", b"driver")
        | (
            b"mergetool" | b"difftool" | b"guitool" | b"man" | b"browser" | b"tar",
            b"cmd" | b"path" | b"command",
        )
        | (b"trailer", b"cmd" | b"command")
        | (b"hook", b"command")
        | (b"remote", b"uploadpack" | b"receivepack" | b"vcs")
        | (b"interactive", b"difffilter")
        | (b"uploadpack", b"packobjectshook")
        | (b"imap", b"tunnel")
        | (b"lfs", b"path")
        | (b"sendemail", b"smtpserver" | b"tocmd" | b"cccmd" | b"headercmd" | b"sendmailcmd")
        | (b"pager", _) => Runs::Line,
        (b"alias", _) | (b"submodule", b"update") => Runs::LineAfterBang,
        (b"credential", b"helper") => Runs::Helper,
        _ => return None,
    })
}

/// The command line of an `ext::` address, in which `% ` is a space within an argument.
fn with_spaces(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'%', Some(b' ')) => {}
            _ => out.push(byte),
        }
    }
    out
}

/// The arguments of a command line that may be programs or scripts of the tree.
fn programs(line: &[u8]) -> Vec<NamedPath> {
    let line = line.trim_ascii();
    let first = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let arguments = path_words(line).into_iter();
    let arguments = arguments.filter(|argument| argument != first || argument.contains(&b'/'));
    let program = |argument: Vec<u8>| PathBuf::from(OsStr::from_bytes(&argument));
    arguments.map(|argument| NamedPath { what: What::Program, path: program(argument) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_git_obeys() {
        let text = b"[core]\n\thooksPath = .githooks # ours\n\tbare = false\n[includeIf \"gitdir:/x/\"]\npath=\"a b\"\n\
            [CORE] fsmonitor = ./tools/watch\n[remote \"hooksPath\"]\n\turl = x\nhookspath = not-core\n";
        let expected = [(What::Hooks, ".githooks"), (What::Config, "a b"), (What::Program, "./tools/watch")];
        let expected: Vec<NamedPath> =
            expected.map(|(what, path)| NamedPath { what, path: path.into() }).into_iter().collect();
        assert_eq!(named(text), expected);
        assert_eq!(named(b"[core\nhooksPath"), []);
        assert_eq!(named(b"\xff[core]\n=\n"), []);
    }

    #[test]
    fn finds_the_programs_of_a_configuration() {
        for (text, path) in [
            ("[filter \"x\"]\nclean = tools/clean %f", "tools/clean"),
            ("[filter \"x\"]\nsmudge = sh tools/smudge.sh", "tools/smudge.sh"),
            ("[filter \"x\"]\nprocess = \"python3 'tools/p.py' --quiet\"", "tools/p.py"),
            ("[diff \"pdf\"]\ntextconv = ./pdf", "./pdf"),
            ("[diff]\nexternal = tools/d", "tools/d"),
            ("[merge \"m\"]\ndriver = tools/m %O %A %B", "tools/m"),
            ("[core]\nsshCommand = tools/ssh -v", "tools/ssh"),
            ("[core]\npager = less | tools/p", "tools/p"),
            ("[core]\neditor = tools/e", "tools/e"),
            ("[core]\naskPass = tools/a", "tools/a"),
            ("[sequence]\neditor = tools/s", "tools/s"),
            ("[gpg]\nprogram = tools/g", "tools/g"),
            ("[gpg \"ssh\"]\nprogram = tools/g", "tools/g"),
            ("[credential]\nhelper = !tools/c get", "tools/c"),
            ("[credential \"https://x\"]\nhelper = /p/tools/c", "/p/tools/c"),
            ("[alias]\nst = !f() { tools/st; }; f", "tools/st"),
            ("[pager]\nlog = tools/l", "tools/l"),
            ("[remote \"o\"]\nuploadpack = tools/u", "tools/u"),
            ("[submodule \"s\"]\nupdate = !tools/u", "tools/u"),
            ("[remote \"o\"]\nreceivepack = tools/r", "tools/r"),
            ("[remote \"o\"]\nurl = ext::tools/e %S", "tools/e"),
            ("[remote \"o\"]\nurl = \"ext::sh -c tools/e% %S\"", "tools/e"),
            ("[remote \"o\"]\npushUrl = ext::sh tools/p.sh", "tools/p.sh"),
            ("[branch \"main\"]\nremote = ext::tools/b", "tools/b"),
            ("[remote]\npushDefault = ext::tools/d", "tools/d"),
            ("[submodule \"s\"]\nurl = ext::tools/s", "tools/s"),
            ("[url \"ext::tools/i %S \"]\ninsteadOf = gh:", "tools/i"),
            ("[core]\ngitProxy = tools/g for example.org", "tools/g"),
            ("[lfs \"customtransfer.x\"]\npath = tools/l", "tools/l"),
        ] {
            let found = named(text.as_bytes());
            let wanted = NamedPath { what: What::Program, path: path.into() };
            assert!(found.contains(&wanted), "{text}: {found:?}");
        }
        // Not a path of the tree.
        for text in [
            "[alias]\nst = status",
            "[credential]\nhelper = store",
            "[core]\neditor = vim",
            "[user]\nname = a/b",
            "[remote \"o\"]\nurl = https://host/a/b",
            "[remote \"o\"]\nurl = ../other",
        ] {
            assert_eq!(named(text.as_bytes()), [], "{text}");
        }
    }

    /// What a configuration is made of.
    const PIECES: [&str; 24] = [
        "[",
        "]",
        "[core]",
        "[alias]",
        "[filter \"x\"]",
        "[include]",
        "\"",
        "\\",
        "\\\n",
        "\n",
        "\r\n",
        "=",
        "#",
        ";",
        " ",
        "\t",
        "!",
        "hooksPath",
        "clean",
        "path",
        "$(",
        "./a/b",
        "~/",
        "\0",
    ];

    #[test]
    fn fuzz_git_configuration() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text: Vec<u8> = bytes
                .iter()
                .flat_map(|byte| match PIECES.get(usize::from(*byte) % 48) {
                    Some(piece) => piece.as_bytes().to_vec(),
                    None => vec![*byte],
                })
                .collect();
            let begun = [b"[alias \"x\"]\nx = !", text.as_slice()].concat();
            for text in [bytes, &text, &begun] {
                let settings = git_settings(text);
                assert!(settings.iter().all(|setting| !setting.key.is_empty()));
                let values: usize =
                    settings.iter().filter_map(|setting| setting.value.as_ref()).map(Vec::len).sum();
                assert!(values <= text.len());
                assert!(named(text).len() <= text.len() * 4 + 4);
            }
        });
    }
}
