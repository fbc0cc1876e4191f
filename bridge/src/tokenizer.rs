//! The tokenizer handle: one of two kinds, and its C entries.

use std::borrow::Cow;
use std::ops::Range;

use crate::added::Literal;
use crate::ffi::{Buffer, Result, Slice, array, free_handle, guard, handle};
use crate::gguf::{GgufTokenizer, Tables};
use crate::hf::HfTokenizer;
use crate::vocabulary::Vocabulary;

pub enum Tokenizer {
    Json(Box<HfTokenizer>),
    Gguf(Box<GgufTokenizer>),
}

impl Tokenizer {
    fn vocabulary(&self) -> &Vocabulary {
        match self {
            Tokenizer::Json(t) => &t.vocabulary,
            Tokenizer::Gguf(t) => &t.vocabulary,
        }
    }

    fn encode(&self, text: &str, literal: &Literal) -> Result<Vec<u32>> {
        match self {
            Tokenizer::Json(t) => t.encode(text, literal),
            Tokenizer::Gguf(t) => Ok(t.encode(text, literal)),
        }
    }

    fn id_of(&self, piece: &str) -> Option<u32> {
        match self {
            Tokenizer::Json(t) => t.id_of(piece),
            Tokenizer::Gguf(t) => t.id_of(piece),
        }
    }
}

/// `bytes` as text, each ill-formed sequence as U+FFFD, with `ranges` moved along.
fn to_text<'a>(bytes: &'a [u8], ranges: &mut [Range<usize>]) -> Cow<'a, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    let mut moved: Vec<(usize, usize)> = vec![(0, 0)]; // from this byte on: where it went
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        at += chunk.valid().len() + chunk.invalid().len();
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            moved.push((at, text.len()));
        }
    }
    let end_of_text = text.len();
    let place = |offset: usize| {
        let (from, to) = moved[moved.partition_point(|m| m.0 <= offset) - 1];
        (to + (offset - from)).min(end_of_text)
    };
    for range in ranges {
        *range = place(range.start)..place(range.end);
    }
    Cow::Owned(text)
}

#[repr(C)]
struct GgufVocabulary {
    model: Slice,
    pre: Slice,
    tokens: *const Slice,
    token_count: usize,
    scores: *const f32,
    types: *const i32,
    merges: *const Slice,
    merge_count: usize,
    add_space_prefix: bool,
}

impl GgufVocabulary {
    unsafe fn tables<'a>(&self) -> Result<Tables<'a>> {
        unsafe {
            let texts = |data, count, what: &str| -> Result<Vec<&'a str>> {
                let slices: &[Slice] = array(data, count);
                slices
                    .iter()
                    .enumerate()
                    .map(|(i, s)| s.text("").map_err(|e| format!("tokenizer.ggml.{what}[{i}]{e}")))
                    .collect()
            };
            Ok(Tables {
                model: self.model.text("tokenizer.ggml.model")?,
                pre: self.pre.text("tokenizer.ggml.pre")?,
                tokens: texts(self.tokens, self.token_count, "tokens")?,
                scores: array(self.scores, self.token_count),
                types: array(self.types, self.token_count),
                merges: texts(self.merges, self.merge_count, "merges")?,
                add_space_prefix: self.add_space_prefix,
            })
        }
    }
}

#[repr(C)]
pub struct TokenView {
    pub piece: Slice,
    pub bytes: Slice,
    pub added: bool,
    pub special: bool,
}

#[repr(C)]
struct Traits {
    size: usize,
    adds_bos: bool,
    drops_leading_space: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ByteRange {
    begin: usize,
    end: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_from_json(json: Slice) -> *mut Tokenizer {
    guard(std::ptr::null_mut(), || {
        let json = unsafe { json.bytes() };
        handle(HfTokenizer::new(json).map(|t| Tokenizer::Json(Box::new(t))))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_from_gguf(tables: *const GgufVocabulary) -> *mut Tokenizer {
    guard(std::ptr::null_mut(), || {
        let tables = unsafe { (*tables).tables()? };
        handle(GgufTokenizer::new(&tables).map(|t| Tokenizer::Gguf(Box::new(t))))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_free(tokenizer: *mut Tokenizer) {
    unsafe { free_handle(tokenizer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_traits(tokenizer: *const Tokenizer) -> Traits {
    let tokenizer = unsafe { &*tokenizer };
    let (adds_bos, drops_leading_space) = match tokenizer {
        Tokenizer::Json(t) => (false, t.drops_leading_space),
        Tokenizer::Gguf(t) => (t.adds_bos(), t.drops_leading_space()),
    };
    Traits { size: tokenizer.vocabulary().len(), adds_bos, drops_leading_space }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_frame(
    tokenizer: *const Tokenizer,
    prefix: *mut Buffer<u32>,
    suffix: *mut Buffer<u32>,
) -> bool {
    guard(false, || {
        let (before, after) = match unsafe { &*tokenizer } {
            Tokenizer::Json(t) => t.frame()?,
            Tokenizer::Gguf(_) => Default::default(),
        };
        unsafe {
            *prefix = before.into();
            *suffix = after.into();
        }
        Ok(true)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: Slice,
    parse_special: bool,
    literal: *const ByteRange,
    literal_count: usize,
    out: *mut Buffer<u32>,
) -> bool {
    guard(false, || {
        let ranges = unsafe { array(literal, literal_count) };
        let mut ranges: Vec<_> = ranges.iter().map(|r| r.begin..r.end).collect();
        let text = to_text(unsafe { text.bytes() }, &mut ranges);
        if u32::try_from(text.len()).is_err() {
            return Err("a text of 4 GiB or more cannot be encoded".into());
        }
        let literal = match parse_special {
            true => Literal::within(ranges),
            false => Literal::Everywhere,
        };
        let ids = unsafe { &*tokenizer }.encode(&text, &literal)?;
        unsafe { *out = ids.into() };
        Ok(true)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_id(tokenizer: *const Tokenizer, piece: Slice) -> i64 {
    guard(-1, || {
        let piece = unsafe { piece.text("token")? };
        Ok(unsafe { &*tokenizer }.id_of(piece).map_or(-1, i64::from))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_tokenizer_token(tokenizer: *const Tokenizer, id: u32) -> TokenView {
    let vocabulary = unsafe { &*tokenizer }.vocabulary();
    let id = id as usize;
    if id >= vocabulary.len() {
        return TokenView {
            piece: Slice::EMPTY,
            bytes: Slice::EMPTY,
            added: false,
            special: false,
        };
    }
    TokenView {
        piece: Slice::of(vocabulary.pieces.get(id)),
        bytes: Slice::of(vocabulary.bytes.get(id)),
        added: vocabulary.is_added(id),
        special: vocabulary.is_special(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_replaced_bytes() {
        let mut ranges = vec![0..1, 2..4, 6..7];
        let text = to_text(b"a\xFFbc\xE2\x82d", &mut ranges);
        assert_eq!(text, "a\u{FFFD}bc\u{FFFD}d");
        assert_eq!(ranges, vec![0..1, 4..6, 9..10]);
        assert_eq!(&text[4..6], "bc");
    }
}
