use super::index::HashLength;
use super::object::{Commit, Object, ObjectError, ObjectId, ObjectKind, tree_entries};
use super::refs::MOST_REFS;
use super::store::{Objects, Pack, patched};
use super::*;
use std::fs;
use std::process::Command;

pub(super) fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=U", "-c", "user.email=u@x", "-c", "gc.auto=0"]).args(arguments);
    command
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    let found = command.output().unwrap();
    assert!(found.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

pub(super) fn objects_of(repository: &Path) -> Objects {
    let directory = Directory::open(&repository.join(".git")).unwrap();
    let hash = hash_length(&PlainFiles(&directory)).unwrap();
    objects(Some(&directory), None, hash)
}

/// Commits of one second have no order by date: those that the old tip leads to are never new.
#[test]
fn commits_of_the_same_second_are_distinguished() {
    belljar_testkit::require!(Git);
    let place = tempfile::tempdir().unwrap();
    let top = place.path();
    git(top, &["init", "-q", "-b", "main"]);
    let tree = git(top, &["write-tree"]);
    let commit = |parent: Option<&ObjectId>, message: &str| {
        let parent = parent.map(|id| format!("-p {}", id.hex())).unwrap_or_default();
        let script = format!("GIT_COMMITTER_DATE=@1700000000 git commit-tree {tree} {parent} -m {message}");
        let id = git(top, &["-c", &format!("alias.make=!{script}"), "make"]);
        ObjectId::parse(id.as_bytes()).unwrap()
    };
    let base = commit(None, "base");
    let new = commit(Some(&base), "new");
    // Among equal dates the ids decide: this one is looked at last.
    let mut mine = (0..).map(|round| commit(Some(&base), &format!("mine{round}")));
    let mine = mine.find(|mine| *mine < base && *mine < new).unwrap();
    let objects = objects_of(top);
    let found = history::History::new(&objects).new_commits(&[new], &[mine]).unwrap();
    assert_eq!(found, std::collections::HashSet::from([new]));
}

/// Every object that git lists is read as git reads it, loose and packed, with both kinds of names.
#[test]
fn reads_objects_as_git_does() {
    belljar_testkit::require!(Git);
    for format in ["sha1", "sha256"] {
        let place = tempfile::tempdir().unwrap();
        let top = place.path();
        git(top, &["init", "-q", "--object-format", format]);
        let mut text: String = (0..2000).map(|line| format!("line {line}\n")).collect();
        for round in 0..6 {
            text.push_str(&format!("round {round}\n"));
            fs::write(top.join("long.txt"), &text).unwrap();
            fs::create_dir_all(top.join(format!("d{round}"))).unwrap();
            fs::write(top.join(format!("d{round}/f")), "x").unwrap();
            git(top, &["add", "."]);
            git(top, &["commit", "-qm", &format!("round {round}\n\nmore")]);
            git(top, &["tag", "-am", "t", &format!("t{round}")]);
        }
        for packed in [false, true] {
            if packed {
                git(top, &["repack", "-qadf"]);
                git(top, &["prune-packed"]);
                git(top, &["pack-refs", "--all"]);
            }
            let store = objects_of(top);
            let list = git(top, &["cat-file", "--batch-all-objects", "--batch-check"]);
            assert!(list.lines().count() > 20);
            for line in list.lines() {
                let parts: Vec<&str> = line.split(' ').collect();
                let object = store.read(&ObjectId::parse(parts[0].as_bytes()).unwrap()).unwrap();
                let found = (object.kind.name(), object.content.len().to_string());
                assert_eq!(found, (parts[1], parts[2].to_owned()), "{line}");
            }
            let directory = Directory::open(&top.join(".git")).unwrap();
            let refs = Refs::read(&PlainFiles(&directory), Path::new(""));
            assert_eq!(refs.unread, None);
            assert_eq!(refs.resolve(b"HEAD").unwrap().hex(), git(top, &["rev-parse", "HEAD"]));
            assert_eq!(refs.values.len(), 8, "{refs:?}");
            assert_eq!(Refs::parse(&refs.bytes()).unwrap().values, refs.values);
            let tag = git(top, &["rev-parse", "t3"]);
            let peeled = store.peeled(&ObjectId::parse(tag.as_bytes()).unwrap()).unwrap().unwrap();
            assert_eq!(peeled.hex(), git(top, &["rev-parse", "t3^{commit}"]));
            assert_eq!(store.commit(&peeled).unwrap().subject, b"round 3");
        }
        let packs = top.join(".git/objects/pack");
        let names: Vec<_> = fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path()).collect();
        let index = names.iter().find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap();
        let hash = if format == "sha1" { HashLength::Twenty } else { HashLength::ThirtyTwo };
        let open =
            |index: &Path, pack: &Path| Pack::of(File::open(index).unwrap(), File::open(pack).unwrap(), hash);
        let pack = index.with_extension("pack");
        assert_eq!(open(index, &pack).unwrap().verify(hash), Ok(()));
        // An index that calls one object by the name of another.
        let mut bytes = fs::read(index).unwrap();
        let count = u32::from_be_bytes(bytes[8 + 1020..8 + 1024].try_into().unwrap()) as usize;
        let offsets = 8 + 1024 + count * (hash.bytes() + 4);
        let (first, second) =
            (bytes[offsets..offsets + 4].to_vec(), bytes[offsets + 4..offsets + 8].to_vec());
        bytes[offsets..offsets + 4].copy_from_slice(&second);
        bytes[offsets + 4..offsets + 8].copy_from_slice(&first);
        let lying = place.path().join("lying.idx");
        fs::write(&lying, bytes).unwrap();
        assert_eq!(open(&lying, &pack).unwrap().verify(hash), Err(ObjectError::Damaged));
    }
}

