//! Every check with evidence for each of its outcomes.

use super::made::*;
use super::result;
use crate::check::{Group, keys};
use belljar_contract::{
    Claim, ClaimAnswer, ClaimScope, ClaimStand, ClaimVote, ConversationFailure, EgressLogState,
    EgressRefusal, EgressRow, EgressVerdict, EgressWay, Evidence, LimitKind, Metrics, ModelUsage,
    Observation, Outcome, SkillWay, Whole,
};
use serde_json::{Value, json};

/// A check, and evidence on which it passes, fails and is unknown.
pub(super) struct Case {
    pub check: Value,
    pub pass: Evidence,
    pub fail: Evidence,
    pub unknown: Evidence,
}

fn case(check: Value, pass: Evidence, fail: Evidence, unknown: Evidence) -> Case {
    Case { check, pass, fail, unknown }
}

/// Something must have happened: unknown where it did not, in a conversation that is not whole.
fn wants(check: Value, pass: Evidence, fail: Evidence) -> Case {
    let unknown = cut(fail.clone());
    Case { check, pass, fail, unknown }
}

/// Something must not have happened: unknown where it did not, in a conversation that is not whole.
fn forbids(check: Value, pass: Evidence, fail: Evidence) -> Case {
    let unknown = cut(pass.clone());
    Case { check, pass, fail, unknown }
}

pub(super) fn all() -> Vec<Case> {
    [words(), tools(), files(), questions(), agents(), tasks(), rest()].into_iter().flatten().collect()
}

fn words() -> Vec<Case> {
    let hello = || talk(vec![said("Hello World"), said("bye")]);
    let other = || talk(vec![said("other")]);
    let crash = || failure(ConversationFailure::NoResult);
    let unended = || Evidence { end: None, ..nothing() };
    vec![
        case(json!({"result": "success"}), nothing(), crash(), unended()),
        case(json!({"result": "error"}), crash(), nothing(), unended()),
        wants(json!({"transcript_contains": "Hello"}), hello(), other()),
        wants(json!({"transcript_contains": "World\nbye"}), hello(), other()),
        forbids(json!({"transcript_not_contains": "Hello"}), other(), hello()),
        wants(json!({"transcript_matches": "^hello w\\w+\nbye$"}), hello(), other()),
        forbids(json!({"transcript_not_matches": "hello"}), other(), hello()),
        forbids(
            json!({"transcript_no_host_path": true}),
            talk(vec![said("see example.org/home/x and src/home and /homely")]),
            talk(vec![said("see file%3A%2F%2F%2FUsers%2Fann%2Fx")]),
        ),
        wants(json!({"compaction_occurred": true}), talk(vec![Observation::Compacted]), nothing()),
        semantic(),
    ]
}

fn semantic() -> Case {
    let answer = |text: &str, stand: ClaimStand| ClaimAnswer {
        claim: Claim {
            text: text.to_owned(),
            scope: ClaimScope::Agent,
            model: Some("m-1".to_owned()),
            votes: 1,
        },
        by: "m-1".to_owned(),
        votes: vec![ClaimVote { stand, reason: "so it is".to_owned(), quote: Some("so it is".to_owned()) }],
    };
    let with = |a, b| {
        let claims = vec![answer("a", a), answer("b", b)];
        Evidence { claims, ..talk(vec![said("Indeed,  so\nit is.")]) }
    };
    case(
        json!({"semantic_matches": {"rubric": ["a", "b"], "min_pass": "all", "judge_model": "m-1"}}),
        with(ClaimStand::Holds, ClaimStand::Holds),
        with(ClaimStand::Holds, ClaimStand::DoesNot),
        with(ClaimStand::Holds, ClaimStand::Unclear),
    )
}

