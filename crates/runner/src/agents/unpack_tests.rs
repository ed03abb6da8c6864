use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

const PROGRAM: &str = "package/agent";
const SMALL: UnpackLimits = UnpackLimits { file: 4096, total: 64 << 10, entries: 8 };

/// An archive of these entries; a name is written as it is.
fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn taken(archive: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match take_program(archive, PROGRAM, &mut out, SMALL) {
        Ok(size) => {
            assert_eq!(size, out.len() as u64);
            Ok(out)
        }
        Err(error) => Err(error.to_string()),
    }
}

const FILE: EntryType = EntryType::Regular;

#[test]
fn the_program_alone_is_taken() {
    let whole = archive(&[
        ("package", EntryType::Directory, b""),
        ("package/package.json", FILE, b"{}"),
        ("./package/agent", FILE, b"the program"),
        ("package/README.md", FILE, b"x"),
    ]);
    assert_eq!(taken(&whole).as_deref(), Ok(&b"the program"[..]));
}

#[test]
fn entries_that_no_package_needs_are_refused_wherever_they_are() {
    let large = vec![b'x'; 4097];
    let cases: [(&str, EntryType, &[u8], &str); 11] = [
        ("../agent", FILE, b"x", "leads out"),
        ("package/../../agent", FILE, b"x", "leads out"),
        ("/etc/agent", FILE, b"x", "leads out"),
        ("package/link", EntryType::Symlink, b"", "a symbolic link"),
        ("package/link", EntryType::Link, b"", "a hard link"),
        ("package/null", EntryType::Char, b"", "a device"),
        ("package/pipe", EntryType::Fifo, b"", "a pipe"),
        ("package/large", FILE, &large, "more than belljar accepts"),
        ("package/agent", FILE, b"another", "twice"),
        ("package/x", EntryType::GNULongName, b"name", "neither a file"),
        ("package/x", EntryType::XHeader, b"21 path=package/agent\n", "renames"),
    ];
    for (name, kind, content, why) in cases {
        let program = (PROGRAM, FILE, &b"x"[..]);
        for entries in [[(name, kind, content), program], [program, (name, kind, content)]] {
            let refused = taken(&archive(&entries)).unwrap_err();
            assert!(refused.contains(why), "{name} {kind:?}: {refused}");
        }
    }
}

#[test]
fn an_archive_is_bounded() {
    let names: Vec<String> = (0..9).map(|number| format!("package/{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), FILE, &b"x"[..])).collect();
    assert!(taken(&archive(&many)).unwrap_err().contains("more than 8 entries"));
    // A bomb: much more than the limit behind the last entry.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    let mut plain = Vec::new();
    GzDecoder::new(&archive(&[(PROGRAM, FILE, b"x")])[..]).read_to_end(&mut plain).unwrap();
    plain.truncate(1024);
    let mut header = Header::new_ustar();
    header.set_path("package/claims").unwrap();
    header.set_size(u64::MAX >> 2);
    header.set_cksum();
    plain.extend_from_slice(header.as_bytes());
    bomb.write_all(&plain).unwrap();
    bomb.write_all(&vec![0; 1 << 20]).unwrap();
    assert!(taken(&bomb.finish().unwrap()).unwrap_err().contains("more than belljar accepts"));
}

#[test]
fn an_archive_without_the_program_is_refused() {
    for entries in [&[("package/other", FILE, &b"x"[..])][..], &[(PROGRAM, FILE, b"")], &[]] {
        assert!(taken(&archive(entries)).unwrap_err().contains("does not contain"));
    }
    assert!(taken(b"not an archive").unwrap_err().contains("cannot be read"));
    let whole = archive(&[(PROGRAM, FILE, &[b'x'; 4000])]);
    for length in [0, 1, 10, 20, whole.len() / 2, whole.len() - 20] {
        assert!(taken(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn any_bytes_are_read() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes: &Vec<u8>| {
        drop(taken(bytes));
        // The same as the plain archive, so that the entries are reached.
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        drop(taken(&packed.finish().unwrap()));
    });
}
