//! What a trial asks for beyond its own directory, and the proof that the user agreed to it.

use super::load::Trial;
use super::scope::really;
use belljar_contract::{AbsPath, AskedWalls, BackendKind, PathUse, Wish, Wishes};
use belljar_plan::{Fidelity, McpEntry, McpEnv, Scenario, Session};

/// What a trial is carried out for; what it would not use needs no agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialUse {
    /// It runs, and its rules open the network.
    Run,
    /// It runs, and nothing is dialled.
    RunOffline,
    /// It is staged and planned, and nothing runs.
    Inspect,
}

/// Who wrote down the hosts that a trial may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostsFrom {
    /// The suite's own session.
    Session,
    /// The user, on the command line.
    CommandLine,
}

/// What the user agreed to. Without it a trial that asks for something is neither staged nor run.
#[derive(Debug, Clone, PartialEq)]
pub struct Consent {
    /// What for.
    pub used_for: TrialUse,
    given: Vec<Wishes>,
}

impl Consent {
    /// The consent to these wishes and no others.
    #[must_use]
    pub fn to(used_for: TrialUse, given: Vec<Wishes>) -> Self {
        Self { used_for, given }
    }

    /// Whether these wishes were agreed to.
    #[must_use]
    pub fn covers(&self, wishes: &Wishes) -> bool {
        wishes.is_empty() || self.given.iter().any(|given| wishes.are_within(&given.to_json()))
    }
}

impl Trial {
    /// A file that is read for the trial beside those that it names.
    pub fn reads(&mut self, used_as: PathUse, path: AbsPath) {
        self.named.push((used_as, path));
    }

    /// What the trial asks for, as everything lies now.
    #[must_use]
    pub fn wishes(&self, walls: &AskedWalls, used_for: TrialUse) -> Wishes {
        let mut list: Vec<Wish> = Vec::new();
        let beyond = self.named.iter().filter(|(_, path)| !self.scope.holds(path));
        list.extend(beyond.map(|(used_as, path)| Wish::Path { path: really(path), used_as: *used_as }));
        let runs = match used_for {
            TrialUse::Run | TrialUse::RunOffline => true,
            TrialUse::Inspect => false,
        };
        if runs {
            // The command line's own backend is the user's word.
            list.extend(walls.backend.is_none().then(|| weaker(&self.scenario)).flatten());
            list.extend(self.found.servers.iter().flat_map(variables));
        }
        if used_for == TrialUse::Run && self.hosts_from == HostsFrom::Session {
            list.extend(hosts(&self.session));
        }
        Wishes::new(self.scope.suite.clone(), self.scope.root().cloned(), list)
    }
}

/// A backend that isolates less than the default one.
fn weaker(scenario: &Scenario) -> Option<Wish> {
    match scenario.fidelity? {
        Fidelity::Protocol => Some(Wish::Backend { backend: BackendKind::Host }),
        // Another tier is the default one, or refused.
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
