"""What mlx-optiq computes with a KV cache quantized layer by layer, for tests/exact.

mlx-optiq works by replacing functions of mlx-lm, so it has a process of its own: `Optiq` is the handle to it.
The cache is that of `optiq eval --kv-config` and `optiq serve --kv-config … --no-fused-kv` (the fused attention
of the latter differs in f16 and bf16 alone) for one conversation.
"""
import concurrent.futures
import json
import multiprocessing
import pathlib
import sys


def compute(directory, prompt, count, schedules, start):
    """`count` greedy tokens, and the logits of prompt and tokens for each schedule of steps, as f32 arrays."""
    import mlx.core as mx
    import numpy as np
    from mlx_lm import utils
    from mlx_lm.generate import generate_step
    from mlx_lm.models.cache import make_prompt_cache
    from optiq import serve
    model, _ = utils.load_model(pathlib.Path(directory))
    config = serve._load_kv_config(f"{directory}/kv_config.json")
    serve.install_mixed_kv(config, start)
    generate = sys.modules["mlx_lm.generate"]
    # The bits are not looked at: any make mlx-lm call what install_mixed_kv put in place.
    tokens = [int(t) for t, _ in generate_step(mx.array(prompt), model, max_tokens=count, kv_bits=8,
                                               quantized_kv_start=start)]
    ids, logits = [*prompt, *tokens], []
    for steps in schedules:
        cache, rows, at = make_prompt_cache(model), [], 0
        for n in [*steps] + [1] * (len(ids) - sum(steps)):
            out = model(mx.array([ids[at:at + n]]), cache=cache)[0].astype(mx.float32)
            mx.eval(out)
            rows.append(np.array(out))
            at += n
            generate.maybe_quantize_kv_cache(cache, start, 64, 8)
        logits.append(np.concatenate(rows))
    quantized = [i for i, c in enumerate(cache) if "Quantized" in type(c).__name__]
    if quantized != sorted(c.layer_idx for c in config):
        raise RuntimeError(f"{directory}: mlx-optiq quantized layers {quantized}, not those of the configuration")
    return tokens, logits


def prepare():
    import gc
    import mlx.core as mx
    import optiq.serve  # noqa: F401
    mx.set_default_device(mx.cpu)
    mx.disable_compile()
    gc.collect()
    gc.freeze()  # mlx-optiq collects garbage for each layer that it quantizes


class Optiq:
    def __init__(self):
        self.process = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), prepare)

    def __call__(self, *arguments):
        return self.process.submit(compute, *arguments).result()


def write_config(directory, head_dims):
    """A kv_config.json for caches with these heads: bits and groups in turns, one layer in five plain."""
    entries = []
    for layer, head_dim in enumerate(head_dims):
        bits, group = ((8, 32), (4, 64), (4, 32), (8, 64), (0, 0))[layer % 5]
        if bits:
            entries.append(dict(layer_idx=layer, bits=bits, group_size=group if head_dim % group == 0 else 32))
    (pathlib.Path(directory) / "kv_config.json").write_text(json.dumps(entries))
