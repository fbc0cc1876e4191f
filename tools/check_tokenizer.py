#!/usr/bin/env python3
"""Compares our token ids with other tokenizers' on a megabyte of mixed text.

  check_tokenizer.py --driver BUILD/tests/text_driver --llama-tokenize PATH MODEL.gguf ...
  check_tokenizer.py --driver BUILD/tests/text_driver tokenizer.json ...
  check_tokenizer.py --driver ... --llama-tokenize PATH MODEL.gguf --families qwen2 smollm ...
  check_tokenizer.py --driver ... --hf falcon MODEL.gguf
  check_tokenizer.py --driver ... --vectors ggml-vocab-qwen2.gguf ...
  check_tokenizer.py --driver ... --llama-tokenize PATH MODEL.gguf ... --write tests/golden/data/tokenizer.json

GGUF vocabularies are compared with llama.cpp's llama-tokenize, tokenizer.json files with the Python
package `tokenizers`. --families gives a gpt2 vocabulary each of these pre-tokenizers in turn (needs the
Python package `gguf`); llama.cpp itself only approximates tekken and gpt-4o (no marks, no case of other
scripts), the deepseek ones (spaces beyond ASCII: --plain-spaces leaves them out) and falcon (symbols after a
space). --hf puts the `tokenizers` package's own pre-tokenizer before a GGUF vocabulary. --vectors compares
with the texts and ids published beside each vocabulary (FILE.inp and FILE.out, as llama.cpp's sources
ship them: HF's own ids). --write records llama-tokenize's ids of a few texts for tokenizer_test instead.
Decoding must give the text back and stream to the same bytes.
The text is made from a fixed seed and this Python's standard library. Exit code 1 on any difference.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import unicodedata

# SmolLM2's vocabulary lacks these bytes. HF's BPE forgets them before merging, llama.cpp after.
ABSENT = dict.fromkeys(map(ord, "\0\x04\x06\x13\x14\x16\x1d"), " ")

# (first, last) of the scripts that words are made of.
SCRIPTS = {
    "latin": (0x41, 0x24F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF),
    "armenian": (0x531, 0x586), "hebrew": (0x5D0, 0x5EA), "arabic": (0x620, 0x6D3),
    "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA),
    "thai": (0xE01, 0xE5B), "tibetan": (0xF00, 0xFDA), "georgian": (0x10A0, 0x10FF),
    "ethiopic": (0x1200, 0x137C), "khmer": (0x1780, 0x17F9), "hiragana": (0x3041, 0x309F),
    "katakana": (0x30A0, 0x30FF), "han": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3),
    "gothic": (0x10330, 0x1034A), "math": (0x1D400, 0x1D7FF),
}
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "1️⃣", "🧑🏿‍🚀", "⌚", "🫠"]
SPACES = [" ", "  ", "\n", "\n\n", "\r\n", "\t", " \n ", "    ", "\u00a0", "\u3000", "\u2003", " " * 17]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "„", "“", "。", "、", "؟", "¿", "€", "№"]
CONTRACTIONS = ["'s", "'t", "'re", "'VE", "'m", "'LL", "'d", "’s", "'S", "n't"]


def assigned(first, last):
    return [chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def random_text(rng, size):
    letters = {name: assigned(*span) for name, span in SCRIPTS.items()}
    out, length = [], 0
    while length < size:
        kind = rng.random()
        if kind < 0.5:
            alphabet = letters[rng.choice(list(letters))]
            piece = "".join(rng.choices(alphabet, k=rng.randint(1, 9)))
        elif kind < 0.6:
            piece = "".join(rng.choices("0123456789٠١٢३½²Ⅷ", k=rng.randint(1, 12)))
        elif kind < 0.7:
            piece = "".join(rng.choices(PUNCTUATION, k=rng.randint(1, 5)))
        elif kind < 0.75:
            piece = rng.choice(EMOJI)
        elif kind < 0.8:
            piece = rng.choice(CONTRACTIONS)
        else:
            piece = rng.choice(SPACES)
        out.append(piece)
        length += len(piece)
        if rng.random() < 0.4:
            out.append(" ")
    return "".join(out)


def corpus(seed, size, chunk, specials):
    """Texts of `chunk` characters: code, prose, random scripts, bytes as Latin-1, broken UTF-8."""
    rng = random.Random(seed)
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    code = sorted(p for p in library.glob("*.py"))
    files = rng.sample(code, 12) + [library / "pydoc_data/topics.py"]
    text = "\n".join(p.read_text("utf-8", "replace")[: size // 24] for p in files)[: size // 2]
    text += random_text(rng, size // 3)
    text += bytes(rng.choices(range(256), k=size // 12)).decode("latin-1").translate(ABSENT)
    text += bytes(rng.choices(range(256), k=size // 12)).decode("utf-8", "replace").translate(ABSENT)
    chunks = [text[i : i + chunk] for i in range(0, len(text), chunk)]
    for i in range(0, len(chunks), 3):  # special tokens in the midst
        at = rng.randrange(len(chunks[i]) + 1)
        chunks[i] = chunks[i][:at] + "".join(rng.choices(specials, k=3)) + chunks[i][at:]
    return chunks


VECTORS = [
    " ", "\n", "\t\t", "Hello", " Hello", "Hello world!", "  two  spaces ", "\n\n\n x", "line\r\nline", "It's we'll I'VE n't",
    "1234567890 3.14 1,000", "ünïcödé ça va", "Привет, мир", "こんにちは世界。你好", "مرحبا بالعالم", "नमस्ते", "สวัสดี", "😀👩‍👩‍👧‍👦🇩🇪", "e\u0301",
    "for (int i = 0; i < n; ++i) {\n    x[i] += 1;\n}\n", "def f(x):\n\treturn x ** 2  # square\n", "<|im_start|>user\nhi<|im_end|>\n", "<bos><eos>",
    "<start_of_turn>user\nhi<end_of_turn>", "<tool_call>{\"a\": [1, 2]}</tool_call>", "<|endoftext|>a", "a" * 40, " " * 40, "\u00a0\u2003\u3000", "\ufffd", "<0x0A>", "▁x",
]


def write_vectors(tool, models, path):
    out = {model.name: [{"text": text, "ids": llama_ids(tool, model, text)} for text in VECTORS] for model in models}
    lines = [f"  {json.dumps(name)}: [\n    " + ",\n    ".join(map(json.dumps, cases)) + "\n  ]" for name, cases in out.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(f"{request['model']}: {answer['error']}")
        return answer


def llama_ids(tool, model, text):
    with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        command = [tool, "-m", str(model), "-f", file.name, "--ids", "--no-bos", "--no-escape", "--log-disable"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def vocabulary_with_pre(model, pre, out):
    """A GGUF file of `model`'s metadata alone, with another tokenizer.ggml.pre."""
    import gguf

    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = pre if key == "tokenizer.ggml.pre" else field.contents()
        kind = field.types[0]
        writer.add_key_value(key, value, kind, field.types[1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_tokenizer(model, pre):
    """The vocabulary and merges of a GGUF file in the `tokenizers` package, with the pre-tokenizer and normalizer
    that tokenizer.json of the family has."""
    import gguf
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

    bytes_alone = ByteLevel(add_prefix_space=False, use_regex=False)
    words = ByteLevel(add_prefix_space=False, use_regex=True)
    qwen2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
    known = {
        "gpt-2": (None, words),
        "smollm": (None, Sequence([Digits(individual_digits=True), words])),
        "qwen2": (normalizers.NFC(), Sequence([Split(Regex(qwen2), "isolated"), bytes_alone])),
        "falcon": (None, Sequence([Punctuation("contiguous"), words, Split(Regex("[0-9][0-9][0-9]"), "isolated")])),
    }
    if pre not in known:
        sys.exit(f"--hf knows {', '.join(known)}")
    fields = gguf.GGUFReader(model).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges"))
    out = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in merges]))
    out.normalizer, out.pre_tokenizer = known[pre]
    out.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == 3])
    out.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == 4])
    return out


