#!/usr/bin/env python3
"""Writes the seeds of hub's fuzz targets: a few tiny well-formed files each.

  python3 tools/make_hub_fuzz_seeds.py            # into tests/fuzz/seeds/<target>/
"""
import json
import struct
from pathlib import Path

SEEDS = Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "seeds"
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9  # GGUF value types


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(kind, v):
    if kind == STRING:
        return text(v)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<B"}[kind], v)


def entry(key, kind, v):
    if isinstance(v, list):
        body = struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(value(kind, x) for x in v)
    else:
        body = struct.pack("<I", kind) + value(kind, v)
    return text(key) + body


def gguf(architecture, tensors, extra):
    """tensors: (name, dims innermost first, ggml type number, bytes)."""
    entries = [("general.architecture", STRING, architecture)]
    entries += [(f"{architecture}.{key}", U32, v) for key, v in
                (("block_count", 1), ("embedding_length", 32), ("feed_forward_length", 64),
                 ("attention.head_count", 2), ("attention.head_count_kv", 1),
                 ("attention.key_length", 4))]
    entries += [(f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-6)] + extra
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    out += b"".join(entry(*e) for e in entries)
    data = b""
    for name, dims, kind, raw in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    return out + b"\0" * (-len(out) % 32) + data


def gguf_seeds():
    vocabulary = [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "qwen2"),
                  ("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "</s>"]),
                  ("tokenizer.ggml.merges", STRING, ["a b"]),
                  ("tokenizer.ggml.token_type", U32, [1, 1, 1, 3]),
                  ("tokenizer.ggml.scores", F32, [0, 0, -1, 0]),
                  ("tokenizer.ggml.eos_token_id", U32, 3),
                  ("tokenizer.ggml.add_bos_token", BOOL, 0),
                  ("tokenizer.chat_template", STRING, "{{ messages }}")]
    plain = [("token_embd.weight", [32, 4], 0, bytes(range(128)) * 4),
             ("blk.0.attn_q.weight", [32, 8], 1, bytes(512)),
             ("blk.0.attn_q.bias", [8], 0, bytes(32)), ("blk.0.attn_k.weight", [32, 4], 30, bytes(256))]
    sizes = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
             12: (256, 144), 13: (256, 176), 14: (256, 210), 10: (256, 84), 11: (256, 110),
             20: (32, 18), 23: (256, 136), 39: (32, 17)}
    blocks = [(f"t{kind}", [n], kind, bytes(i * 7 % 256 for i in range(size)))
              for kind, (n, size) in sizes.items()]
    scaled = [("llama.rope.scaling.type", STRING, "yarn"), ("llama.rope.scaling.factor", F32, 4.0),
              ("general.alignment", U32, 32)]
    return {"llama.gguf": gguf("llama", plain, vocabulary), "gemma3.gguf": gguf("gemma3", plain[:1], []),
            "blocks.gguf": gguf("llama", blocks, scaled),
            "part.gguf": gguf("llama", plain[:1], [("split.no", U32, 0), ("split.count", U32, 2),
                                                   ("split.tensors.count", U32, 3)])}


def safetensors(header, data):
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def safetensors_seeds():
    return {
        "two": safetensors({"__metadata__": {"format": "mlx"},
                            "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                            "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}, bytes(22)),
        "affine": safetensors({"w.weight": {"dtype": "U32", "shape": [1, 4], "data_offsets": [0, 16]},
                               "w.scales": {"dtype": "F16", "shape": [1, 1], "data_offsets": [16, 18]}},
                              bytes(18)),
        "empty": safetensors({}, b""),
    }


def config_seeds():
    def pair(config, tokenizer):
        return json.dumps(config).encode() + b"\0" + json.dumps(tokenizer).encode()
    return {
        "mlx": pair({"model_type": "qwen3", "hidden_size": 64, "eos_token_id": [1, 2],
                     "quantization": {"bits": 4, "group_size": 64, "mode": "affine",
                                      "model.norm": {"bits": 4, "group_size": None},
                                      "model.x": False}},
                    {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True,
                     "chat_template": [{"name": "default", "template": "T"}]}),
        "mlx_modes": pair({"quantization": {"mode": "mxfp4", "group_size": 32, "bits": 4,
                                            "norm": {"bits": 8, "group_size": 32},
                                            "head": {"mode": "nvfp4"}, "x": {"mode": "mxfp8"}}}, {}),
        "lifted": pair({"model_type": "gemma3", "text_config": {
                            "model_type": "gemma3_text", "layer_types": ["full_attention"],
                            "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear",
                                                                   "factor": 8},
                                                "sliding_attention": {"rope_theta": 1e4}}}},
                       {"chat_template": "T", "pad_token": None}),
    }


def main():
    for target, seeds in (("gguf_fuzz", gguf_seeds()), ("safetensors_fuzz", safetensors_seeds()),
                          ("config_fuzz", config_seeds())):
        directory = SEEDS / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
