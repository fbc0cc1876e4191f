#include "base/raw_tensor.h"

#include <array>

#include "base/error.h"

namespace mantou {
namespace {

constexpr std::array<DTypeInfo, 26> kInfo = {{
    {"F64", 1, 8},        {"F32", 1, 4},     {"F16", 1, 2},      {"BF16", 1, 2},
    {"I64", 1, 8},        {"I32", 1, 4},     {"I16", 1, 2},      {"I8", 1, 1},
    {"U64", 1, 8},        {"U32", 1, 4},     {"U16", 1, 2},      {"U8", 1, 1},
    {"BOOL", 1, 1},       {"Q4_0", 32, 18},  {"Q4_1", 32, 20},   {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},     {"Q8_0", 32, 34},  {"Q4_K", 256, 144}, {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},   {"Q2_K", 256, 84}, {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18},
    {"IQ4_XS", 256, 136}, {"MXFP4", 32, 17},
}};

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kInfo.at(size_t(dtype)); }

size_t dtype_bytes(DType dtype, size_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  if (elements % size_t(info.block_size) != 0)
    fail(ErrorCode::kInternal, "{} elements are no whole number of {} blocks", elements, info.name);
  return elements / size_t(info.block_size) * size_t(info.block_bytes);
}

int64_t RawTensor::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

}  // namespace mantou
