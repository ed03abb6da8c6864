//! Checks that a type name is defined once per crate, and that no two libraries export the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::repository::Repository;
use crate::{Findings, TaskError};

/// Crates whose types no other crate's product code imports: the programs and the test helpers.
const NOT_LIBRARIES: [&str; 3] = ["cli", "guest", "testkit"];

/// A type definition in a source file.
#[derive(Debug, PartialEq, Eq)]
struct Definition {
    name: String,
    /// Whether it is plain `pub`, without a restriction such as `pub(crate)`.
    is_public: bool,
}

/// A source file of a crate and the types that it defines.
struct Source {
    package: String,
    file: String,
    types: Vec<Definition>,
}

pub fn check(repository: &Repository) -> Result<Findings, TaskError> {
    let mut sources = Vec::new();
    for file in repository.files()? {
        let Some(package) = measured(&file).map(str::to_owned) else { continue };
        let types = types_in(&fs::read_to_string(repository.path(&file))?);
        sources.push(Source { package, file, types });
    }
    let mut faults = twice_in_one_crate(&sources);
    faults.extend(public_in_two_libraries(&sources));
    Ok(Findings { faults, ..Findings::default() })
}

fn twice_in_one_crate(sources: &[Source]) -> Vec<String> {
    let mut defined: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for Source { package, file, types } in sources {
        for Definition { name, .. } in types {
            defined.entry((package, name)).or_default().push(file);
        }
    }
    let twice = defined.into_iter().filter(|(_, files)| files.len() > 1);
    twice
        .map(|((package, name), files)| {
            format!(
                "{package} defines `{name}` {} times, in {}: one name has one meaning",
                files.len(),
                files.join(", ")
            )
        })
        .collect()
}

fn public_in_two_libraries(sources: &[Source]) -> Vec<String> {
    let mut defined: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for Source { package, file, types } in sources {
        if NOT_LIBRARIES.contains(&package.as_str()) {
            continue;
        }
        for Definition { name, .. } in types.iter().filter(|definition| definition.is_public) {
            defined.entry(name).or_default().insert((package, file));
        }
    }
    let mut faults = Vec::new();
    for (name, places) in defined {
        let packages: BTreeSet<&str> = places.iter().map(|(package, _)| *package).collect();
        if packages.len() > 1 {
            let files: Vec<&str> = places.iter().map(|(_, file)| *file).collect();
            faults.push(format!(
                "`{name}` is public in {} libraries, in {}: rename one, or make it `pub(crate)` if its crate does not \
                 export it",
                packages.len(),
                files.join(", ")
            ));
        }
    }
    faults
}

/// The crate of a source file that is not a test.
fn measured(file: &str) -> Option<&str> {
    let (package, below) = file.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = below.ends_with("tests.rs") || below.split('/').any(|part| part == "tests");
    (below.ends_with(".rs") && !is_test).then_some(package)
}

/// The types that a source defines at the top level, in a macro call such as `table! { … }` or in an inline module,
/// without those of its tests.
fn types_in(source: &str) -> Vec<Definition> {
    let mut out = Vec::new();
    let mut in_block = false;
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let item = line.strip_prefix("    ").filter(|_| in_block).unwrap_or(line);
        if item == "#[cfg(test)]" {
            skip_item(&mut lines);
            continue;
        }
        in_block = opens_block(line) || in_block && !line.starts_with('}');
        out.extend(defined_by(item));
    }
    out
}

/// Whether the lines below stand one level deeper and are items: `table! {`, `mod inner {`.
fn opens_block(line: &str) -> bool {
    let Some(start) = line.strip_suffix(" {").filter(|start| !start.starts_with(' ')) else { return false };
    start.ends_with('!') || start.split(' ').rev().nth(1) == Some("mod")
}

/// Skips the item below an attribute, up to the brace that stands as deep as its first line.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let Some(first) = lines.find(|line| !line.trim_start().starts_with("#[")) else { return };
    if first.ends_with([';', '}']) {
        return;
    }
    let depth = first.len() - first.trim_start().len();
    lines.find(|line| {
        line.get(depth..).is_some_and(|rest| rest.starts_with('}') && line[..depth].trim().is_empty())
    });
}

