//! Added tokens: texts that are found before a tokenizer does anything else.
//!
//! The search is that of HF `tokenizers` (leftmost, longest, no overlaps), so that ids agree, with
//! one thing more: where a text is literal, tokens flagged special are passed over.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::ffi::Result;

/// Where special tokens are to be read as ordinary text.
pub enum Literal {
    Nowhere,
    Everywhere,
    /// Sorted, not touching each other.
    Within(Vec<Range<usize>>),
}

impl Literal {
    pub fn within(mut ranges: Vec<Range<usize>>) -> Literal {
        ranges.retain(|r| !r.is_empty());
        if ranges.is_empty() {
            return Literal::Nowhere;
        }
        ranges.sort_unstable_by_key(|r| r.start);
        ranges.dedup_by(|next, previous| {
            let touches = next.start <= previous.end;
            if touches {
                previous.end = previous.end.max(next.end);
            }
            touches
        });
        Literal::Within(ranges)
    }

    pub fn touches(&self, range: Range<usize>) -> bool {
        match self {
            Literal::Nowhere => false,
            Literal::Everywhere => true,
            Literal::Within(ranges) => {
                let next = ranges.partition_point(|r| r.end <= range.start);
                ranges.get(next).is_some_and(|r| r.start < range.end)
            }
        }
    }
}

#[derive(Clone)]
pub struct AddedToken {
    pub text: String,
    pub id: u32,
    pub special: bool,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
}

impl AddedToken {
    pub fn plain(text: &str, id: u32, special: bool) -> Self {
        let text = text.to_string();
        AddedToken { text, id, special, single_word: false, lstrip: false, rstrip: false }
    }
}

/// A part of a text: an added token, or what stands between them.
#[derive(Debug, PartialEq)]
pub struct Part {
    pub range: Range<usize>,
    pub id: Option<u32>,
}

pub struct AddedTokens {
    tokens: Vec<AddedToken>,
    finder: Option<AhoCorasick>,
}

impl AddedTokens {
    pub fn new(mut tokens: Vec<AddedToken>) -> Result<Self> {
        tokens.retain(|t| !t.text.is_empty());
        let finder = if tokens.is_empty() {
            None
        } else {
            let built = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(tokens.iter().map(|t| &t.text));
            Some(built.map_err(|e| format!("added tokens: {e}"))?)
        };
        Ok(AddedTokens { tokens, finder })
    }

    /// Cuts `text` at its added tokens. `is_literal` is asked about ranges of `text` that spell a
    /// special token.
    pub fn split(&self, text: &str, is_literal: impl Fn(Range<usize>) -> bool) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.finder.iter().flat_map(|f| f.find_iter(text)) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut begin, mut end) = (found.start(), found.end());
            if token.special && is_literal(begin..end) {
                continue;
            }
            if token.single_word && (ends_in_word(&text[..begin]) || starts_in_word(&text[end..])) {
                continue;
            }
            if token.lstrip {
                begin = done.max(text[..begin].trim_end().len());
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < begin {
                parts.push(Part { range: done..begin, id: None });
            }
            parts.push(Part { range: begin..end, id: Some(token.id) });
            done = end;
        }
        if done < text.len() {
            parts.push(Part { range: done..text.len(), id: None });
        }
        parts
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

fn starts_in_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> AddedTokens {
        let mut strip = AddedToken::plain("[M]", 3, true);
        strip.lstrip = true;
        strip.rstrip = true;
        let list =
            vec![AddedToken::plain("<a>", 1, true), AddedToken::plain("<a><b>", 2, false), strip];
        AddedTokens::new(list).unwrap()
    }

    fn ids(text: &str, literal: Literal) -> Vec<(String, Option<u32>)> {
        let parts = tokens().split(text, |r| literal.touches(r));
        parts.into_iter().map(|p| (text[p.range].to_string(), p.id)).collect()
    }

    #[test]
    fn longest_wins_and_spaces_are_taken() {
        let expected =
            [("x", None), ("<a>", Some(1)), ("y", None), (" [M]\n", Some(3)), ("<a><b>", Some(2))];
        let expected: Vec<_> = expected.iter().map(|(t, id)| (t.to_string(), *id)).collect();
        assert_eq!(ids("x<a>y [M]\n<a><b>", Literal::Nowhere), expected);
    }

    #[test]
    fn literal_special_tokens_are_text() {
        let literal = Literal::within(vec![5..6, 3..5]);
        let found = ids("<a><a><a>", literal);
        let expected: Vec<_> = [("<a>", Some(1)), ("<a>", None), ("<a>", Some(1))]
            .iter()
            .map(|(t, id)| (t.to_string(), *id))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(ids("<a>", Literal::Everywhere), vec![("<a>".to_string(), None)]);
        assert_eq!(ids("<a><b>", Literal::Everywhere), vec![("<a><b>".to_string(), Some(2))]);
    }
}
