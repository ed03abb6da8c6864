//! A tape of a long conversation grows with what is new in each turn, and is replayed in time that does, too.

use crate::cmd::record::{bash, data, files, main_turn, scenario, script, with_agent};
use crate::stage::Stage;
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A conversation of so many calls, whose results have 4 kB each.
fn of_turns(turns: usize) -> Stage {
    let call =
        |turn: usize| main_turn(&json!([bash(&format!("seq -s ' ' {turn}000 {turn}850 | head -c 4000"))]));
    let mut all: Vec<Value> = (1..=turns).map(call).collect();
    all.push(main_turn(&json!([{"text": "all done"}])));
    scenario(&script(&all))
}

fn bytes(tape: &Path) -> u64 {
    files(tape).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Turns take their time in an unoptimised build on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);

#[track_caller]
fn passes(stage: &Stage, args: &[&str]) {
    let found = run_within(&mut with_agent(stage, args), DEADLINE).unwrap();
    assert_eq!(found.status.code(), Some(0), "{args:?}: {:#}{}", data(&found), found.stderr);
}

#[test]
fn a_tape_grows_with_what_is_new_in_each_turn() {
    require!(Agent, Bwrap);
    let size = |turns| {
        let stage = of_turns(turns);
        passes(&stage, &["record", "--json", "--scripted", "scenarios/hello.yaml"]);
        let size = bytes(&stage.path("project/scenarios/hello.tape"));
        (stage, size)
    };
    let ((_, few), (_, some), (stage, many)) = (size(6), size(20), size(34));
    let (first, second) = ((some - few) / 14, (many - some) / 14);
    println!("{few}, {some} and {many} bytes: {first} and {second} a turn");
    assert!(second < first * 11 / 10, "{first} bytes a turn, then {second}");
    assert!(second < 20_000, "{second} bytes a turn: a thousand do not fit in 20 MB");
    for args in
        [&["replay", "--json"][..], &["replay", "--protocol", "--json"], &["tape", "verify", "--json"]]
    {
        passes(&stage, &[args, &["scenarios/hello.tape"]].concat());
    }
}
