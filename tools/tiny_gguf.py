"""Writes the weights of a small HF-named model as a GGUF file, by the conventions of llama.cpp's
converter: names, permuted rotary rows of llama, "+ 1" in gemma's norms, rope factors as a tensor, and for gemma4
sizes by kind of layer and experts' gate and up in one."""
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
FUSED_NAMES = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
EXPERT_NAMES = {"mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"} | {
    f"mlp.{a}.{n}_proj": f"ffn_{n}_{b}" for a, b in (("switch_mlp", "exps"), ("shared_expert", "shexp"))
    for n in ("gate", "up", "down")}
MIXTRAL_NAMES = {k.replace("mlp.", "block_sparse_moe.", 1): v for k, v in EXPERT_NAMES.items()}
GEMMA4_NAMES = GEMMA_NAMES | {
    "layer_scalar": "layer_output_scale", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router": "ffn_gate_inp", "router.proj": "ffn_gate_inp"} | {
    f"experts.switch_glu.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")}
# model_type -> GGUF's name of the architecture, and names beyond the common ones
ARCHITECTURES = {
    "llama": ("llama", {}), "mistral": ("llama", {}), "qwen2": ("qwen2", {}), "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}), "gemma2": ("gemma2", GEMMA_NAMES), "gemma3_text": ("gemma3", GEMMA_NAMES),
    "gemma4_text": ("gemma4", GEMMA4_NAMES),
    "phi3": ("phi3", FUSED_NAMES), "olmo2": ("olmo2", GEMMA_NAMES), "olmo3": ("olmo2", GEMMA_NAMES),
    "exaone4": ("exaone4", GEMMA_NAMES),
    "smollm3": ("smollm3", {}), "granite": ("granite", {}), "minicpm": ("minicpm", {}),
    "starcoder2": ("starcoder2", {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
    "glm4": ("glm4", FUSED_NAMES | {"post_self_attn_layernorm": "post_attention_norm",
                                    "post_mlp_layernorm": "post_ffw_norm"}),
    "cohere2": ("cohere2", {}), "stablelm": ("stablelm", {}), "ernie4_5": ("ernie4_5", {}),
    "seed_oss": ("seed_oss", {"post_attention_layernorm": "post_attention_norm"}),
    "hunyuan_v1_dense": ("hunyuan-dense", {"self_attn.query_layernorm": "attn_q_norm",
                                           "self_attn.key_layernorm": "attn_k_norm"}),
    "internlm2": ("internlm2", {"attention_norm": "attn_norm", "ffn_norm": "ffn_norm",
                                "attention.wo": "attn_output", "feed_forward.w1": "ffn_gate",
                                "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up"}),
    "qwen2_moe": ("qwen2moe", EXPERT_NAMES), "qwen3_moe": ("qwen3moe", EXPERT_NAMES),
    "olmoe": ("olmoe", EXPERT_NAMES), "mixtral": ("llama", MIXTRAL_NAMES),
    "gpt_oss": ("gpt-oss", {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
                            "self_attn.sinks": "attn_sinks"} | {
                                f"mlp.experts.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")}),
}
GLOBAL_NAMES |= {"model.tok_embeddings": "token_embd", "output": "output",
                 "model.embed_tokens_per_layer": "per_layer_token_embd",
                 "model.per_layer_model_projection": "per_layer_model_proj",
                 "model.per_layer_projection_norm": "per_layer_proj_norm"}
# Architectures whose rotary rows are stored as neighbours although the model pairs halves.
INTERLEAVED = ("llama", "smollm3", "granite", "minicpm", "internlm2")
PLUS_ONE = ("gemma", "gemma2", "gemma3")


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
    return blocks.reshape(*value.shape[:-1], -1)


def encode(value, quant):
    """The rows of a matrix as blocks of that type."""
    return random_blocks(value, quant) if quant in RANDOM else quantize(value, gguf.GGMLQuantizationType[quant])


def file_type(quant):
    if quant == "F32":
        return gguf.LlamaFileType.ALL_F32
    return next(t for t in gguf.LlamaFileType if t.name.startswith(f"MOSTLY_{quant}"))


def gguf_name(name, names):
    if name.endswith(("sinks", "layer_scalar")):
        name += ".weight"
    name = name.replace("router.per_expert_scale", "experts.switch_glu.down_proj.scale")
    module, _, kind = name.rpartition(".")
    if module in GLOBAL_NAMES:
        return f"{GLOBAL_NAMES[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{(BLOCK_NAMES | names)[part]}.{kind}"


def interleave(rows, heads):
    """Rotary pairs (i, i + d/2) of each head become neighbours (2i, 2i + 1)."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def rope_factors(config):
    """What the llama3 scaling divides each frequency by."""
    scaling = config["rope_scaling"]
    dim = head_dim_of(config)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    waves = 2 * np.pi * config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    smooth = (context / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    factors = np.where(waves < context / high, 1, np.where(waves > context / low, factor, between))
    return factors.astype(np.float32)


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def gemma4_sizes(config):
    """The configuration with the sizes of full layers, numbers for each layer, and the names of other families."""
    slides = [t == "sliding_attention" for t in config["layer_types"]]
    own = len(slides) - config["num_kv_shared_layers"]
    heads = config["num_key_value_heads"]
    full_heads = config.get("num_global_key_value_heads")
    sizes = dict(head_dim=config["global_head_dim"],
                 rope_theta=config["rope_parameters"]["full_attention"]["rope_theta"],
                 intermediate_size=[config["intermediate_size"] * (1 if i < own else 2) for i in range(len(slides))])
    if full_heads:
        sizes["num_key_value_heads"] = [heads if s else full_heads for s in slides]
    if "top_k_experts" in config:
        sizes["num_experts_per_tok"] = config["top_k_experts"]
    return config | sizes


def add_gemma4(writer, config):
    """What no other family has."""
    ropes = config["rope_parameters"]
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_rope_dimension_count_swa(config["head_dim"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    pairs = config["global_head_dim"] // 2
    turning = int(pairs * ropes["full_attention"]["partial_rotary_factor"])
    writer.add_tensor("rope_freqs.weight", np.array([1] * turning + [1e30] * (pairs - turning), np.float32))


def idle_keys(config):
    """Keys and values of the layers that read those of others: published files have them, nothing reads them."""
    count = config["num_hidden_layers"]
    for layer in range(count - config["num_kv_shared_layers"], count):
        dim = config["head_dim" if config["layer_types"][layer] == "sliding_attention" else "global_head_dim"]
        for name in ("attn_k", "attn_v"):
            yield (f"blk.{layer}.{name}.weight",
                   np.ones((config["num_key_value_heads"] * dim, config["hidden_size"]), np.float32))
        yield f"blk.{layer}.attn_k_norm.weight", np.ones(dim, np.float32)


def gate_above_up(tensors):
    """The tensors (name -> rows and type) with the two projections of all experts in one."""
    out = {}
    for name, (rows, kind) in tensors.items():
        if "ffn_up_exps" in name:
            continue
        if "ffn_gate_exps" in name:
            up, _ = tensors[name.replace("gate", "up")]
            name, rows = name.replace("gate", "gate_up"), np.concatenate([rows, up], axis=1)
        out[name] = rows, kind
    return out


def add_metadata(writer, config, quant):
    head_dim = head_dim_of(config)
    writer.add_name("tiny " + config["model_type"])
    writer.add_file_type(int(file_type(quant)))
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    layer_norm = config.get("layer_norm_eps", config.get("norm_epsilon"))
    if layer_norm:
        writer.add_layer_norm_eps(layer_norm)
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    optional = {
        "sliding_window": writer.add_sliding_window,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "attention_multiplier": writer.add_attention_scale,
        "embedding_multiplier": writer.add_embedding_scale,
        "residual_multiplier": writer.add_residual_scale,
        "logits_scaling": writer.add_logit_scale,
        "logit_scale": writer.add_logit_scale,
        "scale_emb": writer.add_embedding_scale,
        "num_experts": writer.add_expert_count,
        "num_local_experts": writer.add_expert_count,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
        "shared_expert_intermediate_size": writer.add_expert_shared_feed_forward_length,
    }
    for key, add in optional.items():
        if config.get(key) is not None:
            add(config[key])
    if "scale_depth" in config:
        writer.add_residual_scale(config["scale_depth"] / config["num_hidden_layers"] ** 0.5)
        writer.add_logit_scale(config["hidden_size"] / config["dim_model_base"])


def add_rope_scaling(writer, config):
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    if kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if kind == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight",
                              np.array(scaling[f"{name}_factor"], np.float32))


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


def pieces(name, stored, config, architecture, names):
    """The tensors that a weight is stored as: (GGUF name, rows in the order of the file)."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    if ".wqkv." in name:  # by key head: its queries, the key, the value
        grouped = stored.reshape(kv_heads, -1, head_dim_of(config), *stored.shape[1:])
        parts = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
        for letter, rows in zip("qkv", parts):
            part = name.replace("attention.wqkv", f"self_attn.{letter}_proj")
            yield from pieces(part, rows.reshape(-1, *stored.shape[1:]), config, architecture, names)
        return
    if architecture in INTERLEAVED and ("q_proj" in name or "k_proj" in name):
        stored = interleave(stored, heads if "q_proj" in name else kv_heads)
    if architecture in PLUS_ONE and "norm" in name:
        stored = stored + np.float32(1)
    yield gguf_name(name, names), stored


def stacked_norms(weights):
    """Norms with one tensor a head as one tensor."""
    out = {}
    for name, value in weights.items():
        stem, found, _ = name.partition("_layernorm.norms.")
        out.setdefault(f"{stem}_norm.weight" if found else name, []).append(value)
    return {k: v[0] if len(v) == 1 else np.stack(v) for k, v in out.items()}


def write(path, config, weights, quant, tokenizer, tokenizer_config):
    """Writes the file; returns the weights under their HF names with the values the file decodes to. Rows
    that are no whole number of blocks stay F32."""
    architecture, names = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    is_gemma4 = architecture == "gemma4"
    add_metadata(writer, gemma4_sizes(config) if is_gemma4 else config, quant)
    if is_gemma4:
        add_gemma4(writer, config)
    add_tokenizer(writer, tokenizer, tokenizer_config)
    add_rope_scaling(writer, config)
    decoded, tensors = dict(weights), {}
    for name, value in stacked_norms(weights).items():
        kind = gguf.GGMLQuantizationType[quant]
        whole = value.ndim > 1 and value.shape[-1] % block_size(quant) == 0
        if not whole or "norm" in name or name.endswith(".bias"):
            kind = gguf.GGMLQuantizationType.F32
        stored = value
        if kind != gguf.GGMLQuantizationType.F32:
            stored = encode(value, quant)
            decoded[name] = dequantize(stored, kind).astype(np.float32)
        for stored_name, rows in pieces(name, stored, config, architecture, names):
            tensors[stored_name] = rows, kind
    for name, (rows, kind) in (gate_above_up(tensors) if is_gemma4 else tensors).items():
        writer.add_tensor(name, np.ascontiguousarray(rows), raw_dtype=kind)
    for name, rows in idle_keys(config) if is_gemma4 else ():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded
