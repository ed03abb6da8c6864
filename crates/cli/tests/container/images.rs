//! Images of the user's own, made without a registry.

use super::{DEADLINE, engine, of_a_user, podman, without_root};
use crate::cmd::agent_path;
use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program, run_within};
use belljar_testkit::{agent, guest, require};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What a system needs for the scripts of these tests and of the examples.
const PROGRAMS: [&str; 18] = [
    "/bin/sh",
    "/bin/bash",
    "/usr/bin/awk",
    "/usr/bin/cat",
    "/usr/bin/cut",
    "/usr/bin/date",
    "/usr/bin/env",
    "/usr/bin/grep",
    "/usr/bin/head",
    "/usr/bin/id",
    "/usr/bin/ls",
    "/usr/bin/mkdir",
    "/usr/bin/rm",
    "/usr/bin/sed",
    "/usr/bin/sort",
    "/usr/bin/tail",
    "/usr/bin/touch",
    "/usr/bin/tr",
];

/// What an image must not decide, as its maker would want to.
const CONFIGURATION: [&str; 9] = [
    "ENTRYPOINT [\"/usr/bin/touch\",\"/entry\"]",
    "CMD [\"no-such-argument\"]",
    "ENV PATH=/nowhere",
    "ENV FROM_THE_IMAGE=1",
    "ENV LD_PRELOAD=/opt/tool/file",
    "USER 4242",
    "VOLUME /volume",
    "EXPOSE 80",
    "WORKDIR /volume",
];

/// A root file system that becomes an image.
pub struct System {
    pub stage: Stage,
}

