//! The file in which git keeps refs together.

use std::collections::BTreeMap;

use super::object::ObjectId;

/// Its lines by the names of the refs, each with the line that says what a tag leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Packed {
    head: Vec<u8>,
    lines: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Packed {
    /// `None` where it is not understood, or has a name twice.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (mut out, mut last) = (Packed::default(), None);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match line.first()? {
                b'#' if last.is_none() => out.head.extend(line),
                b'#' | b'\n' => return None,
                b'^' => out.lines.get_mut(last.as_ref()?)?.extend(line),
                _ => {
                    let space = line.iter().position(|byte| *byte == b' ')?;
                    ObjectId::parse(&line[..space])?;
                    let name = line[space + 1..].strip_suffix(b"\n")?.to_vec();
                    if out.lines.insert(name.clone(), line.to_vec()).is_some() {
                        return None;
                    }
                    last = Some(name);
                }
            }
        }
        Some(out)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.lines.values().fold(self.head.clone(), |mut out, line| {
            out.extend(line);
            out
        })
    }

    /// The object that a ref is packed with.
    pub(crate) fn id(&self, name: &[u8]) -> Option<ObjectId> {
        let line = self.lines.get(name)?;
        ObjectId::parse(line.split(|byte| *byte == b' ').next()?)
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.lines.contains_key(name)
    }

    /// Keeps the names that are wanted.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        self.lines.retain(|name, _| wanted(name));
    }

    /// Takes over what another says of a name, also that it has none.
    pub(crate) fn take_over(&mut self, name: &[u8], from: Option<&Packed>) {
        match from.and_then(|from| from.lines.get(name)) {
            Some(line) => _ = self.lines.insert(name.to_vec(), line.clone()),
            None => _ = self.lines.remove(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_as_they_are_and_dropped_with_what_belongs_to_them() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let text = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{one} refs/heads/a\n{two} refs/tags/t\n^{one}\n{one} refs/tags/u\n"
        );
        let mut packed = Packed::parse(text.as_bytes()).unwrap();
        assert_eq!(packed.bytes(), text.as_bytes());
        assert!(packed.contains(b"refs/tags/t") && !packed.contains(b"refs/tags"));
        let other = packed.clone();
        packed.take_over(b"refs/tags/t", None);
        packed.retain(|name| name != b"refs/heads/a");
        let rest = format!("# pack-refs with: peeled fully-peeled sorted \n{one} refs/tags/u\n");
        assert_eq!(packed.bytes(), rest.as_bytes());
        packed.take_over(b"refs/tags/t", Some(&other));
        packed.take_over(b"refs/heads/a", Some(&other));
        assert_eq!(packed.bytes(), text.as_bytes());
        for strange in [
            "x",
            "\n",
            "^1\n",
            &format!("{one} a\n{one} a\n"),
            &format!("{one} a"),
            &format!("{one} a\n# b\n"),
        ] {
            assert_eq!(Packed::parse(strange.as_bytes()), None, "{strange}");
        }
        assert_eq!(Packed::parse(b""), Some(Packed::default()));
    }
}
