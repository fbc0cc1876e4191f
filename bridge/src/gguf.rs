//! Tokenizers of GGUF vocabularies, built straight from the file's tables.
//!
//! "gpt2" is byte-level BPE: words by regular expression, bytes joined by the rank of their merge.
//! "llama" is SentencePiece BPE: the whole text, spaces as U+2581, characters joined by the score
//! of the piece they make, and bytes for what no piece covers. "gemma4" is the same by merges:
//! characters and pieces joined by the rank of their merge.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use unicode_normalization_alignments::UnicodeNormalization;

use crate::added::{AddedToken, AddedTokens, Literal};
use crate::ffi::Result;
use crate::merge::{Merger, NO_ID, Pairs, Symbol};
use crate::pretokenize::Pretokenizer;
use crate::vocabulary::{ByteAlphabet, Kind, MAX_TOKENS, Strings, Vocabulary, byte_token};

const SPACE: &str = "\u{2581}"; // how SentencePiece writes a space

/// `tokenizer.ggml.token_type`.
mod token_type {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const BYTE: i32 = 6;
}

/// The tables as they lie in the file.
pub struct Tables<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub scores: &'a [f32],
    pub types: &'a [i32],
    pub merges: Vec<&'a str>,
    pub add_space_prefix: bool,
}

pub struct GgufTokenizer {
    pub vocabulary: Vocabulary,
    added: AddedTokens,
    index: TextIndex,
    unknown: u32,
    model: Model,
}

enum Model {
    ByteLevel(ByteLevel),
    Pieces(Pieces),
}

impl GgufTokenizer {
    pub fn new(tables: &Tables) -> Result<Self> {
        let count = tables.tokens.len();
        if count == 0 || count > MAX_TOKENS {
            return Err(format!("tokenizer.ggml.tokens holds {count} tokens"));
        }
        for (name, length) in [("token_type", tables.types.len()), ("scores", tables.scores.len())]
        {
            if length != 0 && length != count {
                return Err(format!(
                    "tokenizer.ggml.{name} has {length} entries for {count} tokens"
                ));
            }
        }
        match tables.model {
            "gpt2" => ByteLevel::build(tables),
            "llama" => Pieces::build(tables, Pieces::by_scores),
            "gemma4" => Pieces::build(tables, Pieces::by_merges),
            other => Err(format!(
                "unsupported tokenizer.ggml.model \"{other}\"; supported are gpt2, llama and gemma4"
            )),
        }
    }

    fn assemble(
        tables: &Tables,
        model: Model,
        index: TextIndex,
        vocabulary: Vocabulary,
    ) -> Result<Self> {
        let mut added = Vec::new();
        let mut unknown = NO_ID;
        for (id, text) in tables.tokens.iter().enumerate() {
            let kind = kind_of(tables, id);
            if kind != Kind::Ordinary {
                added.push(AddedToken::plain(text, id as u32, kind == Kind::Special));
            }
            if type_of(tables, id) == token_type::UNKNOWN && unknown == NO_ID {
                unknown = id as u32;
            }
        }
        let added = AddedTokens::new(added)?;
        Ok(GgufTokenizer { vocabulary, added, index, unknown, model })
    }

    pub fn adds_bos(&self) -> bool {
        match &self.model {
            Model::ByteLevel(model) => model.words.family.adds_bos,
            Model::Pieces(_) => true,
        }
    }

    pub fn drops_leading_space(&self) -> bool {
        matches!(&self.model, Model::Pieces(pieces) if pieces.space_prefix)
    }

