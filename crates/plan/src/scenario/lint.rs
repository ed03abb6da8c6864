//! What is allowed and yet most likely not meant.

use super::document::Document;
use super::scenario_file::ScenarioParts;
use super::scenario_spec::ScenarioSpec;
use super::words::Fidelity;
use belljar_contract::decode::{Fault, Faults, Kind, Node, list, shown};
use std::ops::Range;

pub(super) fn scenario(
    spec: &ScenarioSpec,
    parts: &ScenarioParts<'_>,
    document: &Document,
    faults: &mut Faults<'_>,
) {
    parts.answers.iter().for_each(|rule| positional(rule, faults));
    for part in parts.answers.iter().chain(parts.assert) {
        lost_escapes(part, document.text(), faults);
    }
    if let Kind::Table(table) = &document.root().kind {
        slash_command(spec, table.get("prompt"), faults);
    }
    if spec.fidelity.as_ref().is_some_and(|fidelity| fidelity.value == Fidelity::Protocol) {
        without_sandbox(spec, parts.assert, faults);
    }
}

/// A choice by position means another option as soon as the skill reorders its question.
fn positional(rule: &Node, faults: &mut Faults<'_>) {
    let Kind::Table(rule) = &rule.kind else { return };
    let choices = match rule.get("choose") {
        Some(Node { kind: Kind::Array(items), .. }) => items.as_slice(),
        Some(node) => std::slice::from_ref(node),
        None => &[],
    };
    for choice in choices {
        let by_position = match &choice.kind {
            Kind::Integer(_) => true,
            Kind::String(text) => {
                text == "first" || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            }
            Kind::Null
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => false,
        };
        if by_position {
            let fault =
                Fault::new("a choice by position means another option when the options are reordered")
                    .label("a position")
                    .help("write the option's label");
            faults.warn("positional-choice", &choice.span, fault);
        }
    }
}

/// Letters that double quotes take away from a pattern, and what is left of them.
const LOST: [(u8, &str); 7] = [
    (b'b', "a backspace"),
    (b'a', "a bell"),
    (b'e', "an escape character"),
    (b'N', "a line break"),
    (b'L', "a line break"),
    (b'P', "a line break"),
    (b'_', "a space"),
];

fn lost_escapes(node: &Node, text: &str, faults: &mut Faults<'_>) {
    match &node.kind {
        Kind::String(_) => {
            let source = text.get(node.span.clone()).unwrap_or_default();
            if let Some((place, letter, left)) = lost_escape(source) {
                let span = node.span.start + place.start..node.span.start + place.end;
                let fault = Fault::new(format!(
                    "in double quotes `\\{letter}` is {left}, not a pattern's `\\{letter}`"
                ))
                .label(left)
                .help(format!("put the text in single quotes, or write `\\\\{letter}`"));
                faults.warn("lost-escape", &span, fault);
            }
        }
        Kind::Array(items) => items.iter().for_each(|item| lost_escapes(item, text, faults)),
        Kind::Table(table) => table.0.iter().for_each(|(_, node)| lost_escapes(node, text, faults)),
        Kind::Null | Kind::Integer(_) | Kind::Float(_) | Kind::Boolean(_) | Kind::Foreign(_) => {}
    }
}

fn lost_escape(source: &str) -> Option<(Range<usize>, char, &'static str)> {
    let bytes = source.as_bytes();
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'\\' {
            at += 1;
            continue;
        }
        let letter = *bytes.get(at + 1)?;
        if let Some((_, left)) = LOST.iter().find(|(lost, _)| *lost == letter) {
            return Some((at..at + 2, char::from(letter), left));
        }
        at += 2;
    }
    None
}

/// The agent calls a skill by its name only at the very beginning of the prompt.
fn slash_command(spec: &ScenarioSpec, node: Option<&Node>, faults: &mut Faults<'_>) {
    let prompt = &spec.prompt.value.0;
    if prompt.starts_with('/') {
        return;
    }
    let named = |name: &str| spec.skills.iter().any(|skill| skill.value.0 == name);
    let found = prompt.lines().find_map(|line| {
        let first = line.trim_start().strip_prefix('/').and_then(|rest| rest.split_whitespace().next());
        let leading = first.filter(|name| is_command(name));
        leading.or_else(|| {
            line.split_whitespace().filter_map(|word| word.strip_prefix('/')).find(|name| named(name))
        })
    });
    if let (Some(name), Some(node)) = (found, node) {
        let word = format!("/{name}");
        let blank = |text: &str| text.is_empty() || text.starts_with(char::is_whitespace);
        let alone = |at: usize| {
            prompt[..at].chars().next_back().is_none_or(char::is_whitespace)
                && blank(&prompt[at + word.len()..])
        };
        let at = prompt.match_indices(&word).map(|(at, _)| at).find(|at| alone(*at));
        let place = at.and_then(|at| faults.part(node, &(at..at + word.len())));
        let name = shown(name);
        let message = format!("`/{name}` does not stand at the beginning of the prompt, so it calls nothing");
        let help = format!("begin the prompt with `/{name}`, without a space in front");
        let place = place.unwrap_or_else(|| spec.prompt.place.span.clone());
        faults.warn("slash-command", &place, Fault::new(message).help(help));
    }
}

fn is_command(word: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b':' | b'_');
    word.bytes().next().is_some_and(|b| b.is_ascii_lowercase()) && word.bytes().all(plain)
}

/// Without a sandbox every host can be reached, and there is no image.
fn without_sandbox(spec: &ScenarioSpec, checks: &[Node], faults: &mut Faults<'_>) {
    let why = "`fidelity: protocol` runs without a sandbox, so no host is refused for certain";
    let help = "choose another tier, such as `container`";
    let waive = "choose another tier, such as `container`, or waive it with `allow_without_isolation`";
    if let Some(first) = spec.expect_denied.first() {
        faults.warn("no-sandbox", &first.place.span, Fault::new(why).label("cannot be shown").help(waive));
    }
    for check in checks {
        let Kind::Table(check) = &check.kind else { continue };
        let keys = check.0.iter().map(|(key, _)| key);
        for key in keys.filter(|key| matches!(key.text.as_str(), "egress_denied" | "egress_allowed")) {
            faults.warn("no-sandbox", &key.span, Fault::new(why).label("cannot be shown").help(waive));
        }
    }
    if let Some(first) = spec.requires_capabilities.first() {
        let names: Vec<&str> = spec.requires_capabilities.iter().map(|at| at.value.name()).collect();
        let fault = Fault::new(format!(
            "`fidelity: protocol` runs without an image, which {} would need",
            list(&names)
        ))
        .label("cannot be shown")
        .help(help);
        faults.warn("no-sandbox", &first.place.span, fault);
    }
}
