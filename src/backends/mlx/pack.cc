#include "backends/mlx/pack.h"

#include <cstring>

#include "base/error.h"

namespace mantou::on_mlx {
namespace {

struct TypeOf {
  DType stored;
  mx::Dtype type;
};

std::optional<mx::Dtype> plain_type(DType dtype) {
  static const TypeOf kTypes[] = {{DType::kF32, mx::float32},
                                  {DType::kF16, mx::float16},
                                  {DType::kBF16, mx::bfloat16},
                                  {DType::kU32, mx::uint32},
                                  {DType::kU8, mx::uint8}};
  for (const TypeOf& known : kTypes)
    if (known.stored == dtype) return known.type;
  return std::nullopt;
}

const char* mode_name(QuantMode mode) {
  switch (mode) {
    case QuantMode::kAffine:
      return "affine";
    case QuantMode::kMxFp4:
      return "mxfp4";
    case QuantMode::kNvFp4:
      return "nvfp4";
    case QuantMode::kMxFp8:
      return "mxfp8";
  }
  return "";
}

// The bytes of a plain tensor of several matrices, the rows of each in its order, as an array.
class Gather {
 public:
  Gather(size_t bytes, mx::Shape shape, mx::Dtype type)
      : bytes_(std::make_shared<std::vector<std::byte>>(bytes)),
        shape_(std::move(shape)),
        type_(type) {}

  // `rows` rows of `raw.bytes`, in `order` when that is not empty.
  void add(const RawTensor& raw, int64_t rows, std::span<const uint32_t> order) {
    const size_t width = raw.bytes.size() / size_t(rows);
    if (at_ + raw.bytes.size() > bytes_->size())
      fail(ErrorCode::kInternal, "{}: more bytes than its shape", raw.name);
    if (order.empty()) {
      std::memcpy(bytes_->data() + at_, raw.bytes.data(), raw.bytes.size());
    } else {
      for (size_t r = 0; r < order.size(); r++)
        std::memcpy(bytes_->data() + at_ + r * width, raw.bytes.data() + order[r] * width, width);
    }
    at_ += raw.bytes.size();
  }

  // Where MLX can use the bytes as they are, they live as long as the array.
  array finish() {
    return array(bytes_->data(), std::move(shape_), type_, [bytes = bytes_](void*) {});
  }

 private:
  const std::shared_ptr<std::vector<std::byte>> bytes_;
  size_t at_ = 0;
  mx::Shape shape_;
  mx::Dtype type_;
};

array decoded(std::span<const RawWeight> matrices, mx::Shape shape) {
  std::vector<float> values;
  for (const RawWeight& m : matrices) {
    const size_t at = values.size();
    values.resize(at + size_t(m.rows) * size_t(m.cols));
    for (int64_t r = 0; r < m.rows; r++)
      decode_row(m, r, {values.data() + at + size_t(r * m.cols), size_t(m.cols)});
  }
  return array(values.data(), std::move(shape), mx::float32);
}

// One part (codes, scales, biases) of all matrices; `lead` is the shape before the last axis.
array gathered(std::span<const RawWeight> matrices, const mx::Shape& lead,
               const std::function<const RawTensor&(const RawWeight&)>& part) {
  const RawTensor& first = part(matrices[0]);
  const auto type = plain_type(first.dtype);
  size_t bytes = 0;
  for (const RawWeight& m : matrices) {
    const RawTensor& raw = part(m);
    if (raw.dtype != first.dtype || raw.bytes.size() != first.bytes.size())
      fail_param(ErrorCode::kUnsupported, raw.name, "{} is not stored like {}", raw.name,
                 first.name);
    bytes += raw.bytes.size();
  }
  const size_t width = first.bytes.size() / size_t(matrices[0].rows) / mx::size_of(*type);
  mx::Shape shape = lead;
  shape.push_back(int(width));
  Gather gather(bytes, std::move(shape), *type);
  for (const RawWeight& m : matrices) gather.add(part(m), m.rows, m.row_order);
  return gather.finish();
}

std::shared_ptr<ArrayStorage> pack_all(std::span<const RawWeight> matrices, mx::Shape lead) {
  const RawWeight& first = matrices[0];
  const auto data = [](const RawWeight& m) -> const RawTensor& { return m.data; };
  if (!first.scales) {
    if (plain_type(first.data.dtype))
      return std::make_shared<ArrayStorage>(gathered(matrices, lead, data));
    lead.push_back(int(first.cols));
    return std::make_shared<ArrayStorage>(decoded(matrices, std::move(lead)));
  }
  for (const RawWeight& m : matrices)
    if (m.mode != first.mode || m.bits != first.bits || m.group != first.group || !m.scales ||
        m.biases.has_value() != first.biases.has_value())
      fail_param(ErrorCode::kUnsupported, m.data.name, "{} is not quantized like {}", m.data.name,
                 first.data.name);
  auto storage = std::make_shared<ArrayStorage>(gathered(matrices, lead, data));
  storage->scales =
      gathered(matrices, lead, [](const RawWeight& m) -> const RawTensor& { return *m.scales; });
  if (first.biases)
    storage->biases =
        gathered(matrices, lead, [](const RawWeight& m) -> const RawTensor& { return *m.biases; });
  storage->bits = first.bits;
  storage->group = first.group;
  storage->mode = mode_name(first.mode);
  return storage;
}

}  // namespace

std::shared_ptr<ArrayStorage> pack(const RawWeight& raw, WeightUse use) {
  return pack_all({&raw, 1}, use == WeightUse::kVector ? mx::Shape{} : mx::Shape{int(raw.rows)});
}

std::shared_ptr<ArrayStorage> pack_experts(std::span<const RawWeight> experts) {
  return pack_all(experts, {int(experts.size()), int(experts[0].rows)});
}

}  // namespace mantou::on_mlx
