//! A skill, plugin or marketplace that is tried without a scenario.

use super::{KEY, agreements, command, refused, terminal};
use crate::cmd::HELLO;
use crate::stage::Stage;
use belljar_testkit::require;

/// A marketplace, and a directory of skills, with links that lead out of them.
fn stage() -> Stage {
    let stage = Stage::new();
    stage.write("home/.ssh/id_ed25519", KEY);
    stage.write("project/script.json", HELLO);
    let market =
        r#"{"name": "shop", "owner": {"name": "x"}, "plugins": [{"name": "plug", "source": "./plug"}]}"#;
    stage.write("project/shop/.claude-plugin/marketplace.json", market);
    stage.write("home/private/skills/notes/SKILL.md", "---\nname: notes\ndescription: Notes\n---\n");
    stage.link("project/shop/plug", "../../home/private");
    stage.link("project/skills/notes", "../../home/private/skills/notes");
    stage
}

#[test]
fn links_out_of_what_is_tried_are_asked_for() {
    let stage = stage();
    for (directory, wish) in [("shop", "plugin: "), ("skills", "skill: ")] {
        for args in [
            &["skill", directory, "go"][..],
            &["chat", directory, "--say", "hi"],
            &["skill", directory, "go", "--dry-run"],
        ] {
            let args = [args, &["--script", "script.json"]].concat();
            refused(&stage, &args, wish);
        }
    }
}

#[test]
fn an_agreement_to_a_skill_is_taken_back_by_its_directory() {
    require!(Agent, Bwrap);
    let stage = stage();
    let said = terminal(&stage, "y", "skill skills go --script script.json").stdout;
    assert!(said.contains("[y/N]") && agreements(&stage) == 1, "{said}");
    let found = stage.run(&["trust", "--suite", "skills", "--revoke"]);
    assert_eq!((found.stdout.as_str(), agreements(&stage)), ("revoked 1 agreement\n", 0), "{found:?}");
}

#[test]
fn what_the_command_line_names_is_the_users_word() {
    require!(Agent, Bwrap);
    let stage = stage();
    let home = stage.path("home").display().to_string();
    let (key, private) = (format!("{home}/.ssh/id_ed25519"), format!("{home}/private/skills/notes"));
    let args =
        ["skill", &private, "go", "--upload", &key, "--allow", "one.example", "--script", "script.json"];
    let found = stage.finish(&mut command(&stage, &args));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let found =
        stage.finish(&mut command(&stage, &["skill", "skills", "go", "--yes", "--script", "script.json"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

#[test]
fn of_a_skills_file_that_leads_out_nothing_is_printed() {
    let stage = Stage::new();
    stage.write("home/passwd", format!("root:x:0:0:{KEY}\n"));
    stage.write("project/script.json", HELLO);
    stage.link("project/skill/SKILL.md", "../../home/passwd");
    refused(&stage, &["skill", "skill", "go", "--script", "script.json"], "skill: ");
}
