#!/usr/bin/env python3
"""Compares mantou's logits with mlx-lm's on tiny random models of every family, and prints a table.

    pip install -r tools/requirements.txt
    python tools/make_tiny.py --out tiny --variants f32,bf16,f16,q4,q8,mixed --gguf all
    python tools/check_tiny.py tiny --driver build/release/tests/logits_driver

For each model of the folder: the largest error of `--compute f32` against the reference, as a share of the
logits' spread (standard deviation); the greedy tokens that agree, teacher-forced; and the mean KL divergence of
the int8 path. Fails when an error exceeds --tolerance or a token differs (of which the gap to the best is shown).
A second table says which families give the same bits through both formats, F32.gguf and f32/.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def load_reference(path):
    import mlx.core as mx
    return {k: np.array(v) for k, v in mx.load(str(path)).items()}


def logits(driver, model, ids, compute, chunk):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "ids").write_text(" ".join(map(str, ids)) + "\n")
        command = [driver, str(model), str(scratch / "ids"), str(scratch / "out.npy"),
                   "--compute", compute, "--chunks", str(chunk), "--kv", "f32"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"check_tiny: {model}: {run.stderr.strip()}")
        return np.load(scratch / "out.npy")


def same_in_both_formats(driver, family, ids):
    """Whether F32.gguf and f32/ give bit-equal logits on both compute paths."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        for file in (family / "f32").iterdir():
            (directory / file.name).symlink_to(file.resolve())
        config = json.loads((family / "f32/config.json").read_text())
        if "hidden_act" not in config and config["model_type"] in ("gemma", "starcoder2"):
            config["hidden_act"] = "gelu_pytorch_tanh"  # what GGUF files of these families mean
        (directory / "config.json").unlink()
        (directory / "config.json").write_text(json.dumps(config))
        return all(np.array_equal(logits(driver, directory, ids, compute, 64).view(np.uint32),
                                  logits(driver, family / "gguf/F32.gguf", ids, compute, 64).view(np.uint32))
                   for compute in ("f32", "auto"))


def compare_formats(driver, folder):
    """Prints the table and returns (families, those that differ)."""
    families = sorted(p.parent.parent for p in folder.glob("*/gguf/F32.gguf") if (p.parent.parent / "f32").is_dir())
    if families:
        print("\n| family | GGUF and directory |\n|---|---|")
    differ = 0
    for family in families:
        reference = load_reference(family / "f32/ref.safetensors")
        equal = same_in_both_formats(driver, family, np.concatenate([reference["prompt"], reference["tokens"]]))
        differ += not equal
        print(f"| {family.name} | {'bit-equal' if equal else 'FAILED: they differ'} |", flush=True)
    return len(families), differ


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def check(driver, model, reference):
    """(largest error over spread, agreeing tokens, tokens, largest gap of a token that differs, KL of int8)"""
    prompt, tokens = reference["prompt"], reference["tokens"]
    ids = np.concatenate([prompt, tokens])
    spread = reference["prefill"].std()
    first = len(prompt) - 1
    kept = len(reference["decode"])
    error = 0.0
    for chunk in (64, 5):
        ours = logits(driver, model, ids, "f32", chunk)
        error = max(error, np.abs(ours[:len(prompt)] - reference["prefill"]).max() / spread,
                    np.abs(ours[first:first + kept] - reference["decode"]).max() / spread)
    chosen = ours[first:first + len(tokens)].argmax(-1)
    wrong = np.flatnonzero(chosen != tokens)
    gap = max((float(reference["margin"][i]) for i in wrong), default=0.0)
    p = log_softmax(reference["prefill"].astype(np.float64))
    q = log_softmax(logits(driver, model, ids, "auto", 64)[:len(prompt)].astype(np.float64))
    kl = float((np.exp(p) * (p - q)).sum(-1).mean())
    return error, len(tokens) - len(wrong), len(tokens), gap, kl


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="what make_tiny.py wrote")
    parser.add_argument("--driver", default="build/release/tests/logits_driver")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest error over spread")
    args = parser.parse_args()
    models = [(p.parent, p) for p in sorted(args.folder.glob("*/*/ref.safetensors"))]
    models += [(p.with_name(p.name.removesuffix(".ref.safetensors") + ".gguf"), p)
               for p in sorted(args.folder.glob("*/gguf/*.ref.safetensors"))]
    if not models:
        sys.exit(f"check_tiny: {args.folder}: no references (run make_tiny.py)")
    print("| model | max error / spread | greedy tokens | KL of int8 |\n|---|---:|---:|---:|")
    failed = 0
    for model, path in models:
        error, same, tokens, gap, kl = check(args.driver, model, load_reference(path))
        ok = error <= args.tolerance and same == tokens
        failed += not ok
        name = model.relative_to(args.folder)
        print(f"| {name} | {error:.1e} | {same}/{tokens} | {kl:.1e} |{'' if ok else f' FAILED (gap {gap:.2g})'}", flush=True)
    families, differ = compare_formats(args.driver, args.folder)
    failed += differ
    print(f"\n{len(models) + families - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
