//! The configuration of git inside: the author of commits and the ignore file.

use super::Reasons;
use crate::explain::Origin;
use crate::manifest::GitSpec;
use belljar_contract::decode::At;
use belljar_contract::{AbsPath, Access, FileContent, GitFile, Mount, MountSource, PlannedFile, Purpose};

/// The files that git inside reads. A trial has none: what it does must not depend on whose machine it is.
pub(super) fn files(
    written: Option<&At<GitSpec>>,
    purpose: Purpose,
    home: &AbsPath,
    reasons: &mut Reasons,
) -> Vec<PlannedFile> {
    let mut of_user = purpose == Purpose::Session;
    let (mut name, mut email) = (None, None);
    if let Some(At { value: GitSpec { identity, name: own_name, email: own_email }, place }) = written {
        of_user &= identity.as_ref().is_none_or(|identity| identity.value);
        name = own_name.as_ref().map(|name| name.value.0.clone());
        email = own_email.as_ref().map(|email| email.value.0.clone());
        let shown = if of_user { "your name, address and ignore rules" } else { "nothing of yours" };
        reasons.add("git", shown, Origin::Written(place.clone()));
    }
    if !of_user && name.is_none() && email.is_none() {
        return Vec::new();
    }
    let file = |name: &str, file: GitFile, why: &str| PlannedFile {
        target: home.child(".config/git").child(name),
        content: FileContent::Git(file),
        access: Access::ReadWrite,
        why: why.to_owned(),
    };
    let config = GitFile::Config { of_user, name, email };
    let mut out = vec![file(
        "config",
        config,
        "git's user.name, user.email, init.defaultBranch; nothing else of yours",
    )];
    if of_user {
        out.push(file("ignore", GitFile::Ignore, "what your git ignores everywhere"));
    }
    out
}

/// Whether something that is not memory of the sandbox is mounted where the file would be made.
pub(super) fn is_covered(file: &PlannedFile, home: &AbsPath, mounts: &[Mount]) -> bool {
    mounts.iter().any(|mount| {
        mount.source != MountSource::Temporary
            && mount.target.is_within(home)
            && file.target.is_within(&mount.target)
    })
}
