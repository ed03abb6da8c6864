//! Shows what a new backend needs: this one implements [`Backend`], has a line in a registry, and changes nothing else. It is
//! planned, lowered, launched and watched like the others.

use super::defaults::{ProcessLimit, default_limits_of};
use super::registry::Backend;
use super::shared::guest_spec::guest_spec;
use super::shared::needs::{OwnMechanisms, controls};
use super::tests::{lowering, machine, plan};
use super::*;
use belljar_contract::{
    GuestBounds, GuestEnd, GuestOrder, LimitKind, Limits, Need, OsText, RunFiles, Workload, WorkspaceMode,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

struct Stub;

/// Stands in for the contract's variant of a new backend, which a test cannot add.
const KIND: BackendKind = BackendKind::Container;

/// The registry with the stub's line in it.
fn with_stub(kind: BackendKind) -> &'static dyn Backend {
    match kind {
        BackendKind::Container => &Stub,
        BackendKind::Host | BackendKind::Bwrap => registered(kind),
    }
}

impl Backend for Stub {
    fn check_needs(&self, lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
        let refused = Err(("the stub sets no limit", "leave the limit out"));
        let own = OwnMechanisms {
            files: "nothing runs",
            processes: "nothing runs",
            ipc: "nothing runs",
            network: "nothing runs",
            privileges: "nothing runs",
            lifetime: "nothing runs",
            memory: refused,
            pids: refused,
            cpu: refused,
        };
        let (controls, unmet) = controls(lowering, &own);
        if unmet.is_empty() { Ok(NeedsMet { controls, open: Vec::new() }) } else { Err(unmet) }
    }

    fn lower(&self, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, Vec<Unmet>> {
        let Lowering { plan, machine, .. } = *lowering;
        let NeedsMet { controls, open } = met;
        let guest = guest_spec(self, lowering);
        Ok(Launch {
            backend: KIND,
            program: guest.program.clone(),
            arguments: Vec::new(),
            command: Vec::new(),
            container: None,
            root: Vec::new(),
            guest,
            made: Vec::new(),
            limits: plan.limits.clone(),
            defaults: default_limits_of(self, plan, machine.capacity),
            bounds: GuestBounds::default(),
            controls,
            open,
        })
    }

    fn launch(&self, request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
        let (control, started) = std::io::pipe().map_err(LaunchError::Talk)?;
        let program = request.launch.guest.program.to_string();
        Ok(Box::new(StubCommand { control, started: Some(started), program }))
    }

    fn guest_path(&self, on_host: &AbsPath) -> AbsPath {
        on_host.clone()
    }

    fn default_processes(&self, pids: u32, _capacity: Capacity) -> Result<ProcessLimit, String> {
        Ok(ProcessLimit::Resource(pids))
    }

    fn default_tmpfs(&self) -> Result<&'static str, String> {
        Err("the stub has no file systems".to_owned())
    }
}

/// A command that ends at once, with the length of its name as its status.
#[derive(Debug)]
struct StubCommand {
    control: PipeReader,
    started: Option<PipeWriter>,
    program: String,
}

impl Launched for StubCommand {
    fn take_listener(&mut self, _name: &str) -> Option<OwnedFd> {
        None
    }

    fn take_controller(&mut self) -> Option<OwnedFd> {
        None
    }

    fn start(&mut self) -> Result<Beginning, LaunchError> {
        if let Some(mut started) = self.started.take() {
            started.write_all(&[self.program.len() as u8]).map_err(LaunchError::Talk)?;
        }
        Ok(Beginning::Started)
    }

    fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn report(&mut self) -> Result<News, LaunchError> {
        let mut status = [0];
        match self.control.read(&mut status).map_err(LaunchError::Talk)? {
            0 => Ok(News::Gone),
            _ => Ok(News::Ended(GuestEnd::Code(i32::from(status[0])))),
        }
    }

    fn order(&self, _order: GuestOrder) -> Result<(), LaunchError> {
        Ok(())
    }

    fn finish(&mut self, _patience: Duration) {}
}

fn lowered(plan: &Plan) -> Result<Launch, BackendError> {
    let workload = Workload::Command(vec![OsText::new("four").unwrap()]);
    let machine = machine();
    let lowering = lowering(plan, &workload, &machine);
    lower_by(with_stub, &lowering, check_needs_by(with_stub, &lowering)?)
}

fn stream() -> StreamEnd {
    StreamEnd::Open(File::open("/dev/null").unwrap().into())
}

#[test]
fn a_backend_of_its_own_file_and_one_line_is_lowered_and_launched() {
    let plan = plan(KIND);
    let launch = lowered(&plan).unwrap();
    let needs: BTreeSet<Need> = plan.needs(&Workload::Command(Vec::new())).into_iter().collect();
    let met: BTreeSet<Need> = launch.controls.iter().map(|control| control.need).collect();
    assert_eq!(met, needs);
    let default = |kind| launch.defaults.iter().find(|default| default.limit == kind).unwrap();
    assert!(default(LimitKind::Pids).mechanism.is_ok());
    assert_eq!(default(LimitKind::Tmpfs).mechanism, Err("the stub has no file systems".to_owned()));

    let request = LaunchRequest {
        launch: &launch,
        waiting: None,
        variables: Vec::new(),
        streams: Streams { stdin: stream(), stdout: stream(), stderr: stream() },
        name: "stub",
        overlays: &[],
        engine: None,
        identities: &SourceIdentities::default(),
        run_files: &RunFiles::default(),
    };
    let mut running = launch_by(with_stub, request).unwrap();
    assert_eq!(running.start().unwrap(), Beginning::Started);
    assert_eq!(running.report().unwrap(), News::Ended(GuestEnd::Code(4)));
    assert_eq!(running.report().unwrap(), News::Gone);
    assert!(running.landlock().is_none() && running.used().is_none() && running.reached().is_empty());
}

#[test]
fn a_need_that_it_cannot_enforce_is_refused_by_name() {
    let limits = Limits { pids: Some(9), ..Limits::default() };
    let mut plan = Plan { limits, ..plan(KIND) };
    plan.workspace.mode = WorkspaceMode::Copy;
    let refused = lowered(&plan).unwrap_err();
    assert_eq!(refused.backend, KIND);
    let names: Vec<Need> = refused.unmet.iter().map(|unmet| unmet.need).collect();
    assert_eq!(names, [Need::Pids]);
}

#[test]
fn the_other_lines_of_the_registry_are_as_they_were() {
    let plan = plan(BackendKind::Bwrap);
    assert_eq!(lowered(&plan).unwrap().backend, BackendKind::Bwrap);
}
