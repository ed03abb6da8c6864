//! The backend `container` with a real Docker, which is started for the test and ended with it.

use super::images::{
    System, an_example_passes_in_an_image, an_image_of_one_program,
    nothing_of_the_image_runs_beside_the_guest, what_an_image_says_decides_nothing,
};
use super::{DEADLINE, images};
use crate::cmd::agent_path;
use crate::stage::Stage;
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon with everything of its own in a directory, that changes nothing about the machine's network.
struct Daemon {
    stage: Stage,
    child: Child,
}

impl Daemon {
    fn start() -> Self {
        let stage = Stage::new();
        let path = |name: &str| stage.path(name).display().to_string();
        let log = File::create(stage.path("docker.log")).unwrap();
        let mut command = Command::new("dockerd");
        command.args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]);
        command.args(["--ip-masq=false", "--data-root", &path("docker"), "--exec-root", &path("exec")]);
        command.args(["--pidfile", &path("docker.pid"), "--host", &format!("unix://{}", path("d.sock"))]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let daemon = Self { stage, child };
        let until = Instant::now() + DEADLINE;
        while !Command::new("curl")
            .args(["-sf", "-o", "/dev/null", "--unix-socket"])
            .arg(daemon.socket())
            .arg("http://engine/_ping")
            .status()
            .unwrap()
            .success()
        {
            let said = || std::fs::read_to_string(daemon.stage.path("docker.log")).unwrap_or_default();
            assert!(Instant::now() < until, "dockerd does not answer: {}", said());
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.stage.path("d.sock")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Asked to end, it ends what it started as well.
        let pid = self.child.id().to_string();
        Command::new("kill").arg(pid).status().ok();
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > until {
                self.child.kill().ok();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn it_does_with_docker_what_it_does_with_podman() {
    require!(Docker, Root, Agent, Curl, Guest);
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let run = |args: &[&str]| {
        let stage = Stage::new();
        let mut command = stage.command(args);
        run_within(command.env("BELLJAR_ENGINE", &socket).env("PATH", agent_path()), DEADLINE).unwrap()
    };
    let found =
        run(&["exec", "--backend", "container", "--", "sh", "-c", "id -u; grep CapEff /proc/self/status"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), "1000\nCapEff:\t0000000000000000\n"),
        "{}",
        found.stderr
    );
    let missing = run(&["exec", "--backend", "container", "--image", "debian:12", "--", "true"]);
    assert_eq!(missing.status.code(), Some(125), "{missing:?}");
    assert!(missing.stderr.contains("`docker pull debian:12`"), "{}", missing.stderr);
    an_image_of_one_program(&socket);
    what_an_image_says_decides_nothing(&socket, &[]);
    let health = "HEALTHCHECK --interval=1s CMD [\"/usr/bin/touch\",\"/tried\"]";
    let image = System::with_a_shell().import(&socket, &[health]);
    nothing_of_the_image_runs_beside_the_guest(&socket, &image.name);
    drop(image);
    an_example_passes_in_an_image(&socket);
    let proved = run(&["prove", "--backend", "container"]);
    assert_eq!(proved.status.code(), Some(0), "{}{}", proved.stdout, proved.stderr);
    let left = images::ask(&socket, &[], None, "/containers/json?all=true");
    assert_eq!(left.trim(), "[]", "nothing is left behind");
}
