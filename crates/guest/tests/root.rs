//! The root that the guest builds: what is in it, what is not, and what it refuses to put there.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use belljar_contract::{
    Access, GuestBounds, GuestGround, GuestPart, GuestReport, GuestRoot, GuestSource, GuestSpec, GuestStep,
};
use belljar_sys::mounts;
use support::{Jail, Outcome, User, require, shell, text, users};

fn exactly(path: &Path) -> GuestSource {
    let mounts::Identity { device, inode } = mounts::identity(path).unwrap();
    GuestSource::Exactly { device, inode }
}

fn bind(from: &Path, is: GuestSource, at: &str, access: Access) -> GuestPart {
    GuestPart::Bind { from: text(from.to_str().unwrap()), is, at: text(at), access }
}

/// Enough for a shell, and then these.
fn rooted(script: &str, more: Vec<GuestPart>) -> GuestSpec {
    let mut parts = vec![bind(Path::new("/usr"), GuestSource::System, "/usr", Access::ReadOnly)];
    for (at, to) in [("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")] {
        parts.push(GuestPart::Link { at: text(at), to: text(to) });
    }
    parts.push(GuestPart::Processes { at: text("/proc") });
    parts.push(GuestPart::Mask { at: text("/proc/keys") });
    parts.push(GuestPart::Devices { at: text("/dev") });
    parts.push(GuestPart::Memory { at: text("/tmp"), mode: 0o1777 });
    parts.extend(more);
    let mut spec = shell(script);
    spec.root = GuestRoot::Built {
        ground: GuestGround::Namespaces,
        parts,
        user: 1000,
        bounds: GuestBounds::default(),
    };
    spec
}

fn run(user: User, spec: &GuestSpec, contents: &[u8]) -> Outcome {
    let jail = Jail::launch_rootless(user);
    jail.send_with(spec, contents);
    jail.started(spec);
    jail.finish()
}

fn refusal(user: User, spec: &GuestSpec, contents: &[u8]) -> (GuestStep, String) {
    let jail = Jail::launch_rootless(user);
    jail.send_with(spec, contents);
    match jail.receive().unwrap().0 {
        GuestReport::SetupFailed { step, errno: _, detail } => (step, detail),
        other => panic!("{other:?}"),
    }
}

/// A directory that every user can enter.
fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    directory
}

#[test]
fn there_is_what_was_listed_and_nothing_else() {
    require!(Bwrap);
    let project = open_directory();
    std::fs::write(project.path().join("seen"), "yes").unwrap();
    for user in users() {
        let parts = vec![
            GuestPart::File { at: text("/etc/one"), length: 3 },
            GuestPart::File { at: text("/etc/empty"), length: 0 },
            GuestPart::File { at: text("/etc/two"), length: 4 },
            GuestPart::Directory { at: text("/run/private"), mode: 0o700 },
            bind(project.path(), exactly(project.path()), "/a/b/project", Access::ReadWrite),
        ];
        let script = "
            cat /etc/one /etc/two; echo; ls / | tr '\\n' ' '; echo; ls /a /a/b | tr '\\n' ' '; echo
            stat -c %a / /etc /etc/one /run/private /tmp | tr '\\n' ' '; echo; id -u; id -g
            cat /a/b/project/seen; echo; echo made > /a/b/project/$0; ls /dev | tr '\\n' ' '; echo
            grep -c . /proc/self/mountinfo; cat /dev/zero | head -c 1 | wc -c; pwd; ls -d /proc/[0-9]* | head -1";
        let mut spec = rooted(script, parts);
        spec.argv.push(text(&format!("made-by-{user:?}")));
        let outcome = run(*user, &spec, b"onetwo!");
        let mut lines = outcome.output.lines();
        assert_eq!(lines.next(), Some("onetwo!"), "{user:?}");
        assert_eq!(lines.next(), Some("a bin dev etc lib lib64 proc run tmp usr "));
        assert_eq!(lines.next(), Some("/a: b  /a/b: project "));
        assert_eq!(lines.next(), Some("755 755 644 700 1777 "));
        assert_eq!((lines.next(), lines.next()), (Some("1000"), Some("1000")));
        assert_eq!(lines.next(), Some("yes"));
        let devices = "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ";
        assert_eq!(lines.next(), Some(devices));
        assert!(lines.next().unwrap().parse::<u32>().unwrap() < 20);
        assert_eq!((lines.next(), lines.next(), lines.next()), (Some("1"), Some("/tmp"), Some("/proc/1")));
    }
    let made = std::fs::read_dir(project.path()).unwrap().count();
    assert_eq!(made, 1 + users().len(), "what is written there is written to the project");
}

