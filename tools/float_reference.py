#!/usr/bin/env python3
"""Forward pass of GGUF models in plain numpy: what the weights of a file mean, in f32 or f64.

A reference that shares no code with the engine: weights are decoded by the `gguf` package, activations are never
quantized. Families: llama (mistral, smollm, …), qwen2, qwen3, gemma3, gemma4.

    float_reference.py logits MODEL.gguf --ids ids.txt --out logits.npy    f32 [tokens, vocabulary]
    float_reference.py tokens MODEL.gguf --ids ids.txt                     one JSON line a token, see below
    float_reference.py kl MODEL.gguf --ids ids.txt --against ours.npy      how far other logits are from these

The ids (.npy, a JSON list, or numbers in a text) are cut into contexts of --window tokens that know nothing of each
other. Row t holds the logits after token t, with the tokens before it in its context, as given (teacher forcing).

tokens: for each token that has a successor in its context: its index, the successor's id and log-probability,
the two best ids and the gap between their logits. A small gap is a near tie: other arithmetic may choose the other.

kl: mean, median, 99th percentile and maximum of KL(reference || other) in nats a token, share of rows with the same
best id, the largest gap of a row where it differs, and the mean log-probability of the successors under both.
"""
import argparse
import json
import sys
from pathlib import Path

import gguf
import numpy as np

HEAD_ROWS = 64  # tokens whose logits are held at once
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3", "gemma4")


