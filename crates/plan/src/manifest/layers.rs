//! Two files laid over each other: the user's is the base, the project's wins on the same name. What the command line
//! gives for one run lies above both; see [`super::ByHand`].

use super::schema::{AgentSpec, FileSpec, McpSpec, PluginSpec, SkillSpec};
use crate::syntax::parse_toml;
use crate::text::{self, whole_file};
use belljar_contract::decode::{At, Decode, FAULT_LIMIT, Faults, Kind, Named, Node, Place, plain};
use belljar_contract::{
    AbsPath, AgentName, AgentRelease, Diagnostic, Label, LibraryName, SourceFile, Sources,
};
use std::collections::{BTreeMap, BTreeSet};

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManifestLayer {
    BuiltIn,
    User,
    /// The project's; travels with code that may not be trusted.
    Project,
    /// The options of the command line, for one run.
    ByHand,
}

impl ManifestLayer {
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            ManifestLayer::BuiltIn => "built in",
            ManifestLayer::User => "your own manifest",
            ManifestLayer::Project => "the project's manifest",
            ManifestLayer::ByHand => "the command line",
        }
    }
}

/// A file as it was read.
#[derive(Debug, Clone)]
pub struct LayerText {
    pub layer: ManifestLayer,
    /// The name people know it by.
    pub name: String,
    /// The directory it lies in; relative paths begin there.
    pub directory: AbsPath,
    /// What it holds; at most a little more than the limit, so that a larger one is noticed.
    pub bytes: Vec<u8>,
}

/// An entry and where its name stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Layered<T> {
    /// The place of the name.
    pub place: Place,
    pub spec: T,
    /// Whether something in it was wrong, so that it is known in part only.
    pub broken: bool,
}

/// Both files, checked and merged.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The texts, for diagnostics.
    pub sources: Sources,
    pub(super) files: Vec<(ManifestLayer, AbsPath)>,
    /// Names of entries that are written, but not in a form that could be read.
    broken: BTreeSet<String>,
    pub skills: BTreeMap<LibraryName, Layered<SkillSpec>>,
    /// MCP servers by name.
    pub mcp: BTreeMap<LibraryName, Layered<McpSpec>>,
    pub plugins: BTreeMap<LibraryName, Layered<PluginSpec>>,
    pub agents: BTreeMap<AgentName, Layered<AgentSpec>>,
}

impl Manifest {
    /// The versions of agents that are to be started, each with its place.
    pub fn releases(&self) -> impl Iterator<Item = &At<AgentRelease>> {
        self.agents.values().filter_map(|agent| agent.spec.agent.as_ref())
    }

    /// Whose file a place is in.
    #[must_use]
    pub fn layer(&self, place: &Place) -> ManifestLayer {
        self.files.get(place.file).map_or(ManifestLayer::BuiltIn, |(layer, _)| *layer)
    }

    /// The directory that paths at a place are relative to.
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
        self.files.iter().any(|(layer, _)| *layer == ManifestLayer::Project)
    }
}

/// Why the files cannot be used: everything that is wrong, in both.
#[derive(Debug, Clone)]
pub struct ManifestError {
    /// The texts, for diagnostics.
    pub sources: Sources,
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

/// What a file says, and the names of entries that could not be read.
type Decoded = (FileSpec, BTreeSet<String>);

fn parse_file(
    file: usize,
    name: String,
    bytes: Vec<u8>,
    out: &mut Vec<Diagnostic>,
) -> (SourceFile, Option<Decoded>) {
    let (source, finding) = text::read(file, name, bytes);
    let spec = match finding {
        None => decode(file, &source.name, &source.text, out),
        Some(finding) => {
            out.push(finding);
            None
        }
    };
    (source, spec)
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
    let mut faults = Faults::new(file, text);
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