fn defined_by(line: &str) -> Option<Definition> {
    let (is_public, line) = match line.strip_prefix("pub") {
        Some(rest) => match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((_, rest)) => (false, rest.trim_start()),
            None => (true, rest.trim_start()),
        },
        None => (false, line),
    };
    let kinds = ["struct ", "enum ", "trait ", "unsafe trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    // The `$name` of a macro is not a name.
    (end > 0).then(|| Definition { name: rest[..end].to_owned(), is_public })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(package: &str, file: &str, text: &str) -> Source {
        Source { package: package.to_owned(), file: file.to_owned(), types: types_in(text) }
    }

    #[test]
    fn types_are_found_where_they_are_defined() {
        let source = "pub struct A;\nenum B<T> {}\npub(crate) type C = u8;\n    type Inner = u8;\nfn d() {}\n\
                      // struct E\npub unsafe trait G {}\n#[cfg(test)]\nmod tests {\nstruct F;\n}\n";
        let found: Vec<(String, bool)> =
            types_in(source).into_iter().map(|found| (found.name, found.is_public)).collect();
        assert_eq!(
            found,
            [("A", true), ("B", false), ("C", false), ("G", true)]
                .map(|(name, public)| (name.to_owned(), public))
        );
    }

    fn names(source: &str) -> Vec<String> {
        types_in(source).into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn types_in_macro_calls_and_inline_modules_are_found() {
        let source = "table! {\n    /// A.\n    pub struct A {\n        a: u8,\n    }\n}\n\npub mod b {\n    \
                      enum B {}\n}\n\nimpl C {\n    type D = u8;\n}\n\nmacro_rules! e {\n    ($name:ident) => {\n\
                      struct $name;\n    };\n}\n";
        assert_eq!(names(source), ["A", "B"]);
    }

    #[test]
    fn only_the_item_of_a_test_is_skipped() {
        let source = "#[cfg(test)]\nuse a::{\n    b,\n};\nstruct A;\n#[cfg(test)]\n#[derive(Debug)]\nstruct No;\n\
                      #[cfg(test)]\nfn f() {\n    struct No;\n}\nstruct B;\n#[cfg(test)]\nmod tests;\nstruct C;\n\
                      #[cfg(test)]\nmod tests {\n    struct No;\n}\n";
        assert_eq!(names(source), ["A", "B", "C"]);
    }

    #[test]
    fn a_name_defined_twice_in_one_crate_is_a_fault() {
        let sources = [source("plan", "a.rs", "struct A;"), source("plan", "b.rs", "pub enum A {}")];
        assert_eq!(
            twice_in_one_crate(&sources),
            ["plan defines `A` 2 times, in a.rs, b.rs: one name has one meaning"]
        );
        assert_eq!(public_in_two_libraries(&sources), [""; 0]);
    }

    #[test]
    fn a_name_public_in_two_libraries_is_a_fault() {
        let sources = [
            source("plan", "plan.rs", "pub struct Same;\npub struct Own;\npub struct Kept;"),
            source("sys", "sys.rs", "pub trait Same {}\npub(crate) struct Own;\nstruct Kept;"),
        ];
        assert_eq!(
            public_in_two_libraries(&sources),
            [
                "`Same` is public in 2 libraries, in plan.rs, sys.rs: rename one, or make it `pub(crate)` if its crate \
              does not export it"
            ]
        );
        assert_eq!(twice_in_one_crate(&sources), [""; 0]);
    }

    #[test]
    fn programs_and_test_helpers_are_not_libraries() {
        for package in NOT_LIBRARIES {
            let sources =
                [source("plan", "a.rs", "pub struct Same;"), source(package, "b.rs", "pub struct Same;")];
            assert_eq!(public_in_two_libraries(&sources), [""; 0]);
        }
    }

    #[test]
    fn tests_are_not_measured() {
        assert_eq!(measured("crates/plan/src/lib.rs"), Some("plan"));
        assert_eq!(measured("crates/plan/src/a_tests.rs"), None);
        assert_eq!(measured("crates/plan/src/tests/a.rs"), None);
        assert_eq!(measured("crates/plan/tests/a.rs"), None);
        assert_eq!(measured("xtask/src/main.rs"), None);
    }
}
