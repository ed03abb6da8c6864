//! Where packages come from: the user's own settings of npm and of the network.
//!
//! The project's `.npmrc` is not read: it may be a stranger's, and a registry chooses the program that runs.

use super::npmrc::{Npmrc, UnsetVariable, expanded};
use crate::environment::HostEnvironment;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_contract::Secret;
use belljar_egress::fetch::{FetchTimes, FetchUrl, Fetcher, ProxyExceptions, UrlError, UserProxy};
use belljar_egress::tls::{ExtraRoots, NotPem, TlsClient, TlsClientError};
use belljar_sys::regular::read_regular;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// The registry of npm itself, for users who configured none.
pub(super) const DEFAULT_REGISTRY: &str = "https://registry.npmjs.org/";

/// Larger than any file of settings or certificates.
const FILE_MAX: u64 = 4 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// Unless `fetch-timeout` says otherwise.
const SILENCE: Duration = Duration::from_secs(60);

/// Why the settings cannot be used. No value of a setting is in the texts: it may be a password.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{key}` of your npm settings uses the variable {variable}, which is not set")]
    Unset { key: String, variable: String },
    #[error("`{key}` of your npm settings is not a usable address")]
    Address {
        key: String,
        #[source]
        cause: UrlError,
    },
    #[error("the file `{}` with CA certificates cannot be used", .path.display())]
    Pem {
        path: PathBuf,
        #[source]
        cause: NotPem,
    },
    #[error(transparent)]
    Tls(#[from] TlsClientError),
}

/// The settings of npm that apply to the user, the strongest first.
pub(super) struct Settings<'e> {
    environment: &'e HostEnvironment,
    layers: Vec<Npmrc>,
}

impl<'e> Settings<'e> {
    /// Reads the variables, the user's file and the one for all users.
    pub fn read(environment: &'e HostEnvironment) -> Result<Self, SettingsError> {
        let mut settings = Self { environment, layers: vec![variables(environment)] };
        let user = settings.path_of("userconfig")?;
        settings.add(&user.unwrap_or_else(|| environment.home.child(".npmrc").as_path().to_owned()))?;
        let global = match settings.path_of("globalconfig")? {
            Some(path) => path,
            None => settings.global_file()?,
        };
        settings.add(&global)?;
        Ok(settings)
    }

    /// `etc/npmrc` below npm's prefix, which is the directory above the one with `node`.
    fn global_file(&self) -> Result<PathBuf, SettingsError> {
        let of_node = || {
            let node = self.environment.program("node")?;
            Some(node.as_path().parent()?.parent()?.to_owned())
        };
        let prefix = self.path_of("prefix")?.or_else(of_node).unwrap_or_else(|| PathBuf::from("/usr"));
        let below = prefix.join("etc/npmrc");
        // Debian's npm reads this one.
        Ok(if below.exists() { below } else { PathBuf::from("/etc/npmrc") })
    }

    fn add(&mut self, path: &Path) -> Result<(), SettingsError> {
        match read_regular(path, FILE_MAX) {
            Ok(text) => self.layers.push(Npmrc::parse(&String::from_utf8_lossy(&text))),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(SettingsError::Read { path: path.to_owned(), cause }),
        }
        Ok(())
    }

