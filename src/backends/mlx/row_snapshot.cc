#include "backends/mlx/row_snapshot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace mantou::on_mlx {
namespace {

constexpr std::array<mx::Dtype::Val, 3> kFloatTypes{
    mx::Dtype::Val::float32, mx::Dtype::Val::float16, mx::Dtype::Val::bfloat16};

struct PlaneForm {
  mx::Shape shape;
  mx::Dtype type;

  size_t bytes() const {
    size_t bytes = mx::size_of(type);
    for (const int n : shape) bytes *= size_t(n);
    return bytes;
  }
};

// Of the planes that KvCodec::encode makes; none when there are no columns.
std::vector<PlaneForm> forms_of(const StateSpec& spec, const KvCodec& codec, int columns,
                                mx::Dtype type) {
  std::vector<PlaneForm> forms;
  const auto add = [&](int fields, mx::Dtype of) {
    forms.push_back({{1, spec.kv_heads, columns, fields}, of});
  };
  for (int plane = 0; columns > 0 && plane < 2; plane++) {
    if (codec.plain()) {
      add(spec.head_dim, type);
      continue;
    }
    add(spec.head_dim * codec.bits / 32, mx::uint32);
    for (int factors = 0; factors < 2; factors++) add(spec.head_dim / codec.group, type);
  }
  return forms;
}

array copy_of(std::span<const std::byte> bytes, const PlaneForm& form) {
  void* const memory = ::operator new(bytes.size());
  std::memcpy(memory, bytes.data(), bytes.size());
  return array(memory, form.shape, form.type, [](void* p) { ::operator delete(p); });
}

}  // namespace

Snapshot save_row(const StateSpec& spec, SavedRow row) {
  Planes& planes = row.image.planes;
  for (array& plane : planes) plane = mx::contiguous(plane);
  evaluate(planes);
  const mx::Dtype type = planes.empty() ? mx::float32 : planes.back().dtype();
  Snapshot saved{std::string(kRowLayout), spec.signature(), std::move(row.image.numbers), {}};
  saved.numbers["tokens"] = row.tokens;
  saved.numbers["minimum"] = row.minimum;
  saved.numbers["bits"] = row.codec.bits;
  saved.numbers["float_type"] =
      std::find(kFloatTypes.begin(), kFloatTypes.end(), type.val()) - kFloatTypes.begin();
  for (const array& plane : planes) {
    auto owner = std::make_shared<const array>(plane);
    const std::span<const std::byte> bytes(owner->data<std::byte>(), owner->nbytes());
    saved.ranges.push_back(
        {"plane " + std::to_string(saved.ranges.size()), bytes, std::move(owner)});
  }
  return saved;
}

int64_t saved_tokens(const SnapshotReader& reader) {
  return reader.number("tokens", 0, std::numeric_limits<int>::max());
}

SavedRow load_row(const StateSpec& spec, const Snapshot& saved, const SnapshotReader& reader,
                  int64_t columns) {
  SavedRow row{saved_tokens(reader), 0, {}, {}};
  row.minimum = reader.number("minimum", 0, row.tokens);
  if (reader.number("bits", 0, spec.quant.bits) != 0) {
    reader.number("bits", spec.quant.bits, spec.quant.bits);
    row.codec = {spec.quant.bits, spec.quant.group};
  }
  const auto type = kFloatTypes[size_t(reader.number("float_type", 0, kFloatTypes.size() - 1))];
  const uint8_t width = type == mx::Dtype::Val::float32 ? 4 : 2;
  const auto forms = forms_of(spec, row.codec, int(columns), mx::Dtype(type, width));
  std::vector<size_t> sizes;
  for (const PlaneForm& form : forms) sizes.push_back(form.bytes());
  reader.require_ranges(sizes);
  for (size_t i = 0; i < forms.size(); i++)
    row.image.planes.push_back(copy_of(saved.ranges[i].bytes, forms[i]));
  return row;
}

}  // namespace mantou::on_mlx
