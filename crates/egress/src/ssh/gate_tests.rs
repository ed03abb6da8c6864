//! The decisions, with one fault at a time. The tests have the host's private key, so that it can sign anything.

use super::gate::{BindRefusal, Purpose, SignRefusal, SigningGate};
use super::grant::SshGrant;
use super::host_key::HostKey;
use super::message::{Bind, SignRequest};
use super::wire::Writer;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use belljar_contract::SshPublicKey;

const SESSION: [u8; 32] = [7; 32];

struct Host {
    pair: Ed25519KeyPair,
    public: SshPublicKey,
}

impl Host {
    fn new(seed: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let public = ed25519(pair.public_key().as_ref());
        Self { pair, public }
    }

    fn sign(&self, session: &[u8]) -> Vec<u8> {
        let signature = self.pair.sign(session);
        Writer::default().string(b"ssh-ed25519").string(signature.as_ref()).finish()
    }
}

fn ed25519(bytes: &[u8]) -> SshPublicKey {
    SshPublicKey::from_blob(&Writer::default().string(b"ssh-ed25519").string(bytes).finish()).unwrap()
}

fn rsa() -> SshPublicKey {
    let modulus = [&[0][..], &[0xc3; 256]].concat();
    let blob = Writer::default().string(b"ssh-rsa").string(&[1, 0, 1]).string(&modulus).finish();
    SshPublicKey::from_blob(&blob).unwrap()
}

fn grant(host: &Host, user: &str, key: &SshPublicKey) -> SshGrant {
    SshGrant {
        host: format!("{user}-alias"),
        user: user.to_owned(),
        key: key.clone(),
        host_keys: vec![HostKey::new(host.public.clone()).unwrap()],
        agent: "/nowhere".into(),
        sign_commits: false,
    }
}

#[derive(Clone)]
struct LoginFields<'a> {
    session: &'a [u8],
    user: &'a str,
    service: &'a str,
    algorithm: &'a str,
    key: &'a SshPublicKey,
    host_key: Option<&'a SshPublicKey>,
}

impl LoginFields<'_> {
    fn bytes(&self) -> Vec<u8> {
        let method = match self.host_key {
            Some(_) => "publickey-hostbound-v00@openssh.com",
            None => "publickey",
        };
        let out = Writer::default()
            .string(self.session)
            .byte(50)
            .string(self.user.as_bytes())
            .string(self.service.as_bytes())
            .string(method.as_bytes())
            .byte(1)
            .string(self.algorithm.as_bytes())
            .string(self.key.blob());
        self.host_key.into_iter().fold(out, |out, key| out.string(key.blob())).finish()
    }
}

fn git<'a>(key: &'a SshPublicKey) -> LoginFields<'a> {
    LoginFields {
        session: &SESSION,
        user: "git",
        service: "ssh-connection",
        algorithm: "ssh-ed25519",
        key,
        host_key: None,
    }
}

fn bind(gate: &mut SigningGate<'_>, host: &Host) -> Result<(), BindRefusal> {
    let signature = host.sign(&SESSION);
    gate.bind(&Bind {
        host_key: host.public.blob(),
        session: &SESSION,
        signature: &signature,
        forwarding: false,
    })
}

fn sign(gate: &SigningGate<'_>, key: &SshPublicKey, data: &[u8], flags: u32) -> Result<String, SignRefusal> {
    let request = SignRequest { key: key.blob(), data, flags };
    gate.sign(&request).map(|approved| approved.grant.host.clone())
}

fn message(namespace: &str) -> Vec<u8> {
    let rest = Writer::default().string(namespace.as_bytes()).string(b"").string(b"sha512").string(&[9; 64]);
    [b"SSHSIG".to_vec(), rest.finish()].concat()
}

