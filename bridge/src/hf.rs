//! Tokenizers from tokenizer.json, by the `tokenizers` crate.
//!
//! The crate encodes whole texts. Where special tokens must stay text in some ranges only, its
//! pipeline is run here step by step, with our own search for added tokens in front.

use serde_json::Value;
use tokenizers::normalizer::Range;
use tokenizers::tokenizer::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, Token, Tokenizer,
};

use crate::added::{AddedToken, AddedTokens, Literal};
use crate::ffi::Result;
use crate::vocabulary::{ByteAlphabet, Kind, MAX_TOKENS, Vocabulary, byte_token};

pub struct HfTokenizer {
    pub vocabulary: Vocabulary,
    pub drops_leading_space: bool,
    tokenizer: Tokenizer,
    raw_added: AddedTokens,        // searched for in the text as given
    normalized_added: AddedTokens, // searched for after normalisation
}

/// A normalizer that multiplies texts would turn a short request into all of the memory; the published
/// ones write a space as three bytes.
const MAX_GROWTH: f64 = 64.0;

/// How many times as long a text can become by what a normalizer puts into it.
fn growth(normalizer: &Value) -> f64 {
    let length = |value: &Value| value.as_str().map_or(0, str::len) as f64;
    match normalizer["type"].as_str() {
        Some("Sequence") => {
            normalizer["normalizers"].as_array().into_iter().flatten().map(growth).product()
        }
        Some("Replace") => {
            let pattern = length(&normalizer["pattern"]["String"]).max(1.0);
            (length(&normalizer["content"]) / pattern).max(1.0)
        }
        Some("Prepend") => 1.0 + length(&normalizer["prepend"]),
        _ => 1.0,
    }
}

fn message(error: Box<dyn std::error::Error + Send + Sync>) -> String {
    error.to_string()
}

impl HfTokenizer {
    pub fn new(json: &[u8]) -> Result<Self> {
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(message)?;
        // Limits of training and batching have no place here; transformers switches them off too.
        tokenizer.with_truncation(None).map_err(message)?;
        tokenizer.with_padding(None);

        let normalizer =
            serde_json::to_value(tokenizer.get_normalizer()).map_err(|e| e.to_string())?;
        if growth(&normalizer) > MAX_GROWTH {
            return Err(format!(
                "its normalizer may make a text more than {MAX_GROWTH} times as long"
            ));
        }
        let decoder = serde_json::to_value(tokenizer.get_decoder()).map_err(|e| e.to_string())?;
        let decoding = Decoding::of(&decoder)?;
        let vocabulary = vocabulary_of(&tokenizer, &decoding)?;
        let (raw, normalized) = added_tokens(&tokenizer)?;
        Ok(HfTokenizer {
            vocabulary,
            drops_leading_space: decoding.drops_leading_space,
            raw_added: AddedTokens::new(raw)?,
            normalized_added: AddedTokens::new(normalized)?,
            tokenizer,
        })
    }

    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.tokenizer.token_to_id(piece)
    }

    pub fn encode(&self, text: &str, literal: &Literal) -> Result<Vec<u32>> {
        match literal {
            Literal::Nowhere => self.encode_whole(text, false),
            _ => self.encode_stepwise(text, literal).map_err(message),
        }
    }

    fn encode_whole(&self, text: &str, framed: bool) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, framed).map_err(message)?;
        Ok(encoding.get_ids().to_vec())
    }

    fn encode_stepwise(&self, text: &str, literal: &Literal) -> tokenizers::Result<Vec<u32>> {
        let mut parts = PreTokenizedString::from(text);
        parts.split(|_, part| Ok(split(&self.raw_added, part, literal)))?;
        parts.split(|_, mut part| {
            if let Some(normalizer) = self.tokenizer.get_normalizer() {
                normalizer.normalize(&mut part)?;
            }
            Ok(split(&self.normalized_added, part, literal))
        })?;
        if let Some(pretokenizer) = self.tokenizer.get_pre_tokenizer() {
            pretokenizer.pre_tokenize(&mut parts)?;
        }
        parts.tokenize(|part| self.tokenizer.get_model().tokenize(part.get()))?;
        let splits = parts.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.iter().flat_map(|s| s.2.iter().flatten()).map(|token| token.id).collect())
    }

    /// The ids its post-processor puts before and after a text.
    pub fn frame(&self) -> Result<(Vec<u32>, Vec<u32>)> {
        let probe = "a";
        let plain = self.encode_whole(probe, false)?;
        let framed = self.encode_whole(probe, true)?;
        if plain.is_empty() {
            return Ok((framed, Vec::new()));
        }
        let at = framed.windows(plain.len()).position(|w| w == plain);
        let at = at.ok_or("its post_processor rewrites the ids of a text")?;
        Ok((framed[..at].to_vec(), framed[at + plain.len()..].to_vec()))
    }
}

fn split(
    added: &AddedTokens,
    part: NormalizedString,
    literal: &Literal,
) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    // Literal ranges are bytes of the whole original text.
    let is_literal = |range: std::ops::Range<usize>| {
        let shift = part.offsets_original().0;
        part.convert_offsets(Range::Normalized(range))
            .is_none_or(|original| literal.touches(original.start + shift..original.end + shift))
    };
    let parts = added.split(part.get(), is_literal);
    parts
        .into_iter()
        .filter_map(|found| {
            let slice = part.slice(Range::Normalized(found.range))?;
            let length = slice.get().len();
            let token = found.id.map(|id| vec![Token::new(id, slice.get().into(), (0, length))]);
            Some((slice, token))
        })
        .collect()
}

