//! The page about the script format, written from the definition of its keys.

use belljar_contract::decode::{Decode, Value};

use super::spec::{
    ConditionsSpec, CutSpec, ErrorSpec, ReplySpec, ScriptSpec, ThinkingSpec, ToolUseSpec, TurnSpec, UsageSpec,
};

const HEAD: &str = "\
<!-- Written by `cargo xtask generated --write` from crates/egress/src/script. -->

# Scripts

A script answers the agent in the place of the model: no key, no tokens, the same answers each time. It is one JSON file.
`--script FILE` plays one; `test --scripted` and `record --scripted` play the file beside each scenario, `NAME.script.json`
for `NAME.yaml`. `belljar check FILE` reports every fault, `belljar schema script` prints the schema for an editor, and
`belljar script new NAME` writes a first one; so does `belljar scenario new DIR`, with a scenario for it. `belljar tape to-script
TAPE` makes one of a recording.

A request of the agent takes the first turn that was not played and accepts it. The agent runs the tools that a turn calls,
inside the sandbox, and sends their results with its next request. Where a skill's files are there,
[the guide](../guides/testing.md#what-the-agent-sees) says. What a script has no turn for is an error, so that a longer run is
noticed; turns that were not played are counted at its end.

```json
{
  \"version\": 1,
  \"turns\": [
    {\"answer\": {\"reply\": {\"content\": [{\"tool_use\": {\"name\": \"Bash\", \"input\": {\"command\": \"ls\"}}}]}}},
    {\"answer\": {\"reply\": {\"content\": [{\"text\": \"There is a README.\"}]}}}
  ]
}
```
";

/// A table of the format: its title, what stands above its keys, a file that shows all of them, its schema.
struct Section {
    title: &'static str,
    about: &'static str,
    example: &'static str,
    schema: fn() -> Value,
}

const SECTIONS: [Section; 9] = [
    Section {
        title: "The file",
        about: "JSON has no comments: `note` is the place for a remark. An editor completes and checks the file by the schema that \
                `$schema` names, such as one that `belljar schema script` printed into a file beside it.",
        example: r#"{
  "$schema": "script.schema.json",
  "version": 1,
  "note": "The user asks twice.",
  "side_requests": {"reply": "a title"},
  "when_exhausted": "error",
  "turns": [{"answer": {"reply": {"content": [{"text": "Done."}]}}}]
}"#,
        schema: ScriptSpec::schema,
    },
    Section {
        title: "A turn",
        about: "One item of `turns`.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "note": "After the listing.",
      "when": {"last_message_contains": "README"},
      "delay_ms": 20,
      "answer": {"reply": {"content": [{"text": "There is a README."}]}}
    },
    {"answer": "hang_up"}
  ]
}"#,
        schema: TurnSpec::schema,
    },
    Section {
        title: "Conditions",
        about: "The value of `when` in a turn. All conditions must hold.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "when": {
        "last_message_contains": "summary",
        "model_contains": "haiku",
        "tools": "present",
        "sender": "sub_agent"
      },
      "answer": {"reply": {"content": [{"text": "A summary."}]}}
    }
  ]
}"#,
        schema: ConditionsSpec::schema,
    },
    Section {
        title: "A reply",
        about: "The value of `reply` in an `answer`. A block of `content` is `{\"text\": TEXT}`, `{\"tool_use\": …}` or \
                `{\"thinking\": …}`.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "answer": {
        "reply": {
          "content": [{"text": "The first half of"}],
          "stop_reason": "max_tokens",
          "usage": {"output_tokens": 4096},
          "model": "another-model",
          "pause_ms": 5,
          "delta_chars": 8,
          "cut": {"after_events": 6}
        }
      }
    }
  ]
}"#,
        schema: ReplySpec::schema,
    },
    Section {
        title: "A tool call",
        about: "The value of `tool_use` in a block. The names of tools and their arguments are the agent's; a skill is called \
                with the tool `Skill` and `{\"skill\": NAME}`.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "answer": {
        "reply": {"content": [{"tool_use": {"name": "Skill", "input": {"skill": "hello"}, "id": "toolu_1"}}]}
      }
    }
  ]
}"#,
        schema: ToolUseSpec::schema,
    },
    Section {
        title: "A thinking block",
        about: "The value of `thinking` in a block.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "answer": {
        "reply": {"content": [{"thinking": {"text": "I look first.", "signature": "c2ln"}}, {"text": "Done."}]}
      }
    }
  ]
}"#,
        schema: ThinkingSpec::schema,
    },
    Section {
        title: "Usage",
        about: "The value of `usage` in a reply.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "answer": {
        "reply": {
          "content": [{"text": "Done."}],
          "usage": {
            "input_tokens": 1200,
            "output_tokens": 80,
            "cache_creation_input_tokens": 900,
            "cache_read_input_tokens": 300
          }
        }
      }
    }
  ]
}"#,
        schema: UsageSpec::schema,
    },
    Section {
        title: "A cut",
        about: "The value of `cut` in a reply: the delivery ends early, to test what the agent does then.",
        example: r#"{
  "version": 1,
  "turns": [
    {"answer": {"reply": {"content": [{"text": "Done."}], "cut": {"after_events": 3, "end": "reset"}}}}
  ]
}"#,
        schema: CutSpec::schema,
    },
    Section {
        title: "An error",
        about: "The value of `error` in an `answer`.",
        example: r#"{
  "version": 1,
  "turns": [
    {
      "answer": {
        "error": {
          "status": 429,
          "type": "rate_limit_error",
          "message": "slow down",
          "headers": {"retry-after": "1"}
        }
      }
    }
  ]
}"#,
        schema: ErrorSpec::schema,
    },
];

/// The page about the format of scripts, in Markdown.
#[must_use]
pub fn script_reference() -> String {
    let mut page = HEAD.to_owned();
    for Section { title, about, example, schema } in &SECTIONS {
        page.push_str(&format!("\n## {title}\n\n"));
        if !about.is_empty() {
            page.push_str(&format!("{about}\n\n"));
        }
        page.push_str("| key | required | meaning |\n| --- | --- | --- |\n");
        let schema = schema();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let mark = if required.contains(&Value::from(key.as_str())) { "yes" } else { "" };
            let meaning = value["description"].as_str().unwrap_or_default();
            page.push_str(&format!("| `{key}` | {mark} | {meaning} |\n"));
        }
        page.push_str(&format!("\n```json\n{example}\n```\n"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    #[test]
    fn every_example_is_a_script_and_shows_every_key_of_its_section() {
        for Section { title, example, schema, .. } in &SECTIONS {
            let found = Script::parse(example.as_bytes());
            assert!(found.is_ok(), "{title}: {found:?}");
            for key in schema()["properties"].as_object().unwrap().keys() {
                assert!(example.contains(&format!("\"{key}\":")), "{title}: {key}");
            }
        }
        let blocks: Vec<&str> = HEAD.split("```json\n").skip(1).collect();
        assert_eq!(blocks.len(), 1);
        Script::parse(blocks[0].split("```").next().unwrap().as_bytes()).unwrap();
    }
}
