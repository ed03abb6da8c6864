//! Bytes of strangers: nothing they write makes belljar panic, and nothing that parses escapes the compiler.

use crate::scenarios::scenario;
use crate::world::{FULL, Scribe, World, abs, layer, project, user};
use belljar_contract::decode::{Fault, Faults, Kind, Node};
use belljar_contract::{Diagnostic, EnvName, Harness, SandboxChoice, Sources};
use belljar_plan::{
    Compiler, DocumentError, DocumentText, HostFacts, ManifestError, ManifestLayer, Request, Scenario,
    Session, Staged, agent_under_test, parse, parse_document, parse_dotenv, parse_marketplace,
    parse_mcp_config, parse_session, questions, tuning,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time of an everyday run; `./dev fuzz` gives more.
const EVERYDAY: Duration = Duration::from_millis(500);

/// Everything that a check does, with answers to nothing.
fn check(texts: &[(ManifestLayer, &[u8])]) {
    let texts = texts.iter().map(|(whose, text)| layer(*whose, text)).collect();
    let manifest = match parse(texts) {
        Ok(manifest) => manifest,
        Err(ManifestError { sources, diagnostics, partial }) => {
            assert!(!diagnostics.is_empty(), "refused without a word");
            assert_points(&sources, &diagnostics);
            match partial {
                Some(partial) => *partial,
                None => return,
            }
        }
    };
    let scribe = Scribe::new();
    let harnesses: [&dyn Harness; 1] = [&scribe];
    let asked = questions(&manifest, None, &harnesses, &user().home, &project());
    let nothing = HostFacts {
        user: user(),
        project: project(),
        paths: BTreeMap::new(),
        texts: BTreeMap::new(),
        variables: BTreeSet::new(),
        contents: BTreeMap::new(),
        guard_lacks: None,
    };
    let world = World::full();
    let sandbox = SandboxChoice::default();
    for facts in [nothing, world.answer(asked)] {
        let request = Request {
            sandbox: &sandbox,
            agent: None,
            manifest: &manifest,
            harnesses: &harnesses,
            facts: &facts,
            purpose: world.purpose,
            rigour: world.rigour,
        };
        let mut compiler = Compiler::new(request);
        compiler.library();
        for name in manifest.agents.keys() {
            if let Some(compiled) = compiler.agent(name) {
                assert_eq!(compiled.plan.digest(), compiled.plan.digest());
            }
        }
        let (sources, diagnostics) = compiler.finish();
        assert_points(&sources, &diagnostics);
    }
}

/// Every place lies in its text, on whole characters, and the finding is one line.
fn assert_points(sources: &Sources, diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        assert!(!diagnostic.message.contains(['\n', '\u{1b}', '\0']), "{diagnostic:?}");
        assert!(diagnostic.message.chars().count() < 12_000, "{diagnostic:?}");
        assert!(
            !diagnostic.help.as_deref().unwrap_or_default().contains(['\n', '\u{1b}', '\0']),
            "{diagnostic:?}"
        );
        for label in diagnostic.label.iter().chain(&diagnostic.related) {
            let source = sources.get(label.file).unwrap_or_else(|| panic!("{diagnostic:?}"));
            assert!(source.text.get(label.span.clone()).is_some(), "{diagnostic:?}");
        }
        // What an editor gets can always be made.
        assert!(diagnostic.to_json(sources).is_object());
    }
}

#[test]
fn fuzz_manifest() {
    bolero::check!()
        .with_test_time(EVERYDAY)
        .for_each(|bytes: &[u8]| check(&[(ManifestLayer::Project, bytes)]));
}

#[test]
fn fuzz_dotenv() {
    bolero::check!().with_test_time(EVERYDAY).for_each(|bytes: &[u8]| match parse_dotenv(bytes) {
        Ok(assigned) => assert!(assigned.len() <= 1 + bytes.len() / 2),
        Err(faults) => {
            let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
            assert!(!faults.is_empty() && faults.iter().all(|fault| (1..=lines).contains(&fault.line)));
        }
    });
}

#[test]
fn any_value_survives_double_quotes() {
    bolero::check!().with_test_time(EVERYDAY).with_type::<String>().for_each(|value| {
        let value = value.replace('\0', "");
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        // A backtick has no escape; single quotes hold it.
        if value.contains('`') {
            return;
        }
        let assigned = parse_dotenv(format!("A=\"{quoted}\"\nB=2").as_bytes()).unwrap();
        let found: Vec<&[u8]> = assigned.iter().map(|(_, value)| value.expose()).collect();
        assert_eq!(found, [value.as_bytes(), b"2"]);
    });
}

