//! Explains why a sandbox cannot be built, and gives commands that fix it.

use crate::egress::EgressError;
use crate::environment::HostEnvironment;
use crate::launch::RunError;
use belljar_contract::GuestStep;
use belljar_egress::gateway::ModelCredentialError;
use belljar_sandbox::{EngineError, LaunchError};
use belljar_sys::Errno;
use belljar_sys::userns::{Reason, Switches, UserNamespaceStep};

/// Messages of bubblewrap, and of the guest in its namespaces, when the kernel refuses one. Bubblewrap 0.4 to 0.12.
const NAMESPACE_MESSAGES: [&str; 9] = [
    "setting up uid map",
    "setting up gid map",
    "No permissions to create",
    "Creating new namespace failed",
    "Failed to make / slave",
    // With AppArmor's restriction the namespace exists, but nothing is permitted in it.
    "loopback: Failed RTM_NEWADDR",
    "Failed to unshare",
    // Root may create the first namespace; a nested one is refused as for every user.
    "unshare user ns",
    "cannot become user",
];

/// The reason, if a message is about namespaces.
#[must_use]
pub fn namespace_reason(message: &str, switches: &Switches) -> Option<Reason> {
    if !NAMESPACE_MESSAGES.iter().any(|known| message.contains(known)) {
        return None;
    }
    let step = if message.contains("map") || message.contains("RTM_NEWADDR") {
        UserNamespaceStep::Map
    } else {
        UserNamespaceStep::Unshare
    };
    let errno = if message.contains("No space left") || message.contains("ENOSPC") {
        Errno::NOSPC
    } else {
        Errno::PERM
    };
    Some(switches.explain(step, errno))
}

/// The cause and the remedy, one per line, if a launch failed because of namespaces or a limit; otherwise empty.
#[must_use]
pub fn launch_hints(error: &RunError, environment: &HostEnvironment) -> Vec<String> {
    if matches!(error, RunError::Launch(LaunchError::Limit(_))) {
        return vec![
            "`belljar doctor` lists the limits that this machine can enforce; or remove the limit".to_owned(),
        ];
    }
    if matches!(error, RunError::Launch(LaunchError::OpenFiles)) {
        return vec!["raise the limit with `ulimit -n 1024`, or allow fewer hosts".to_owned()];
    }
    if let RunError::Launch(LaunchError::Sealing { step: GuestStep::Keyring, .. }) = error {
        return vec![
            "every sandbox needs a key of its own; `cat /proc/key-users` lists how many you have".to_owned(),
            "end other sandboxes, or raise the quota: `sudo sysctl kernel.keys.maxkeys=2000`".to_owned(),
        ];
    }
    if let RunError::EgressServices(EgressError::ModelCredential(error)) = error {
        return credential_hints(error, environment);
    }
    if let RunError::Launch(LaunchError::Engine(engine)) = error {
        return engine_hints(engine);
    }
    let reason = match error {
        RunError::Launch(
            LaunchError::Bubblewrap { message }
            | LaunchError::Sealing { step: GuestStep::Root, detail: message },
        ) => namespace_reason(message, &Switches::read()),
        // All supported kernels have the call; a filter that refuses it refuses namespaces as well.
        RunError::Launch(LaunchError::Source { cause, .. }) => {
            (cause.raw_os_error() == Some(Errno::NOSYS.raw_os_error())).then_some(Reason::Filtered)
        }
        RunError::Unmet(_)
        | RunError::Value { .. }
        | RunError::Terminal(_)
        | RunError::Guest(_)
        | RunError::Launch(_)
        | RunError::Workspace(_)
        | RunError::Allowed(_)
        | RunError::Instance(_)
        | RunError::Session(_)
        | RunError::Journal(_)
        | RunError::UnrecordedConversation
        | RunError::EgressServices(_)
        | RunError::TapeKey(_)
        | RunError::Supervise(_) => None,
    };
    let Some(reason) = reason else { return Vec::new() };
    let bwrap = environment.program("bwrap").map_or("/usr/bin/bwrap".to_owned(), |path| path.to_string());
    let mut out = vec![describe(reason).to_owned()];
    out.extend(fix(reason, &bwrap));
    out.push("`belljar doctor` checks the whole machine".to_owned());
    out
}

/// Where a credential can be kept besides the environment, and the ways to do without one.
fn credential_hints(error: &ModelCredentialError, environment: &HostEnvironment) -> Vec<String> {
    let own = environment.shown_from_home(&environment.config.child(".env"));
    let mut out = vec![format!("`{own}` is read at every start, and `--dotenv FILE` reads another file")];
    if let Some(unread) = environment.unread_dotenv() {
        out.push(format!(
            "`{}` is not used: the agent may get it, or it belongs to what is tested",
            environment.shown(&unread)
        ));
    }
    if matches!(error, ModelCredentialError::Missing(_)) {
        let without = [
            "without a key: `--script FILE`, or `test --scripted`, answers from a script (docs/reference/script.md)",
            "without a key: `belljar replay` plays a tape that `belljar record` made",
        ];
        out.extend(without.map(str::to_owned));
    }
    out
}

