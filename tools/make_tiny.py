#!/usr/bin/env python3
"""Makes tiny models with random weights, and what mlx-lm computes for them: references for tests.

    pip install -r tools/requirements.txt
    python tools/make_tiny.py --out tiny                              # all families, f32 and q4
    python tools/make_tiny.py --out tiny --families llama,qwen3 --variants f32,bf16,q8,mixed --gguf all

OUT/FAMILY/VARIANT/        a model directory as mlx-lm writes it: config.json, model.safetensors, tokenizer
    ref.safetensors        its reference, see below
OUT/FAMILY/gguf/TYPE.gguf  the f32 weights as a GGUF file, matrices in TYPE
    TYPE.ref.safetensors   reference for the values that file decodes to
OUT/report.json            one entry a model: seed, smallest margin, sizes

Variants: f32, bf16, f16; qBITS or qBITSgGROUP (MLX affine, group 64 unless said); mxfp4, nvfp4, mxfp8; mixed
(8 bits in groups of 32 and 4 bits in groups of 64 in turns, as overrides in config.json); published (gpt_oss
alone: its experts in mxfp4 under the names OpenAI gave them). GGUF types with blocks of 256 are written for a
hidden size of 256.

A reference holds prompt i32[24], prefill f32[24, V] (logits of one pass), chunked f32[24, V] (the same in
steps of 10, 13 and 1 tokens through the cache), tokens i32[32] (greedy continuation), decode f32[8, V] (logits
each of the first 8 of them was chosen from), margin f32[32] (best minus second best logit).

References are computed in f32 from the values that the file holds.

Weights are keyed by family, parameter name and --salt alone, so all variants and GGUF types of one salt hold
the same f32 weights. Without --salt, one is searched that leaves no greedy step a near tie.
"""
import argparse
import contextlib
import copy
import io
import json
import zlib
from pathlib import Path
from unittest import mock

import mlx.core as mx
import mlx.nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm import utils
from mlx_lm.models.cache import make_prompt_cache

import tiny_gguf

FLOAT_MODES = ("mxfp4", "nvfp4", "mxfp8")
VOCAB, PROMPT, GREEDY, KEPT = 512, 24, 32, 8
CHUNKS = (10, 13, 1)

COMMON = dict(vocab_size=VOCAB, hidden_size=128, num_hidden_layers=2, intermediate_size=256,
              num_attention_heads=4, num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-6,
              rope_theta=10000.0, max_position_embeddings=2048, tie_word_embeddings=False,
              hidden_act="silu", bos_token_id=0, eos_token_id=1, pad_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=1024)
