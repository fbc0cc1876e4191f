"""Writes the weights of a small HF-named model as a GGUF file, by the conventions of llama.cpp's
converter: names, permuted rotary rows of llama, "+ 1" in gemma's norms, rope factors as a tensor."""
import gguf
import numpy as np
from gguf.quants import dequantize, quantize

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")

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
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32 if quant == "F32"
                             else gguf.LlamaFileType[f"MOSTLY_{quant}"]))
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
    """Writes the file; returns the weights under their HF names with the values the file decodes to."""
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, config, quant)
    add_tokenizer(writer, tokenizer, tokenizer_config)
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    decoded = {}
    for name, value in weights.items():
        stored = value
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            key = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            stored = interleave(value, config[key])
        if architecture == "gemma3" and "norm" in name:
            stored = value + np.float32(1)
        decoded[name] = value
        if value.ndim == 1 or quant == "F32":
            writer.add_tensor(gguf_name(name, architecture), stored.astype(np.float32))
            continue
        kind = gguf.GGMLQuantizationType[quant]
        writer.add_tensor(gguf_name(name, architecture), quantize(stored, kind), raw_dtype=kind)
        decoded[name] = dequantize(quantize(value, kind), kind).astype(np.float32)  # row by row
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded
