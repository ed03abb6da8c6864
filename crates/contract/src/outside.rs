//! Every program that belljar starts outside the sandbox.
//!
//! Each place that starts one has the comment `// outside: ID`; `cargo xtask outside` fails for a start without one,
//! for an id that is not listed here, and for a row that nothing starts.

/// A program that belljar starts outside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutsideProgram {
    /// The id in the comment where it is started.
    pub id: &'static str,
    pub program: &'static str,
    /// When it is started.
    pub when: &'static str,
    pub directory: &'static str,
    pub environment: &'static str,
    /// What it gets on its standard input.
    pub input: &'static str,
}

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
        program: "`/bin/sh -c` with the value of `--decider-cmd`",
        when: "your command decides a question of the agent",
        directory: "yours",
        environment: "yours",
        input: "the questions, one JSON object a line",
    },
    OutsideProgram {
        id: "doctor-sandbox",
        program: "belljar itself: `exec -- true`",
        when: "`belljar doctor`",
        directory: "an empty temporary directory",
        environment: "`HOME`, the temporary directory, `PATH`, and the variables that name the container engine",
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
        environment: "the variables that the plan lists",
        input: "yours, or the conversation",
    },
    OutsideProgram {
        id: "podman-service",
        program: "`podman system service`",
        when: "the backend is `container` and no engine serves yet, or `belljar gc` looks for leftovers of interrupted commands in one",
        directory: "`/`",
        environment: "`HOME`, `PATH` without entries of the project, and the variables that configure podman",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-attempt",
        program: "`sh -c` with a probe's own script",
        when: "`belljar prove` shows that a probe would succeed without a sandbox",
        directory: "a made-up project",
        environment: "generated",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-belljar",
        program: "belljar itself: `exec`, `run`, `plan` and `skill`",
        when: "`belljar prove`",
        directory: "a made-up project",
        environment: "generated, with your `PATH`",
        input: "nothing, or the probe's own data",
    },
    OutsideProgram {
        id: "prove-git",
        program: "`git`, from the system's path",
        when: "`belljar prove` makes a repository, and looks at it afterwards",
        directory: "a made-up project",
        environment: "generated",
        input: "nothing",
    },
    OutsideProgram {
        id: "prove-probe",
        program: "`sh`, which starts belljar's own prober",
        when: "`belljar prove` shows that a probe would succeed without a sandbox",
        directory: "a made-up project",
        environment: "generated",
        input: "nothing, or the probe's own data",
    },
    OutsideProgram {
        id: "prove-sleeper",
        program: "`cat`, from the system's path",
        when: "`belljar prove`: a process whose command line and environment hold made-up secrets",
        directory: "`/`",
        environment: "generated",
        input: "a pipe to which nothing is written",
    },
    OutsideProgram {
        id: "ssh-tool",
        program: "`ssh-keygen`, `ssh-add`, and `ssh-agent` under a shell, from your `PATH` without entries of the project",
        when: "the plan has `ssh` entries",
        directory: "`/`",
        environment: "`HOME`, `PATH` without entries of the project, and the variables that are needed to ask for a passphrase",
        input: "nothing; a terminal is asked for a passphrase",
    },
    OutsideProgram {
        id: "suite-worker",
        program: "belljar itself",
        when: "a suite of tests, once for each run of a scenario",
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