ABSENT = object()
NARROW = dict(head_dim=ABSENT)  # hidden_size / heads
MOE = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=128)
GEMMA4 = dict(tie_word_embeddings=True, hidden_act=ABSENT, hidden_activation="gelu_pytorch_tanh", rope_theta=ABSENT,
              final_logit_softcapping=30.0, rope_parameters=dict(
                  full_attention=dict(rope_type="proportional", rope_theta=1000000.0, partial_rotary_factor=0.25),
                  sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
# family -> what differs from COMMON
FAMILIES = {
    "llama": dict(model_type="llama", rope_scaling=LLAMA3, rope_theta=500000.0),
    "llama_tied": dict(model_type="llama", tie_word_embeddings=True, num_key_value_heads=4,
                       head_dim=ABSENT),
    "llama_bias": dict(model_type="llama", attention_bias=True, mlp_bias=True),
    "mistral": dict(model_type="mistral", rms_norm_eps=1e-5),
    # MiniCPM5's proportions: wide heads (heads * head_dim > hidden), 8 queries a key head, untied
    "minicpm5": dict(model_type="llama", hidden_size=192, num_hidden_layers=3,
                     num_attention_heads=8, num_key_value_heads=1, head_dim=32),
    "qwen2": dict(model_type="qwen2", tie_word_embeddings=True, head_dim=ABSENT,
                  rope_theta=1000000.0),
    "qwen3": dict(model_type="qwen3", rope_theta=1000000.0),
    # six layers, the last one global; the prompt is longer than the window
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=6, sliding_window=16,
                   sliding_window_pattern=6, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                   query_pre_attn_scalar=64, tie_word_embeddings=True,
                   hidden_activation="gelu_pytorch_tanh", hidden_act=ABSENT),
    "gemma": dict(model_type="gemma", hidden_act=ABSENT, tie_word_embeddings=True),
    "gemma2": dict(model_type="gemma2", hidden_act=ABSENT, tie_word_embeddings=True,
                   attn_logit_softcapping=50.0, final_logit_softcapping=30.0, query_pre_attn_scalar=64),
    # two layers share the keys and values of the last of their kind; an input of its own a layer
    "gemma4": dict(model_type="gemma4_text", num_hidden_layers=6, num_kv_shared_layers=2, sliding_window=16,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, head_dim=32,
                   global_head_dim=64, num_key_value_heads=1, hidden_size_per_layer_input=64,
                   vocab_size_per_layer_input=VOCAB, **GEMMA4),
    # the values of full layers are their keys
    "gemma4_keys": dict(model_type="gemma4_text", num_hidden_layers=3, num_kv_shared_layers=0, sliding_window=16,
                        layer_types=["sliding_attention", "full_attention", "full_attention"], head_dim=32,
                        global_head_dim=64, num_global_key_value_heads=1, attention_k_eq_v=True,
                        hidden_size_per_layer_input=0, **GEMMA4),
    "gemma4_moe": dict(model_type="gemma4_text", num_kv_shared_layers=0, sliding_window=16,
                       layer_types=["sliding_attention", "full_attention"], head_dim=32, global_head_dim=64,
                       hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=8, top_k_experts=3,
                       moe_intermediate_size=128, **GEMMA4),
    "phi3": dict(model_type="phi3", **NARROW, partial_rotary_factor=0.75,
                 original_max_position_embeddings=512,
                 rope_scaling=dict(type="longrope", short_factor=[1.0] * 12,
                                   long_factor=[1.0 + 0.25 * i for i in range(12)])),
    "olmo2": dict(model_type="olmo2"),
    # the prompt is longer than the window; only the full layer's rope is scaled
    "olmo3": dict(model_type="olmo3", num_hidden_layers=4, sliding_window=16, attention_bias=False,
                  rope_theta=500000.0, rope_scaling=dict(
                      rope_type="yarn", factor=8.0, original_max_position_embeddings=256,
                      beta_fast=32, beta_slow=1)),
    "exaone4": dict(model_type="exaone4", num_hidden_layers=4, sliding_window=16,
                    sliding_window_pattern="LLLG", rope_scaling=LLAMA3),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4),
    "granite": dict(model_type="granite", **NARROW, logits_scaling=2.0, attention_multiplier=0.1,
                    embedding_multiplier=2.0, residual_multiplier=0.5, attention_bias=False,
                    mlp_bias=False),
    "starcoder2": dict(model_type="starcoder2", **NARROW, hidden_act=ABSENT, norm_epsilon=1e-5),
    "glm4": dict(model_type="glm4", partial_rotary_factor=0.5, attention_bias=True),
    "cohere2": dict(model_type="cohere2", head_dim=32, num_hidden_layers=4, sliding_window=16,
                    sliding_window_pattern=4, layer_norm_eps=1e-5, logit_scale=0.25,
                    tie_word_embeddings=True),
    "stablelm": dict(model_type="stablelm", **NARROW, partial_rotary_factor=0.25, use_qkv_bias=True,
                     layer_norm_eps=1e-5, qk_layernorm=True),
    "stablelm_parallel": dict(model_type="stablelm", **NARROW, partial_rotary_factor=0.25,
                              use_qkv_bias=False, layer_norm_eps=1e-5, use_parallel_residual=True),
    "minicpm": dict(model_type="minicpm", **NARROW, dim_model_base=64, scale_depth=1.4, scale_emb=12.0),
    "seed_oss": dict(model_type="seed_oss", attention_bias=True, attention_out_bias=False),
    "ernie4_5": dict(model_type="ernie4_5", use_bias=False),
    "hunyuan": dict(model_type="hunyuan_v1_dense"),
    "internlm2": dict(model_type="internlm2", **NARROW, bias=False),
    "internlm3": dict(model_type="internlm3", **NARROW, bias=False, qkv_bias=True),
    "llama_yarn": dict(model_type="llama", rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=512)),
    "qwen2_moe": dict(model_type="qwen2_moe", **NARROW, **MOE, shared_expert_intermediate_size=192),
    "qwen3_moe": dict(model_type="qwen3_moe", **MOE, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[]),
    "mixtral": dict(model_type="mixtral", **NARROW, num_local_experts=4, num_experts_per_tok=2),
    "olmoe": dict(model_type="olmoe", num_experts=8, num_experts_per_tok=3),
    "gpt_oss": dict(model_type="gpt_oss", num_local_experts=8, num_experts_per_tok=2, sliding_window=16,
                    layer_types=["sliding_attention", "full_attention"]),
}