fn tools() -> Vec<Case> {
    let bash =
        || talk(vec![called("c1", "Bash", json!({"command": "ls"})), returned("c1", "Bash", "a.txt b.txt")]);
    let bad =
        || talk(vec![called("c1", "Bash", json!({"command": "ls"})), broke("c1", "Bash", "no such file")]);
    let read = || talk(vec![called("c1", "Read", json!({})), returned("c1", "Read", "other")]);
    let twice = || {
        talk(vec![
            called("c1", "Bash", json!({"a": 1, "b": 2})),
            called("c2", "Bash", json!({"b": 2, "a": 1})),
        ])
    };
    let offers =
        || talk(vec![began(&["Bash", "Skill"], &[("files", "connected"), ("mail", "failed")], &["notes"])]);
    let calm = || talk(vec![began(&["Bash"], &[("files", "connected")], &[])]);
    vec![
        wants(json!({"tool_called": "Ba*"}), bash(), read()),
        forbids(json!({"tool_not_called": "Ba?h"}), read(), bash()),
        forbids(json!({"tool_calls_max": 1}), bash(), twice()),
        case(
            json!({"tool_available": "^bash$"}),
            offers(),
            talk(vec![began(&["Read"], &[], &[])]),
            nothing(),
        ),
        case(
            json!({"connector_available": "files"}),
            offers(),
            talk(vec![began(&[], &[("files", "failed")], &[])]),
            nothing(),
        ),
        case(json!({"skill_available": "note"}), offers(), talk(vec![began(&[], &[], &[])]), nothing()),
        wants(json!({"tool_result_contains": "b.txt"}), bash(), read()),
        forbids(json!({"tool_result_not_contains": "b.txt"}), read(), bash()),
        wants(json!({"tool_result_matches": "^A\\.txt"}), bash(), read()),
        forbids(json!({"tool_result_not_matches": "^A\\.txt"}), read(), bash()),
        forbids(json!({"tool_no_error": "bash"}), bash(), bad()),
        forbids(json!({"tool_no_error_if_called": "bash"}), read(), bad()),
        forbids(json!({"max_tool_errors": 0}), bash(), bad()),
        forbids(json!({"max_redundant_tool_calls": 0}), bash(), twice()),
        case(json!({"no_mcp_error": true}), calm(), offers(), nothing()),
    ]
}

fn files() -> Vec<Case> {
    let report = || {
        left(
            &[("outputs/old.md", b"x")],
            &[("outputs/old.md", b"x"), ("outputs/a.json", b"{\"n\":{\"v\":[1,2.0]}}")],
        )
    };
    let gone = || left(&[("outputs/old.md", b"x"), ("project/in.csv", b"1")], &[("project/in.csv", b"2")]);
    let same = || left(&[("project/in.csv", b"1")], &[("project/in.csv", b"1")]);
    let lost = || left(&[("project/in.csv", b"1")], &[]);
    let hidden = || left(&[], &[("tmp/a.json", b"{}")]);
    let files = |check: Value, pass: Evidence, fail: Evidence| {
        let unknown = blind(pass.clone());
        case(check, pass, fail, unknown)
    };
    vec![
        files(json!({"file_exists": "./outputs/a.json"}), report(), gone()),
        files(json!({"file_absent": "outputs/a.json"}), gone(), report()),
        files(json!({"user_visible_artifact": "outputs/a.json"}), report(), gone()),
        files(json!({"user_visible_artifact": "tmp/a.json"}), left(&[], &[("tmp/a.json", b"")]), hidden()),
        files(
            json!({"artifact_json": {"artifact": "outputs/a.json", "path": "n.v.1", "equals": 2}}),
            report(),
            hidden(),
        ),
        files(
            json!({"artifact_text": {"artifact": "outputs/a.json", "contains": ["v"], "not_matches": "w"}}),
            report(),
            gone(),
        ),
        files(
            json!({"no_unexpected_files": ["outputs/*.json"]}),
            report(),
            left(&[], &[("outputs/b.md", b"")]),
        ),
        files(json!({"input_unmodified": "project/**"}), same(), gone()),
        files(json!({"no_delete_in_outputs": true}), report(), gone()),
        files(json!({"no_delete_in_mounts": true}), same(), lost()),
    ]
    .into_iter()
    .map(|mut case| {
        // Without any directory of the user's there is nothing that is not seen.
        if case.check["user_visible_artifact"] == "tmp/a.json" {
            case.pass.files.as_mut().unwrap().visible.push("tmp".to_owned());
        }
        case
    })
    .collect()
}

fn questions() -> Vec<Case> {
    let ask = || {
        vec![
            called("q1", "AskUserQuestion", json!({})),
            asked("q1", vec![question("Which format?", &["A", "B"])]),
        ]
    };
    let with = |more: Vec<Observation>| talk(ask().into_iter().chain(more).collect());
    let good = || with(vec![answered("q1", &["A"], "scenario"), returned("q1", "AskUserQuestion", "A")]);
    let bad = || with(vec![answered("q1", &["A"], "scenario"), broke("q1", "AskUserQuestion", "no")]);
    vec![
        wants(json!({"question_asked": "which"}), good(), nothing()),
        case(
            json!({"question_options": {"when_question": "format", "equals": ["B", "A"]}}),
            good(),
            talk(vec![asked("q1", vec![question("Which format?", &["A"])])]),
            cut(good()),
        ),
        forbids(
            json!({"questions_count_max": 1}),
            good(),
            talk(vec![asked("q1", vec![question("a", &[]), question("b", &[])])]),
        ),
        forbids(json!({"gate_answers_delivered": true}), good(), bad()),
        wants(json!({"gate_answers_delivered": false}), bad(), good()),
        wants(json!({"gate_answer_count_min": 1}), good(), bad()),
    ]
}

