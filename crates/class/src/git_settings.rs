//! Reads the settings of one git configuration file. Includes are not followed.
//!
//! git stops at a line that it does not understand; here the next line is read, so that a file with a fault hides
//! nothing that another version of git would find in it.

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitSetting {
    /// The section in small letters, such as `core`.
    pub section: Vec<u8>,
    /// The part in quotes, such as the name of a remote.
    pub subsection: Option<Vec<u8>>,
    /// The key in small letters.
    pub key: Vec<u8>,
    /// The value; `None` without a `=`, which means true.
    pub value: Option<Vec<u8>>,
}

impl GitSetting {
    /// Whether it is this one, of a section without a part in quotes.
    #[must_use]
    pub fn is(&self, section: &str, key: &str) -> bool {
        self.section == section.as_bytes() && self.subsection.is_none() && self.key == key.as_bytes()
    }

    /// The full name, as git writes it.
    #[must_use]
    pub fn name(&self) -> String {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let part = self.subsection.as_deref().map(|part| format!("{}.", lossy(part))).unwrap_or_default();
        format!("{}.{part}{}", lossy(&self.section), lossy(&self.key))
    }
}

/// The settings of a file, in order.
#[must_use]
pub fn git_settings(text: &[u8]) -> Vec<GitSetting> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Reader { text, at: 0, faulty: false }.settings()
}

/// The same; `None` if git would stop, or if readers and versions of git are known to disagree.
#[must_use]
pub fn git_settings_strict(text: &[u8]) -> Option<Vec<GitSetting>> {
    let odd = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n');
    if text.iter().any(odd) || text.starts_with(b"\xef\xbb\xbf") {
        return None;
    }
    let mut reader = Reader { text, at: 0, faulty: false };
    let settings = reader.settings();
    (!reader.faulty).then_some(settings)
}

/// What git takes for a blank, beside the end of a line.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

const fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Follows `config.c` of git 2.47, function by function.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    /// Whether git would have stopped, or another version of it reads something else.
    faulty: bool,
}

impl Reader<'_> {
    fn settings(&mut self) -> Vec<GitSetting> {
        let mut header = None;
        let mut out = Vec::new();
        while let Some(byte) = self.next() {
            match byte {
                b'#' | b';' => self.skip_line(),
                b'[' => {
                    header = self.header();
                    self.faulty |= header.is_none();
                }
                b'\n' => {}
                byte if is_blank(byte) => {}
                byte if byte.is_ascii_alphabetic() => {
                    let setting = self.setting(byte);
                    let (Some((section, subsection)), Some((key, value))) = (&header, setting) else {
                        self.faulty = true;
                        continue;
                    };
                    let (section, subsection) = (Vec::clone(section), Option::clone(subsection));
                    out.push(GitSetting { section, subsection, key, value });
                }
                _ => {
                    self.faulty = true;
                    self.skip_line();
                }
            }
        }
        out
    }

    /// The next byte; the end of a line as of DOS is that of a line.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += if byte == b'\n' && self.text.get(self.at) == Some(&b'\r') { 2 } else { 1 };
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        match self.text.get(self.at..)? {
            [b'\r', b'\n', ..] => Some(b'\n'),
            rest => rest.first().copied(),
        }
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|byte| byte != b'\n') {}
    }

    fn skip(&mut self, which: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&which) {
            self.at += 1;
        }
    }

    /// Behind the `[`: the section and its part in quotes.
    fn header(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut name = Vec::new();
        let quoted = loop {
            match self.peek()? {
                b']' => {
                    self.at += 1;
                    break None;
                }
                b'\n' => return None,
                byte if is_blank(byte) => break Some(self.quoted()?),
                byte => {
                    self.faulty |= !is_key(byte) && byte != b'.';
                    name.push(byte.to_ascii_lowercase());
                }
            }
            self.at += 1;
        };
        // The section ends at the first dot, also in the old form, `[branch.main]`.
        let mut parts = name.splitn(2, |byte| *byte == b'.');
        let section = parts.next().unwrap_or_default().to_vec();
        self.faulty |= section.is_empty();
        let subsection = match (parts.next(), quoted) {
            (Some(old), Some(quoted)) => Some([old, b".", &quoted].concat()),
            (Some(old), None) => Some(old.to_vec()),
            (None, quoted) => quoted,
        };
        Some((section, subsection))
    }

    /// The part in quotes, up to behind the `]`.
    fn quoted(&mut self) -> Option<Vec<u8>> {
        self.skip(is_blank);
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek()? {
                b'\n' => return None,
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    out.push(self.peek().filter(|byte| *byte != b'\n')?);
                }
                byte => out.push(byte),
            }
            self.at += 1;
        }
        self.at += 1;
        if self.peek()? != b']' {
            return None;
        }
        self.at += 1;
        Some(out)
    }

    /// A key that begins so, and its value where there is one.
    fn setting(&mut self, first: u8) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut key = vec![first.to_ascii_lowercase()];
        while let Some(byte) = self.peek().filter(|byte| is_key(*byte)) {
            key.push(byte.to_ascii_lowercase());
            self.at += 1;
        }
        self.skip(|byte| matches!(byte, b' ' | b'\t'));
        match self.peek() {
            Some(b'=') => {
                self.at += 1;
                Some((key, Some(self.value())))
            }
            None | Some(b'\n') => Some((key, None)),
            Some(_) => {
                self.skip_line();
                None
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        // Where blanks begin that count only if something follows.
        let mut blanks = None;
        // Whether one of them is not a space: git before 2.45 reads a space in its place.
        let mut tabs = false;
        let mut quoted = false;
        while let Some(byte) = self.next() {
            match byte {
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                // Those at the beginning never count, whatever stands before them: `"" x` and a continued line are `x`.
                byte if is_blank(byte) && !quoted => {
                    if !out.is_empty() {
                        blanks.get_or_insert(out.len());
                        tabs |= byte != b' ';
                        out.push(byte);
                    }
                    continue;
                }
                b'"' => quoted = !quoted,
                b'\\' => match self.next() {
                    None => self.faulty = true,
                    Some(b'\n') => {}
                    Some(escaped) => {
                        self.faulty |= !b"ntb\\\"".contains(&escaped);
                        out.push(match escaped {
                            b'n' => b'\n',
                            b't' => b'\t',
                            b'b' => 8,
                            other => other,
                        });
                    }
                },
                other => out.push(other),
            }
            blanks = None;
            self.faulty |= tabs;
        }
        self.faulty |= quoted;
        if let Some(blanks) = blanks {
            out.truncate(blanks);
        }
        out
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "a test compares the reader with git itself")]
mod tests {
    use super::*;
    use belljar_testkit::require;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn shown(text: &[u8]) -> Vec<String> {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let one = |setting: GitSetting| {
            let GitSetting { section, subsection, key, value } = setting;
            let subsection = subsection.map(|part| format!(".{}", lossy(&part))).unwrap_or_default();
            let value = value.map(|value| format!("={}", lossy(&value))).unwrap_or_default();
            format!("{}{subsection}.{}{value}", lossy(&section), lossy(&key))
        };
        git_settings(text).into_iter().map(one).collect()
    }

