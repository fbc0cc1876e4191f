#!/usr/bin/env python3
"""Writes src/base/test_decode_row_goldens.h: random weights in every quantized format and their values as
the reference implementations decode them.

  python3 tools/make_quant_goldens.py | clang-format > src/base/test_decode_row_goldens.h

GGUF blocks: gguf.quants.dequantize (package gguf 0.19). MLX: mlx.core.dequantize (mlx 0.32) to f32, the
scales and biases of affine weights widened. All inputs are random bits from a fixed seed.
"""
import gguf
import mlx.core as mx
import numpy as np
from gguf.quants import dequantize

ROWS = 2
# type -> byte offsets of its f16 fields in a block
F16_FIELDS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108],
              "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
MXFP4_EXPONENTS = [0, 1, 127, 252]  # subnormal scales, one, the largest
AFFINE = [(2, 32, "F32", 64), (3, 32, "F32", 64), (4, 32, "F32", 128), (4, 64, "BF16", 128),
          (4, 128, "F16", 128), (5, 32, "F32", 64), (6, 32, "F32", 64), (8, 32, "F16", 64),
          (8, 64, "F32", 128), (8, 128, "BF16", 128), (1, 32, "BF16", 64), (2, 128, "BF16", 128),
          (3, 64, "BF16", 64), (5, 64, "F16", 64), (6, 128, "BF16", 128)]
# mode -> bits, group, scales (the ends of their range included)
FLOAT_MODES = {"mxfp4": (4, 32, [0, 1, 127, 252]), "nvfp4": (4, 16, [0, 1, 8, 0x38, 0x7e, 0x81, 0xb9, 0xfe]),
               "mxfp8": (8, 32, [10, 120, 128, 246])}
MODE_NAMES = {"mxfp4": "kMxFp4", "nvfp4": "kNvFp4", "mxfp8": "kMxFp8"}
MLX_TYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}


def words(values, per_line=9):
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    lines = [", ".join(f"0x{b:08x}" for b in bits[i:i + per_line])
             for i in range(0, len(bits), per_line)]
    return "{" + ",\n     ".join(lines) + "}"


def as_words(raw):
    """Bytes, padded with zeros to whole little-endian words."""
    return np.frombuffer(raw + b"\0" * (-len(raw) % 4), dtype="<u4")


def gguf_case(rng, name):
    quant = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[quant]
    cols = max(64, elements)
    blocks = rng.integers(0, 256, (ROWS * cols // elements, size), dtype=np.uint8)
    for at in F16_FIELDS[name]:
        field = (rng.standard_normal(len(blocks)) * 0.05).astype(np.float16)
        field[0] = np.float16(3e-7)  # subnormal
        blocks[:, at:at + 2] = field.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = MXFP4_EXPONENTS
    rows = blocks.reshape(ROWS, -1)
    return cols, rows.tobytes(), dequantize(rows, quant).astype(np.float32)


def affine_case(rng, bits, group, dtype, cols):
    packed = rng.integers(0, 2**32, (ROWS, cols * bits // 32), dtype=np.uint32)
    scales, biases = (mx.array(rng.standard_normal((ROWS, cols // group)).astype(np.float32) * s)
                      .astype(MLX_TYPES[dtype]) for s in (0.02, 0.3))
    values = mx.dequantize(mx.array(packed), scales.astype(mx.float32), biases.astype(mx.float32),
                           group_size=group, bits=bits)
    stored = [np.array(a.view(mx.uint8) if dtype == "F32" else a.view(mx.uint16)).tobytes()
              for a in (scales, biases)]
    return packed.tobytes(), stored[0], stored[1], np.array(values)


def float_mode_case(rng, mode):
    bits, group, scales = FLOAT_MODES[mode]
    cols = group * len(scales) // ROWS
    codes = rng.integers(0, 256, (ROWS, cols * bits // 8), dtype=np.uint8)
    codes.reshape(-1)[:16] = np.arange(16) * 17
    if mode == "mxfp8":
        codes[(codes & 127) == 127] ^= 1  # NaN
    scales = np.array(scales, dtype=np.uint8).reshape(ROWS, -1)
    values = mx.dequantize(mx.array(codes.view(np.uint32)), mx.array(scales), group_size=group, bits=bits,
                           mode=mode, dtype=mx.float32)
    return cols, codes.tobytes(), scales.tobytes(), np.array(values)


def main():
    mx.set_default_device(mx.cpu)
    rng = np.random.default_rng(20250117)
    print("// Written by tools/make_quant_goldens.py; do not edit.\n#pragma once\n")
    print("#include <cstdint>\n#include <vector>\n\n#include \"base/raw_tensor.h\"\n")
    print("namespace mantou::goldens {\n")
    print("inline constexpr int64_t kRows = 2;\n")
    print("// Bytes as little-endian words (the last one padded with zeros) and f32 bits.")
    print("struct Blocks {\n  DType dtype;\n  int64_t cols;\n  std::vector<uint32_t> bytes;\n"
          "  std::vector<uint32_t> values;\n};\n")
    print("inline const std::vector<Blocks> kBlocks = {")
    for name in F16_FIELDS:
        cols, raw, values = gguf_case(rng, name)
        print(f"    {{DType::k{name}, {cols},\n     {words(as_words(raw))},\n     {words(values)}}},")
    print("};\n")
    print("struct Affine {\n  int bits, group;\n  DType dtype;\n  int64_t cols;\n"
          "  std::vector<uint32_t> codes, scales, biases, values;\n};\n")
    print("inline const std::vector<Affine> kAffine = {")
    for bits, group, dtype, cols in AFFINE:
        packed, scales, biases, values = affine_case(rng, bits, group, dtype, cols)
        print(f"    {{{bits}, {group}, DType::k{dtype}, {cols},\n     {words(as_words(packed))},\n     "
              f"{words(as_words(scales))},\n     {words(as_words(biases))},\n     {words(values)}}},")
    print("};\n")
    print("struct FloatCodes {\n  QuantMode mode;\n  const char* name;\n  int bits, group;\n"
          "  int64_t cols;\n  std::vector<uint32_t> codes, scales, values;\n};\n")
    print("inline const std::vector<FloatCodes> kFloatCodes = {")
    for mode, (bits, group, _) in FLOAT_MODES.items():
        cols, codes, scales, values = float_mode_case(rng, mode)
        print(f"    {{QuantMode::{MODE_NAMES[mode]}, \"{mode}\", {bits}, {group}, {cols},\n     "
              f"{words(as_words(codes))},\n     {words(as_words(scales))},\n     {words(values)}}},")
    print("};\n\n}  // namespace mantou::goldens")


if __name__ == "__main__":
    main()
