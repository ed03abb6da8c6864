#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

use super::*;
use crate::question::{AnswerValue, By, Chosen, Grant};
use belljar_contract::decode::{Faults, Node};
use belljar_contract::{AgentRequest, Diagnostic, Frame, Inbound};
use belljar_testkit::schema::conforms;
use granit_parser::{Event, Parser};
use serde_json::{Map, Value, json};

/// A question as the agent asks it.
fn question(request: Value) -> Question {
    let frame = json!({"type": "control_request", "request_id": "r", "request": request});
    let Inbound::Request { request, .. } = Frame::from_value(frame).unwrap().body else { panic!() };
    let known = !matches!(request, AgentRequest::Malformed { .. } | AgentRequest::Unknown { .. });
    assert!(known, "{request:?}");
    Question::from_request(request).unwrap()
}

fn tool(name: &str, input: Value) -> Question {
    question(json!({"subtype": "can_use_tool", "tool_name": name, "input": input}))
}

fn gate(questions: &[(&str, bool, &[&str])]) -> Question {
    let questions: Vec<Value> = questions
        .iter()
        .map(|(text, several, labels)| {
            let options: Vec<Value> = labels.iter().map(|label| json!({"label": label})).collect();
            json!({"question": text, "header": "Head", "multiSelect": several, "options": options})
        })
        .collect();
    tool("AskUserQuestion", json!({"questions": questions}))
}

/// The rules of a policy, or every fault with the JSON pointer of its place.
fn policy(file: &Value) -> Result<Vec<Rule>, Vec<(String, Diagnostic)>> {
    let root = Node::of_value(file);
    let mut faults = Faults::new(0, "");
    let rules = parse_policy(&root, &mut faults);
    let pointer = |fault: &Diagnostic| root.pointer(&fault.label.as_ref().unwrap().span).unwrap();
    let faults: Vec<_> = faults.list.into_iter().map(|fault| (pointer(&fault), fault)).collect();
    assert_eq!(rules.is_some(), faults.is_empty());
    rules.ok_or(faults)
}

fn rules(list: Value) -> Scripted {
    Scripted::default().with(policy(&list).unwrap_or_else(|faults| panic!("{faults:?}")), By::Scenario)
}

fn answer(decision: Decision) -> Answer {
    let Decision::Answered(answer) = decision else { panic!("{decision:?}") };
    answer
}

fn is_allowed(decision: Decision) -> bool {
    match answer(decision).value {
        AnswerValue::Allow { .. } => true,
        AnswerValue::Deny { .. } => false,
        other => panic!("{other:?}"),
    }
}

fn chosen(labels: &[&str]) -> Chosen {
    Chosen::Labels(labels.iter().map(|label| (*label).to_owned()).collect())
}

#[test]
fn the_first_rule_that_fits_decides() {
    let scripted = rules(json!([
        {"when_tool": "Bash", "allow_if": "command.startsWith('git ')", "why": "git is needed",
         "allows": [{"command": "git status"}], "denies": [{"command": "rm -rf x"}]},
        {"when_tool": "Bash", "decide": "allow"},
        {"when_tool": "Write", "allow_if": "file_path.endsWith('.key')", "else": "allow"},
        {"when_tool": "webfetch:example.org", "decide": "allow", "grant": "domain"},
    ]));
    let bash = |command: &str| scripted.decide(&tool("Bash", json!({"command": command})));
    assert!(is_allowed(bash("git push")));
    assert!(!is_allowed(bash("make")), "the second rule is not reached");
    assert_eq!(answer(bash("git push")).reason, "git is needed");
    assert_eq!(answer(bash("make")).by, By::Scenario);
    assert!(is_allowed(scripted.decide(&tool("Write", json!({"file_path": "a"})))));
    let fetch = answer(scripted.decide(&tool("webfetch:example.org", json!({}))));
    assert_eq!(fetch.grant, Some(Grant::Domain));
    assert_eq!(scripted.decide(&tool("Bashful", json!({}))), Decision::NoOpinion { note: None });
}

