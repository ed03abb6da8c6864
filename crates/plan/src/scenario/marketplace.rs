//! A `marketplace.json`: the plugins that a directory of them lists.
//!
//! The file is the agent's own and has many more keys, which are none of our business; what is read here is read
//! strictly, because it becomes paths.

use super::document::{DocumentError, DocumentText};
use super::json_file;
use belljar_contract::LibraryName;
use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node, Scalar, Table, shown};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marketplace {
    /// What it calls itself; stands behind the `@`.
    pub name: LibraryName,
    pub plugins: Vec<MarketplacePlugin>,
}

/// A plugin that a marketplace lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarketplacePlugin {
    /// Its name; stands in front of the `@`.
    pub name: LibraryName,
    pub source: PluginSource,
}

/// Where a plugin is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginSource {
    /// In this directory below the marketplace's; `.` for the marketplace itself.
    Directory(String),
    /// Somewhere that would have to be fetched.
    Elsewhere,
}

/// Reads the list of a marketplace's plugins.
///
/// # Errors
/// Everything that is wrong with what is read of the file.
pub fn parse_marketplace(text: DocumentText) -> Result<Marketplace, DocumentError> {
    json_file::read(text, |node, _, faults| {
        let Kind::Table(file) = &node.kind else { return faults.mismatch(node, "a table") };
        let name = required(file, node, "name", "a marketplace", faults)
            .and_then(|name| LibraryName::decode(name, faults));
        let root = plugin_root(file, faults);
        let plugins = required(file, node, "plugins", "a marketplace", faults)?;
        let Kind::Array(items) = &plugins.kind else { return faults.mismatch(plugins, "a list") };
        let mut found: Vec<MarketplacePlugin> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for item in items {
            let Some((plugin, place)) = plugin(item, root.as_deref(), faults) else { continue };
            if !seen.insert(plugin.name.clone()) {
                let fault =
                    Fault::new(format!("the plugin `{}` is listed twice", plugin.name)).label("the second");
                faults.push("duplicate-name", &place, fault);
            }
            found.push(plugin);
        }
        Some(Marketplace { name: name?, plugins: found })
    })
}

fn required<'a>(
    table: &'a Table,
    node: &Node,
    key: &str,
    what: &str,
    faults: &mut Faults<'_>,
) -> Option<&'a Node> {
    let found = table.get(key);
    if found.is_none() {
        let fault = Fault::new(format!("{what} lacks `{key}`")).label(format!("`{key}` belongs here"));
        faults.push("missing-key", &(node.span.start..node.span.start + 1), fault);
    }
    found
}

/// What stands in front of a source that does not begin with `./`.
fn plugin_root(file: &Table, faults: &mut Faults<'_>) -> Option<String> {
    let Kind::Table(metadata) = &file.get("metadata")?.kind else { return None };
    PluginDirectory::decode(metadata.get("pluginRoot")?, faults).map(|PluginDirectory(path)| path)
}

fn plugin(
    node: &Node,
    root: Option<&str>,
    faults: &mut Faults<'_>,
) -> Option<(MarketplacePlugin, std::ops::Range<usize>)> {
    let Kind::Table(table) = &node.kind else { return faults.mismatch(node, "a table") };
    let name = required(table, node, "name", "a plugin", faults);
    let place = name.map(|name| name.span.clone());
    let name = name.and_then(|name| LibraryName::decode(name, faults));
    let source = required(table, node, "source", "a plugin", faults)?;
    let source = match &source.kind {
        Kind::Table(_) => PluginSource::Elsewhere,
        Kind::String(text) if !text.starts_with('.') && root.is_some() => {
            let PluginDirectory(path) = PluginDirectory::decode(source, faults)?;
            PluginSource::Directory(format!("{}/{path}", root.unwrap_or(".")))
        }
        Kind::String(_) => PluginSource::Directory(PluginDirectory::decode(source, faults)?.0),
        Kind::Null
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Boolean(_)
        | Kind::Array(_)
        | Kind::Foreign(_) => return faults.mismatch(source, "a directory or a table"),
    };
    Some((MarketplacePlugin { name: name?, source }, place?))
}

/// A directory below the marketplace's own.
struct PluginDirectory(String);

impl Scalar for PluginDirectory {
    const EXPECTED: &'static str = "a directory below the marketplace's, as in `\"./plugins/name\"`";
    fn parse(text: &str) -> Result<Self, Fault> {
        let refuse = |why: &str| {
            Err(Fault::new(format!("`{}` {why}", shown(text)))
                .help("a plugin is listed by a directory below the marketplace's own"))
        };
        if text.starts_with('/') || text.starts_with('~') {
            return refuse("does not lie below the marketplace");
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            return refuse("is not a path");
        }
        if text.contains("://") || text.starts_with("git@") {
            return refuse("would have to be fetched");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        match parts.as_slice() {
            parts if parts.contains(&"..") => refuse("leads out of the marketplace"),
            [] => Ok(Self(".".to_owned())),
            parts => Ok(Self(parts.join("/"))),
        }
    }
}
