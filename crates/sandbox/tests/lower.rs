//! A plan, lowered to bubblewrap's arguments and the guest's root: read by a person, kept by this test.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use belljar_contract::{
    AbsPath, Access, AgentName, BackendKind, ContainerImage, Egress, EgressRule, EnvEntry, EnvGiver, EnvName,
    EnvSource, FileContent, GuestFiles, GuestFilter, GuestGuard, GuestOnHeld, HomeMode, HostPattern,
    ImageName, Instance, InstanceKey, Launch, LaunchArgument, Limits, Mount, MountSource, Need, OsText,
    PLAN_FORMAT, Plan, PlannedFile, Prompt, Purpose, RuleEffect, WantWeight, Workload, Workspace,
    WorkspaceMode,
};
use belljar_sandbox::{BackendError, Capacity, Lowering, MachineFacts, SystemEntry, check_needs};

fn abs(path: &str) -> AbsPath {
    AbsPath::new(path).unwrap()
}

fn mount(target: &str, source: MountSource, access: Access) -> Mount {
    Mount { target: abs(target), source, access, why: String::new() }
}

fn plan() -> Plan {
    use Access::{ReadOnly, ReadWrite};
    let root = abs("/srv/pro ject");
    let env =
        |name: &str, source| EnvEntry { name: EnvName::new(name).unwrap(), source, giver: EnvGiver::Agent };
    Plan {
        format: PLAN_FORMAT,
        agent: AgentName::new("a").unwrap(),
        harness: "claude-code".into(),
        agent_version: None,
        purpose: Purpose::Session,
        backend: BackendKind::Bwrap,
        image: None,
        model: None,
        effort: None,
        instance: Instance { key: InstanceKey::of(&root), root: root.clone(), directory: abs("/state/i") },
        home: HomeMode::Project,
        home_directory: abs("/home/agent"),
        workspace: Workspace {
            mode: WorkspaceMode::Direct,
            source: root.clone(),
            target: root.clone(),
            directory: root.child("sub"),
            unguarded: None,
        },
        mounts: vec![
            mount("/usr", MountSource::System, ReadOnly),
            mount("/etc", MountSource::SyntheticEtc, ReadOnly),
            mount("/proc", MountSource::Proc, ReadWrite),
            mount("/dev", MountSource::Devices, ReadWrite),
            mount("/tmp", MountSource::Temporary, ReadWrite),
            mount("/home/agent", MountSource::Temporary, ReadWrite),
            mount("/srv/pro ject", MountSource::Workspace, ReadWrite),
            mount(
                "/home/agent/.claude/projects",
                MountSource::InstanceDirectory(abs("/state/i/projects")),
                ReadWrite,
            ),
            mount("/opt/belljar/bin/claude", MountSource::AgentProgram, ReadOnly),
            mount("/data", MountSource::Host(abs("/big/data")), ReadOnly),
        ],
        files: vec![PlannedFile {
            target: abs("/opt/belljar/agent/.mcp.json"),
            content: FileContent::Text("{}".into()),
            access: ReadOnly,
            why: String::new(),
        }],
        env: vec![
            env("PATH", EnvSource::Constant("/usr/bin".into())),
            env("TOKEN", EnvSource::Literal("a-secret-value".into())),
        ],
        egress: Egress { model: true, rules: Vec::new() },
        model_credentials: Vec::new(),
        provider_tools: Vec::new(),
        credentials: Vec::new(),
        ssh: Vec::new(),
        limits: Limits::default(),
        skills: Vec::new(),
        mcp: Vec::new(),
        plugins: Vec::new(),
        prompt: Some(Prompt { text: "x".into(), file: abs("/opt/p"), argument: "Carry out @/opt/p".into() }),
        argv: vec!["/opt/belljar/bin/claude".into(), "--model".into(), "$(x) 'y'".into()],
        refused: Vec::new(),
        redact: Vec::new(),
        used_outside: Vec::new(),
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        bwrap: Some(abs("/usr/bin/bwrap")),
        guest: abs("/lib/belljar-guest"),
        agent: Some(abs("/lib/claude")),
        interpreter: vec![abs("/lib64/loader")],
        system: vec![
            SystemEntry::Shown(abs("/usr")),
            SystemEntry::Link { at: abs("/bin"), to: OsText::new("usr/bin").unwrap() },
        ],
        etc: vec![
            SystemEntry::Shown(abs("/etc/ld.so.cache")),
            SystemEntry::Link {
                at: abs("/etc/localtime"),
                to: OsText::new("/usr/share/zoneinfo/UTC").unwrap(),
            },
            SystemEntry::Copied { at: abs("/etc/protocols"), text: "tcp 6 TCP\n".to_owned() },
            SystemEntry::Shown(abs("/etc/ssl/certs")),
        ],
        limits: Vec::new(),
        capacity: Capacity { memory: 8 << 30, kernel: (6, 1), superuser: false },
        guard: None,
        guarded: vec![
            (abs("/srv/pro ject/.git"), Access::ReadWrite),
            (abs("/srv/pro ject/.git/hooks"), Access::ReadOnly),
        ],
    }
}