/// Pieces that mean something, so that a mutation often leaves a manifest.
const PIECES: [&str; 40] = [
    "\"\"",
    "''",
    "[]",
    "{}",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\n",
    ".",
    ",",
    "#",
    "\"",
    "'''",
    "\"\"\"",
    "-1",
    "0",
    "1e99",
    "nan",
    "true",
    "2026-01-01",
    "9223372036854775807",
    "é",
    "\u{feff}",
    "\\u0000",
    "\\u001b",
    "~",
    "~/",
    "/",
    "..",
    "${A}",
    "${",
    "?",
    "*",
    "*.a.b",
    "[::1]:1",
    "10.0.0.0/8",
    "[agents.a]\n",
    "[library.skills.a]\n",
];

/// A valid manifest with pieces put in, cut out and moved.
fn mutate(base: &str, steps: &[(u16, u8, u8, u8)]) -> String {
    let mut text = base.to_owned();
    for (at, what, length, piece) in steps.iter().take(12) {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let start = floor(usize::from(*at) % (text.len() + 1));
        let end = floor(start + usize::from(*length) % 24);
        match what % 4 {
            0 => text.insert_str(start, PIECES[usize::from(*piece) % PIECES.len()]),
            1 => text.replace_range(start..end, ""),
            2 => text.replace_range(start..end, PIECES[usize::from(*piece) % PIECES.len()]),
            _ => {
                let copied = text[start..end].to_owned();
                let to = usize::from(*piece) * 8 % (text.len() + 1);
                let to = (0..=to).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                text.insert_str(to, &copied);
            }
        }
    }
    text
}

type Steps = Vec<(u16, u8, u8, u8)>;

#[test]
fn fuzz_manifest_mutated() {
    bolero::check!().with_test_time(EVERYDAY).with_type::<Steps>().for_each(|steps: &Steps| {
        check(&[(ManifestLayer::Project, mutate(FULL, steps).as_bytes())]);
    });
}

#[test]
fn fuzz_manifest_layered() {
    bolero::check!().with_test_time(EVERYDAY).with_type::<(Steps, Steps)>().for_each(|(mine, theirs)| {
        let (mine, theirs) = (mutate(FULL, mine), mutate(FULL, theirs));
        check(&[(ManifestLayer::User, mine.as_bytes()), (ManifestLayer::Project, theirs.as_bytes())]);
    });
}

/// A skill's own file, as far as a compilation reads it.
fn check_skill(text: &str) {
    let mut world = World::full();
    world.files.insert(abs("/srv/project/skills/a"), None);
    world.files.insert(abs("/srv/project/skills/a/SKILL.md"), Some(text.to_owned()));
    let manifest =
        "[library.skills.a]\nsource = \"skills/a\"\n[agents.a]\nharness = \"scribe\"\nskills = [\"a\"]\n";
    let (compiled, sources, diagnostics) = world.compile(&crate::world::manifest(manifest), "a");
    assert_points(&sources, &diagnostics);
    if let Some(compiled) = compiled {
        let description = &compiled.plan.skills[0].description;
        assert!(!description.trim().is_empty() && description.chars().count() <= 1024);
    } else {
        assert!(!diagnostics.is_empty());
    }
}

#[test]
fn fuzz_skill() {
    bolero::check!().with_test_time(EVERYDAY).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        check_skill(&text);
        check_skill(&format!("---\n{text}\n---\n"));
    });
}

#[test]
fn fuzz_skill_mutated() {
    let base = "---\nname: a\ndescription: |\n  Does a,\n  then b\nlicense: MIT\nmetadata:\n  x: [1, 'y', {z: 2.5}]\n  no: ~\n---\n# Body\n";
    bolero::check!()
        .with_test_time(EVERYDAY)
        .with_type::<Steps>()
        .for_each(|steps: &Steps| check_skill(&mutate(base, steps)));
}

fn named(bytes: &[u8]) -> DocumentText {
    DocumentText { name: "file".to_owned(), bytes: bytes.to_vec() }
}

fn assert_refused(error: &DocumentError) {
    assert!(error.diagnostics.iter().any(Diagnostic::is_error), "refused without a word");
    assert_points(&error.sources, &error.diagnostics);
}

/// Whatever was taken can be written as a manifest, and that manifest reads.
fn check_written(scenario: &Scenario, session: &Session, staged: &Staged) {
    let tuning = tuning(session);
    let texts = [("DISPLAY", tuning.thinking_display), ("SUBAGENT", tuning.subagent_model)];
    let variable = |(name, text): (&str, Option<&str>)| Some((EnvName::new(name).unwrap(), text?.to_owned()));
    let variables: Vec<_> = texts.into_iter().filter_map(variable).collect();
    assert!(variables.iter().all(|(_, value)| !value.is_empty()));
    let staged = Staged { variables, ..staged.clone() };
    let layer = agent_under_test(scenario, session, &staged).unwrap();
    let text = String::from_utf8_lossy(&layer.bytes).into_owned();
    parse(vec![layer]).unwrap_or_else(|error| panic!("{text}\n{:#?}", error.diagnostics));
}

