//! The script file: what is accepted, what is rejected, and with which message.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::error::Error;
use std::time::Duration;

use belljar_egress::script::{
    CutEnd, ErrorReply, Exhausted, LoadScriptError, ParseScriptError, RequestConditions, Script, ScriptBlock,
    ScriptReply, ScriptUsage, Sender, SideRequests, StopReason, Tools, Turn, TurnAnswer,
};
use proptest::prelude::*;
use serde_json::json;

const FULL: &str = r#"{
  "version": 1,
  "side_requests": {"reply": "a title"},
  "when_exhausted": {"reply": "enough"},
  "turns": [
    {
      "when": {"last_message_contains": "go", "model_contains": "opus", "tools": "present", "sender": "sub_agent"},
      "delay_ms": 5,
      "answer": {"reply": {
        "content": [
          {"thinking": {"text": "hm", "signature": "c2ln"}},
          {"text": "I will."},
          {"tool_use": {"name": "Bash", "input": {"command": "true"}, "id": "toolu_1"}},
          {"tool_use": {"name": "Bash", "input": {}}}
        ],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "model": "m",
        "pause_ms": 7,
        "delta_chars": 4,
        "cut": {"after_events": 3, "end": "reset"}
      }}
    },
    {"answer": {"error": {"status": 429, "type": "t", "message": "m", "headers": {"retry-after": "1"}}}},
    {"answer": "hang_up"}
  ]
}"#;

/// The same script, built.
fn full() -> Script {
    let when = RequestConditions::any()
        .last_message_contains("go")
        .model_contains("opus")
        .tools(Tools::Present)
        .sender(Sender::SubAgent);
    let call = json!({"command": "true"});
    let usage = ScriptUsage {
        input_tokens: 1,
        output_tokens: 2,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
    };
    let reply = ScriptReply::new()
        .thinking("hm", "c2ln")
        .text("I will.")
        .block(ScriptBlock::ToolUse { name: "Bash".into(), input: call, id: Some("toolu_1".into()) })
        .tool_use("Bash", json!({}))
        .stop_reason(StopReason::MaxTokens)
        .usage(usage)
        .model("m")
        .pause(Duration::from_millis(7))
        .delta_chars(4.try_into().unwrap())
        .cut(3, CutEnd::Reset);
    Script::new()
        .side_requests(SideRequests::Reply("a title".into()))
        .when_exhausted(Exhausted::Reply("enough".into()))
        .turn(Turn::reply(reply).when(when).delay(Duration::from_millis(5)))
        .turn(Turn::error(ErrorReply::new(429, "m").kind("t").retry_after(1)))
        .turn(Turn::hang_up())
}

#[test]
fn a_file_and_the_builder_make_the_same_script() {
    assert_eq!(Script::parse(FULL.as_bytes()).unwrap(), full());
}

#[test]
fn a_script_that_is_written_out_is_read_back() {
    for script in [full(), Script::new().side_requests(SideRequests::TakeTurns)] {
        let json = serde_json::to_vec(&script).unwrap();
        assert_eq!(Script::parse(&json).unwrap(), script);
    }
}

#[test]
fn omitted_keys_have_defaults() {
    let least = br#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"text": "hi"}]}}}]}"#;
    assert_eq!(Script::parse(least).unwrap(), Script::new().turn(Turn::text("hi")));
    assert_eq!(Script::new().side_requests, SideRequests::Reply("ok".into()));
    assert_eq!(Script::new().when_exhausted, Exhausted::Error);
}

/// The error's message and that of its cause.
fn refusal(json: &str) -> (String, String) {
    let error = Script::parse(json.as_bytes()).unwrap_err();
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    (error.to_string(), cause)
}

