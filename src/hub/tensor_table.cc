#include "hub/tensor_table.h"

#include "base/error.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

// Tensors that say nothing a language model needs.
bool redundant(std::string_view name, bool tied_embeddings) {
  return name.find("rotary_emb.inv_freq") != std::string_view::npos ||
         (tied_embeddings && name.starts_with("lm_head."));
}

}  // namespace

void TensorTable::add(std::string name, RawTensor tensor) {
  const auto [found, inserted] = index_.emplace(name, entries_.size());
  if (!inserted)
    fail_param(ErrorCode::kCorruptData, name, "{}: tensors \"{}\" and \"{}\" both mean \"{}\"",
               origin_, printable(entries_[found->second].tensor.name), printable(tensor.name),
               printable(name));
  entries_.push_back({std::move(name), std::move(tensor)});
}

const RawTensor* TensorTable::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second].tensor;
}

const RawTensor& TensorTable::take(std::string_view name) {
  const auto found = index_.find(std::string(name));
  if (found == index_.end())
    fail_param(ErrorCode::kCorruptData, std::string(name), "{}: there is no tensor \"{}\"", origin_,
               printable(name));
  Entry& entry = entries_[found->second];
  entry.taken = true;
  return entry.tensor;
}

std::vector<std::string> TensorTable::unused(bool tied_embeddings) const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_)
    if (!entry.taken && !redundant(entry.name, tied_embeddings))
      out.push_back(printable(entry.tensor.name));
  return out;
}

std::vector<ModelArtifact::TensorInfo> TensorTable::infos() const {
  std::vector<ModelArtifact::TensorInfo> out;
  for (const Entry& entry : entries_)
    out.push_back({printable(entry.tensor.name), std::string(dtype_info(entry.tensor.dtype).name),
                   entry.tensor.shape, entry.tensor.bytes.size()});
  return out;
}

RawWeight plain_weight(const RawTensor& tensor) {
  RawWeight weight;
  weight.data = tensor;
  weight.cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  weight.rows = tensor.elements() / weight.cols;
  return weight;
}

}  // namespace mantou::hub