impl System {
    /// Nothing but a program that needs nothing else.
    pub fn with_one_program() -> Self {
        let system = Self { stage: Stage::new() };
        system.stage.write("system/etc/from-the-image", "yes\n");
        fs::create_dir_all(system.stage.path("system/bin")).unwrap();
        let program = system.stage.path("system/bin/alone");
        copy_program(&guest::built().unwrap(), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        system
    }

    /// A shell and what it needs of this machine's C library, and what the agent needs of it.
    pub fn with_a_shell() -> Self {
        let system = Self::with_programs();
        system.take_libraries(&agent::real().unwrap());
        system
    }

    /// A shell and other programs.
    pub fn with_programs() -> Self {
        let system = Self { stage: Stage::new() };
        system.stage.write("system/etc/from-the-image", "yes\n");
        system.stage.write("system/etc/passwd", "root:x:0:0::/:/bin/sh\nother:x:4242:4242::/:/bin/sh\n");
        system.stage.write("system/etc/group", "root:x:0:\nmore:x:4711:root,other\n");
        system.stage.write("system/opt/tool/file", "a tool\n");
        system.stage.write("system/volume/kept", "in the image\n");
        system.stage.write("system/srv/data/file", "data\n");
        for program in PROGRAMS {
            system.take(Path::new(program));
        }
        system
    }

    pub fn take(&self, program: &Path) {
        self.copy(program);
        self.take_libraries(program);
    }

    fn take_libraries(&self, program: &Path) {
        let listed = Command::new("ldd").arg(program.canonicalize().unwrap()).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .for_each(|file| self.copy(Path::new(file)));
    }

    fn copy(&self, file: &Path) {
        let to = self.stage.path("system").join(file.strip_prefix("/").unwrap());
        if !to.exists() {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            copy_program(&file.canonicalize().unwrap(), &to).unwrap();
        }
    }

    /// All of it in a file.
    pub fn archive(&self) -> PathBuf {
        let archive = self.stage.path("system.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(self.stage.path("system")).arg("-cf").arg(&archive).arg(".");
        assert!(tar.status().unwrap().success());
        archive
    }

    /// Gives it to an engine, with what its maker says about it.
    pub fn import(&self, socket: &Path, changes: &[&str]) -> Imported {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("localhost/belljar-test/image:{}-{number}", std::process::id());
        let archive = self.archive();
        let mut query = vec![("fromSrc", "-"), ("repo", name.as_str())];
        query.extend(changes.iter().map(|change| ("changes", *change)));
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let answer = ask(
            socket,
            &["-X", "POST", "-H", "Content-Type: application/x-tar", "--data-binary"],
            Some(&format!("@{}", archive.display())),
            &format!("/images/create?{}", query.join("&")),
        );
        assert!(answer.contains("status"), "{answer}");
        Imported { socket: socket.to_owned(), name }
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Asks an engine, as belljar would not.
pub fn ask(socket: &Path, options: &[&str], last: Option<&str>, target: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--fail-with-body", "--unix-socket"]).arg(socket).args(options).args(last);
    let answer = run_within(curl.arg(format!("http://engine/v1.40{target}")), DEADLINE).unwrap();
    assert!(answer.status.success(), "{target}: {answer:?}");
    answer.stdout
}

/// An image that an engine has until the end of the test.
pub struct Imported {
    socket: PathBuf,
    pub name: String,
}

impl Imported {
    /// The binary, with a sandbox of this image.
    fn command(&self, stage: &Stage, args: &[&str]) -> Command {
        let (verb, rest) = args.split_first().unwrap();
        let options = [*verb, "--backend", "container", "--image", &self.name];
        let mut command = stage.command(&[&options[..], rest].concat());
        command.env("BELLJAR_ENGINE", &self.socket).env("PATH", agent_path());
        command
    }

    fn run(&self, stage: &Stage, args: &[&str]) -> Finished {
        run_within(&mut self.command(stage, args), DEADLINE).unwrap()
    }

    fn sh(&self, stage: &Stage, script: &str) -> Finished {
        self.run(stage, &["exec", "--yes", "--", "sh", "-c", script])
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let target = format!("http://engine/v1.40/images/{}?force=true", self.name);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-X", "DELETE", "--unix-socket"]).arg(&self.socket).arg(target);
        curl.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    }
}

/// A program that needs no library runs where there is none, and what is missing for others is said.
pub fn an_image_of_one_program(socket: &Path) {
    let stage = Stage::new();
    let image = System::with_one_program().import(socket, &[]);
    let found = image.run(&stage, &["exec", "--", "/bin/alone", "--version"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(found.stdout.starts_with("belljar-guest "), "{found:?}");
    let shell = image.run(&stage, &["shell"]);
    assert_eq!(shell.status.code(), Some(127), "{shell:?}");
    assert!(shell.stderr.contains("`/bin/sh` was not found in the sandbox"), "{}", shell.stderr);
    let hint = format!("hint: the image `{}` lacks it", image.name);
    assert!(shell.stderr.contains(&hint), "{}", shell.stderr);
    stage.write("project/script.json", crate::cmd::HELLO);
    let run = image.run(&stage, &["run", "--script", "script.json", "--", "-p", "hello"]);
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    let lacks = format!("the image `{}` has no `/lib64/ld-linux-x86-64.so.2`", image.name);
    assert!(run.stderr.contains(&lacks), "{}", run.stderr);
}

/// What an image says about itself decides nothing, and nothing but the image and the plan is seen.
pub fn what_an_image_says_decides_nothing(socket: &Path, more: &[&str]) {
    let stage = Stage::new();
    stage.write("outside.txt", "secret\n");
    let image = System::with_a_shell().import(socket, &[&CONFIGURATION[..], more].concat());
    let script = "id; grep Groups /proc/self/status; echo \"$PATH ${FROM_THE_IMAGE-unset} $PWD\"; \
        ls -A /run /run/belljar; cat /etc/from-the-image /opt/tool/file /srv/data/file; cut -d: -f1 /etc/passwd; \
        ls -A / | grep -v dockerenv; \
        for path in /x /etc/x /opt/x /opt/tool/x /srv/data/x /volume/x /entry; do touch $path 2>/dev/null && echo made $path; done; \
        grep -E '^(Cap(Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status; tail -n +3 /proc/net/dev | cut -d: -f1; \
        echo made > made; cat ../outside.txt /run/belljar.host/* 2>/dev/null; ls -A ..";
    let found = image.sh(&stage, script);
    let project = stage.path("project").display().to_string();
    let expected = format!(
        "uid=1000(agent) gid=1000(agent) groups=1000(agent)\nGroups:\t1000 \n\
         /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin unset {project}\n\
         /run:\nbelljar\n\n/run/belljar:\nyes\na tool\ndata\nroot\nagent\nnobody\n\
         bin\ndev\netc\nhome\nlib\nlib64\nopt\nproc\nrun\nsrv\ntmp\nusr\nvar\n\
         CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n    lo\nproject\n"
    );
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), expected.as_str()),
        "{}",
        found.stderr
    );
    assert_eq!(fs::read_to_string(stage.path("project/made")).unwrap(), "made\n");
    let volumes: serde_json::Value = serde_json::from_str(&ask(socket, &[], None, "/volumes")).unwrap();
    assert!(volumes["Volumes"].as_array().is_none_or(Vec::is_empty), "{volumes}");
}

/// The health check of an image does not run: it would run beside the guest, without its restrictions.
pub fn nothing_of_the_image_runs_beside_the_guest(socket: &Path, image: &str) {
    let stage = Stage::new();
    let args =
        ["exec", "--yes", "--backend", "container", "--image", image, "--", "sh", "-c", "echo up; cat"];
    let mut command = stage.command(&args);
    command.env("BELLJAR_ENGINE", socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    let filter = escaped(&format!("{{\"name\":[\"default-{}\"]}}", child.id()));
    let listed: serde_json::Value =
        serde_json::from_str(&ask(socket, &[], None, &format!("/containers/json?filters={filter}"))).unwrap();
    let id = listed[0]["Id"].as_str().unwrap().to_owned();
    // As often as it is wanted, once a second.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until {
        let shown: serde_json::Value =
            serde_json::from_str(&ask(socket, &[], None, &format!("/containers/{id}/json"))).unwrap();
        let test = &shown["Config"]["Healthcheck"]["Test"];
        assert!(test.is_null() || test == &serde_json::json!(["NONE"]), "{test}");
        let tried = shown["State"]["Health"]["Log"].as_array().map_or(0, Vec::len);
        assert_eq!(tried, 0, "{}", shown["State"]);
        std::thread::sleep(Duration::from_millis(200));
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// An example passes with the system of an image, and what the image lacks is said.
pub fn an_example_passes_in_an_image(socket: &Path) {
    let stage = Stage::new();
    let image = System::with_a_shell().import(socket, &[]);
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/changelog").canonicalize().unwrap();
    let found = image.run(&stage, &["test", "--scripted", &example.display().to_string()]);
    let said = format!("{}{}", found.stdout, found.stderr);
    assert_eq!(found.status.code(), Some(0), "{said}");
    assert!(said.contains("changelog: passed"), "{said}");
    for lacking in ["git: repositories cannot be used", "TLS roots"] {
        assert!(said.contains(&format!("the image `{}` has no {lacking}", image.name)), "{said}");
    }
}

/// Links in the places of directories that the sandbox makes lead nowhere.
#[test]
fn an_image_of_links_leads_nothing_elsewhere() {
    require!(Podman, Agent, Curl);
    let stage = Stage::new();
    let system = System::with_a_shell();
    for (name, to) in
        [("etc", "/opt/tool"), ("home", "/srv/data"), ("tmp", "/mnt"), ("var", "../../proc/1/root")]
    {
        let path = system.stage.path("system").join(name);
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
        system.stage.link(&format!("system/{name}"), to);
    }
    let image = system.import(engine(), &[]);
    let found = image.sh(
        &stage,
        "for name in etc home tmp var; do test -h /$name && echo link $name; done; cut -d: -f1 /etc/passwd; \
         touch /tmp/x && ls -A /tmp | grep -x x; ls -A /home /srv/data /var; touch /etc/x || echo closed",
    );
    let expected = "root\nagent\nnobody\nx\n/home:\nagent\n\n/srv/data:\nfile\n\n/var:\ntmp\nclosed\n";
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), expected), "{}", found.stderr);
    // At the paths of belljar's own files it is refused, also if a link leads there.
    let system = System::with_a_shell();
    system.stage.link("system/run", "/srv/data");
    let found = system.import(engine(), &[]).sh(&stage, "true");
    assert_eq!(found.status.code(), Some(125), "{found:?}");
}

#[test]
fn a_program_that_needs_nothing_runs_in_an_image_with_nothing() {
    require!(Podman, Agent, Curl, Guest);
    an_image_of_one_program(engine());
}

#[test]
fn the_configuration_of_an_image_does_not_matter() {
    require!(Podman, Agent, Curl);
    what_an_image_says_decides_nothing(engine(), &[]);
}

#[test]
fn podman_without_root_takes_an_image_as_well() {
    require!(Podman, Root, Agent, Curl);
    let stage = of_a_user();
    assert_eq!(without_root(&stage, &[], &["true"]).status.code(), Some(0));
    let socket = stage.path("home/.local/state/belljar/run/engine/podman.sock");
    let image = System::with_a_shell().import(&socket, &CONFIGURATION);
    let script = "id; cat /etc/from-the-image; touch /x /opt/tool/x 2>/dev/null || echo closed; echo made > made; \
        grep CapEff /proc/self/status; ls -A /run";
    let found = without_root(&stage, &["--image", &image.name], &["sh", "-c", script]);
    let expected = "uid=1000(agent) gid=1000(agent) groups=1000(agent)\nyes\nclosed\n\
        CapEff:\t0000000000000000\nbelljar\n";
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), expected), "{}", found.stderr);
    assert_eq!(fs::metadata(stage.path("project/made")).unwrap().uid(), 65534);
}

