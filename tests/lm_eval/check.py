#!/usr/bin/env python3
"""lm-evaluation-harness against a server: it runs, and its numbers are those of the model's logits.

    pip install -r tests/lm_eval/requirements.txt
    ninja -C build mantou logits_driver
    tests/lm_eval/check.py --mantou build/mantou --driver build/tests/logits_driver --model MODEL \\
        --tokenizer DIRECTORY

Runs the task of this directory, 40 questions with 4 answers each, through `local-completions`, once with the
prompts as texts and once as token ids. The log-probability of each answer, and whether it is what the model
itself would have said, must be what the driver's logits of the same tokens say. DIRECTORY holds the model's
tokenizer.json. Nothing is fetched.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="none",
                  TOKENIZERS_PARALLELISM="false")

import lm_eval
import numpy as np
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from running_server import RunningServer  # noqa: E402

TASK = "mantou_choices"
TOLERANCE = 1e-4  # the sum of an answer's log-probabilities, which are sent as decimal numbers


def evaluate(url, model, tokenizer, as_ids):
    """{(question, answer): (log-probability, is greedy)} and the task's metrics, as the harness has them."""
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=dict(model=model, base_url=f"{url}/v1/completions", tokenizer=tokenizer,
                        tokenizer_backend="huggingface", tokenized_requests=as_ids, num_concurrent=2,
                        max_length=2048, max_retries=1),
        tasks=[TASK], task_manager=TaskManager(include_path=str(HERE), include_defaults=False),
        batch_size=8, bootstrap_iters=0, log_samples=True)
    scores = {}
    for sample in results["samples"][TASK]:
        for arguments, response in zip(sample["arguments"], sample["filtered_resps"]):
            scores[tuple(arguments)] = response
    return scores, results["results"][TASK]


def offline(driver, model, tokenizer, pairs):
    """The same from the model's logits."""
    encode = AutoTokenizer.from_pretrained(tokenizer).encode
    begins = [len(encode(question, add_special_tokens=False)) for question, _ in pairs]
    contexts = [encode(question + answer, add_special_tokens=False) for question, answer in pairs]
    with tempfile.TemporaryDirectory() as folder:
        ids = pathlib.Path(folder, "ids")
        ids.write_text("".join(" ".join(map(str, context)) + "\n" for context in contexts))
        subprocess.run([driver, model, str(ids), f"{folder}/logits.npy"], check=True)
        logits = np.load(f"{folder}/logits.npy", mmap_mode="r")
        scores, row = {}, 0
        for pair, context, begin in zip(pairs, contexts, begins):
            # Row i says what follows token i.
            rows = np.asarray(logits[row + begin - 1:row + len(context) - 1], np.float64)
            row += len(context)
            highest = rows.max(-1, keepdims=True)
            chosen = rows[np.arange(len(rows)), context[begin:]]
            values = chosen - highest[:, 0] - np.log(np.exp(rows - highest).sum(-1))
            scores[pair] = (values.sum(), bool((chosen == highest[:, 0]).all()))
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantou", required=True)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokenizer", required=True)
    args = parser.parse_args()
    for name in vars(args):  # the task's data is found from here
        setattr(args, name, os.path.abspath(getattr(args, name)))
    os.chdir(HERE)
    wrong, expected = 0, None
    with tempfile.TemporaryDirectory() as folder, \
            RunningServer(args.mantou, args.model, f"{folder}/log") as server:
        for as_ids in (False, True):
            scores, metrics = evaluate(server.url, pathlib.Path(args.model).stem, args.tokenizer, as_ids)
            if expected is None:
                expected = offline(args.driver, args.model, args.tokenizer, list(scores))
            apart = max(abs(scores[pair][0] - expected[pair][0]) for pair in scores)
            greedy = sum(bool(scores[pair][1]) != expected[pair][1] for pair in scores)
            wrong += apart > TOLERANCE or greedy > 0 or len(scores) != 160
            print(f"prompts as {'token ids' if as_ids else 'texts'}: {len(scores)} answers, at most {apart:.2g} "
                  f"apart from the logits, {greedy} of another opinion on greedy; "
                  + json.dumps({key: value for key, value in metrics.items() if key.startswith("acc")}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