class Metadata:
    def __init__(self, reader):
        self.fields = reader.fields
        self.architecture = self.fields["general.architecture"].contents()

    def get(self, key, default=None):
        field = self.fields.get(f"{self.architecture}.{key}")
        if field is None:
            if default is None:
                sys.exit(f"the file has no {self.architecture}.{key}")
            return default
        return field.contents()


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-np.maximum(x, -80)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x * x * x)))


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Model:
    """Token ids of one context in, logits out. Shapes: T tokens, H query heads in G groups, D a head.

    rounded_scale: Gemma's embedding factor is rounded to bf16, as the model was trained."""

    def __init__(self, path, dtype, rounded_scale=True):
        reader = gguf.GGUFReader(path)
        meta = Metadata(reader)
        self.family = meta.architecture
        if self.family not in FAMILIES:
            sys.exit(f"{path}: architecture {self.family} is not one of {', '.join(FAMILIES)}")
        self.dtype = dtype
        self.rounded_scale = rounded_scale
        self.weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(dtype)
                        for t in reader.tensors}
        self.layers = meta.get("block_count")
        self.hidden = meta.get("embedding_length")
        self.heads = meta.get("attention.head_count")
        self.groups = meta.get("attention.head_count_kv", self.heads)
        self.head_dim = meta.get("attention.key_length", self.hidden // self.heads)
        self.eps = dtype(meta.get("attention.layer_norm_rms_epsilon"))
        self.base = meta.get("rope.freq_base", 10000.0)
        self.softcap = meta.get("final_logit_softcapping", 0.0)
        self.rotated = meta.get("rope.dimension_count", self.head_dim)
        scaling = meta.get("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            sys.exit(f"{path}: rope scaling {scaling} is not supported")
        self.stretch = meta.get("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
        self.gemma = self.family == "gemma3"
        self.scale = self.head_dim ** -0.5
        if self.gemma:
            self.window = meta.get("attention.sliding_window")
            self.pattern = meta.get("attention.sliding_window_pattern", 6)
            self.local_base = meta.get("rope.freq_base_swa", 10000.0)
            if self.layers == 62:  # the 27B model scales by hidden / heads
                self.scale = (self.hidden / self.heads) ** -0.5
        self.read_more(meta)

    def read_more(self, meta):
        """What a subclass reads beyond this."""

    def weight(self, layer, name):
        return self.weights[f"blk.{layer}.{name}.weight"]

    def linear(self, x, layer, name):
        y = x @ self.weight(layer, name).T
        bias = self.weights.get(f"blk.{layer}.{name}.bias")
        return y if bias is None else y + bias

    def is_local(self, layer):
        return self.gemma and (layer + 1) % self.pattern != 0

    def angles(self, count, layer):
        local = self.is_local(layer)
        base = self.local_base if local else self.base
        inverse = base ** (-np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated)
        if "rope_freqs.weight" in self.weights:
            inverse /= self.weights["rope_freqs.weight"]
        inverse /= 1.0 if local else self.stretch
        angle = np.arange(count)[:, None, None] * inverse
        return np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

    def rope(self, x, cos, sin):
        """[T, heads, D]; llama files hold rotary pairs as neighbours, the others as halves."""
        half = self.rotated // 2
        if self.family == "llama":
            first, second = slice(0, self.rotated, 2), slice(1, self.rotated, 2)
        else:
            first, second = slice(0, half), slice(half, self.rotated)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def mask(self, count, layer):
        age = np.arange(count)[:, None] - np.arange(count)  # of a key, seen from a query
        hidden = age < 0
        if self.is_local(layer):
            hidden |= age >= self.window
        return np.where(hidden, self.dtype(-np.inf), self.dtype(0))

    def attention(self, x, layer):
        count = len(x)
        q = self.linear(x, layer, "attn_q").reshape(count, self.heads, self.head_dim)
        k = self.linear(x, layer, "attn_k").reshape(count, self.groups, self.head_dim)
        v = self.linear(x, layer, "attn_v").reshape(count, self.groups, self.head_dim)
        if f"blk.{layer}.attn_q_norm.weight" in self.weights:
            q = rms_norm(q, self.weight(layer, "attn_q_norm"), self.eps)
            k = rms_norm(k, self.weight(layer, "attn_k_norm"), self.eps)
        cos, sin = self.angles(count, layer)
        q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
        return self.linear(self.attend(q, k, v, layer), layer, "attn_output")

    def attend(self, q, k, v, layer):
        """[T, H * D] of q [T, H, D], k and v [T, G, D]."""
        count = len(q)
        mask, share = self.mask(count, layer), self.heads // k.shape[1]
        out = np.empty((count, self.heads, self.head_dim), self.dtype)
        for head in range(self.heads):
            scores = q[:, head] @ k[:, head // share].T * self.dtype(self.scale) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            out[:, head] = scores @ v[:, head // share]
        return out.reshape(count, -1)

    def mlp(self, x, layer):
        activation = gelu_tanh if self.gemma else silu
        gate = activation(self.linear(x, layer, "ffn_gate"))
        return self.linear(gate * self.linear(x, layer, "ffn_up"), layer, "ffn_down")

    def block(self, x, layer):
        def norm(y, name):
            return rms_norm(y, self.weight(layer, name), self.eps)

        y = self.attention(norm(x, "attn_norm"), layer)
        x = x + (norm(y, "post_attention_norm") if self.gemma else y)
        y = self.mlp(norm(x, "ffn_norm"), layer)
        return x + (norm(y, "post_ffw_norm") if self.gemma else y)

    def hidden_states(self, ids):
        x = self.weights["token_embd.weight"][ids]
        if self.gemma:
            root = np.array([self.hidden ** 0.5], np.float32)
            if self.rounded_scale:
                bits = root.view(np.uint32)
                root = ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)
            x = x * self.dtype(root[0])
        for layer in range(self.layers):
            x = self.block(x, layer)
        return rms_norm(x, self.weights["output_norm.weight"], self.eps)

    def logits(self, hidden):
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        logits = hidden @ head.T
        return self.softcap * np.tanh(logits / self.softcap) if self.softcap else logits


class Gemma4(Model):
    """Two kinds of layers, each with heads of its own size; values are normed; the last layers read the keys and
    values of an earlier one; a layer may have an input of its own, and experts beside its MLP."""

    def read_more(self, meta):
        self.gemma = True
        self.slides = meta.get("attention.sliding_window_pattern")
        self.own = self.layers - meta.get("attention.shared_kv_layers", 0)
        self.window = meta.get("attention.sliding_window")
        self.bases = meta.get("rope.freq_base"), meta.get("rope.freq_base_swa")
        self.dims = self.head_dim, meta.get("attention.key_length_swa")
        self.width = meta.get("embedding_length_per_layer_input")
        self.used = meta.get("expert_used_count", 0)
        self.scale = 1.0

    def is_local(self, layer):
        return bool(self.slides[layer])

    def angles(self, count, layer):
        local = self.is_local(layer)
        inverse = self.bases[local] ** (-np.arange(0, self.dims[local], 2, dtype=np.float64) / self.dims[local])
        if not local:
            inverse /= self.weights["rope_freqs.weight"]
        angle = np.arange(count)[:, None, None] * inverse
        return np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

    def keys_and_values(self, x, layer):
        count, dim = len(x), self.head_dim
        k = self.linear(x, layer, "attn_k")
        v = self.linear(x, layer, "attn_v") if f"blk.{layer}.attn_v.weight" in self.weights else k
        k, v = k.reshape(count, -1, dim), v.reshape(count, -1, dim)
        k = rms_norm(k, self.weight(layer, "attn_k_norm"), self.eps)
        return self.rope(k, *self.angles(count, layer)), rms_norm(v, self.dtype(1), self.eps)

    def attention(self, x, layer):
        count, local = len(x), self.is_local(layer)
        self.head_dim = self.rotated = self.dims[local]
        if layer < self.own:
            self.states[local] = self.keys_and_values(x, layer)  # of the last own layer of each kind
        k, v = self.states[local]
        q = self.linear(x, layer, "attn_q").reshape(count, self.heads, self.head_dim)
        q = self.rope(rms_norm(q, self.weight(layer, "attn_q_norm"), self.eps), *self.angles(count, layer))
        return self.linear(self.attend(q, k, v, layer), layer, "attn_output")

    def experts(self, x, layer):
        """The router reads what the norm before the MLP reads, its own norm without weights."""
        scale = self.weights[f"blk.{layer}.ffn_gate_inp.scale"]
        scores = self.linear(rms_norm(x, self.dtype(1), self.eps) * self.dtype(self.hidden ** -0.5) * scale, layer,
                             "ffn_gate_inp")
        each = self.weights[f"blk.{layer}.ffn_down_exps.scale"]
        gate_up, down = (self.weight(layer, name) for name in ("ffn_gate_up_exps", "ffn_down_exps"))
        inputs = rms_norm(x, self.weight(layer, "pre_ffw_norm_2"), self.eps)
        out = np.zeros_like(x)
        for token, row in enumerate(scores):
            chosen = np.argsort(-row)[:self.used]
            shares = np.exp(row[chosen] - row[chosen].max())
            for expert, share in zip(chosen, shares / shares.sum()):
                gate, up = np.split(gate_up[expert] @ inputs[token], 2)
                out[token] += share * each[expert] * (down[expert] @ (gelu_tanh(gate) * up))
        return out

    def block(self, x, layer):
        def norm(y, name):
            return rms_norm(y, self.weight(layer, name), self.eps)

        x = x + norm(self.attention(norm(x, "attn_norm"), layer), "post_attention_norm")
        y = self.mlp(norm(x, "ffn_norm"), layer)
        if self.used:
            y = norm(y, "post_ffw_norm_1") + norm(self.experts(x, layer), "post_ffw_norm_2")
        x = x + norm(y, "post_ffw_norm")
        if self.width:
            gate = gelu_tanh(self.linear(x, layer, "inp_gate"))
            x = x + norm(self.linear(gate * self.inputs[:, layer], layer, "proj"), "post_norm")
        scale = self.weights.get(f"blk.{layer}.layer_output_scale.weight")
        return x if scale is None else x * scale

    def hidden_states(self, ids):
        x = self.weights["token_embd.weight"][ids] * self.dtype(self.hidden ** 0.5)
        self.states = {}
        if self.width:
            shape = len(ids), self.layers, self.width
            table = self.weights["per_layer_token_embd.weight"][ids].reshape(shape) * self.dtype(self.width ** 0.5)
            own = (x @ self.weights["per_layer_model_proj.weight"].T).reshape(shape) * self.dtype(self.hidden ** -0.5)
            own = rms_norm(own, self.weights["per_layer_proj_norm.weight"], self.eps)
            self.inputs = (own + table) * self.dtype(2 ** -0.5)
        for layer in range(self.layers):
            x = self.block(x, layer)
        return rms_norm(x, self.weights["output_norm.weight"], self.eps)


def read_ids(path):
    if path.suffix == ".npy":
        return np.load(path).astype(np.int64).reshape(-1)
    return np.array(path.read_text().replace(",", " ").replace("[", " ").replace("]", " ").split(),
                    np.int64)


def load(path, dtype, **more):
    """The model of the file's architecture."""
    architecture = gguf.GGUFReader(path).fields["general.architecture"].contents()
    return (Gemma4 if architecture == "gemma4" else Model)(path, dtype, **more)


def rows(model, ids, window):
    """Yields (first index, logits of a few tokens, their successors or -1)."""
    for start in range(0, len(ids), window):
        context = ids[start:start + window]
        hidden = model.hidden_states(context)
        successors = np.append(context[1:], -1)
        for first in range(0, len(context), HEAD_ROWS):
            part = slice(first, first + HEAD_ROWS)
            yield start + first, model.logits(hidden[part]), successors[part]
        print(f"{min(start + window, len(ids))} of {len(ids)} tokens", file=sys.stderr)


def write_logits(model, ids, args):
    vocabulary = model.weights["token_embd.weight"].shape[0]
    out = np.lib.format.open_memmap(args.out, "w+", np.float32, (len(ids), vocabulary))
    for first, logits, _ in rows(model, ids, args.window):
        out[first:first + len(logits)] = logits
    out.flush()


def print_tokens(model, ids, args):
    for first, logits, successors in rows(model, ids, args.window):
        logprobs = log_softmax(logits)
        for row, successor in enumerate(successors):
            if successor < 0:
                continue
            second, best = np.argpartition(logits[row], -2)[-2:]
            print(json.dumps(dict(index=first + row, next=int(successor),
                                  logprob=round(float(logprobs[row, successor]), 6), best=int(best),
                                  second=int(second),
                                  gap=round(float(logits[row, best] - logits[row, second]), 6))))


def print_kl(model, ids, args):
    other = np.load(args.against, mmap_mode="r")
    vocabulary = model.weights["token_embd.weight"].shape[0]
    if other.shape != (len(ids), vocabulary):
        sys.exit(f"{args.against} is {other.shape}, not {(len(ids), vocabulary)}")
    kl, same, flipped_gap, likelihood = [], 0, 0.0, []
    for first, logits, successors in rows(model, ids, args.window):
        theirs = log_softmax(np.asarray(other[first:first + len(logits)]))
        ours = log_softmax(logits)
        kl.append((np.exp(ours) * (ours - theirs)).sum(-1))
        for row, successor in enumerate(successors):
            best, chosen = ours[row].argmax(), theirs[row].argmax()
            same += best == chosen
            flipped_gap = max(flipped_gap, ours[row, best] - ours[row, chosen])
            if successor >= 0:
                likelihood.append((ours[row, successor], theirs[row, successor]))
    kl = np.concatenate(kl)
    reference, against = np.mean(likelihood, axis=0) if likelihood else (0.0, 0.0)
    print(json.dumps(dict(tokens=len(ids), kl_mean=float(kl.mean()), kl_median=float(np.median(kl)),
                          kl_p99=float(np.quantile(kl, 0.99)), kl_max=float(kl.max()),
                          same_best=float(same / len(ids)), largest_flipped_gap=float(flipped_gap),
                          logprob_reference=float(reference), logprob_against=float(against)), indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["logits", "tokens", "kl"])
    parser.add_argument("model", type=Path, help="a .gguf file")
    parser.add_argument("--ids", type=Path, required=True, help="token ids: .npy, JSON or text")
    parser.add_argument("--out", type=Path, help="logits: the .npy file to write")
    parser.add_argument("--against", type=Path, help="kl: logits to judge, .npy [tokens, vocabulary]")
    parser.add_argument("--window", type=int, default=1024, help="tokens a context (default 1024)")
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f32")
    args = parser.parse_args()
    if args.mode == "logits" and not args.out:
        parser.error("logits needs --out")
    if args.mode == "kl" and not args.against:
        parser.error("kl needs --against")
    if args.window < 1:
        parser.error("--window must be at least 1")
    ids = read_ids(args.ids)
    model = load(args.model, np.float64 if args.dtype == "f64" else np.float32)
    vocabulary = model.weights["token_embd.weight"].shape[0]
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= vocabulary:
        sys.exit(f"{args.ids} must hold ids from 0 to {vocabulary - 1}, at least one")
    dict(logits=write_logits, tokens=print_tokens, kl=print_kl)[args.mode](model, ids, args)


if __name__ == "__main__":
    main()
