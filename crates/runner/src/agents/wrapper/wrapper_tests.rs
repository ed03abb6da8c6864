use super::text::{Starts, starts};
use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A home with programs; `project` is the project.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn program(&self, name: &str) -> PathBuf {
        self.write(name, "\x7fELF")
    }

    fn link(&self, name: &str, target: &Path) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        path
    }

    /// What is found for a file on the search path.
    fn found(&self, first: &Path, variables: &[(&str, &str)]) -> Result<FoundProgram, String> {
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, below)| self.path(below))
        };
        let project = self.path("project");
        WrapperSearch {
            name: "tool",
            package: "@x/tool",
            program: Path::new("tool"),
            home: &self.path(""),
            variable: &variable,
            is_of_the_project: &|path| path.as_path().starts_with(&project),
            first,
        }
        .follow()
    }

    #[track_caller]
    fn leads(&self, first: &Path, program: &Path) -> Option<String> {
        let found = self.found(first, &[]).unwrap();
        assert_eq!(found.path.as_path(), program.canonicalize().unwrap());
        found.behind
    }
}

const ASDF: &str = "#!/usr/bin/env bash\n# asdf-plugin: nodejs 22.1.0\nexec /opt/asdf/bin/asdf exec \"tool\" \"$@\" # asdf_allow: ' asdf '\n";

#[test]
fn a_program_and_links_to_it_are_found_as_they_are() {
    let home = Home::new();
    let program = home.program("share/versions/2.1.0");
    let link = home.link("bin/tool", &program);
    assert_eq!(home.leads(&link, &program), None);
    let script = home.write("bin/own", "#!/bin/sh\necho 1.0\n");
    assert_eq!(home.leads(&script, &script), None);
    let script = home.write("bin/python", "#!/usr/bin/python3\nmain(\"$@\")\n");
    assert_eq!(home.leads(&script, &script), None);
}

#[test]
fn a_script_that_hands_its_arguments_on_is_followed() {
    let home = Home::new();
    let program = home.program("local/.bin/tool");
    let named = program.display();
    for line in [
        format!("exec \"{named}\" \"$@\""),
        format!("# a comment with \"$@\"\nset -e\nexport A=1\nexec {named} --flag \"$@\"\n"),
        format!("exec -a \"$0\" '{named}' \"$@\""),
        format!("[ -n \"$X\" ] || echo hello\n{named} $@\nexit $?"),
        "exec \"$HOME/local/.bin/tool\" \"$@\"".to_owned(),
        "exec ~/local/.bin/tool \"$@\"".to_owned(),
        "exec \"$(dirname \"$0\")/../local/.bin/tool\" \"$@\"".to_owned(),
        format!("if [ -x a ]; then\n  exec node {named} \"$@\"\nelse\n  exec node {named} \"$@\"\nfi"),
    ] {
        let script = home.write("bin/tool", &format!("#!/bin/sh\n{line}\n"));
        let behind = home.leads(&script, &program).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(behind, format!("behind the wrapper {}", script.display()), "{line}");
    }
}

