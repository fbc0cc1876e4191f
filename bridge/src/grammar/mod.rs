//! Grammars: which tokens may come next so that the text stays within a JSON schema, a regular expression
//! or a Lark grammar. The work is llguidance's; here are its vocabulary, its bounds and the C entries.

mod disjoint;
mod embedded;
mod regex;
mod schema;
mod values;

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv,
};
use llguidance::{Matcher, ParserFactory};
use serde_json::json;

use crate::bounded::{self, Bounds, Stopped, Strays};
use crate::ffi::{Result, Slice, array, free_handle, guard, handle, set_last_error};
use crate::tokenizer::TokenView;

/// A source longer than this is refused.
const MAX_SOURCE: usize = 256 << 10;
const MAX_MESSAGE: usize = 300;
/// Of the lexer of one row, 1 to 2 kB each.
const MAX_LEXER_STATES: usize = 50_000;
/// At one place of the text, four for each property that may come next; a few milliseconds of work.
const MAX_ROW_ITEMS: usize = 8_000;
/// Of all the places that a mask looks at, about 20 ms of work.
const MAX_MASK_ITEMS: usize = 400_000;
/// What compiling may take. Its parsers are recursive: the stack is enough for MAX_SOURCE opening brackets.
const BOUNDS: Bounds = Bounds {
    stack: if cfg!(debug_assertions) { 8 << 30 } else { 1 << 30 },
    memory: 256 << 20,
    time: Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 5 }),
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
    ends: Arc<[u32]>,
    strays: Strays,
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
        limits.max_items_in_row = MAX_ROW_ITEMS;
        limits.step_max_items = MAX_MASK_ITEMS;
        make_constants(&factory);
        Ok(Vocabulary { factory: Arc::new(factory), ends: ends.into(), strays: Strays::default() })
    }

    fn compile(&self, kind: Kind, source: &str) -> std::result::Result<Grammar, Refusal> {
        if source.len() > MAX_SOURCE {
            let size = source.len();
            return Err(Refusal::wrong(format!(
                "{size} bytes are too long, the limit is {MAX_SOURCE}"
            )));
        }
        let (factory, owned) = (Arc::clone(&self.factory), source.to_owned());
        let work = move || compile(&factory, kind, &owned);
        let done = bounded::run("grammar", &BOUNDS, &self.strays, work).map_err(|stopped| {
            bounded::keep_for_ever(self.factory.clone());
            Refusal::stopped(stopped)
        })?;
        let start = done.result.map_err(|message| Refusal::wrong(shorten(&message)))?;
        let row = Row { matcher: start, ends: Arc::clone(&self.ends), ended: false };
        Ok(Grammar { start: Mutex::new(row), bytes: done.kept })
    }
}

/// Why there is no grammar.
struct Refusal {
    status: CompileStatus,
    message: String,
}

impl Refusal {
    fn wrong(message: String) -> Refusal {
        Refusal { status: CompileStatus::Wrong, message }
    }

    fn stopped(stopped: Stopped) -> Refusal {
        let status = match stopped {
            Stopped::Memory => CompileStatus::Wrong,
            Stopped::Time => CompileStatus::TooSlow,
            Stopped::Busy | Stopped::Strays | Stopped::NoThread(_) => CompileStatus::Unavailable,
        };
        Refusal { status, message: format!("it cannot be compiled: {stopped}") }
    }
}

