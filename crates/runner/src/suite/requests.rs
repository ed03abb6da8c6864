//! The requests of a trial for files and hosts outside its own directory, and the proof that the user agreed to them.

use super::load::Trial;
use super::scope::{read_agreed, really};
use belljar_contract::{AbsPath, BackendKind, Digest, PathUse, SandboxChoice, Wish, Wishes};
use belljar_plan::{Fidelity, McpEntry, McpEnv, Scenario, Session};
use std::io;

/// What a trial is loaded for; requests that are not needed for it need no agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialUse {
    /// It runs, with the network that its rules allow.
    Run,
    /// It runs, and no connection is made.
    RunOffline,
    /// It is staged and planned, but not run.
    Inspect,
}

/// The origin of the list of hosts that a trial may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostsFrom {
    Session,
    /// The user, on the command line.
    CommandLine,
}

/// What the user agreed to. Without it, a trial with requests is neither staged nor run.
#[derive(Debug, Clone, PartialEq)]
pub struct Consent {
    pub used_for: TrialUse,
    given: Vec<Wishes>,
}

impl Consent {
    /// The consent to exactly these requests.
    #[must_use]
    pub fn to(used_for: TrialUse, given: Vec<Wishes>) -> Self {
        Self { used_for, given }
    }

    #[must_use]
    pub fn given(&self) -> &[Wishes] {
        &self.given
    }

    /// The digest of what the user agreed to for a suite; `None` if the suite asked for nothing.
    #[must_use]
    pub fn digest_for(&self, suite: &AbsPath) -> Option<Digest> {
        self.given.iter().find(|given| given.suite == *suite).map(Wishes::digest)
    }

    /// Whether a real path, or a directory above it, was agreed to for a suite.
    #[must_use]
    pub fn covers_path(&self, suite: &AbsPath, real: &AbsPath) -> bool {
        let covers = |wish: &Wish| match wish {
            Wish::Path { path, used_as: _ } => real.is_within(path),
            Wish::Backend { .. } | Wish::Variable { .. } | Wish::Host { .. } => false,
        };
        self.given.iter().filter(|given| given.suite == *suite).flat_map(Wishes::list).any(covers)
    }

    /// Whether these requests were agreed to.
    #[must_use]
    pub fn covers(&self, wishes: &Wishes) -> bool {
        wishes.is_empty() || self.given.iter().any(|given| wishes.are_within(&given.to_json()))
    }
}

impl Trial {
    /// Adds a file that is read for the trial beside those that it names.
    pub fn reads(&mut self, used_as: PathUse, path: AbsPath) {
        self.named.push((used_as, path));
    }

    /// Reads such a file, up to a limit, if it belongs to the suite or was agreed to. Also returns whether it belongs
    /// to the suite.
    ///
    /// # Errors
    /// If neither is the case, or it cannot be read.
    pub fn read_agreed(&self, path: &AbsPath, consent: &Consent, limit: u64) -> io::Result<(Vec<u8>, bool)> {
        read_agreed(&self.scope, consent, path, limit)
    }

    /// The requests of the trial, with all paths resolved now.
    #[must_use]
    pub fn wishes(&self, sandbox: &SandboxChoice, used_for: TrialUse) -> Wishes {
        let mut list: Vec<Wish> = Vec::new();
        let beyond = self.named.iter().filter(|(_, path)| !self.scope.holds(path));
        list.extend(beyond.map(|(used_as, path)| Wish::Path { path: really(path), used_as: *used_as }));
        let runs = match used_for {
            TrialUse::Run | TrialUse::RunOffline => true,
            TrialUse::Inspect => false,
        };
        if runs {
            // A backend on the command line is the user's own decision.
            list.extend(sandbox.backend.is_none().then(|| weaker(&self.scenario)).flatten());
            list.extend(self.found.servers.iter().flat_map(variables));
        }
        if used_for == TrialUse::Run && self.hosts_from == HostsFrom::Session {
            list.extend(hosts(&self.session));
        }
        Wishes::new(self.scope.suite.clone(), self.scope.root().cloned(), list)
    }
}