    /// Added tokens come first: a piece may be spelled like one.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        if let [part] = self.added.split(piece, |_| false).as_slice() {
            if part.id.is_some() {
                return part.id;
            }
        }
        let key = match &self.model {
            Model::ByteLevel(model) => Cow::Owned(model.alphabet.decode(piece)),
            Model::Pieces(model) => match byte_token(piece) {
                Some(byte) => {
                    let id = model.byte_ids[usize::from(byte)];
                    return (id != NO_ID).then_some(id);
                }
                None => Cow::Borrowed(piece.as_bytes()),
            },
        };
        let id = self.index.find(self.keys(), &key)?;
        (self.vocabulary.pieces.get(id as usize) == piece.as_bytes()).then_some(id)
    }

    pub fn encode(&self, text: &str, literal: &Literal) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        let mut merger = Merger::default();
        for part in self.added.split(text, |range| literal.touches(range)) {
            match part.id {
                Some(id) => ids.push(id),
                None => self.encode_part(&text[part.range], &mut merger, &mut ids),
            }
        }
        ids
    }

    fn encode_part(&self, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        match &self.model {
            Model::ByteLevel(model) => model.encode(self, text, merger, ids),
            Model::Pieces(model) => model.encode(self, text, merger, ids),
        }
    }

    /// What `index` is keyed by: decoded bytes of byte-level tokens, texts of pieces.
    fn keys(&self) -> &Strings {
        match self.model {
            Model::ByteLevel(_) => &self.vocabulary.bytes,
            Model::Pieces(_) => &self.vocabulary.pieces,
        }
    }

    fn push_unknown(&self, ids: &mut Vec<u32>) {
        if self.unknown != NO_ID && ids.last() != Some(&self.unknown) {
            ids.push(self.unknown);
        }
    }
}

fn type_of(tables: &Tables, id: usize) -> i32 {
    tables.types.get(id).copied().unwrap_or(token_type::NORMAL)
}

fn kind_of(tables: &Tables, id: usize) -> Kind {
    match type_of(tables, id) {
        token_type::UNKNOWN | token_type::CONTROL => Kind::Special,
        token_type::USER_DEFINED => Kind::Added,
        _ => Kind::Ordinary,
    }
}

/// Ids by text, where the texts are kept elsewhere.
struct TextIndex {
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl TextIndex {
    /// The first id of a text wins.
    fn build(keys: &Strings, ids: impl Iterator<Item = usize>) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut table = HashTable::with_capacity(keys.len());
        for id in ids {
            let key = keys.get(id);
            let hash = hasher.hash_one(key);
            let same = |&other: &u32| keys.get(other as usize) == key;
            let rehash = |&other: &u32| hasher.hash_one(keys.get(other as usize));
            table.entry(hash, same, rehash).or_insert(id as u32);
        }
        TextIndex { ids: table, hasher }
    }

    fn find(&self, keys: &Strings, key: &[u8]) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(key), |&id| keys.get(id as usize) == key).copied()
    }
}

struct ByteLevel {
    words: Pretokenizer,
    alphabet: ByteAlphabet,
    byte_ids: [u32; 256],
    merges: Merges,
}

/// (left id, right id) → (rank, joined id).
type Merges = HashMap<u64, (u32, u32)>;

/// The table of merges, each "left right"; `find` gives the ids of the two and of both together.
fn read_merges(
    tables: &Tables,
    mut find: impl FnMut(&str, &str) -> Option<((u32, u32), u32)>,
) -> Result<Merges> {
    let mut merges = HashMap::with_capacity(tables.merges.len());
    for (rank, merge) in tables.merges.iter().enumerate() {
        let joined = merge.split_once(' ').and_then(|(left, right)| find(left, right));
        let Some((pair, id)) = joined else {
            return Err(format!("tokenizer.ggml.merges[{rank}]: \"{merge}\" joins unknown tokens"));
        };
        merges.entry(pair_key(pair.0, pair.1)).or_insert((rank as u32, id));
    }
    Ok(merges)
}