#[test]
fn an_object_that_does_not_match_its_name_is_refused() {
    belljar_testkit::require!(Git);
    let place = tempfile::tempdir().unwrap();
    git(place.path(), &["init", "-q"]);
    fs::write(place.path().join("a"), "a").unwrap();
    let id = git(place.path(), &["hash-object", "-w", "a"]);
    let at = |id: &str| place.path().join(".git/objects").join(&id[..2]).join(&id[2..]);
    let other = "0123456789012345678901234567890123456789";
    fs::create_dir_all(at(other).parent().unwrap()).unwrap();
    fs::copy(at(&id), at(other)).unwrap();
    let store = objects_of(place.path());
    assert!(store.read(&ObjectId::parse(id.as_bytes()).unwrap()).is_ok());
    let read = store.read(&ObjectId::parse(other.as_bytes()).unwrap());
    assert_eq!(read.map(|object| object.content), Err(ObjectError::Damaged));
    let directory = Directory::open(&place.path().join(".git/objects")).unwrap();
    let left = Cell::new(MOST_PACKED);
    let kind =
        |id: &str| addition(&directory, &Path::new(&id[..2]).join(&id[2..]), HashLength::Twenty, &left);
    assert_eq!((kind(&id), kind(other)), (Addition::Sound, Addition::Unsound));
    // However many there are, no more is unpacked for all of them together.
    left.set(2 * "blob 1\0a".len() as u64);
    assert_eq!([kind(&id), kind(&id), kind(&id)], [Addition::Sound, Addition::Sound, Addition::Unsound]);
    for derived in ["info/commit-graph", "info/alternates", "pack/multi-pack-index", "pack/p.bitmap", "xx/y"]
    {
        assert_eq!(
            addition(&directory, Path::new(derived), HashLength::Twenty, &left),
            Addition::Derived,
            "{derived}"
        );
    }
}

/// A repository of many packs leaves descriptors for everybody else.
#[test]
fn many_packs_are_not_all_held_open() {
    belljar_testkit::require!(Git);
    let place = tempfile::tempdir().unwrap();
    let top = place.path();
    git(top, &["init", "-q"]);
    fs::write(top.join("a"), "a").unwrap();
    git(top, &["add", "."]);
    git(top, &["commit", "-qm", "a"]);
    let commit = git(top, &["rev-parse", "HEAD"]);
    git(top, &["repack", "-qad"]);
    let packs = top.join(".git/objects/pack");
    let index = fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path());
    let index = index.into_iter().find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap();
    for number in 0..300 {
        for end in ["idx", "pack"] {
            let copy = packs.join(format!("pack-{number:040}.{end}"));
            fs::hard_link(index.with_extension(end), copy).unwrap();
        }
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let store = objects_of(top);
    let missing = ObjectId::parse(format!("{}{}", &commit[..2], "0".repeat(38)).as_bytes()).unwrap();
    for id in [missing, ObjectId::parse(commit.as_bytes()).unwrap()] {
        assert_eq!(store.commit(&id).is_ok(), id != missing);
        assert!(open() - before < 250, "{} descriptors", open() - before);
    }
}

