//! Every need is enforced, refused by name, or, without a sandbox, open by name: exactly one of them.

use super::*;
use belljar_contract::{
    Access, AgentName, ByteSize, Cpus, Credential, Egress, EgressRule, HomeMode, HostName, HostPattern,
    Instance, InstanceKey, Limits, Made, Mount, MountSource, Need, PLAN_FORMAT, Plan, Port, Purpose,
    RuleEffect, SshEntry, Workload, Workspace, WorkspaceMode,
};
use std::collections::BTreeSet;

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

pub(super) fn plan(backend: BackendKind) -> Plan {
    let root = path("/home/user/project");
    let instance = path("/home/user/.local/share/belljar/instances/x");
    Plan {
        format: PLAN_FORMAT,
        agent: AgentName::new("tester").unwrap(),
        harness: "claude-code".to_owned(),
        agent_version: None,
        purpose: Purpose::Session,
        backend,
        image: None,
        model: None,
        effort: None,
        home: HomeMode::Clean,
        home_directory: instance.child("host/home"),
        instance: Instance { key: InstanceKey::of(&root), root: root.clone(), directory: instance },
        workspace: Workspace {
            mode: WorkspaceMode::Direct,
            source: root.clone(),
            target: root.clone(),
            directory: root,
            unguarded: None,
        },
        mounts: Vec::new(),
        files: Vec::new(),
        env: Vec::new(),
        egress: Egress { model: true, rules: Vec::new() },
        model_credentials: Vec::new(),
        provider_tools: Vec::new(),
        credentials: Vec::new(),
        ssh: Vec::new(),
        limits: Limits::default(),
        skills: Vec::new(),
        mcp: Vec::new(),
        plugins: Vec::new(),
        prompt: None,
        argv: vec!["claude".to_owned()],
        refused: Vec::new(),
        redact: Vec::new(),
        used_outside: Vec::new(),
    }
}

/// Every demand that a plan can make at once.
fn greedy(backend: BackendKind) -> Plan {
    let host = HostName::new("forge.example.org").unwrap();
    let mut plan = plan(backend);
    plan.egress.rules.push(EgressRule {
        id: "allow-1".to_owned(),
        effect: RuleEffect::Allow,
        host: HostPattern::parse("forge.example.org").unwrap(),
        request: None,
    });
    plan.credentials.push(Credential {
        host: host.clone(),
        header: "Authorization".to_owned(),
        value: Vec::new(),
    });
    plan.ssh.push(SshEntry {
        host: "forge".to_owned(),
        hostname: belljar_contract::Host::Name(host),
        user: "git".to_owned(),
        port: Port::new(22).unwrap(),
        identity_file: path("/home/user/.ssh/id"),
        known_host_key: None,
        sign_commits: false,
    });
    plan.limits = Limits {
        memory: ByteSize::parse("1G").ok(),
        pids: Some(9),
        cpu: Cpus::new(1.0).ok(),
        time: belljar_contract::TimeSpan::parse("5m").ok(),
        cost_usd: belljar_contract::Usd::new(1.0).ok(),
        tmpfs: belljar_contract::ByteSize::parse("1G").ok(),
        unlimited: Vec::new(),
    };
    plan
}

pub(super) fn machine() -> MachineFacts {
    look_around(Some(path("/usr/bin/bwrap")), path("/opt/belljar-guest"), Some(path("/opt/claude")))
}

pub(super) fn lowering<'a>(
    plan: &'a Plan,
    workload: &'a Workload,
    machine: &'a MachineFacts,
) -> Lowering<'a> {
    Lowering { plan, workload, machine, terminal: false, conversation: false, kept: None }
}

pub(super) fn lowered(plan: &Plan, workload: &Workload) -> Result<Launch, BackendError> {
    let machine = machine();
    let lowering = lowering(plan, workload, &machine);
    lower(&lowering, check_needs(&lowering)?)
}

fn modes() -> [WorkspaceMode; 3] {
    [WorkspaceMode::Direct, WorkspaceMode::Overlay, WorkspaceMode::Copy]
}