impl ByteLevel {
    fn build(tables: &Tables) -> Result<GgufTokenizer> {
        let words = Pretokenizer::named(tables.pre)?;
        let alphabet = ByteAlphabet::new();
        let mut vocabulary = Vocabulary::with_capacity(tables.tokens.len());
        let mut bytes = Vec::new();
        for (id, text) in tables.tokens.iter().enumerate() {
            let kind = kind_of(tables, id);
            bytes.clear();
            match kind {
                Kind::Ordinary => alphabet.decode_into(text, &mut bytes),
                _ => bytes.extend(text.bytes()),
            }
            vocabulary.push(text, &bytes, kind);
        }
        // First those that merging can reach, when an added or an unspelled one has the same bytes.
        let (merged, others): (Vec<usize>, Vec<usize>) = (0..vocabulary.len())
            .partition(|&id| !vocabulary.is_added(id) && alphabet.spells(tables.tokens[id]));
        let index = TextIndex::build(&vocabulary.bytes, merged.into_iter().chain(others));
        let find = |bytes: &[u8]| index.find(&vocabulary.bytes, bytes);

        let merges = read_merges(tables, |left, right| {
            bytes.clear();
            alphabet.decode_into(left, &mut bytes);
            let middle = bytes.len();
            alphabet.decode_into(right, &mut bytes);
            let pair = (find(&bytes[..middle])?, find(&bytes[middle..])?);
            Some((pair, find(&bytes)?))
        })?;
        let mut byte_ids = [NO_ID; 256];
        for byte in 0..=255u8 {
            byte_ids[usize::from(byte)] = find(&[byte]).unwrap_or(NO_ID);
        }
        let model = Model::ByteLevel(ByteLevel { words, alphabet, byte_ids, merges });
        GgufTokenizer::assemble(tables, model, index, vocabulary)
    }

    fn encode(&self, owner: &GgufTokenizer, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        let text = match self.words.family.nfc && !text.is_ascii() {
            true => Cow::Owned(text.nfc().map(|(c, _)| c).collect::<String>()),
            false => Cow::Borrowed(text),
        };
        self.words.split(&text, &mut |word: &str| {
            if self.words.family.whole_words {
                if let Some(id) = owner.index.find(&owner.vocabulary.bytes, word.as_bytes()) {
                    return ids.push(id);
                }
            }
            // Bytes that the vocabulary lacks are as if they were not there, as in HF's BPE.
            let bytes = word.bytes().map(|byte| (self.byte_ids[usize::from(byte)], 1));
            let known = bytes.filter(|(id, _)| *id != NO_ID);
            merger.run(known, self, |symbol| ids.push(symbol.id));
        });
    }
}

fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Pairs for ByteLevel {
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        self.merges.get(&pair_key(left.id, right.id)).copied()
    }
}

struct Pieces {
    joins: Joins,
    byte_ids: [u32; 256],
    space_prefix: bool,
}

enum Joins {
    Scores(Vec<u32>), // per id: the lower, the better the score
    Merges(Merges),
}

/// Makes `Joins` of the tables and of what finds the id of a piece.
type MakeJoins = fn(&Tables, &dyn Fn(&str) -> Option<u32>) -> Result<Joins>;

impl Pieces {
    fn by_scores(tables: &Tables, _find: &dyn Fn(&str) -> Option<u32>) -> Result<Joins> {
        if tables.scores.is_empty() {
            return Err("tokenizer.ggml.scores is missing; a llama vocabulary needs it".into());
        }
        Ok(Joins::Scores(tables.scores.iter().map(|&score| rank_of(score)).collect()))
    }

    fn by_merges(tables: &Tables, find: &dyn Fn(&str) -> Option<u32>) -> Result<Joins> {
        if tables.merges.is_empty() {
            return Err("tokenizer.ggml.merges is missing; a gemma4 vocabulary needs it".into());
        }
        let mut both = String::new();
        let merges = read_merges(tables, |left, right| {
            both.clear();
            both.push_str(left);
            both.push_str(right);
            Some(((find(left)?, find(right)?), find(&both)?))
        })?;
        Ok(Joins::Merges(merges))
    }

