//! Reads model scripts, with the place of everything that is wrong with one.

use super::load::LoadError;
use crate::environment::HostEnvironment;
use crate::launch::Model;
use belljar_contract::AbsPath;
use belljar_egress::script::{MAX_FILE_BYTES, Script};
use belljar_plan::{DocumentError, DocumentText, parse_json_file};
use std::fs::File;
use std::io::{self, Read};

/// Reads a script that the user named.
///
/// # Errors
/// If the file cannot be read; everything that is wrong with it.
pub fn load_script(environment: &HostEnvironment, path: &AbsPath) -> Result<Model, LoadError> {
    let failed = |cause| LoadError::Read { path: path.clone(), cause };
    let mut bytes = Vec::new();
    // Not only regular files: a shell can pass a pipe.
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes"))));
    }
    Ok(Model::Script(parse_script(DocumentText { name: environment.shown(path), bytes })?))
}

/// Reads a script's text.
///
/// # Errors
/// Everything that is wrong with it.
pub fn script_model(name: String, bytes: Vec<u8>) -> Result<Model, LoadError> {
    Ok(Model::Script(parse_script(DocumentText { name, bytes })?))
}

pub(super) fn parse_script(file: DocumentText) -> Result<Script, DocumentError> {
    // The places are searched for only where something is wrong.
    match Script::parse(&file.bytes) {
        Ok(script) => Ok(script),
        Err(_faulty) => {
            parse_json_file(file, |root, source, faults| Script::decode(&source.text, root, faults))
        }
    }
}
