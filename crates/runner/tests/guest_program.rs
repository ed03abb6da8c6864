//! The guest is unpacked once, completely, and replaced if the file is not what was unpacked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_runner::{GuestImage, GuestProgram, SweepMode, SweepRequest, sweep};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};
use support::{World, abs, mode};

const IMAGE: GuestImage = GuestImage { bytes: b"#!/bin/sh\necho here\n", digest: "a1b2" };

fn program(world: &World) -> GuestProgram {
    GuestProgram::new(&abs(&world.path("home/data")), IMAGE)
}

fn replace(path: &Path, bytes: &[u8], mode: u32) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn it_is_unpacked_once() {
    let world = World::new();
    let program = program(&world);
    let path = program.path().as_path().to_owned();
    assert_eq!(path, world.path("home/data/guest/a1b2"));
    assert!(!path.exists(), "naming a place is not writing to it");
    let first = program.unpack().unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o555, 0o700));
    assert_eq!(fs::read(&path).unwrap(), IMAGE.bytes);
    let inode = fs::metadata(&path).unwrap().ino();
    assert_eq!(program.unpack().unwrap(), first, "the file that is there is used");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
}

/// Each start mounts the file by its name, so no other start may replace it.
#[test]
fn starts_at_the_same_time_share_one_file() {
    for _ in 0..20 {
        let world = World::new();
        let program = program(&world);
        let barrier = std::sync::Barrier::new(8);
        let unpack = || {
            barrier.wait();
            program.unpack().unwrap()
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(unpack)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|one| *one == program.unpack().unwrap()), "{found:?}");
    }
}

#[test]
fn what_is_not_whole_is_replaced() {
    let world = World::new();
    let program = program(&world);
    let path = program.path().as_path().to_owned();
    program.unpack().unwrap();
    let other: Vec<u8> = IMAGE.bytes.iter().map(|_| b'x').collect();
    replace(&path, &IMAGE.bytes[1..], 0o555);
    program.unpack().unwrap();
    assert_eq!(fs::read(&path).unwrap(), IMAGE.bytes, "too short");
    replace(&path, &other, 0o755);
    program.unpack().unwrap();
    assert_eq!(fs::read(&path).unwrap(), IMAGE.bytes, "it was writable");
    fs::remove_file(&path).unwrap();
    let elsewhere = world.path("elsewhere");
    fs::write(&elsewhere, &other).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o555)).unwrap();
    symlink(&elsewhere, &path).unwrap();
    program.unpack().unwrap();
    assert_eq!(fs::read(&path).unwrap(), IMAGE.bytes, "a link is replaced");
    assert_eq!(fs::read(&elsewhere).unwrap(), other, "and what it points at is left alone");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let world = World::new();
    fs::write(world.path("home/data"), "in the way").unwrap();
    let error = program(&world).unpack().unwrap_err();
    assert!(error.to_string().contains("home/data/guest/a1b2"), "{error}");
}

#[test]
fn guests_of_other_builds_are_swept() {
    let world = World::new();
    let environment = world.environment(&world.path("project"));
    let own = environment.guest.path().as_path().to_owned();
    environment.guest.unpack().unwrap();
    let (old, fresh) = (own.with_file_name("f00"), own.with_file_name("f01"));
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    for (path, time) in [(&own, long_ago), (&old, long_ago), (&fresh, SystemTime::now())] {
        if !path.exists() {
            fs::write(path, "a guest").unwrap();
        }
        fs::File::open(path).unwrap().set_modified(time).unwrap();
    }
    let swept = sweep(&SweepRequest {
        environment: &environment,
        mode: SweepMode::Remove,
        runs_older_than: None,
        now: SystemTime::now(),
    });
    let paths: Vec<_> = swept.iter().map(|swept| swept.path.as_path().to_owned()).collect();
    assert!(paths.contains(&old), "{swept:?}");
    assert!(own.exists() && fresh.exists() && !old.exists(), "{swept:?}");
}
