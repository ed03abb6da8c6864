//! Parses an expression to a syntax tree.

use super::ExpressionError;
use super::syntax::{Access, Comparison, Method, Node, NodeKind};
use super::token::{Token, TokenKind, tokens};
use belljar_contract::{Letters, Pattern};
use std::ops::Range;

/// Maximum size of an expression, in bytes.
const LONGEST: usize = 4096;

/// Maximum nesting of an expression; each level is a few calls deep here and one in the evaluation.
const DEEPEST: usize = 48;

type Parsed = Result<Node, ExpressionError>;

pub(super) fn parse(text: &str) -> Parsed {
    if text.len() > LONGEST {
        let message = format!("the expression has {} bytes, more than the maximum of {LONGEST}", text.len());
        return Err(ExpressionError { message, span: 0..0, help: None });
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let root = parser.any_of()?;
    if !matches!(parser.peek().kind, TokenKind::End) {
        return Err(parser.unexpected("the end"));
    }
    match loose_pattern(&root) {
        None => Ok(root),
        Some(span) => Err(misplaced_pattern(span)),
    }
}

/// A pattern that is not matched against anything; those that are have become part of the match.
fn loose_pattern(node: &Node) -> Option<Range<usize>> {
    match &node.kind {
        NodeKind::Pattern(_) => Some(node.span.clone()),
        NodeKind::Null | NodeKind::Bool(_) | NodeKind::Number(_) | NodeKind::Text(_) | NodeKind::Name(_) => {
            None
        }
        NodeKind::List(items) => items.iter().find_map(loose_pattern),
        NodeKind::Not(inner) | NodeKind::Member { of: inner, .. } | NodeKind::Matches { text: inner, .. } => {
            loose_pattern(inner)
        }
        NodeKind::And(left, right) | NodeKind::Or(left, right) | NodeKind::Compare(_, left, right) => {
            loose_pattern(left).or_else(|| loose_pattern(right))
        }
        NodeKind::Item { of, at } => loose_pattern(of).or_else(|| loose_pattern(at)),
        NodeKind::Ask { of, with, .. } => {
            loose_pattern(of).or_else(|| with.as_deref().and_then(loose_pattern))
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    /// The last token is the end, which is never passed.
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn eat_mark(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek().kind, TokenKind::Mark(mark) if mark == wanted);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, wanted: &str) -> bool {
        let found = matches!(&self.peek().kind, TokenKind::Name(name) if name == wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &'static str) -> Result<(), ExpressionError> {
        if self.eat_mark(mark) { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> ExpressionError {
        let Token { kind, span } = self.peek();
        let found = match kind {
            TokenKind::Name(name) => format!("`{name}`"),
            TokenKind::Number(_) => "a number".to_owned(),
            TokenKind::Text(_) => "a text".to_owned(),
            TokenKind::Pattern(_) => "a pattern".to_owned(),
            TokenKind::Mark(mark) => format!("`{mark}`"),
            TokenKind::End => "the end".to_owned(),
        };
        ExpressionError {
            message: format!("expected {wanted}, found {found}"),
            span: span.clone(),
            help: None,
        }
    }

    /// Parses a part one level deeper.
    fn deeper(&mut self, part: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.depth += 1;
        if self.depth > DEEPEST {
            let message = format!("the expression is nested more than {DEEPEST} deep");
            return Err(ExpressionError { message, span: self.peek().span.clone(), help: None });
        }
        let node = part(self);
        self.depth -= 1;
        node
    }

    fn any_of(&mut self) -> Parsed {
        let mut left = self.all_of()?;
        let mut chained = 0;
        while self.eat_mark("||") || self.eat_word("or") {
            let right = self.all_of()?;
            left = join(NodeKind::Or, left, right);
            chained = self.bounded(chained)?;
        }
        Ok(left)
    }

    fn all_of(&mut self) -> Parsed {
        let mut left = self.negated()?;
        let mut chained = 0;
        while self.eat_mark("&&") || self.eat_word("and") {
            let right = self.negated()?;
            left = join(NodeKind::And, left, right);
            chained = self.bounded(chained)?;
        }
        Ok(left)
    }

    /// A chain of operators becomes a tree that leans to the left, so its length counts as depth.
    fn bounded(&self, chained: usize) -> Result<usize, ExpressionError> {
        if chained < DEEPEST * 8 {
            return Ok(chained + 1);
        }
        let message = "the expression has too many parts".to_owned();
        Err(ExpressionError { message, span: self.peek().span.clone(), help: None })
    }

    /// `not` binds weaker than a comparison, `!` stronger.
    fn negated(&mut self) -> Parsed {
        let start = self.peek().span.start;
        if self.eat_word("not") {
            let inner = self.deeper(Self::negated)?;
            let span = start..inner.span.end;
            return Ok(Node { kind: NodeKind::Not(Box::new(inner)), span });
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.unary()?;
        let comparison = match &self.peek().kind {
            TokenKind::Mark("===" | "==") => Comparison::Equal,
            TokenKind::Mark("!==" | "!=") => Comparison::Unequal,
            TokenKind::Mark("<") => Comparison::Less,
            TokenKind::Mark("<=") => Comparison::AtMost,
            TokenKind::Mark(">") => Comparison::Greater,
            TokenKind::Mark(">=") => Comparison::AtLeast,
            TokenKind::Name(name) => {
                let name = name.clone();
                return self.infix_word(left, &name);
            }
            TokenKind::Mark(_)
            | TokenKind::Number(_)
            | TokenKind::Text(_)
            | TokenKind::Pattern(_)
            | TokenKind::End => return Ok(left),
        };
        self.at += 1;
        let right = self.unary()?;
        Ok(join(|left, right| NodeKind::Compare(comparison, left, right), left, right))
    }

    /// `command contains 'x'` and its like.
    fn infix_word(&mut self, left: Node, name: &str) -> Parsed {
        match (name, Method::named(name)) {
            ("matches", _) => {
                self.at += 1;
                let right = self.unary()?;
                self.matches(left, right, Access::Must)
            }
            ("in", _) => {
                self.at += 1;
                let list = self.unary()?;
                let span = left.span.start..list.span.end;
                Ok(ask(Method::Includes, list, Some(left), Access::Must, span))
            }
            (_, Some(method)) if method.takes_one() && method != Method::IndexOf => {
                self.at += 1;
                let right = self.unary()?;
                let span = left.span.start..right.span.end;
                Ok(ask(method, left, Some(right), Access::Must, span))
            }
            _ => Ok(left),
        }
    }

    fn unary(&mut self) -> Parsed {
        let start = self.peek().span.start;
        if self.eat_mark("!") {
            let inner = self.deeper(Self::unary)?;
            let span = start..inner.span.end;
            return Ok(Node { kind: NodeKind::Not(Box::new(inner)), span });
        }
        if self.eat_mark("-") {
            let Token { kind: TokenKind::Number(number), span } = self.peek().clone() else {
                return Err(self.unexpected("a number"));
            };
            self.at += 1;
            return Ok(Node { kind: NodeKind::Number(-number), span: start..span.end });
        }
        let mut node = self.primary()?;
        let mut chained = 0;
        while let Some(next) = self.postfix(&node)? {
            node = next;
            chained = self.bounded(chained)?;
        }
        Ok(node)
    }

    fn postfix(&mut self, of: &Node) -> Result<Option<Node>, ExpressionError> {
        let start = of.span.start;
        if self.eat_mark("[") {
            let at = self.deeper(Self::any_of)?;
            self.expect("]")?;
            let span = start..self.end();
            return Ok(Some(Node {
                kind: NodeKind::Item { of: Box::new(of.clone()), at: Box::new(at) },
                span,
            }));
        }
        let chain = match self.peek().kind {
            TokenKind::Mark(".") => Access::Must,
            TokenKind::Mark("?.") => Access::May,
            TokenKind::Mark(_)
            | TokenKind::Name(_)
            | TokenKind::Number(_)
            | TokenKind::Text(_)
            | TokenKind::Pattern(_)
            | TokenKind::End => return Ok(None),
        };
        self.at += 1;
        let Token { kind: TokenKind::Name(name), span } = self.peek().clone() else {
            return Err(self.unexpected("a name"));
        };
        self.at += 1;
        if !self.eat_mark("(") {
            let kind = NodeKind::Member { of: Box::new(of.clone()), name, chain };
            return Ok(Some(Node { kind, span: start..span.end }));
        }
        let argument = if self.eat_mark(")") {
            None
        } else {
            let argument = self.deeper(Self::any_of)?;
            self.expect(")")?;
            Some(argument)
        };
        self.called(of.clone(), &name, span, argument, chain).map(Some)
    }

    fn called(
        &mut self,
        of: Node,
        name: &str,
        name_span: Range<usize>,
        argument: Option<Node>,
        chain: Access,
    ) -> Parsed {
        let span = of.span.start..self.end();
        let wrong_count = |wanted: &str| ExpressionError {
            message: format!("`{name}` takes {wanted}"),
            span: name_span.clone(),
            help: None,
        };
        match (name, &of.kind) {
            ("test", NodeKind::Pattern(pattern)) => {
                let text = argument.ok_or_else(|| wrong_count("one text"))?;
                let pattern = pattern.clone();
                Ok(Node {
                    kind: NodeKind::Matches { text: Box::new(text), pattern, chain: Access::Must },
                    span,
                })
            }
            (_, NodeKind::Pattern(_)) => Err(misplaced_pattern(of.span)),
            ("matches" | "match", _) => {
                let pattern = argument.ok_or_else(|| wrong_count("one pattern"))?;
                self.matches(of, pattern, chain)
            }
            _ => {
                let method = Method::named(name).ok_or_else(|| ExpressionError {
                    message: format!("unknown method `{name}`"),
                    span: name_span.clone(),
                    help: Some(METHODS.to_owned()),
                })?;
                match (method.takes_one(), &argument) {
                    (true, None) => Err(wrong_count("one argument")),
                    (false, Some(_)) => Err(wrong_count("no argument")),
                    (true, Some(_)) | (false, None) => Ok(ask(method, of, argument, chain, span)),
                }
            }
        }
    }

    /// The pattern must be known now, so that it is compiled once and its faults are found here.
    fn matches(&self, text: Node, pattern: Node, chain: Access) -> Parsed {
        let span = text.span.start..self.end();
        let compiled: Pattern = match pattern.kind {
            NodeKind::Pattern(compiled) => compiled,
            NodeKind::Text(source) => Pattern::new(&source, Letters::AsWritten)
                .map_err(|error| ExpressionError::of_pattern(&error, pattern.span))?,
            NodeKind::Null
            | NodeKind::Bool(_)
            | NodeKind::Number(_)
            | NodeKind::List(_)
            | NodeKind::Name(_)
            | NodeKind::Member { .. }
            | NodeKind::Item { .. }
            | NodeKind::Not(_)
            | NodeKind::And(..)
            | NodeKind::Or(..)
            | NodeKind::Compare(..)
            | NodeKind::Ask { .. }
            | NodeKind::Matches { .. } => {
                return Err(ExpressionError {
                    message: "the pattern must be written out, as `/x/` or `\"x\"`".to_owned(),
                    span: pattern.span,
                    help: None,
                });
            }
        };
        Ok(Node { kind: NodeKind::Matches { text: Box::new(text), pattern: compiled, chain }, span })
    }

    fn primary(&mut self) -> Parsed {
        let Token { kind, span } = self.advance();
        let kind = match kind {
            TokenKind::Number(number) => NodeKind::Number(number),
            TokenKind::Text(text) => NodeKind::Text(text),
            TokenKind::Pattern(pattern) => NodeKind::Pattern(pattern),
            TokenKind::Mark("(") => {
                let inner = self.deeper(Self::any_of)?;
                self.expect(")")?;
                return Ok(Node { kind: inner.kind, span: span.start..self.end() });
            }
            TokenKind::Mark("[") => NodeKind::List(self.list()?),
            TokenKind::Name(name) => match name.as_str() {
                "true" => NodeKind::Bool(true),
                "false" => NodeKind::Bool(false),
                "null" | "undefined" => NodeKind::Null,
                "and" | "or" | "not" | "in" => {
                    self.at -= 1;
                    return Err(self.unexpected("a value"));
                }
                _ => NodeKind::Name(name),
            },
            TokenKind::Mark(_) | TokenKind::End => {
                self.at -= 1;
                return Err(self.unexpected("a value"));
            }
        };
        Ok(Node { kind, span: span.start..self.end().max(span.end) })
    }

    fn list(&mut self) -> Result<Vec<Node>, ExpressionError> {
        let mut items = Vec::new();
        while !self.eat_mark("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.eat_mark("]") {
                    break;
                }
            }
            items.push(self.deeper(Self::any_of)?);
        }
        Ok(items)
    }

    /// Where the last token that was read ends.
    fn end(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |token| token.span.end)
    }
}

const METHODS: &str = "there are includes, contains, startsWith, endsWith, matches, match, test, indexOf, trim, \
                       toLowerCase and toUpperCase";

fn join(kind: impl FnOnce(Box<Node>, Box<Node>) -> NodeKind, left: Node, right: Node) -> Node {
    let span = left.span.start..right.span.end;
    Node { kind: kind(Box::new(left), Box::new(right)), span }
}

fn ask(method: Method, of: Node, with: Option<Node>, chain: Access, span: Range<usize>) -> Node {
    Node { kind: NodeKind::Ask { method, of: Box::new(of), with: with.map(Box::new), chain }, span }
}

fn misplaced_pattern(span: Range<usize>) -> ExpressionError {
    ExpressionError {
        message: "a pattern can be used for matching only".to_owned(),
        span,
        help: Some("write `/x/.test(command)` or `command.matches(/x/)`".to_owned()),
    }
}