fn lowering<'a>(plan: &'a Plan, workload: &'a Workload, machine: &'a MachineFacts) -> Lowering<'a> {
    Lowering { plan, workload, machine, terminal: false, conversation: false, kept: None }
}

fn lower(lowering: &Lowering<'_>) -> Result<Launch, BackendError> {
    belljar_sandbox::lower(lowering, check_needs(lowering)?)
}

#[test]
fn the_order_is_the_meaning() {
    let (plan, machine, workload) = (plan(), machine(), Workload::Agent(Vec::new()));
    let launch = lower(&lowering(&plan, &workload, &machine)).unwrap();
    let mut text = String::new();
    for argument in launch.arguments.iter().chain(&launch.command).map(LaunchArgument::shown) {
        text.push_str(if argument.starts_with("--") && !text.is_empty() { "\n" } else { " " });
        text.push_str(&argument);
    }
    for part in &launch.root {
        text.push_str(&format!("\n{}", part.arguments().join(" ")));
    }
    let expected = include_str!("lowered.txt");
    assert!(text.trim() == expected.trim(), "found\n{}\nexpected\n{expected}", text.trim());
    assert!(!format!("{launch:?}").contains("a-secret-value"), "no value of the manifest is in a launch");
}

#[test]
fn an_image_replaces_the_system_and_the_rest_is_mounted_beside_it() {
    let (mut plan, machine, workload) = (plan(), machine(), Workload::Agent(Vec::new()));
    plan.image = Some(ImageName::parse("debian:12").unwrap());
    for backend in [BackendKind::Bwrap, BackendKind::Host] {
        plan.backend = backend;
        let unmet = lower(&lowering(&plan, &workload, &machine)).unwrap_err().unmet;
        assert!(unmet.iter().any(|unmet| unmet.why.contains("the image `debian:12`")), "{unmet:?}");
    }
    plan.backend = BackendKind::Container;
    let launch = lower(&lowering(&plan, &workload, &machine)).unwrap();
    let root: Vec<String> = launch.root.iter().map(|part| part.arguments().join(" ")).collect();
    assert_eq!(root.first().map(String::as_str), Some("image read-only /"));
    for system in [" /usr ", " /bin", "/etc/ssl/certs", "/etc/ld.so.cache"] {
        assert!(!root.iter().any(|line| line.contains(system)), "{system}: {root:#?}");
    }
    assert!(root.contains(&"file 0644 /etc/passwd".to_owned()), "{root:#?}");
    let container = launch.container.unwrap();
    assert_eq!(container.image, ContainerImage::Named(ImageName::parse("debian:12").unwrap()));
    assert_eq!(container.image.place(&abs("/a/b")), abs("/run/belljar.host/a/b"));
    assert!(container.mounts.iter().all(|mount| mount.path != abs("/usr")), "{:?}", container.mounts);
    let guest = launch.command.iter().map(LaunchArgument::shown).nth(1);
    assert_eq!(guest.as_deref(), Some("/run/belljar.host/lib/belljar-guest"));
    let necessary: Vec<_> =
        container.wanted.iter().filter(|want| want.weight == WantWeight::Necessary).collect();
    assert_eq!(necessary.len(), 1);
    assert_eq!(necessary[0].any, [abs("/lib64/loader")]);
    let command = lower(&lowering(&plan, &Workload::Command(Vec::new()), &machine)).unwrap();
    assert!(command.container.unwrap().wanted.is_empty(), "any program may run");
}

