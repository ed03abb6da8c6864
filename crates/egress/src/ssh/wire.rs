//! The encoding of numbers and strings in SSH. Parsers return `None` if the input is too short.

/// Reads from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    /// A string, which is preceded by its length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length = usize::try_from(ahead.number()?).ok()?;
        let (text, rest) = ahead.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// A positive number of any length, without leading zeros.
    pub fn integer(&mut self) -> Option<&'a [u8]> {
        let bytes = self.string()?;
        if bytes.first().is_some_and(|byte| byte & 0x80 != 0) {
            return None;
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..)
    }

    /// Checks that nothing is left.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// The data comes from a frame of limited size, so that its length fits.
    pub fn string(self, bytes: &[u8]) -> Self {
        let mut this = self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        this.0.extend_from_slice(bytes);
        this
    }

    #[cfg(test)]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The frame: the content, preceded by its length.
    pub fn frame(self) -> Vec<u8> {
        Writer::default().string(&self.0).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_values_are_decoded() {
        let bytes = Writer::default().byte(7).number(258).string(b"abc").string(b"").finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.byte(), reader.number()), (Some(7), Some(258)));
        assert_eq!((reader.string(), reader.string()), (Some(&b"abc"[..]), Some(&b""[..])));
        assert!(reader.end().is_some());
        assert_eq!((reader.byte(), reader.number(), reader.string()), (None, None, None));
    }

    #[test]
    fn a_wrong_length_reads_nothing() {
        for bytes in [&[0, 0, 0, 2, 1][..], &[0xff; 8], &[0, 0, 0]] {
            let mut reader = Reader::new(bytes);
            assert_eq!(reader.string(), None);
            assert!(reader.end().is_none());
        }
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0x80]).integer(), None, "a negative number");
        assert_eq!(Reader::new(&[0, 0, 0, 2, 0, 0x80]).integer(), Some(&[0x80][..]));
    }
}