#[test]
fn only_the_declared_login_is_signed() {
    let (forge, key, other) = (Host::new(1), ed25519(&[5; 32]), ed25519(&[6; 32]));
    let grants = [grant(&forge, "git", &key)];
    let mut gate = SigningGate::new(&grants);
    let login = git(&key);
    assert_eq!(sign(&gate, &key, &login.bytes(), 0), Err(SignRefusal::Unbound));
    bind(&mut gate, &forge).unwrap();
    assert_eq!(sign(&gate, &key, &login.bytes(), 0).unwrap(), "git-alias");
    let bound = LoginFields { host_key: Some(&forge.public), ..login.clone() };
    assert_eq!(sign(&gate, &key, &bound.bytes(), 0).unwrap(), "git-alias");

    let elsewhere = Host::new(2);
    let cases = [
        (LoginFields { session: &[8; 32], ..login.clone() }, SignRefusal::OtherSession),
        (LoginFields { session: &SESSION[..31], ..login.clone() }, SignRefusal::OtherSession),
        (LoginFields { user: "root", ..login.clone() }, SignRefusal::User("root".into())),
        (LoginFields { user: "", ..login.clone() }, SignRefusal::User(String::new())),
        (
            LoginFields { service: "ssh-userauth", ..login.clone() },
            SignRefusal::Service("ssh-userauth".into()),
        ),
        (LoginFields { algorithm: "ssh-rsa", ..login.clone() }, SignRefusal::Algorithm("ssh-rsa".into())),
        (LoginFields { key: &other, ..login.clone() }, SignRefusal::OtherKey),
        (LoginFields { host_key: Some(&elsewhere.public), ..login.clone() }, SignRefusal::OtherHost),
    ];
    for (login, refusal) in cases {
        assert_eq!(sign(&gate, &key, &login.bytes(), 0), Err(refusal));
    }
    assert_eq!(sign(&gate, &other, &git(&other).bytes(), 0), Err(SignRefusal::UnknownKey));
    assert_eq!(sign(&gate, &key, &login.bytes(), 4), Err(SignRefusal::Algorithm("ssh-ed25519".into())));
    assert_eq!(sign(&gate, &key, b"anything", 0), Err(SignRefusal::Unreadable));
}

#[test]
fn a_binding_is_checked_and_happens_once() {
    let (forge, elsewhere, key) = (Host::new(1), Host::new(2), ed25519(&[5; 32]));
    let grants = [grant(&forge, "git", &key)];
    let good = forge.sign(&SESSION);
    let of_another_session = forge.sign(&[8; 32]);
    let of_another_host = elsewhere.sign(&SESSION);
    let named_otherwise = Writer::default().string(b"rsa-sha2-256").string(&good[good.len() - 64..]).finish();
    let longer = [&good[..], &[0]].concat();
    let plain =
        Bind { host_key: forge.public.blob(), session: &SESSION, signature: &good, forwarding: false };
    let unknown = BindRefusal::UnknownHost(elsewhere.public.fingerprint());
    let cases = [
        (Bind { forwarding: true, ..plain }, BindRefusal::Forwarded),
        (Bind { session: &[7; 19], ..plain }, BindRefusal::Session),
        (Bind { session: &[7; 65], ..plain }, BindRefusal::Session),
        (Bind { host_key: elsewhere.public.blob(), signature: &of_another_host, ..plain }, unknown),
        (Bind { host_key: b"", ..plain }, BindRefusal::UnknownHost("(invalid)".into())),
        (Bind { signature: &of_another_session, ..plain }, BindRefusal::Signature),
        (Bind { signature: &of_another_host, ..plain }, BindRefusal::Signature),
        (Bind { signature: &named_otherwise, ..plain }, BindRefusal::Signature),
        (Bind { signature: &longer, ..plain }, BindRefusal::Signature),
        (Bind { signature: b"", ..plain }, BindRefusal::Signature),
    ];
    for (bind_request, refusal) in cases {
        let mut gate = SigningGate::new(&grants);
        assert_eq!(gate.bind(&bind_request), Err(refusal));
        // A valid binding does not help after a refused one.
        assert_eq!(bind(&mut gate, &forge), Err(BindRefusal::Again));
        assert_eq!(sign(&gate, &key, &git(&key).bytes(), 0), Err(SignRefusal::BindRefused));
        assert_eq!(gate.bind_frame(), None);
    }
    let mut gate = SigningGate::new(&grants);
    bind(&mut gate, &forge).unwrap();
    assert_eq!(bind(&mut gate, &forge), Err(BindRefusal::Again));
    assert_eq!(sign(&gate, &key, &git(&key).bytes(), 0), Err(SignRefusal::BindRefused));
}

