use super::*;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bolero::TypeGenerator;
use std::time::Duration;

fn scrubber(list: &[(&str, &str)]) -> Arc<Scrubber> {
    let secrets: Vec<(&str, Secret)> =
        list.iter().map(|(name, value)| (*name, Secret::new(*value))).collect();
    let (scrubber, unsearched) = Scrubber::new(secrets.iter().map(|(name, secret)| (*name, secret)));
    assert_eq!(unsearched, []);
    Arc::new(scrubber)
}

fn in_pieces(scrubber: &Arc<Scrubber>, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = scrubber.stream();
    let mut out: Vec<u8> = Vec::new();
    for piece in pieces {
        let passes = stream.lets_pass(piece);
        let left = if passes { piece.to_vec() } else { stream.push(piece) };
        out.extend(left);
    }
    out.extend(stream.finish());
    out
}

#[test]
fn literal_and_as_json_writes_it() {
    let scrubber = scrubber(&[("A", "tok\"en\n"), ("B", "plain"), ("EMPTY", "")]);
    for (text, scrubbed) in [
        ("", ""),
        ("nothing here, é", "nothing here, é"),
        ("x plain plain", "x [redacted:B] [redacted:B]"),
        ("tok\"en\n", "[redacted:A]"),
        (r#"{"a": "tok\"en\n"}"#, r#"{"a": "[redacted:A]"}"#),
        (r#""{\"a\": \"tok\\\"en\\n\"}""#, r#""{\"a\": \"[redacted:A]\"}""#),
        ("tok\"en", "tok\"en"),
    ] {
        assert_eq!(scrubber.scrub(text), scrubbed);
    }
}

/// A file may escape any character, and a request quotes the file.
#[test]
fn a_value_is_found_however_json_escapes_it() {
    let scrubber = scrubber(&[("URL", "postgres://u:p4ss\\@db/x\""), ("SHORT", "postgres:")]);
    let values = [
        r#"postgres:\/\/u:p4ss\\@db\/x\""#,
        r#"postgres:/\/u:p4s\u0073\u005C@db\u002fx\u0022"#,
        r#"p\u006fstgres:\u002F/u:p4ss\\@db/x\""#,
    ];
    for value in values {
        let mut quoted = value.to_owned();
        for _level in 0..5 {
            let text = serde_json::json!({"content": quoted, "more": "\\"}).to_string();
            assert_eq!(scrubber.scrub(&text), r#"{"content":"[redacted:URL]","more":"\\"}"#, "{text}");
            let string = serde_json::json!(quoted).to_string();
            quoted = string[1..string.len() - 1].to_owned();
        }
    }
    let other = r#"{"path": "C:\\u\\new", "text": "postgres\/\/u:p4ss \ud83d"}"#;
    assert_eq!(scrubber.scrub(other), other);
    assert_eq!(scrubber.scrub(r"\\\/postgres:\/"), r"\\\/[redacted:SHORT]\/");
}

#[test]
fn the_longest_wins_and_marks_are_not_searched() {
    let scrubber = scrubber(&[("SHORT", "abcde"), ("LONG", "abcdefgh"), ("WORD", "redacted")]);
    assert_eq!(scrubber.scrub("abcdefgh abcde"), "[redacted:LONG] [redacted:SHORT]");
    assert_eq!(in_pieces(&scrubber, &[b"abcde", b"fgh abcd", b"e"]), b"[redacted:LONG] [redacted:SHORT]");
}

#[test]
fn values_that_are_not_searched_for_are_reported() {
    let secrets = [("PIN", Secret::new("1234")), ("BOOK", Secret::new(vec![b'x'; SCRUBBED_MAX + 1]))];
    let (scrubber, unsearched) = Scrubber::new(secrets.iter().map(|(name, secret)| (*name, secret)));
    let names: Vec<_> = unsearched.iter().map(|one| (one.name.as_str(), one.why)).collect();
    assert_eq!(names, [("PIN", Unsearchable::Short), ("BOOK", Unsearchable::Long)]);
    assert_eq!(scrubber.scrub("1234"), "1234");
    assert_eq!(format!("{scrubber:?}"), "Scrubber(…)");
}

#[test]
fn every_form_is_found_whole_and_in_pieces() {
    let value = "a/key+of-some=length-that-needs-more-than-one-line-of-base64-to-be-written";
    let scrubber = scrubber(&[("KEY", value)]);
    for form in forms::every_form(value.as_bytes()) {
        let text = [b"data: ", &form[..], b" <-"].concat();
        let scrubbed = b"data: [redacted:KEY] <-";
        assert_eq!(scrubber.scrub_bytes(&text).as_deref(), Some(&scrubbed[..]));
        let pieces: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(in_pieces(&scrubber, &pieces), scrubbed);
    }
}

#[test]
fn basic_authentication() {
    let scrubber = scrubber(&[("TOKEN", "ghp_0123456789abcdef")]);
    let echoed = format!("Basic {}", STANDARD.encode("x-access-token:ghp_0123456789abcdef"));
    let scrubbed = scrubber.scrub(&echoed);
    assert!(scrubbed.contains("[redacted:TOKEN]"), "{scrubbed}");
}

#[test]
fn an_event_leaves_at_once() {
    let scrubber = scrubber(&[("TOKEN", "secret-value")]);
    let mut stream = scrubber.stream();
    assert_eq!(stream.push(b"data: {\"text\": \"se\"}\n\n"), b"data: {\"text\": \"se\"}\n\n");
    assert!(!stream.holds());
    assert_eq!(stream.push(b"data: sec"), b"data: ");
    assert_eq!(stream.push(b"ond\n\n"), b"second\n\n");
    assert_eq!(stream.push(b"data: secret-v"), b"data: ");
    assert_eq!(stream.push(b"alue\n\n"), b"[redacted:TOKEN]\n\n");
    assert_eq!(stream.push(b"s"), b"");
    assert_eq!(stream.finish(), b"s");
}

#[derive(Debug, TypeGenerator)]
struct Case {
    value: Vec<u8>,
    other: Vec<u8>,
    ahead: Vec<u8>,
    behind: Vec<u8>,
    cut: u8,
}

/// A value in texts, encoded by the usual libraries.
fn encoded(value: &[u8], ahead: &[u8], behind: &[u8]) -> Vec<Vec<u8>> {
    let amid = [ahead, value, behind].concat();
    let mut all = vec![amid.clone()];
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        all.push(engine.encode(&amid).into_bytes());
    }
    let lines: Vec<Vec<u8>> = STANDARD.encode(&amid).as_bytes().chunks(76).map(<[u8]>::to_vec).collect();
    all.push(lines.join(&b"\n"[..]));
    all.push(amid.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect());
    all.push(amid.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
    if let Ok(text) = std::str::from_utf8(&amid) {
        let quoted = serde_json::json!(text).to_string();
        all.push(serde_json::json!(quoted).to_string().into_bytes());
        all.push(quoted.into_bytes());
    }
    all
}

#[test]
fn fuzz_scrub() {
    bolero::check!().with_test_time(Duration::from_millis(600)).with_type::<Case>().for_each(|case| {
        let Case { value, other, ahead, behind, cut } = case;
        if value.len() < SCRUBBED_MIN
            || value.len() > 64
            || b"[redacted:VALUE]OTHER".windows(3).any(|mark| value.windows(3).any(|part| part == mark))
        {
            return;
        }
        let secrets = [("VALUE", Secret::new(value.clone())), ("OTHER", Secret::new(other.clone()))];
        let (scrubber, _) = Scrubber::new(secrets.iter().map(|(name, secret)| (*name, secret)));
        let scrubber = Arc::new(scrubber);
        for text in encoded(value, ahead, behind) {
            let whole = scrubber.scrub_bytes(&text).unwrap_or_else(|| text.clone());
            for form in forms::every_form(value) {
                let stays = whole.windows(form.len()).any(|part| part == form.as_slice());
                assert!(
                    !stays,
                    "{:?} in {:?}",
                    String::from_utf8_lossy(&form),
                    String::from_utf8_lossy(&whole)
                );
            }
            assert_ne!(whole, text);
            let pieces: Vec<&[u8]> = text.chunks(usize::from(*cut).max(1)).collect();
            assert_eq!(in_pieces(&scrubber, &pieces), whole);
        }
    });
}

#[test]
fn fuzz_scrub_leaves_other_texts() {
    let scrubber = scrubber(&[("TOKEN", "a-secret-value-of-some-length"), ("KEY", "aaaaaaaab\nccccccc")]);
    bolero::check!().with_test_time(Duration::from_millis(300)).with_type::<(Vec<u8>, u8)>().for_each(
        |(bytes, cut)| {
            let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*cut).max(1)).collect();
            assert_eq!(in_pieces(&scrubber, &pieces), *bytes);
        },
    );
}

#[test]
fn a_mark_is_recognised_and_other_texts_are_not() {
    let scrubbed = scrubber(&[("TOKEN", "s3cret-value")]).scrub("it is s3cret-value.");
    assert!(holds_redaction(scrubbed.as_bytes()), "{scrubbed}");
    assert!(holds_redaction(REDACTED_NAME.as_bytes()));
    for text in ["it is s3cret-value.", "redacted: no", "[redacted]", ""] {
        assert!(!holds_redaction(text.as_bytes()), "{text}");
    }
}
