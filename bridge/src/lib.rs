//! Tokenizers, chat templates and grammars behind the C ABI of `include/bridge.h`.

mod added;
mod bounded;
mod ffi;
mod gguf;
mod grammar;
mod hf;
mod merge;
mod pretokenize;
mod template;
mod tokenizer;
mod vocabulary;
