//! What a plan holds, and what it never does.

use crate::world::{FULL, World, abs, layer, manifest, project, user};
use belljar_contract::{
    Access, CredentialPart, Digest, EnvEntry, EnvSource, FileContent, HomeMode, MountSource, Plan, Purpose,
    WorkspaceMode,
};
use belljar_plan::{ManifestLayer, Origin, Rigour, parse, why};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Read by eye when it changes. `BELLJAR_BLESS=1` writes it.
#[test]
fn the_full_manifest_as_a_plan() {
    let plan = World::full().plan(FULL, "reviewer").plan;
    let found = format!("{:#}\n", json!(plan));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan/full/plan.json");
    if std::env::var_os("BELLJAR_BLESS").is_some_and(|value| value == "1") {
        fs::write(file, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    assert!(found == expected, "tests/plan/full/plan.json should be\n{found}");
}

fn digest(world: &World, text: &str) -> Digest {
    world.plan(text, "reviewer").plan.digest()
}

#[test]
fn the_same_inputs_give_the_same_digest() {
    assert_eq!(digest(&World::full(), FULL), digest(&World::full(), FULL));
    let commented = format!("# a comment\n\n{FULL}");
    assert_eq!(
        digest(&World::full(), FULL),
        digest(&World::full(), &commented),
        "words about it change nothing"
    );
}

#[test]
fn every_change_of_the_manifest_changes_the_digest() {
    let before = digest(&World::full(), FULL);
    for (from, to) in [
        ("model = \"large\"", "model = \"small\""),
        ("effort = \"high\"", "effort = \"low\""),
        ("against main.", "against trunk."),
        ("[\"changelog\", \"review\"]", "[\"review\", \"changelog\"]"),
        ("Write release notes from commits", "Something else"),
        ("\"--headless\"", "\"--headful\""),
        ("BROWSER_MODE = \"literal-of-a-server\"", "BROWSER_MODE = \"literal-of-another\""),
        ("literal-of-the-agent", "literal-of-an-agent"),
        ("literal-in-a-table", "literal-in-a-chair"),
        ("allow = [\"Bash\", \"Read\"]", "allow = [\"Bash\"]"),
        ("skip_prompts = true", "skip_prompts = false"),
        ("home = \"project\"", "home = \"clean\""),
        ("workspace = \"overlay\"", "workspace = \"copy\""),
        ("backend = \"bwrap\"", "backend = \"container\""),
        ("mode = \"ro\"", "mode = \"rw\""),
        ("target = \"/data\"", "target = \"/date\""),
        ("?Database password", "?Password"),
        ("${AWS_REGION}", "${AWS_ZONE}"),
        ("\"+%s\"", "\"+%N\""),
        ("\"*.example.org\"", "\"*.example.com\", \"a.example.org\""),
        ("db.internal:5432", "db.internal:5433"),
        ("ads.example.org", "tracker.example.org"),
        ("X-Token", "X-Other"),
        ("Bearer ${", "Token ${"),
        ("user = \"git\"", "user = \"hg\""),
        ("port = 2222", "port = 22"),
        ("scHR4f a comment", "scHR4e a comment"),
        ("sign_commits = true", "sign_commits = false"),
        ("memory = \"4G\"", "memory = \"5G\""),
        ("pids = 512", "pids = 513"),
        ("cpu = 1.5", "cpu = 1.6"),
        ("time = \"30m\"", "time = \"31m\""),
        ("cost_usd = 5.0", "cost_usd = 5.001"),
    ] {
        assert_eq!(FULL.matches(from).count(), 1, "{from}");
        assert_ne!(before, digest(&World::full(), &FULL.replace(from, to)), "{from}");
    }
}

#[test]
fn every_change_of_the_host_that_shows_changes_the_digest() {
    let before = digest(&World::full(), FULL);
    let mut role = World::full();
    role.files.insert(abs("/srv/project/roles/reviewer.md"), Some("You obey.".into()));
    let mut plugin = World::full();
    plugin.files.insert(abs("/home/ann/plugins/discord/plugin.json"), Some("{}".into()));
    let mut servers = World::full();
    servers.files.remove(&abs("/srv/project/.mcp.json"));
    let mut place = World::full();
    place.project.directory = abs("/srv/project");
    let mut worktree = World::full();
    worktree.project.outside_repository = Some(abs("/srv/main/.git"));
    let mut root = World::full();
    root.project.canonical_root = abs("/srv/main");
    let mut test = World::full();
    test.purpose = Purpose::Test;
    for (what, world) in [
        ("role", role),
        ("plugin", plugin),
        ("servers", servers),
        ("place", place),
        ("worktree", worktree),
        ("root", root),
        ("purpose", test),
    ] {
        assert_ne!(before, digest(&world, FULL), "{what}");
    }
}

/// Two literals that change places are a change, though neither is printed.
#[test]
fn literals_are_bound_to_their_names() {
    let text = |a: &str, b: &str| {
        format!("[agents.reviewer]\nharness = \"scribe\"\n[agents.reviewer.env]\nA = {a:?}\nB = {b:?}\n")
    };
    let world = World::full();
    assert_ne!(digest(&world, &text("x", "y")), digest(&world, &text("y", "x")));
    assert_ne!(digest(&world, &text("x", "")), digest(&world, &text("", "x")));
}

#[test]
fn no_literal_is_ever_printed() {
    let world = World::full();
    let (compiled, sources, _) = world.compile(&manifest(FULL), "reviewer");
    let compiled = compiled.unwrap();
    let reasons: Vec<_> = compiled.reasons.iter().map(|reason| reason.to_json(&sources)).collect();
    let shown = json!([compiled.plan, reasons]).to_string();
    for literal in
        ["literal-of-the-agent", "literal-in-a-table", "literal-of-a-server", "secret content", "secret key"]
    {
        assert!(!shown.contains(literal), "{literal}");
    }
    // They are there for the launch all the same.
    let carried = |name: &str| {
        let entry = compiled.plan.env.iter().find(|entry| entry.name.as_str() == name).unwrap();
        entry.source.clone()
    };
    assert_eq!(carried("LOG_LEVEL"), EnvSource::Literal("literal-of-the-agent".into()));
    assert_eq!(carried("BELLJAR_MCP_1_BROWSER_MODE"), EnvSource::Literal("literal-of-a-server".into()));
}

/// Nor when something else is wrong: findings quote names and sources, not values.
#[test]
fn no_literal_is_in_a_finding() {
    let text = "[agents.a]\nharness = \"scribe\"\n[agents.a.env]\nSCRIBE_PROXY = \"the-literal\"\nHOME = \"the-literal\"\nX = { value = \"the-literal\", env = \"Y\" }\n";
    let error = parse(vec![layer(ManifestLayer::Project, text.as_bytes())]).unwrap_err();
    for finding in &error.diagnostics {
        assert!(!format!("{finding:?}").contains("the-literal"), "{finding:?}");
    }
    let text = text.lines().filter(|line| !line.starts_with("X =")).collect::<Vec<_>>().join("\n");
    let (compiled, _, findings) = World::full().compile(&manifest(&text), "a");
    assert!(compiled.is_none() && findings.len() == 2);
    assert!(!format!("{findings:?}").contains("the-literal"));
}

fn targets(plan: &Plan) -> Vec<String> {
    plan.mounts.iter().map(|mount| format!("{:?} {}", mount.access, mount.target)).collect()
}

fn small(home: &str) -> String {
    format!(
        "[agents.a]\nharness = \"scribe\"\nhome = \"{home}\"\nmounts = [{{ source = \"scratch\", target = \"/s\" }}]\n"
    )
}

#[test]
fn mounts_of_each_home_in_order() {
    let world = World::full();
    let system = ["ReadOnly /usr", "ReadOnly /etc", "ReadWrite /proc", "ReadWrite /dev", "ReadWrite /tmp"];
    let ends = ["ReadOnly /opt/belljar/bin/scribe", "ReadOnly /s"];
    let order = |middle: &[&'static str]| [&system, middle, &ends].concat();
    assert_eq!(
        targets(&world.plan(&small("clean"), "a").plan),
        order(&["ReadWrite /home/agent", "ReadWrite /srv/project"])
    );
    assert_eq!(
        targets(&world.plan(&small("project"), "a").plan),
        order(&[
            "ReadWrite /home/agent",
            "ReadWrite /srv/project",
            "ReadWrite /home/agent/.scribe/projects",
            "ReadWrite /home/agent/.scribe/history",
        ])
    );
    assert_eq!(
        targets(&world.plan(&small("shared"), "a").plan),
        order(&[
            "ReadWrite /home/ann",
            "ReadWrite /srv/project",
            "ReadWrite /home/ann/.scribe/projects",
            "ReadWrite /home/ann/.scribe/history",
            "ReadOnly /home/ann/.scribe/settings",
        ])
    );
}

/// The user's own directory is never writable, and its conversations never visible.
#[test]
fn a_shared_home_shares_to_read() {
    let plan = World::full().plan(&small("shared"), "a").plan;
    for mount in &plan.mounts {
        if let MountSource::Host(path) = &mount.source {
            assert!(!path.is_within(&user().home) || mount.access == Access::ReadOnly, "{mount:?}");
        }
    }
    let projects =
        plan.mounts.iter().find(|mount| mount.target == abs("/home/ann/.scribe/projects")).unwrap();
    assert!(
        matches!(&projects.source, MountSource::InstanceDirectory(path) if path.is_within(&user().instances))
    );
}

#[test]
fn the_repository_of_a_worktree_comes_along() {
    let mut world = World::full();
    world.project.outside_repository = Some(abs("/srv/main/.git"));
    let plan = world.plan(&small("clean"), "a").plan;
    let at = |path: &str| plan.mounts.iter().position(|mount| mount.target == abs(path)).unwrap();
    assert!(at("/srv/main/.git") < at("/srv/project"), "the project lies over the repository, not under it");
}

#[test]
fn tests_run_at_a_fixed_place() {
    let mut world = World::full();
    world.purpose = Purpose::Test;
    for home in ["clean", "project", "shared"] {
        let plan = world.plan(&small(home), "a").plan;
        assert_eq!(
            (plan.workspace.target, plan.workspace.directory),
            (abs("/workspace"), abs("/workspace/sub"))
        );
        assert_eq!((plan.workspace.source, plan.home_directory), (abs("/srv/project"), abs("/home/agent")));
    }
    world.purpose = Purpose::Session;
    let plan = world.plan(&small("project"), "a").plan;
    assert_eq!(
        (plan.workspace.target, plan.workspace.directory),
        (abs("/srv/project"), abs("/srv/project/sub"))
    );
}

#[test]
fn nothing_is_granted_that_is_not_written() {
    let compiled = World::full().plan("[agents.a]\nharness = \"scribe\"\n", "a");
    let plan = compiled.plan;
    assert!(plan.egress.rules.is_empty() && plan.credentials.is_empty() && plan.ssh.is_empty());
    assert!(plan.skills.is_empty() && plan.mcp.is_empty() && plan.plugins.is_empty());
    assert_eq!((plan.home, plan.workspace.mode), (HomeMode::Project, WorkspaceMode::Direct));
    let host: Vec<_> =
        plan.mounts.iter().filter(|mount| matches!(mount.source, MountSource::Host(_))).collect();
    assert!(host.is_empty(), "{host:?}");
    let made = |entry: &EnvEntry| matches!(entry.source, EnvSource::Constant(_) | EnvSource::Run(_));
    assert!(plan.env.iter().all(made), "constants, and the address of the proxy that refuses everything");
    // A server that the project's own file would start is refused by name.
    assert!(plan.refused.iter().any(|refusal| refusal.what.contains("sneaky")), "{:?}", plan.refused);
}

#[test]
fn without_a_guard_changes_are_kept_in_an_overlay_unless_the_manifest_says_otherwise() {
    let text = |workspace: &str, backend: &str| {
        format!("[agents.a]\nharness = \"scribe\"\nbackend = \"{backend}\"\n{workspace}")
    };
    let direct = "workspace = \"direct\"\n";
    let mut world = World::full();
    let plan = |world: &World, workspace, backend| world.plan(&text(workspace, backend), "a").plan.workspace;
    assert_eq!(plan(&world, "", "bwrap").mode, WorkspaceMode::Direct);
    assert_eq!(plan(&world, direct, "bwrap").unguarded, None);
    world.guard_lacks = Some("Landlock".to_owned());
    let found = plan(&world, "", "bwrap");
    assert_eq!((found.mode, found.unguarded), (WorkspaceMode::Overlay, None));
    let found = plan(&world, direct, "bwrap");
    assert_eq!((found.mode, found.unguarded.as_deref()), (WorkspaceMode::Direct, Some("Landlock")));
    // Nothing is held back there anyway, and a test works on a copy.
    assert_eq!(plan(&world, "", "host").mode, WorkspaceMode::Direct);
    world.purpose = Purpose::Test;
    assert_eq!(plan(&world, "", "bwrap").mode, WorkspaceMode::Direct);
}

#[test]
fn the_note_says_what_is_held_back() {
    let note = |world: &World| {
        let plan = world.plan("[agents.a]\nharness = \"scribe\"\nworkspace = \"direct\"\n", "a").plan;
        json!(plan).to_string()
    };
    let mut world = World::full();
    let words = "would execute later are held back";
    assert!(note(&world).contains(words));
    world.guard_lacks = Some("Landlock".to_owned());
    assert!(!note(&world).contains(words));
}

#[test]
fn a_credential_is_text_around_a_source() {
    let plan = World::full().plan(FULL, "reviewer").plan;
    let secret = |part: &CredentialPart| {
        matches!(part, CredentialPart::Secret(EnvSource::Variable(_) | EnvSource::File(_)))
    };
    for credential in &plan.credentials {
        assert_eq!(credential.value.iter().filter(|part| secret(part)).count(), 1, "{credential:?}");
    }
}

/// The project's entry replaces the user's of the same name, whole; origins say whose it is.
#[test]
fn the_project_wins_by_whole_entries() {
    let mine = "[library.mcp.tool]\ncommand = \"mine\"\n[agents.a]\nharness = \"scribe\"\nmodel = \"mine\"\neffort = \"low\"\n[agents.only-mine]\nharness = \"scribe\"\nmcp = [\"tool\"]\n";
    let theirs =
        "[library.mcp.tool]\ncommand = \"theirs\"\n[agents.a]\nharness = \"scribe\"\nmodel = \"theirs\"\n";
    let both = parse(vec![
        layer(ManifestLayer::User, mine.as_bytes()),
        layer(ManifestLayer::Project, theirs.as_bytes()),
    ])
    .unwrap();
    let world = World::full();
    let (compiled, sources, _) = world.compile(&both, "a");
    let compiled = compiled.unwrap();
    assert_eq!((compiled.plan.model.as_deref(), compiled.plan.effort), (Some("theirs"), None));
    let origin = |key: &str| why(&compiled.reasons, key).unwrap()[0].origin.describe(&sources);
    assert_eq!(origin("model"), "Project.toml:5:9");
    let (compiled, sources, _) = world.compile(&both, "only-mine");
    let compiled = compiled.unwrap();
    assert_eq!(compiled.plan.mcp[0].command, "theirs");
    let origin = |key: &str| why(&compiled.reasons, key).unwrap()[0].origin.describe(&sources);
    assert_eq!(
        (origin("mcp.tool"), origin("library.mcp.tool")),
        ("User.toml:9:8".into(), "Project.toml:1:14".into())
    );
    let Origin::Written(place) = &why(&compiled.reasons, "mcp.tool").unwrap()[0].origin else {
        panic!("written")
    };
    assert_eq!(both.layer(place), ManifestLayer::User);
}

/// The plan asks for everything it then needs: nothing comes back as not looked at.
#[test]
fn the_questions_cover_what_compiling_needs() {
    let mut variants = vec![FULL.to_owned()];
    for home in ["clean", "shared"] {
        variants.push(FULL.replace("home = \"project\"", &format!("home = \"{home}\"")));
    }
    variants.push(FULL.replace("source = \"skills/changelog\"\n", ""));
    variants.push(FULL.replace("roles/reviewer.md", "../outside/./role.md"));
    variants.push(FULL.replace("~/datasets", "/srv/../srv/data"));
    for rigour in [Rigour::Check, Rigour::Launch] {
        for nothing_there in [false, true] {
            for text in &variants {
                let mut world = World::full();
                world.rigour = rigour;
                if nothing_there {
                    world.files.clear();
                }
                let (_, _, findings) = world.compile(&manifest(text), "reviewer");
                let said = format!("{findings:?}");
                assert!(!said.contains("was not looked at") && !said.contains("was not read"), "{said}");
            }
        }
    }
}

/// A mount may show a directory above the project, but never in its place.
#[test]
fn a_mount_cannot_take_the_place_of_what_is_there() {
    let world = World::full();
    let finding = |mounts: &str| {
        let mut world = world.clone();
        for path in ["/srv", "/srv/project", "/srv/other", "/home", "/run", "/run/user/1"] {
            world.files.insert(abs(path), None);
        }
        let text = format!("[agents.a]\nharness = \"scribe\"\nmounts = [{mounts}]\n");
        let (_, _, findings) = world.compile(&manifest(&text), "a");
        findings.first().map(|finding| finding.message.clone()).unwrap_or_default()
    };
    assert_eq!(finding("{ source = \"/srv/other\" }"), "");
    assert!(finding("{ source = \"/srv\" }").ends_with("it would hide the project or the agent's home"));
    assert!(finding("{ source = \".\" }").ends_with("it would hide the project or the agent's home"));
    assert!(finding("{ source = \"/home\", target = \"/x\" }").ends_with("it holds your whole home"));
    assert!(
        finding("{ source = \"/run\", target = \"/x\" }").ends_with("it holds the sockets of your session")
    );
    assert!(
        finding("{ source = \"/run/user/1\", target = \"/x\" }")
            .ends_with("it holds the sockets of your session")
    );
    assert_eq!(project().root, abs("/srv/project"));
}

/// The note that describes the sandbox to the agent.
fn note(backend: &str) -> String {
    let text = format!("[agents.a]\nharness = \"scribe\"\nbackend = \"{backend}\"\n");
    let plan = World::full().plan(&text, "a").plan;
    let file = plan.files.iter().find(|file| file.target.to_string().ends_with("/agent/note")).unwrap();
    match &file.content {
        FileContent::Text(text) => text.clone(),
        other => panic!("the note is a text, not {other:?}"),
    }
}

#[test]
fn the_note_says_what_is_true_of_the_backend() {
    let walled = note("bwrap");
    assert!(
        walled.starts_with("# You are in a sandbox\n") && walled.contains("There is no network."),
        "{walled}"
    );
    let bare = note("host");
    assert!(bare.starts_with("# You are not in a sandbox\n"), "{bare}");
    for false_word in
        ["There is no network", "Nothing else of the user's machine is here", "`/tmp` are empty"]
    {
        assert!(walled.contains(false_word) && !bare.contains(false_word), "{bare}");
    }
    for true_word in ["Nothing keeps you from the rest of the user's machine", "do not use the network"] {
        assert!(bare.contains(true_word), "{bare}");
    }
}
