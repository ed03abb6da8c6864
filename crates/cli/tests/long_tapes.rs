//! A tape of a long conversation grows with what is new in each turn, and is replayed in time that does, too.

use crate::cmd::record::{bash, data, files, main_turn, recorded, scenario, script, with_agent};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A conversation of so many calls, whose results have 4 kB each.
fn of_turns(turns: usize) -> Stage {
    let call =
        |turn: usize| main_turn(&json!([bash(&format!("seq -s ' ' {turn}000 {turn}850 | head -c 4000"))]));
    let mut all: Vec<Value> = (1..=turns).map(call).collect();
    all.push(main_turn(&json!([{"text": "all done"}])));
    let stage = scenario(&script(&all));
    stage.write("project/scenarios/session.yaml", "skills:\n  local: [../skills/hello]\n");
    stage
}

fn bytes(tape: &Path) -> u64 {
    files(tape).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Records so many turns, replays them in both ways, and gives the size of the tape.
fn size(turns: usize) -> u64 {
    let stage = of_turns(turns);
    let tape = recorded(&stage);
    for args in
        [&["replay", "--json"][..], &["replay", "--protocol", "--json"], &["tape", "verify", "--json"]]
    {
        let found = stage.finish(&mut with_agent(&stage, &[args, &["scenarios/hello.tape"]].concat()));
        assert_eq!(found.status.code(), Some(0), "{args:?}: {:#}{}", data(&found), found.stderr);
    }
    bytes(&tape)
}

#[test]
fn a_tape_grows_with_what_is_new_in_each_turn() {
    require!(Agent, Bwrap);
    let [few, some, many] = [10, 40, 70].map(size);
    let (first, second) = ((some - few) / 30, (many - some) / 30);
    println!("{few}, {some} and {many} bytes: {first} and {second} a turn");
    assert!(second < first * 11 / 10, "{first} bytes a turn, then {second}");
    assert!(second < 20_000, "{second} bytes a turn: a thousand do not fit in 20 MB");
}