/// Where an engine was searched for, and the remedy.
fn engine_hints(error: &EngineError) -> Vec<String> {
    let tried = match error {
        EngineError::Absent { tried } => tried.clone(),
        EngineError::Unreachable { .. }
        | EngineError::Service { .. }
        | EngineError::Make { .. }
        | EngineError::Talk { .. }
        | EngineError::Refused { .. }
        | EngineError::NoImage { .. }
        | EngineError::Foreign { .. }
        | EngineError::Lacking { .. }
        | EngineError::Silent { .. }
        | EngineError::Stranger { .. } => Vec::new(),
    };
    tried.into_iter().chain(error.hint()).collect()
}

/// The reason in plain words, for the report.
#[must_use]
pub const fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::CloneSwitch => "user namespaces are switched off: kernel.unprivileged_userns_clone = 0",
        Reason::MaxIsZero => "user namespaces are switched off: user.max_user_namespaces = 0",
        Reason::AppArmor => {
            "AppArmor keeps user namespaces from programs without a profile: \
             kernel.apparmor_restrict_unprivileged_userns = 1 (Ubuntu 23.10 and later)"
        }
        Reason::Filtered => {
            "a system-call filter refuses namespaces: this is a container or a sandbox already"
        }
        Reason::Exhausted => "no more user namespaces: nested too deep, or the limit of this user is reached",
        Reason::Unknown => "the kernel or a policy refuses user namespaces, and no known switch says why",
    }
}

/// Commands that fix it, one per line.
#[must_use]
pub fn fix(reason: Reason, bwrap: &str) -> Vec<String> {
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    match reason {
        Reason::CloneSwitch => lines(&[
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
            "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-belljar.conf",
        ]),
        Reason::MaxIsZero => lines(&[
            "sudo sysctl -w user.max_user_namespaces=15000",
            "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-belljar.conf",
        ]),
        Reason::AppArmor => apparmor(bwrap),
        Reason::Filtered => lines(&[
            "docker or podman: start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined",
            "kubernetes: securityContext.seccompProfile.type: Unconfined; or run belljar outside the container",
        ]),
        Reason::Exhausted => lines(&[
            "cat /proc/sys/user/max_user_namespaces; sudo sysctl -w user.max_user_namespaces=15000",
            "inside another sandbox that forbids nesting, run belljar outside of it",
        ]),
        Reason::Unknown => lines(&["unshare --user --map-root-user true; dmesg | tail"]),
    }
}

/// The AppArmor profile that allows namespaces for bubblewrap alone; in one line, to be pasted.
fn apparmor(bwrap: &str) -> Vec<String> {
    let profile = format!(
        "printf '%s\\n' 'abi <abi/4.0>,' 'include <tunables/global>' \
         'profile belljar-bwrap {bwrap} flags=(unconfined) {{' '  userns,' \
         '  include if exists <local/belljar-bwrap>' '}}' | sudo tee /etc/apparmor.d/belljar-bwrap"
    );
    vec![profile, "sudo apparmor_parser -r /etc/apparmor.d/belljar-bwrap".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bubblewrap_says_is_understood_by_the_switches() {
        let open = Switches::default();
        let cases = [
            (
                "setting up uid map: Permission denied",
                Switches { apparmor_restrict: Some(1), ..open },
                Some(Reason::AppArmor),
            ),
            (
                "loopback: Failed RTM_NEWADDR: Operation not permitted",
                Switches { apparmor_restrict: Some(1), ..open },
                Some(Reason::AppArmor),
            ),
            (
                "No permissions to create a new namespace, likely because the kernel does not allow non-privileged user namespaces.",
                Switches { unprivileged_userns_clone: Some(0), ..open },
                Some(Reason::CloneSwitch),
            ),
            (
                "Creating new namespace failed: No space left on device",
                Switches { max_user_namespaces: Some(0), ..open },
                Some(Reason::MaxIsZero),
            ),
            (
                "Creating new namespace failed: No space left on device",
                Switches { max_user_namespaces: Some(9000), ..open },
                Some(Reason::Exhausted),
            ),
            (
                "Creating new namespace failed: Operation not permitted",
                Switches { seccomp: Some(2), ..open },
                Some(Reason::Filtered),
            ),
            ("No permissions to create new namespace", open, Some(Reason::Unknown)),
            (
                "unshare user ns: Operation not permitted",
                Switches { unprivileged_userns_clone: Some(0), ..open },
                Some(Reason::CloneSwitch),
            ),
            (
                "Can't find source path /x: No such file or directory",
                Switches { apparmor_restrict: Some(1), ..open },
                None,
            ),
        ];
        for (message, switches, expected) in cases {
            assert_eq!(namespace_reason(message, &switches), expected, "{message}");
        }
    }

    #[test]
    fn every_reason_has_a_fix_and_the_profile_names_the_program() {
        use Reason::{AppArmor, CloneSwitch, Exhausted, Filtered, MaxIsZero, Unknown};
        for reason in [CloneSwitch, MaxIsZero, AppArmor, Filtered, Exhausted, Unknown] {
            assert!(!fix(reason, "/usr/bin/bwrap").is_empty() && !describe(reason).is_empty());
        }
        let profile = fix(AppArmor, "/opt/bin/bwrap").join("\n");
        assert!(
            profile.contains("'profile belljar-bwrap /opt/bin/bwrap flags=(unconfined) {' '  userns,'"),
            "{profile}"
        );
    }
}