/// A rule that does not fit its input must not be a way around it, neither by its `else` nor by the next decider.
#[test]
fn a_rule_that_does_not_fit_leaves_the_question_open() {
    let list = json!([{"when_tool": "Bash", "allow_if": "!file_path.includes('x')", "else": "allow"}]);
    let chain = Chain::default().then(rules(list)).then(Parity::Cowork);
    let unanswered = chain.decide(&tool("Bash", json!({"command": "make"}))).unwrap_err();
    assert_eq!(
        unanswered.notes,
        [
            "the rule for Bash does not fit its input: `file_path`: the input has no `file_path`",
            "change `allow_if` of rule 1 in the scenario's `answers`",
        ]
    );
    assert_eq!(unanswered.paste, None, "a rule after it would not be asked");
}

/// A rule after one that matches is never asked, so none is suggested.
#[test]
fn a_wrong_label_is_mended_where_it_was_written() {
    let rule = || json!([{"when_question": "color", "choose": "Bleu"}]);
    let flag = || vec![parse_answer_flag("color=Bleu").unwrap()];
    for (scripted, expected) in [
        (rules(rule()), "change `choose` of rule 1 in the scenario's `answers`"),
        (
            Scripted::default().with(policy(&rule()).unwrap(), By::Policy),
            "change `choose` of rule 1 of the answer policy",
        ),
        (Scripted::default().with(flag(), By::CommandLine), "correct --answer \"color=Bleu\""),
    ] {
        let chain = Chain::default().then(scripted).then(First);
        let found = chain.decide(&gate(&[("Which color?", false, &["Blue", "Red"])])).unwrap_err();
        assert!(found.notes[0].contains("did you mean \"Blue\"?"), "{found:?}");
        assert_eq!((found.notes[1].as_str(), found.paste), (expected, None));
    }
}

#[test]
fn gates_are_answered_whole_or_not_at_all() {
    let scripted = rules(json!([
        {"when_question": "COLOU?R", "choose": "blue"},
        {"when_question": "^sizes", "choose": ["l", 1]},
        {"when_question": "name", "answer": "whatever you like"},
    ]))
    .with(vec![parse_answer_flag("which\\=way=2").unwrap()], By::CommandLine);
    let colour = ("Which color?", false, ["Red", "Blue"].as_slice());
    let sizes = ("Sizes?", true, ["S", "L"].as_slice());
    let all =
        gate(&[colour, sizes, ("Whose name?", false, &["Ann", "Bob"]), ("Which=way?", false, &["A", "B"])]);
    let answered = answer(scripted.decide(&all));
    let expected = vec![
        chosen(&["Blue"]),
        chosen(&["L", "S"]),
        Chosen::Text("whatever you like".to_owned()),
        chosen(&["B"]),
    ];
    assert_eq!(answered.value, AnswerValue::Choices(expected));
    assert_eq!(answered.by, By::CommandLine, "the least certain of the sources is named");
    assert!(all.reply(&answered.value).is_ok());

    let Decision::NoOpinion { note } = scripted.decide(&gate(&[colour, ("Other?", false, &["A", "B"])]))
    else {
        panic!()
    };
    assert!(note.unwrap().contains("Other?"));
    let Decision::Broken { why, mend: _ } =
        scripted.decide(&gate(&[("Which color?", false, &["Green", "Grey"])]))
    else {
        panic!()
    };
    assert!(why.contains("\"Green\", \"Grey\""), "{why}");
    let by_header = rules(json!([{"when_question": "^head$", "choose": "first"}]));
    assert_eq!(
        answer(by_header.decide(&gate(&[colour]))).value,
        AnswerValue::Choices(vec![chosen(&["Red"])])
    );
}