    /// The value of a key, its variables expanded. An empty value and `null` count as not set.
    fn get(&self, key: &str) -> Result<Option<Zeroizing<String>>, SettingsError> {
        let Some(text) = self.layers.iter().find_map(|layer| layer.get(key)) else { return Ok(None) };
        let value = expanded(text, |name| self.variable(name))
            .map_err(|UnsetVariable(variable)| SettingsError::Unset { key: key.to_owned(), variable })?;
        Ok(Some(Zeroizing::new(value)).filter(|value| !value.is_empty() && value.as_str() != "null"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.variables.get(OsStr::new(name))?.to_str().map(str::to_owned)
    }

    fn path_of(&self, key: &str) -> Result<Option<PathBuf>, SettingsError> {
        let Some(text) = self.get(key)? else { return Ok(None) };
        let path = match text.strip_prefix("~/") {
            Some(below) => self.environment.home.as_path().join(below),
            None => PathBuf::from(text.as_str()),
        };
        // A relative path would be one of the project.
        Ok(Some(path).filter(|path| path.is_absolute()))
    }

    /// The registry of a package.
    pub fn registry(&self, package: &str) -> Result<FetchUrl, SettingsError> {
        let scope = package.split_once('/').map(|(scope, _)| format!("{scope}:registry"));
        for key in scope.into_iter().chain(["registry".to_owned()]) {
            if let Some(text) = self.get(&key)? {
                return FetchUrl::parse(&text).map_err(|cause| SettingsError::Address { key, cause });
            }
        }
        default_registry()
    }

    /// The value of `Authorization` for a URL: that of the longest path of its server that has one.
    pub fn credential(&self, url: &FetchUrl) -> Result<Option<Secret>, SettingsError> {
        let mut path = url.path().trim_end_matches('/');
        loop {
            for key in [format!("//{}{path}/", url.authority()), format!("//{}{path}", url.authority())] {
                if let Some(secret) = self.credential_at(&key)? {
                    return Ok(Some(secret));
                }
            }
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => return Ok(None),
            }
        }
    }

    fn credential_at(&self, place: &str) -> Result<Option<Secret>, SettingsError> {
        if let Some(token) = self.get(&format!("{place}:_authToken"))? {
            return Ok(Some(Secret::new(format!("Bearer {}", token.as_str()))));
        }
        if let Some(basic) = self.get(&format!("{place}:_auth"))? {
            return Ok(Some(Secret::new(format!("Basic {}", basic.as_str()))));
        }
        let user = self.get(&format!("{place}:username"))?;
        let password = self.get(&format!("{place}:_password"))?;
        let (Some(user), Some(password)) = (user, password) else { return Ok(None) };
        let Ok(password) = STANDARD.decode(password.as_bytes()).map(Zeroizing::new) else { return Ok(None) };
        let both = Zeroizing::new([user.as_bytes(), b":", &password].concat());
        Ok(Some(Secret::new(format!("Basic {}", STANDARD.encode(&both)))))
    }

    /// The way to the network, with the user's proxy and CA certificates.
    pub fn fetcher(&self) -> Result<Fetcher, SettingsError> {
        let mut roots = ExtraRoots::default();
        let node = self.variable("NODE_EXTRA_CA_CERTS").map(PathBuf::from).filter(|path| path.is_absolute());
        for path in self.path_of("cafile")?.into_iter().chain(node) {
            let text = read_regular(&path, FILE_MAX)
                .map_err(|cause| SettingsError::Read { path: path.clone(), cause })?;
            let more = ExtraRoots::from_pem(&text).map_err(|cause| SettingsError::Pem { path, cause })?;
            roots.0.extend(more.0);
        }
        let silence = self.get("fetch-timeout")?.and_then(|text| text.parse().ok()).filter(|ms| *ms > 0);
        let times = FetchTimes {
            connect: silence.map_or(CONNECT_WITHIN, |ms| CONNECT_WITHIN.min(Duration::from_millis(ms))),
            silence: silence.map_or(SILENCE, Duration::from_millis),
        };
        Ok(Fetcher::new(TlsClient::new(&roots)?, self.proxy()?, self.exceptions()?, times))
    }

    fn proxy(&self) -> Result<Option<UserProxy>, SettingsError> {
        for key in ["https-proxy", "proxy"] {
            match self.get(key)? {
                Some(text) if text.as_str() == "false" => return Ok(None),
                Some(text) => return parsed_proxy(key, &text).map(Some),
                None => {}
            }
        }
        for name in ["https_proxy", "HTTPS_PROXY"] {
            if let Some(text) = self.variable(name).filter(|text| !text.is_empty()) {
                return parsed_proxy(name, &text).map(Some);
            }
        }
        Ok(None)
    }

    fn exceptions(&self) -> Result<ProxyExceptions, SettingsError> {
        let own = self.get("noproxy")?.map(|text| text.to_string());
        let own = own.or_else(|| self.variable("no_proxy")).or_else(|| self.variable("NO_PROXY"));
        Ok(own.map(|text| ProxyExceptions::parse(&text)).unwrap_or_default())
    }
}

pub(super) fn default_registry() -> Result<FetchUrl, SettingsError> {
    FetchUrl::parse(DEFAULT_REGISTRY)
        .map_err(|cause| SettingsError::Address { key: "registry".to_owned(), cause })
}

fn parsed_proxy(key: &str, text: &str) -> Result<UserProxy, SettingsError> {
    UserProxy::parse(text).map_err(|cause| SettingsError::Address { key: key.to_owned(), cause })
}

/// The variables `npm_config_…`, in any case, as settings.
fn variables(environment: &HostEnvironment) -> Npmrc {
    const PREFIX: &str = "npm_config_";
    let mut out = Npmrc::default();
    for (name, value) in &environment.variables {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let Some(prefix) = name.get(..PREFIX.len()) else { continue };
        if !prefix.eq_ignore_ascii_case(PREFIX) {
            continue;
        }
        let key = &name[PREFIX.len()..];
        let key = if key.starts_with(['/', '@']) {
            key.to_owned()
        } else {
            key.to_ascii_lowercase().replace('_', "-")
        };
        out.insert(key, value.to_owned());
    }
    out
}
