//! The closed sets of words in scenario and session files.

use belljar_contract::decode::{
    Decode, Fault, Faults, Kind, Node, Scalar, choice, shown, whole_number, whole_number_schema,
};
use belljar_contract::{LibraryName, NameError};
use serde_json::{Value, json};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Defines a set of words: the type, the word of each value, and how it is decoded.
macro_rules! words {
    ($(#[doc = $doc:literal])+ pub enum $name:ident, $expected:literal {
        $( $(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal, )+
    }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( $(#[doc = $variant_doc])+ $variant, )+ }

        impl $name {
            /// The word in a file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        choice!($name, $expected, { $( $word => $name::$variant ),+ });
    };
}

words! {
    /// How the agent is isolated from this machine.
    pub enum Fidelity, "a tier" {
        /// No isolation: only the agent's protocol is tested.
        Protocol = "protocol",
        /// A container.
        Container = "container",
        /// A virtual machine.
        Microvm = "microvm",
        /// The agent outside, its shell inside.
        Hostloop = "hostloop",
        /// As the desktop application would choose.
        Cowork = "cowork",
    }
}

words! {
    /// What happens to a question that no rule answers.
    pub enum OnUnanswered, "what to do with a question that no rule answers" {
        /// The run fails.
        Fail = "fail",
        /// The user is asked at the terminal.
        Prompt = "prompt",
        /// A model is asked.
        Llm = "llm",
        /// The first option is taken.
        First = "first",
    }
}

words! {
    /// A capability that an image must have.
    pub enum Capability, "a capability" {
        /// Convert office documents.
        OfficeConvert = "office_convert",
        /// Read text in pictures.
        Ocr = "ocr",
        /// Extract with a learned model.
        MlExtract = "ml_extract",
        /// Analyse pictures.
        Cv = "cv",
        /// Read tables in PDF files.
        PdfTables = "pdf_tables",
        /// Convert pictures.
        Magick = "magick",
    }
}

words! {
    /// What is done about a tool that no rule names.
    pub enum PermissionParity, "a parity" {
        /// It is allowed on record, and the run fails for it unless that is waived.
        Cowork = "cowork",
        /// It is denied.
        Strict = "strict",
    }
}

words! {
    /// What the agent may do with a directory.
    pub enum FolderMode, "a directory's mode" {
        /// Read.
        Read = "r",
        /// Read and write, but not delete.
        ReadWrite = "rw",
        /// Read, write and delete.
        ReadWriteDelete = "rwd",
    }
}

words! {
    /// How thinking appears in the stream.
    pub enum ThinkingDisplay, "how thinking is shown" {
        /// As a summary.
        Summarized = "summarized",
        /// Not at all.
        Omitted = "omitted",
    }
}

words! {
    /// Whether the agent looks for tools instead of carrying them all.
    pub enum ToolSearch, "`auto` or `off`" {
        /// If there are many tools.
        Auto = "auto",
        /// Never.
        Off = "off",
    }
}

/// How long a conversation may become before the agent makes it shorter, in tokens. The agent itself takes a number
/// outside of these bounds for the nearer one, without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactWindow(u32);

impl CompactWindow {
    const TOKENS: RangeInclusive<i64> = 100_000..=1_000_000;

    #[must_use]
    pub fn tokens(self) -> u32 {
        self.0
    }
}

impl Decode for CompactWindow {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let tokens = whole_number(node, "a number of tokens", &Self::TOKENS, faults)?;
        u32::try_from(tokens).ok().map(Self)
    }

    fn schema() -> Value {
        whole_number_schema(&Self::TOKENS)
    }
}

/// How hard the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Effort {
    Low,
    /// As the format's default is.
    #[default]
    Medium,
    High,
    /// Harder; `extra` is another word for it.
    Xhigh,
    /// As hard as it can.
    Max,
}

impl Effort {
    /// The word that the agent knows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

choice!(Effort, "an effort", {
    "low" => Effort::Low,
    "medium" => Effort::Medium,
    "high" => Effort::High,
    "xhigh" => Effort::Xhigh,
    "max" => Effort::Max,
    "extra" => Effort::Xhigh,
});

/// Where a scenario is carried out; one place only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalExecution;

impl Decode for LocalExecution {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(word) if word == "local" => Some(Self),
            Kind::String(word) if word == "cloud-describe" => {
                let fault = Fault::new(
                    "`execution: cloud-describe` is reserved: nothing carries such a scenario out",
                )
                .help("write `local`, or leave the key out");
                faults.invalid(node, fault)
            }
            Kind::String(word) => {
                let fault = Fault::new(format!("expected `local`, found `{}`", shown(word)))
                    .help("leave the key out; a scenario is carried out on this machine");
                faults.invalid(node, fault)
            }
            Kind::Null
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, "`local`"),
        }
    }

    fn schema() -> Value {
        json!({"enum": ["local"]})
    }
}

/// A plugin of a marketplace, as in `formatter@my-tools`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginReference {
    pub plugin: LibraryName,
    /// Where it is listed.
    pub marketplace: LibraryName,
}

impl PluginReference {
    /// The marketplace that a session's `local_plugins` form.
    pub const LOCAL: &'static str = "local";

    /// Whether it names one of the session's own plugins, unless a marketplace is called so.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.marketplace.as_str() == Self::LOCAL
    }
}

impl fmt::Display for PluginReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.plugin, self.marketplace)
    }
}

/// Why a text does not name a plugin of a marketplace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginReferenceError {
    /// There is no `@`.
    #[error("expected `plugin@marketplace`, found `{0}`")]
    Form(String),
    /// One of the two is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for PluginReference {
    type Err = PluginReferenceError;

    fn from_str(text: &str) -> Result<Self, PluginReferenceError> {
        let (plugin, marketplace) =
            text.split_once('@').ok_or_else(|| PluginReferenceError::Form(shown(text)))?;
        Ok(Self { plugin: LibraryName::new(plugin)?, marketplace: LibraryName::new(marketplace)? })
    }
}

impl Scalar for PluginReference {
    const EXPECTED: &'static str = "`plugin@marketplace`";
    fn parse(text: &str) -> Result<Self, Fault> {
        text.parse().map_err(|error: PluginReferenceError| {
            let fault = Fault::new(error.to_string());
            match error {
                PluginReferenceError::Form(_) => {
                    fault.help("behind the `@` stands the name that the marketplace gives itself")
                }
                PluginReferenceError::Name(_) => fault,
            }
        })
    }
    fn pattern() -> Option<&'static str> {
        Some("^[^@]+@[^@]+$")
    }
}
