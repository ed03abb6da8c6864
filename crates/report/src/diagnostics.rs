//! Findings about files, drawn the way compilers do.

use crate::Style;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use belljar_contract::{Diagnostic, Label, Severity, SourceFile};

/// More than this many are counted instead of drawn: nobody reads a thousand.
const SHOWN: usize = 40;

/// All findings, errors first, with a closing count.
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
        out.push_str(&renderer.render(&[group(diagnostic, sources)]));
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

fn group<'a>(diagnostic: &'a Diagnostic, sources: &'a [SourceFile]) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(&diagnostic.message).id(diagnostic.code));
    if let Some(label) = &diagnostic.label {
        group = snippet(group, label, AnnotationKind::Primary, sources);
    }
    for label in &diagnostic.related {
        group = snippet(group, label, AnnotationKind::Context, sources);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help));
    }
    group
}

fn snippet<'a>(
    group: Group<'a>,
    label: &'a Label,
    kind: AnnotationKind,
    sources: &'a [SourceFile],
) -> Group<'a> {
    let Some(source) = sources.get(label.file) else { return group };
    // Only the lines of the place are handed over, so that a large file costs nothing.
    let text = source.text.as_str();
    let start = floor(text, label.span.start);
    let end = floor(text, label.span.end.max(start));
    let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let last = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let line = text[..first].matches('\n').count() + 1;
    let annotation = kind.span(start - first..end - first);
    let annotation = if label.text.is_empty() { annotation } else { annotation.label(&label.text) };
    group.element(
        Snippet::source(&text[first..last]).line_start(line).path(&source.name).annotation(annotation),
    )
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
    fn a_place_outside_the_text_does_no_harm() {
        let sources = [SourceFile { name: "x".into(), text: "é".into() }];
        let label = |file, span| Label { file, span, text: String::new() };
        let diagnostics =
            [Diagnostic::error("a", "m", label(0, 1..999)), Diagnostic::error("b", "m", label(7, 0..1))];
        assert!(render_diagnostics(&diagnostics, &sources, Style::Ansi).ends_with("2 errors\n"));
    }
}
