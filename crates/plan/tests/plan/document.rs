//! Faults that are found in the data of a file, told at their place in its text.

use crate::scenarios::text;
use belljar_contract::{DataFault, Diagnostic};
use belljar_plan::{Document, parse_document, parse_scenario};
use serde_json::json;

const POLICY: &str = r#"answers:
  - when_question: colour
    choose: blue
  - when_tool: Bash
    allow_if: "command.startsWith('git ') && bad(x)"
    else: deny
  - when_tool: Write
    allow_if: |
      input.size < 10 &&
        bad(y)
    denies:
      - {command: rm}
  - {when_tool: Read, "dotted.key": {a: 1}}
"#;

fn document() -> Document {
    parse_document(text("policy.yaml", POLICY)).unwrap().1
}

fn underlined(document: &Document, diagnostic: &Diagnostic) -> String {
    document.sources()[0].text[diagnostic.label.clone().unwrap().span].to_owned()
}

fn at(path: &str, span: Option<std::ops::Range<usize>>) -> String {
    let document = document();
    let fault = DataFault { span, ..DataFault::new(path, "m").help("h") };
    let diagnostic = document.diagnostic(&fault);
    assert_eq!((diagnostic.message.as_str(), diagnostic.help.as_deref()), ("m", Some("h")));
    underlined(&document, &diagnostic)
}

#[test]
fn a_path_leads_to_its_place() {
    for (path, place) in [
        ("answers[0].choose", "choose: blue"),
        ("answers[1].else", "else: deny"),
        ("answers[2].allow_if", "allow_if"),
        ("answers[2].denies[0]", "{command: rm}"),
        ("answers[2].denies[0].command", "command: rm"),
        ("answers[3].dotted.key.a", "a: 1"),
        ("answers[3].dotted.key", "\"dotted.key\": {a: 1}"),
        ("answers[0]", "when_question: colour"),
        ("answers", "answers"),
        ("", "answers:"),
    ] {
        assert_eq!(at(path, None), place, "{path}");
    }
}

#[test]
fn what_does_not_exist_is_told_at_the_nearest_that_does() {
    for (path, place) in [
        ("answers[0].answer", "when_question: colour"),
        ("answers[9]", "answers"),
        ("answers[0].choose.deeper[3]", "choose: blue"),
        ("assert[1].x", "answers:"),
        ("[0]", "answers:"),
        ("answers[x", "answers"),
        ("answers[18446744073709551616]", "answers"),
    ] {
        assert_eq!(at(path, None), place, "{path}");
    }
}

#[test]
fn a_part_of_a_string_is_underlined_alone() {
    let part = |text: &str, part: &str| text.find(part).map(|at| at..at + part.len());
    let quoted = "command.startsWith('git ') && bad(x)";
    assert_eq!(at("answers[1].allow_if", part(quoted, "bad")), "bad");
    let block = "input.size < 10 &&\n  bad(y)\n";
    assert_eq!(at("answers[2].allow_if", part(block, "bad(y)")), "bad(y)");
    assert_eq!(at("answers[1].allow_if", Some(90..99)), "allow_if: \"command.startsWith('git ') && bad(x)\"");
    assert_eq!(at("answers[2].denies", Some(0..1)), "denies", "a list has no parts of a string");
}

#[test]
fn a_key_that_was_cut_is_found() {
    let key = "k".repeat(90);
    let (_, document) = parse_document(text("x.yaml", format!("- {{{key}: 1}}\n"))).unwrap();
    let diagnostic = document.diagnostic(&DataFault::new(format!("[0].{}", &key[..64]), "no such key"));
    assert_eq!(underlined(&document, &diagnostic), format!("{key}: 1"));
}

#[test]
fn no_message_brings_control_characters() {
    let document = document();
    let diagnostic = document.diagnostic(&DataFault::new("answers", "a\u{1b}[31m\nb").help("c\0"));
    assert_eq!(diagnostic.message, "a\\u{1b}[31m\\nb");
    assert_eq!(diagnostic.help.as_deref(), Some("c\\u{0}"));
}

#[test]
fn values_by_path() {
    let document = document();
    assert_eq!(document.value("answers[0].choose"), Some(json!("blue")));
    assert_eq!(document.value("answers[3].dotted.key"), Some(json!({"a": 1})));
    assert_eq!(document.value("answers[0].nothing"), None);
    assert_eq!(document.value("").unwrap()["answers"][1]["else"], json!("deny"));
}

#[test]
fn a_policy_is_a_list_or_has_one() {
    let (value, document) = parse_document(text("p.yaml", "- {when_question: a, choose: 1}\n")).unwrap();
    assert_eq!(value, json!([{"when_question": "a", "choose": 1}]));
    assert_eq!(document.answer_warnings("").len(), 1);
    assert_eq!(document.answer_warnings("answers").len(), 0);
    let (_, document) = parse_document(text("p.yaml", "answers: [{when_question: a, choose: 1}]\n")).unwrap();
    assert_eq!(document.answer_warnings("answers").len(), 1);
}

/// A fault in a value that was written once and used twice is told where it is used, its parts where they stand.
#[test]
fn places_of_aliases() {
    let source = "prompt: x\nanswers:\n  - &r {when_tool: A, decide: allow}\n  - *r\n";
    let document = parse_scenario(text("s.yaml", source)).unwrap().document;
    let underlined = |path| underlined(&document, &document.diagnostic(&DataFault::new(path, "m")));
    assert_eq!(underlined("answers[1]"), "*r");
    assert_eq!(underlined("answers[1].decide"), "decide: allow");
}
