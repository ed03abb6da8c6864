//! Names that git takes for branches (`git check-ref-format --branch`).

/// The longest file name, less the suffix of git's lock file.
const LONGEST: usize = 255 - ".lock".len();

/// Returns why git refuses a branch of this name; `None` if it accepts it.
#[must_use]
pub fn bad_branch(name: &[u8]) -> Option<&'static str> {
    let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    let parts = || name.split(|byte| *byte == b'/');
    let reserved = |byte: &u8| matches!(byte, b' ' | b'~' | b'^' | b':' | b'?' | b'*' | b'[' | b'\\');
    match () {
        () if name.is_empty() => Some("it is empty"),
        () if name.starts_with(b"-") => Some("it begins with `-`"),
        () if name == b"HEAD" || name == b"@" => Some("git has another use for it"),
        () if name.iter().any(u8::is_ascii_control) => Some("it has a control character"),
        () if name.iter().any(reserved) => Some("it has a space or one of `~ ^ : ? * [ \\`"),
        () if has(b"..") => Some("it has `..`"),
        () if has(b"@{") => Some("it has `@{`"),
        () if parts().any(<[u8]>::is_empty) => Some("it has a `/` at an end, or two in a row"),
        () if parts().any(|part| part.starts_with(b".")) => Some("a part of it begins with `.`"),
        () if parts().any(|part| part.ends_with(b".lock")) => Some("a part of it ends with `.lock`"),
        () if name.ends_with(b".") => Some("it ends with `.`"),
        () if parts().any(|part| part.len() > LONGEST) => Some("a part of it is too long"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    #[test]
    fn names_are_judged_as_git_judges_them() {
        belljar_testkit::require!(Git);
        let names: [&[u8]; 33] = [
            b"a",
            b"agent/main",
            b"a-b_c.d",
            b"\xc3\xbc",
            b"a@b",
            b"a{b",
            b"head",
            b"x/HEAD",
            b"a//b",
            b"/a",
            b"a/",
            b"",
            b"-a",
            b"a-",
            b"HEAD",
            b"a b",
            b"a\tb",
            b"a\x7fb",
            b"a~b",
            b"a^b",
            b"a:b",
            b"a?b",
            b"a*b",
            b"a[b",
            b"a\\b",
            b"a..b",
            b"a@{b",
            b".a",
            b"a/.b",
            b"a.lock",
            b"a.lock/b",
            b"a.",
            b"a./b",
        ];
        for name in names {
            let mut git = Command::new("git");
            git.args(["check-ref-format", "--branch"]).arg(OsStr::from_bytes(name));
            let takes = git.output().unwrap().status.success();
            assert_eq!(bad_branch(name).is_none(), takes, "{:?}", String::from_utf8_lossy(name));
        }
        assert!(bad_branch(b"@").is_some(), "some versions of git take it, and mean HEAD");
        assert!(bad_branch(&b"a".repeat(251)).is_some() && bad_branch(&b"a".repeat(250)).is_none());
    }
}