/// The request for a backend that isolates less than the default one.
fn weaker(scenario: &Scenario) -> Option<Wish> {
    match scenario.fidelity? {
        Fidelity::Protocol => Some(Wish::Backend { backend: BackendKind::Host }),
        // The other tiers mean the default backend, or are refused.
        Fidelity::Container | Fidelity::Microvm | Fidelity::Hostloop | Fidelity::Cowork => None,
    }
}

fn variables(server: &McpEntry) -> impl Iterator<Item = Wish> {
    server.env.iter().filter_map(|(_, value)| match value {
        McpEnv::Variable(name) => Some(Wish::Variable { name: name.clone(), server: server.name.clone() }),
        McpEnv::Literal(_) => None,
    })
}

fn hosts(session: &Session) -> impl Iterator<Item = Wish> {
    session.extra_allow.iter().map(|host| Wish::Host { host: host.clone() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::environment::HostEnvironment;
    use crate::launch::guest_program::{GuestImage, GuestProgram};
    use crate::suite::{Conversation, LoadError, Planning, TrialError, load_scenario};
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    const SESSION: &str = "uploads: [key]\negress: {extra_allow: [a.test]}\nmcp: {config: mcp.json}\n";
    const SERVERS: &str =
        r#"{"mcpServers": {"forge": {"command": "cat", "env": {"T": "${TOKEN}", "L": "l"}}}}"#;

    /// A user whose home and state lie below `top`.
    pub(crate) fn environment(top: &AbsPath) -> HostEnvironment {
        let guest = GuestProgram::new(&top.child("data"), GuestImage { bytes: b"no program", digest: "0" });
        HostEnvironment {
            directory: top.child("suite"),
            home: top.child("home"),
            config: top.child("config"),
            data: top.child("data"),
            guest,
            state: top.child("state"),
            runtime: top.child("run"),
            variables: BTreeMap::new(),
            private: crate::dotenv::PrivateValues::default(),
        }
    }

    /// A suite with one request of each kind, beside a home directory.
    fn world() -> (tempfile::TempDir, AbsPath, HostEnvironment) {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        fs::create_dir_all(top.child("home")).unwrap();
        fs::create_dir_all(top.child("suite")).unwrap();
        for name in ["home/key", "home/other"] {
            fs::write(top.child(name), name).unwrap();
        }
        let scenario = "prompt: go\nfidelity: protocol\nsession: session.yaml\n";
        for (name, text) in [("a.yaml", scenario), ("session.yaml", SESSION), ("mcp.json", SERVERS)] {
            fs::write(top.child("suite").child(name), text).unwrap();
        }
        symlink("../home/key", top.child("suite/key")).unwrap();
        let environment = environment(&top);
        (directory, top, environment)
    }

    fn lines(trial: &Trial, sandbox: &SandboxChoice, used_for: TrialUse) -> Vec<String> {
        let wishes = trial.wishes(sandbox, used_for);
        let first_part = |wish: &Wish| wish.to_string().split([' ', ':']).next().unwrap().to_owned();
        wishes.list().iter().map(first_part).collect()
    }

    #[test]
    fn what_is_not_used_needs_no_agreement() {
        let (_directory, top, environment) = world();
        let trial = load_scenario(&environment, &top.child("suite/a.yaml"), &|_| false).unwrap();
        let none = SandboxChoice::default();
        assert_eq!(lines(&trial, &none, TrialUse::Run), ["backend", "variable", "upload", "egress"]);
        assert_eq!(lines(&trial, &none, TrialUse::RunOffline), ["backend", "variable", "upload"]);
        assert_eq!(lines(&trial, &none, TrialUse::Inspect), ["upload"]);
        let asked = SandboxChoice { backend: Some(BackendKind::Bwrap), image: None };
        assert_eq!(lines(&trial, &asked, TrialUse::Run), ["variable", "upload", "egress"]);
        let given = Trial { hosts_from: HostsFrom::CommandLine, ..trial };
        assert_eq!(lines(&given, &asked, TrialUse::Run), ["variable", "upload"]);
    }

    #[test]
    fn a_suite_that_asks_for_more_than_anyone_reads_is_refused() {
        let (_directory, top, environment) = world();
        let load = || load_scenario(&environment, &top.child("suite/a.yaml"), &|_| false);
        let hosts = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("h{number}.test")).collect();
            let text = format!("egress: {{extra_allow: [{}]}}\n", names.join(", "));
            fs::write(top.child("suite/session.yaml"), text).unwrap();
        };
        // The backend is one more.
        hosts(Wishes::MOST - 1);
        assert!(load().is_ok());
        hosts(Wishes::MOST);
        let refused = load().unwrap_err().to_string();
        assert!(
            refused.contains("asks for 1001 things") && refused.contains("the most is 1000"),
            "{refused}"
        );
    }

    #[test]
    fn the_files_that_a_plugin_is_read_from_are_asked_for_where_they_lie_beyond() {
        let (_directory, top, environment) = world();
        let plugin = top.child("suite/plugin");
        let profile = belljar_session::Harnesses::built_in().usual().profile();
        fs::create_dir_all(plugin.child(&profile.plugin_directory)).unwrap();
        fs::write(plugin.child(&profile.plugin_file), r#"{"name": "plugin"}"#).unwrap();
        symlink("../../home/key", plugin.child(".mcp.json")).unwrap();
        fs::write(top.child("suite/session.yaml"), "plugins: {local_plugins: [plugin]}\n").unwrap();
        let load = |permit| load_scenario(&environment, &top.child("suite/a.yaml"), permit);
        let wish = Wish::Path { path: top.child("home/key"), used_as: PathUse::Plugin };
        let Err(LoadError::Asks { wishes }) = load(&|_| false) else { panic!("it was read") };
        assert_eq!(wishes.list(), std::slice::from_ref(&wish));
        let trial = load(&|_| true).unwrap();
        assert_eq!(trial.wishes(&SandboxChoice::default(), TrialUse::Inspect).list(), [wish]);
    }

    #[test]
    fn without_consent_to_all_of_it_nothing_is_staged() {
        let (_directory, top, environment) = world();
        let trial = load_scenario(&environment, &top.child("suite/a.yaml"), &|_| false).unwrap();
        let sandbox = SandboxChoice::default();
        let refused = |consent: &Consent| {
            let conversation = &Conversation::Fresh;
            let planning =
                Planning { environment: &environment, sandbox: &sandbox, agent: None, conversation, consent };
            matches!(trial.planned(&planning), Err(TrialError::NotAgreed { .. }))
        };
        let run = trial.wishes(&sandbox, TrialUse::Run);
        let less = Wishes::new(run.suite.clone(), run.root.clone(), run.list()[1..].to_vec());
        let offline = trial.wishes(&sandbox, TrialUse::RunOffline);
        for given in [Vec::new(), vec![less], vec![offline]] {
            assert!(refused(&Consent::to(TrialUse::Run, given)));
        }
        let shown = run.digest();
        let consent = Consent::to(TrialUse::Run, vec![run]);
        // The link leads elsewhere than when the user agreed.
        fs::remove_file(top.child("suite/key")).unwrap();
        symlink("../home/other", top.child("suite/key")).unwrap();
        assert!(refused(&consent));
        let (suite, home) = (top.child("suite/a.yaml"), top.child("home"));
        assert!(
            consent.covers_path(&suite, &home.child("key"))
                && !consent.covers_path(&suite, &home.child("other"))
        );
        assert!(!consent.covers_path(&top.child("suite/b.yaml"), &home.child("key")));
        // A worker is bound to what was shown, not to what the files ask for by now.
        let now = trial.wishes(&sandbox, TrialUse::Run).digest();
        assert_eq!(consent.digest_for(&suite), Some(shown));
        assert_ne!(consent.digest_for(&suite), Some(now));
        assert_eq!(consent.digest_for(&top.child("suite/b.yaml")), None);
        assert!(!top.child("state").as_path().exists(), "nothing was staged");
        fs::remove_file(top.child("suite/key")).unwrap();
        symlink("../home/key", top.child("suite/key")).unwrap();
        assert!(!refused(&consent));
        let read = |name: &str| trial.read_agreed(&top.child(name), &consent, 100);
        assert_eq!(read("suite/key").unwrap(), (fs::read(home.child("key")).unwrap(), false));
        assert!(read("suite/a.yaml").unwrap().1, "the suite's own");
        // The link now leads to a file that was not agreed to.
        fs::remove_file(top.child("suite/key")).unwrap();
        symlink("../home/other", top.child("suite/key")).unwrap();
        fs::write(home.child("other"), "another").unwrap();
        assert_eq!(read("suite/key").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
