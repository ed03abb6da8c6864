//! Without a rule the proxy and the resolver are there all the same: what is refused is seen, and explained.

use super::{log, plain, serve, with_names};
use crate::cmd::{script, tried};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;

const CURL: &str = "curl -sS -o /dev/null -w '%{http_code}'";

#[test]
fn everything_is_refused_at_once_and_explained() {
    require!(Bwrap, Curl);
    let stage = Stage::new();
    // No host has an address inside, and none waits for a resolver that does not answer.
    let script = format!(
        "{CURL} http://one.test/; {CURL} https://two.test/; echo; \
         curl -sS --noproxy '*' http://three.test/; echo $?; getent hosts four.test; echo $?"
    );
    let found = stage.run(&["exec", "--", "sh", "-c", &script]);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "403000\n6\n2\n"), "{}", found.stderr);
    for (host, line) in
        [("one.test:80", "one.test:80"), ("two.test:443", "two.test"), ("four.test:443", "four.test")]
    {
        let said = format!(
            "refused: {host} is not allowed: no rule allows it\n  to allow it, add \"{line}\" to [agents.default.egress] allow\n"
        );
        assert!(found.stderr.contains(&said), "{said} in {}", found.stderr);
    }
    assert!(
        !stage.path("home/.local/state/belljar/runs").exists(),
        "a command that reaches nothing: no record"
    );
}

#[test]
fn learning_tells_the_truth() {
    require!(Bwrap, Curl, Root);
    let stage = Stage::new();
    let learn = |words: &[&str]| stage.run(&[&["exec", "--learn", "--"], words].concat()).stderr;
    let refused = learn(&["curl", "-sS", "http://one.test/"]);
    assert!(refused.contains("\n      \"one.test:80\", # new\n"), "{refused}");
    let nothing = "belljar: nothing was asked for that the rules do not allow\n";
    assert_eq!(learn(&["true"]), nothing);
    // Refused for its method: no host is missing.
    let port = serve(|_, _| plain("hello", "text/plain"));
    let stage = Stage::with(&format!(
        "[agents.a.egress]\nallow = [{{ host = \"one.test:{port}\", methods = [\"GET\"] }}, \"127.0.0.1:{port}\"]\n"
    ));
    let script = format!("{CURL} -d x http://one.test:{port}/");
    let found = with_names(&stage, "one.test", &["exec", "--yes", "--learn", "--", "sh", "-c", &script]);
    assert_eq!(found.stdout, "403", "{}", found.stderr);
    assert!(
        found.stderr.contains("belljar: no further host would allow what was refused\n"),
        "{}",
        found.stderr
    );
    assert!(!found.stderr.contains(nothing), "{}", found.stderr);
}

#[test]
fn an_agents_refusals_are_in_its_record() {
    require!(Agent, Bwrap, Curl);
    let stage = Stage::with("[agents.a]\npermissions.skip_prompts = true\n");
    let call = json!({"tool_use": {"name": "Bash", "input": {"command": "curl -sS http://one.test/"}}});
    stage.write("project/script.json", script(&[call, json!({"text": "Done."})]));
    let found = tried(&stage, &["run", "--yes", "--script", "script.json", "-p", "go"]);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "Done.\n"), "{}", found.stderr);
    let add = "  to allow it, add \"one.test:80\" to [agents.a.egress] allow\n";
    assert!(found.stderr.contains(add), "{}", found.stderr);
    let refused = log(&stage).into_iter().filter(|row| row["decision"]["verdict"]["is"] == "denied");
    let refused: Vec<_> = refused.map(|row| row["decision"]["destination"].clone()).collect();
    assert_eq!(refused, [json!("one.test:80")]);
}
