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
nothing is stored; for each 100 million weights the default 20,000 tokens take about 20 minutes of two cores, most
of it llama.cpp's: without --llama-perplexity mantou is measured alone.

What the figures hold beside the cache: int8 activations turn any last bit that differs into a KL of their own, which
--caches f32 shows for mantou. A file of f32 weights is computed without them by both engines. llama.cpp rotates what
it quantizes (Hadamard) unless LLAMA_ATTN_ROT_DISABLE=1 is in the environment.

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
CACHES = {"f32": "f32", "8": "q8_0", "4": "q4_0"}  # mantou's and llama.cpp's names
PLAIN = "f16"
OUTPUT = object()  # stands in a command for the file that the program writes
CODE = "73914"
NEEDLE = f"Remember this: the code of the green door is {CODE}."
QUESTION = "What is the code of the green door? Answer with the code alone."
PROMPT = "Read this text, a question about it follows.\n\n{}\n\nThe text ends here. The question: " + QUESTION


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

    def __exit__(self, failure, *_):
        self.stream.close()
        if failure and self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait()
        if code > 0:
            self.log.seek(0)
            print(f"{self.program}: exit {code}\n{self.log.read().decode(errors='replace')[-2000:]}", file=sys.stderr)


class DriverLogits:
    """The rows of logits that logits_driver writes, treated as llama-perplexity does before it saves them."""

    def __init__(self, stream):
        try:
            np.lib.format.read_magic(stream)
            self.vocabulary = np.lib.format.read_array_header_1_0(stream)[0][1]
        except ValueError as error:
            sys.exit(f"logits_driver: {error}")
        self.stream = stream

    def log_probabilities(self, count):
        """Those of the next rows, up to a constant of each row; -inf for the ids that are cut off."""
        logits = read_array(self.stream, np.float32, (count, self.vocabulary)).astype(np.float64)
        best = logits.max(-1, keepdims=True)
        lowest = np.maximum(logits.min(-1, keepdims=True), best - 16)
        scale = (best - lowest) / 65535
        codes = np.rint((logits - lowest) / scale)
        return np.where(codes > 0, scale * codes, -np.inf)


def cache_list(text):
    names = text.split(",")
    if unknown := set(names) - set(CACHES):
        raise argparse.ArgumentTypeError(f"no cache is called {unknown.pop()}")
    return names


def cache_options(cache, group):
    return ["--kv", cache] if cache in (PLAIN, "f32") else ["--kv-bits", cache, "--kv-group", group]


def measure(args, model, scratch):
    """KL of [rows, engines (mantou, llama.cpp), caches]; without llama-perplexity mantou's alone."""
    bos, caches, text = bos_of(model), [PLAIN, *args.caches], scratch / "text"
    text.write_text(text_of(args))
    with contextlib.ExitStack() as runs:
        def start(*command):
            return runs.enter_context(Run(command)).stream

        theirs = args.llama_perplexity and [SavedLogits(start(
            args.llama_perplexity, "-m", model, "-f", text, "-c", args.context, "-b", args.context,
            "--chunks", args.contexts, "-t", args.threads, "-fa", "on", "-ctk", cache, "-ctv", cache,
            *args.llama_args.split(), "--save-all-logits", OUTPUT), bos)
            for cache in (CACHES.get(cache, cache) for cache in caches)]
        tokens = theirs[0].tokens if theirs else contexts_of(args, model, bos, text.read_text())
        (scratch / "ids").write_text("\n".join(" ".join(map(str, row[:-1])) for row in tokens) + "\n")
        first = args.context // 2
        ours = [DriverLogits(start(
            args.driver, model, scratch / "ids", OUTPUT, "--from", first, "--threads", args.threads, "--chunks", 256,
            *cache_options(cache, args.group), *args.driver_args.split())) for cache in caches]
        engines, result = [ours, theirs] if theirs else [ours], []
        for context in range(len(tokens)):
            for at in range(first, args.context - 1, ROWS):
                count = min(ROWS, args.context - 1 - at)
                result.append(np.stack([compare(engine, count) for engine in engines], 1))
            print(f"{context + 1} of {len(tokens)} contexts: mantou, llama.cpp {args.caches} "
                  f"{np.concatenate(result).mean(0).tolist()}", file=sys.stderr)
    return np.concatenate(result)


def compare(runs, count):
    """KL(first run || other) of the next rows: [rows, other runs]."""
    plain, *others = [run.log_probabilities(count) for run in runs]
    return np.stack([divergence(plain, other, np.isfinite(plain) & np.isfinite(other)) for other in others], 1)


