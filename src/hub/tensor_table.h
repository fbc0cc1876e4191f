// The tensors of a checkpoint by their logical names, with the marks of the weight audit.
// Owned by an artifact; filled while it opens, marked by the thread that loads the weights.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/raw_tensor.h"
#include "hub/model_artifact.h"

namespace mantou::hub {

class TensorTable {
 public:
  explicit TensorTable(std::string origin) : origin_(std::move(origin)) {}

  // `name` is the logical name, tensor.name the file's. A name that is taken is an error.
  void add(std::string name, RawTensor tensor);

  const RawTensor* find(std::string_view name) const;  // does not mark it
  const RawTensor& take(std::string_view name);        // marks it; missing: an error that names it

  // The file's names of what nobody took, without what is redundant (derived tables, other towers).
  std::vector<std::string> unused(bool tied_embeddings) const;
  std::vector<ModelArtifact::TensorInfo> infos() const;

 private:
  struct Entry {
    std::string name;
    RawTensor tensor;
    bool taken = false;
  };
  std::string origin_;
  std::vector<Entry> entries_;  // in file order
  std::unordered_map<std::string, size_t> index_;
};

// `tensor` as a dense weight or one in GGUF blocks: a vector has one row, leading extents are
// folded into the rows.
RawWeight plain_weight(const RawTensor& tensor);

}  // namespace mantou::hub
