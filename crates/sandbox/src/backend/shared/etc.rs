//! The generated `/etc`: an `agent` user, loopback names, and the resolver of the run.

use belljar_contract::{AbsPath, RESOLVER};

/// The user number of the agent inside, for every user who starts it.
pub(super) const USER: u32 = 1000;

/// The paths of the files with their contents.
pub(super) fn files(home: &AbsPath) -> Vec<(&'static str, String)> {
    let home = home.as_path().to_string_lossy();
    vec![
        (
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                 agent:x:{USER}:{USER}:agent:{home}:/bin/bash\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        ("/etc/group", format!("root:x:0:\nagent:x:{USER}:\nnogroup:x:65534:\n")),
        ("/etc/hosts", "127.0.0.1 localhost belljar\n::1 localhost belljar\n".to_owned()),
        ("/etc/hostname", "belljar\n".to_owned()),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n".to_owned()),
        (
            "/etc/resolv.conf",
            format!(
                "# Answers for allowed names alone.\nnameserver {}\noptions timeout:2 attempts:2\n",
                RESOLVER.ip()
            ),
        ),
        ("/etc/shells", "/bin/sh\n/bin/bash\n".to_owned()),
    ]
}
