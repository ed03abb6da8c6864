//! Commits that a repository had, and that nothing leads to any more once its refs are written.

use std::collections::HashSet;

use super::history::{History, RefChange};
use super::object::{ObjectError, ObjectId};
use super::refs::{RefValue, Refs};
use super::store::Objects;

/// The log that is a list of its own: git drops entries from it.
const STASHES: &[u8] = b"logs/refs/stash";
const STASH: &[u8] = b"refs/stash";

/// Whether a log that stays names this object.
pub(crate) type Logged<'a> = dyn Fn(&ObjectId) -> bool + 'a;

/// Notes at each changed ref how many commits it led to that neither a ref nor a log leads to afterwards.
pub(crate) fn note_lost(
    (before, after): (&Refs, &Refs),
    objects: &Objects,
    logged: &Logged<'_>,
    changes: &mut Vec<RefChange>,
) {
    drop_of_stashes(before, after, changes);
    let tips: Vec<Vec<ObjectId>> =
        changes.iter_mut().map(|change| tips(change, (before, after), objects, logged)).collect();
    let all: Vec<ObjectId> = tips.iter().flatten().copied().collect();
    let old: Vec<ObjectId> = after.tips().collect();
    let mut history = History::new(objects);
    match history.new_commits(&all, &old) {
        Ok(lost) => {
            for (change, tips) in changes.iter_mut().zip(&tips) {
                change.lost = history.within(tips, &lost).len();
            }
        }
        Err(error) => {
            for (change, _) in changes.iter_mut().zip(&tips).filter(|(_, tips)| !tips.is_empty()) {
                not_known(change, &error);
            }
        }
    }
    changes.retain(|change| change.before != change.after || change.needs_consent());
}

fn not_known(change: &mut RefChange, error: &ObjectError) {
    change.unread.get_or_insert_with(|| format!("whether another ref has its old commits: {error}"));
}

/// The commits that a change takes from its ref, apart from those that a log has.
fn tips(
    change: &mut RefChange,
    (before, after): (&Refs, &Refs),
    objects: &Objects,
    logged: &Logged<'_>,
) -> Vec<ObjectId> {
    let mut taken: Vec<ObjectId> = match &change.before {
        Some(RefValue::Object(id)) if change.after != change.before => vec![*id],
        Some(_) | None => Vec::new(),
    };
    if change.name == STASH {
        let of = |refs: &Refs| refs.others.get(STASHES).cloned().flatten().unwrap_or_default();
        let stay: HashSet<ObjectId> = of(after).into_iter().collect();
        taken.extend(of(before).into_iter().filter(|id| !stay.contains(id)));
    }
    taken.retain(|id| !logged(id));
    let mut out = Vec::new();
    for id in taken {
        match objects.peeled(&id) {
            Ok(commit) => out.extend(commit),
            Err(error) => not_known(change, &error),
        }
    }
    out
}

/// An entry that is dropped from the middle of the stash moves no ref.
fn drop_of_stashes(before: &Refs, after: &Refs, changes: &mut Vec<RefChange>) {
    let is_listed = changes.iter().any(|change| change.name == STASH);
    if is_listed || before.others.get(STASHES) == after.others.get(STASHES) {
        return;
    }
    let value = before.values.get(STASH).cloned();
    changes.push(RefChange { before: value.clone(), after: value, ..RefChange::new(STASH.to_vec()) });
}
