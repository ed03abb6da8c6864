//! From checks and signals to one conclusion.

use super::made::*;
use super::{checks, result};
use belljar_contract::{
    Conclusion, ConversationEnd, ConversationFailure, Deadline, EgressLogFault, EgressLogState, Evidence,
    GuestEnd, Lane, LimitKind, Observation, Outcome, ProtocolFlaw, SignalWeight, TurnOutcome, Whole,
};
use serde_json::{Value, json};

fn conclusion(assert: Value, evidence: &Evidence) -> Conclusion {
    checks(&assert).judge(evidence).conclusion
}

fn codes(assert: Value, evidence: &Evidence) -> Vec<String> {
    checks(&assert).judge(evidence).signals.into_iter().map(|signal| signal.code).collect()
}

/// belljar ends an agent whose question stays open, and the agent may end with any status then.
#[test]
fn what_an_open_question_cut_off_shows_no_absence() {
    let ended = |unanswered| Evidence {
        end: Some(ConversationEnd {
            failure: Some(ConversationFailure::TurnUnfinished { exit: GuestEnd::Code(143) }),
            unanswered,
            ..success()
        }),
        ..left(&[], &[])
    };
    let open = ended(vec![request("r1")]);
    for check in [json!({"tool_not_called": "Bash"}), json!({"file_absent": "outputs/a"})] {
        assert_eq!(result(&check, &open).outcome, Outcome::Unknown, "{check}");
        assert_eq!(result(&check, &ended(Vec::new())).outcome, Outcome::Pass, "{check}");
    }
}

#[test]
fn without_checks_the_ending_decides() {
    let after_success = ConversationFailure::ExitAfterSuccess { exit: GuestEnd::Code(7) };
    for (evidence, wanted) in [
        (nothing(), Conclusion::Passed),
        (failure(after_success), Conclusion::AgentFailed),
        (failure(ConversationFailure::Crashed { exit: GuestEnd::Signal(11) }), Conclusion::AgentFailed),
        (failure(ConversationFailure::Unanswered { count: 1 }), Conclusion::AgentFailed),
        (failure(ConversationFailure::Deadline { deadline: Deadline::Turn }), Conclusion::AgentFailed),
        (failure(ConversationFailure::Deadline { deadline: Deadline::Run }), Conclusion::BudgetReached),
        (failed_turn("error_during_execution", "oops", None), Conclusion::AgentFailed),
        (failed_turn("error_max_turns", "enough", None), Conclusion::BudgetReached),
        (failed_turn("success", "rate limited", Some(429)), Conclusion::AgentFailed),
        (Evidence { stopped_by: Some(LimitKind::Cost), ..nothing() }, Conclusion::BudgetReached),
        (Evidence { end: None, ..nothing() }, Conclusion::Unverified),
        (cut(nothing()), Conclusion::Unverified),
        (blind(nothing()), Conclusion::Unverified),
        (Evidence { egress: None, ..nothing() }, Conclusion::Passed),
        // No conclusion depends on the egress log unless a check asks for it; but a changed log shows tampering.
        (logged(nothing(), EgressLogState::Truncated), Conclusion::Passed),
        (
            logged(nothing(), EgressLogState::Edited { line: 2, fault: EgressLogFault::Chain }),
            Conclusion::Unverified,
        ),
        (logged(nothing(), EgressLogState::Newer { format: 9 }), Conclusion::Passed),
        (Evidence { lane: Lane::Remote, ..nothing() }, Conclusion::Unverified),
    ] {
        assert_eq!(conclusion(json!([]), &evidence), wanted, "{:?}", evidence.end);
    }
}

#[test]
fn a_failure_is_distinguished_from_a_failed_check() {
    let missing = json!([{"tool_called": "Bash"}]);
    assert_eq!(conclusion(missing.clone(), &nothing()), Conclusion::Failed);
    assert_eq!(conclusion(missing.clone(), &cut(nothing())), Conclusion::Unverified);
    assert_eq!(conclusion(missing.clone(), &failed_turn("x", "y", None)), Conclusion::AgentFailed);
    let stopped = Evidence { stopped_by: Some(LimitKind::Time), ..failed_turn("x", "y", None) };
    assert_eq!(conclusion(missing, &stopped), Conclusion::BudgetReached);
    // One failed check weighs more than one that is unknown.
    let both = json!([{"tool_called": "Bash"}, {"egress_denied": "x.example"}]);
    assert_eq!(conclusion(both, &Evidence { egress: None, ..nothing() }), Conclusion::Failed);
}

#[test]
fn an_interrupted_run_is_that_and_nothing_else() {
    let interrupted = |evidence: Evidence| Evidence { conversation: Whole::Interrupted, ..evidence };
    let blamed = json!([{"result": "success"}, {"tool_called": "Bash"}, {"file_exists": "outputs/x"}]);
    for evidence in [
        nothing(),
        Evidence { end: None, ..nothing() },
        failure(ConversationFailure::Crashed { exit: GuestEnd::Code(143) }),
        failed_turn("error_during_execution", "oops", None),
        talk(vec![said("Shall I go on?")]),
    ] {
        let judgement = checks(&blamed).judge(&interrupted(evidence));
        assert_eq!(judgement.conclusion, Conclusion::Interrupted);
        assert_eq!(judgement.signals[0].code, "interrupted");
        assert!(judgement.signals.iter().all(|signal| signal.weight != SignalWeight::Fail));
        assert!(judgement.checks.iter().all(|check| check.outcome == Outcome::Unknown), "{judgement:?}");
    }
}

#[test]
fn a_limit_that_the_agent_survived_is_a_note_beside_the_verdict() {
    let missing = json!([{"tool_called": "Bash"}]);
    for limit in [LimitKind::Memory, LimitKind::Pids, LimitKind::Tmpfs] {
        let reached = |evidence: Evidence| Evidence { stopped_by: Some(limit), ..evidence };
        let survived = reached(nothing());
        assert_eq!(conclusion(json!([]), &survived), Conclusion::Passed, "{limit:?}");
        assert_eq!(conclusion(missing.clone(), &survived), Conclusion::Failed, "{limit:?}");
        assert_eq!(codes(missing.clone(), &survived), ["limit_reached"], "{limit:?}");
        // A failed turn was reported by an agent that kept running.
        let reported = reached(failed_turn("x", "y", None));
        assert_eq!(conclusion(json!([]), &reported), Conclusion::AgentFailed, "{limit:?}");
        assert_eq!(codes(json!([]), &reported), ["limit_reached", "result_error"], "{limit:?}");
        for exit in [GuestEnd::Signal(9), GuestEnd::Code(1)] {
            for died in [
                ConversationFailure::Crashed { exit },
                ConversationFailure::TurnUnfinished { exit },
                ConversationFailure::ExitAfterSuccess { exit },
            ] {
                let ended = reached(failure(died));
                assert_eq!(conclusion(json!([]), &ended), Conclusion::BudgetReached, "{limit:?} {exit:?}");
            }
        }
    }
}

#[test]
fn an_expected_error_is_no_failure_unless_the_world_failed() {
    let expected = || json!([{"result": "error"}]);
    let after_success = ConversationFailure::ExitAfterSuccess { exit: GuestEnd::Code(7) };
    for (evidence, wanted) in [
        (failed_turn("error_during_execution", "oops", None), Conclusion::Passed),
        (failed_turn("error_max_turns", "enough", None), Conclusion::Passed),
        (failure(after_success), Conclusion::Passed),
        (failed_turn("success", "fetch failed", None), Conclusion::AgentFailed),
        (failed_turn("success", "read ECONNRESET", None), Conclusion::AgentFailed),
        (failed_turn("success", "limit", Some(429)), Conclusion::AgentFailed),
        (failure(ConversationFailure::Deadline { deadline: Deadline::Run }), Conclusion::BudgetReached),
        (nothing(), Conclusion::Failed),
    ] {
        assert_eq!(conclusion(expected(), &evidence), wanted, "{:?}", evidence.end);
    }
    assert_eq!(codes(json!([]), &failed_turn("success", "socket hang up", None)), ["transport_error"]);
    assert_eq!(codes(json!([]), &failed_turn("success", "no", Some(429))), ["usage_limit"]);
    let exhausted = |assert: Value| {
        let last = TurnOutcome {
            is_error: true,
            subtype: "success".to_owned(),
            text: None,
            api_error_status: None,
            terminal_reason: Some("budget_exhausted".to_owned()),
            turns: None,
            usage: None,
            total_cost_micros_usd: None,
            denied_tools: Vec::new(),
            structured: None,
        };
        let mut evidence = failed_turn("success", "no more", None);
        evidence.end.as_mut().unwrap().last = Some(last);
        conclusion(assert, &evidence)
    };
    assert_eq!(exhausted(json!([])), Conclusion::BudgetReached);
}

/// A line that could not be read may have held what must not be there.
#[test]
fn an_unread_line_or_a_flaw_leaves_no_negative_check_green() {
    let unread = |evidence: Evidence| {
        let end = ConversationEnd { unread: 1, ..success() };
        Evidence { end: Some(end), ..evidence }
    };
    let counted = |evidence: Evidence| {
        let end = ConversationEnd { flaws: 1, ..success() };
        Evidence { end: Some(end), ..evidence }
    };
    let flawed = |mut evidence: Evidence| {
        let last = evidence.seen.last().cloned();
        let mut seen = last.unwrap_or_else(|| talk(vec![said("x")]).seen.remove(0));
        seen.seq += 1;
        seen.what = Observation::Flawed(ProtocolFlaw::FrameAfterExit);
        evidence.seen.push(seen);
        evidence
    };
    let not_called = json!([{"tool_not_called": "Bash"}]);
    let transforms: [&dyn Fn(Evidence) -> Evidence; 3] = [&unread, &counted, &flawed];
    for transform in transforms {
        let judgement = checks(&not_called).judge(&transform(nothing()));
        assert_eq!(judgement.checks[0].outcome, Outcome::Unknown);
        assert_eq!(judgement.conclusion, Conclusion::Unverified);
        assert_eq!(judgement.signals[0].code, "conversation_incomplete");
        // What was seen was seen.
        let called = transform(talk(vec![called("c1", "Bash", json!({}))]));
        assert_eq!(checks(&not_called).judge(&called).checks[0].outcome, Outcome::Fail);
        assert_eq!(checks(&json!([{"tool_called": "Bash"}])).judge(&called).checks[0].outcome, Outcome::Pass);
    }
}

#[test]
fn an_item_holds_when_all_of_it_does() {
    let bash = talk(vec![called("c1", "Bash", json!({})), returned("c1", "Bash", "ok")]);
    let judge = |item: Value| checks(&json!([item])).judge(&bash).checks.remove(0);
    let good = judge(json!({"tool_called": "Bash", "tool_result_contains": "ok"}));
    assert_eq!(good.outcome, Outcome::Pass);
    assert_eq!(good.check, "tool_called: \"Bash\", tool_result_contains: \"ok\"");
    assert_eq!(good.place, "assert[0]");
    assert_eq!(good.evidence.iter().filter_map(|note| note.seq).collect::<Vec<_>>(), [10, 11]);
    let unknown_first = json!({"skill_available": "x", "tool_called": "Read", "tool_not_called": "Bash"});
    let bad = judge(unknown_first);
    assert_eq!(
        (bad.outcome, bad.message.as_str()),
        (Outcome::Fail, "the agent itself called no tool `Read`")
    );
    assert_eq!(judge(json!({"tool_called": "Bash", "skill_available": "x"})).outcome, Outcome::Unknown);
}