fn agents() -> Vec<Case> {
    let start = || called("a1", "Agent", json!({"subagent_type": "researcher", "description": "look it up"}));
    let sub = |tool: &str, path: &str| called_by(under("a1"), "w1", tool, json!({"file_path": path}));
    let wrote = || {
        talk(vec![
            start(),
            sub("Write", "/w/outputs/a.md"),
            returned("w1", "Write", "ok"),
            returned("a1", "Agent", "found 42"),
        ])
    };
    let failed = || {
        talk(vec![
            start(),
            sub("Write", "/w/outputs/a.md"),
            broke("w1", "Write", "denied"),
            returned("a1", "Agent", "nothing"),
        ])
    };
    let two = || talk(vec![start(), called("a2", "Task", json!({"subagent_type": "other"}))]);
    let skills = |what: Vec<Observation>| talk([vec![began(&["Skill"], &[], &[])], what].concat());
    let used = || skills(vec![skill("notes", SkillWay::Tool), called("c1", "Write", json!({}))]);
    let unused = || {
        skills(vec![
            skill("notes", SkillWay::Message),
            skill("other", SkillWay::Read),
            called("c1", "Bash", json!({})),
        ])
    };
    vec![
        wants(json!({"subagent_dispatched": "^research"}), wrote(), nothing()),
        forbids(json!({"dispatch_count_max": 1}), wrote(), two()),
        wants(json!({"subagent_tool_used": "Write"}), wrote(), two()),
        forbids(json!({"subagent_tool_absent": "Write"}), two(), wrote()),
        wants(
            json!({"subagent_output_contains": {"match": "research", "contains": "42"}}),
            wrote(),
            failed(),
        ),
        wants(json!({"subagent_file_write": {"path_suffix": "outputs/a.md"}}), wrote(), failed()),
        wants(json!({"skill_triggered": "notes"}), used(), unused()),
        case(json!({"no_skill_triggered": "notes"}), unused(), used(), nothing()),
        wants(json!({"skill_tool_used": {"skill": "notes", "tool": "write"}}), used(), unused()),
    ]
}

fn tasks() -> Vec<Case> {
    let made = || {
        vec![
            called("t1", "TaskCreate", json!({"subject": "Write it"})),
            returned("t1", "TaskCreate", "Task #1 created successfully: Write it"),
        ]
    };
    let done = || {
        talk(
            [
                made(),
                vec![
                    called("t2", "TaskUpdate", json!({"taskId": "1", "status": "completed"})),
                    returned("t2", "TaskUpdate", "ok"),
                ],
            ]
            .concat(),
        )
    };
    let open = || talk(made());
    vec![
        forbids(json!({"all_tasks_completed": true}), done(), open()),
        wants(json!({"task_count_min": 1}), open(), nothing()),
        wants(json!({"task_status": {"match": "write", "status": "completed"}}), done(), open()),
        case(
            json!({"hook_blocked": "^bash$"}),
            talk(vec![hook("PreToolUse:Bash", 2, "no")]),
            talk(vec![hook("PreToolUse:Read", 0, "{\"decision\":\"block\"}")]),
            nothing(),
        ),
        case(
            json!({"no_hook_blocked": true}),
            talk(vec![hook("PreToolUse:Bash", 0, "fine")]),
            talk(vec![hook(
                "PreToolUse:Bash",
                0,
                "x\n{\"hookSpecificOutput\":{\"permissionDecision\":\"deny\"}}",
            )]),
            nothing(),
        ),
    ]
}

