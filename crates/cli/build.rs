//! Builds the guest, linked statically, so that it can be embedded: one file is installed, and what runs inside a
//! sandbox starts in an image without a C library too.
//!
//! A cargo within cargo: it has a target directory of its own, because the outer one is locked while this runs, and
//! none of the outer one's flags.

#![allow(clippy::unwrap_used, reason = "a build script fails by panicking")]
#![allow(clippy::print_stdout, reason = "a build script speaks to cargo by printing")]

use sha2::{Digest, Sha256};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let crates = here.parent().unwrap();
    for name in ["guest", "class", "contract", "sys"] {
        for source in ["src", "Cargo.toml"] {
            println!("cargo:rerun-if-changed={}", crates.join(name).join(source).display());
        }
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", crates.with_file_name(file).display());
    }
    let guest = build(&crates.join("guest/Cargo.toml"));
    let bytes =
        std::fs::read(&guest).unwrap_or_else(|error| panic!("cannot read {}: {error}", guest.display()));
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let embedded = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("belljar-guest");
    std::fs::write(&embedded, bytes).expect("the output directory can be written");
    println!("cargo:rustc-env=BELLJAR_GUEST_FILE={}", embedded.display());
    println!("cargo:rustc-env=BELLJAR_GUEST_DIGEST={digest}");
}

/// Rust's own C library for the guest, where this toolchain has it: it starts sooner, because it does not ask the processor
/// for all that it knows, which takes long in a virtual machine. Otherwise the machine's own.
fn guest_triple() -> String {
    let own = env::var("TARGET").unwrap();
    let musl = own.replace("-linux-gnu", "-linux-musl");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap());
    let answer = rustc.args(["--print", "target-libdir", "--target", &musl]).output();
    let directory = answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok());
    match directory {
        Some(directory) if Path::new(directory.trim()).is_dir() => musl,
        Some(_) | None => own,
    }
}

/// Gives the path of the program.
fn build(manifest: &Path) -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let triple = guest_triple();
    // <target>/<profile>/build/<package>-<hash>/out: shared by everything that is built with the profile.
    let target = out.ancestors().nth(3).unwrap().join("guest");
    let (profile, directory) = match env::var("PROFILE").unwrap().as_str() {
        "release" => ("guest", "guest"),
        _ => ("guest-dev", "guest-dev"),
    };
    let mut cargo = Command::new(env::var_os("CARGO").unwrap());
    cargo.args(["build", "--locked", "--quiet", "--bin", "belljar-guest", "--profile", profile]);
    cargo.arg("--manifest-path").arg(manifest).arg("--target-dir").arg(&target);
    // With the target named, the flags below concern the program and not the macros that build it, which could
    // not be loaded if they were static.
    cargo.args(["--target", &triple]).env("RUSTFLAGS", "-C target-feature=+crt-static");
    for outer in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTC",
    ] {
        cargo.env_remove(outer);
    }
    // Settings of the outer profile, such as those of a fuzzing build, are not the guest's.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo, which runs this, can be run");
    assert!(status.success(), "the guest could not be built: {status}");
    target.join(triple).join(directory).join("belljar-guest")
}
