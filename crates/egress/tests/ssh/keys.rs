//! A key's file is read up to the end of its public key only.

use crate::stage::Stage;
use belljar_contract::SshPublicKey;
use belljar_egress::ssh::{HostKey, HostKeyError, PrivateHalf, public_half};
use belljar_testkit::require;

#[test]
fn the_public_key_of_every_type() {
    require!(Sshd);
    for (kind, private) in [
        (&["-t", "ed25519"][..], PrivateHalf::Plain),
        (&["-t", "ecdsa", "-b", "384"], PrivateHalf::Plain),
        (&["-t", "rsa", "-b", "2048"], PrivateHalf::Plain),
        (&["-t", "rsa", "-b", "2048", "-N", "secret"], PrivateHalf::Passphrase),
    ] {
        let stage = Stage::new();
        let path = stage.key("id", kind);
        let beside = std::fs::read_to_string(stage.path("id.pub")).unwrap();
        std::fs::remove_file(stage.path("id.pub")).unwrap();
        let half = public_half(&path).unwrap();
        assert_eq!((half.key, half.private), (SshPublicKey::parse(&beside).unwrap(), private), "{kind:?}");
    }
}

/// The private key can be missing altogether, because it is not read.
#[test]
fn the_private_key_is_not_read() {
    require!(Sshd);
    let stage = Stage::new();
    let path = stage.key("id", &["-t", "ed25519"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let whole = public_half(&path).unwrap();
    // 15 bytes of magic, three strings, a number and the public key make 94 bytes: 128 characters, and one line ending.
    let head: String = text.chars().take("-----BEGIN OPENSSH PRIVATE KEY-----\n".len() + 128 + 1).collect();
    assert_eq!(public_half(&stage.write("head", &head)).unwrap(), whole);
    let less: String = head.chars().take(head.len() - 4).collect();
    assert!(public_half(&stage.write("less", &less)).is_err(), "the count is exact");
}

#[test]
fn hosts_with_keys_that_cannot_be_checked() {
    require!(Sshd);
    let stage = Stage::new();
    let short = HostKey::new(stage.host("short", &["-t", "rsa", "-b", "1024"])).unwrap_err();
    assert_eq!(short, HostKeyError::Short(1024));
    let cut = [&11_u32.to_be_bytes()[..], b"ssh-ed25519", &31_u32.to_be_bytes(), &[1; 31]].concat();
    let broken = HostKey::new(SshPublicKey::from_blob(&cut).unwrap()).unwrap_err();
    assert_eq!(broken, HostKeyError::Broken("ssh-ed25519".into()));
    let other = [&7_u32.to_be_bytes()[..], b"ssh-dss", &1_u32.to_be_bytes(), &[1; 1]].concat();
    let unsupported = HostKey::new(SshPublicKey::from_blob(&other).unwrap()).unwrap_err();
    assert_eq!(unsupported, HostKeyError::Unsupported("ssh-dss".into()));
}