#[test]
fn an_error_names_the_place_and_what_was_expected() {
    let (message, cause) = refusal(
        "{\"version\": 1, \"turns\": [\n  {\"answer\": {\"reply\": {\"content\": [], \"stop\": 1}}}]}",
    );
    assert!(message.starts_with("line 2, column "), "{message}");
    assert!(message.contains("`turns[0].answer.reply.stop`"), "{message}");
    assert!(cause.contains("unknown field `stop`, expected one of `content`, `stop_reason`"), "{cause}");

    let (message, cause) = refusal(r#"{"version": 1, "turns": [{"answer": {"error": {"status": "x"}}}]}"#);
    assert!(message.contains("`turns[0].answer.error.status`"), "{message}");
    assert!(cause.contains("invalid type: string \"x\", expected u16"), "{cause}");

    let (message, cause) =
        refusal(r#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"tool": {}}]}}}]}"#);
    assert!(message.contains("`turns[0].answer.reply.content[0]"), "{message}");
    assert!(
        cause.contains("unknown variant `tool`, expected one of `text`, `thinking`, `tool_use`"),
        "{cause}"
    );

    let (_, cause) = refusal(r#"{"turns": []}"#);
    assert!(cause.contains("missing field `version`"), "{cause}");
    let (_, cause) = refusal(r#"{"version": 1, "turns": []} {}"#);
    assert!(cause.contains("trailing characters"), "{cause}");
    let (_, cause) = refusal(
        r#"{"version": 1, "turns": [{"answer": {"reply": {"content": [{"thinking": {"text": "", "signature": "", "x": 1}}]}}}]}"#,
    );
    assert!(cause.contains("unknown field `x`"), "{cause}");
}

#[test]
fn another_version_is_reported_before_unknown_keys() {
    let newer = Script::parse(br#"{"version": 2, "scenes": []}"#);
    assert!(matches!(newer, Err(ParseScriptError::Version { found: 2 })), "{newer:?}");
}

#[test]
fn an_unplayable_script_is_refused_with_all_its_faults() {
    let (_, cause) = refusal(
        r#"{"version": 1, "turns": [{"answer": {"reply": {"content": []}}}, {"answer": {"error": {"status": 200}}}]}"#,
    );
    assert_eq!(
        cause,
        "`turns[0].answer.reply.content`: expected at least one block, found none; \
         `turns[1].answer.error.status`: expected 400 to 599, found 200"
    );
}

#[test]
fn a_file_that_fails_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.json");
    let missing = Script::load(&path);
    assert!(matches!(missing, Err(LoadScriptError::Read { .. })), "{missing:?}");
    std::fs::write(&path, FULL).unwrap();
    assert_eq!(Script::load(&path).unwrap(), full());
    std::fs::write(&path, "{").unwrap();
    let broken = Script::load(&path).unwrap_err();
    assert!(broken.to_string().contains("script.json is not a script"), "{broken}");
    let large = std::fs::File::create(&path).unwrap();
    large.set_len(16 * 1024 * 1024 + 1).unwrap();
    let large = Script::load(&path);
    assert!(matches!(large, Err(LoadScriptError::TooLarge { .. })), "{large:?}");
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let block = prop_oneof![
        ".*".prop_map(ScriptBlock::Text),
        (".*", ".*").prop_map(|(text, signature)| ScriptBlock::Thinking { text, signature }),
        ("[A-Za-z]{1,8}", ".*").prop_map(|(name, argument)| ScriptBlock::ToolUse {
            name,
            input: json!({"argument": argument}),
            id: None
        }),
    ];
    let reply =
        (prop::collection::vec(block, 1..4), 0..9usize, 1..5usize).prop_map(|(content, cut, chars)| {
            let reply = ScriptReply { content, ..ScriptReply::new() }.delta_chars(chars.try_into().unwrap());
            TurnAnswer::Reply(if cut < 8 { reply.cut(cut, CutEnd::Close) } else { reply })
        });
    let error =
        (400..600u16, ".*").prop_map(|(status, message)| TurnAnswer::Error(ErrorReply::new(status, message)));
    (prop_oneof![reply, error, Just(TurnAnswer::HangUp)], prop::option::of(".*"), 0..1000u64).prop_map(
        |(answer, last_message_contains, delay_ms)| Turn {
            when: RequestConditions { last_message_contains, ..RequestConditions::any() },
            delay_ms,
            ..Turn::new(answer)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_script_survives_its_file(turns in prop::collection::vec(any_turn(), 0..4)) {
        let script = turns.into_iter().fold(Script::new(), Script::turn);
        let json = serde_json::to_vec_pretty(&script).unwrap();
        prop_assert_eq!(Script::parse(&json).unwrap(), script);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(Script::parse(&bytes).is_err());
    }

    /// A valid file with one part replaced gets much further into the parser than noise does.
    #[test]
    fn no_damage_makes_the_reader_panic(
        at in 0..FULL.len(), length in 0..40usize, patch in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut damaged = FULL.as_bytes().to_vec();
        damaged.splice(at..(at + length).min(FULL.len()), patch);
        if let Ok(script) = Script::parse(&damaged) {
            prop_assert!(script.check().is_ok());
        }
    }
}
