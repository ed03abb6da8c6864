//! Two files laid over each other: the user's is the base, the project's wins on the same name.

use super::schema::{AgentSpec, FileSpec, McpSpec, PluginSpec, SkillSpec};
use crate::decode::{FAULT_LIMIT, Faults, Named, Place, Shape, plain};
use crate::syntax::{Kind, Node, parse_toml};
use belljar_contract::{AbsPath, AgentName, Diagnostic, Label, LibraryName, Severity, SourceFile, Sources};
use std::collections::{BTreeMap, BTreeSet};

/// Larger than any manifest is; a file beyond it is not parsed.
pub const SIZE_LIMIT: usize = 4 << 20;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Shipped with belljar.
    BuiltIn,
    /// The user's own.
    User,
    /// The project's; travels with code that may not be trusted.
    Project,
}

impl Layer {
    /// For a sentence.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Layer::BuiltIn => "built in",
            Layer::User => "your own manifest",
            Layer::Project => "the project's manifest",
        }
    }
}

/// A file as it was read.
#[derive(Debug, Clone)]
pub struct LayerText {
    /// Whose it is.
    pub layer: Layer,
    /// The name people know it by.
    pub name: String,
    /// The folder it lies in; relative paths begin there.
    pub directory: AbsPath,
    /// What it holds; at most a little more than the limit, so that a larger one is noticed.
    pub bytes: Vec<u8>,
}

/// An entry and where its name stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Layered<T> {
    /// The place of the name.
    pub place: Place,
    /// The entry.
    pub spec: T,
    /// Whether something in it was wrong, so that it is known in part only.
    pub broken: bool,
}

/// Both files, checked and merged.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The texts, for diagnostics.
    pub sources: Sources,
    files: Vec<(Layer, AbsPath)>,
    /// Names of entries that are written, but not in a form that could be read.
    broken: BTreeSet<String>,
    /// Skills by name.
    pub skills: BTreeMap<LibraryName, Layered<SkillSpec>>,
    /// MCP servers by name.
    pub mcp: BTreeMap<LibraryName, Layered<McpSpec>>,
    /// Plugins by name.
    pub plugins: BTreeMap<LibraryName, Layered<PluginSpec>>,
    /// Agents by name.
    pub agents: BTreeMap<AgentName, Layered<AgentSpec>>,
}

impl Manifest {
    /// Whose file a place is in.
    #[must_use]
    pub fn layer(&self, place: &Place) -> Layer {
        self.files.get(place.file).map_or(Layer::BuiltIn, |(layer, _)| *layer)
    }

    /// The folder that paths at a place are relative to.
    #[must_use]
    pub fn directory(&self, place: &Place) -> Option<&AbsPath> {
        self.files.get(place.file).map(|(_, directory)| directory)
    }

    /// Whether an entry of this name is written somewhere, but could not be read.
    #[must_use]
    pub(crate) fn is_broken(&self, name: &LibraryName) -> bool {
        self.broken.contains(name.as_str())
    }

    /// Whether a file of the project takes part.
    #[must_use]
    pub fn has_project_layer(&self) -> bool {
        self.files.iter().any(|(layer, _)| *layer == Layer::Project)
    }
}

/// Why the files cannot be used: everything that is wrong, in both.
#[derive(Debug, Clone)]
pub struct ManifestError {
    /// The texts, for diagnostics.
    pub sources: Sources,
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
    /// What could be read all the same, for a check of the rest; none when a whole file could not be read, because
    /// then what it declares would seem to be missing.
    pub partial: Option<Box<Manifest>>,
}

