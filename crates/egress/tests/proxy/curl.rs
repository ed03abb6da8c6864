//! The main ways to use the proxy, with curl.

use crate::peers::{ALLOWED, Hosts, Peer};
use crate::plain::proxy_for;
use crate::world::{Proxy, TOKEN};
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use std::process::Command;
use std::time::Duration;

fn curl(proxy: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new("curl");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "", "--proxy", proxy]);
    run_within(command.args(arguments), Duration::from_secs(60)).unwrap()
}

fn http(proxy: &Proxy) -> String {
    format!("http://belljar:{TOKEN}@{}", proxy.address)
}

#[test]
fn plain_http() {
    require!(Curl);
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let page = curl(&http(&proxy), &[&format!("http://{authority}/a"), &format!("http://{authority}/b")]);
    assert_eq!(page.stdout, "WELCOMEWELCOME", "{page:?}");
    assert_eq!(hosts.allowed.count(), 1, "curl's two requests share the connection");
    let posted = curl(
        &http(&proxy),
        &["--data", &"x".repeat(2_000_000), &format!("http://{authority}/")]
            .map(|argument| &argument[..argument.len().min(100_000)]),
    );
    assert_eq!(posted.stdout, "WELCOME", "{}", posted.stderr);
    assert_eq!(hosts.got().last().unwrap().body.len(), 100_000);
}

#[test]
fn https_through_connect() {
    require!(Curl);
    let peer = Peer::start(ALLOWED, crate::tls::tls_server());
    let (proxy, authority) = proxy_for(&peer);
    let page = curl(&http(&proxy), &["--insecure", &format!("https://{authority}/")]);
    assert_eq!(page.stdout, "for allowed.test", "{page:?}");
    // The same host under another name: domain fronting.
    let to = format!("evil.test:{}:{authority}", peer.address.port());
    let fronted = curl(
        &http(&proxy),
        &["--insecure", "--connect-to", &to, &format!("https://evil.test:{}/", peer.address.port())],
    );
    assert!(!fronted.status.success() && fronted.stdout.is_empty(), "{fronted:?}");
}

#[test]
fn socks_with_names() {
    require!(Curl);
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let socks = format!("socks5h://belljar:{TOKEN}@{}", proxy.address);
    let page = curl(&socks, &[&format!("http://{authority}/")]);
    assert_eq!(page.stdout, "WELCOME", "{page:?}");
    let refused = curl(&socks, &["http://evil.test/"]);
    assert!(!refused.status.success(), "{refused:?}");
    let stranger =
        curl(&format!("socks5h://belljar:wrong@{}", proxy.address), &[&format!("http://{authority}/")]);
    assert!(!stranger.status.success(), "{stranger:?}");
}

#[test]
fn refusals_are_readable() {
    require!(Curl);
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let refused = curl(&http(&proxy), &["--write-out", "%{http_code}", "http://evil.test/"]);
    assert!(refused.stdout.contains("add \"evil.test:80\" to [agents.reviewer.egress] allow"), "{refused:?}");
    assert!(refused.stdout.ends_with("403"), "{refused:?}");
    let tunnel = curl(&http(&proxy), &["--write-out", "%{http_connect}", "https://evil.test/"]);
    assert!(tunnel.stdout.ends_with("403"), "{tunnel:?}");
    let stranger = curl(
        &format!("http://{}", proxy.address),
        &["--write-out", "%{http_code}", &format!("http://{authority}/")],
    );
    assert!(stranger.stdout.ends_with("407"), "{stranger:?}");
    // A client that sends its token only when it is asked for it.
    let polite = curl(&http(&proxy), &["--proxy-anyauth", &format!("http://{authority}/")]);
    assert!(polite.stdout.ends_with("WELCOME"), "{polite:?}");
}