#[test]
fn parity_and_first() {
    assert!(is_allowed(Parity::Strict.decide(&tool("Read", json!({})))));
    assert!(!is_allowed(Parity::Strict.decide(&tool("Bash", json!({})))));
    let permissive = answer(Parity::Cowork.decide(&tool("Bash", json!({}))));
    assert_eq!((permissive.by, permissive.by.is_reproducible()), (By::Parity, true));
    assert_eq!(Parity::Cowork.decide(&tool("webfetch:a.org", json!({}))), Decision::NoOpinion { note: None });
    let first = answer(First.decide(&gate(&[("A?", true, &["x", "y"]), ("B?", false, &["z", "w"])])));
    assert_eq!(first.value, AnswerValue::Choices(vec![chosen(&["x"]), chosen(&["z"])]));
    assert!(matches!(First.decide(&gate(&[("A?", true, &[])])), Decision::Broken { .. }));
    assert_eq!(First.decide(&tool("Bash", json!({}))), Decision::NoOpinion { note: None });
}

#[test]
fn every_fault_of_a_policy_is_reported_with_its_place() {
    let faults = policy(&json!({"answers": [
        7,
        {},
        {"when_question": "a", "when_tool": "b"},
        {"when_question": "(", "choose": "x"},
        {"when_question": "a"},
        {"when_question": "a", "choose": []},
        {"when_question": "a", "choose": ["x", 0, {}, " "]},
        {"when_question": "a", "answer": " "},
        {"when_question": "a", "choose": "x", "decide": "allow"},
        {"when_question": "a", "choose": "x", "else": "allow"},
        {"when_tool": "b", "decide": "perhaps"},
        {"when_tool": "b", "allow_if": "command.includes('x'"},
        {"when_tool": "b", "allow_if": "true", "denies": [{}]},
        {"when_tool": "b", "allow_if": "command === 'x'", "allows": [{"command": "y"}, {}]},
        {"when_tool": "b", "allow_if": "true", "allows": [1]},
        {"when_tool": "b", "decide": "allow", "grant": "once"},
        {"when_tool": "b", "decides": "allow"},
        {"decide": "allow", "why": 1},
    ], "answer": []}))
    .unwrap_err();
    let shown: Vec<String> =
        faults.iter().map(|(pointer, fault)| format!("{pointer}: {}", fault.message)).collect();
    assert_eq!(
        shown,
        [
            "/answer: unknown key `answer` in an answer policy",
            "/answers/0: expected a rule, found a number",
            "/answers/1: a rule needs `when_question` with `choose` or `answer`, or `when_tool` with `decide` or `allow_if`",
            "/answers/2: a rule needs `when_question` with `choose` or `answer`, or `when_tool` with `decide` or `allow_if`",
            "/answers/3/when_question: this pattern cannot be used: unclosed group",
            "/answers/4: a rule with `when_question` lacks `choose` or `answer`",
            "/answers/5/choose: expected a label or a list of labels, found an empty list",
            "/answers/6/choose/1: positions count from 1, found 0",
            "/answers/6/choose/2: expected a label or a position, found a table",
            "/answers/6/choose/3: expected a label, found an empty one",
            "/answers/7/answer: expected an answer, found an empty one",
            "/answers/8: expected one of `choose`, `answer`, `decide` and `allow_if` in a rule, found `choose` and `decide`",
            "/answers/9/else: unknown key `else` in a rule with `choose`",
            "/answers/10/decide: expected a decision, found `perhaps`",
            "/answers/11/allow_if: expected `)`, found the end",
            "/answers/12/denies/0: the rule allows this example",
            "/answers/13/allows/0: the rule denies this example",
            "/answers/13/allows/1: the rule does not fit this example: `command`: the input has no `command`",
            "/answers/14/allows/0: expected an input of the tool, found a number",
            "/answers/15/grant: `grant` goes with `when_tool: webfetch:<domain>` and `decide: allow` only",
            "/answers/16/decides: unknown key `decides` in a rule",
            "/answers/17: a rule with `decide` lacks `when_tool`",
            "/answers/17/why: expected a string, found a number",
        ]
    );
    let misspelt = faults.iter().find(|(pointer, _)| pointer == "/answers/16/decides").unwrap();
    assert_eq!(misspelt.1.label.as_ref().unwrap().text, "did you mean `decide`?");
    assert!(policy(&json!([])).unwrap().is_empty());
    assert_eq!(policy(&json!({})).unwrap_err()[0].1.message, "an answer policy lacks `answers`");
    assert_eq!(policy(&json!("x")).unwrap_err()[0].1.message, "expected a table, found a string");
    let many = Value::Array(vec![json!({"when_tool": "b", "decide": "allow"}); 10_001]);
    assert_eq!(policy(&many).unwrap_err()[0].0, "/10000");
}

