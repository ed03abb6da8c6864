//! Problems in files, rendered in the style of compilers.

use crate::Style;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use belljar_contract::{Diagnostic, Label, Severity, SourceFile, visible, visible_lines, visible_page};
use std::ops::Range;

/// The maximum number of rendered diagnostics; more are only counted.
const SHOWN: usize = 40;

/// All diagnostics, errors first, with a count at the end.
#[must_use]
pub fn render_diagnostics(diagnostics: &[Diagnostic], sources: &[SourceFile], style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Ansi => Renderer::styled(),
    };
    let mut ordered: Vec<&Diagnostic> = diagnostics.iter().collect();
    ordered.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
    let mut out = String::new();
    for diagnostic in ordered.iter().take(SHOWN) {
        let drawn = Drawn::of(diagnostic, sources);
        out.push_str(&renderer.render(&[drawn.group()]));
        out.push_str("\n\n");
    }
    if ordered.len() > SHOWN {
        out.push_str(&format!("and {} more like these\n\n", ordered.len() - SHOWN));
    }
    out.push_str(&count(diagnostics));
    out.push('\n');
    out
}

fn count(diagnostics: &[Diagnostic]) -> String {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let part = |n: usize, word: &str| match n {
        0 => None,
        1 => Some(format!("1 {word}")),
        n => Some(format!("{n} {word}s")),
    };
    let parts = [part(errors, "error"), part(diagnostics.len() - errors, "warning")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The parts of a diagnostic, escaped.
struct Drawn {
    severity: Severity,
    code: &'static str,
    message: String,
    places: Vec<Place>,
    help: Option<String>,
}

/// The marked lines of a file. Only these are rendered, so that a large file costs nothing.
struct Place {
    kind: AnnotationKind,
    name: String,
    line: usize,
    text: String,
    mark: Range<usize>,
    label: String,
}

impl Drawn {
    fn of(diagnostic: &Diagnostic, sources: &[SourceFile]) -> Self {
        let primary = diagnostic.label.iter().map(|label| (label, AnnotationKind::Primary));
        let related = diagnostic.related.iter().map(|label| (label, AnnotationKind::Context));
        let place = |(label, kind): (&Label, AnnotationKind)| Place::of(label, kind, sources);
        Self {
            severity: diagnostic.severity,
            code: diagnostic.code,
            message: visible_lines(&diagnostic.message, ""),
            places: primary.chain(related).filter_map(place).collect(),
            help: diagnostic.help.as_deref().map(|help| visible_lines(help, "")),
        }
    }

    fn group(&self) -> Group<'_> {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(&self.message).id(self.code));
        for Place { kind, name, line, text, mark, label } in &self.places {
            let annotation = kind.span(mark.clone());
            let annotation = if label.is_empty() { annotation } else { annotation.label(label) };
            group = group
                .element(Snippet::source(text).line_start(*line).path(name.as_str()).annotation(annotation));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        group
    }
}

impl Place {
    fn of(label: &Label, kind: AnnotationKind, sources: &[SourceFile]) -> Option<Self> {
        let source = sources.get(label.file)?;
        let text = source.text.as_str();
        let start = floor(text, label.span.start);
        let end = floor(text, label.span.end.max(start));
        let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let last = text[end..].find('\n').map_or(text.len(), |at| end + at);
        // Escaped in three parts, so that the mark stays in its place.
        let page = |part: Range<usize>| visible_page(&text[part], &[]);
        let (before, marked, after) = (page(first..start), page(start..end), page(end..last));
        Some(Self {
            kind,
            name: visible(&source.name).into_owned(),
            line: text[..first].matches('\n').count() + 1,
            mark: before.len()..before.len() + marked.len(),
            text: format!("{before}{marked}{after}"),
            label: visible_lines(&label.text, ""),
        })
    }
}

fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_a_compiler() {
        let sources = [SourceFile { name: "belljar.toml".into(), text: "é = 1\nhom = 2\n".into() }];
        let label = Label { file: 0, span: 7..10, text: "did you mean `home`?".into() };
        let diagnostic =
            Diagnostic::error("unknown-key", "unknown key `hom`", label).help("known keys are `home`");
        let text = render_diagnostics(&[diagnostic], &sources, Style::Plain);
        let expected = "\
error[unknown-key]: unknown key `hom`
 --> belljar.toml:2:1
  |
2 | hom = 2
  | ^^^ did you mean `home`?
  |
  = help: known keys are `home`

1 error
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_source_cannot_paint() {
        let text = "a = \"\u{1b}[2J\u{202e}\" # \u{9b}2J\r\n";
        let sources = [SourceFile { name: "x\u{1b}[A".into(), text: text.into() }];
        let label = Label { file: 0, span: 4..13, text: "not \u{1b}]0;x\u{7}".into() };
        let diagnostic = Diagnostic::error("bad", "found `\u{1b}[2J`", label).help("\u{200b}remove it");
        let shown = render_diagnostics(&[diagnostic], &sources, Style::Ansi);
        let page = belljar_contract::visible_page(&shown, &Style::SEQUENCES);
        assert_eq!(shown, page, "a sequence of the renderer is not in the list, or the source passed");
        assert!(shown.contains("\"\\u{1b}[2J\\u{202e}\"") && !shown.contains("[8m"), "{shown}");
        let plain = render_diagnostics(&[], &sources, Style::Plain);
        assert!(!plain.contains('\u{1b}'));
    }

    #[test]
    fn a_place_outside_the_text_is_harmless() {
        let sources = [SourceFile { name: "x".into(), text: "é".into() }];
        let label = |file, span| Label { file, span, text: String::new() };
        let diagnostics =
            [Diagnostic::error("a", "m", label(0, 1..999)), Diagnostic::error("b", "m", label(7, 0..1))];
        assert!(render_diagnostics(&diagnostics, &sources, Style::Ansi).ends_with("2 errors\n"));
    }
}