#[test]
fn users_keys_and_hosts_belong_together() {
    let (forge, backup) = (Host::new(1), Host::new(2));
    let (first, second) = (ed25519(&[5; 32]), ed25519(&[6; 32]));
    let grants =
        [grant(&forge, "git", &first), grant(&forge, "deploy", &second), grant(&backup, "store", &first)];
    let unbound = SigningGate::new(&grants);
    assert_eq!(unbound.keys(), [(&first, "git-alias"), (&second, "deploy-alias")], "each key once");
    let mut gate = SigningGate::new(&grants);
    bind(&mut gate, &backup).unwrap();
    assert_eq!(gate.keys(), [(&first, "store-alias")]);
    let user = |user, key| LoginFields { user, ..git(key) }.bytes();
    assert_eq!(sign(&gate, &first, &user("store", &first), 0).unwrap(), "store-alias");
    assert_eq!(sign(&gate, &first, &user("git", &first), 0), Err(SignRefusal::User("git".into())));
    let mut gate = SigningGate::new(&grants);
    bind(&mut gate, &forge).unwrap();
    assert_eq!(sign(&gate, &second, &user("deploy", &second), 0).unwrap(), "deploy-alias");
    assert_eq!(sign(&gate, &first, &user("deploy", &first), 0), Err(SignRefusal::User("deploy".into())));
}

#[test]
fn rsa_signs_with_sha2_only() {
    let (forge, key) = (Host::new(1), rsa());
    let mut allowed = grant(&forge, "git", &key);
    allowed.sign_commits = true;
    let grants = [allowed];
    let mut gate = SigningGate::new(&grants);
    for (flags, good) in [(0, false), (1, false), (2, true), (4, true), (6, false)] {
        assert_eq!(sign(&gate, &key, &message("git"), flags).is_ok(), good, "{flags}");
    }
    bind(&mut gate, &forge).unwrap();
    let with = |algorithm| LoginFields { algorithm, ..git(&key) }.bytes();
    for (algorithm, flags, good) in [
        ("rsa-sha2-256", 2, true),
        ("rsa-sha2-512", 4, true),
        ("rsa-sha2-512", 2, false),
        ("rsa-sha2-512", 0, false),
        ("ssh-rsa", 0, false),
        ("ssh-rsa", 2, false),
    ] {
        assert_eq!(sign(&gate, &key, &with(algorithm), flags).is_ok(), good, "{algorithm} {flags}");
    }
}

#[test]
fn commits_are_signed_if_the_entry_allows_it() {
    let (forge, key, other) = (Host::new(1), ed25519(&[5; 32]), ed25519(&[6; 32]));
    let closed = [grant(&forge, "git", &key)];
    assert_eq!(sign(&SigningGate::new(&closed), &key, &message("git"), 0), Err(SignRefusal::Commits));
    let mut open = [grant(&forge, "git", &key), grant(&forge, "deploy", &other)];
    open[0].sign_commits = true;
    let gate = SigningGate::new(&open);
    let request = SignRequest { key: key.blob(), data: &message("git"), flags: 0 };
    assert_eq!(gate.sign(&request).unwrap().purpose, Purpose::Commit);
    assert_eq!(sign(&gate, &other, &message("git"), 0), Err(SignRefusal::Commits));
    assert_eq!(sign(&gate, &key, &message("file"), 0), Err(SignRefusal::Namespace("file".into())));
    assert_eq!(sign(&gate, &key, &message("git2"), 0), Err(SignRefusal::Namespace("git2".into())));
    let mut gate = SigningGate::new(&open);
    bind(&mut gate, &forge).unwrap();
    assert_eq!(sign(&gate, &key, &message("git"), 0), Err(SignRefusal::BindRefused));
}
