//! Images of a base: a registry on the loopback, and a podman with a store of its own.

use super::images::{System, ask};
use super::registry::Registry;
use super::{DEADLINE, of_a_user};
use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// This kind of machine and another, as images name them.
const MACHINES: [&str; 2] =
    if cfg!(target_arch = "x86_64") { ["amd64", "arm64"] } else { ["arm64", "amd64"] };

/// A stage with a podman of its own: no other test sees its images.
pub struct Own {
    pub stage: Stage,
}

impl Own {
    pub fn on(stage: Stage) -> Self {
        // Of all drivers this one mounts nothing, so that the directory can be removed.
        let store = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
            stage.path("images").display(),
            stage.path("images.run").display()
        );
        stage.write("storage.conf", store);
        stage.write("registries.conf", "");
        Self { stage }
    }

    fn of(registry: &Registry) -> Self {
        let own = Self::on(Stage::new());
        own.allow(registry);
        own
    }

    /// Podman may ask it without TLS.
    fn allow(&self, registry: &Registry) {
        let registries = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.address);
        self.stage.write("registries.conf", registries);
    }

    /// What tells belljar and podman about it.
    pub fn environment(stage: &Stage) -> [(&'static str, PathBuf); 3] {
        [
            ("BELLJAR_ENGINE", "podman".into()),
            ("CONTAINERS_STORAGE_CONF", stage.path("storage.conf")),
            ("CONTAINERS_REGISTRIES_CONF", stage.path("registries.conf")),
        ]
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.stage.command(args);
        command.envs(Self::environment(&self.stage));
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        run_within(&mut self.command(args), DEADLINE).unwrap()
    }

    /// Gives it an image as if it had been fetched.
    pub fn import(&self, name: &str, system: &System) {
        assert_eq!(self.run(&["image", "list"]).status.code(), Some(0));
        let archive = format!("@{}", system.archive().display());
        let options = ["-X", "POST", "-H", "Content-Type: application/x-tar", "--data-binary", &archive];
        self.ask(&options, &format!("/images/create?fromSrc=-&repo={name}"));
    }

    fn build(&self, base: &str, more: &[&str]) -> Finished {
        self.run(&[&["image", "build", "--from", base], more].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let found = self.run(&[args, &["--json"]].concat());
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        serde_json::from_str::<Value>(&found.stdout).unwrap()["data"].take()
    }

    /// Asks its engine, as belljar would not.
    fn ask(&self, options: &[&str], target: &str) -> Value {
        let places =
            ["home/.local/state/belljar/run/engine/podman.sock", "runtime/belljar/engine/podman.sock"];
        let socket = places.iter().map(|place| self.stage.path(place)).find(|socket| socket.exists());
        let socket = socket.expect("another podman serves on this machine, which these tests leave alone");
        serde_json::from_str(&ask(&socket, options, None, target)).unwrap()
    }

    /// The names of its images; one without has an empty list.
    fn images(&self) -> Vec<Vec<String>> {
        let list = self.ask(&[], "/images/json?all=true");
        let name = |name: &Value| name.as_str().unwrap().to_owned();
        let names = |image: &Value| image["RepoTags"].as_array().into_iter().flatten().map(name).collect();
        list.as_array().unwrap().iter().map(names).collect()
    }

    /// Ends its podman, which would otherwise write into the directory once more when it ends by itself.
    pub fn end(self) {
        let home = format!("HOME={}", self.stage.path("home").display());
        let of_it = |process: &PathBuf| {
            let variables = fs::read(process.join("environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
        };
        let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let left: Vec<PathBuf> = all.filter(of_it).collect();
        let numbers = left.iter().filter_map(|process| process.file_name());
        Command::new("kill").args(numbers).status().unwrap();
        let until = Instant::now() + DEADLINE;
        while left.iter().any(of_it) {
            assert!(Instant::now() < until, "they do not end: {left:?}");
        }
    }

    /// Neither a container nor one that only a build knows.
    #[track_caller]
    fn assert_no_container(&self) {
        let left = self.ask(&[], "/libpod/containers/json?all=true&external=true");
        assert_eq!(left.as_array().map_or(0, Vec::len), 0, "{left:#}");
    }
}

/// A base that lacks git and the roots of TLS, and has a manager that does this.
fn base(manager: &str) -> System {
    let system = System::with_programs();
    system.take("/usr/bin/chmod".as_ref());
    let path = "system/usr/bin/apt-get";
    system.stage.write(path, format!("#!/bin/sh\necho \"$@\" >> /asked\n{manager}"));
    fs::set_permissions(system.stage.path(path), Permissions::from_mode(0o755)).unwrap();
    system
}

/// Everything that is looked for, with nothing in it: none of it can run.
pub fn hollow() -> System {
    let system = System { stage: Stage::new() };
    for name in ["bin/sh", "bin/bash", "usr/bin/git", "etc/ssl/certs/ca-certificates.crt"] {
        system.stage.write(&format!("system/{name}"), "");
    }
    system
}

/// Installs what is asked for.
const INSTALLS: &str = "[ $1 = install ] || exit 0\n\
    printf '#!/bin/sh\\necho git of the base\\n' > /usr/bin/git; chmod 755 /usr/bin/git\n\
    mkdir -p /etc/ssl/certs; echo roots > /etc/ssl/certs/ca-certificates.crt\n";

#[test]
fn a_base_is_fetched_and_completed_once() {
    require!(Podman, Curl);
    let registry = Registry::start();
    // A service of this machine is out of reach for what is installed.
    let port = registry.address.rsplit(':').next().unwrap();
    let reach =
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo reached >> /asked\n");
    let system = base(&format!("{reach}{INSTALLS}"));
    let base = registry.publish("team/base", &system.archive(), MACHINES[0]);
    let own = Own::of(&registry);
    let found = own.build(&base, &[]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let name = found.stdout.lines().next().unwrap().strip_prefix("made ").unwrap().to_owned();
    let digits = name.strip_prefix("localhost/belljar/from:").unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(found.stdout, format!("made {name}\nimage = \"{name}\"\n"));
    let asked = registry.asked();
    assert!(asked > 0);

    let again = own.build(&base, &[]);
    assert_eq!(again.stdout, format!("{name} already exists\nimage = \"{name}\"\n"), "{}", again.stderr);
    let reported = own.json(&["image", "build", "--from", &base]);
    assert_eq!(reported["outcome"], "there");
    assert_eq!(reported["manifest"], format!("image = \"{name}\""));
    assert_eq!(
        (reported["image"]["name"].as_str(), reported["image"]["base"].as_str()),
        (Some(&*name), Some(&*base))
    );
    let made = own.json(&["image", "build", "--from", &base, "--rebuild"]);
    assert_eq!((&made["outcome"], &made["image"]["name"]), (&"made".into(), &reported["image"]["name"]));
    assert_ne!(made["image"]["id"], reported["image"]["id"]);
    assert_eq!(registry.asked(), asked, "what the engine has is not fetched again");

    let mut images = own.images();
    images.sort();
    assert_eq!(images, [vec![base.clone()], vec![name.clone()]], "nothing else is left");
    own.assert_no_container();
    let list = own.run(&["image", "list"]).stdout;
    assert!(list.contains(&name) && list.trim_end().ends_with(&format!("  made from {base}")), "{list}");

    let script =
        "git; cat /asked /etc/ssl/certs/ca-certificates.crt; id -u; touch /x 2>/dev/null || echo closed";
    let args = ["exec", "--yes", "--backend", "container", "--image", &name, "--", "sh", "-c", script];
    let inside = own.run(&args);
    let expected = "git of the base\nupdate\ninstall -y --no-install-recommends git ca-certificates\nroots\n1000\nclosed\n";
    assert_eq!((inside.status.code(), inside.stdout.as_str()), (Some(0), expected), "{}", inside.stderr);

    // It stays for as long as its base has its name, and another base is another image.
    assert_eq!(own.json(&["image", "prune"])["removed"].as_array().map(Vec::len), Some(0));
    let other = registry.publish("team/other", &hollow().archive(), MACHINES[0]);
    let other = own.json(&["image", "build", "--from", &other]);
    assert_ne!(other["image"]["name"], name.as_str());
    own.ask(&["-X", "DELETE"], &format!("/images/{base}"));
    let list = own.run(&["image", "list"]).stdout;
    assert!(list.contains(&format!("  made from {base}, not current\n")), "{list}");
    let removed = own.json(&["image", "prune"])["removed"].take();
    assert_eq!(removed.as_array().map(Vec::len), Some(1), "{removed:#}");
    assert_eq!(removed[0]["name"], name.as_str());
    let left = own.json(&["image", "list"])["images"].take();
    assert_eq!(left[0]["name"], other["image"]["name"], "{left:#}");
    let gone = own.run(&args);
    assert_eq!(gone.status.code(), Some(125), "{gone:?}");
    assert!(gone.stderr.contains("`belljar image build --from BASE` makes it"), "{}", gone.stderr);
    own.end();
}

#[test]
fn podman_without_root_makes_images_of_a_base_as_well() {
    require!(Podman, Curl, Root);
    let registry = Registry::start();
    let own = Own { stage: of_a_user() };
    own.allow(&registry);
    let path = |name: &str| own.stage.path(name);
    fs::create_dir(path("runtime")).unwrap();
    fs::set_permissions(path("runtime"), Permissions::from_mode(0o700)).unwrap();
    chown(path("runtime"), Some(65534), Some(65534)).unwrap();
    // Without root a network is made with this device, which is not for everybody on every machine.
    let mut device = Command::new("mknod");
    device.args(["-m", "666"]).arg(path("tun")).args(["c", "10", "200"]);
    assert!(device.status().unwrap().success());
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /dev/net/tun && exec setpriv \"$@\""]);
        command.arg(path("tun")).args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(path("belljar")).args(args).current_dir(path("project"));
        command.env_clear().envs(own.stage.environment()).env("BELLJAR_ENGINE", "podman");
        command.env("CONTAINERS_REGISTRIES_CONF", path("registries.conf"));
        // Podman enters the namespaces that it finds here, and those know the device.
        command.env("XDG_RUNTIME_DIR", path("runtime"));
        run_within(&mut command, DEADLINE).unwrap()
    };
    let system = base(INSTALLS);
    let base = registry.publish("team/base", &system.archive(), MACHINES[0]);
    let found = run(&["image", "build", "--from", &base]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let name = found.stdout.lines().next().unwrap().strip_prefix("made ").unwrap();
    let inside = run(&["exec", "--yes", "--backend", "container", "--image", name, "--", "git"]);
    assert_eq!((inside.status.code(), &*inside.stdout), (Some(0), "git of the base\n"), "{inside:?}");
    own.assert_no_container();
    own.end();
}

#[test]
fn a_base_that_lacks_nothing_is_taken_as_it_is() {
    require!(Podman, Curl);
    let registry = Registry::start();
    let base = registry.publish("team/hollow", &hollow().archive(), MACHINES[0]);
    let own = Own::of(&registry);
    // Nothing in it could run.
    let found = own.build(&base, &[]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    own.assert_no_container();
    own.end();
}

#[test]
fn a_base_that_cannot_be_completed_is_quoted_and_leaves_nothing() {
    require!(Podman, Curl, Guest);
    let registry = Registry::start();
    let own = Own::of(&registry);
    let failing = base("echo 'E: Unable to locate package git' >&2; exit 100\n");
    let idle = base("");
    let without = System::with_programs();
    for (name, system, expected) in [
        (
            "failing",
            failing,
            [
                "has no git, no TLS roots, and installing it failed",
                "E: Unable to locate package git",
                "exit status 100",
            ],
        ),
        (
            "idle",
            idle,
            ["has no git, no TLS roots, and still has none", "", "install it in an image of your own"],
        ),
        (
            "without",
            without,
            ["it has none of apt-get, apk, dnf and microdnf to install git ca-certificates with", "", ""],
        ),
        (
            "one-program",
            System::with_one_program(),
            [
                "one-program:1` has no shell: nothing can be installed in it",
                "",
                "hint: choose a base with a shell",
            ],
        ),
    ] {
        let base = registry.publish(name, &system.archive(), MACHINES[0]);
        let found = own.build(&base, &[]);
        assert_eq!(found.status.code(), Some(4), "{found:?}");
        for part in expected {
            assert!(found.stderr.contains(part), "{name}: {part}: {}", found.stderr);
        }
        assert!(!found.stderr.contains("set -eu"), "the recipe is not recited: {}", found.stderr);
        own.assert_no_container();
        own.ask(&["-X", "DELETE"], &format!("/images/{base}"));
        assert_eq!(own.images(), Vec::<Vec<String>>::new(), "{name}");
    }
    own.end();
}

#[test]
fn a_base_that_cannot_be_fetched_is_named_with_the_remedy() {
    require!(Podman, Curl);
    let registry = Registry::start();
    let own = Own::of(&registry);
    let system = hollow();
    let archive = system.archive();
    let foreign = registry.publish("foreign", &archive, MACHINES[1]);
    let listed = registry.publish_listed("listed", &archive, MACHINES[1]);
    let none = format!("{}/none:1", registry.address);
    for (base, expected) in [
        (none.as_str(), ["cannot fetch", "manifest unknown", "hint: look at the name and the tag"]),
        // No server listens on the first port.
        ("127.0.0.1:1/base:1", ["cannot fetch", "connection refused", "hint: no registry can be reached"]),
        (&foreign, [&format!("is made for {}; this machine is", MACHINES[1]), "", "--platform linux/"]),
        (&listed, ["cannot fetch", "", "hint: it is not made for this machine"]),
        (
            "localhost/not-there:1",
            ["has no image `localhost/not-there:1`", "", "hint: make it with `podman build"],
        ),
    ] {
        let found = own.build(base, &[]);
        assert_eq!(found.status.code(), Some(4), "{base}: {found:?}");
        for part in expected {
            assert!(found.stderr.contains(part), "{base}: {part}: {}", found.stderr);
        }
        assert_eq!(own.images(), Vec::<Vec<String>>::new(), "{base}");
    }
    let bad = own.build("Not A Name", &[]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    own.end();
}

#[test]
fn progress_names_what_is_waited_for() {
    require!(Podman, Curl);
    let registry = Registry::start();
    let system = hollow();
    let base = registry.publish("slow", &system.archive(), MACHINES[0]);
    let own = Own::of(&registry);
    registry.keep_back(true);
    let mut command = own.command(&["image", "build", "--from", &base]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), format!("belljar: fetching {base} …"));
    registry.keep_back(false);
    assert!(said.map_while(Result::ok).any(|line| line.contains("belljar.toml")));
    assert!(child.wait().unwrap().success());

    // On a terminal it is one line that is painted over, and gone when it is done.
    own.ask(&["-X", "DELETE"], &format!("/images/{base}"));
    registry.keep_back(true);
    let mut terminal = Command::new("script");
    let line = format!("{} image build --rebuild --from {base}", env!("CARGO_BIN_EXE_belljar"));
    terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    terminal.env_clear().envs(own.stage.environment()).envs(Own::environment(&own.stage));
    let mut child = terminal.spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    let mut painted = Vec::new();
    let waiting = format!("\u{1b}[Kfetching {base} for ");
    while !String::from_utf8_lossy(&painted).contains(&waiting) {
        let count = shown.read_until(b'[', &mut painted).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&painted));
    }
    registry.keep_back(false);
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("\r\u{1b}[Kmade localhost/belljar/from:"), "{rest:?}");
    own.end();
}