/// Names past the limit are not taken for none.
#[test]
fn packed_names_past_the_limit_are_reported() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("refs")).unwrap();
    let directory = Directory::open(place.path()).unwrap();
    let read = |count: usize| {
        let line = |number: usize| format!("{} refs/tags/{number}\n", "1".repeat(40));
        let text: String = (0..count).map(line).collect();
        fs::write(place.path().join("packed-refs"), text).unwrap();
        Refs::read(&PlainFiles(&directory), Path::new(""))
    };
    let within = read(MOST_REFS);
    assert_eq!((within.values.len(), within.unread), (MOST_REFS, None));
    assert!(read(MOST_REFS + 1).unread.is_some());
}

/// A configuration that cannot be read says nothing about the names of objects.
#[test]
fn the_length_of_names_is_not_guessed() {
    let place = tempfile::tempdir().unwrap();
    let directory = Directory::open(place.path()).unwrap();
    let length = || hash_length(&PlainFiles(&directory));
    assert_eq!(length(), Ok(HashLength::Twenty));
    let write = |text: &str| fs::write(place.path().join("config"), text).unwrap();
    write("[extensions]\n\tobjectFormat = sha256\n");
    assert_eq!(length(), Ok(HashLength::ThirtyTwo));
    write("[extensions]\n\tobjectFormat = sha999\n");
    assert!(length().is_err());
    write(&"#".repeat(LARGEST_CONFIG as usize + 1));
    assert!(length().is_err());
    fs::remove_file(place.path().join("config")).unwrap();
    std::os::unix::fs::symlink("elsewhere", place.path().join("config")).unwrap();
    assert!(length().is_err());
}

/// Whatever the bytes are, reading ends, within its bounds, and never panics.
#[test]
fn fuzz_git_objects() {
    let place = tempfile::tempdir().unwrap();
    let (index, pack) = (place.path().join("index"), place.path().join("pack"));
    bolero::check!().with_max_len(4096).for_each(|bytes: &[u8]| {
        drop(Commit::parse(bytes));
        drop(RefValueForTests::parse(bytes));
        drop(Refs::parse(bytes));
        drop(Refs::parse(&[b"belljar refs 1\nwhole\n", bytes].concat()));
        for hash in [HashLength::Twenty, HashLength::ThirtyTwo] {
            if let Some(entries) = tree_entries(bytes, hash) {
                assert!(entries.iter().all(|entry| !entry.name.is_empty()));
            }
        }
        let (base, delta) = bytes.split_at(bytes.len() / 2);
        if let Some(out) = patched(base, delta, 1 << 16) {
            assert!(out.len() <= 1 << 16);
        }
        // A pack of one object, wherever its index says that it is.
        let mut table = b"\xfftOc\0\0\0\x02".to_vec();
        table.extend(1_u32.to_be_bytes().repeat(256));
        table.extend([0; 20]);
        table.extend([0; 4]);
        table.extend(bytes.get(..4).unwrap_or(&[0; 4]));
        table.extend([0; 40]);
        fs::write(&index, &table).unwrap();
        fs::write(&pack, bytes).unwrap();
        let hash = HashLength::Twenty;
        let opened = Pack::of(File::open(&index).unwrap(), File::open(&pack).unwrap(), hash).unwrap();
        drop(opened.verify(hash));
        fs::write(&index, bytes).unwrap();
        drop(
            Pack::of(File::open(&index).unwrap(), File::open(&pack).unwrap(), hash)
                .map(|pack| pack.verify(hash)),
        );
    });
}

use super::refs::RefValue as RefValueForTests;

#[test]
fn commits_and_names_are_read_as_they_are_written() {
    let id = "1".repeat(40);
    let text = format!(
        "tree {id}\nparent {id}\nauthor A <a> 1 +0000\ncommitter C <c> 12 +0100\n\nsubject\n\nmore\n"
    );
    let commit = Commit::parse(text.as_bytes()).unwrap();
    assert_eq!((commit.parents.len(), commit.time, commit.subject.as_slice()), (1, 12, &b"subject"[..]));
    for broken in ["", "tree x\n\n", "parent 1\n", &text[..60]] {
        assert_eq!(Commit::parse(broken.as_bytes()), None, "{broken}");
    }
    let object = Object { kind: ObjectKind::Blob, content: b"hello\n".to_vec() };
    let name = ObjectId::parse(b"ce013625030ba8dba906f756967f9e9ca394464a").unwrap();
    assert!(object.is(&name, HashLength::Twenty));
    for text in ["ABCDEF0123456789012345678901234567890123", "12", ""] {
        assert_eq!(ObjectId::parse(text.as_bytes()), None);
    }
}