#[test]
fn the_guest_gets_separate_arguments() {
    let (plan, machine) = (plan(), machine());
    let argv = |workload: &Workload| -> Vec<String> {
        let launch = lower(&lowering(&plan, workload, &machine)).unwrap();
        launch.guest.argv.iter().map(ToString::to_string).collect()
    };
    let own = ["/opt/belljar/bin/claude", "--model", "$(x) 'y'"];
    assert_eq!(argv(&Workload::Agent(Vec::new())), [&own[..], &["Carry out @/opt/p"]].concat());
    let more = vec![OsText::new("-p").unwrap(), OsText::new("hi; rm -rf /").unwrap()];
    assert_eq!(argv(&Workload::Agent(more)), [&own[..], &["-p", "hi; rm -rf /"]].concat());
    assert_eq!(argv(&Workload::Command(vec![OsText::new("ls").unwrap()])), ["ls"]);
}

#[test]
fn a_conversation_and_a_terminal_are_inputs_of_the_lowering() {
    let (plan, mut machine, workload) = (plan(), machine(), Workload::Agent(Vec::new()));
    machine.guard = Some(GuestGuard {
        roots: Vec::new(),
        apart: Vec::new(),
        allowed: Vec::new(),
        on_held: GuestOnHeld::Refuse,
    });
    let lowering = lowering(&plan, &workload, &machine);
    for (terminal, conversation) in [(false, false), (true, false), (false, true)] {
        let guest = lower(&Lowering { terminal, conversation, ..lowering }).unwrap().guest;
        let (filter, files) = match conversation {
            true => (GuestFilter::Apart, GuestFiles::ProcessesApart),
            false => (GuestFilter::Standard, GuestFiles::AsMounted),
        };
        assert_eq!((guest.filter, guest.files), (filter, files));
        let on_held = if terminal { GuestOnHeld::Ask } else { GuestOnHeld::Refuse };
        assert_eq!(guest.guard.map(|guard| guard.on_held), Some(on_held));
    }
}

#[test]
fn every_need_is_met_or_refused() {
    let mut plan = plan();
    plan.limits.pids = Some(7);
    plan.limits.memory = Some(belljar_contract::ByteSize::parse("1G").unwrap());
    let rule = HostPattern::parse("a.example").unwrap();
    plan.egress.rules.push(EgressRule {
        id: "allow-1".into(),
        effect: RuleEffect::Allow,
        host: rule,
        request: None,
    });
    let mut machine = machine();
    machine.limits = vec![Need::Pids];
    let workload = Workload::Agent(Vec::new());
    let refused = lower(&lowering(&plan, &workload, &machine)).unwrap_err();
    let unmet: Vec<Need> = refused.unmet.iter().map(|unmet| unmet.need).collect();
    assert_eq!(unmet, [Need::Memory]);
    plan.limits.memory = None;
    let launch = lower(&lowering(&plan, &workload, &machine)).unwrap();
    let met: Vec<Need> = launch.controls.iter().map(|control| control.need).collect();
    assert_eq!(met, plan.needs(&workload));
}

#[test]
fn only_allowed_names_get_addresses() {
    let (mut plan, machine, workload) =
        (plan(), machine(), Workload::Command(vec![OsText::new("ls").unwrap()]));
    let closed = lower(&lowering(&plan, &workload, &machine)).unwrap();
    let names = |launch: &Launch| -> Vec<String> {
        launch.guest.listeners.iter().map(|listener| listener.name.clone()).collect()
    };
    assert_eq!(names(&closed), ["proxy", "resolver"], "what is refused is seen");
    let host = HostPattern::parse("a.example").unwrap();
    plan.egress.rules.push(EgressRule {
        id: "allow-1".into(),
        effect: RuleEffect::Allow,
        host,
        request: None,
    });
    let open = lower(&lowering(&plan, &workload, &machine)).unwrap();
    assert_eq!(names(&open), ["proxy", "resolver", "transparent 198.18.0.1:443"]);
    let arguments =
        |launch: &Launch| -> Vec<String> { launch.arguments.iter().map(LaunchArgument::shown).collect() };
    assert_eq!(arguments(&open), arguments(&closed), "what bubblewrap may do does not depend on egress");
}
