//! Extracts server-sent events from a stream whose chunks end anywhere.

/// How much of one event is kept. Events with token counts are far shorter; a longer event is skipped.
const MAX_EVENT_BYTES: usize = 256 * 1024;

/// Finds the data of each event. Only the current event is kept.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    oversize: bool,
    after_carriage_return: bool,
    begun: bool,
}

impl Events {
    /// Takes a piece of the stream and passes on the data of each event that it completes.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (piece, rest) = bytes.split_at(end);
            let ending = rest[0];
            bytes = &rest[1..];
            let second_of_pair = self.after_carriage_return && ending == b'\n' && piece.is_empty();
            self.after_carriage_return = ending == b'\r';
            if second_of_pair {
                continue;
            }
            self.keep(piece);
            self.end_line(&mut each);
        }
        if !bytes.is_empty() {
            self.after_carriage_return = false;
            self.keep(bytes);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.oversize || self.line.len() + self.data.len() + piece.len() > MAX_EVENT_BYTES {
            self.oversize = true;
            self.data = Vec::new();
            // From here on only empty lines matter, which end the event.
            self.line.truncate(1);
            self.line.extend(piece.first().filter(|_| self.line.is_empty()));
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.line);
        if !self.begun && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        self.begun = true;
        if line.is_empty() {
            if self.has_data && !self.oversize {
                each(&self.data);
            }
            self.data.clear();
            self.has_data = false;
            self.oversize = false;
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        // The buffer is reused.
        line.clear();
        self.line = line;
    }

    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.line.capacity() + self.data.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = Events::default();
        for piece in pieces {
            events.feed(piece, |data| found.push(String::from_utf8_lossy(data).into_owned()));
        }
        found
    }

    #[test]
    fn every_way_to_end_a_line_ends_it() {
        for text in ["data: a\n\ndata:b\n\n", "data: a\r\n\r\ndata:b\r\n\r\n", "data: a\r\rdata:b\r\r"] {
            assert_eq!(events(&[text.as_bytes()]), ["a", "b"], "{text:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(events(&single), ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn comments_names_and_empty_events_are_no_data() {
        let text = "\u{feff}data: x\n: note\nevent: e\nid: 1\n\nevent: ping\n\ndata: a\ndata: b\n\ndata: unfinished\n";
        assert_eq!(events(&[text.as_bytes()]), ["x", "a\nb"]);
    }

    #[test]
    fn an_event_without_end_is_passed_over_and_holds_no_memory() {
        let mut parser = Events::default();
        let mut found = Vec::new();
        parser.feed(b"data: ", |_| ());
        for _ in 0..64 {
            parser.feed(&[b'x'; 65_536], |_| ());
            assert!(parser.held_bytes() < 2 * MAX_EVENT_BYTES, "{}", parser.held_bytes());
        }
        parser.feed(b"\n\ndata: next\n\n", |data| found.push(data.to_vec()));
        assert_eq!(found, [b"next"]);
    }
}
