//! The listing of a workspace's files as it is stored. An agent chooses the names, link targets and contents in it.

use crate::redact::{Redact, redact_text};
use belljar_contract::{Digest, FileKind, FileSeen, FilesSeen, REDACTED_NAME};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum length of a path component that is used in a file name of belljar.
const LONGEST_PART: usize = 200;

/// Makes keyed digests that only show whether two contents of one listing are equal. The key is dropped with the
/// listing, so that a content cannot be guessed from its digest, even if there are few possible contents.
pub(crate) struct Unguessable([u8; 32]);

impl Unguessable {
    pub fn new() -> std::io::Result<Self> {
        let mut key = [0; 32];
        let filled = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        if filled == key.len() {
            Ok(Self(key))
        } else {
            Err(std::io::Error::other("the kernel gave too few random bytes"))
        }
    }

    fn of(&self, digest: Digest) -> Digest {
        Digest::of_parts(&[&self.0, &digest.into_bytes()])
    }
}

/// Redacts secrets in the names of a listing. Names that become equal get a suffix.
pub(crate) fn redact_names(files: &mut FilesSeen, redact: &Redact) {
    let all: BTreeSet<&String> = files.before.keys().chain(files.after.keys()).collect();
    let holds = |path: &&&String| redact.scrub_bytes(path.as_bytes()).is_some();
    let secret: Vec<String> = all.iter().filter(holds).map(|path| (**path).clone()).collect();
    let mut taken: BTreeSet<String> =
        all.into_iter().filter(|path| !secret.contains(path)).cloned().collect();
    let mut fresh = BTreeMap::new();
    for path in secret {
        let mut shown = redact.scrub(&path);
        if shown.split('/').any(|part| part.len() > LONGEST_PART || matches!(part, "" | "." | "..")) {
            shown = REDACTED_NAME.to_owned();
        }
        let mut name = shown.clone();
        for number in 2.. {
            if taken.insert(name.clone()) {
                break;
            }
            name = format!("{shown}~{number}");
        }
        fresh.insert(path, name);
    }
    for tree in [&mut files.before, &mut files.after] {
        for (path, name) in &fresh {
            if let Some(file) = tree.remove(path) {
                tree.insert(name.clone(), file);
            }
        }
        for file in tree.values_mut() {
            if let FileKind::Link { target } = &mut file.kind {
                redact_text(target, redact);
            }
        }
    }
    for texts in [&mut files.visible, &mut files.read_only, &mut files.unread] {
        texts.iter_mut().for_each(|text| redact_text(text, redact));
    }
}

/// Replaces the digests of a listing by keyed ones. The digest of a content that is stored unchanged next to the
/// listing is kept, because it links the two.
pub(crate) fn hide_digests(files: &mut FilesSeen, kept_as_they_were: &BTreeSet<String>, key: &Unguessable) {
    let hide = |file: &mut FileSeen| file.digest = file.digest.map(|digest| key.of(digest));
    files.before.values_mut().for_each(hide);
    let others = files.after.iter_mut().filter(|(name, _)| !kept_as_they_were.contains(*name));
    others.for_each(|(_, file)| hide(file));
}
