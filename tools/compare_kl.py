#!/usr/bin/env python3
"""How far mantou and llama.cpp each are from the float reference of the same file, side by side.

    pip install -r tools/requirements.txt
    tools/compare_kl.py --driver BUILD/tests/logits_driver --llama-perplexity PATH MODEL.gguf ...

llama-perplexity cuts the text into contexts and saves its log-probabilities of the second half of each
(--save-all-logits); mantou computes the same tokens; tools/float_reference.py judges both, row by row. Prints
the mean KL(reference || engine) in nats a token and the ratio. Both run with their default KV cache (f16).
Gemma 3: llama.cpp does not round the embedding factor to bf16, so it is judged by a reference that does not either.
llama-perplexity saves log-probabilities in 16 bits, which adds about 1e-8 to its KL, and cuts off what is 16 nats
below the best: both engines are compared over the ids it kept, all distributions normalised over them.
Fails when a ratio exceeds --limit. Minutes of time, and 4 bytes for each token and vocabulary entry in $TMPDIR.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import float_reference

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read_array(stream, dtype, shape):
    """The next elements of a file or a pipe."""
    size = np.dtype(dtype).itemsize * int(np.prod(shape))
    data = stream.read(size)
    if len(data) != size:
        sys.exit(f"{stream.name} ends too early")
    return np.frombuffer(data, dtype).reshape(shape)


class SavedLogits:
    """What llama-perplexity saves: a header, the tokens [chunks, context], then for each context the rows from its
    middle to the last but one: scale and lowest log-probability as f32, then a 16-bit number an id. Read in order,
    from a file or a pipe."""

    def __init__(self, stream, bos):
        if stream.read(8) != b"_logits_":
            sys.exit(f"{stream.name} does not begin with _logits_")
        self.stream = stream
        self.context, self.vocabulary, chunks = map(int, read_array(stream, np.int32, 3))
        self.tokens = read_array(stream, np.int32, (chunks, self.context)).astype(np.int64)
        if bos is not None:
            self.tokens[:, 0] = bos  # as the run itself replaced it
        self.first = self.context // 2
        self.width = 2 * ((self.vocabulary + 1) // 2) + 4

    def log_probabilities(self, count):
        """The next rows: those of the ids that were not cut off, -inf for the others."""
        rows = read_array(self.stream, np.uint16, (count, self.width))
        scale, lowest = np.ascontiguousarray(rows[:, :4]).view(np.float32).astype(np.float64).T
        codes = rows[:, 4:4 + self.vocabulary]
        return np.where(codes > 0, scale[:, None] * codes + lowest[:, None], -np.inf)


def bos_of(model):
    import gguf
    fields = gguf.GGUFReader(model).fields
    value = lambda key, default: fields[key].contents() if key in fields else default
    adds = value("tokenizer.ggml.add_bos_token", value("tokenizer.ggml.model", "") == "llama")
    return value("tokenizer.ggml.bos_token_id", None) if adds else None


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit {done.returncode}\n{done.stderr[-2000:]}")


def divergence(reference, engine, kept):
    """KL(reference || engine) of each row of logits, over the kept ids."""
    p, q = (float_reference.log_softmax(np.where(kept, x, -np.inf)) for x in (reference, engine))
    return (np.exp(p) * (np.where(kept, p, 0) - np.where(kept, q, 0))).sum(-1)


def measure(args, model, scratch):
    """Mean KL of mantou and of llama.cpp, and the number of rows."""
    run([args.llama_perplexity, "-m", model, "-f", args.text, "-c", args.context, "-b", args.context,
         *args.llama_args.split(), "--save-all-logits", scratch / "theirs"])
    theirs = SavedLogits((scratch / "theirs").open("rb"), bos_of(model))
    (scratch / "ids").write_text("\n".join(" ".join(map(str, row)) for row in theirs.tokens) + "\n")
    run([args.driver, model, scratch / "ids", scratch / "ours.npy"])
    ours = np.load(scratch / "ours.npy", mmap_mode="r").reshape(*theirs.tokens.shape, -1)
    reference = float_reference.load(model, np.float32)
    unrounded = float_reference.load(model, np.float32, rounded_scale=False) if reference.family == "gemma3" else None
    divergences = []
    for chunk, tokens in enumerate(theirs.tokens):
        hidden = reference.hidden_states(tokens)
        their_hidden = unrounded.hidden_states(tokens) if unrounded else None
        for at in range(theirs.first, theirs.context - 1, float_reference.HEAD_ROWS):
            end = min(at + float_reference.HEAD_ROWS, theirs.context - 1)
            saved = theirs.log_probabilities(end - at)
            kept = np.isfinite(saved)
            truth = reference.logits(hidden[at:end])
            ours_kl = divergence(truth, np.asarray(ours[chunk, at:end]), kept)
            if unrounded:
                truth = unrounded.logits(their_hidden[at:end])
            divergences.append(np.stack([ours_kl, divergence(truth, saved, kept)], 1))
    divergences = np.concatenate(divergences)
    return *divergences.mean(0), len(divergences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, help=".gguf files of a family float_reference.py knows")
    parser.add_argument("--driver", default="build/release/tests/logits_driver")
    parser.add_argument("--llama-perplexity", required=True)
    parser.add_argument("--llama-args", default="", help='further flags of llama-perplexity, such as "--no-repack"')
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "tests/data/sample.txt")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--limit", type=float, default=1.1, help="largest ratio")
    args = parser.parse_args()
    print("| model | tokens | mantou | llama.cpp | ratio |\n|---|---:|---:|---:|---:|")
    worst = 0.0
    for model in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            ours, theirs, rows = measure(args, model, pathlib.Path(scratch))
        worst = max(worst, ours / theirs)
        print(f"| {model.name} | {rows} | {ours:.6f} | {theirs:.6f} | {ours / theirs:.3f} |", flush=True)
    return 1 if worst > args.limit else 0


if __name__ == "__main__":
    sys.exit(main())
