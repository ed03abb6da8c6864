//! The grammar of `.env` files: names and values, one assignment a line. Nothing is expanded and nothing is executed.
//!
//! Faults have a line and never quote the text: a line that is not an assignment may be a secret.

use belljar_contract::{EnvName, Secret};
use zeroize::Zeroizing;

/// A fault in a `.env` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DotenvFault {
    /// The line, counted from 1.
    pub line: usize,
    pub what: DotenvFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DotenvFaultKind {
    #[error("expected `NAME=value`, with letters, digits and `_` in the name")]
    NotAnAssignment,
    #[error("the quote is not closed")]
    OpenQuote,
    #[error("unexpected text after the closing quote")]
    AfterQuote,
    #[error(r#"unknown escape: double quotes know `\n`, `\r`, `\t`, `\\`, `\"` and `\$`"#)]
    Escape,
    #[error("`${{…}}`, `$(…)` and backticks are not expanded; single quotes take them literally")]
    Expansion,
    #[error("the value contains a NUL byte")]
    Nul,
    #[error("the file is not UTF-8")]
    NotUtf8,
}

/// Parses the assignments of a `.env` file, in their order. A name that is assigned twice is listed twice.
///
/// # Errors
/// All faults, in the order of the lines.
pub fn parse_dotenv(bytes: &[u8]) -> Result<Vec<(EnvName, Secret)>, Vec<DotenvFault>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        vec![DotenvFault { line, what: DotenvFaultKind::NotUtf8 }]
    })?;
    let mut reader = Reader { rest: text, line: 1 };
    let (mut assigned, mut faults) = (Vec::new(), Vec::new());
    while !reader.rest.is_empty() {
        match reader.assignment() {
            Ok(found) => assigned.extend(found),
            Err(fault) => faults.push(fault),
        }
        reader.end_line();
    }
    if faults.is_empty() { Ok(assigned) } else { Err(faults) }
}

/// What a shell and other readers of these files expand or execute.
const EXPANDED: [&str; 3] = ["${", "$(", "`"];

struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> Reader<'t> {
    fn fault(&self, what: DotenvFaultKind) -> DotenvFault {
        DotenvFault { line: self.line, what }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        self.line += usize::from(next == '\n');
        Some(next)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
    }

    /// Skips the remainder of the line, with its end.
    fn end_line(&mut self) {
        while !matches!(self.next(), None | Some('\n')) {}
    }

    /// Whether only blanks or a comment are left of the line.
    fn at_end_of_line(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty() || self.rest.starts_with(['\n', '#'])
    }

    /// The assignment of a line; `None` if the line is empty or a comment. The end of the line is not consumed.
    fn assignment(&mut self) -> Result<Option<(EnvName, Secret)>, DotenvFault> {
        if self.at_end_of_line() {
            return Ok(None);
        }
        let word = self.word();
        let name = match word {
            // `export=1` assigns to a variable of that name.
            "export" if self.rest.starts_with([' ', '\t']) && !self.rest.trim_start().starts_with('=') => {
                self.skip_blanks();
                self.word()
            }
            _name => word,
        };
        let name = EnvName::new(name).map_err(|_error| self.fault(DotenvFaultKind::NotAnAssignment))?;
        self.skip_blanks();
        let Some(value) = self.rest.strip_prefix('=') else {
            return Err(self.fault(DotenvFaultKind::NotAnAssignment));
        };
        self.rest = value;
        let quoted = value.trim_start_matches([' ', '\t']);
        let value = match quoted.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                self.rest = &quoted[1..];
                self.quoted(quote)?
            }
            _unquoted => self.unquoted()?,
        };
        match value.contains(&0) {
            true => Err(self.fault(DotenvFaultKind::Nul)),
            false => Ok(Some((name, Secret::new(value.as_slice())))),
        }
    }

    /// The letters, digits and underscores that come next.
    fn word(&mut self) -> &'t str {
        let rest = self.rest;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.rest = &rest[end..];
        &rest[..end]
    }

    /// Everything up to the end of the line, or up to a `#` after a blank.
    fn unquoted(&mut self) -> Result<Zeroizing<Vec<u8>>, DotenvFault> {
        let line = self.rest.split('\n').next().unwrap_or_default();
        self.rest = &self.rest[line.len()..];
        let is_comment = |(at, _): &(usize, &str)| line[..*at].ends_with([' ', '\t']);
        let end = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
        let value = line[..end].trim_matches([' ', '\t', '\r']);
        if EXPANDED.iter().any(|begin| value.contains(begin)) {
            return Err(self.fault(DotenvFaultKind::Expansion));
        }
        Ok(Zeroizing::new(value.as_bytes().to_vec()))
    }

    /// Everything up to the closing quote, which may be on a later line. The opening one was consumed.
    fn quoted(&mut self, quote: char) -> Result<Zeroizing<Vec<u8>>, DotenvFault> {
        let begin = self.line;
        // Allocated once: a growing buffer would leave copies of the value in memory.
        let mut value = Zeroizing::new(Vec::with_capacity(self.rest.len()));
        // The value is read to its end, so that its other lines are not taken for assignments.
        let mut fault = None;
        loop {
            if quote == '"' && EXPANDED.iter().any(|begin| self.rest.starts_with(begin)) {
                fault.get_or_insert(self.fault(DotenvFaultKind::Expansion));
            }
            match self.next() {
                None => return Err(DotenvFault { line: begin, what: DotenvFaultKind::OpenQuote }),
                Some(end) if end == quote => break,
                Some('\\') if quote == '"' => {
                    let at = self.fault(DotenvFaultKind::Escape);
                    match self.next().and_then(escaped) {
                        Some(byte) => value.push(byte),
                        None => {
                            fault.get_or_insert(at);
                        }
                    }
                }
                Some(other) => value.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        match fault {
            Some(fault) => Err(fault),
            None if !self.at_end_of_line() => Err(self.fault(DotenvFaultKind::AfterQuote)),
            None => Ok(value),
        }
    }
}

/// The meaning of a letter after a backslash.
fn escaped(letter: char) -> Option<u8> {
    match letter {
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        '\\' => Some(b'\\'),
        '"' => Some(b'"'),
        '$' => Some(b'$'),
        _unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        let pair = |(name, value): (EnvName, Secret)| {
            (name.to_string(), String::from_utf8(value.expose().to_vec()).unwrap())
        };
        parse_dotenv(text.as_bytes()).unwrap().into_iter().map(pair).collect()
    }

    #[test]
    fn reads_the_common_forms_of_an_assignment() {
        for (text, value) in [
            ("X=plain", "plain"),
            ("  export X = spaced out \t", "spaced out"),
            ("X=", ""),
            ("X= # nothing", ""),
            ("X=a#b # comment", "a#b"),
            ("X=#b", "#b"),
            ("X=pa$word\\n", "pa$word\\n"),
            ("X={\"a\": 1}", "{\"a\": 1}"),
            ("X='single ${A} $(b) `c` \\n' # comment", "single ${A} $(b) `c` \\n"),
            ("X=\"a\\n\\t\\r\\\\ \\\" \\${A} # '\"#c", "a\n\t\r\\ \" ${A} # '"),
            ("X=\"first\nsecond\n\"", "first\nsecond\n"),
            ("X='ü€\nz'", "ü€\nz"),
            ("X=crlf\r\n", "crlf"),
            ("\u{feff}X=mark", "mark"),
        ] {
            assert_eq!(parsed(text), [("X".to_owned(), value.to_owned())], "{text:?}");
        }
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_and_the_order_is_kept() {
        let found = parsed("# head\n\nB=2 \n\t# X=1\nexport A='1'\r\nexport=e\nB=3");
        let pairs: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(pairs, [("B", "2"), ("A", "1"), ("export", "e"), ("B", "3")]);
    }

    #[test]
    fn every_fault_has_its_line_and_none_of_the_text() {
        use DotenvFaultKind as Kind;
        let text = "A=1\nhunter2-secret\n1B=x\nexport C\nD=\"a\nb\\q c\nd\"\nE='x' y\nF=\"${A}\"\nG=`id`\nH=a$(id)\nI='open\n";
        let faults = parse_dotenv(text.as_bytes()).unwrap_err();
        let found: Vec<(usize, Kind)> = faults.iter().map(|fault| (fault.line, fault.what)).collect();
        let wanted = [
            (2, Kind::NotAnAssignment),
            (3, Kind::NotAnAssignment),
            (4, Kind::NotAnAssignment),
            (6, Kind::Escape),
            (8, Kind::AfterQuote),
            (9, Kind::Expansion),
            (10, Kind::Expansion),
            (11, Kind::Expansion),
            (12, Kind::OpenQuote),
        ];
        assert_eq!(found, wanted);
        assert!(faults.iter().all(|fault| !fault.what.to_string().contains("hunter2")));
        let line = |bytes: &[u8]| parse_dotenv(bytes).unwrap_err()[0];
        assert_eq!(line(b"A=1\nB=\xff"), DotenvFault { line: 2, what: Kind::NotUtf8 });
        assert_eq!(line(b"A='\0'"), DotenvFault { line: 1, what: Kind::Nul });
    }
}
