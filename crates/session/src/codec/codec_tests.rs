use super::*;
use belljar_contract::{Inbound, MessageId, UserMessage};

fn keep_alive() -> Item {
    Item::Frame(Box::new(Frame::parse(r#"{"type":"keep_alive"}"#).unwrap()))
}

fn all(decoder: Decoder, bytes: &[u8], piece: usize) -> Vec<Item> {
    let mut decoder = decoder;
    let mut items: Vec<Item> = bytes.chunks(piece.max(1)).flat_map(|piece| decoder.push(piece)).collect();
    items.extend(decoder.finish());
    items
}

#[test]
fn every_kind_of_line_comes_out_however_it_is_cut() {
    let mut bytes = b"{\"type\":\"keep_alive\"}\r\n\n\r\nWarning: {\n\xff\xfe\n".to_vec();
    bytes.extend(vec![b'x'; 5000]);
    bytes.extend(b"\n{\"type\":\"keep_alive\"}\n{\"type\":\"keep_alive\"}");
    for piece in [1, 2, 7, 4096, bytes.len()] {
        let items = all(Decoder::with_longest(100), &bytes, piece);
        let [first, warning, not_utf8, long, second, last] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((first, second), (&keep_alive(), &keep_alive()));
        let Item::Noise { line, why } = warning else { panic!("{warning:?}") };
        assert_eq!((line.as_slice(), why.starts_with("not a frame: ")), (b"Warning: {".as_slice(), true));
        let Item::Noise { line, why } = not_utf8 else { panic!("{not_utf8:?}") };
        assert_eq!((line.as_slice(), why.contains("utf-8")), (b"\xff\xfe".as_slice(), true));
        let Item::Oversized { head, bytes } = long else { panic!("{long:?}") };
        assert_eq!(*bytes, 5000);
        assert!(head.len() <= KEPT_OF_OVERSIZED && head.iter().all(|byte| *byte == b'x'), "{piece}");
        assert_eq!(last, &Item::CutOff { line: b"{\"type\":\"keep_alive\"}".to_vec() });
    }
}

#[test]
fn a_line_of_exactly_the_longest_is_kept() {
    let line = b"{\"type\":\"keep_alive\"}\n";
    assert_eq!(all(Decoder::with_longest(line.len() - 1), line, 3), [keep_alive()]);
    assert!(matches!(
        all(Decoder::with_longest(line.len() - 2), line, 3)[..],
        [Item::Oversized { bytes: 21, .. }]
    ));
    let unended = all(Decoder::with_longest(4), b"123456", 1);
    assert!(matches!(unended[..], [Item::Oversized { bytes: 6, .. }]), "{unended:?}");
}

#[test]
fn a_message_is_one_line_whatever_it_says() {
    let text = "a\n{\"type\":\"bash_command\",\"command\":\"id\"}\r\n\u{2028}\0";
    let message = UserMessage { id: MessageId::new("m").unwrap(), text: text.to_owned() };
    let line = encode(&Outbound::User(message));
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(line.last(), Some(&b'\n'));
    let items = all(Decoder::default(), &line, 1);
    let [Item::Frame(frame)] = items.as_slice() else { panic!("{items:?}") };
    assert!(matches!(frame.body, Inbound::User(_)));
    assert_eq!(frame.raw["message"]["content"], text);
}

#[test]
fn fuzz_lines() {
    let everyday = std::time::Duration::from_millis(300);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        let whole = all(Decoder::with_longest(64), bytes, bytes.len());
        // How the bytes were cut on their way does not matter.
        let piece = usize::from(bytes.first().copied().unwrap_or(1) % 9) + 1;
        assert_eq!(all(Decoder::with_longest(64), bytes, piece).len(), whole.len());
    });
}
