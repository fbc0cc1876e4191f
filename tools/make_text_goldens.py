#!/usr/bin/env python3
"""Writes src/text/text_goldens.h: small tokenizers and what the Python package `tokenizers` makes of them.

  make_text_goldens.py > src/text/text_goldens.h        (tokenizers 0.23)

The tokenizers are trained here, on the text below, in the shapes of real checkpoints: byte-level BPE
behind NFC (Qwen), SentencePiece BPE with byte fallback behind Prepend (Llama 2), and the same with
Metaspace before the first word only (later Llama exports).
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TRAINING = [
    "The engine reads a prompt, the sampler picks a token, the stream writes it out.",
    "It's the user's turn: they'll ask, we've answered, I'm done. 12 345 6789 tokens!",
    "def render(messages):\n    return ''.join(m['content'] for m in messages)\n\n",
    "Größe, naïve, café, Ελληνικά, Привет мир, こんにちは世界, 你好，世界。",
] * 4

TEXTS = [
    "", " ", "  ", "a", "The engine reads a prompt.", " leading and trailing ", "two  spaces\n\n\tand tab",
    "It's 2024, isn't it? THEY'LL see.", "cafe\u0301 naïve Привет こんにちは 你好", "😀👍🏽", "\u0000\u0001\u007f",
    "<|im_start|>user\nhello<|im_end|>", "x<|im_end|>y <|im_end|>", "<tool_call>{}</tool_call>", "a [GAP]  b[GAP]c",
    "word words word", "<s>The</s> engine", "<s> The", "<unk>", "<|im_start|><|im_start|>", "<|im_", "\u00e9<s>\u00e9",
]

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=360, initial_alphabet=alphabet, show_progress=False))
    special = [AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    special.append(AddedToken("[GAP]", special=True, normalized=False, lstrip=True, rstrip=True))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("word", single_word=True, normalized=True)])
    return tokenizer


def pieces(metaspace):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    space = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.normalizer = space
    tokenizer.train_from_iterator(TRAINING[:3], trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False))
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    if metaspace:
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def literal(text):
    # Longer than MSVC's limit and free of the delimiter.
    return 'R"~(' + text + ')~"'


def quoted(text):
    out = '"'
    for byte in text.encode():
        char = chr(byte)
        out += {'"': '\\"', "\\": "\\\\", "\n": "\\n"}.get(char, char if 0x20 <= byte < 0x7F else f"\\{byte:03o}")
    if not text:
        return "std::string()"
    return f"std::string({out}\", {len(text.encode())})"


def cases(name, tokenizer):
    print(f"inline const std::vector<EncodeGolden> k{name}Goldens = {{")
    for text in TEXTS:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        row = ", ".join(map(str, ids)), ", ".join(map(str, plain))
        print(f"    {{{quoted(text)}, {{{row[0]}}}, {{{row[1]}}}, {quoted(decoded)}}},")
    print("};\n")


def main():
    print("// Written by tools/make_text_goldens.py. Do not edit.\n#pragma once\n")
    print("#include <cstdint>\n#include <string>\n#include <vector>\n")
    print("// clang-format off\nnamespace mantou::text {\n")
    print("// Ids with special tokens recognised and with them read as text; what the first decode to.")
    print("struct EncodeGolden {\n  std::string text;\n  std::vector<int32_t> ids, plain_ids;\n  std::string decoded;\n};\n")
    for name, tokenizer in ("ByteLevel", byte_level()), ("Prepend", pieces(False)), ("Metaspace", pieces(True)):
        content = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=True, separators=(",", ":"))
        print(f"inline constexpr char k{name}Json[] = {literal(content)};\n")
        cases(name, tokenizer)
    print("}  // namespace mantou::text")


if __name__ == "__main__":
    main()