#[test]
fn signals_weigh_unless_they_are_let_pass() {
    let permission = Observation::Asked {
        request: request("p1"),
        about: "a permission".to_owned(),
        tool: Some("WebSearch".to_owned()),
        call: None,
        by: belljar_contract::Speaker::Main,
        questions: Vec::new(),
    };
    let allowed = talk(vec![permission.clone(), answered("p1", &[], "parity")]);
    assert_eq!(codes(json!([]), &allowed), ["permissive_auto_allow"]);
    assert_eq!(conclusion(json!([]), &allowed), Conclusion::Failed);
    assert_eq!(conclusion(json!([{"allow_permissive_auto_allow": true}]), &allowed), Conclusion::Passed);
    let mut denied = talk(vec![permission, answered("p1", &[], "parity")]);
    let Observation::Answered { answer, .. } = &mut denied.seen[1].what else { panic!() };
    *answer = "deny".to_owned();
    assert!(codes(json!([]), &denied).is_empty());

    let deleted = left(&[("outputs/a", b""), ("project/b", b"")], &[]);
    assert_eq!(codes(json!([]), &deleted), ["outputs_delete", "mount_delete"]);
    assert_eq!(conclusion(json!([]), &deleted), Conclusion::Failed);
    assert_eq!(conclusion(json!([{"allow_outputs_delete": true}]), &deleted), Conclusion::Passed);
    assert_eq!(codes(json!([{"allow_delete_in": ["outputs", "project"]}]), &deleted), [""; 0]);
    assert_eq!(conclusion(json!([{"allow_outputs_delete": true}]), &blind(nothing())), Conclusion::Passed);

    let stalled = talk(vec![called("q", "AskUserQuestion", json!({})), said("Shall I go on? ")]);
    assert_eq!(codes(json!([]), &stalled), ["stalled"]);
    assert_eq!(conclusion(json!([{"allow_stall": true}]), &stalled), Conclusion::Passed);
    let worked = talk(vec![
        called("q", "AskUserQuestion", json!({})),
        called("c", "Bash", json!({})),
        said("Anything else?"),
    ]);
    assert_eq!(codes(json!([]), &worked), ["ended_with_question"]);
    assert_eq!(conclusion(json!([]), &worked), Conclusion::Passed);

    for (by, loose) in
        [("scenario", false), ("first", true), ("person", true), ("external", true), ("someone", true)]
    {
        let evidence = talk(vec![answered("q1", &["A"], by)]);
        assert_eq!(codes(json!([]), &evidence) == ["non_deterministic"], loose, "{by}");
        assert_eq!(conclusion(json!([]), &evidence), Conclusion::Passed);
    }
    let requires = |assert: Value| checks(&assert).requiring(vec!["ocr".to_owned()]).judge(&nothing());
    assert_eq!(requires(json!([])).conclusion, Conclusion::Unverified);
    assert!(requires(json!([])).signals[0].message.contains("ocr"));
    assert_eq!(requires(json!([{"allow_missing_capability": true}])).conclusion, Conclusion::Passed);

    let mut lasting = left(&[("project/b", b"")], &[]);
    lasting.files.as_mut().unwrap().lasting = vec!["project".to_owned()];
    assert_eq!(codes(json!([]), &lasting), ["forbidden_delete"]);
    assert_eq!(conclusion(json!([]), &lasting), Conclusion::Failed);
    assert_eq!(codes(json!([{"allow_delete_in": ["project"]}]), &lasting), [""; 0]);

    let odd = talk(vec![Observation::UnknownFrame { frame: "comet".to_owned() }]);
    let judgement = checks(&json!([])).judge(&odd);
    assert_eq!(
        (judgement.signals[0].code.as_str(), judgement.signals[0].weight),
        ("unknown_frames", SignalWeight::Warn)
    );
}

#[test]
fn a_pattern_that_would_hang_others_is_quick() {
    let long = format!("{}!", "a".repeat(2_000_000));
    let evidence = talk(vec![said(&long), called("c1", "Bash", json!({})), returned("c1", "Bash", &long)]);
    let assert = json!([{"transcript_not_matches": "^(a+)+$"}, {"tool_result_not_matches": "^(a+)+$"}]);
    assert_eq!(conclusion(assert, &evidence), Conclusion::Passed);
}

