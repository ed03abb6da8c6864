use crate::cmd::{UNLISTED, verbs};
use crate::stage::Stage;
use std::fs;

/// The text of a page without the requests and escapes of roff.
fn plain(page: &str) -> String {
    let lines = page.lines().filter(|line| !line.starts_with('.'));
    lines
        .map(|line| line.replace("\\fB", "").replace("\\fI", "").replace("\\fR", "") + "\n")
        .collect::<String>()
        .replace("\\-", "-")
        .replace("\\*(Aq", "'")
}

#[test]
fn a_page_has_the_synopsis_the_options_and_the_examples_of_its_verb() {
    let found = Stage::new().run(&["man", "tape", "show"]);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""));
    let page = &found.stdout;
    assert!(page.contains(".TH BELLJAR-TAPE-SHOW 1 \"\" \"belljar "), "{page}");
    let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    let wanted = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "VERSION", "EXAMPLES", "\"SEE ALSO\""];
    assert_eq!(headings, wanted, "{page}");
    let text = plain(page);
    for part in ["belljar-tape-show - ", "belljar tape show ", "--json", "\n$ belljar tape show "] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn the_first_page_lists_the_verbs_and_the_exit_codes() {
    let text = plain(&Stage::new().run(&["man"]).stdout);
    for verb in verbs().iter().filter(|verb| !UNLISTED.contains(&verb.as_str())) {
        assert!(text.contains(&format!("\nbelljar-{verb}(1)\n")), "{verb} in\n{text}");
    }
    assert!(text.contains("\n125\n"), "{text}");
}

#[test]
fn all_pages_are_written_and_again_without_following_a_link() {
    let stage = Stage::new();
    stage.write("home/.bashrc", "mine\n");
    stage.link("project/pages/belljar.1", stage.path("home/.bashrc").to_str().unwrap());
    for _again in 0..2 {
        let found = stage.run(&["man", "--dir", "pages"]);
        assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""));
        let named: Vec<&str> = found.stdout.lines().collect();
        for verb in verbs() {
            assert!(named.contains(&format!("belljar-{verb}.1").as_str()), "{named:?}");
        }
        assert!(!named.iter().any(|name| name.contains("-help")), "{named:?}");
        for name in named {
            let text = fs::read_to_string(stage.path("project/pages").join(name)).unwrap();
            assert!(text.contains("\n.TH BELLJAR"), "{name}\n{text}");
        }
    }
    assert_eq!(fs::read_to_string(stage.path("home/.bashrc")).unwrap(), "mine\n");
}

#[test]
fn a_verb_that_is_not_there_is_an_error_that_names_those_that_are() {
    let found = Stage::new().run(&["man", "tape", "shou"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.contains("`belljar tape` has no verb `shou`"), "{}", found.stderr);
    assert!(found.stderr.contains("known are: ") && found.stderr.contains("show"), "{}", found.stderr);
}
