#!/usr/bin/env python3
"""What a quantized key/value cache costs: mantou and llama.cpp, each against itself with a cache of f16.

    pip install -r tools/requirements.txt
    tools/compare_kv.py --driver BUILD/tests/logits_driver --llama-perplexity PATH MODEL.gguf ...
    tools/compare_kv.py --needle --mantou BUILD/mantou MODEL.gguf ...

The first form prints the mean KL(f16 cache || quantized cache) in nats a token over the second half of each context,
of mantou with --kv-quant 8 and 4 and of llama.cpp with q8_0 and q4_0, and the ratios. Everything else is the same in
both runs of an engine: weights, int8 activations, attention (llama.cpp: flash attention), tokens a step. All
distributions are treated as llama-perplexity saves them: 16 bits an id, what is 16 nats below the best cut off, and
two are compared over the ids that both kept. Fails when the ratio of 8 bits exceeds --limit. The text is the
documentation that comes with Python, unless --text names another. All runs go side by side, one thread each, and
nothing is stored, but it takes long: 10 to 30 minutes for 100 million weights and the default 20,000 tokens scored.

The second form hides one fact at several depths of a long prompt, asks for it, and prints which caches found it.
Fails when 8 bits miss what f16 found.
"""
import argparse
import contextlib
import json
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys
import tempfile

import numpy as np

from compare_kl import SavedLogits, bos_of, divergence, read_array

ROWS = 16  # compared at once
CACHES = {"f16": "f16", "8": "q8_0", "4": "q4_0"}  # mantou's and llama.cpp's
OUTPUT = object()  # stands in a command for the file that the program writes
CODE = "73914"
NEEDLE = f"Remember this: the code of the green door is {CODE}."
QUESTION = "What is the code of the green door? Answer with the code alone."


