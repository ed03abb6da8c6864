use super::*;
use std::time::{Duration, Instant};

fn merged(base: &str, ours: &str, theirs: &str) -> (String, usize) {
    let versions = Versions { base: base.as_bytes(), ours: ours.as_bytes(), theirs: theirs.as_bytes() };
    let Merge { text, conflicts } = merge(versions).unwrap();
    (String::from_utf8(text).unwrap(), conflicts)
}

#[test]
fn changes_of_different_lines_are_joined() {
    for (base, ours, theirs, wanted) in [
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"),
        ("a\nb\nc\n", "a\nb\nc\nd\n", "b\nc\n", "b\nc\nd\n"),
        ("a\nb\nc\n", "x\na\nb\nc\n", "a\nb\n", "x\na\nb\n"),
        // Both did the same, and one did more.
        ("a\nb\nc\n", "A\nb\nc\n", "A\nb\nC\n", "A\nb\nC\n"),
        ("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", "A\r\nb\r\nC\r\n"),
        // No line feed at the end, on one side, on the other, on both.
        ("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC"),
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc", "A\nb\nc"),
        ("a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n"),
        ("", "", "", ""),
        ("a\n", "", "a\n", ""),
    ] {
        assert_eq!(merged(base, ours, theirs), (wanted.to_owned(), 0), "{base:?} {ours:?} {theirs:?}");
    }
}

#[test]
fn changes_that_touch_are_a_conflict() {
    for (base, ours, theirs) in [
        ("a\nb\n", "A\nb\n", "x\nb\n"),
        ("a\nb\n", "A\nb\n", "a\nB\n"),
        ("a\n", "a\nours\n", "a\ntheirs\n"),
        ("", "ours\n", "theirs\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nB\nc\n"),
        ("a", "a\nb", "x\na"),
    ] {
        assert_eq!(merged(base, ours, theirs).1, 1, "{base:?} {ours:?} {theirs:?}");
        assert_eq!(merged(base, theirs, ours).1, 1, "{base:?} {theirs:?} {ours:?}");
    }
}

#[test]
fn markers_are_on_lines_of_their_own() {
    let (text, _) = merged("a\nb\nc\n", "a\nours\nc\n", "a\ntheirs\nc\n");
    assert_eq!(text, "a\n<<<<<<< yours\nours\n=======\ntheirs\n>>>>>>> agent\nc\n");
    let (text, _) = merged("a\nb", "a\nours", "a\ntheirs");
    assert_eq!(text, "a\n<<<<<<< yours\nours\n=======\ntheirs\n>>>>>>> agent\n");
    let (text, _) = merged("a\r\n", "ours\r\n", "theirs\r\n");
    assert_eq!(text, "<<<<<<< yours\r\nours\r\n=======\r\ntheirs\r\n>>>>>>> agent\r\n");
}

#[test]
fn bytes_that_are_no_text_are_not_merged() {
    fn ours(ours: &[u8]) -> Result<Merge, NotText> {
        merge(Versions { base: b"a\n", ours, theirs: b"a\n" })
    }
    assert_eq!(ours(b"a\0\n"), Err(NotText::Binary));
    assert_eq!(ours(b"a\xff\xfe\n").unwrap().text, b"a\xff\xfe\n", "other encodings are");
    assert_eq!(ours(&vec![b'a'; LARGEST as usize + 1]), Err(NotText::TooLarge));
    assert_eq!(ours(&vec![b'\n'; MOST_LINES + 1]), Err(NotText::TooLarge));
}

/// The most lines that are taken, in the forms that cost a comparison most.
#[test]
fn no_versions_take_long() {
    let text = |line: &dyn Fn(usize) -> usize| {
        (0..MOST_LINES).flat_map(|number| format!("{}\n", line(number)).into_bytes()).collect::<Vec<_>>()
    };
    let counted = text(&|number| number);
    let scattered = |seed: usize| {
        move |number: usize| (number.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7) % 1000
    };
    let others: [&dyn Fn(usize) -> usize; 4] =
        [&|number| number + MOST_LINES, &|number| MOST_LINES - number, &|number| number % 2, &scattered(1)];
    for (at, other) in others.into_iter().enumerate() {
        let began = Instant::now();
        let (ours, theirs) = (text(other), text(&scattered(7 * at + 3)));
        merge(Versions { base: &counted, ours: &ours, theirs: &theirs }).unwrap();
        merge(Versions { base: &ours, ours: &theirs, theirs: &counted }).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{at}: {:?}", began.elapsed());
    }
}

/// Whatever the bytes are: one side's changes alone are that side, and nothing that is not between markers is made up.
#[test]
fn fuzz_merge() {
    bolero::check!().with_max_len(2048).for_each(|bytes: &[u8]| {
        // Few different lines, so that they meet.
        let lines: Vec<u8> =
            bytes.iter().flat_map(|byte| [b'a' + byte % 5, b"\n\nx"[usize::from(byte % 3)]]).collect();
        for text in [bytes, &lines] {
            let (base, rest) = text.split_at(text.len() / 3);
            let (ours, theirs) = rest.split_at(rest.len() / 2);
            let of = |base, ours, theirs| merge(Versions { base, ours, theirs });
            if [base, ours, theirs].iter().any(|text| check_text(text).is_err()) {
                assert!(of(base, ours, theirs).is_err());
                continue;
            }
            let clean = |text: &[u8]| Ok(Merge { text: text.to_vec(), conflicts: 0 });
            assert_eq!(of(base, base, theirs), clean(theirs));
            assert_eq!(of(base, ours, base), clean(ours));
            assert_eq!(of(base, ours, ours), clean(ours));
            let both = of(base, ours, theirs).unwrap();
            assert_eq!(both.conflicts, of(base, theirs, ours).unwrap().conflicts);
            if both.conflicts == 0 {
                assert_eq!(of(base, theirs, ours), Ok(both));
            }
        }
    });
}
