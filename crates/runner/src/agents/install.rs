//! Installs a version of an agent: metadata, the platform's archive, its integrity, its program.

use super::integrity::{Integrity, Measuring};
use super::metadata::{AvailableVersion, Missing, Packument, Platform, Release};
use super::settings::{Settings, SettingsError, default_registry};
use super::store::{AgentDescription, AgentStore, AgentStoreError, FORMAT, InstalledAgent};
use super::unpack::{ArchiveError, UnpackLimits, take_program};
use super::version::VersionWish;
use crate::environment::HostEnvironment;
use belljar_contract::{AgentPackage, Digest, HarnessProfile, PublishedVersion};
use belljar_egress::fetch::{Fetch, FetchError, FetchScheme, FetchUrl, Fetcher, UrlError};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The form of metadata that npm itself asks for: without texts for people.
const SHORT: &str = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8";
/// With the times of publication.
const LONG: &str = "application/json";
/// Ten times as much as the longest list of versions takes in 2026.
const METADATA_MAX: u64 = 64 << 20;
/// An archive is compressed, so it is smaller than what is in it.
const ARCHIVE_MAX: u64 = 1 << 30;
/// Not even the owner may write.
const PROGRAM_MODE: u32 = 0o555;

/// Why a version cannot be installed or listed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Store(#[from] AgentStoreError),
    #[error("cannot fetch {what}")]
    Fetch {
        what: String,
        #[source]
        cause: Box<FetchError>,
    },
    #[error("the metadata of {package} is not valid")]
    Metadata {
        package: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("{package} has no version `{wanted}`")]
    NoVersion { package: String, wanted: String, near: Option<String> },
    #[error("{package} {version} has no package for {platform}")]
    NoPlatform { package: String, version: PublishedVersion, platform: Box<Platform> },
    #[error("the registry has no SHA-512 integrity for {package} {version}; refusing to install it")]
    NoIntegrity { package: String, version: PublishedVersion },
    #[error("the address of the archive of {package} is not valid")]
    Tarball {
        package: String,
        #[source]
        cause: UrlError,
    },
    #[error("refusing to fetch the archive of {package} from {url}, which is without TLS")]
    Clear { package: String, url: Box<FetchUrl> },
    #[error(
        "the archive of {package} does not have the integrity that the registry says: it was changed or damaged"
    )]
    Integrity { package: String, wanted: Integrity, found: Integrity },
    #[error("the archive of {package} is refused")]
    Unpack {
        package: String,
        #[source]
        cause: ArchiveError,
    },
    #[error("cannot write to `{path}`", path = .path.display())]
    Write {
        path: std::path::PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot start the download")]
    Runtime(#[source] io::Error),
}

impl InstallError {
    /// The remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch { cause, .. } => fetch_hint(cause),
            Self::NoVersion { near, .. } => near
                .as_ref()
                .map(|near| format!("the nearest is `{near}`; `belljar agent list --available` lists all")),
            Self::NoPlatform { .. } => Some(
                "`belljar agent list --available` lists the versions with packages for platforms".to_owned(),
            ),
            Self::Integrity { wanted, found, .. } => Some(format!(
                "expected {}, found {}; a mirror or proxy may have altered it",
                wanted.as_str(),
                found.as_str()
            )),
            Self::Write { cause, .. } => write_hint(cause),
            Self::Unpack { cause: ArchiveError::Write(cause), .. } => write_hint(cause),
            Self::Store(AgentStoreError::Use { cause, .. }) => write_hint(cause),
            Self::Store(error) => error.hint(),
            Self::Clear { .. } => Some("set a registry with https in ~/.npmrc".to_owned()),
            Self::Settings(SettingsError::Unset { variable, .. }) => Some(format!("export {variable}=…")),
            Self::Settings(_)
            | Self::Metadata { .. }
            | Self::NoIntegrity { .. }
            | Self::Tarball { .. }
            | Self::Unpack { .. }
            | Self::Runtime(_) => None,
        }
    }
}

fn write_hint(cause: &io::Error) -> Option<String> {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    full.contains(&cause.kind()).then(|| "free some space, or set XDG_DATA_HOME to another disk".to_owned())
}