/// Parses and merges the files, in rising order of precedence.
///
/// # Errors
/// Every fault of every file.
pub fn parse(texts: Vec<LayerText>) -> Result<Manifest, ManifestError> {
    let mut manifest = Manifest {
        sources: Vec::new(),
        files: Vec::new(),
        broken: BTreeSet::new(),
        skills: BTreeMap::new(),
        mcp: BTreeMap::new(),
        plugins: BTreeMap::new(),
        agents: BTreeMap::new(),
    };
    let mut diagnostics = Vec::new();
    let mut readable = true;
    for text in texts {
        let file = manifest.files.len();
        manifest.files.push((text.layer, text.directory));
        let (source, spec) = parse_file(file, text.name, text.bytes, &mut diagnostics);
        manifest.sources.push(source);
        match spec {
            Some((spec, broken)) => {
                merge(&mut manifest, spec);
                manifest.broken.extend(broken);
            }
            None => readable = false,
        }
    }
    if diagnostics.is_empty() {
        Ok(manifest)
    } else {
        let sources = manifest.sources.clone();
        Err(ManifestError { sources, diagnostics, partial: readable.then(|| Box::new(manifest)) })
    }
}

fn whole_file(code: &'static str, message: String, help: &str) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code,
        message,
        label: None,
        related: Vec::new(),
        help: Some(help.to_owned()),
    }
}

/// What a file says, and the names of entries that could not be read.
type Decoded = (FileSpec, BTreeSet<String>);

fn parse_file(
    file: usize,
    name: String,
    bytes: Vec<u8>,
    out: &mut Vec<Diagnostic>,
) -> (SourceFile, Option<Decoded>) {
    if bytes.len() > SIZE_LIMIT {
        let message = format!("`{name}` is larger than {} MiB, which no manifest is", SIZE_LIMIT >> 20);
        out.push(whole_file("too-large", message, "look at what the file holds; it was not read"));
        return (SourceFile { name, text: String::new() }, None);
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            // Everything before the bad byte is the same in the lossy text, so the offset still fits.
            let end = text[valid..].chars().next().map_or(valid, |c| valid + c.len_utf8());
            let label = Label { file, span: valid..end, text: "this byte is not UTF-8".to_owned() };
            let message = format!("`{name}` is not UTF-8");
            out.push(Diagnostic::error("not-utf8", message, label).help("save the file as UTF-8"));
            return (SourceFile { name, text }, None);
        }
    };
    // Editors of other systems put a byte order mark in front; it says nothing here.
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let spec = decode(file, &name, &text, out);
    (SourceFile { name, text }, spec)
}

fn decode(file: usize, name: &str, text: &str, out: &mut Vec<Diagnostic>) -> Option<Decoded> {
    let table = match parse_toml(text) {
        Ok(table) => table,
        Err(errors) => {
            out.extend(errors.into_iter().take(FAULT_LIMIT).map(|error| {
                let label = Label { file, span: error.span, text: String::new() };
                let mut diagnostic = Diagnostic::error("syntax", plain(&error.message), label);
                diagnostic.help = error.help.map(str::to_owned);
                diagnostic
            }));
            return None;
        }
    };
    if table.0.is_empty() {
        let message = format!("`{name}` declares nothing");
        out.push(whole_file(
            "empty",
            message,
            "`belljar init` writes a starting manifest; or delete the file",
        ));
        return None;
    }
    let mut faults = Faults::new(file);
    let spec = FileSpec::decode(&Node { span: 0..0, kind: Kind::Table(table) }, &mut faults);
    out.extend(faults.list);
    spec.map(|spec| (spec, faults.broken_names))
}

fn merge(manifest: &mut Manifest, spec: FileSpec) {
    fn lay<K: Ord, T>(into: &mut BTreeMap<K, Layered<T>>, entries: Vec<Named<K, T>>) {
        for Named { name, name_place, value, place: _, broken } in entries {
            into.insert(name, Layered { place: name_place, spec: value, broken });
        }
    }
    let FileSpec { library, agents } = spec;
    if let Some(library) = library {
        let super::LibrarySpec { skills, mcp, plugins } = library.value;
        lay(&mut manifest.skills, skills);
        lay(&mut manifest.mcp, mcp);
        lay(&mut manifest.plugins, plugins);
    }
    lay(&mut manifest.agents, agents);
}