#[test]
fn the_schema_accepts_what_is_decoded() {
    let rule = |rule: Value| json!([rule]);
    for good in [
        json!([]),
        json!({"answers": []}),
        rule(json!({"when_question": "a", "choose": "b"})),
        rule(json!({"when_question": "", "choose": 2, "why": "c"})),
        rule(json!({"when_question": "a", "choose": ["b", 2]})),
        rule(json!({"when_question": "a", "answer": "b"})),
        rule(json!({"when_tool": "A", "decide": "allow"})),
        rule(json!({"when_tool": "webfetch:a.example.org", "decide": "allow", "grant": "once"})),
        rule(
            json!({"when_tool": "A", "allow_if": "true", "else": "deny", "allows": [{"a": 1}], "denies": [],
            "why": "c"}),
        ),
    ] {
        assert!(conforms(&policy_schema(), &good), "{good}");
        assert!(policy(&good).is_ok(), "{good}");
    }
    for bad in [
        json!({"answer": []}),
        rule(json!({})),
        rule(json!({"when_question": "a"})),
        rule(json!({"when_question": "a", "choose": "b", "answer": "c"})),
        rule(json!({"when_question": "a", "when_tool": "b", "choose": "c"})),
        rule(json!({"when_question": "a", "choose": []})),
        rule(json!({"when_question": "a", "choose": 0})),
        rule(json!({"when_question": "a", "decide": "allow"})),
        rule(json!({"when_tool": "A"})),
        rule(json!({"when_tool": "", "decide": "allow"})),
        rule(json!({"when_tool": "A", "decide": "maybe"})),
        rule(json!({"when_tool": "A", "decide": "allow", "else": "deny"})),
        rule(json!({"when_tool": "A", "decide": "allow", "grant": "always"})),
        rule(json!({"when_tool": "A", "allow_if": "x", "decide": "deny"})),
    ] {
        assert!(!conforms(&policy_schema(), &bad), "{bad}");
        assert!(policy(&bad).is_err(), "{bad}");
    }
}

#[test]
fn answers_of_the_command_line() {
    for text in ["", "x", "=a", "x=", "x\\=a"] {
        assert!(matches!(parse_answer_flag(text), Err(AnswerFlagError::Form { .. })), "{text:?}");
    }
    assert!(parse_answer_flag("(?=x)=a").unwrap_err().to_string().contains("this pattern cannot be used"));
}