#[test]
fn calls_of_a_skill_and_of_a_fork_are_the_agents_own() {
    let evidence = talk(vec![
        called("s1", "Skill", json!({"skill": "notes"})),
        called_by(under("s1"), "c1", "Bash", json!({})),
        called("f1", "Agent", json!({"subagent_type": "fork"})),
        called_by(under("f1"), "c2", "Read", json!({})),
        called("a1", "Agent", json!({"subagent_type": "worker"})),
        called_by(under("a1"), "s2", "Skill", json!({"skill": "notes"})),
        called_by(under("s2"), "c3", "Write", json!({})),
    ]);
    for (check, outcome) in [
        (json!({"subagent_tool_used": "Bash"}), Outcome::Fail),
        (json!({"subagent_tool_used": "Read"}), Outcome::Fail),
        (json!({"subagent_tool_used": "Write"}), Outcome::Pass),
        (json!({"tool_called": "Bash"}), Outcome::Pass),
        (json!({"tool_called": "Write"}), Outcome::Fail),
        (json!({"tool_not_called": "Write"}), Outcome::Fail),
        (json!({"tool_calls_max": 5}), Outcome::Pass),
        (json!({"tool_calls_max": 4}), Outcome::Fail),
    ] {
        assert_eq!(super::result(&check, &evidence).outcome, outcome, "{check}");
    }
}

#[test]
fn hosts_fit_by_whole_labels() {
    use belljar_contract::EgressWay::Connect;
    for (wanted, destination, fits) in [
        ("evil.example", "evil.example:443", true),
        ("evil.example", "a.b.EVIL.example:8080", true),
        ("evil.example", "notevil.example:443", false),
        ("*.evil.example", "evil.example:443", false),
        ("*.evil.example", "a.evil.example:443", true),
        ("192.0.2.1", "192.0.2.1:443", true),
        ("2001:db8::1", "[2001:db8::1]:443", true),
        ("evil.example", "evil.example", true),
        ("evil.example", "evil.example:443 HTTP/1.1\\r\\n", false),
    ] {
        let outcome =
            super::result(&json!({"egress_denied": wanted}), &went(&[(destination, Connect, false)])).outcome;
        assert_eq!(outcome == Outcome::Pass, fits, "{wanted} {destination}");
    }
    let denied = super::read(&json!([]), &["evil.example"], Lane::Local).unwrap();
    let judgement = denied.judge(&went(&[("evil.example:443", Connect, false)]));
    assert_eq!(
        (judgement.conclusion, judgement.checks[0].place.as_str()),
        (Conclusion::Passed, "expect_denied[0]")
    );
    // Only the model's listener is inside: the attempt is not seen.
    for (listeners, outcome) in
        [(vec!["model", "ssh"], Outcome::Unknown), (vec!["model", "resolver"], Outcome::Fail)]
    {
        let mut closed = went(&[]);
        closed.egress.as_mut().unwrap().rows = vec![opened(&listeners)];
        assert_eq!(denied.judge(&closed).checks[0].outcome, outcome, "{listeners:?}");
    }
    let edited = logged(
        went(&[("evil.example:443", Connect, false)]),
        EgressLogState::Edited { line: 1, fault: EgressLogFault::Head },
    );
    assert_eq!(denied.judge(&edited).checks[0].outcome, Outcome::Unknown);
}

#[test]
fn what_the_agent_adds_to_the_result_of_a_sub_agent_is_not_its_output() {
    let with = |text: &str| talk(vec![called("a1", "Agent", json!({})), returned("a1", "Agent", text)]);
    let added = "agentId: a431 (continue it)\n<usage>subagent_tokens: 15\nduration_ms: 43</usage>";
    for (text, wanted, outcome) in [
        (format!("found 42\n{added}"), "42", Outcome::Pass),
        (format!("found 42\n{added}"), "43", Outcome::Fail),
        (added.to_owned(), "43", Outcome::Fail),
        ("agentId: 43, it says".to_owned(), "43", Outcome::Pass),
    ] {
        let check = json!({"subagent_output_contains": {"contains": wanted}});
        assert_eq!(result(&check, &with(&text)).outcome, outcome, "{text}");
    }
}
