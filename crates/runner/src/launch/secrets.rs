//! Collects the values of a run that no record may contain.

use crate::egress::{EgressServices, PROXY_TOKEN};
use crate::environment::HostEnvironment;
use crate::launch::RunError;
use crate::launch::values::FoundValue;
use crate::plan::planned::Planned;
use crate::plan::shared_values;
use crate::tape::{Taping, digests_of};
use belljar_contract::{EnvName, Scrubber, Secret, TapeValues, Unsearched, is_plain, not_redacted};
use belljar_record::Redact;
use std::io;
use std::sync::Arc;

/// The secrets of a run: the scrubber that replaces them, those that it cannot replace, and their digests for a tape.
pub(super) struct Secrets {
    pub redact: Redact,
    pub unsearched: Vec<Unsearched>,
    pub digests: Option<TapeValues>,
}

/// Takes all values that do not come from the manifest's own text, those that do but have the name of a secret, and the
/// credentials that stay outside the sandbox.
///
/// # Errors
/// If the key of the digests can neither be read nor created, or a value cannot be redacted as asked.
pub(super) fn secrets(
    planned: &Planned,
    environment: &HostEnvironment,
    values: &[FoundValue],
    services: Option<&EgressServices>,
    taping: &Taping,
) -> Result<Secrets, RunError> {
    let shared = shared_values::values(&planned.shared_files, &environment.home);
    let outside = services.map(EgressServices::secrets).unwrap_or_default();
    let inside = values.iter().filter(|found| !found.value.is_empty()).filter_map(|found| {
        let entry = planned.compiled.plan.env.iter().find(|entry| entry.name == found.name)?;
        let secret = entry.enters_as_secret();
        secret.then(|| (found.name.as_str(), &found.value, entry.not_redacted(&found.value)))
    });
    let shared = shared.iter().map(|one| (one.name.as_str(), &one.value, one.not_redacted()));
    let outside = outside.iter().map(|(name, value)| (name.as_str(), *value, None));
    let declared = declared(planned, environment)?;
    let asked = environment.private.redacted().map(|(name, value)| (name.as_str(), value, None));
    let declared = declared.iter().map(|(name, value)| (name.as_str(), value, None));
    let (searched, skipped): (Vec<_>, Vec<_>) = inside
        .chain(shared)
        .chain(outside)
        .chain(asked)
        .chain(declared)
        .partition(|(_, _, why)| why.is_none());
    let mut pairs: Vec<(&str, &Secret)> =
        searched.into_iter().map(|(name, value, _)| (name, value)).collect();
    let further: Vec<(&str, Secret)> =
        pairs.iter().flat_map(|(name, value)| parts(value).into_iter().map(|part| (*name, part))).collect();
    pairs.extend(further.iter().map(|(name, value)| (*name, value)));
    // A tape lists the names of its secrets, so those that only a `.env` file has are not among them.
    let lasting = pairs.len();
    let files: Vec<(&str, &Secret)> = environment.private.of_files().filter_map(of_a_file).collect();
    let of_files: Vec<(&str, Secret)> =
        files.iter().flat_map(|(name, value)| parts(value).into_iter().map(|part| (*name, part))).collect();
    pairs.extend(files);
    pairs.extend(of_files.iter().map(|(name, value)| (*name, value)));
    let (scrubber, mut unsearched) = Scrubber::new(pairs.iter().copied());
    pairs.truncate(lasting);
    let skipped = skipped.into_iter().filter_map(|(name, _, why)| Some((name, why?)));
    unsearched.extend(skipped.map(|(name, why)| Unsearched { name: name.to_owned(), why }));
    let digests = match taping {
        Taping::Off => None,
        Taping::On(_) => {
            // The token of the run's proxy is worthless once the run has ended.
            let lasting = pairs.into_iter().filter(|(name, _)| *name != PROXY_TOKEN);
            Some(digests_of(&environment.state, lasting, &unsearched).map_err(RunError::TapeKey)?)
        }
    };
    Ok(Secrets { redact: Arc::new(scrubber), unsearched, digests })
}

/// The values that the manifest wants redacted. One that cannot be redacted ends the launch.
fn declared(planned: &Planned, environment: &HostEnvironment) -> Result<Vec<(EnvName, Secret)>, RunError> {
    let value = |name: &EnvName| {
        let failed = |why: String| RunError::Value {
            name: name.to_string(),
            what: "the manifest's `redact` names it".to_owned(),
            cause: io::Error::other(why),
        };
        let value = environment.secret(name.as_str()).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| failed("it is not set, or empty".to_owned()))?;
        match not_redacted(&value, true) {
            Some(why) => Err(failed(format!("it cannot be redacted: {}", why.describe()))),
            None => Ok((name.clone(), value)),
        }
    };
    planned.compiled.plan.redact.iter().map(value).collect()
}

/// The value of a `.env` file, if it can be redacted. A short word, such as a log level, is left without a warning: most
/// values of such a file are used by other programs, and none enters the sandbox by itself.
fn of_a_file<'v>((name, value): (&'v EnvName, &'v Secret)) -> Option<(&'v str, &'v Secret)> {
    let secret = name.looks_secret();
    let searched = (secret || !is_plain(name.as_str())) && not_redacted(value, secret).is_none();
    searched.then_some((name.as_str(), value))
}

/// Shorter lines are likely to be common text.
const SHORTEST_LINE: usize = 8;

/// Parts and forms of a value that would disclose it: each line of a text with several, and the forms that paths and
/// host names take.
fn parts(value: &Secret) -> Vec<Secret> {
    let whole = value.expose();
    let lines: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    let lines = lines.iter().filter(|line| line.len() >= SHORTEST_LINE && line.len() < whole.len());
    let mut out: Vec<Secret> = lines.map(|line| Secret::new(*line)).collect();
    // A path has a single slash where a value may have several.
    let mut path = whole.to_vec();
    path.dedup_by(|later, first| *later == b'/' && *first == b'/');
    if path != whole {
        out.push(Secret::new(path));
    }
    let lower = whole.to_ascii_lowercase();
    if lower != whole {
        out.push(Secret::new(lower));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_the_form_of_host_names_are_searched_too() {
        let parts = |text: &str| -> Vec<Vec<u8>> {
            parts(&Secret::new(text)).iter().map(|part| part.expose().to_vec()).collect()
        };
        assert_eq!(parts("user\npassword=hunter2\n"), [b"password=hunter2".to_vec()]);
        assert_eq!(parts("QwErTy-Secret"), [b"qwerty-secret".to_vec()]);
        assert_eq!(parts("ftp://u:p@h"), [b"ftp:/u:p@h".to_vec()]);
        assert!(parts("plain-token-9").is_empty());
    }
}
