//! What this machine cannot show, in one that can: control groups of version 2 alone, an ordinary user with and without
//! a part of that tree, and a kernel whose switches are thrown. `scripts/vm` boots it, `vm/inside.sh` runs there.

use belljar_testkit::process::run_within;
use belljar_testkit::require;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One thing that was tried inside.
struct Tried {
    status: i32,
    output: String,
}

/// Everything that was tried in one boot, by name.
struct Inside(BTreeMap<String, Tried>);

impl Inside {
    fn boot() -> Self {
        let belljar = Path::new(env!("CARGO_BIN_EXE_belljar"));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(tests.join("../../scripts/vm"));
        command.arg("run").arg(tests.join("tests/vm/inside.sh")).arg(belljar);
        command.arg(belljar.with_file_name("belljar-guest"));
        let finished = run_within(&mut command, Duration::from_secs(320)).unwrap();
        assert!(finished.status.success(), "{}\n{}", finished.stdout, finished.stderr);
        let mut tried = BTreeMap::new();
        for part in finished.stdout.split("@begin ").skip(1) {
            let (name, rest) = part.split_once('\n').unwrap();
            let (output, status) = rest.rsplit_once("@end ").unwrap();
            let status = status.trim().parse().unwrap();
            tried.insert(name.to_owned(), Tried { status, output: output.to_owned() });
        }
        Inside(tried)
    }

    #[track_caller]
    fn tried(&self, name: &str) -> &Tried {
        self.0.get(name).unwrap_or_else(|| panic!("{name} was not tried"))
    }

    #[track_caller]
    fn assert(&self, name: &str, status: i32, words: &[&str]) {
        let Tried { status: found, output } = self.tried(name);
        assert!(
            *found == status && words.iter().all(|word| output.contains(word)),
            "{name}: {found}\n{output}"
        );
    }

    /// What `doctor` says about one thing: its line and those indented below.
    #[track_caller]
    fn doctor(&self, name: &str, about: &str) -> String {
        let output = &self.tried(name).output;
        let mut lines =
            output.lines().skip_while(|line| line.get(5..).is_none_or(|rest| !rest.starts_with(about)));
        let first = lines.next().unwrap_or_else(|| panic!("{name} says nothing about {about}:\n{output}"));
        let below = lines.take_while(|line| line.starts_with(' '));
        [first].into_iter().chain(below).collect::<Vec<_>>().join("\n")
    }

    /// The share of a processor that two hogs had.
    #[track_caller]
    fn share(&self, name: &str) -> f64 {
        let output = &self.tried(name).output;
        let wall =
            output.lines().find_map(|line| line.strip_prefix("wall ")).unwrap_or_else(|| panic!("{output}"));
        let (begin, end) = wall.split_once(' ').unwrap();
        let children = output.lines().last().unwrap();
        let seconds = |text: &str| -> f64 {
            let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
        };
        let used: f64 = children.split_whitespace().map(seconds).sum();
        used / (end.parse::<f64>().unwrap() - begin.parse::<f64>().unwrap())
    }
}

fn limits_of_version_2(inside: &Inside) {
    // Nothing of version 1 is in the way.
    inside.assert("machine", 0, &["0::/\n"]);
    let held = "yes  limits                   control groups version 2; held: memory, pids, cpu";
    assert_eq!(inside.doctor("root doctor", "limits"), held);
    assert_eq!(inside.doctor("delegated doctor", "limits"), held);
    for who in ["root", "delegated"] {
        inside.assert(&format!("{who} memory"), 0, &["tail ended with 137"]);
        inside.assert(&format!("{who} pids"), 2, &["Cannot fork"]);
        let share = inside.share(&format!("{who} cpu"));
        assert!((0.05..0.35).contains(&share), "{who}: two hogs with a fifth of a processor had {share}");
    }
    inside.assert(
        "held",
        0,
        &["memory.max:67108864", "memory.swap.max:0", "pids.max:24", "cpu.max:20000 100000", "\n4\n"],
    );
    inside.assert("left over", 2, &["No such file or directory"]);
}

fn limits_that_cannot_be_had(inside: &Inside) {
    inside.assert("false tree", 125, &["error: a limit does not hold\n", "do not reach"]);
    assert!(!inside.tried("false tree").output.contains("ran"));
    inside.assert("user refused", 125, &["a limit on processes: no control group", "hint: `belljar doctor`"]);
    inside.assert("user unlimited", 0, &["ran\n"]);
    let doctor = inside.doctor("user doctor", "limits");
    assert!(doctor.contains("held: none; not held: memory, pids, cpu"), "{doctor}");
    assert!(doctor.contains("systemd-run --user --scope -p Delegate=yes"), "{doctor}");
}

fn switches(inside: &Inside) {
    let clone = "kernel.unprivileged_userns_clone";
    let none = "user.max_user_namespaces";
    for (name, switch, fix) in [
        ("clone switch", clone, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        ("none allowed", none, "sudo sysctl -w user.max_user_namespaces=15000"),
    ] {
        let why = format!("hint: user namespaces are switched off: {switch} = 0\n");
        inside.assert(&format!("{name} exec"), 125, &[&why, &format!("hint: {fix}\n")]);
        inside.assert(&format!("{name} root"), 125, &[&why, &format!("hint: {fix}\n")]);
        for about in ["user namespaces", "a sandbox"] {
            let doctor = inside.doctor(&format!("{name} doctor"), about);
            assert!(doctor.contains(&format!("{switch} = 0")) && doctor.contains(fix), "{doctor}");
        }
    }
    inside.assert("clone switch back", 0, &["ran\n"]);
}

#[test]
fn in_a_machine_of_its_own() {
    require!(Vm);
    let inside = Inside::boot();
    limits_of_version_2(&inside);
    limits_that_cannot_be_had(&inside);
    switches(&inside);
}
