"""Writes the weights of a small HF-named model as a GGUF file, by the conventions of llama.cpp's
converter: names, permuted rotary rows of llama, "+ 1" in gemma's norms, rope factors as a tensor."""
import zlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

# Types without a quantizer in gguf-py -> where their blocks have the f16 scale, where (if at all) the f16
# minimum, and the middle of their codes. Weights in them are random blocks.
RANDOM = {"Q2_K": (80, 82, 1.5), "Q3_K": (108, None, 0), "Q4_K": (0, 2, 7.5), "Q5_K": (0, 2, 15.5),
          "Q6_K": (208, None, 0), "IQ4_NL": (0, None, 0), "IQ4_XS": (0, None, 0)}
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", *RANDOM)

GLOBAL_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BLOCK_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
                 "gemma3_text": "gemma3"}


def block_size(quant):
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant]][0]


def random_blocks(value, quant):
    """Random blocks that decode to about the spread of `value`, each with a scale of its own."""
    kind = gguf.GGMLQuantizationType[quant]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    scale_at, min_at, middle = RANDOM[quant]
    rng = np.random.Generator(np.random.Philox(key=zlib.crc32(value.tobytes())))
    blocks = rng.integers(0, 256, (value.size // elements, size), dtype=np.uint8)

    def put(at, field):
        blocks[:, at:at + 2] = field.astype(np.float16).view(np.uint8).reshape(-1, 2)

    def set_scales(scales):
        put(scale_at, scales)
        if min_at is not None:
            put(min_at, scales * middle)

    scales = rng.uniform(0.5, 1.5, len(blocks)) / 64
    set_scales(scales)
    set_scales(scales * value.std() / dequantize(blocks, kind).std())
    return blocks.reshape(value.shape[0], -1)


def encode(value, quant):
    """The rows of a matrix as blocks of that type."""
    return random_blocks(value, quant) if quant in RANDOM else quantize(value, gguf.GGMLQuantizationType[quant])


def file_type(quant):
    if quant == "F32":
        return gguf.LlamaFileType.ALL_F32
    return next(t for t in gguf.LlamaFileType if t.name.startswith(f"MOSTLY_{quant}"))


def gguf_name(name, architecture):
    module, _, kind = name.rpartition(".")
    if module in GLOBAL_NAMES:
        return f"{GLOBAL_NAMES[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    names = BLOCK_NAMES | (GEMMA_NAMES if architecture == "gemma3" else {})
    return f"blk.{layer}.{names[part]}.{kind}"


def interleave(rows, heads):
    """Rotary pairs (i, i + d/2) of each head become neighbours (2i, 2i + 1)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def rope_factors(config):
    """What the llama3 scaling divides each frequency by."""
    scaling = config["rope_scaling"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    waves = 2 * np.pi * config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    smooth = (context / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(waves < context / high, 1, np.where(waves > context / low, factor, between))
    return factors.astype(np.float32)


def add_metadata(writer, config, quant):
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    writer.add_name("tiny " + config["model_type"])
    writer.add_file_type(int(file_type(quant)))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])


def add_tokenizer(writer, tokenizer, tokenizer_config):
    special = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [token for token, _ in vocabulary]
    types = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(t) for t in types])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(special[tokenizer_config["bos_token"]])
    writer.add_eos_token_id(special[tokenizer_config["eos_token"]])
    writer.add_pad_token_id(special[tokenizer_config["pad_token"]])
    writer.add_add_bos_token(tokenizer_config["add_bos_token"])
    writer.add_chat_template(tokenizer_config["chat_template"])


def write(path, config, weights, quant, tokenizer, tokenizer_config):
    """Writes the file; returns the weights under their HF names with the values the file decodes to. Rows
    that are no whole number of blocks stay F32."""
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, config, quant)
    add_tokenizer(writer, tokenizer, tokenizer_config)
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    decoded = {}
    for name, value in weights.items():
        stored = decoded[name] = value
        kind = gguf.GGMLQuantizationType[quant]
        if value.ndim == 1 or value.shape[-1] % block_size(quant) != 0:
            kind = gguf.GGMLQuantizationType.F32
        if kind != gguf.GGMLQuantizationType.F32:
            stored = encode(value, quant)
            decoded[name] = dequantize(stored, kind).astype(np.float32)
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            key = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            stored = interleave(stored, config[key])
        if architecture == "gemma3" and "norm" in name:
            stored = stored + np.float32(1)
        writer.add_tensor(gguf_name(name, architecture), stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded
