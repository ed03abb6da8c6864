//! The packing of a release, with a program that stands for the built one: the same twice, whole, and usable.

use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(120);

fn ends_well(command: &mut Command) -> Finished {
    let found = run_within(command, DEADLINE).unwrap();
    assert!(found.status.success(), "{command:?}: {found:?}");
    found
}

fn script(stage: &Stage, name: &str, text: &str) {
    stage.write(name, format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(stage.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn packed(stage: &Stage, into: &str) -> Finished {
    let architecture = std::env::consts::ARCH;
    let mut dist = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dist"));
    dist.arg(format!("--program={}", stage.path("belljar").display())).arg(architecture);
    dist.env("BELLJAR_DIST_DIR", stage.path(into)).env("BELLJAR_XTASK", stage.path("xtask"));
    ends_well(dist.env("SOURCE_DATE_EPOCH", "1700000000"))
}

#[test]
fn a_release_is_packed_the_same_twice_and_can_be_installed() {
    let stage = Stage::new();
    // Small, so that it is packed in a moment.
    script(&stage, "belljar", &format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_belljar")));
    script(&stage, "xtask", "echo \"{}\"");
    packed(&stage, "first");
    packed(&stage, "second");
    let sums = fs::read_to_string(stage.path("first/SHA256SUMS")).unwrap();
    assert_eq!(sums, fs::read_to_string(stage.path("second/SHA256SUMS")).unwrap());
    let mut check = Command::new("sha256sum");
    ends_well(check.args(["--check", "--strict", "SHA256SUMS"]).current_dir(stage.path("first")));
    let mut names: Vec<&str> = sums.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    names.sort_unstable();
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let debian = if architecture == "aarch64" { "arm64" } else { "amd64" };
    let archive = format!("belljar-{version}-{architecture}-linux");
    let package = format!("belljar_{version}_{debian}.deb");
    let wanted = [
        format!("{archive}.tar.gz"),
        format!("belljar-{version}-{architecture}.cdx.json"),
        format!("belljar-{version}-manual-and-schemas.tar.gz"),
        package.clone(),
    ];
    assert!(wanted.iter().all(|name| names.contains(&name.as_str())) && names.len() == 4, "{names:?}");

    let mut list = Command::new("tar");
    let list = ends_well(list.args(["-tvf"]).arg(stage.path("first").join(format!("{archive}.tar.gz"))));
    for line in list.stdout.lines() {
        let owned = line.split_whitespace().nth(1) == Some("0/0");
        assert!(owned && line.contains("2023-11-14"), "{line}");
    }
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xf")
        .arg(stage.path("first").join(format!("{archive}.tar.gz")))
        .arg("-C")
        .arg(stage.path(""));
    ends_well(&mut unpack);
    let install = |more: &[&str]| {
        let mut install = Command::new(stage.path(&archive).join("install"));
        ends_well(install.arg("--prefix").arg(stage.path("prefix")).args(more))
    };
    install(&[]);
    let installed = ends_well(Command::new(stage.path("prefix/bin/belljar")).arg("--version"));
    assert_eq!(installed.stdout, format!("belljar {version}\n"));
    install(&["--uninstall"]);
    assert!(!stage.path("prefix").exists());

    let mut unpack = Command::new("dpkg-deb");
    ends_well(unpack.arg("-R").arg(stage.path("first").join(&package)).arg(stage.path("package")));
    let control = fs::read_to_string(stage.path("package/DEBIAN/control")).unwrap();
    for line in [
        "Depends: bubblewrap",
        "Recommends: ca-certificates, git, podman",
        &format!("Architecture: {debian}"),
    ] {
        assert!(control.lines().any(|found| found == line), "{line} in\n{control}");
    }
    let mut check = Command::new("md5sum");
    ends_well(check.args(["--check", "--strict", "DEBIAN/md5sums"]).current_dir(stage.path("package")));
    for file in ["bin/belljar", "share/man/man1/belljar-run.1.gz", "share/doc/belljar/copyright"] {
        assert!(stage.path("package/usr").join(file).is_file(), "{file}");
    }
}