    #[test]
    fn reads_as_git_does() {
        let text = b"\xef\xbb\xbf; first\n[Core]\n\tBare = false # no\r\n  editor = \"a ; b\"  c  \n[alias]x=!a \\\n b\n\
            [remote \"o\\\"p\"] url = \"x\\ty\"\n[branch.Main]\nflag\nrest = 1\n";
        let expected = [
            "core.bare=false",
            "core.editor=a ; b  c",
            "alias.x=!a  b",
            "remote.o\"p.url=x\ty",
            "branch.main.flag",
            "branch.main.rest=1",
        ];
        assert_eq!(shown(text), expected);
    }

    #[test]
    fn a_fault_hides_nothing_behind_it() {
        assert_eq!(shown(b"[core\nhooksPath = x\n[core]\n=\nkey !\nhooksPath = y"), ["core.hookspath=y"]);
        assert_eq!(shown(b"[a \"b\n[c]\nd=\"e\nf=g\\"), ["c.d=e", "c.f=g"]);
        assert_eq!(shown(b"x = y\n[\xff]\nz = \x00"), ["\u{fffd}.z=\0"]);
    }

    #[test]
    fn a_tab_within_a_value_is_read_differently_by_versions_of_git() {
        for text in ["[a]\nb = c\td", "[a]\nb = c \t \"d\"", "[a]\nb = c\t\\\nd"] {
            assert_eq!(git_settings_strict(text.as_bytes()), None, "{text:?}");
        }
        for text in ["[a]\nb =\tc d\t # e", "[a]\nb = \"c\td\"", "[a]\nb = c\\td\t"] {
            assert!(git_settings_strict(text.as_bytes()).is_some(), "{text:?}");
        }
    }

    /// What git itself reads: names and values as `git config --list -z` has them; none where it stops.
    fn read_by_git(text: &[u8]) -> Option<Vec<u8>> {
        let mut git = Command::new("git")
            .args(["config", "--file", "-", "--list", "-z"])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        git.stdin.take().unwrap().write_all(text).unwrap();
        let found = git.wait_with_output().unwrap();
        found.status.success().then_some(found.stdout)
    }

    /// The same of what is read here.
    fn listed(settings: &[GitSetting]) -> Vec<u8> {
        let one = |GitSetting { section, subsection, key, value }: &GitSetting| {
            let mut out = section.clone();
            for part in subsection.iter().chain([key]) {
                out.push(b'.');
                out.extend_from_slice(part);
            }
            if let Some(value) = value {
                out.push(b'\n');
                out.extend_from_slice(value);
            }
            out.push(0);
            out
        };
        settings.iter().flat_map(one).collect()
    }

    /// What a configuration is made of.
    const PIECES: [&str; 40] = [
        "[core]\n",
        "[core]",
        "[remote \"o\"]\n",
        "[branch.Main]",
        "[a.b \"C\"]",
        "[",
        "]",
        "[x",
        " \"",
        "\"]",
        "\"",
        "\"\"",
        "\\",
        "\\\\",
        "\\\"",
        "\\n",
        "\\t",
        "\\b",
        "\\\n",
        "\\x",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        "  ",
        "=",
        " = ",
        "#",
        ";",
        ".",
        "-",
        "key",
        "Bare",
        "hooksPath = ",
        "url=",
        "value",
        "1",
        "\u{e9}",
    ];

    /// Where the strict reader does not refuse a file, git reads the same settings in the same order.
    #[test]
    fn fuzz_git_settings_strict() {
        require!(Git);
        let everyday = std::time::Duration::from_millis(500);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let pieces = bytes.iter().flat_map(|byte| match PIECES.get(usize::from(*byte) % 44) {
                Some(piece) => piece.as_bytes().to_vec(),
                None => vec![*byte],
            });
            let pieces: Vec<u8> = pieces.collect();
            let begun = [b"[core]\nbare =", pieces.as_slice(), b"\n"].concat();
            for text in [&pieces, &begun] {
                let Some(settings) = git_settings_strict(text) else { continue };
                assert_eq!(git_settings(text), settings, "{}", text.escape_ascii());
                let wanted = listed(&settings).escape_ascii().to_string();
                let found = read_by_git(text).map(|found| found.escape_ascii().to_string());
                assert_eq!(found, Some(wanted), "{}", text.escape_ascii());
            }
        });
    }
}