#[test]
fn every_need_is_met_refused_or_openly_unmet() {
    let workloads = [Workload::Agent(Vec::new()), Workload::Command(Vec::new())];
    for backend in [BackendKind::Host, BackendKind::Bwrap, BackendKind::Container] {
        for (workload, mode) in workloads.iter().flat_map(|workload| modes().map(|mode| (workload, mode))) {
            for mut plan in [plan(backend), greedy(backend)] {
                plan.workspace.mode = mode;
                let needs: BTreeSet<Need> = plan.needs(workload).into_iter().collect();
                match lowered(&plan, workload) {
                    Ok(Launch { controls, open, .. }) => {
                        let met: Vec<Need> = controls.iter().map(|control| control.need).collect();
                        let unmet: Vec<Need> = open.iter().map(|unmet| unmet.need).collect();
                        assert!(backend == BackendKind::Host || unmet.is_empty(), "{unmet:?}");
                        assert_eq!(met.len() + unmet.len(), needs.len(), "one fate each");
                        assert_eq!(met.into_iter().chain(unmet).collect::<BTreeSet<_>>(), needs);
                    }
                    Err(error) => {
                        assert!(!error.unmet.is_empty());
                        for unmet in &error.unmet {
                            assert!(needs.contains(&unmet.need), "{:?} was not asked for", unmet.need);
                            assert!(!unmet.why.is_empty() && !unmet.fix.is_empty());
                        }
                    }
                }
            }
        }
    }
}

fn lower_host(mounts: Vec<Mount>) -> Result<Launch, BackendError> {
    let plan = Plan { mounts, ..plan(BackendKind::Host) };
    let workload = Workload::Command(vec![belljar_contract::OsText::new("ls").unwrap()]);
    lowered(&plan, &workload)
}

fn mount(target: &str, source: &str, access: Access) -> Mount {
    Mount { target: path(target), source: MountSource::Host(path(source)), access, why: String::new() }
}

#[test]
fn the_listed_open_needs_are_those_of_the_launch() {
    let workload = Workload::Agent(Vec::new());
    for backend in BackendKind::ALL {
        let plan = plan(backend);
        let open: Vec<Need> = crate::open_needs(&plan).iter().map(|open| open.need).collect();
        assert_eq!(open.is_empty(), backend.isolates(), "{backend:?}");
        let lowered: Vec<Need> =
            lowered(&plan, &workload).unwrap().open.iter().map(|open| open.need).collect();
        assert_eq!(open, lowered, "{backend:?}");
    }
}

#[test]
fn without_a_sandbox_directories_of_the_run_are_made_and_no_other() {
    let temporary = |target: &str| Mount {
        target: path(target),
        source: MountSource::Temporary,
        access: Access::ReadWrite,
        why: String::new(),
    };
    let own = plan(BackendKind::Host).instance.directory.child("host/tmp");
    let made = lower_host(vec![temporary("/tmp"), temporary(&own.to_string())]).unwrap().made;
    assert!(made.iter().any(|made| *made == Made::Directory(own.clone())), "{made:?}");
    assert!(!made.iter().any(|made| *made.path() == path("/tmp")), "{made:?}");
}

#[test]
fn without_a_sandbox_the_command_is_the_program_and_much_is_open() {
    let launch = lower_host(Vec::new()).unwrap();
    assert_eq!(launch.program.to_string(), "ls");
    assert!(launch.arguments.is_empty() && launch.command.is_empty());
    let open: Vec<Need> = launch.open.iter().map(|unmet| unmet.need).collect();
    assert!(open.contains(&Need::Files) && open.contains(&Need::Network), "{open:?}");
    assert!(!open.contains(&Need::Environment));
}

#[test]
fn without_a_sandbox_a_mount_becomes_a_copy_or_a_link_or_is_refused() {
    let kit = "/home/user/.local/share/belljar/instances/x/host/kit/skills/a";
    let launch = lower_host(vec![mount(kit, "/skills/a", Access::ReadOnly)]).unwrap();
    assert!(launch.made.contains(&Made::Copy { at: path(kit), from: path("/skills/a") }));
    let launch = lower_host(vec![mount(kit, "/skills/a", Access::ReadWrite)]).unwrap();
    assert!(launch.made.contains(&Made::Link { at: path(kit), to: path("/skills/a") }));
    assert!(lower_host(vec![mount("/srv/data", "/srv/data", Access::ReadOnly)]).is_ok());
    let refused = lower_host(vec![mount("/data", "/srv/data", Access::ReadOnly)]).unwrap_err();
    assert_eq!(refused.unmet[0].need, Need::Files);
    assert!(refused.unmet[0].why.contains("/data"), "{refused:?}");
}