class Run:
    """A program that writes its result, the argument OUTPUT of the command, into a pipe: `stream`."""

    def __init__(self, command):
        reader, writer = os.pipe()
        self.log = tempfile.TemporaryFile()
        self.program = command[0]
        self.process = subprocess.Popen(
            [f"/dev/fd/{writer}" if part is OUTPUT else str(part) for part in command], pass_fds=[writer],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(writer)
        self.stream = os.fdopen(reader, "rb", buffering=1 << 20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # another run failed
            self.process.kill()
            self.process.wait()
            return
        if code != 0:
            self.log.seek(0)
            print(f"{self.program}: exit {code}\n{self.log.read().decode(errors='replace')[-2000:]}", file=sys.stderr)


class DriverLogits:
    """The rows of logits that logits_driver writes, treated as llama-perplexity does before it saves them."""

    def __init__(self, stream):
        np.lib.format.read_magic(stream)
        self.vocabulary = np.lib.format.read_array_header_1_0(stream)[0][1]
        self.stream = stream

    def log_probabilities(self, count):
        """Those of the next rows, up to a constant of each row; -inf for the ids that are cut off."""
        logits = read_array(self.stream, np.float32, (count, self.vocabulary)).astype(np.float64)
        best = logits.max(-1, keepdims=True)
        lowest = np.maximum(logits.min(-1, keepdims=True), best - 16)
        scale = (best - lowest) / 65535
        codes = np.rint((logits - lowest) / scale)
        return np.where(codes > 0, scale * codes, -np.inf)


def cache_options(bits, group):
    return [] if bits == "f16" else ["--kv-bits", bits, "--kv-group", group]


def measure(args, model, scratch):
    """KL of [rows, engines (mantou, llama.cpp), caches (8, 4)]."""
    with contextlib.ExitStack() as runs:
        def start(*command):
            return runs.enter_context(Run(command)).stream

        theirs = [SavedLogits(start(
            args.llama_perplexity, "-m", model, "-f", args.text or scratch / "text", "-c", args.context,
            "-b", args.context, "--chunks", args.contexts, "-t", args.threads, "-fa", "on", "-ctk", cache,
            "-ctv", cache, *args.llama_args.split(), "--save-all-logits", OUTPUT), bos_of(model))
            for cache in CACHES.values()]
        tokens, first = theirs[0].tokens, theirs[0].first
        (scratch / "ids").write_text("\n".join(" ".join(map(str, row[:-1])) for row in tokens) + "\n")
        ours = [DriverLogits(start(
            args.driver, model, scratch / "ids", OUTPUT, "--from", first, "--threads", args.threads, "--chunks", 256,
            *cache_options(bits, args.group))) for bits in CACHES]
        result = []
        for context in range(len(tokens)):
            for at in range(first, args.context - 1, ROWS):
                count = min(ROWS, args.context - 1 - at)
                result.append(np.stack([compare(engine, count) for engine in (ours, theirs)], 1))
            print(f"{context + 1} of {len(tokens)} contexts: mantou, llama.cpp [8, 4] "
                  f"{np.concatenate(result).mean(0).tolist()}", file=sys.stderr)
    return np.concatenate(result)


def compare(runs, count):
    """KL(first run || other) of the next rows: [rows, other runs]."""
    plain, *others = [run.log_probabilities(count) for run in runs]
    return np.stack([divergence(plain, other, np.isfinite(plain) & np.isfinite(other)) for other in others], 1)


def compare_caches(args):
    print("| model | tokens | mantou 8 | q8_0 | ratio | mantou 4 | q4_0 | ratio |\n|---|" + "---:|" * 7)
    worst = 0.0
    for model in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            if not args.text:
                (scratch / "text").write_text(documentation())
            divergences = measure(args, model, scratch)
        cells = []
        for ours, theirs in divergences.mean(0).T:
            cells += [f"{ours:.6f}", f"{theirs:.6f}", f"{ours / theirs:.3f}"]
        worst = max(worst, float(cells[2]))
        print(f"| {model.name} | {len(divergences)} | {' | '.join(cells)} |", flush=True)
    return 1 if worst > args.limit else 0


def documentation():
    return "\n\n".join(pydoc_data.topics.topics.values())


def haystack(args, model, depth):
    """About --needle-tokens of text whose paragraphs have the needle among them at this depth, and the question."""
    text = args.text.read_text() if args.text else documentation()
    text = text[:8 * args.needle_tokens]
    counted = subprocess.run([args.mantou, "tokenize", "--json", "-m", model], input=text, check=True,
                             capture_output=True, text=True)
    text = text[:len(text) * args.needle_tokens // len(json.loads(counted.stdout)["ids"])]
    paragraphs = text.split("\n\n")
    paragraphs.insert(round(depth * len(paragraphs)), NEEDLE)
    return "\n\n".join([*paragraphs, QUESTION])


def find_needle(args):
    print("| model | depth | f16 | 8 bits | 4 bits |\n|---|---:|---|---|---|")
    lost = False
    for model in args.models:
        for depth in args.depths:
            prompt, found = haystack(args, model, depth), []
            for bits in CACHES:
                options = ["--kv-quant", "off" if bits == "f16" else bits, "--kv-group-size", args.group]
                done = subprocess.run([str(part) for part in (args.mantou, "generate", "-m", model, "--temp", 0, "-n", 32,
                                       "-t", args.threads, *options)], input=prompt, capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"{args.mantou}: exit {done.returncode}\n{done.stderr[-2000:]}")
                print(f"{model.name} depth {depth} cache {bits}: {done.stdout!r}", file=sys.stderr)
                found.append(CODE in done.stdout)
            lost |= found[0] and not found[1]
            cells = " | ".join("found" if hit else "not found" for hit in found)
            print(f"| {model.name} | {depth:.0%} | {cells} |", flush=True)
    return 1 if lost else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, help=".gguf files")
    parser.add_argument("--driver", default="build/release/tests/logits_driver")
    parser.add_argument("--llama-perplexity")
    parser.add_argument("--llama-args", default="", help='further flags of llama-perplexity, such as "--no-repack"')
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--contexts", type=int, default=20)
    parser.add_argument("--group", type=int, default=64, help="dimensions that share a scale in mantou's caches")
    parser.add_argument("--threads", type=int, default=1, help="of each program")
    parser.add_argument("--limit", type=float, default=1.1, help="largest ratio of 8 bits")
    parser.add_argument("--needle", action="store_true", help="the second form")
    parser.add_argument("--mantou", default="build/release/mantou")
    parser.add_argument("--needle-tokens", type=int, default=4000, help="length of the prompt, about")
    parser.add_argument("--depths", type=float, nargs="+", default=[0.1, 0.5, 0.9])
    args = parser.parse_args()
    if not args.needle and not args.llama_perplexity:
        parser.error("--llama-perplexity or --needle is needed")
    return find_needle(args) if args.needle else compare_caches(args)


if __name__ == "__main__":
    sys.exit(main())