#[test]
fn nothing_read_only_can_be_written_or_made_writable() {
    require!(Bwrap);
    let project = open_directory();
    for user in users() {
        // Something is mounted below `/dev` on every machine: that must be read-only with it.
        let parts = vec![
            GuestPart::File { at: text("/etc/one"), length: 1 },
            bind(project.path(), exactly(project.path()), "/project", Access::ReadOnly),
            bind(Path::new("/dev"), GuestSource::System, "/machine", Access::ReadOnly),
        ];
        let script = "
            for path in /new /etc/one /etc/new /usr/new /project/new /machine/shm/new; do
                touch $path 2>/dev/null && echo written $path
            done
            mount -o remount,rw / 2>/dev/null && echo remounted; umount /project 2>/dev/null && echo unmounted
            cat /proc/keys 2>/dev/null && echo keys; cat /machine/null 2>/dev/null && echo device
            grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000
            echo end";
        let outcome = run(*user, &rooted(script, parts), b"1");
        assert_eq!(outcome.output, "end\n", "{user:?}");
    }
}

#[test]
fn switches_of_the_machine_cannot_be_turned() {
    require!(Bwrap);
    for user in users() {
        // Opened for appending and nothing written: even where it succeeds the machine stays as it is.
        let script = "
            for path in $(find /proc/sys/kernel /proc/irq /proc/bus -type f) /proc/sysrq-trigger; do
                ( : >> $path ) 2>/dev/null && echo opened $path
            done
            ( : >> /proc/self/comm ) && echo own";
        let outcome = run(*user, &rooted(script, Vec::new()), b"");
        assert_eq!(outcome.output, "own\n", "{user:?}");
    }
}

#[test]
fn a_source_that_was_replaced_is_refused() {
    require!(Bwrap);
    let place = open_directory();
    let (meant, other) = (place.path().join("meant"), place.path().join("other"));
    for directory in [&meant, &other] {
        std::fs::create_dir(directory).unwrap();
    }
    let is = exactly(&meant);
    assert_ne!(meant.metadata().unwrap().ino(), other.metadata().unwrap().ino());
    std::fs::rename(&meant, place.path().join("away")).unwrap();
    for replace in [
        |from: &Path, to: &Path| symlink(from, to).unwrap(),
        |from: &Path, to: &Path| {
            std::fs::remove_file(to).unwrap();
            std::fs::rename(from, to).unwrap();
        },
    ] {
        replace(&other, &meant);
        for user in users() {
            let spec = rooted("true", vec![bind(&meant, is, "/project", Access::ReadWrite)]);
            let (step, detail) = refusal(*user, &spec, b"");
            assert_eq!(step, GuestStep::Root, "{detail}");
            assert!(detail.contains("/meant"), "{detail}");
        }
    }
}

#[test]
fn a_link_in_the_project_does_not_lead_a_mount_elsewhere() {
    require!(Bwrap);
    let project = open_directory();
    symlink("/etc", project.path().join("hooks")).unwrap();
    symlink("/tmp/outside", project.path().join("file")).unwrap();
    for user in users() {
        let cases = [
            bind(Path::new("/usr"), GuestSource::System, "/project/hooks", Access::ReadOnly),
            bind(Path::new("/usr"), GuestSource::System, "/project/hooks/below", Access::ReadOnly),
            GuestPart::File { at: text("/project/file"), length: 1 },
            GuestPart::Memory { at: text("/project/hooks"), mode: 0o755 },
            GuestPart::Mask { at: text("/project/hooks") },
        ];
        for part in cases {
            let parts =
                vec![bind(project.path(), exactly(project.path()), "/project", Access::ReadWrite), part];
            let (step, detail) = refusal(*user, &rooted("true", parts), b"1");
            assert_eq!(step, GuestStep::Root, "{detail}");
        }
    }
    assert!(!Path::new("/tmp/outside").exists());
}

#[test]
fn contents_that_are_missing_or_short_are_refused() {
    require!(Bwrap);
    let spec = rooted("true", vec![GuestPart::File { at: text("/etc/one"), length: 2 }]);
    assert_eq!(refusal(User::Own, &spec, b"1").0, GuestStep::Spec);
    let jail = Jail::launch_rootless(User::Own);
    jail.send(&spec);
    let report = jail.receive().unwrap().0;
    assert!(matches!(report, GuestReport::SetupFailed { step: GuestStep::Spec, .. }), "{report:?}");
}