/// What is offered for pasting is YAML, is a list of rules, and answers the question.
#[test]
fn what_is_offered_for_pasting_answers() {
    for text in [
        "Which?",
        "A \"quoted\" (odd) one: #1\n\u{85}\u{2028}\u{7f} 100% [sure]\\?",
        "- ünï: {x}",
        "tab\tand $",
    ] {
        let labels = [text, "b: #\n\"x\"", "…", "Yes (Recommended)"];
        for several in [false, true] {
            for options in [&labels[..], &labels[..1]] {
                let asked = gate(&[(text, several, options), ("Another?", false, options)]);
                let paste = Chain::default().decide(&asked).unwrap_err().paste.unwrap();
                let pasted = rules(yaml(&paste));
                let answered = answer(pasted.decide(&asked));
                assert_eq!(
                    answered.value,
                    AnswerValue::Choices(vec![chosen(&[text]), chosen(&[text])]),
                    "{paste}"
                );
            }
        }
        let asked = tool(text, json!({}));
        let paste = Chain::default().decide(&asked).unwrap_err().paste.unwrap();
        assert!(is_allowed(rules(yaml(&paste)).decide(&asked)), "{paste}");
    }
    let free = gate(&[("Say something", false, &[])]);
    let paste = Chain::default().decide(&free).unwrap_err().paste.unwrap();
    assert_eq!(paste, "- when_question: \"^Say something$\"\n  answer: \"your answer\"\n");
    assert!(matches!(rules(yaml(&paste)).decide(&free), Decision::Answered(_)));
}

/// Reads YAML of texts, lists and objects.
fn yaml(text: &str) -> Value {
    let mut events =
        Parser::new_from_str(text).map(|event| event.unwrap_or_else(|error| panic!("{error}: {text}")).0);
    let root = events.find_map(|event| matches!(event, Event::SequenceStart(..)).then_some(()));
    assert!(root.is_some(), "{text}");
    Value::Array(std::iter::from_fn(|| yaml_node(&mut events)).collect())
}