/// Adds faults about every value and about parts of it, whether it has them or not.
fn everywhere(node: &Node, faults: &mut Faults<'_>) {
    for part in [0..0, 0..1, 1..3, 5..5, 2..900] {
        faults.invalid_part::<()>(node, &part, Fault::new("m"));
    }
    if let Kind::Table(table) = &node.kind {
        table.0.iter().for_each(|(_, node)| everywhere(node, faults));
    }
    node.items().into_iter().flatten().for_each(|node| everywhere(node, faults));
}

fn check_scenario(bytes: &[u8]) {
    match scenario(named(bytes)) {
        Ok(file) => {
            let sources = file.document.sources();
            assert_points(&sources, &file.warnings);
            let document = parse_document(named(bytes)).unwrap();
            let mut faults = document.faults();
            everywhere(document.root(), &mut faults);
            assert_points(&sources, &faults.list);
            check_written(&file.scenario, &Session::default(), &Staged::default());
        }
        Err(error) => assert_refused(&error),
    }
}

fn check_session(bytes: &[u8]) {
    let scenario = scenario(named(b"prompt: x")).unwrap().scenario;
    match parse_session(named(bytes)) {
        Ok(file) => {
            assert_points(&file.document.sources(), &file.warnings);
            check_written(&scenario, &file.session, &Staged::default());
        }
        Err(error) => assert_refused(&error),
    }
}

fn check_session_json(bytes: &[u8]) {
    let scenario = scenario(named(b"prompt: x")).unwrap().scenario;
    match parse_mcp_config(named(bytes), &[]) {
        Ok(mcp) => check_written(&scenario, &Session::default(), &Staged { mcp, ..Staged::default() }),
        Err(error) => assert_refused(&error),
    }
    if let Err(error) = parse_marketplace(named(bytes)) {
        assert_refused(&error);
    }
}

#[test]
fn fuzz_scenario() {
    bolero::check!().with_test_time(EVERYDAY).for_each(|bytes: &[u8]| {
        check_scenario(bytes);
        check_session(bytes);
        check_session_json(bytes);
    });
}

#[test]
fn fuzz_scenario_mutated() {
    let base = include_str!("scenarios/full/scenario.yaml");
    let aliases = include_str!("scenarios/aliases/scenario.yaml");
    bolero::check!().with_test_time(EVERYDAY).with_type::<Steps>().for_each(|steps: &Steps| {
        check_scenario(mutate(base, steps).as_bytes());
        check_scenario(mutate(aliases, steps).as_bytes());
    });
}

#[test]
fn fuzz_session_mutated() {
    let base = include_str!("scenarios/session-full/session.yaml");
    bolero::check!()
        .with_test_time(EVERYDAY)
        .with_type::<Steps>()
        .for_each(|steps: &Steps| check_session(mutate(base, steps).as_bytes()));
}

#[test]
fn fuzz_session_json_mutated() {
    let servers = r#"{"mcpServers": {"a": {"command": "x", "args": ["y"], "env": {"A": "${B}", "C": "d"}}}}"#;
    let market =
        r#"{"name": "m", "metadata": {"pluginRoot": "p"}, "plugins": [{"name": "a", "source": "./b"}]}"#;
    bolero::check!().with_test_time(EVERYDAY).with_type::<Steps>().for_each(|steps: &Steps| {
        check_session_json(mutate(servers, steps).as_bytes());
        check_session_json(mutate(market, steps).as_bytes());
    });
}

/// Found by the fuzzer: a path that is none was quoted as it was written.
#[test]
fn a_finding_quotes_without_control_characters() {
    for text in [
        "[agents.a]\nmounts = [{ source = \".\", target = \"\\u001b[31m/data\" }]\n",
        "[agents.a.limits]\nmemory = \"4\\u001b[31m\\n\"\n",
        "[agents.a.limits]\ntime = \"4\\u001b[31m\\n\"\n",
        "[agents.a.egress]\nallow = [\"a.org:\\u001b[31m\", \"10.0.0.0/\\u001b\"]\n",
        "[agents.a.egress]\nallow = [\"https://x/\\u001b[31m\", \"a.org\\u001b/x\"]\n",
    ] {
        check(&[(ManifestLayer::Project, text.as_bytes())]);
    }
}
