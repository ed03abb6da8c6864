//! Finds the loader of a program, or the interpreter of a script.

use belljar_contract::AbsPath;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The program headers, and the name of the loader, lie at the beginning of the file.
const HEAD: u64 = 64 << 10;
/// The segment type `PT_INTERP`.
const LOADER: u32 = 3;
/// The directories of the search path inside the sandbox.
const SEARCHED: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The paths of the loader or interpreter, one of which must exist; empty for a static program, or one that cannot be
/// read.
#[must_use]
pub fn interpreter(program: &Path) -> Vec<AbsPath> {
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    if read.is_err() {
        return Vec::new();
    }
    let script = head.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    match script {
        Some(line) => of_script(&String::from_utf8_lossy(line)),
        None => of_program(&head).and_then(|name| AbsPath::new(name).ok()).into_iter().collect(),
    }
}

fn of_script(line: &str) -> Vec<AbsPath> {
    let mut parts = line.split_whitespace();
    let first = parts.next().unwrap_or_default();
    let named = parts.find(|part| !part.starts_with('-') && !part.contains('='));
    match (first.ends_with("/env"), named) {
        (true, Some(name)) => {
            SEARCHED.iter().filter_map(|place| AbsPath::new(format!("{place}/{name}")).ok()).collect()
        }
        _ => AbsPath::new(first).ok().into_iter().collect(),
    }
}

/// Handles 64-bit little-endian programs, as all supported machines have them.
fn of_program(head: &[u8]) -> Option<String> {
    let bytes = |at: usize, length: usize| head.get(at..at.checked_add(length)?);
    let number = |at: usize, length: usize| {
        let value = bytes(at, length)?.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if bytes(0, 6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(size)?)?;
        if number(at, 4)? == LOADER as usize {
            let name = bytes(number(at.checked_add(8)?, 8)?, number(at.checked_add(32)?, 8)?)?;
            let name = name.split(|byte| *byte == 0).next()?;
            return String::from_utf8(name.to_vec()).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_programs_and_scripts() {
        let directory = tempfile::tempdir().unwrap();
        let of = |text: &[u8]| {
            let path = directory.path().join("program");
            std::fs::write(&path, text).unwrap();
            interpreter(&path).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(b"#!/bin/sh -e\nx"), ["/bin/sh"]);
        let node = ["/usr/local/bin/node", "/usr/bin/node", "/bin/node"];
        assert_eq!(of(b"#!/usr/bin/env node\n"), node);
        assert_eq!(of(b"#!/usr/bin/env -S A=1 node --x\n"), node);
        assert!(of(b"#!\n").is_empty() && of(b"").is_empty() && of(b"\x7fELF\x02\x01").is_empty());
        assert!(of(&[&b"\x7fELF\x02\x01"[..], &[0xff; 200]].concat()).is_empty());
        assert!(interpreter(Path::new("/nonexistent/program")).is_empty());
        let loader = interpreter(&std::env::current_exe().unwrap());
        assert!(loader.iter().all(|path| path.as_path().exists()), "{loader:?}");
        #[cfg(target_env = "gnu")]
        assert_eq!(loader.len(), 1);
    }
}