#[test]
fn a_script_that_does_not_name_its_program_is_refused() {
    let home = Home::new();
    home.program("local/tool");
    home.write("local/text", "x");
    fs::set_permissions(home.path("local/text"), fs::Permissions::from_mode(0o644)).unwrap();
    for (line, why) in [
        ("exec \"$TOOL\" \"$@\"", "does not name a file"),
        ("exec npx tool \"$@\"", "does not name a file"),
        ("exec env A=1 /bin/true \"$@\"", "does not name a file"),
        ("exec /nowhere/tool \"$@\"", "cannot find `/nowhere/tool`"),
        ("exec \"$HOME/local\" \"$@\"", "is not an executable file"),
        ("exec \"$HOME/local/text\" \"$@\"", "is not an executable file"),
        ("exec \"$HOME/local/tool \"$@\"", "does not name a file"),
        ("a && exec /bin/true \"$@\"", "does not name a file"),
        ("exec /bin/true \"$@\"\nexec /bin/false \"$@\"", "start different programs"),
        ("exec mise exec -- tool \"$@\"", "mise keeps no `tool` below"),
    ] {
        let script = home.write("bin/tool", &format!("#!/usr/bin/env bash\n{line}\n"));
        let error = home.found(&script, &[]).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
}

#[test]
fn a_wrapper_that_leads_to_itself_is_refused() {
    let home = Home::new();
    let script = home.write("bin/tool", "#!/bin/sh\nexec \"$(dirname \"$0\")/tool\" \"$@\"\n");
    assert_eq!(home.found(&script, &[]).unwrap_err(), "it leads back to itself");
    home.write("bin/tool", "#!/bin/sh\nexec tool \"$@\"\n");
    assert_eq!(home.found(&script, &[]).unwrap_err(), "it leads back to itself");
    home.write("bin/tool", "#!/bin/sh\nexec \"$HOME/bin/other\" \"$@\"\n");
    home.write("bin/other", "#!/bin/sh\nexec \"$HOME/bin/tool\" \"$@\"\n");
    assert_eq!(home.found(&script, &[]).unwrap_err(), "it leads back to itself");
    for number in 0..9 {
        let text = format!("#!/bin/sh\nexec \"$HOME/many/{}\" \"$@\"\n", number + 1);
        home.write(&format!("many/{number}"), &text);
    }
    let error = home.found(&home.path("many/0"), &[]).unwrap_err();
    assert_eq!(error, "more than 8 wrappers are behind each other");
    let loops = home.link("bin/loop", &home.path("bin/loop"));
    assert!(home.found(&loops, &[]).unwrap_err().contains("cannot find"));
}

#[test]
fn a_shim_of_mise_leads_to_the_newest_version_that_it_keeps() {
    let home = Home::new();
    let shim = home.link(".local/share/mise/shims/tool", &home.program("bin/mise"));
    assert!(home.found(&shim, &[]).unwrap_err().contains("mise keeps no `tool` below"));
    let installs = ".local/share/mise/installs/npm-x-tool";
    let old = home.program(&format!("{installs}/2.1.9/bin/tool"));
    home.link(&format!("{installs}/latest"), Path::new("2.1.9"));
    let behind = home.leads(&shim, &old);
    assert!(behind.is_some_and(|behind| !behind.contains("newest")));
    let new = home.program(&format!("{installs}/2.1.10/bin/tool"));
    let behind = home.leads(&shim, &new).unwrap();
    assert!(behind.ends_with("; the newest of 2 that mise keeps"), "{behind}");
    let other = home.program("elsewhere/installs/tool/1.0/tool");
    let found = home.found(&shim, &[("MISE_DATA_DIR", "elsewhere")]).unwrap();
    assert_eq!(found.path.as_path(), other);
    home.program(".local/share/mise/installs/node/22.1.0/bin/tool");
    assert!(home.found(&shim, &[]).unwrap_err().starts_with("mise keeps several: "));
}

#[test]
fn a_shim_of_asdf_or_volta_leads_to_what_it_keeps() {
    let home = Home::new();
    let program = home.program(".asdf/installs/nodejs/22.1.0/lib/node_modules/@x/tool/bin/tool");
    home.link(".asdf/installs/nodejs/22.1.0/bin/tool", &program);
    let shim = home.write(".asdf/shims/tool", ASDF);
    home.leads(&shim, &program).unwrap();
    let shim = home.link(".volta/bin/tool", &home.program(".volta/bin/volta-shim"));
    assert!(home.found(&shim, &[]).unwrap_err().contains("volta keeps no `tool` below"));
    let package = ".volta/tools/image/packages/@x/tool";
    let program = home.program(&format!("{package}/lib/node_modules/@x/tool/bin/tool"));
    home.link(&format!("{package}/bin/tool"), &program);
    home.leads(&shim, &program).unwrap();
}

#[test]
fn npms_launcher_leads_to_the_package_of_this_platform() {
    let Platform { os, cpu, libc } = Platform::here();
    let platform = format!("tool-{os}-{cpu}{}", if libc == "musl" { "-musl" } else { "" });
    for place in ["lib/node_modules/@x", "lib/node_modules/@x/tool/node_modules/@x"] {
        let home = Home::new();
        // What npm leaves where it does not run the package's install script.
        let stub = home.write("lib/node_modules/@x/tool/bin/tool.exe", "echo not installed >&2\nexit 1\n");
        let link = home.link("bin/tool", &stub);
        let error = home.found(&link, &[]).unwrap_err();
        assert!(error.contains(&format!("`@x/{platform}`")) && error.contains("is not installed"), "{error}");
        let program = home.program(&format!("{place}/{platform}/tool"));
        home.leads(&link, &program).unwrap();
        home.write("lib/node_modules/@x/tool/bin/tool.exe", "#!/usr/bin/env node\nspawn()\n");
        home.leads(&link, &program).unwrap();
    }
    let home = Home::new();
    let script = home.write("lib/node_modules/@x/tool/cli.js", "#!/usr/bin/env node\nmain()\n");
    assert_eq!(home.leads(&script, &script), None);
}

/// An agent may have written it: what it names would be mounted, and asked for its version outside.
#[test]
fn a_wrapper_of_the_project_does_not_lead_out_of_it() {
    let home = Home::new();
    home.program("private/tool");
    let script = home.write("project/bin/tool", "#!/bin/sh\nexec \"$HOME/private/tool\" \"$@\"\n");
    let error = home.found(&script, &[]).unwrap_err();
    assert!(error.contains("is a file of the project, and leads out of it"), "{error}");
    let program = home.program("project/lib/tool");
    home.write("project/bin/tool", "#!/bin/sh\nexec \"$HOME/project/lib/tool\" \"$@\"\n");
    home.leads(&script, &program).unwrap();
}

#[test]
fn fuzz_texts_of_wrappers() {
    bolero::check!().with_type::<(String, String)>().for_each(|(line, rest)| {
        let text = format!("#!/bin/sh\n{rest}\n{line} \"$@\"\n");
        for text in [line, &text] {
            match starts(text, Path::new("/bin/tool"), Path::new("/home/u"), "tool") {
                Starts::File(path) => assert!(path.is_absolute(), "{text}"),
                Starts::Itself | Starts::Manager(_) | Starts::SameName | Starts::Unknown(_) => {}
            }
        }
    });
}