    fn build(tables: &Tables, make_joins: MakeJoins) -> Result<GgufTokenizer> {
        let mut vocabulary = Vocabulary::with_capacity(tables.tokens.len());
        let mut byte_ids = [NO_ID; 256];
        for (id, text) in tables.tokens.iter().enumerate() {
            let kind = kind_of(tables, id);
            let byte =
                (type_of(tables, id) == token_type::BYTE).then(|| byte_token(text)).flatten();
            match (byte, kind) {
                (Some(byte), _) => {
                    byte_ids[usize::from(byte)] = id as u32;
                    vocabulary.push(text, &[byte], kind);
                }
                (None, Kind::Special) => vocabulary.push(text, text.as_bytes(), kind),
                (None, _) => vocabulary.push(text, text.replace(SPACE, " ").as_bytes(), kind),
            }
        }
        // Control and byte tokens are never made by joining characters.
        let joinable = |id: &usize| {
            matches!(type_of(tables, *id), token_type::NORMAL | token_type::USER_DEFINED)
        };
        let ids = (0..vocabulary.len()).filter(joinable);
        let index = TextIndex::build(&vocabulary.pieces, ids);
        let find = |piece: &str| index.find(&vocabulary.pieces, piece.as_bytes());
        let joins = make_joins(tables, &find)?;
        let space_prefix = tables.add_space_prefix && matches!(joins, Joins::Scores(_));
        let model = Model::Pieces(Pieces { joins, byte_ids, space_prefix });
        GgufTokenizer::assemble(tables, model, index, vocabulary)
    }

    fn encode(&self, owner: &GgufTokenizer, text: &str, merger: &mut Merger, ids: &mut Vec<u32>) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2 + SPACE.len());
        if self.space_prefix {
            escaped.push_str(SPACE);
        }
        for c in text.chars() {
            escaped.push(if c == ' ' { '\u{2581}' } else { c });
        }
        let find = |text: &str| owner.index.find(&owner.vocabulary.pieces, text.as_bytes());
        let characters = escaped.char_indices().map(|(at, c)| {
            let length = c.len_utf8();
            (find(&escaped[at..at + length]).unwrap_or(NO_ID), length as u32)
        });
        let pairs = PiecePairs { text: escaped.as_bytes(), owner, pieces: self };
        merger.run(characters, &pairs, |symbol| {
            if symbol.id != NO_ID {
                return ids.push(symbol.id);
            }
            for &byte in &escaped.as_bytes()[symbol.begin as usize..symbol.end()] {
                match self.byte_ids[usize::from(byte)] {
                    NO_ID => owner.push_unknown(ids),
                    id => ids.push(id),
                }
            }
        });
    }
}

/// Scores as integers whose order is the opposite: best first. NaN ranks last.
fn rank_of(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    let bits = (score + 0.0).to_bits(); // one zero
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

struct PiecePairs<'a> {
    text: &'a [u8],
    owner: &'a GgufTokenizer,
    pieces: &'a Pieces,
}

impl Pairs for PiecePairs<'_> {
    fn join(&self, left: &Symbol, right: &Symbol) -> Option<(u32, u32)> {
        match &self.pieces.joins {
            Joins::Scores(ranks) => {
                let both = &self.text[left.begin as usize..right.end()];
                let id = self.owner.index.find(&self.owner.vocabulary.pieces, both)?;
                Some((ranks[id as usize], id))
            }
            Joins::Merges(merges) => merges.get(&pair_key(left.id, right.id)).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_rank_lower() {
        let scores = [f32::INFINITY, 3.5, 0.0, -0.5, -1000.0, f32::NEG_INFINITY, f32::NAN];
        assert!(scores.map(rank_of).is_sorted());
        assert_eq!(rank_of(0.0), rank_of(-0.0));
    }

    #[test]
    fn unspelled_tokens_take_no_part_in_merging() {
        // U+200D is the bytes E2 80 8D, which the alphabet spells "âĢį"; the first token is its own text.
        let tables = Tables {
            model: "gpt2",
            pre: "gpt-2",
            tokens: vec!["\u{200d}", "â", "Ģ", "į", "âĢ", "âĢį"],
            scores: &[],
            types: &[],
            merges: vec!["â Ģ", "âĢ į"],
            add_space_prefix: false,
        };
        let tokenizer = GgufTokenizer::new(&tables).unwrap();
        assert_eq!(tokenizer.encode("\u{200d}", &Literal::Everywhere), [5]);
    }
}