/// The next node; none where a list or an object ends.
fn yaml_node<'a>(events: &mut dyn Iterator<Item = Event<'a>>) -> Option<Value> {
    match events.next().unwrap() {
        Event::Scalar(value, ..) => Some(Value::String(value.into_owned())),
        Event::SequenceStart(..) => Some(Value::Array(std::iter::from_fn(|| yaml_node(events)).collect())),
        Event::MappingStart(..) => {
            let mut object = Map::new();
            while let Some(key) = yaml_node(events) {
                object.insert(key.as_str().unwrap().to_owned(), yaml_node(events).unwrap());
            }
            Some(Value::Object(object))
        }
        // A remark is passed over.
        Event::Comment(..) => yaml_node(events),
        Event::SequenceEnd | Event::MappingEnd => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn programs_are_asked_and_held_to_the_question() {
    let asked = gate(&[("Which?", false, &["Red", "Blue (Recommended)"]), ("Sizes?", true, &["S", "L"])]);
    let transcript = "é".repeat(2000);
    let request = ExternalRequest {
        id: "q-1",
        run: "run",
        scenario: Some("colours"),
        transcript: &transcript,
        question: &asked,
    };
    let line: Value = serde_json::from_str(&request.to_line().unwrap()).unwrap();
    assert_eq!((&line["kind"], &line["scenario"]), (&json!("question"), &json!("colours")));
    assert_eq!(line["context"].as_str().unwrap().chars().count(), 1000);
    assert_eq!(line["reply_with"], json!({"id": "q-1", "answers": {"Which?": "Red", "Sizes?": "S"}}));
    assert_eq!(line["questions"][1]["multiSelect"], true);
    assert!(request.read_reply(&line["reply_with"].to_string()).is_ok());
    let reply =
        request.read_reply(r#"{"id": "q-1", "answers": {"Which?": 2, "Sizes?": ["l", "S"]}}"#).unwrap();
    let expected = vec![chosen(&["Blue (Recommended)"]), chosen(&["L", "S"])];
    assert_eq!(reply.0.value, AnswerValue::Choices(expected));
    assert_eq!(reply.0.by, By::External);
    let own = request.read_reply(r#"{"id": "q-1", "answers": {"Which?": {"text": "first"}, "Sizes?": 1}}"#);
    let expected = vec![Chosen::Text("first".to_owned()), chosen(&["S"])];
    assert_eq!(own.unwrap().0.value, AnswerValue::Choices(expected));
    for (line, problem) in [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        (r#"{"answers": {"Which?": 1, "Sizes?": 1}}"#, "wrong id: expected \"q-1\", found null"),
        (r#"{"id": "q-2", "answers": {"Which?": 1, "Sizes?": 1}}"#, "found \"q-2\""),
        (r#"{"id": 1, "answers": {}}"#, "found 1"),
        (r#"{"id": "q-1", "answers": {"Which?": "first", "Sizes?": 1}}"#, "invalid choice"),
        (r#"{"id": "q-1", "answers": {"Which?": 1}}"#, "\"Sizes?\": expected a label"),
        (r#"{"id": "q-1", "answers": {"Which?": 1, "Sizes?": 1, "Z?": 1}}"#, "\"Z?\": this was not asked"),
        (r#"{"id": "q-1", "answers": {"Which?": 1, "Sizes?": 1}, "x": 1}"#, "unknown member \"x\""),
        (r#"{"id": "q-1", "answers": {"Which?": {"text": " "}, "Sizes?": 1}}"#, "expected `text` alone"),
        (
            r#"{"id": "q-1", "answers": {"Which?": {"text": "a", "x": 1}, "Sizes?": 1}}"#,
            "expected `text` alone",
        ),
        (r#"{"id": "q-1", "behavior": "allow"}"#, "\"answers\": expected an object"),
    ] {
        let error = request.read_reply(line).unwrap_err().to_string();
        assert!(error.contains(problem), "{line}: {error}");
    }
    let asked = tool("Bash", json!({"command": "x"}));
    let request = ExternalRequest { id: "q", run: "run", scenario: None, transcript: "", question: &asked };
    let read = |line: &str| request.read_reply(line).map(|reply| reply.0.value);
    assert!(matches!(read(r#"{"id":"q","behavior":"allow"}"#), Ok(AnswerValue::Allow { input: None, .. })));
    // The record would show another input than the tool got.
    assert!(read(r#"{"id":"q","behavior":"allow","updatedInput":{"a":1}}"#).is_err());
    assert!(matches!(read(r#"{"id":"q","behavior":"deny"}"#), Ok(AnswerValue::Deny { .. })));
    assert!(read(r#"{"id":"q","behavior":"deny","message":""}"#).is_err());
    assert!(read(r#"{"id":"q","behavior":"allow","grant":"once"}"#).is_err());
    assert!(read(r#"{"id":"q","behavior":"Allow"}"#).is_err());
}

#[test]
fn fuzz_answer_policy() {
    let keys = [
        "when_question",
        "choose",
        "answer",
        "when_tool",
        "decide",
        "allow_if",
        "else",
        "grant",
        "allows",
        "denies",
        "why",
        "x",
    ];
    let values = [
        json!("a"),
        json!("allow"),
        json!("deny"),
        json!("command.includes('x')"),
        json!("("),
        json!([]),
        json!({}),
        json!(1),
        json!(null),
        json!(["a", 1]),
        json!([{"command": "x"}]),
        json!("webfetch:a"),
        json!("once"),
        json!(""),
    ];
    let (asked, bash) = (gate(&[("a?", true, &["a", "b"])]), tool("a", json!({"command": "x"})));
    let everyday = std::time::Duration::from_millis(500);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
            drop(policy(&value));
        }
        let rule: Map<String, Value> = bytes
            .chunks_exact(2)
            .take(6)
            .map(|pair| {
                (
                    keys[usize::from(pair[0]) % keys.len()].to_owned(),
                    values[usize::from(pair[1]) % values.len()].clone(),
                )
            })
            .collect();
        match policy(&json!([rule])) {
            Err(faults) => assert!(!faults.is_empty()),
            Ok(rules) => {
                let scripted = Scripted::default().with(rules, By::Policy);
                for question in [&asked, &bash] {
                    // Every answer of a rule can be sent to the agent.
                    if let Decision::Answered(answer) = scripted.decide(question) {
                        assert!(question.reply(&answer.value).is_ok(), "{rule:?}");
                    }
                }
            }
        }
    });
}
