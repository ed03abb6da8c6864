//! A made-up `/etc`: an agent, a loopback, no resolver.

use belljar_contract::AbsPath;

/// Inside, the agent has this number whoever started it.
pub(super) const USER: u32 = 1000;

/// The files and what they hold.
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
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n".to_owned()),
        ("/etc/resolv.conf", "# Names are resolved outside, by the proxy.\n".to_owned()),
        ("/etc/shells", "/bin/sh\n/bin/bash\n".to_owned()),
    ]
}
