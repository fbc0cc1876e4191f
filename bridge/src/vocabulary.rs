//! What each id is: its text in the vocabulary, the bytes it decodes to, and whether it was added.

/// Ids above this are refused: tables are indexed by id, and no vocabulary comes near it.
pub const MAX_TOKENS: usize = 1 << 24;

const ADDED: u8 = 1;
const SPECIAL: u8 = 2;

/// Many byte strings in one allocation, addressed by index.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Strings { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[begin..end]
    }
}

#[derive(Default)]
pub struct Vocabulary {
    pub pieces: Strings,
    pub bytes: Strings,
    flags: Vec<u8>,
}

impl Vocabulary {
    pub fn with_capacity(count: usize) -> Self {
        Vocabulary {
            pieces: Strings::with_capacity(count, count * 8),
            bytes: Strings::with_capacity(count, count * 8),
            flags: Vec::with_capacity(count),
        }
    }

    /// The next id.
    pub fn push(&mut self, piece: &str, bytes: &[u8], kind: Kind) {
        self.pieces.push(piece.as_bytes());
        self.bytes.push(bytes);
        self.flags.push(match kind {
            Kind::Ordinary => 0,
            Kind::Added => ADDED,
            Kind::Special => ADDED | SPECIAL,
        });
    }

    pub fn len(&self) -> usize {
        self.flags.len()
    }

    pub fn is_added(&self, id: usize) -> bool {
        self.flags.get(id).is_some_and(|f| f & ADDED != 0)
    }

    pub fn is_special(&self, id: usize) -> bool {
        self.flags.get(id).is_some_and(|f| f & SPECIAL != 0)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Ordinary,
    Added,
    Special,
}

/// The letters of byte-level vocabularies end here.
const LETTERS: usize = 0x144;

/// The reversible alphabet of byte-level vocabularies: printable Latin-1 bytes stand for
/// themselves, the other 68 are moved to U+0100 and up (GPT-2's `bytes_to_unicode`).
pub struct ByteAlphabet([Option<u8>; LETTERS]);

impl ByteAlphabet {
    pub fn new() -> Self {
        let mut bytes = [None; LETTERS];
        let mut moved = 0x100;
        for byte in 0..=255u8 {
            let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..);
            if printable {
                bytes[usize::from(byte)] = Some(byte);
            } else {
                bytes[moved] = Some(byte);
                moved += 1;
            }
        }
        ByteAlphabet(bytes)
    }

    /// Appends the bytes that `piece` spells, or its own bytes when it has a letter from outside
    /// the alphabet.
    pub fn decode_into(&self, piece: &str, out: &mut Vec<u8>) {
        let before = out.len();
        for letter in piece.chars() {
            match self.0.get(letter as usize).copied().flatten() {
                Some(byte) => out.push(byte),
                None => {
                    out.truncate(before);
                    return out.extend(piece.bytes());
                }
            }
        }
    }

    /// Whether every letter of `piece` stands for a byte.
    pub fn spells(&self, piece: &str) -> bool {
        piece.chars().all(|letter| self.0.get(letter as usize).is_some_and(Option::is_some))
    }

    pub fn decode(&self, piece: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        self.decode_into(piece, &mut out);
        out
    }
}

/// The byte of a byte token, "<0x0A>".
pub fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || digits.starts_with('+') {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection() {
        let alphabet = ByteAlphabet::new();
        let mut bytes: Vec<u8> = alphabet.0.iter().flatten().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(alphabet.decode("Ġthe"), b" the");
        assert_eq!(alphabet.decode("Ċ"), b"\n");
        assert_eq!(alphabet.decode("▁x"), "▁x".as_bytes());
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0x+A>"), None);
        assert_eq!(byte_token("<0xA>"), None);
    }
}