def compare_caches(args):
    print("| model | cache | tokens | mantou | llama.cpp | ratio |\n|---|---|" + "---:|" * 4)
    ratios = []
    for model in args.models:
        with tempfile.TemporaryDirectory() as scratch:
            divergences = measure(args, model, pathlib.Path(scratch))
        for at, cache in enumerate(args.caches):
            means = divergences[:, :, at].mean(0)
            ratio = means[0] / means[1] if len(means) == 2 and means[1] else np.nan
            if cache == "8" and args.llama_perplexity:
                ratios.append(ratio)
            cells = [f"{mean:.6f}" for mean in means] + ["–"] * (2 - len(means))
            cells.append("–" if np.isnan(ratio) else f"{ratio:.3f}")
            print(f"| {model.name} | {cache}, {CACHES[cache]} | {len(divergences)} | {' | '.join(cells)} |", flush=True)
    return 0 if all(ratio <= args.limit for ratio in ratios) else 1


def text_of(args):
    return args.text.read_text() if args.text else "\n\n".join(pydoc_data.topics.topics.values())


def tokenize(args, model, text):
    """The ids of a text, without BOS."""
    done = subprocess.run([args.mantou, "tokenize", "--json", "--no-bos", "-m", model], input=text, text=True,
                          check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["ids"]


def contexts_of(args, model, bos, text):
    """The contexts that llama-perplexity makes of a text."""
    ids = tokenize(args, model, text)
    ids = ([] if bos is None else [bos]) + ids
    contexts = np.array(ids[:len(ids) // args.context * args.context]).reshape(-1, args.context)[:args.contexts]
    if bos is not None:
        contexts[:, 0] = bos
    return contexts


def haystack(args, model, depth):
    """About --needle-tokens of text whose paragraphs have the needle among them at this depth, and the question."""
    text = text_of(args)[:8 * args.needle_tokens]
    text = text[:len(text) * args.needle_tokens // len(tokenize(args, model, text))]
    paragraphs = text.split("\n\n")
    paragraphs.insert(round(depth * len(paragraphs)), NEEDLE)
    return PROMPT.format("\n\n".join(paragraphs))


def generate(args, model, prompt, cache):
    """The greedy answer with this cache."""
    options = ["--kv-quant", "off" if cache == PLAIN else cache, "--kv-group-size", args.group]
    command = [args.mantou, "generate", "-m", model, "--temp", 0, "-n", 32, "-t", args.threads, *options]
    done = subprocess.run([str(part) for part in command], input=prompt, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{args.mantou}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def find_needle(args):
    print("| model | depth | f16 | 8 bits | 4 bits |\n|---|---:|---|---|---|")
    lost = False
    for model in args.models:
        for depth in args.depths:
            prompt = haystack(args, model, depth)
            answers = [generate(args, model, prompt, cache) for cache in (PLAIN, "8", "4")]
            print(f"{model.name} depth {depth}: {answers}", file=sys.stderr)
            found = [CODE in answer for answer in answers]
            lost |= found[0] and not found[1]
            cells = " | ".join("found" if hit else "not found" for hit in found)
            print(f"| {model.name} | {depth:.0%} | {cells} |", flush=True)
    return 1 if lost else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path, help=".gguf files")
    parser.add_argument("--driver", default="build/release/tests/logits_driver")
    parser.add_argument("--llama-perplexity", help="without it mantou is measured alone, on the same tokens")
    parser.add_argument("--llama-args", default="",
                        help="further flags of llama-perplexity, such as --llama-args=--no-repack")
    parser.add_argument("--driver-args", default="",
                        help='further options of logits_driver, such as --driver-args="--compute f32"')
    parser.add_argument("--caches", type=cache_list, default=["8", "4"],
                        help=f"some of {','.join(CACHES)}; default 8,4")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--contexts", type=int, default=20)
    parser.add_argument("--group", type=int, default=64, help="dimensions that share a scale in mantou's caches")
    parser.add_argument("--threads", type=int, default=1, help="of each program")
    parser.add_argument("--limit", type=float, default=1.1, help="largest ratio of 8 bits")
    parser.add_argument("--needle", action="store_true", help="the second form")
    parser.add_argument("--mantou", default="build/release/mantou")
    parser.add_argument("--needle-tokens", type=int, default=4000, help="length of the prompt, about")
    parser.add_argument("--depths", type=lambda text: [float(depth) for depth in text.split(",")],
                        default=[0.1, 0.5, 0.9], help="default 0.1,0.5,0.9")
    args = parser.parse_args()
    return find_needle(args) if args.needle else compare_caches(args)


if __name__ == "__main__":
    sys.exit(main())