def check_hf(driver, model, chunks, pre):
    reference = hf_tokenizer(model, pre)
    encode = lambda text: reference.encode(text, add_special_tokens=False).ids
    return compare(driver, model, chunks, encode, f"{model.name} as HF's {pre}", pre=pre)


def first_difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return at, ours[at : at + 8], theirs[at : at + 8]


def compare(driver, model, chunks, reference, label, prepare=lambda text: text, **more):
    bad = ids_seen = 0
    size, spent = 0, 0.0
    for text in chunks:
        theirs = reference(prepare(text))
        answer = driver.ask(model=str(model), op="encode", hex=text.encode().hex(), **more)
        ours = answer["ids"]
        size += len(text.encode())
        spent += answer["ms"]
        ids_seen += len(ours)
        if ours != theirs:
            bad += 1
            if bad <= 3:
                at, mine, other = first_difference(ours, theirs)
                before = bytes.fromhex(driver.ask(model=str(model), op="decode", ids=ours[:at], **more)["hex"])
                print(f"  {label}: after {before[-40:].decode('utf-8', 'replace')!r}\n    ours {mine}\n    them {other}")
        decoded = driver.ask(model=str(model), op="decode", ids=ours, **more)
        if decoded["hex"] != decoded["pieces"]:
            bad += 1
            print(f"  {label}: streamed text differs from decoded text")
    print(f"{label}: {size} bytes, {ids_seen} ids, {bad} of {len(chunks)} texts differ; {size / spent / 1000:.2f} MB/s")
    return bad