#[test]
fn the_health_of_an_image_is_not_tried() {
    require!(Podman, Agent, Curl);
    let image = System::with_a_shell().import(engine(), &[]);
    let stage = Stage::new();
    let file =
        format!("FROM {}\nHEALTHCHECK --interval=1s CMD [\"/usr/bin/touch\", \"/tried\"]\n", image.name);
    stage.write("Containerfile", file);
    let name = format!("{}-tried", image.name);
    podman(&["build", "--format", "docker", "-q", "-t", &name, &stage.path("").display().to_string()]);
    let tried = Imported { socket: engine().clone(), name };
    nothing_of_the_image_runs_beside_the_guest(engine(), &tried.name);
}

#[test]
fn an_example_passes_with_the_system_of_an_image() {
    require!(Podman, Agent, Curl);
    an_example_passes_in_an_image(engine());
}

#[test]
fn an_image_that_is_not_there_is_refused_before_anything_is_made() {
    require!(Podman);
    let manifest = |image: &str| format!("[agents.a]\nbackend = \"container\"\nimage = \"{image}\"\n");
    for (image, hint) in [
        (
            "example.org/not/there:1",
            "belljar fetches nothing by itself: `podman pull example.org/not/there:1`",
        ),
        ("localhost/not-there:1", "make it with `podman build -t localhost/not-there:1 …`"),
    ] {
        let stage = Stage::with(&manifest(image));
        let mut command = stage.command(&["exec", "--yes", "--", "true"]);
        let found = run_within(command.env("BELLJAR_ENGINE", engine()), DEADLINE).unwrap();
        assert_eq!(found.status.code(), Some(125), "{found:?}");
        assert!(found.stderr.contains(&format!("has no image `{image}`")), "{}", found.stderr);
        assert!(found.stderr.contains(hint), "{}", found.stderr);
        assert!(!stage.path("data/belljar").exists(), "nothing was made");
    }
}

