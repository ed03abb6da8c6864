use super::*;
use serde_json::json;

fn input(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value}") };
    object
}

fn git() -> Map<String, Value> {
    input(json!({
        "command": "git push --force origin",
        "count": 3,
        "off": false,
        "tags": ["a", "b"],
        "nested": {"path": "/tmp/x.md", "none": null},
        "in-dash": 1,
    }))
}

#[test]
fn what_people_write() {
    for (text, expected) in [
        ("command.includes('push')", true),
        ("input.command.includes(\"pull\")", false),
        ("!command.includes('rm') && command.startsWith('git ')", true),
        ("not command contains 'rm' and command startsWith 'git '", true),
        ("not (command contains 'rm') or false", true),
        ("/^git (push|pull)/.test(command)", true),
        ("command.match(/FORCE/i)", true),
        ("command.matches('--force\\\\b')", true),
        ("command matches /a\\/b|[/]x/", false),
        ("command === 'git push --force origin'", true),
        ("command !== \"x\" && count == 3", true),
        ("count >= 3 && count < 3.5 && count > -1 && count <= 3e0", true),
        ("command.length > 5 && tags.length === 2", true),
        ("['a', 'z'].includes(tags[0])", true),
        ("tags[0] in ['a', 'z',]", true),
        ("tags contains 'b' && !tags.includes('c')", true),
        ("tags === ['a', 'b']", true),
        ("input['in-dash'] === 1", true),
        ("nested.path.endsWith('.md')", true),
        ("input.missing === undefined && input.nested.none === null", true),
        ("!input.missing", true),
        ("input.missing?.includes('x')", false),
        ("input.missing && input.missing.includes('x')", false),
        ("off || count", true),
        ("off and missing", false),
        ("  command.trim().toLowerCase().indexOf('push') === 4 ", true),
        ("command.toUpperCase().startsWith('GIT')", true),
        ("'b' < 'c'", true),
        ("1 === '1'", false),
        ("!off === true", true),
        ("not off === true", true),
    ] {
        let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(expression.holds(&git()), Ok(expected), "{text}");
    }
}

/// The case that must never allow: an expression about something the input does not have.
#[test]
fn what_does_not_fit_is_neither_yes_nor_no() {
    for (text, part, message) in [
        ("!file_path.includes('secret')", "file_path", "the input has no `file_path`"),
        ("!input.url.includes('x')", "input.url.includes('x')", "nothing cannot be asked this"),
        ("!count.includes('x')", "count.includes('x')", "a number cannot be asked this"),
        ("!command.includes(5)", "command.includes(5)", "a text is looked for in a text, not a number"),
        ("!/x/.test(tags)", "/x/.test(tags)", "a list cannot be matched against a pattern"),
        ("count < 'x'", "count < 'x'", "a number and a text have no order"),
        ("!nested.path.length.x", "nested.path.length.x", "a number has no `x`"),
        ("!count[0]", "count[0]", "a number has no item at a number"),
        ("true && command.x", "command.x", "a text has no `x`"),
    ] {
        let error = Expression::parse(text).unwrap().holds(&git()).unwrap_err();
        assert_eq!((&text[error.span.clone()], error.message.as_str()), (part, message), "{text}");
    }
}

#[test]
fn faults_are_found_at_load_and_point() {
    let deep = format!("{}true{}", "(".repeat(60), ")".repeat(60));
    for (text, part, message) in [
        ("", "", "expected a value, found the end"),
        ("command.includes(", "", "expected a value, found the end"),
        ("command.includes('x'", "", "expected `)`, found the end"),
        ("command.exec('x')", "exec", "unknown method `exec`"),
        ("command = 'x'", "=", "`=` cannot be used here"),
        ("a ? b : c", "?", "`?` cannot be used here"),
        ("a & b", "&", "`&` cannot be used here"),
        ("`x`", "`", "``` cannot be used here"),
        ("a b", "b", "expected the end, found `b`"),
        ("require('fs')", "(", "expected the end, found `(`"),
        ("command.constructor('return 1')()", "constructor", "unknown method `constructor`"),
        ("'x", "'", "the text is not closed"),
        ("command.matches('\\d')", "\\", "unknown escape"),
        (
            "command.matches(/(?=x)/)",
            "/(?=x)/",
            "this pattern cannot be used: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            "command.matches(\"(a)\\\\1\")",
            "\"(a)\\\\1\"",
            "this pattern cannot be used: backreferences are not supported",
        ),
        (
            "command.matches(/(a{1000}){1000}/)",
            "/(a{1000}){1000}/",
            "this pattern cannot be used: it is too large once its repetitions are expanded",
        ),
        ("command.matches(tags)", "tags", "the pattern must be written out, as `/x/` or `\"x\"`"),
        ("command.includes(/x/)", "/x/", "a pattern can be used for matching only"),
        ("/x/ && true", "/x/", "a pattern can be used for matching only"),
        ("/x/y.test(a)", "y", "unknown flag `y` of a pattern"),
        ("1 / 2", "/", "the pattern is not closed"),
        ("1x", "1x", "`1x` is not a number"),
        ("a + b", "+", "expected the end, found `+`"),
        ("command.trim(1)", "trim", "`trim` takes no argument"),
        ("command.includes()", "includes", "`includes` takes one argument"),
        ("and", "and", "expected a value, found `and`"),
        (&deep, "(", "the expression is nested more than 48 deep"),
    ] {
        let error = Expression::parse(text).unwrap_err();
        assert_eq!((&text[error.span.clone()], error.message.as_str()), (part, message), "{text}");
    }
    assert!(
        Expression::parse(&"a".repeat(5000)).unwrap_err().message.contains("more than the maximum of 4096")
    );
    assert!(Expression::parse(&"a||".repeat(1000)).unwrap_err().message.contains("too many parts"));
}

#[test]
fn a_pattern_that_would_hang_others_is_quick() {
    let expression = Expression::parse("/^(a+)+$/.test(command)").unwrap();
    let command = format!("{}!", "a".repeat(100_000));
    assert_eq!(expression.holds(&input(json!({"command": command}))), Ok(false));
}

#[test]
fn fuzz_expression() {
    let pieces = [
        "command",
        "input",
        ".",
        "?.",
        "includes",
        "(",
        ")",
        "[",
        "]",
        "'x'",
        "\"",
        "'",
        "/x/",
        "/",
        "i",
        "&&",
        "||",
        "!",
        "not ",
        " and ",
        " or ",
        " in ",
        "===",
        "<",
        "1",
        "-",
        ",",
        "null",
        ".length",
        ".test(",
        ".matches(",
        " matches ",
        " contains ",
        "\\",
        "é",
        "tags",
        "nested",
        "true",
    ];
    let everyday = std::time::Duration::from_millis(500);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        let made: String =
            bytes.iter().take(24).map(|byte| pieces[usize::from(*byte) % pieces.len()]).collect();
        for text in [String::from_utf8_lossy(bytes).into_owned(), made] {
            match Expression::parse(&text) {
                // It ends, and what it says of one input it says again.
                Ok(expression) => assert_eq!(expression.holds(&git()), expression.holds(&git())),
                Err(error) => assert!(text.get(error.span.clone()).is_some(), "{text:?} {error:?}"),
            }
        }
    });
}
