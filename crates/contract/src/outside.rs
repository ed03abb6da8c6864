//! Every program that belljar starts outside the sandbox.
//!
//! A start carries the comment `// outside: ID`; `cargo xtask outside` fails for a start without one, for an id that is
//! not listed here, and for a row that nothing starts.

/// A program that belljar starts outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutsideProgram {
    /// What the comment at its start says.
    pub id: &'static str,
    /// The program.
    pub program: &'static str,
    /// When it is started.
    pub when: &'static str,
    /// Its current directory.
    pub directory: &'static str,
    /// Its environment.
    pub environment: &'static str,
    /// What it reads on its standard input.
    pub input: &'static str,
}

/// The programs.
pub const OUTSIDE: &[OutsideProgram] = &[
    OutsideProgram {
        id: "agent-version",
        program: "the agent's program with `--version`, as your `PATH` has it",
        when: "before a test, once for each version that is installed",
        directory: "an empty temporary directory",
        environment: "`HOME`, the temporary directory, and `PATH=/usr/bin:/bin`",
        input: "nothing",
    },
    OutsideProgram {
        id: "bwrap",
        program: "`bwrap`, from your `PATH` without entries of the project",
        when: "a sandbox of the backend `bwrap` is built",
        directory: "`/`",
        environment: "nothing",
        input: "nothing",
    },
    OutsideProgram {
        id: "decider-command",
        program: "`/bin/sh -c` with what `--decider-cmd` says",
        when: "a question of the agent is to be decided by your command",
        directory: "yours",
        environment: "yours",
        input: "the questions, one JSON object a line",
    },
    OutsideProgram {
        id: "doctor-sandbox",
        program: "belljar itself: `exec -- true`",
        when: "`belljar doctor`",
        directory: "an empty temporary directory",
        environment: "`HOME`, the temporary directory, `PATH`, and what names the container engine",
        input: "nothing",
    },
    OutsideProgram {
        id: "doctor-version",
        program: "the programs that belljar uses, with `--version`, from your `PATH` without entries of the project",
        when: "`belljar doctor`",
        directory: "`/`",
        environment: "the system's `PATH`",
        input: "nothing",
    },
    OutsideProgram {
        id: "host-command",
        program: "the agent, or the command of `exec`",
        when: "the backend is `host`, which builds no sandbox",
        directory: "the project",
        environment: "what the plan lists",
        input: "yours, or the conversation",
    },
    OutsideProgram {
        id: "podman-service",
        program: "`podman system service`",
        when: "the backend is `container` and no engine serves yet, or `belljar gc` looks for what an interrupted command left in one",
        directory: "`/`",
        environment: "`HOME`, `PATH` without entries of the project, and the variables that configure podman",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-attempt",
        program: "`sh -c` with a probe's own script",
        when: "`belljar prove` shows that a probe would succeed without a sandbox",
        directory: "a made-up project",
        environment: "made up",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-belljar",
        program: "belljar itself: `exec`, `run`, `plan` and `skill`",
        when: "`belljar prove`",
        directory: "a made-up project",
        environment: "made up, with your `PATH`",
        input: "nothing, or what the probe is about",
    },
    OutsideProgram {
        id: "prove-git",
        program: "`git`, of the system's path",
        when: "`belljar prove` makes a repository, and looks at it afterwards",
        directory: "a made-up project",
        environment: "made up",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-probe",
        program: "`sh`, which starts belljar's own prober",
        when: "`belljar prove` shows that a probe would succeed without a sandbox",
        directory: "a made-up project",
        environment: "made up",
        input: "nothing, or what the probe is about",
    },
    OutsideProgram {
        id: "prove-sleeper",
        program: "`cat`, of the system's path",
        when: "`belljar prove`: a process whose command line and environment hold made-up secrets",
        directory: "`/`",
        environment: "made up",
        input: "a pipe to which nothing is written",
    },
    OutsideProgram {
        id: "ssh-tool",
        program: "`ssh-keygen`, `ssh-add`, and `ssh-agent` under a shell, from your `PATH` without entries of the project",
        when: "the plan has `ssh` entries",
        directory: "`/`",
        environment: "`HOME`, `PATH` without entries of the project, and what is needed to ask for a passphrase",
        input: "nothing; a terminal is asked for a passphrase",
    },
    OutsideProgram {
        id: "suite-worker",
        program: "belljar itself",
        when: "a suite of tests, one for each that runs",
        directory: "yours",
        environment: "yours",
        input: "a pipe to which nothing is written",
    },
    OutsideProgram {
        id: "value-command",
        program: "what `env.NAME = { command = [...] }` or a credential names: below the manifest's directory where it has a \
                  slash, else from absolute entries of your `PATH`",
        when: "a plan that you agreed to is carried out; files of the project are compared with what you agreed to first",
        directory: "`/`",
        environment: "yours, with `PATH` without entries of the project",
        input: "nothing",
    },
];
