//! The exit codes of all commands, with one meaning each.

/// The result of a command as an exit status.
///
/// `run`, `exec` and `shell` pass on the status of the command and use [`ExitCode::LaunchFailed`],
/// [`ExitCode::NotExecutable`] and [`ExitCode::NotFound`] for their own failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The command did what was asked, and every check passed.
    Passed = 0,
    /// A check failed.
    Failed = 1,
    /// The command line or a file is not valid.
    Invalid = 2,
    /// The evidence needed for a verdict is missing.
    Unverified = 3,
    /// This machine cannot honour the plan.
    Unsupported = 4,
    /// The agent, or the harness around it, failed.
    AgentFailed = 5,
    /// A budget was reached.
    Budget = 6,
    /// A replay drifted from its tape.
    Drifted = 7,
    /// A bug in belljar.
    Bug = 70,
    /// belljar could not build the sandbox or keep the record of the run: the agent is not to blame.
    LaunchFailed = 125,
    /// `run`, `exec`, `shell`: the command is not executable.
    NotExecutable = 126,
    /// `run`, `exec`, `shell`: the command was not found.
    NotFound = 127,
    /// A signal ended the command before everything was run.
    Interrupted = 130,
}

impl ExitCode {
    /// Every code in numeric order, for generated references.
    pub const ALL: [ExitCode; 13] = [
        ExitCode::Passed,
        ExitCode::Failed,
        ExitCode::Invalid,
        ExitCode::Unverified,
        ExitCode::Unsupported,
        ExitCode::AgentFailed,
        ExitCode::Budget,
        ExitCode::Drifted,
        ExitCode::Bug,
        ExitCode::LaunchFailed,
        ExitCode::NotExecutable,
        ExitCode::NotFound,
        ExitCode::Interrupted,
    ];

    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The code for an exit status; `None` for any other status.
    #[must_use]
    pub fn from_status(status: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| i32::from(code.code()) == status)
    }

    /// Combines many results into the one that a person must look at first.
    #[must_use]
    pub fn worst(exits: impl IntoIterator<Item = Self>) -> Self {
        const ORDER: [ExitCode; 13] = [
            ExitCode::Bug,
            ExitCode::Interrupted,
            ExitCode::Failed,
            ExitCode::AgentFailed,
            ExitCode::Budget,
            ExitCode::Drifted,
            ExitCode::Unverified,
            ExitCode::Unsupported,
            ExitCode::Invalid,
            ExitCode::LaunchFailed,
            ExitCode::NotExecutable,
            ExitCode::NotFound,
            ExitCode::Passed,
        ];
        let rank = |exit: &Self| ORDER.iter().position(|known| known == exit);
        exits.into_iter().min_by_key(rank).unwrap_or(ExitCode::Passed)
    }

    /// The code of a command that ran many, of which a signal may have ended some.
    #[must_use]
    pub fn of_all(exits: impl IntoIterator<Item = Self>, interrupted: bool) -> Self {
        Self::worst(exits.into_iter().chain(interrupted.then_some(Self::Interrupted)))
    }

    /// What the code means, in one line.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            ExitCode::Passed => "done, everything passed",
            ExitCode::Failed => "a check failed",
            ExitCode::Invalid => "the command line or a file is not valid",
            ExitCode::Unverified => "could not verify: evidence is missing",
            ExitCode::Unsupported => "this machine cannot honour the plan",
            ExitCode::AgentFailed => "the agent or its harness failed",
            ExitCode::Budget => "a budget was reached",
            ExitCode::Drifted => "the replay drifted from its tape",
            ExitCode::Bug => "a bug in belljar",
            ExitCode::LaunchFailed => {
                "the run could not be started (no sandbox, no credential), or not recorded"
            }
            ExitCode::NotExecutable => "run, exec, shell: the command is not executable",
            ExitCode::NotFound => "run, exec, shell: the command was not found",
            ExitCode::Interrupted => "interrupted before everything was run",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode;

    #[test]
    fn an_interrupt_comes_before_every_result_but_a_bug() {
        for code in ExitCode::ALL {
            let expected = if code == ExitCode::Bug { code } else { ExitCode::Interrupted };
            assert_eq!(ExitCode::of_all([ExitCode::Passed, code], true), expected, "{code:?}");
            assert_eq!(ExitCode::of_all([ExitCode::Passed, code], false), code, "{code:?}");
        }
        assert_eq!(ExitCode::of_all([], true), ExitCode::Interrupted);
    }

    #[test]
    fn the_worst_code_is_the_one_to_look_at_first() {
        use ExitCode::{Bug, Drifted, Failed, Invalid, Passed, Unverified};
        for (codes, expected) in [
            (&[][..], Passed),
            (&[Passed, Passed], Passed),
            (&[Passed, Invalid, Unverified], Unverified),
            (&[Drifted, Failed, Passed], Failed),
            (&[Failed, Bug], Bug),
        ] {
            assert_eq!(ExitCode::worst(codes.iter().copied()), expected, "{codes:?}");
        }
        for code in ExitCode::ALL {
            assert_eq!(ExitCode::worst([code, Passed]), code);
            // A code that the order does not have would rank before all others.
            assert!(code == Bug || ExitCode::worst([code, Bug]) == Bug, "{code:?}");
            assert_eq!(ExitCode::from_status(code.code().into()), Some(code));
        }
    }
}