/// Engines pass the labels of an image on to what is made from it.
#[test]
fn what_the_user_makes_from_an_image_stays() {
    require!(Podman, Curl);
    let registry = Registry::start();
    let base = registry.publish("team/base", &base(INSTALLS).archive(), MACHINES[0]);
    let own = Own::of(&registry);
    let built = own.json(&["image", "build", "--from", &base]);
    let name = built["image"]["name"].as_str().unwrap();
    let body = format!(r#"{{"Image":"{name}","Entrypoint":["/nothing"],"Cmd":[]}}"#);
    let options = ["-X", "POST", "-H", "Content-Type: application/json", "-d", &body];
    let container = own.ask(&options, "/containers/create")["Id"].as_str().unwrap().to_owned();
    for args in [&["gc"][..], &["image", "prune"], &["image", "build", "--from", &base, "--rebuild"], &["gc"]]
    {
        let found = own.run(args);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        let containers = own.ask(&[], "/containers/json?all=true");
        let stays = containers.as_array().unwrap().iter().any(|one| one["Id"] == container.as_str());
        assert!(stays, "after {args:?}: {containers:#}");
    }
    own.end();
}

/// Ended while the engine fetches, installs or looks at the result: what is left then, `gc` finds.
#[test]
fn a_build_that_is_ended_leaves_neither_images_nor_containers_nor_files() {
    require!(Podman, Curl);
    let registry = Registry::start();
    let own = Own::of(&registry);
    fs::create_dir(own.stage.path("tmp")).unwrap();
    let system = base(&format!("[ $1 = install ] && sleep 0.3\n{INSTALLS}"));
    system.take("/usr/bin/sleep".as_ref());
    let base = registry.publish("team/slow", &system.archive(), MACHINES[0]);
    let command = || {
        let mut command = own.command(&["image", "build", "--from", &base, "--rebuild"]);
        command.env("TMPDIR", own.stage.path("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let began = Instant::now();
    assert_eq!(command().status().unwrap().code(), Some(0));
    let whole = began.elapsed();
    let files = || -> Vec<_> {
        let all = fs::read_dir(own.stage.path("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
        all.filter(|name| name != "engine").collect()
    };
    let usual = (own.images().len(), files());
    for round in 0..6_u32 {
        let mut child = command().spawn().unwrap();
        std::thread::sleep(whole * (round * 7 % 10) / 10);
        let signal = ["-INT", "-KILL", "-TERM"][round as usize % 3];
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let containers = own.ask(&[], "/libpod/containers/json?all=true&external=true");
            let containers = containers.as_array().map_or(0, Vec::len);
            let found = (own.images(), files());
            if (found.0.len(), &found.1) == (usual.0, &usual.1) && containers == 0 {
                break;
            }
            assert!(
                Instant::now() < until,
                "{signal} in round {round}: {found:?} instead of {usual:?}, {containers} containers"
            );
            // The engine may finish an image after its build was ended, and what tidies up after a kill is not waited for.
            let gc = own.run(&["gc"]);
            assert_eq!(gc.status.code(), Some(0), "{gc:?}");
        }
    }
    own.end();
}