#[test]
fn an_image_for_another_machine_is_refused_by_name() {
    require!(Podman, Curl, Guest);
    let stage = Stage::new();
    let name = format!("localhost/belljar-test/foreign:{}", std::process::id());
    let system = System::with_one_program();
    let foreign = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let directory = system.stage.path("system");
    stage.write("Containerfile", "FROM scratch\nCOPY . /\n");
    let file = stage.path("Containerfile").display().to_string();
    let build = ["build", "-q", "--arch", foreign, "-f", &file, "-t", &name];
    podman(&[&build[..], &[&directory.display().to_string()]].concat());
    let image = Imported { socket: engine().clone(), name };
    let mut command = stage.command(&[
        "exec",
        "--backend",
        "container",
        "--image",
        &image.name,
        "--",
        "/bin/alone",
        "--version",
    ]);
    let found = run_within(command.env("BELLJAR_ENGINE", engine()), DEADLINE).unwrap();
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(
        found.stderr.contains(&format!("the image `{}` is made for {foreign}; this machine is", image.name)),
        "{}",
        found.stderr
    );
}

#[test]
fn another_image_is_another_plan_and_needs_another_agreement() {
    let manifest = |image: &str| format!("[agents.a]\nbackend = \"container\"\nimage = \"{image}\"\n");
    let stage = Stage::with(&manifest("debian:12"));
    let plan = |stage: &Stage| stage.run(&["plan", "--json"]);
    let digest = |found: &Finished| -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
        assert!(value["data"]["plan"]["image"].is_string(), "{value:#}");
        value["data"]["digest"].clone()
    };
    let first = digest(&plan(&stage));
    assert!(stage.run(&["plan"]).stdout.contains("container of the image debian:12"));
    let why = stage.run(&["plan", "--why", "image"]);
    assert_eq!(why.stdout, "image = debian:12\n  belljar.toml:3:9\n", "{}", why.stderr);
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0));
    stage.write("project/belljar.toml", manifest("debian:13"));
    assert_ne!(digest(&plan(&stage)), first);
    let mut exec = stage.command(&["exec", "--", "true"]);
    let found = stage.finish(exec.stdin(Stdio::null()));
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(found.stderr.contains("debian:13"), "what has changed is shown: {}", found.stderr);
    let lowered = stage.run(&["plan", "--lowered"]).stdout;
    for line in ["--image debian:13", "image read-only /", ":/run/belljar.host/"] {
        assert!(lowered.contains(line), "{line}: {lowered}");
    }
    assert!(!lowered.contains("/usr:/usr"), "{lowered}");
    // The user's own file is the base, and what the command line says comes last.
    stage.write("config/belljar/belljar.toml", manifest("debian:11"));
    stage.write("project/belljar.toml", "[agents.b]\n");
    assert_eq!(stage.run(&["plan", "a", "--why", "image"]).stdout.lines().next(), Some("image = debian:11"));
    let asked = stage.run(&["plan", "a", "--image", "alpine", "--why", "image"]);
    assert_eq!(asked.stdout, "image = alpine\n  given by hand: --image, for this run\n", "{}", asked.stderr);
}

#[test]
fn what_the_images_of_a_manifest_lack_is_said_without_running_them() {
    require!(Podman, Curl, Guest);
    let image = System::with_one_program().import(engine(), &["ENTRYPOINT [\"/bin/alone\"]"]);
    let manifest = |name: &str| format!("[agents.{name}]\nbackend = \"container\"\n");
    let stage = Stage::with(&format!(
        "{}image = \"{}\"\n{}image = \"localhost/not-there\"\n",
        manifest("a"),
        image.name,
        manifest("b")
    ));
    let mut doctor = stage.command(&["doctor"]);
    let found = run_within(doctor.env("BELLJAR_ENGINE", engine()), DEADLINE).unwrap();
    let lacks = format!("`{}` has no", image.name);
    let line = found.stdout.lines().find(|line| line.contains(&lacks)).unwrap_or_default();
    for what in ["no shell", "no git", "no TLS roots"] {
        assert!(line.contains(what), "{what}: {}", found.stdout);
    }
    assert!(found.stdout.contains("has no image `localhost/not-there`"), "{}", found.stdout);
}