/// BridgeCompileStatus.
#[repr(C)]
#[derive(Clone, Copy)]
enum CompileStatus {
    Ok,
    Wrong,
    TooSlow,
    Unavailable,
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
pub struct Grammar {
    start: Mutex<Row>,
    bytes: usize, // about
}

/// For bounded::run, what llguidance and its crates make when it is first needed and never change: the
/// meta schemas and base address of `referencing`, the seeds of `ahash`, a hook for panics.
fn make_constants(factory: &ParserFactory) {
    let schema =
        r##"{"$defs":{"a":{"type":"string","format":"date","pattern":"a"}},"$ref":"#/$defs/a"}"##;
    let lark = r#"start: "a" | /b+/i | %json {"type":"null"}"#;
    for (kind, source) in [(Kind::JsonSchema, schema), (Kind::Regex, "a|b"), (Kind::Lark, lark)] {
        let _ = compile(factory, kind, source); // the vocabulary may have no "a"
    }
    // Schemas that refer to the drafts' own are refused, but what looks for references may find one where
    // no schema is.
    let foreign = json!({"$id": "a", "$ref": "https://json-schema.org/draft/2020-12/schema"});
    let _ = factory.create_parser(TopLevelGrammar::from_json_schema(foreign));
}

fn compile(factory: &ParserFactory, kind: Kind, source: &str) -> Result<Matcher> {
    let grammar = match kind {
        Kind::JsonSchema => TopLevelGrammar::from_json_schema(schema::prepare(source)?),
        Kind::Regex => TopLevelGrammar::from_regex(regex::check(source)?),
        Kind::Lark => TopLevelGrammar::from_lark(embedded::prepare(source)?),
    };
    let mut matcher = Matcher::new(factory.create_parser(grammar));
    match matcher.get_error() {
        Some(error) => Err(one_line(&error)),
        None if matcher.compute_mask_or_eos().is_err() => {
            Err(one_line(&matcher.get_error().unwrap_or_default()))
        }
        None => Ok(matcher),
    }
}

/// The last part of an error that shows where it is in several lines.
fn reason(error: &str) -> &str {
    error.rsplit("error: ").next().unwrap_or(error).trim()
}

/// Messages quote what they are about, which may be long.
fn shorten(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

/// llguidance's words for limits that a grammar exceeds, and for its own failures, which come of such.
const LIMITS: &[&str] =
    &["Too many items", "Current row has", "too many states", "too many expressions", "panic: "];

fn one_line(error: &str) -> String {
    if error.contains("NoExtensionBias") {
        return "no token of the vocabulary fits here".into();
    }
    if LIMITS.iter().any(|limit| error.contains(limit)) {
        return "it has too many alternatives at this place of the text, or an expression that takes too \
                much work"
            .into();
    }
    let error = error.split("<backtrace>").next().unwrap_or(error);
    let lines = error.lines().map(str::trim).filter(|l| !l.is_empty() && *l != "<non-verbose/>");
    lines.collect::<Vec<_>>().join("; ")
}

/// One row's place in its grammar. After an error it stays failed.
///
/// The ends are handled here: llguidance does not take them back, and refuses them once nothing else can
/// follow.
pub struct Row {
    matcher: Matcher,
    ends: Arc<[u32]>,
    ended: bool, // the last token was an end
}

impl Row {
    fn fork(&self) -> Row {
        let matcher = self.matcher.deep_clone(); // a plain clone would share the lexer
        Row { matcher, ends: Arc::clone(&self.ends), ended: self.ended }
    }

    /// The words beyond the vocabulary are 0.
    fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        let mut mask = self.matcher.compute_mask_or_eos().map_err(|e| one_line(&e.to_string()))?;
        if !self.accepting()? {
            // A grammar may name an end, which ends it nevertheless.
            for &end in self.ends.iter() {
                mask.disallow_token(end);
            }
            if mask.is_zero() {
                return Err("only the end of the text fits here, where it may not end".into());
            }
        }
        let mask = mask.as_slice();
        let common = mask.len().min(words.len());
        words[..common].copy_from_slice(&mask[..common]);
        words[common..].fill(0);
        Ok(())
    }

    /// Whether the grammar allows the token; if not, nothing changes.
    fn commit(&mut self, id: u32) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.ends.contains(&id) {
            self.ended = self.accepting()?;
            return Ok(self.ended);
        }
        let environment = self.matcher.tok_env().map_err(|e| one_line(&e.to_string()))?;
        if id as usize >= environment.tok_trie().vocab_size() {
            return Ok(false);
        }
        let taken = self.matcher.try_consume_tokens(&[id]).map_err(|e| one_line(&e.to_string()))?;
        Ok(taken == 1)
    }

    fn rollback(&mut self, count: usize) -> Result<()> {
        let ends = usize::from(self.ended && count > 0);
        self.matcher.rollback(count - ends).map_err(|e| one_line(&e.to_string()))?;
        self.ended &= ends == 0;
        Ok(())
    }

    fn accepting(&mut self) -> Result<bool> {
        self.matcher.is_accepting().map_err(|e| one_line(&e.to_string()))
    }

    fn state(&mut self) -> Result<State> {
        let accepting = self.accepting()?;
        Ok(State { accepting, stopped: self.ended || self.matcher.is_stopped() })
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
    out: *mut *mut Grammar,
) -> CompileStatus {
    guard(CompileStatus::Wrong, || {
        let kind = *KINDS.get(kind as usize).ok_or("there is no such kind of grammar")?;
        let source = unsafe { source.text("the grammar")? };
        match unsafe { &*vocabulary }.compile(kind, source) {
            Ok(grammar) => {
                unsafe { *out = handle(Ok(grammar))? };
                Ok(CompileStatus::Ok)
            }
            Err(refusal) => {
                set_last_error(&refusal.message);
                Ok(refusal.status)
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_grammar_bytes(grammar: *const Grammar) -> usize {
    unsafe { &*grammar }.bytes
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_grammar_free(grammar: *mut Grammar) {
    unsafe { free_handle(grammar) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_new(grammar: *const Grammar) -> *mut Row {
    guard(std::ptr::null_mut(), || {
        let start = unsafe { &*grammar }.start.lock().map_err(|e| e.to_string())?;
        handle(Ok(start.fork()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_row_fork(row: *const Row) -> *mut Row {
    guard(std::ptr::null_mut(), || handle(Ok(unsafe { &*row }.fork())))
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
unsafe extern "C" fn bridge_row_commit(row: *mut Row, id: u32) -> c_int {
    guard(-1, || unsafe { &mut *row }.commit(id).map(c_int::from))
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

#[cfg(test)]
mod tests;
