// Tensors as they lie on disk: dtype, shape and bytes, before any backend packed them.
//
// A RawTensor is a view into a mapped file (or a buffer) that `keep_alive` owns; it is cheap to
// copy and safe to share between threads. `hub/` makes them, a backend's `pack` consumes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantou {

// Plain element types, then the GGUF block types (rows of blocks along the last axis).
enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};

struct DTypeInfo {
  std::string_view name;  // "F32", "Q4_K"
  int block_size;         // elements per block; 1 for plain types
  int block_bytes;        // bytes per block
};

const DTypeInfo& dtype_info(DType dtype);
inline bool is_block_type(DType dtype) { return dtype >= DType::kQ4_0; }

// Bytes of `elements` consecutive elements; elements must be a multiple of the block size.
size_t dtype_bytes(DType dtype, size_t elements);

struct RawTensor {
  std::string name;  // as in the file, for messages
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first (a matrix is [out, in]); all extents ≥ 1
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep_alive;

  int64_t elements() const;
};

// What codes with scales stand for: MLX's modes. E8M0 is a power of two, E4M3 and E2M1 are floats
// of eight and four bits (OCP Microscaling formats).
enum class QuantMode : uint8_t {
  kAffine,  // scale · code + bias; scales and biases f32, f16 or bf16
  kMxFp4,   // E2M1 codes, an E8M0 scale for 32
  kNvFp4,   // E2M1 codes, an E4M3 scale for 16
  kMxFp8,   // E4M3 codes, an E8M0 scale for 32
};

// A matrix [rows, cols] (or a vector: rows = 1) in one of two forms.
//   dense or GGUF blocks: `data` alone.
//   MLX: `data` holds u32 words, each row a string of codes of `bits`, lowest bits first; `scales`
//   (and, affine only, `biases` of the same type) are [rows, cols / group], u8 in the float modes.
struct RawWeight {
  RawTensor data;
  std::optional<RawTensor> scales;
  std::optional<RawTensor> biases;
  QuantMode mode = QuantMode::kAffine;  // with scales only, as bits and group
  int bits = 0, group = 0;
  int64_t rows = 0, cols = 0;  // logical shape

  // When not empty: logical row i is stored row row_order[i] (GGUF llama files store Q and K rows
  // permuted; see docs/gguf.md).
  std::vector<uint32_t> row_order;

  bool affine() const { return scales && mode == QuantMode::kAffine; }
};

// The weight made of `rows` of `weight`, in that order. A run of consecutive rows is a view,
// anything else a copy. Every row must be below weight.rows.
RawWeight select_rows(const RawWeight& weight, std::span<const uint32_t> rows);

// Row `row` (logical) of `weight` as f32 into `out` [cols]. The reference decoding of every format:
// slow, exact, used for embedding lookups and as the oracle of the packed kernels.
void decode_row(const RawWeight& weight, int64_t row, std::span<float> out);

// False when a stored float – an element, a scale, a minimum – is NaN or infinite: such a weight
// would poison or, behind a clamping cache, silently spoil every answer.
bool is_finite(const RawWeight& weight);

}  // namespace mantou
