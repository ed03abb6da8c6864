//! Where a link leads, as the kernel would follow it, without asking the kernel to.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::class::TreeFacts;

/// The most links that the kernel follows in one path.
const HOPS: usize = 40;

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    /// To this place of the tree, whether or not something is there.
    Inside(PathBuf),
    /// Out of the tree.
    Out,
    /// In circles.
    Nowhere,
}

enum Move {
    Up,
    Into(OsString),
}

/// Follows the link at `relative` with the text `target`. An absolute text leads out even when it names a place of
/// the tree: the same tree stands at other paths in other sandboxes.
#[must_use]
pub fn follow(relative: &Path, target: &Path, facts: &dyn TreeFacts) -> Leads {
    follow_noting(relative, target, facts, &mut Vec::new())
}

/// As [`follow`], and notes the links on the way: changing one of them changes where this one leads.
pub fn follow_noting(
    relative: &Path,
    target: &Path,
    facts: &dyn TreeFacts,
    passed: &mut Vec<PathBuf>,
) -> Leads {
    let mut reached: Vec<OsString> =
        relative.parent().unwrap_or(Path::new("")).iter().map(Into::into).collect();
    let mut moves = VecDeque::new();
    if !prepend(&mut moves, target) {
        return Leads::Out;
    }
    let mut hops = 1;
    while let Some(next) = moves.pop_front() {
        match next {
            Move::Up => {
                if reached.pop().is_none() {
                    return Leads::Out;
                }
            }
            Move::Into(name) => {
                reached.push(name);
                let place: PathBuf = reached.iter().collect();
                if let Some(target) = facts.link_target(&place) {
                    hops += 1;
                    if hops > HOPS {
                        return Leads::Nowhere;
                    }
                    passed.push(place);
                    reached.pop();
                    if !prepend(&mut moves, &target) {
                        return Leads::Out;
                    }
                }
            }
        }
    }
    Leads::Inside(reached.iter().collect())
}

/// Whether the text is relative.
fn prepend(moves: &mut VecDeque<Move>, target: &Path) -> bool {
    for component in target.components().rev() {
        match component {
            Component::RootDir | Component::Prefix(_) => return false,
            Component::CurDir => {}
            Component::ParentDir => moves.push_front(Move::Up),
            Component::Normal(name) => moves.push_front(Move::Into(name.into())),
        }
    }
    true
}