fn added_tokens(tokenizer: &Tokenizer) -> Result<(Vec<AddedToken>, Vec<AddedToken>)> {
    let (mut raw, mut normalized) = (Vec::new(), Vec::new());
    for (&id, token) in tokenizer.get_added_vocabulary().get_added_tokens_decoder() {
        let mut text = NormalizedString::from(token.content.as_str());
        if let (true, Some(normalizer)) = (token.normalized, tokenizer.get_normalizer()) {
            normalizer.normalize(&mut text).map_err(message)?;
        }
        let list = if token.normalized { &mut normalized } else { &mut raw };
        list.push(AddedToken {
            text: text.get().to_string(),
            id,
            special: token.special,
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        });
    }
    Ok((raw, normalized))
}

fn vocabulary_of(tokenizer: &Tokenizer, decoding: &Decoding) -> Result<Vocabulary> {
    let by_text = tokenizer.get_vocab(true);
    let size = by_text.values().max().map_or(0, |&highest| highest as usize + 1);
    if size > MAX_TOKENS {
        return Err(format!("token id {} is beyond the limit of {MAX_TOKENS}", size - 1));
    }
    let mut texts = vec![""; size];
    for (text, &id) in &by_text {
        texts[id as usize] = text;
    }
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    let mut vocabulary = Vocabulary::with_capacity(size);
    for (id, text) in texts.iter().enumerate() {
        match added.get(&(id as u32)) {
            Some(token) => {
                let kind = if token.special { Kind::Special } else { Kind::Added };
                vocabulary.push(&token.content, token.content.as_bytes(), kind);
            }
            None => vocabulary.push(text, &decoding.bytes(text), Kind::Ordinary),
        }
    }
    Ok(vocabulary)
}

/// What a tokenizer.json's decoder does to one token, as far as that does not depend on others.
#[derive(Default)]
struct Decoding {
    byte_level: Option<ByteAlphabet>,
    byte_fallback: bool,
    replace: Vec<(String, String)>,
    drops_leading_space: bool,
    continuation: Option<String>, // WordPiece: without this prefix a token begins a word
}

impl Decoding {
    fn of(decoder: &Value) -> Result<Self> {
        let mut decoding = Decoding::default();
        if decoder.is_null() {
            // Tokens joined by spaces.
            decoding.continuation = Some(String::new());
            decoding.drops_leading_space = true;
        } else {
            decoding.add(decoder)?;
        }
        Ok(decoding)
    }

    fn add(&mut self, decoder: &Value) -> Result<()> {
        let text = |key: &str| decoder[key].as_str().unwrap_or_default().to_string();
        match decoder["type"].as_str().unwrap_or_default() {
            "Sequence" => {
                for step in decoder["decoders"].as_array().into_iter().flatten() {
                    self.add(step)?;
                }
            }
            "ByteLevel" => self.byte_level = Some(ByteAlphabet::new()),
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => {}
            "Replace" => {
                let pattern = decoder["pattern"]["String"].as_str();
                let pattern =
                    pattern.ok_or("decoder Replace with a regular expression is unsupported")?;
                self.replace.push((pattern.into(), text("content")));
            }
            "Strip" => {
                if text("content") != " " || decoder["stop"].as_u64() != Some(0) {
                    return Err(
                        "decoder Strip of anything but leading spaces is unsupported".into()
                    );
                }
                self.drops_leading_space = decoder["start"].as_u64() != Some(0);
            }
            "Metaspace" => {
                self.replace.push((text("replacement"), " ".into()));
                self.drops_leading_space = decoder["prepend_scheme"] != "never";
            }
            "WordPiece" => {
                self.continuation = Some(text("prefix"));
                self.drops_leading_space = true;
            }
            "BPEDecoder" => {
                self.replace.push((text("suffix"), " ".into()));
            }
            other => return Err(format!("decoder {other} is unsupported")),
        }
        Ok(())
    }

    fn bytes(&self, piece: &str) -> Vec<u8> {
        if let (true, Some(byte)) = (self.byte_fallback, byte_token(piece)) {
            return vec![byte];
        }
        let mut text = piece.to_string();
        for (pattern, content) in &self.replace {
            text = text.replace(pattern, content);
        }
        if let Some(prefix) = &self.continuation {
            text = match text.strip_prefix(prefix.as_str()) {
                Some(rest) if !prefix.is_empty() => rest.to_string(),
                _ => format!(" {text}"),
            };
        }
        match &self.byte_level {
            Some(alphabet) => alphabet.decode(&text),
            None => text.into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn normalizers_that_multiply_are_refused() {
        let replace = |content: &str| {
            json!({"type": "Replace", "pattern": {"String": " "}, "content": content})
        };
        let published = json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"}, replace("\u{2581}")]});
        assert_eq!(growth(&published), 12.0);
        let nested = json!({"type": "Sequence", "normalizers": [
            replace("llllllllll"), {"type": "Sequence", "normalizers": [replace("llllllllll")]}]});
        assert_eq!(growth(&nested), 100.0);
        let text = json!({"version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [], "normalizer": nested, "pre_tokenizer": null,
            "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}});
        let error = HfTokenizer::new(text.to_string().as_bytes()).err().unwrap();
        assert!(error.contains("normalizer"), "{error}");
    }
}