def build_config(family):
    merged = COMMON | FAMILIES[family]
    config = {k: copy.deepcopy(v) for k, v in merged.items() if v is not ABSENT}
    title = "".join(word.capitalize() for word in config["model_type"].removesuffix("_text").split("_"))
    config["architectures"] = [title + "ForCausalLM"]
    return config


def build_model(family, config, salt):
    """The family's mlx-lm model with the f32 weights of this salt."""
    model_class, args_class = utils._get_classes(config)
    model = model_class(args_class.from_dict(config))
    if family == "gemma3":
        model.sanitize({})  # how mlx-lm learns that a gemma3 is tied: its weights have no lm_head
    model.eval()
    weights = []
    for path, default in tree_flatten(model.parameters()):
        seed = zlib.crc32(f"{family}/{path}/{salt}".encode())
        noise = np.random.Generator(np.random.Philox(key=seed)).standard_normal(default.shape)
        if noise.ndim == 1:  # norms near one, biases near zero
            value = 0.1 * noise + (0 if path.endswith("bias") else 1)
        elif "embed" in path:  # small, or a tied model only repeats its input
            value = noise * (0.03 if family.startswith("gemma") else 0.1)
        else:
            value = noise * (1.3 / np.sqrt(noise.shape[-1]))
        weights.append((path, mx.array(value.astype(np.float32))))
    model.update(tree_unflatten(weights))
    mx.eval(model.parameters())
    return model


def apply_variant(model, config, variant):
    """Returns the model in that precision, and its config."""
    dtypes = {"f32": None, "bf16": mx.bfloat16, "f16": mx.float16}
    if variant in dtypes:
        if dtypes[variant]:
            model.set_dtype(dtypes[variant])
        names = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
        return model, config | {"torch_dtype": names[variant]}
    if variant == "mixed":
        turn = iter(range(1 << 30))
        wide = {"group_size": 32, "bits": 8, "mode": "affine"}
        return utils.quantize_model(model, config, 64, 4,
                                    quant_predicate=lambda path, module: next(turn) % 2 == 0 or wide)
    if variant in FLOAT_MODES:
        return utils.quantize_model(model, config, None, None, mode=variant)
    if variant == "published":
        return utils.quantize_model(model, config, None, None, mode="mxfp4",
                                    quant_predicate=lambda path, module: ".experts." in path)
    if variant.startswith("q"):
        bits, _, group = variant[1:].partition("g")
        return utils.quantize_model(model, config, int(group or 64), int(bits))
    raise SystemExit(f"unknown variant {variant}; see --help")