fn fetch_hint(cause: &FetchError) -> Option<String> {
    let hint = match cause {
        FetchError::Status { status: 401 | 403, .. } => {
            "the registry wants a login: `npm login` writes a token to ~/.npmrc"
        }
        FetchError::Resolve { .. }
        | FetchError::NoAddress { .. }
        | FetchError::Connect { .. }
        | FetchError::Late { .. } => {
            "the registry is the one of ~/.npmrc or npm_config_registry; HTTPS_PROXY names a proxy"
        }
        FetchError::Tls { .. } => "`cafile` in ~/.npmrc or NODE_EXTRA_CA_CERTS names the CA of your network",
        FetchError::Silent { .. } => "try again; `fetch-timeout` in ~/.npmrc sets the time in milliseconds",
        FetchError::Broken { .. } => "try again",
        FetchError::Clear { .. } | FetchError::Downgrade { .. } => "set a registry with https in ~/.npmrc",
        FetchError::Kept(cause) => return write_hint(cause),
        FetchError::Status { .. }
        | FetchError::Address { .. }
        | FetchError::Name { .. }
        | FetchError::Refused { .. }
        | FetchError::Proxy { .. }
        | FetchError::Http { .. }
        | FetchError::Location { .. }
        | FetchError::Redirects { .. }
        | FetchError::Encoding { .. }
        | FetchError::TooLarge { .. } => return None,
    };
    Some(hint.to_owned())
}

/// What an installation does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallNews {
    /// Another process installs the same version.
    Waiting,
    Fetching {
        bytes: u64,
        total: Option<u64>,
    },
    Unpacking,
}

/// What an installation did.
#[derive(Debug)]
pub enum Installed {
    New(InstalledAgent),
    /// It was there already.
    There(InstalledAgent),
}

/// Installs a version of an agent for this machine, unless it is there. An exact version that is there needs no network.
///
/// # Errors
/// See [`InstallError`]. Nothing of the version remains then.
pub fn install_agent(
    environment: &HostEnvironment,
    profile: &HarnessProfile,
    wish: &VersionWish,
    news: &mut dyn FnMut(InstallNews),
) -> Result<Installed, InstallError> {
    let store = AgentStore::new(&environment.data);
    let names = (profile.name.as_str(), profile.program.as_str());
    if let VersionWish::Exact(version) = wish
        && let Some(found) = store.find(names, version)?
    {
        found.verify(&environment.state)?;
        return Ok(Installed::There(found));
    }
    let client = Client::new(environment)?;
    let package = &profile.package;
    let packument = client.packument(&package.name, SHORT)?;
    let version = packument.find(wish).map_err(|Missing { near }| InstallError::NoVersion {
        package: package.name.clone(),
        wanted: wish.to_string(),
        near,
    })?;
    let _alone = store.lock_install(names.0, &version, || news(InstallNews::Waiting))?;
    if let Some(found) = store.find(names, &version)? {
        found.verify(&environment.state)?;
        return Ok(Installed::There(found));
    }
    store.sweep(SystemTime::now());
    let part = client.platform_package(package, &packument, version.clone(), Platform::here())?;
    make(&client, &store, profile, &part, news)?;
    let found = store.find(names, &version)?;
    found.map(Installed::New).ok_or_else(|| InstallError::NoVersion {
        package: package.name.clone(),
        wanted: version.to_string(),
        near: None,
    })
}

/// The versions that the registry has, the newest first.
///
/// # Errors
/// See [`InstallError`].
pub fn available_versions(
    environment: &HostEnvironment,
    package: &AgentPackage,
) -> Result<Vec<AvailableVersion>, InstallError> {
    Ok(Client::new(environment)?.packument(&package.name, LONG)?.available(&package.name))
}

/// The archive to install.
struct PlatformPackage {
    name: String,
    /// The version of the agent.
    version: PublishedVersion,
    url: FetchUrl,
    integrity: Integrity,
}

fn make(
    client: &Client<'_>,
    store: &AgentStore,
    profile: &HarnessProfile,
    part: &PlatformPackage,
    news: &mut dyn FnMut(InstallNews),
) -> Result<(), InstallError> {
    let scratch = store.scratch()?;
    let mut archive = client.archive(part, &scratch.path().join("archive"), news)?;
    news(InstallNews::Unpacking);
    let made = scratch.path().join("version");
    let failed = |cause| InstallError::Write { path: made.clone(), cause };
    fs::create_dir(&made).map_err(failed)?;
    fs::set_permissions(&made, Permissions::from_mode(0o700)).map_err(failed)?;
    let path = made.join(&profile.program);
    let mut options = OpenOptions::new();
    let mut program =
        options.read(true).write(true).create_new(true).mode(0o700).open(&path).map_err(failed)?;
    archive.rewind().map_err(failed)?;
    let bytes = take_program(&archive, &profile.package.program, &mut program, UnpackLimits::USUAL)
        .map_err(|cause| InstallError::Unpack { package: part.name.clone(), cause })?;
    program.set_permissions(Permissions::from_mode(PROGRAM_MODE)).map_err(failed)?;
    program.sync_all().map_err(failed)?;
    program.rewind().map_err(failed)?;
    let digest = Digest::of_reader(&mut program).map_err(failed)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    store.insert(
        &made,
        &AgentDescription {
            format: FORMAT,
            name: profile.name.clone(),
            version: part.version.clone(),
            package: part.name.clone(),
            integrity: part.integrity.clone(),
            installed_at_ms: u64::try_from(now).unwrap_or(u64::MAX),
            program: digest,
            bytes,
        },
    )?;
    Ok(())
}

