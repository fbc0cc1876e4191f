#!/usr/bin/env python3
"""Writes src/sampling/goldens_test_data.h: what mlx-lm's processors and filters and MLX's random
keys give, for the tests of src/sampling. The file is committed; run this again only to change cases.

    pip install -r tools/requirements.txt
    python tools/make_sampling_goldens.py
"""
import argparse
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import sample_utils

VOCAB = 96
HEADER = """// Made by tools/make_sampling_goldens.py with mlx {mlx} and mlx-lm {mlx_lm}; do not edit.
// clang-format off
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/request.h"

namespace mantou {{

"""


def numbers(values):
    """C++ literals, short: the logits are multiples of 1/64 and exact in f32."""
    out = []
    for v in values:
        v = float(v)
        out.append("-kInf" if v == -np.inf else f"{v:.9g}f" if v != int(v) else f"{int(v)}")
    return "{" + ", ".join(out) + "}"


def integers(values):
    return "{" + ", ".join(str(int(v)) for v in values) + "}"


def make_logits(kind):
    rng = np.random.Generator(np.random.Philox(key=kind + 1))
    if kind == 0:  # spread
        return np.round(rng.normal(0, 3, VOCAB) * 64) / 64
    if kind == 1:  # many ties
        return np.round(rng.normal(0, 2, VOCAB))
    peaked = np.round(rng.normal(0, 1, VOCAB) * 64) / 64
    peaked[[7, 40]] += 9
    return peaked


def processor_cases(logits):
    history = [5, 9, 9, 3, 70, 5, 5, 12, 3, 9, 80, 81, 82, 5, 90, 11, 11, 11, 2, 44, 9, 95, 40, 7]
    cases = [
        dict(logit_bias={3: 2.5, 40: -7.25, 95: 0.5}),
        dict(repetition_penalty=1.5),
        dict(repetition_penalty=0.5, repetition_context_size=4),
        dict(repetition_penalty=2.0, repetition_context_size=0),
        dict(presence_penalty=0.75),
        dict(presence_penalty=-1.5, presence_context_size=3),
        dict(frequency_penalty=0.5),
        dict(frequency_penalty=0.25, frequency_context_size=0),
        dict(logit_bias={9: 1.0, 5: -2.0}, repetition_penalty=1.25, presence_penalty=0.5,
             frequency_penalty=0.125, frequency_context_size=10),
    ]
    for case in cases:
        out = mx.array(logits, dtype=mx.float32)[None]
        for process in sample_utils.make_logits_processors(**case):
            out = process(mx.array(history), out)
        yield case, history, np.array(out[0])


def processor_line(case, history, out):
    bias = case.get("logit_bias", {})
    fields = ["{" + ", ".join(f"{{{i}, {b}f}}" for i, b in bias.items()) + "}"]
    for name, window in [("repetition", 20), ("presence", 20), ("frequency", 20)]:
        fields += [str(case.get(f"{name}_penalty", 0)),
                   str(case.get(f"{name}_context_size", window))]
    return "{" + ", ".join(fields + [integers(history), numbers(out)]) + "},"


def filter_cases():
    for p in (0.1, 0.5, 0.9, 0.999):
        yield "top_p", p, 1, lambda x, p=p: sample_utils.apply_top_p(x, p)
    for p, keep in ((0.05, 1), (0.5, 1), (1.0, 1), (0.5, 10), (1.0, 50)):
        yield "min_p", p, keep, lambda x, p=p, n=keep: sample_utils.apply_min_p(x, p, n)
    for t in (0.0, 0.02, 0.1, 0.3, 0.5):  # probability 1: always applied
        yield "xtc", t, 1, lambda x, t=t: sample_utils.apply_xtc(x, 1.0, t, [40])
    for k in (1, 2, 7, 50, 95):
        yield "top_k", k, 1, lambda x, k=k: sample_utils.apply_top_k(x, k)


def key_line(seed, step):
    key = mx.random.key((seed ^ ((step + 1) * 0x9E3779B97F4A7C15)) & (2**64 - 1))
    first, second = mx.random.split(key)
    drawn = mx.random.split(key, 1)[0]  # splitting in one draws two words
    words = [np.array(a).tolist() for a in (key, first, second, drawn)]
    pairs = ", ".join(f"{{{first}u, {second}u}}" for first, second in words)
    return f"{{{seed}u, {step}, {pairs}}},"


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=root / "src/sampling/goldens_test_data.h")
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    mx.disable_compile()

    import mlx_lm
    lines = [HEADER.format(mlx=mx.__version__, mlx_lm=mlx_lm.__version__).rstrip("\n"), ""]
    lines += ["inline constexpr float kInf = __builtin_inff();", ""]
    logits = [make_logits(kind) for kind in range(3)]
    lines += ["// Rows of logits; the golden cases name them by index.",
              "inline const std::vector<std::vector<float>> kGoldenLogits = {"]
    lines += [f"    {numbers(row)}," for row in logits]
    lines += ["};", "", "struct GoldenProcessor {", "  int row;",
              "  std::map<TokenId, float> bias;",
              "  double repetition; int repetition_context;",
              "  double presence; int presence_context;",
              "  double frequency; int frequency_context;",
              "  std::vector<TokenId> history;", "  std::vector<float> logits;", "};",
              "inline const std::vector<GoldenProcessor> kGoldenProcessors = {"]
    for kind in (0, 2):
        for case in processor_cases(logits[kind]):
            lines.append(f"    {{{kind}, " + processor_line(*case)[1:])
    lines += ["};", "", "// `kept`: ids that survive the filter; only cases that no tie decides.",
              "struct GoldenFilter {", "  const char* filter; double value; int keep; int row;",
              "  std::vector<TokenId> kept;", "};",
              "inline const std::vector<GoldenFilter> kGoldenFilters = {"]
    for name, value, keep, apply in filter_cases():
        for kind in range(3):
            ranked, count = np.sort(logits[kind])[::-1], value if name == "top_k" else keep
            if count > 1 and ranked[count - 1] == ranked[count]:
                continue  # argpartition breaks ties in no stated order
            row = mx.array(logits[kind], dtype=mx.float32)[None]
            out = np.array(apply(row - mx.logsumexp(row, axis=-1, keepdims=True))[0])
            kept = np.flatnonzero(out > -np.inf)
            lines.append(f'    {{"{name}", {value}, {keep}, {kind}, {integers(kept)}}},')
    lines += ["};", "", "// The key of a seed's step, its two halves, and two words drawn with it.",
              "struct GoldenKey {", "  uint64_t seed; int64_t step;",
              "  uint32_t key[2], first[2], second[2], words[2];", "};",
              "inline const std::vector<GoldenKey> kGoldenKeys = {"]
    for seed in (0, 1, 42, 2**32 - 1, 2**63 + 12345, 2**64 - 1):
        lines += ["    " + key_line(seed, step) for step in (0, 1, 1000, 2**40)]
    lines += ["};", "", "}  // namespace mantou", ""]
    text = "\n".join(lines)
    args.out.write_text(text)
    print(f"wrote {args.out} ({len(text)} bytes)")


if __name__ == "__main__":
    main()