fn rest() -> Vec<Case> {
    let unmeasured = || Evidence { metrics: Metrics::default(), ..nothing() };
    let denied = || {
        went(&[
            ("api.evil.example:443", EgressWay::Connect, false),
            ("good.example:443", EgressWay::Connect, true),
        ])
    };
    let allowed = || {
        went(&[("evil.example:443", EgressWay::Connect, true), ("good.example:443", EgressWay::Lookup, true)])
    };
    let unwatched = || Evidence { egress: None, ..nothing() };
    vec![
        case(json!({"max_cost_usd": 0.02}), nothing(), nothing_dearer(), unmeasured()),
        case(json!({"max_tokens": 150}), nothing(), nothing_dearer(), unmeasured()),
        case(
            json!({"max_turns": 3}),
            talk(vec![turn(Some(1)), turn(Some(2))]),
            talk(vec![turn(Some(4))]),
            talk(vec![turn(None)]),
        ),
        case(json!({"max_peak_rss_bytes": 1000}), nothing(), nothing_dearer(), unmeasured()),
        case(json!({"egress_denied": "evil.example"}), denied(), allowed(), unwatched()),
        case(
            json!({"egress_allowed": "good.example"}),
            denied(),
            allowed(),
            logged(allowed(), EgressLogState::Truncated),
        ),
    ]
}

fn nothing_dearer() -> Evidence {
    let metrics = Metrics {
        input_tokens: Some(151),
        output_tokens: None,
        cost_micros_usd: Some(20_001),
        cpu_ms: None,
        peak_memory_bytes: Some(1001),
        usage: None,
    };
    Evidence { metrics, ..nothing() }
}

#[test]
fn what_a_replay_did_not_dial_is_unknown() {
    let mut seen = went(&[("good.example:443", EgressWay::Connect, true)]);
    let check = json!({"egress_allowed": "good.example"});
    assert_eq!(result(&check, &seen).outcome, Outcome::Pass);
    for row in &mut seen.egress.as_mut().unwrap().rows {
        if let belljar_contract::EgressRow::Finished { end, .. } = row {
            end.failure = Some(belljar_contract::EGRESS_NOT_DIALLED.to_owned());
        }
    }
    let found = result(&check, &seen);
    assert_eq!(found.outcome, Outcome::Unknown);
    assert!(found.message.contains("--network"), "{}", found.message);
    assert_eq!(result(&json!({"egress_denied": "good.example"}), &seen).outcome, Outcome::Fail);
}

#[test]
fn reported_usage_is_judged_without_the_cache() {
    let with = |cost_micros_usd| {
        let usage = ModelUsage { input_tokens: 100, cached_tokens: 9000, output_tokens: 50, cost_micros_usd };
        Evidence { metrics: Metrics { usage: Some(usage), ..Metrics::default() }, ..nothing() }
    };
    for (check, outcome) in [
        (json!({"max_tokens": 150}), Outcome::Pass),
        (json!({"max_tokens": 149}), Outcome::Fail),
        (json!({"max_cost_usd": 0.02}), Outcome::Pass),
        (json!({"max_cost_usd": 0.019}), Outcome::Fail),
    ] {
        assert_eq!(result(&check, &with(Some(20_000))).outcome, outcome, "{check}");
    }
    // A model without a known price.
    assert_eq!(result(&json!({"max_cost_usd": 1}), &with(None)).outcome, Outcome::Unknown);
}

#[test]
fn only_what_the_policy_refused_was_denied() {
    use EgressRefusal::{
        Address, Denied, HostMismatch, Malformed, NotAllowed, NotTls, Port, Request, Sni, Token, Unresolved,
        Upgrade,
    };
    let what = || "it".to_owned();
    let check = json!({"egress_denied": "good.example"});
    let refused = |way: EgressWay, reason: EgressRefusal| {
        let mut seen = went(&[("good.example:443", way, false)]);
        for row in &mut seen.egress.as_mut().unwrap().rows {
            if let EgressRow::Decided { decision, .. } = row {
                decision.verdict = EgressVerdict::Denied { reason: reason.clone() };
            }
        }
        seen
    };
    for (reason, outcome) in [
        (NotAllowed, Outcome::Pass),
        (Denied, Outcome::Pass),
        (Port { allowed: Vec::new() }, Outcome::Pass),
        (Address { class: belljar_contract::AddressClass::Loopback }, Outcome::Pass),
        (Request { what: what() }, Outcome::Pass),
        (Unresolved, Outcome::Fail),
        (Malformed { what: what() }, Outcome::Fail),
        (Token, Outcome::Fail),
        (HostMismatch, Outcome::Fail),
        (Upgrade, Outcome::Fail),
        (NotTls, Outcome::Fail),
        (Sni { found: None }, Outcome::Fail),
    ] {
        let found = result(&check, &refused(EgressWay::Connect, reason.clone()));
        assert_eq!(found.outcome, outcome, "{reason:?}: {}", found.message);
    }
    // The gateway of the model refuses for a budget or a key.
    let budget = refused(EgressWay::Model, Request { what: what() });
    assert_eq!(result(&check, &budget).outcome, Outcome::Fail);
    assert_eq!(result(&check, &went(&[])).outcome, Outcome::Fail, "nothing was tried");
}