/// The registry, as the user configured it.
struct Client<'e> {
    settings: Settings<'e>,
    fetcher: Fetcher,
    runtime: tokio::runtime::Runtime,
}

impl<'e> Client<'e> {
    fn new(environment: &'e HostEnvironment) -> Result<Self, InstallError> {
        let settings = Settings::read(environment)?;
        let fetcher = settings.fetcher()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { settings, fetcher, runtime: runtime.map_err(InstallError::Runtime)? })
    }

    fn get(
        &self,
        (url, accept, limit): (&FetchUrl, &'static str, u64),
        what: &str,
        keep: &mut dyn FnMut(belljar_egress::fetch::ReceivedBytes<'_>) -> io::Result<()>,
    ) -> Result<(), InstallError> {
        // Reported here; a redirect to a place whose setting is unusable gets no credential.
        self.settings.credential(url)?;
        let credential = |url: &FetchUrl| self.settings.credential(url).ok().flatten();
        let fetch = Fetch { url, accept, credential: &credential, limit };
        let fetched = self.runtime.block_on(self.fetcher.get(&fetch, keep));
        fetched.map_err(|cause| InstallError::Fetch { what: what.to_owned(), cause: Box::new(cause) })
    }

    fn packument(&self, package: &str, accept: &'static str) -> Result<Packument, InstallError> {
        let registry = self.settings.registry(package)?;
        let path = format!("{}/{}", registry.path().trim_end_matches('/'), package.replace('/', "%2f"));
        let url = registry
            .with_path(&path)
            .map_err(|cause| InstallError::Tarball { package: package.to_owned(), cause })?;
        let mut text = Vec::new();
        let what = format!("the metadata of {package}");
        self.get((&url, accept, METADATA_MAX), &what, &mut |received| {
            text.extend_from_slice(received.bytes);
            Ok(())
        })?;
        serde_json::from_slice(&text)
            .map_err(|cause| InstallError::Metadata { package: package.to_owned(), cause })
    }

    /// The package with the program for a platform.
    fn platform_package(
        &self,
        package: &AgentPackage,
        packument: &Packument,
        version: PublishedVersion,
        platform: Platform,
    ) -> Result<PlatformPackage, InstallError> {
        let listed =
            packument.release(&version).map(|release| release.platforms(&package.name, Some(&platform)));
        for (name, own_version) in listed.unwrap_or_default() {
            let own = self.packument(name, SHORT)?;
            let Some(release) = own.release(&own_version).filter(|release| release.runs_on(&platform)) else {
                continue;
            };
            let integrity = release.integrity().ok_or_else(|| InstallError::NoIntegrity {
                package: name.to_owned(),
                version: own_version.clone(),
            })?;
            let url = self.tarball(name, release)?;
            return Ok(PlatformPackage { name: name.to_owned(), version, url, integrity });
        }
        Err(InstallError::NoPlatform { package: package.name.clone(), version, platform: Box::new(platform) })
    }

    /// The address of an archive. A mirror may name the one of npm's own registry; then the mirror is meant, as npm
    /// does it.
    fn tarball(&self, package: &str, release: &Release) -> Result<FetchUrl, InstallError> {
        let registry = self.settings.registry(package)?;
        let url = FetchUrl::parse(release.tarball().unwrap_or_default())
            .map_err(|cause| InstallError::Tarball { package: package.to_owned(), cause })?;
        let url = if url.same_server(&default_registry()?) { url.on_server_of(&registry) } else { url };
        if registry.scheme() == FetchScheme::Https && url.scheme() == FetchScheme::Http {
            return Err(InstallError::Clear { package: package.to_owned(), url: Box::new(url) });
        }
        Ok(url)
    }

    /// Fetches an archive and verifies its integrity.
    fn archive(
        &self,
        part: &PlatformPackage,
        path: &Path,
        news: &mut dyn FnMut(InstallNews),
    ) -> Result<File, InstallError> {
        let failed = |cause| InstallError::Write { path: path.to_owned(), cause };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let mut measuring = Measuring::new();
        let mut bytes = 0;
        let what = format!("the archive of {} {}", part.name, part.version);
        self.get((&part.url, "application/octet-stream", ARCHIVE_MAX), &what, &mut |received| {
            measuring.update(received.bytes);
            file.write_all(received.bytes)?;
            bytes += received.bytes.len() as u64;
            news(InstallNews::Fetching { bytes, total: received.total });
            Ok(())
        })?;
        let found = measuring.finish();
        if found != part.integrity {
            let (package, wanted) = (part.name.clone(), part.integrity.clone());
            return Err(InstallError::Integrity { package, wanted, found });
        }
        Ok(file)
    }
}
