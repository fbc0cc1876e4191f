//! Grammars: which tokens may come next so that the text stays within a JSON schema, a regular expression
//! or a Lark grammar. The work is llguidance's; here are its vocabulary, its bounds and the C entries.

mod disjoint;
mod schema;

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::{Matcher, ParserFactory};

use crate::bounded::{self, Bounds, Strays};
use crate::ffi::{Result, Slice, array, free_handle, guard, handle};
use crate::tokenizer::TokenView;

/// A source longer than this is refused.
const MAX_SOURCE: usize = 256 << 10;
/// Of the lexer of one row, 1 to 2 kB each.
const MAX_LEXER_STATES: usize = 50_000;
/// What compiling may take. Its parsers are recursive: the stack is enough for MAX_SOURCE opening brackets.
const BOUNDS: Bounds = Bounds {
    stack: if cfg!(debug_assertions) { 8 << 30 } else { 1 << 30 },
    memory: 512 << 20,
    time: Duration::from_secs(10),
};

struct Trie(TokTrie);

impl TokenizerEnv for Trie {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(text)
    }

    /// Where only one text can follow, the model still chooses how to cut it into tokens.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    strays: Arc<Strays>,
}

impl Vocabulary {
    /// Grammars see the bytes of ordinary tokens alone; the others are known by name.
    fn new(tokens: &[TokenView], end_ids: &[u32]) -> Result<Self> {
        let named = |name: &[u8]| [&[TokTrie::SPECIAL_TOKEN_MARKER], name].concat();
        let word = |(id, token): (usize, &TokenView)| {
            let (piece, bytes) = unsafe { (token.piece.bytes(), token.bytes.bytes()) };
            let apart = token.special || end_ids.contains(&(id as u32));
            match (apart, piece.is_empty(), bytes.is_empty()) {
                (true, false, _) => named(piece),
                (false, _, false) => bytes.to_vec(),
                _ => named(format!("<[{id}]>").as_bytes()),
            }
        };
        let mut words: Vec<Vec<u8>> = tokens.iter().enumerate().map(word).collect();
        let mut ends = end_ids.to_vec();
        if let Some(id) = ends.iter().find(|id| **id as usize >= tokens.len()) {
            return Err(format!("end token {id} is beyond the vocabulary"));
        }
        if ends.is_empty() {
            // llguidance needs one: a token that no model has.
            ends.push(words.len() as u32);
            words.push(named(b"<[end]>"));
        }
        let info = TokRxInfo::new(words.len() as u32, ends[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(Trie(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
                .map_err(|e| e.to_string())?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = MAX_LEXER_STATES;
        Ok(Vocabulary { factory: Arc::new(factory), strays: Arc::default() })
    }

    fn compile(&self, kind: Kind, source: &str) -> Result<Grammar> {
        if source.len() > MAX_SOURCE {
            return Err(format!(
                "a grammar of {} bytes is too long, the limit is {MAX_SOURCE}",
                source.len()
            ));
        }
        let (factory, owned) = (Arc::clone(&self.factory), source.to_owned());
        bounded::run("grammar", &BOUNDS, &self.strays, move || compile(&factory, kind, &owned))
            .unwrap_or_else(|stopped| Err(format!("the grammar cannot be compiled: {stopped}")))
    }
}

#[derive(Clone, Copy)]
enum Kind {
    JsonSchema,
    Regex,
    Lark,
}

/// In the order of BridgeGrammarKind.
const KINDS: [Kind; 3] = [Kind::JsonSchema, Kind::Regex, Kind::Lark];

/// A compiled grammar at its start, which rows copy.
pub struct Grammar(Mutex<Matcher>);

fn compile(factory: &ParserFactory, kind: Kind, source: &str) -> Result<Grammar> {
    let grammar = match kind {
        Kind::JsonSchema => TopLevelGrammar::from_json_schema(schema::prepare(source)?),
        Kind::Regex => TopLevelGrammar::from_regex(source),
        Kind::Lark => TopLevelGrammar::from_lark(source.to_owned()),
    };
    let mut matcher = Matcher::new(factory.create_parser(grammar));
    match matcher.get_error() {
        Some(error) => Err(one_line(&error)),
        None if matcher.compute_mask_or_eos().is_err() => {
            Err(one_line(&matcher.get_error().unwrap_or_default()))
        }
        None => Ok(Grammar(Mutex::new(matcher))),
    }
}

fn one_line(error: &str) -> String {
    let lines: Vec<&str> = error.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// One row's place in its grammar. After an error it stays failed.
pub struct Row(Matcher);

impl Row {
    /// The words beyond the vocabulary are 0.
    fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        let mask = self.0.compute_mask_or_eos().map_err(|e| one_line(&e.to_string()))?;
        let mask = mask.as_slice();
        let common = mask.len().min(words.len());
        words[..common].copy_from_slice(&mask[..common]);
        words[common..].fill(0);
        Ok(())
    }

    /// How many of `ids` the grammar allows, one after the other; the first it does not allow, and what
    /// follows, changes nothing.
    fn commit(&mut self, ids: &[u32]) -> Result<usize> {
        self.0.try_consume_tokens(ids).map_err(|e| one_line(&e.to_string()))
    }

    fn rollback(&mut self, count: usize) -> Result<()> {
        self.0.rollback(count).map_err(|e| one_line(&e.to_string()))
    }

    fn state(&mut self) -> Result<State> {
        let accepting = self.0.is_accepting().map_err(|e| one_line(&e.to_string()))?;
        Ok(State { accepting, stopped: self.0.is_stopped() })
    }
}

#[repr(C)]
struct State {
    accepting: bool,
    stopped: bool,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_vocabulary_new(
    tokens: *const TokenView,
    token_count: usize,
    end_ids: *const u32,
    end_count: usize,
) -> *mut Vocabulary {
    guard(std::ptr::null_mut(), || {
        let (tokens, end_ids) = unsafe { (array(tokens, token_count), array(end_ids, end_count)) };
        handle(Vocabulary::new(tokens, end_ids))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_vocabulary_free(vocabulary: *mut Vocabulary) {
    unsafe { free_handle(vocabulary) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_grammar_compile(
    vocabulary: *const Vocabulary,
    kind: c_uint,
    source: Slice,
) -> *mut Grammar {
    guard(std::ptr::null_mut(), || {
        let kind = *KINDS.get(kind as usize).ok_or("there is no such kind of grammar")?;
        let source = unsafe { source.text("the grammar")? };
        handle(unsafe { &*vocabulary }.compile(kind, source))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_grammar_free(grammar: *mut Grammar) {
    unsafe { free_handle(grammar) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_new(grammar: *const Grammar) -> *mut Row {
    guard(std::ptr::null_mut(), || {
        let matcher = unsafe { &*grammar }.0.lock().map_err(|e| e.to_string())?;
        handle(Ok(Row(matcher.deep_clone())))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_fork(row: *const Row) -> *mut Row {
    guard(std::ptr::null_mut(), || handle(Ok(Row(unsafe { &*row }.0.deep_clone()))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_free(row: *mut Row) {
    unsafe { free_handle(row) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_mask(row: *mut Row, words: *mut u32, count: usize) -> bool {
    guard(false, || {
        let words = match count {
            0 => &mut [],
            _ => unsafe { std::slice::from_raw_parts_mut(words, count) },
        };
        unsafe { &mut *row }.mask(words).map(|()| true)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_commit(row: *mut Row, ids: *const u32, count: usize) -> i64 {
    guard(-1, || {
        let ids = unsafe { array(ids, count) };
        unsafe { &mut *row }.commit(ids).map(|accepted| accepted as i64)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_rollback(row: *mut Row, count: usize) -> bool {
    guard(false, || unsafe { &mut *row }.rollback(count).map(|()| true))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_state(row: *mut Row, out: *mut State) -> bool {
    guard(false, || {
        unsafe { *out = (*row).state()? };
        Ok(true)
    })
}