def check_gguf(driver, tool, model, chunks):
    # tokenizer.json of these families composes characters first (NFC), which llama.cpp leaves out.
    def nfc(text):
        return unicodedata.normalize("NFC", text)

    return compare(driver, model, [nfc(c) for c in chunks], lambda text: llama_ids(tool, model, text), model.name)


def check_vectors(driver, model):
    texts = pathlib.Path(f"{model}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    answers = [[int(i) for i in line.split()] for line in pathlib.Path(f"{model}.out").read_text().splitlines()]
    if texts[-1] == "":  # a separator ends the file
        texts.pop()
    if len(texts) != len(answers):
        sys.exit(f"{model}.inp has {len(texts)} texts, its .out {len(answers)} lines")
    expected = iter(answers)
    return compare(driver, model, texts, lambda _: next(expected), f"{model.name} published vectors")


def check_families(driver, tool, model, chunks, names):
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = pathlib.Path(folder) / f"{name}.gguf"
            vocabulary_with_pre(model, name, path)
            texts = [unicodedata.normalize("NFC", c) for c in chunks]
            bad += compare(driver, model, texts, lambda text: llama_ids(tool, path, text), f"pre {name}", pre=name)
            path.unlink()
    return bad


def check_json(driver, path, chunks):
    import tokenizers

    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.no_truncation()
    reference.no_padding()
    encode = lambda text: reference.encode(text, add_special_tokens=False).ids
    bad = compare(driver, path, chunks, encode, path.name)
    # The step-by-step pipeline that literal ranges take, on a range no special token touches.
    bad += compare(driver, path, chunks, encode, f"{path.name} stepwise", literal=[[0, 1]])
    reference.encode_special_tokens = True
    bad += compare(driver, path, chunks, encode, f"{path.name} without special tokens", parse_special=False)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--llama-tokenize")
    parser.add_argument("--families", nargs="*", metavar="PRE")
    parser.add_argument("--hf", metavar="PRE")
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--plain-spaces", action="store_true", help="no whitespace beyond ASCII")
    parser.add_argument("--chunk", type=int, default=12_000, help="characters a text")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=pathlib.Path)
    args = parser.parse_args()
    if args.write:
        return write_vectors(args.llama_tokenize, args.models, args.write)
    driver = Driver(args.driver)
    specials = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<end_of_turn>", "<tool_call>", "<unk>"]
    bad = 0
    for model in args.models:
        if args.vectors:
            bad += check_vectors(driver, model)
            continue
        chunks = corpus(args.seed, args.size, args.chunk, specials)
        if args.plain_spaces:
            chunks = ["".join(" " if c.isspace() and c > "~" else c for c in chunk) for chunk in chunks]
        if args.hf:
            bad += check_hf(driver, model, chunks, args.hf)
        elif model.suffix == ".json":
            bad += check_json(driver, model, chunks)
        elif args.families:
            bad += check_families(driver, args.llama_tokenize, model, chunks, args.families)
        else:
            bad += check_gguf(driver, args.llama_tokenize, model, chunks)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