def prompt_ids():
    return np.random.Generator(np.random.Philox(key=24)).integers(4, VOCAB, PROMPT).astype(np.int32)


def make_reference(model):
    ids = prompt_ids()
    prompt = mx.array(ids)[None]

    def forward(tokens, cache=None):
        logits = model(tokens, cache=cache)[0].astype(mx.float32)
        mx.eval(logits)
        return logits

    cache, chunked, position = make_prompt_cache(model), [], 0
    for n in CHUNKS:
        chunked.append(forward(prompt[:, position:position + n], cache))
        position += n
    last, tokens, decode, margin = chunked[-1][-1], [], [], []
    for _ in range(GREEDY):
        ranked = np.sort(np.array(last))
        margin.append(ranked[-1] - ranked[-2])
        tokens.append(int(mx.argmax(last)))
        decode.append(last)
        last = forward(mx.array([[tokens[-1]]]), cache)[-1]
    return dict(prompt=mx.array(ids), prefill=forward(prompt), chunked=mx.concatenate(chunked),
                tokens=mx.array(np.array(tokens, np.int32)), decode=mx.stack(decode[:KEPT]),
                margin=mx.array(np.array(margin, np.float32)))


def is_clear(reference):
    """No greedy step is a near tie, and the continuation is no loop of a few tokens."""
    spread = float(mx.std(reference["prefill"]))
    return (float(mx.min(reference["margin"])) >= 0.01 * spread
            and len(set(reference["tokens"].tolist())) > 4)


def save_reference(path, reference, **metadata):
    mx.save_safetensors(str(path), reference, {k: str(v) for k, v in metadata.items()})
    return dict(metadata, min_margin=float(mx.min(reference["margin"])),
                chunked_differs_by=float(mx.max(mx.abs(reference["prefill"] - reference["chunked"]))),
                distinct_tokens=len(set(reference["tokens"].tolist())))


def save_directory(out, family, variant, salt, tokenizer):
    """Writes OUT/FAMILY/VARIANT and returns its path."""
    model, config = apply_variant(build_model(family, build_config(family), salt),
                                  build_config(family), variant)
    mx.eval(model.parameters())
    directory = out / family / variant
    directory.mkdir(parents=True, exist_ok=True)
    utils.save_model(directory, model)
    utils.save_config(config, directory / "config.json")
    for name, text in tokenizer.items():
        (directory / name).write_text(text)
    if variant == "published":
        write_as_published(directory, config)
    return directory


def make_directory(out, family, variant, salt, tokenizer):
    directory = save_directory(out, family, variant, salt, tokenizer)
    reloaded, _ = utils.load_model(directory)
    if variant in (*FLOAT_MODES, "published"):  # mlx computes these in bf16, which holds their values exactly
        reloaded = utils.dequantize_model(reloaded)
        reloaded.set_dtype(mx.float32)
    if variant in ("bf16", "f16"):  # the weights' values, but arithmetic that can judge ours
        reloaded.set_dtype(mx.float32)
    return directory / "ref.safetensors", make_reference(reloaded)


def write_as_published(directory, config):
    """Renames the experts of a gpt-oss directory to the tensors that OpenAI published: gate and up with their rows
    in turns, 32 codes in blocks of 16 bytes."""
    weights, out = mx.load(str(directory / "model.safetensors")), {}
    for name, value in weights.items():
        stem, found, part = name.rpartition("_proj.")
        if not found or ".experts." not in name:
            out[name] = value
            continue
        if stem.endswith("up"):
            continue
        if stem.endswith("gate"):
            up = weights[f"{stem.removesuffix('gate')}up_proj.{part}"]
            value, stem = mx.stack([value, up], axis=2).reshape(value.shape[0], -1, *value.shape[2:]), stem + "_up"
        if part == "weight":
            value, part = value.view(mx.uint8).reshape(*value.shape[:2], -1, 16), "blocks"
        out[f"{stem}_proj_{part}"] = value
    mx.save_safetensors(str(directory / "model.safetensors"), out)
    (directory / "model.safetensors.index.json").unlink()
    config = {k: v for k, v in config.items() if k != "quantization"}
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    utils.save_config(config, directory / "config.json")


