//! Faults that another crate finds in a file, at their place in its text.

use crate::scenarios::text;
use belljar_contract::decode::{Fault, Faults, Kind, Node};
use belljar_plan::{Document, parse_document, parse_scenario};

const POLICY: &str = r#"answers:
  - when_question: colour
    choose: blue
  - when_tool: Bash
    allow_if: "command.startsWith('git ') && bad(x)"
  - when_tool: Write
    allow_if: |
      input.size < 10 &&
        bad(y)
    denies:
      - {command: rm}
"#;

fn document() -> Document {
    parse_document(text("policy.yaml", POLICY)).unwrap()
}

fn at<'a>(node: &'a Node, path: &str) -> &'a Node {
    path.split_whitespace().fold(node, |node, step| match &node.kind {
        Kind::Array(items) => &items[step.parse::<usize>().unwrap()],
        Kind::Table(table) => table.get(step).unwrap(),
        other => panic!("{step} in {other:?}"),
    })
}

/// What the last fault underlines.
fn underlined(document: &Document, faults: &Faults<'_>) -> String {
    let span = faults.list.last().unwrap().label.clone().unwrap().span;
    document.sources()[0].text[span].to_owned()
}

#[test]
fn a_value_is_underlined_and_of_many_lines_the_first() {
    let document = document();
    for (path, place) in [
        ("answers 0 choose", "blue"),
        ("answers 1 allow_if", "\"command.startsWith('git ') && bad(x)\""),
        ("answers 2 allow_if", "input.size < 10 &&"),
        ("answers 2 denies 0", "{command: rm}"),
        ("answers 0", "when_question: colour"),
        ("answers", "- when_question: colour"),
        ("", "answers:"),
    ] {
        let mut faults = document.faults();
        faults.invalid::<()>(at(document.root(), path), Fault::new("m"));
        assert_eq!(underlined(&document, &faults), place, "{path}");
    }
}

#[test]
fn a_part_of_a_string_is_underlined_alone() {
    let document = document();
    for (path, part, place) in [
        ("answers 1 allow_if", "bad", "bad"),
        ("answers 2 allow_if", "bad(y)", "bad(y)"),
        ("answers 0 choose", "lu", "lu"),
    ] {
        let node = at(document.root(), path);
        let Kind::String(value) = &node.kind else { panic!("{path}") };
        let start = value.find(part).unwrap();
        let mut faults = document.faults();
        faults.invalid_part::<()>(node, &(start..start + part.len()), Fault::new("m"));
        assert_eq!(underlined(&document, &faults), place);
        faults.invalid_part::<()>(node, &(90..99), Fault::new("m"));
        assert_ne!(underlined(&document, &faults), place, "what is not there has no place");
    }
    let mut faults = document.faults();
    faults.invalid_part::<()>(at(document.root(), "answers 2 denies"), &(0..1), Fault::new("m"));
    assert_eq!(underlined(&document, &faults), "- {command: rm}", "a list has no parts of a string");
}

#[test]
fn no_message_brings_control_characters() {
    let document = document();
    let mut faults = document.faults();
    faults.invalid::<()>(document.root(), Fault::new("a\u{1b}[31m\nb").help("c\0"));
    assert_eq!(faults.list[0].message, "a\\u{1b}[31m\\nb");
    assert_eq!(faults.list[0].help.as_deref(), Some("c\\u{0}"));
}

/// A value that is written once and used twice has the place where it is used, its parts the place where they are written.
#[test]
fn places_of_aliases() {
    let source = "prompt: x\nanswers:\n  - &r {when_tool: A, decide: allow}\n  - *r\n";
    let places = parse_scenario(text("s.yaml", source), |parts, _| {
        let rule = &parts.answers[1];
        Some((source[rule.span.clone()].to_owned(), source[at(rule, "decide").span.clone()].to_owned()))
    });
    assert_eq!(places.unwrap().1, ("*r".to_owned(), "allow".to_owned()));
}

/// The parts of a scenario that other crates decode are decoded whatever else is wrong, and their faults are on one list.
#[test]
fn every_part_is_decoded_whatever_else_is_wrong() {
    let source = "promt: x\nlane: nowhere\nanswers: [1]\nassert: [2, 3]\n";
    let error = parse_scenario(text("s.yaml", source), |parts, faults| {
        for node in parts.answers.iter().chain(parts.assert) {
            faults.invalid::<()>(node, Fault::new("part"));
        }
        None::<()>
    });
    let warned = format!("prompt: x\nanswers: [{}]\n", "{choose: 1},".repeat(300));
    let found = parse_scenario(text("s.yaml", warned), |parts, faults| {
        faults.invalid::<()>(&parts.answers[0], Fault::new("part"))
    });
    assert_eq!(found.unwrap_err().diagnostics[0].message, "part", "warnings do not hide an error");
    let messages: Vec<String> = error.unwrap_err().diagnostics.into_iter().map(|one| one.message).collect();
    assert_eq!(messages[2..], ["part", "part", "part"]);
    assert!(messages[0].contains("`promt`") && messages[1].contains("a lane"), "{messages:?}");
}
