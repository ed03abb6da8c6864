//! The tokens of an expression.

use super::ExpressionError;
use belljar_contract::{Pattern, PatternFlags};
use std::ops::Range;

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub span: Range<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum TokenKind {
    Name(String),
    Number(f64),
    Text(String),
    Pattern(Pattern),
    Mark(&'static str),
    End,
}

/// Longest first, so that the longest is found.
const MARKS: [&str; 20] = [
    "===", "!==", "==", "!=", "<=", ">=", "&&", "||", "?.", "<", ">", "!", "(", ")", "[", "]", ".", ",", "-",
    "+",
];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ExpressionError> {
    let mut reader = Reader { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        let token = reader.next()?;
        let done = matches!(token.kind, TokenKind::End);
        tokens.push(token);
        if done {
            return Ok(tokens);
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Token, ExpressionError> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        let start = self.at;
        let kind = match self.rest().chars().next() {
            None => TokenKind::End,
            Some('"' | '\'') => self.text_literal()?,
            Some('/') => self.pattern_literal()?,
            Some('0'..='9') => self.number()?,
            Some(first) if first.is_alphabetic() || first == '_' || first == '$' => self.name(),
            Some(first) => self.mark(first)?,
        };
        Ok(Token { kind, span: start..self.at })
    }

    fn mark(&mut self, first: char) -> Result<TokenKind, ExpressionError> {
        let found = MARKS.iter().find(|mark| self.rest().starts_with(**mark));
        let Some(mark) = found else {
            let help = match first {
                '`' => Some("write a text in single or double quotes"),
                '=' => Some("compare with `===`"),
                '?' => Some("write the choice with `&&` and `||`"),
                '&' => Some("join two conditions with `&&`"),
                '|' => Some("join two conditions with `||`"),
                _ => None,
            };
            return Err(self.error(
                self.at..self.at + first.len_utf8(),
                format!("`{first}` cannot be used here"),
                help,
            ));
        };
        self.at += mark.len();
        Ok(TokenKind::Mark(mark))
    }

    fn name(&mut self) -> TokenKind {
        let end = self.rest().find(|char: char| !char.is_alphanumeric() && char != '_' && char != '$');
        let name = self.rest()[..end.unwrap_or(self.rest().len())].to_owned();
        self.at += name.len();
        TokenKind::Name(name)
    }

    fn number(&mut self) -> Result<TokenKind, ExpressionError> {
        let end = self.rest().find(|char: char| !char.is_ascii_alphanumeric() && char != '.');
        let text = self.rest()[..end.unwrap_or(self.rest().len())].to_owned();
        let span = self.at..self.at + text.len();
        self.at = span.end;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number
            .map(TokenKind::Number)
            .ok_or_else(|| self.error(span, format!("`{text}` is not a number"), None))
    }

    fn text_literal(&mut self) -> Result<TokenKind, ExpressionError> {
        let start = self.at;
        let mut chars = self.rest().char_indices();
        let Some((_, quote)) = chars.next() else { return Ok(TokenKind::End) };
        let mut value = String::new();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => match chars.next().and_then(|(_, escaped)| escape(escaped)) {
                    Some(escaped) => value.push(escaped),
                    None => {
                        let help = "write a literal backslash as `\\\\`";
                        let span = start + at..start + at + 1;
                        return Err(self.error(span, "unknown escape".to_owned(), Some(help)));
                    }
                },
                '\n' => break,
                end if end == quote => {
                    self.at = start + at + quote.len_utf8();
                    return Ok(TokenKind::Text(value));
                }
                other => value.push(other),
            }
        }
        Err(self.error(start..start + 1, "the text is not closed".to_owned(), None))
    }

    fn pattern_literal(&mut self) -> Result<TokenKind, ExpressionError> {
        let start = self.at;
        let Some(body) = pattern_end(&self.rest()[1..]) else {
            let help = "a pattern stands between two slashes; there is no division";
            return Err(self.error(start..start + 1, "the pattern is not closed".to_owned(), Some(help)));
        };
        let source = self.rest()[1..=body].to_owned();
        self.at = start + 1 + body + 1;
        let flags_at = self.at;
        let mut flags = PatternFlags::default();
        while let Some(flag) = self.rest().chars().next().filter(char::is_ascii_alphabetic) {
            match flag {
                'i' => flags.any_case = true,
                'm' => flags.many_lines = true,
                's' => flags.dot_matches_line_end = true,
                // Patterns are of Unicode anyway, and one match is enough.
                'u' | 'g' => {}
                _ => {
                    let span = flags_at..self.at + 1;
                    return Err(self.error(span, format!("unknown flag `{flag}` of a pattern"), None));
                }
            }
            self.at += 1;
        }
        Pattern::new(&source, flags)
            .map(TokenKind::Pattern)
            .map_err(|error| ExpressionError::of_pattern(&error, start..self.at))
    }

    fn error(&self, span: Range<usize>, message: String, help: Option<&str>) -> ExpressionError {
        ExpressionError { message, span, help: help.map(str::to_owned) }
    }
}

const fn escape(char: char) -> Option<char> {
    Some(match char {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '\\' | '\'' | '"' | '/' => char,
        _ => return None,
    })
}

/// Where the body of a pattern ends: at the first slash that is neither escaped nor in brackets.
fn pattern_end(text: &str) -> Option<usize> {
    let (mut escaped, mut in_brackets) = (false, false);
    for (at, char) in text.char_indices() {
        match char {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '/' if !in_brackets => return (at > 0).then_some(at),
            _ => {}
        }
    }
    None
}
