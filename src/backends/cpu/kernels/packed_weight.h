// Weight matrices in the form the matrix kernels read: made once at load, immutable, losslessly.
//
// A matrix [rows, cols] is a list of tiles of consecutive rows, a tile one contiguous run of bytes
// along the columns, so that each thread reads one sequential stream. Integer-coded families:
//
//   value(n, k) = scale(n, group of k) · (code(n, k) − offset) + min(n, group of k)
//
// (for some families a table's entry instead of code − offset).
//
//   tile  = 16 rows; blocks of kBlockColumns-like spans (64, 128 or 256 columns) one after another
//   block = [codes of each 32-column group][scales][mins][super scales], a multiple of 64 bytes
//   codes of a group: code vector j (0…7) is 64 bytes, byte 4·r + i = code of row r, column 4·j +
//   i: one 32-bit lane holds 4 consecutive columns of one row, what a 4-byte dot product against a
//   broadcast of activations wants.
//   - 8 bit: 8 code vectors as they are
//   - 4 bit: 4 vectors of 64 bytes: code vector v in the low, v + 4 in the high nibbles
//   - 5 bit: as 4 bit, then a plane of 64 bytes: bit j of a byte = bit 4 of code vector j
//   - 6 bit: as 4 bit, then two planes: bits 2·(j % 4)… of plane j / 4 = bits 4, 5 of code vector j
//   - 2 bit: two such planes alone
//   - 3 bit: as 2 bit, then a plane as of 5 bit for bit 2
//   scales: 16 values per scale group in row order (f16, bf16 or f32; for the K families u8 or i8
//   under one f16 per row and 256 columns, for the mins a second, negated one)
//
// Dense families: tile = 32 rows, stored [cols][32] in the stored element type.
// Rows beyond the matrix and columns beyond its width have scale 0 (dense: value 0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/arena.h"
#include "base/raw_tensor.h"
#include "base/thread_pool.h"

namespace mantou::cpu {

// Affine families also hold the formats with one to three bits (as 4) and five or six (as 8) of
// MLX.
enum class Family : uint8_t {
  kQ4_0,        // 4 bit − 8, f16 scale per 32
  kQ5_0,        // 5 bit − 16, f16 scale per 32
  kQ8_0,        // 8 bit − 128, f16 scale per 32
  kAffine4F16,  // scale and min per 32, 64 or 128 columns; Q4_1 and MLX
  kAffine4BF16,
  kAffine4F32,
  kAffine5F16,  // Q5_1
  kAffine8F16,
  kAffine8BF16,
  kAffine8F32,
  kQ4_K,  // u8 scale and min per 32 under f16 per 256
  kQ5_K,
  kQ6_K,    // 6 bit − 32, i8 scale per 16 under f16 per 256
  kQ3_K,    // 3 bit − 4, the same scales
  kQ2_K,    // 2 bit, 4 bit scale and min per 16 under two f16 per 256
  kIQ4_NL,  // 4 bit into a table, f16 scale per 32
  kIQ4_XS,  // the same table, i8 scale per 32 under f16 per 256
  kMXFP4,   // 4 bit E2M1, power of two (as bf16) per 32; GGUF and MLX
  kDenseF32,
  kDenseF16,
  kDenseBF16,
};
constexpr int kIntegerFamilies = int(Family::kDenseF32);
constexpr int kFamilies = int(Family::kDenseBF16) + 1;
constexpr bool is_dense(Family family) { return family >= Family::kDenseF32; }

// Changes whenever the bytes of any packed form change.
constexpr uint32_t kPackedLayoutVersion = 1;

// A view: the bytes belong to the arena it was packed into.
struct PackedMatrix {
  Family family = Family::kDenseF32;
  int group_shift = 0;  // affine families: columns per scale = 32 << group_shift
  int rows = 0;         // outputs
  int cols = 0;         // inputs
  const std::byte* data = nullptr;

  int tile_rows() const { return is_dense(family) ? 32 : 16; }
  int tiles() const { return (rows + tile_rows() - 1) / tile_rows(); }
  int blocks() const;         // blocks of a tile; dense: columns
  size_t tile_bytes() const;  // bytes of a tile
  size_t bytes() const { return size_t(tiles()) * tile_bytes(); }

  // "v1:Q4_K:0:4096x2048": equal ids mean interchangeable bytes.
  std::string layout_id() const;
};

// Packs in the format's own family, without loss; rows in logical order (row_order is applied).
// Error kUnsupported or kCorruptData naming the tensor.
PackedMatrix pack(const RawWeight& weight, Arena& arena, ThreadPool& pool);

// Any format, decoded to f32 (kDenseF32).
PackedMatrix pack_dense_f32(const RawWeight& weight, Arena& arena, ThreadPool& pool);

// Row `row` as f32 into out[cols], the same values as decode_row of the source.
void unpack_row(const PackedMatrix& matrix, int row, float* out);

}  // namespace mantou::cpu
