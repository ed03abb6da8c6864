//! Evidence, made from its parts.

use belljar_contract::{
    AskedOption, AskedQuestion, CallId, ConversationEnd, ConversationFailure, Digest, EGRESS_LOG_FORMAT,
    EgressDecision, EgressEnd, EgressLogReading, EgressLogState, EgressRefusal, EgressRow, EgressVerdict,
    EgressWay, Enforcement, Evidence, FileKind, FileSeen, FilesSeen, GuestEnd, Lane, Metrics, Observation,
    RequestId, RunId, RunIsolation, Seen, ServerSeen, SessionId, SkillWay, Speaker, TurnOutcome, Whole,
};
use serde_json::Value;

/// A run in which nothing happened, seen whole.
pub(super) fn nothing() -> Evidence {
    Evidence {
        model: belljar_contract::ModelEvidence::NotKept,
        seen: Vec::new(),
        conversation: Whole::Yes,
        end: Some(success()),
        egress: Some(EgressLogReading { rows: Vec::new(), state: EgressLogState::Complete }),
        files: Some(FilesSeen {
            visible: vec!["outputs".to_owned(), "project".to_owned()],
            ..FilesSeen::default()
        }),
        metrics: Metrics {
            input_tokens: Some(100),
            output_tokens: Some(50),
            cost_micros_usd: Some(20_000),
            cpu_ms: Some(10),
            peak_memory_bytes: Some(1000),
            usage: None,
        },
        duration_ms: Some(5),
        stopped_by: None,
        isolation: RunIsolation::Sealed,
        claims: Vec::new(),
        lane: Lane::Local,
    }
}

/// A run in which these things were seen.
pub(super) fn talk(what: Vec<Observation>) -> Evidence {
    let seen = what.into_iter().enumerate().map(|(at, what)| Seen {
        seq: at as u64 + 10,
        offset_ms: at as u64,
        what,
    });
    Evidence { seen: seen.collect(), ..nothing() }
}

/// The same, cut off.
pub(super) fn cut(evidence: Evidence) -> Evidence {
    Evidence { conversation: Whole::No { why: "the last line is cut off".to_owned() }, ..evidence }
}

pub(super) fn success() -> ConversationEnd {
    ConversationEnd {
        failure: None,
        exit: GuestEnd::Code(0),
        results: 1,
        failed_results: 0,
        last: None,
        unanswered: Vec::new(),
        untaken: Vec::new(),
        running_sub_agents: 0,
        unread: 0,
        flaws: 0,
    }
}

pub(super) fn failure(failure: ConversationFailure) -> Evidence {
    Evidence { end: Some(ConversationEnd { failure: Some(failure), ..success() }), ..nothing() }
}

pub(super) fn failed_turn(subtype: &str, text: &str, status: Option<u64>) -> Evidence {
    failure(ConversationFailure::ResultIsError {
        subtype: subtype.to_owned(),
        text: Some(text.to_owned()),
        api_error_status: status,
    })
}

pub(super) fn call_id(id: &str) -> CallId {
    CallId::new(id).unwrap()
}

pub(super) fn said(text: &str) -> Observation {
    Observation::Said { by: Speaker::Main, text: text.to_owned() }
}

pub(super) fn under(id: &str) -> Speaker {
    Speaker::SubAgent { call: call_id(id) }
}

pub(super) fn called_by(by: Speaker, id: &str, tool: &str, input: Value) -> Observation {
    let Value::Object(input) = input else { panic!("an input is an object") };
    Observation::ToolCalled { by, call: call_id(id), tool: tool.to_owned(), input }
}

pub(super) fn called(id: &str, tool: &str, input: Value) -> Observation {
    called_by(Speaker::Main, id, tool, input)
}

pub(super) fn returned(id: &str, tool: &str, text: &str) -> Observation {
    let tool = Some(tool.to_owned());
    Observation::ToolReturned {
        by: Speaker::Main,
        call: call_id(id),
        tool,
        text: text.to_owned(),
        is_error: false,
    }
}

pub(super) fn broke(id: &str, tool: &str, text: &str) -> Observation {
    let tool = Some(tool.to_owned());
    Observation::ToolReturned {
        by: Speaker::Main,
        call: call_id(id),
        tool,
        text: text.to_owned(),
        is_error: true,
    }
}

pub(super) fn began(tools: &[&str], servers: &[(&str, &str)], skills: &[&str]) -> Observation {
    let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
    let server = |(name, status): &(&str, &str)| ServerSeen {
        name: (*name).to_owned(),
        status: Some((*status).to_owned()),
    };
    Observation::ConversationBegan {
        session: SessionId::new("s").unwrap(),
        version: None,
        model: None,
        permission_mode: None,
        tools: owned(tools),
        servers: servers.iter().map(server).collect(),
        skills: owned(skills),
    }
}