def make_gguf(out, family, quant, salt, tokenizer):
    config = build_config(family)
    if tiny_gguf.block_size(quant) > 32:
        config["hidden_size"] = 256
    model = build_model(family, config, salt)
    weights = {k: np.array(v) for k, v in tree_flatten(model.parameters())}
    path = out / family / "gguf" / f"{quant}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    decoded = tiny_gguf.write(path, config, weights, quant, json.loads(tokenizer["tokenizer.json"]),
                              json.loads(tokenizer["tokenizer_config.json"]))
    model.update(tree_unflatten([(k, mx.array(v)) for k, v in decoded.items()]))
    with mock.patch.object(mlx.nn, "gelu", mlx.nn.gelu_approx):  # what gelu means in GGUF files
        return path.with_suffix(".ref.safetensors"), make_reference(model)


def make_one(make, out, family, kind, salt, tokenizer):
    for candidate in [salt] if salt is not None else range(12):
        with contextlib.redirect_stdout(io.StringIO()):  # mlx-lm reports bits per weight
            path, reference = make(out, family, kind, candidate, tokenizer)
        if is_clear(reference):
            break
    entry = save_reference(path, reference, family=family, kind=kind, salt=candidate,
                           mlx=mx.__version__)
    print(f"{path}: {entry}", flush=True)
    return {str(path.relative_to(out)): entry}


def make_tokenizer():
    """A byte-level BPE of VOCAB tokens with a ChatML template, as the text of its two files."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>"]
    words = __doc__.split() + sum((list(f) for f in FAMILIES.values()), [])
    corpus = [" ".join(words[i:] + words[:i]) for i in range(len(words))]
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus, trainer)
    if tokenizer.get_vocab_size() != VOCAB:
        raise SystemExit(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, not {VOCAB}")
    template = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
                "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<bos>", eos_token="<eos>",
                  pad_token="<pad>", add_bos_token=False, clean_up_tokenization_spaces=False,
                  model_max_length=2048, chat_template=template)
    return {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": json.dumps(config, indent=1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--families", default="all", help=f"all, or of {','.join(FAMILIES)}")
    parser.add_argument("--variants", default="f32,q4", help="comma-separated; empty: none")
    parser.add_argument("--gguf", default="", metavar="TYPES",
                        help=f"all, or of {','.join(tiny_gguf.TYPES)}; default none")
    parser.add_argument("--salt", type=int, help="one seed for all weights")
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    mx.disable_compile()  # compiling would need a compiler at run time and changes nothing here

    families = list(FAMILIES) if args.families == "all" else args.families.split(",")
    if unknown := [f for f in families if f not in FAMILIES]:
        raise SystemExit(f"unknown family {unknown[0]}; known: {', '.join(FAMILIES)}")
    types = list(tiny_gguf.TYPES) if args.gguf == "all" else [t for t in args.gguf.split(",") if t]
    if unknown := [t for t in types if t not in tiny_gguf.TYPES]:
        raise SystemExit(f"unknown GGUF type {unknown[0]}; known: {', '.join(tiny_gguf.TYPES)}")
    tokenizer, report = make_tokenizer(), {}
    for family in families:
        for variant in [v for v in args.variants.split(",") if v]:
            report |= make_one(make_directory, args.out, family, variant, args.salt, tokenizer)
        if types and build_config(family)["model_type"] not in tiny_gguf.ARCHITECTURES:
            print(f"{family}: GGUF has no architecture for it", flush=True)
            continue
        for quant in types:
            report |= make_one(make_gguf, args.out, family, quant, args.salt, tokenizer)
    (args.out / "report.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
