//! The prerequisites of a test.
//!
//! A test that cannot run on this machine is skipped visibly: with a line on standard error, and one in the file that
//! `BELLJAR_SKIP_LOG` names. A CI lane that guarantees a prerequisite lists it in `BELLJAR_REQUIRE` (`all` lists
//! every one), and there a skip is a failure.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use crate::{agent, guest, process};

/// The file to which skipped tests are appended, one line each.
pub const SKIP_LOG_VAR: &str = "BELLJAR_SKIP_LOG";

/// Prerequisites that must be met: names separated by commas, or `all`.
pub const REQUIRE_VAR: &str = "BELLJAR_REQUIRE";

/// The time limit of a probe.
const PROBE_TIME: Duration = Duration::from_secs(60);

/// Creates a cgroup that can limit processes, at or above the one of this process, and removes it.
const MAKE_GROUP: &str = r#"
own=$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup)
if [ -n "$own" ]; then top=/sys/fs/cgroup/pids; else top=/sys/fs/cgroup own=$(sed -n 's/^0:://p' /proc/self/cgroup); fi
while :; do
    group=$top${own%/}/belljar-require-$$
    if mkdir "$group" 2>/dev/null; then
        if [ -w "$group/pids.max" ]; then rmdir "$group" && exit 0; fi
        rmdir "$group"
    fi
    case $own in '' | /) break ;; *) own=${own%/*} ;; esac
done
echo "no cgroup below $top that this user can write has the pids controller" >&2
exit 1
"#;

/// Returns from the test unless all prerequisites are met; fails it if the lane guarantees them.
///
/// ```no_run
/// # fn a_test() {
/// belljar_testkit::require!(Agent, Bwrap);
/// # }
/// ```
#[macro_export]
macro_rules! require {
    ($($prerequisite:ident),+ $(,)?) => {
        let test = {
            fn here() {}
            $crate::require::test_name(&here)
        };
        let prerequisites = [$($crate::require::Prerequisite::$prerequisite),+];
        if $crate::require::enter(test, &prerequisites) == $crate::require::Entry::Skipped {
            return;
        }
    };
}

/// Something that a test needs from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    /// The real agent's binary is installed.
    Agent,
    /// The older version of the real agent is installed.
    AgentOlder,
    /// bubblewrap is installed and can create all its namespaces.
    Bwrap,
    /// A user namespace can be created.
    UserNs,
    Tmux,
    Git,
    /// podman is installed and works.
    Podman,
    /// Docker's daemon is installed; a test starts its own instance.
    Docker,
    /// The test runs as the superuser.
    Root,
    /// python3 is installed.
    Python,
    /// pip is installed for python3.
    Pip,
    /// A cgroup with a limit can be created.
    Cgroups,
    /// `./dev vm` has fetched the parts of a virtual machine.
    Vm,
    Zsh,
    Fish,
    Curl,
    Openssl,
    Node,
    Npm,
    /// A Java that runs source files is installed.
    Java,
    /// OpenSSH's client and server are installed.
    Sshd,
    /// strace is installed and can trace.
    Strace,
    /// The guest program is built from the current sources.
    Guest,
}

/// Whether a test can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Entry {
    /// All prerequisites are met.
    Open,
    /// One is missing; the skip has been reported.
    Skipped,
}

impl Prerequisite {
    /// All prerequisites, for `BELLJAR_REQUIRE=all` and for messages.
    pub const ALL: [Self; 23] = [
        Self::Agent,
        Self::AgentOlder,
        Self::Bwrap,
        Self::UserNs,
        Self::Tmux,
        Self::Git,
        Self::Podman,
        Self::Docker,
        Self::Root,
        Self::Python,
        Self::Pip,
        Self::Cgroups,
        Self::Vm,
        Self::Zsh,
        Self::Fish,
        Self::Curl,
        Self::Openssl,
        Self::Node,
        Self::Npm,
        Self::Java,
        Self::Sshd,
        Self::Strace,
        Self::Guest,
    ];

    /// Its name in `require!` and `BELLJAR_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "Agent",
            Self::AgentOlder => "AgentOlder",
            Self::Bwrap => "Bwrap",
            Self::UserNs => "UserNs",
            Self::Tmux => "Tmux",
            Self::Git => "Git",
            Self::Podman => "Podman",
            Self::Docker => "Docker",
            Self::Root => "Root",
            Self::Python => "Python",
            Self::Pip => "Pip",
            Self::Cgroups => "Cgroups",
            Self::Vm => "Vm",
            Self::Zsh => "Zsh",
            Self::Fish => "Fish",
            Self::Curl => "Curl",
            Self::Openssl => "Openssl",
            Self::Node => "Node",
            Self::Npm => "Npm",
            Self::Java => "Java",
            Self::Sshd => "Sshd",
            Self::Strace => "Strace",
            Self::Guest => "Guest",
        }
    }

    /// Checks the prerequisite on this machine.
    ///
    /// # Errors
    /// The reason why it is not met, for people.
    pub fn probe(self) -> Result<(), String> {
        match self {
            Self::Agent => agent::real().map(drop).map_err(|missing| missing.to_string()),
            Self::AgentOlder => agent::older().map(drop).map_err(|missing| missing.to_string()),
            Self::Bwrap => succeeds("bwrap", &["--unshare-all", "--ro-bind", "/", "/", "true"]),
            Self::UserNs => succeeds("unshare", &["--user", "--map-root-user", "true"]),
            Self::Tmux => succeeds("tmux", &["-V"]),
            Self::Git => succeeds("git", &["--version"]),
            Self::Podman => succeeds("podman", &["info"]),
            Self::Docker => succeeds("dockerd", &["--version"]),
            Self::Root => root(),
            Self::Python => succeeds("python3", &["--version"]),
            Self::Pip => succeeds("python3", &["-m", "pip", "--version"]),
            Self::Cgroups => succeeds("sh", &["-c", MAKE_GROUP]),
            Self::Vm => vm(),
            Self::Zsh => succeeds("zsh", &["--version"]),
            Self::Fish => succeeds("fish", &["--version"]),
            Self::Curl => succeeds("curl", &["--version"]),
            Self::Openssl => succeeds("openssl", &["version"]),
            Self::Node => succeeds("node", &["--version"]),
            Self::Npm => succeeds("npm", &["--version"]),
            Self::Java => succeeds("java", &["--list-modules"]),
            Self::Sshd => succeeds("ssh", &["-V"]).and_then(|()| server()),
            Self::Strace => succeeds("strace", &["-f", "-o", "/dev/null", "true"]),
            Self::Guest => guest::built().map(drop),
        }
    }
}

/// The name of the test in which the local function `marker` was declared.
#[doc(hidden)]
pub fn test_name<T>(marker: &T) -> &'static str {
    let path = std::any::type_name_of_val(marker);
    let path = path.strip_suffix("::here").unwrap_or(path);
    path.trim_end_matches("::{{closure}}")
}

/// Probes the prerequisites of a test, and reports the first that is missing. Called by `require!`.
///
/// # Panics
/// When a guaranteed prerequisite is missing, when `BELLJAR_REQUIRE` names an unknown one, and when the skip log
/// cannot be written: all three would otherwise go unnoticed.
#[doc(hidden)]
pub fn enter(test: &str, prerequisites: &[Prerequisite]) -> Entry {
    let promised = match Promised::parse(&env::var(REQUIRE_VAR).unwrap_or_default()) {
        Ok(promised) => promised,
        Err(unknown) => panic!("{unknown}"),
    };
    let missing = prerequisites.iter().find_map(|prerequisite| {
        prerequisite.probe().err().map(|why| UnmetPrerequisite { prerequisite: *prerequisite, why })
    });
    let Some(missing) = missing else { return Entry::Open };
    if promised.includes(missing.prerequisite) {
        panic!("{REQUIRE_VAR} lists {}, which is missing: {}", missing.prerequisite.name(), missing.why);
    }
    report(&missing.skip_line(test));
    Entry::Skipped
}

struct UnmetPrerequisite {
    prerequisite: Prerequisite,
    why: String,
}

impl UnmetPrerequisite {
    /// One line; line breaks in the reason are replaced.
    fn skip_line(&self, test: &str) -> String {
        let why = self.why.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("SKIPPED {test} : needs {}: {why}", self.prerequisite.name())
    }
}

/// The prerequisites that a lane guarantees.
#[derive(Debug, PartialEq, Eq)]
struct Promised(Vec<Prerequisite>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{REQUIRE_VAR}: `{name}` is not a prerequisite; known are all, {}", known())]
struct UnknownPromise {
    name: String,
}

impl Promised {
    fn parse(list: &str) -> Result<Self, UnknownPromise> {
        let mut promised = Vec::new();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let named = |prerequisite: &&Prerequisite| prerequisite.name().eq_ignore_ascii_case(name);
            match Prerequisite::ALL.iter().find(named) {
                Some(prerequisite) => promised.push(*prerequisite),
                None if name.eq_ignore_ascii_case("all") => promised.extend(Prerequisite::ALL),
                None => return Err(UnknownPromise { name: name.to_owned() }),
            }
        }
        Ok(Self(promised))
    }

    fn includes(&self, prerequisite: Prerequisite) -> bool {
        self.0.contains(&prerequisite)
    }
}

fn known() -> String {
    Prerequisite::ALL.map(Prerequisite::name).join(", ")
}

#[expect(clippy::print_stderr, reason = "a skipped test must be seen where the test's output is")]
fn report(line: &str) {
    eprintln!("{line}");
    let Some(path) = env::var_os(SKIP_LOG_VAR) else { return };
    let appended = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        // A single write, so that lines of parallel tests do not mix.
        .and_then(|mut log| log.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = appended {
        panic!("{SKIP_LOG_VAR}: cannot append to {}: {error}", path.display());
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Result<(), String> {
    let finished = process::run_within(Command::new(program).args(arguments), PROBE_TIME);
    let finished = finished.map_err(|error| match error {
        process::RunError::Start { program, cause } => format!("cannot start {program}: {cause}"),
        process::RunError::Wait { .. } | process::RunError::TimedOut { .. } => error.to_string(),
    })?;
    if finished.status.success() {
        return Ok(());
    }
    let command = [&[program], arguments].concat().join(" ");
    Err(format!("`{command}` failed with {}: {}", finished.status, finished.stderr.trim()))
}

/// The server is not on everyone's PATH, and must be started by its absolute path.
fn server() -> Result<(), String> {
    let path = "/usr/sbin/sshd";
    if fs::metadata(path).is_ok_and(|file| file.is_file()) {
        Ok(())
    } else {
        Err(format!("{path} is missing"))
    }
}

/// The programs that `scripts/vm` needs, and the kernel that it fetches.
fn vm() -> Result<(), String> {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.dev/vm/vmlinuz");
    fs::metadata(kernel).map_err(|error| format!("no kernel in .dev/vm ({error}); `./dev vm` fetches it"))?;
    succeeds("cpio", &["--version"])?;
    succeeds("qemu-system-x86_64", &["--version"])
}

/// `/proc/self` is owned by the effective user of the process.
fn root() -> Result<(), String> {
    match fs::metadata("/proc/self") {
        Ok(process) if process.uid() == 0 => Ok(()),
        Ok(process) => Err(format!("the effective user is {}", process.uid())),
        Err(error) => Err(format!("cannot look at /proc/self: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_regardless_of_case_and_unknown_ones_are_rejected() {
        let parse = |list| Promised::parse(list).map(|promised| promised.0);
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse(" agent, Bwrap,"), Ok(vec![Prerequisite::Agent, Prerequisite::Bwrap]));
        assert_eq!(parse("all"), Ok(Prerequisite::ALL.to_vec()));
        let unknown = parse("Agent,bubblewrap").unwrap_err().to_string();
        assert!(
            unknown.starts_with("BELLJAR_REQUIRE: `bubblewrap` is not a prerequisite; known are all, Agent,")
        );
    }

    #[test]
    fn a_skip_is_one_line_that_names_test_prerequisite_and_reason() {
        let missing = UnmetPrerequisite { prerequisite: Prerequisite::Bwrap, why: "it\nsaid  no\n".into() };
        assert_eq!(missing.skip_line("a::b"), "SKIPPED a::b : needs Bwrap: it said no");
    }

    #[test]
    fn a_test_knows_its_name() {
        fn here() {}
        assert!(test_name(&here).ends_with("require::tests::a_test_knows_its_name"), "{}", test_name(&here));
    }

    #[test]
    fn a_failed_probe_says_what_was_tried() {
        assert_eq!(succeeds("true", &[]), Ok(()));
        let failed = succeeds("sh", &["-c", "echo no >&2; exit 4"]).unwrap_err();
        assert_eq!(failed, "`sh -c echo no >&2; exit 4` failed with exit status: 4: no");
        assert!(succeeds("no-such-program", &[]).unwrap_err().starts_with("cannot start no-such-program: "));
    }
}
