// The whole C ABI of the bridge: tokenizers, chat templates and grammars, written in Rust, as opaque
// handles.
//
// Ownership: a handle belongs to the caller until its _free; BridgeBytes and BridgeIds that a call
// filled in go back through bridge_bytes_free and bridge_ids_free, whatever they hold. Slices that
// a call returns stay valid as long as the handle they came from; slices passed in are only read
// during the call. Handles are immutable, so that any number of threads may use one at the same
// time, but for BridgeRow.
//
// Errors: a null handle or a false result means failure. The message is that of the calling thread
// and stays valid until its next failing call; read it in a statement of its own. No panic crosses
// this border.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct BridgeSlice {
  const char* data;  // may be null when size is 0
  size_t size;
} BridgeSlice;

typedef struct BridgeBytes {
  char* data;
  size_t size, capacity;
} BridgeBytes;

typedef struct BridgeIds {
  uint32_t* data;
  size_t size, capacity;
} BridgeIds;

typedef struct BridgeRange {
  size_t begin, end;  // bytes, half-open
} BridgeRange;

const char* bridge_last_error(void);
void bridge_bytes_free(BridgeBytes bytes);
void bridge_ids_free(BridgeIds ids);

// ---- Tokenizers

typedef struct BridgeTokenizer BridgeTokenizer;

typedef struct BridgeGgufVocabulary {
  BridgeSlice model;  // "gpt2" or "llama"
  BridgeSlice pre;    // read for "gpt2"
  const BridgeSlice* tokens;
  size_t token_count;
  const float* scores;   // null, or token_count of them; needed for "llama"
  const int32_t* types;  // null (all normal), or token_count of them
  const BridgeSlice* merges;
  size_t merge_count;
  bool add_space_prefix;  // read for "llama"
} BridgeGgufVocabulary;

typedef struct BridgeToken {
  BridgeSlice piece;  // text in the vocabulary
  BridgeSlice bytes;  // bytes the token stands for in decoded text
  bool added;         // recognised in text before anything else
  bool special;       // added, and a control token
} BridgeToken;

// What the tokenizer itself wants around a text and at the start of decoded text.
typedef struct BridgeTokenizerTraits {
  size_t size;                // highest id + 1
  bool adds_bos;              // GGUF: the vocabulary's kind starts a text with BOS by default
  bool drops_leading_space;   // decoded text loses one space at its very beginning
} BridgeTokenizerTraits;

BridgeTokenizer* bridge_tokenizer_from_json(BridgeSlice json);
BridgeTokenizer* bridge_tokenizer_from_gguf(const BridgeGgufVocabulary* vocabulary);
void bridge_tokenizer_free(BridgeTokenizer* tokenizer);

BridgeTokenizerTraits bridge_tokenizer_traits(const BridgeTokenizer* tokenizer);

// The ids a tokenizer.json puts before and after a text. Both are filled in, perhaps with nothing.
bool bridge_tokenizer_frame(const BridgeTokenizer* tokenizer, BridgeIds* prefix, BridgeIds* suffix);

// The ids of `text` alone, without what the frame adds. Invalid UTF-8 is read as U+FFFD. Text that
// spells a special token becomes that token unless parse_special is false or the text touches one
// of the `literal` ranges.
bool bridge_tokenizer_encode(const BridgeTokenizer* tokenizer, BridgeSlice text, bool parse_special,
                             const BridgeRange* literal, size_t literal_count, BridgeIds* out);

int64_t bridge_tokenizer_id(const BridgeTokenizer* tokenizer, BridgeSlice piece);  // -1: none
// An id outside the vocabulary gives empty slices.
BridgeToken bridge_tokenizer_token(const BridgeTokenizer* tokenizer, uint32_t id);

// ---- Chat templates

typedef struct BridgeTemplate BridgeTemplate;

typedef enum BridgeRenderStatus {
  BRIDGE_RENDER_OK = 0,
  BRIDGE_RENDER_FAILED = 1,  // the message says where and why
  BRIDGE_RENDER_RAISED = 2,  // the template called raise_exception: the message is its argument
  BRIDGE_RENDER_UNAVAILABLE = 3,  // as BRIDGE_COMPILE_UNAVAILABLE
} BridgeRenderStatus;

BridgeTemplate* bridge_template_compile(BridgeSlice source);
void bridge_template_free(BridgeTemplate* compiled);
// `context` is a JSON object: the variables of the template, in order.
BridgeRenderStatus bridge_template_render(const BridgeTemplate* compiled, BridgeSlice context,
                                          BridgeBytes* out);

// ---- Grammars

typedef struct BridgeVocabulary BridgeVocabulary;  // what grammars know of a tokenizer
typedef struct BridgeGrammar BridgeGrammar;
typedef struct BridgeRow BridgeRow;  // a place in a grammar; one thread at a time

typedef enum BridgeGrammarKind {
  BRIDGE_GRAMMAR_JSON_SCHEMA = 0,  // text: the schema
  BRIDGE_GRAMMAR_REGEX = 1,        // of the crate regex, for the whole text
  BRIDGE_GRAMMAR_LARK = 2,         // llguidance's Lark
} BridgeGrammarKind;

typedef struct BridgeRowState {
  bool accepting;  // the text may end here
  bool stopped;    // nothing but an end can follow, or an end was committed
} BridgeRowState;

// Takes a few tenths of a second for large vocabularies. Special tokens and ends are no text for a
// grammar; every end may end it.
BridgeVocabulary* bridge_vocabulary_new(const BridgeToken* tokens, size_t token_count,
                                        const uint32_t* end_ids, size_t end_count);
void bridge_vocabulary_free(BridgeVocabulary* vocabulary);

typedef enum BridgeCompileStatus {
  BRIDGE_COMPILE_OK = 0,
  BRIDGE_COMPILE_WRONG = 1,        // and always will be
  BRIDGE_COMPILE_TOO_SLOW = 2,     // it was given up on
  // Too many before it were given up on, or there is no memory for the thread it runs on.
  BRIDGE_COMPILE_UNAVAILABLE = 3,
} BridgeCompileStatus;

// Within bounds on nesting, size, time and memory. The message names the place in a schema.
BridgeCompileStatus bridge_grammar_compile(const BridgeVocabulary* vocabulary, unsigned kind,
                                           BridgeSlice source, BridgeGrammar** out);
size_t bridge_grammar_bytes(const BridgeGrammar* grammar);  // what it holds on the heap, about
void bridge_grammar_free(BridgeGrammar* grammar);

// At the beginning of the text.
BridgeRow* bridge_row_new(const BridgeGrammar* grammar);
BridgeRow* bridge_row_fork(const BridgeRow* row);
void bridge_row_free(BridgeRow* row);

// Bit i of word i / 32 is 1 when token i may come next; words beyond the vocabulary are 0. Where
// the text may end the end ids are set, where nothing else can follow they alone. Fails when no
// token fits or the grammar takes too much work here; the row stays failed.
bool bridge_row_mask(BridgeRow* row, uint32_t* words, size_t count);
// 1: taken; 0: not allowed here, and nothing changes; -1: failed, and the row stays so.
int bridge_row_commit(BridgeRow* row, uint32_t id);
// Takes back the last `count` tokens.
bool bridge_row_rollback(BridgeRow* row, size_t count);
bool bridge_row_state(BridgeRow* row, BridgeRowState* out);

#ifdef __cplusplus
}
#endif