#[test]
fn a_host_that_was_not_connected_to_was_not_reached() {
    let check = json!({"egress_allowed": "good.example"});
    let mut seen = went(&[("good.example:443", EgressWay::Connect, true)]);
    for row in &mut seen.egress.as_mut().unwrap().rows {
        if let EgressRow::Finished { end, .. } = row {
            end.address = None;
        }
    }
    assert_eq!(result(&check, &seen).outcome, Outcome::Fail);
}

/// What did not happen until then might have happened later; what was seen was seen.
#[test]
fn a_run_that_was_cut_short_shows_no_absence() {
    use belljar_contract::{Deadline, GuestEnd};
    let killed = |exit| ConversationFailure::TurnUnfinished { exit };
    let failed =
        |evidence: Evidence, why: ConversationFailure| Evidence { end: failure(why).end, ..evidence };
    let ways: [&dyn Fn(Evidence) -> Evidence; 6] = [
        &|evidence| Evidence { conversation: Whole::Interrupted, ..evidence },
        &|evidence| Evidence { stopped_by: Some(LimitKind::Time), ..evidence },
        &|evidence| Evidence { stopped_by: Some(LimitKind::Cost), ..evidence },
        &|evidence| {
            let evidence = Evidence { stopped_by: Some(LimitKind::Memory), ..evidence };
            failed(evidence, killed(GuestEnd::Code(137)))
        },
        &|evidence| failed(evidence, ConversationFailure::Deadline { deadline: Deadline::Turn }),
        &|evidence| failed(evidence, killed(GuestEnd::Signal(9))),
    ];
    let firm = |name: &str| ["result", "semantic_matches"].contains(&name) || name.ends_with("_available");
    for Case { check, pass, fail, .. } in all() {
        let name = check.as_object().unwrap().keys().next().unwrap().clone();
        if firm(&name) {
            continue;
        }
        for (at, way) in ways.iter().enumerate() {
            let (passed, failed) = (result(&check, &way(pass.clone())), result(&check, &way(fail.clone())));
            // One of the two rests on what was not seen.
            let open = [&passed, &failed].iter().filter(|found| found.outcome == Outcome::Unknown).count();
            assert!(open >= 1, "{at} {check}: {} / {}", passed.message, failed.message);
            assert_ne!(passed.outcome, Outcome::Fail, "{at} {check}: {}", passed.message);
            assert_ne!(failed.outcome, Outcome::Pass, "{at} {check}: {}", failed.message);
            let absence =
                ["not_", "no_", "max", "absent", "unmodified"].iter().any(|word| name.contains(word));
            if absence {
                assert_eq!(passed.outcome, Outcome::Unknown, "{at} {check}: {}", passed.message);
            }
        }
    }
}

#[test]
fn every_check_passes_fails_and_is_unknown_on_evidence() {
    for Case { check, pass, fail, unknown } in all() {
        for (evidence, outcome) in
            [(&pass, Outcome::Pass), (&fail, Outcome::Fail), (&unknown, Outcome::Unknown)]
        {
            let result = result(&check, evidence);
            assert_eq!(result.outcome, outcome, "{check}: {}", result.message);
            assert!(!result.message.is_empty());
            if outcome != Outcome::Unknown {
                assert!(!result.evidence.is_empty(), "{check} shows nothing for {outcome:?}");
            }
        }
    }
}

#[test]
fn no_check_is_without_its_cases() {
    let cases = all();
    for key in keys().filter(|key| key.group != Group::Modifiers) {
        assert!(cases.iter().any(|case| case.check.get(key.name).is_some()), "{} has no case", key.name);
    }
}

#[test]
fn nothing_at_all_passes_nothing() {
    let empty = Evidence {
        end: None,
        egress: None,
        files: None,
        metrics: Metrics::default(),
        duration_ms: None,
        ..cut(nothing())
    };
    for Case { check, .. } in all() {
        assert_ne!(result(&check, &empty).outcome, Outcome::Pass, "{check}");
    }
}