pub(super) fn question(text: &str, labels: &[&str]) -> AskedQuestion {
    let option = |label: &&str| AskedOption { label: (*label).to_owned(), description: String::new() };
    AskedQuestion {
        question: text.to_owned(),
        header: String::new(),
        options: labels.iter().map(option).collect(),
        multi_select: false,
    }
}

pub(super) fn request(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

/// A call that asks the user, up to the question.
pub(super) fn asked(id: &str, questions: Vec<AskedQuestion>) -> Observation {
    Observation::Asked {
        request: request(id),
        about: "a choice".to_owned(),
        tool: Some("AskUserQuestion".to_owned()),
        call: Some(call_id(id)),
        by: Speaker::Main,
        questions,
    }
}

pub(super) fn answered(id: &str, chosen: &[&str], by: &str) -> Observation {
    Observation::Answered {
        request: request(id),
        answer: if chosen.is_empty() { "allow" } else { "choices" }.to_owned(),
        chosen: chosen.iter().map(|one| (*one).to_owned()).collect(),
        by: by.to_owned(),
        reason: "a rule".to_owned(),
    }
}

pub(super) fn skill(name: &str, way: SkillWay) -> Observation {
    Observation::SkillActivated { skill: name.to_owned(), way, by: Speaker::Main, call: None }
}

pub(super) fn hook(name: &str, exit_code: i64, text: &str) -> Observation {
    Observation::HookRan {
        event: "PreToolUse".to_owned(),
        name: name.to_owned(),
        outcome: Some("success".to_owned()),
        exit_code: Some(exit_code),
        text: text.to_owned(),
    }
}

pub(super) fn turn(steps: Option<u64>) -> Observation {
    Observation::TurnEnded(TurnOutcome {
        is_error: false,
        subtype: "success".to_owned(),
        text: None,
        api_error_status: None,
        terminal_reason: None,
        turns: steps,
        usage: None,
        total_cost_micros_usd: None,
        denied_tools: Vec::new(),
        structured: None,
    })
}

pub(super) fn file(body: &[u8]) -> FileSeen {
    FileSeen {
        kind: FileKind::File,
        bytes: body.len() as u64,
        digest: Some(Digest::of(body)),
        kept: None,
        body: Some(body.to_vec()),
    }
}

pub(super) fn link(target: &str) -> FileSeen {
    FileSeen {
        kind: FileKind::Link { target: target.to_owned() },
        bytes: 0,
        digest: Some(Digest::of(target.as_bytes())),
        kept: None,
        body: None,
    }
}

/// A run that left these files, with those before.
pub(super) fn left(before: &[(&str, &[u8])], after: &[(&str, &[u8])]) -> Evidence {
    let map =
        |files: &[(&str, &[u8])]| files.iter().map(|(path, body)| ((*path).to_owned(), file(body))).collect();
    let mut evidence = nothing();
    let files = evidence.files.as_mut().unwrap();
    files.before = map(before);
    files.after = map(after);
    evidence
}

pub(super) fn blind(evidence: Evidence) -> Evidence {
    Evidence { files: None, ..evidence }
}

/// A run whose egress log has these decisions; each allowed one has an end.
pub(super) fn went(decisions: &[(&str, EgressWay, bool)]) -> Evidence {
    let mut rows = vec![opened(&["model", "proxy"])];
    for (at, (destination, way, allowed)) in decisions.iter().enumerate() {
        let seq = at as u64 + 1;
        let verdict = if *allowed {
            EgressVerdict::Allowed
        } else {
            EgressVerdict::Denied { reason: EgressRefusal::NotAllowed }
        };
        let decision = EgressDecision {
            way: *way,
            destination: (*destination).to_owned(),
            addresses: Vec::new(),
            rule: None,
            verdict,
            method: None,
            path: None,
            credential: None,
            within: None,
        };
        rows.push(EgressRow::Decided { seq, at_ms: 1, decision, enforcement: Enforcement::Enforced });
        if *allowed {
            let address = Some(std::net::SocketAddr::from(([192, 0, 2, 1], 443)));
            let end = EgressEnd { address, sent: 1, received: 1, duration_ms: 1, failure: None };
            rows.push(EgressRow::Finished { seq, at_ms: 2, end });
        }
    }
    let log = EgressLogReading { rows, state: EgressLogState::Complete };
    Evidence { egress: Some(log), ..nothing() }
}

/// The beginning of a log, with those who listen inside.
pub(super) fn opened(listeners: &[&str]) -> EgressRow {
    EgressRow::Opened {
        format: EGRESS_LOG_FORMAT,
        run: RunId::new(7),
        opened_at_ms: 1,
        policy: Digest::of(b"rules"),
        listeners: listeners.iter().map(|one| (*one).to_owned()).collect(),
        enforcement: Enforcement::Enforced,
    }
}

/// The same with a log in another state.
pub(super) fn logged(mut evidence: Evidence, state: EgressLogState) -> Evidence {
    evidence.egress.as_mut().unwrap().state = state;
    evidence
}
