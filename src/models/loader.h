// Takes weights out of an artifact for a model that is being built: checked against the shapes the
// configuration implies, rows put into the order the model wants, packed by the backend. Lives
// while a model loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/model_artifact.h"
#include "tensor/backend.h"

namespace mantou::models {

using RowList = std::vector<uint32_t>;

// first … first + count − 1.
RowList row_range(int64_t first, int64_t count);

// Where one expert's matrix lies: rows of module.weight (and of module.bias), which has `stored`
// rows in all. No rows: all.
struct ExpertRows {
  std::string module;
  int64_t stored = 0;
  RowList rows;
};

class Loader {
 public:
  Loader(hub::ModelArtifact& artifact, Backend& backend) : artifact_(artifact), backend_(backend) {}

  bool has(const std::string& tensor) const { return artifact_.has(tensor); }

  // The file may hold this matrix or vector, and the model does without.
  void leave_out(const std::string& module) {
    if (has(module + ".weight")) artifact_.weight(module);
  }

  // Elements of a tensor.
  int64_t size(const std::string& tensor) { return artifact_.tensor(tensor).elements(); }

  // module.weight as stored: [rows, cols].
  Weight matrix(const std::string& module, int64_t rows, int64_t cols,
                WeightUse use = WeightUse::kMatrix);

  // Rows `order` of module.weight (and of module.bias), which has `stored` rows in all; a stack of
  // matrices [e, rows, cols] has e · rows. An empty order takes all.
  Linear linear(const std::string& module, int64_t stored, int64_t cols, bool bias,
                const RowList& order = {}, WeightUse use = WeightUse::kMatrix);

  // One matrix of every expert, with their biases one after another.
  Linear experts(const std::vector<ExpertRows>& each, int64_t cols, bool bias);

  // A tensor of `size` floats, whatever its shape; or several of that size, one after another.
  Weight vector(const std::string& name, int64_t size) { return vector(Names{name}, size); }
  using Names = std::vector<std::string>;
  Weight vector(const Names& names, int64_t size);

  hub::ModelArtifact& artifact() { return artifact_; }

 private:
  // A tensor of `size` floats as one value a row, so that rows can be selected before any is
  // decoded.
  RawWeight float_column(const std::string& name, int64_t size);
  // Columns, one below the other, as one vector.
  Weight pack_vector(const std::vector<RawWeight>& columns, const std::string& name);
  RawWeight raw(const std::string& module, int64_t rows, int64_t cols);
  void require_finite(const RawWeight& raw, const std::string& name) const;
  Weight pack(const RawWeight& raw, const std::string& name, WeightUse use);

  hub::ModelArtifact& artifact_;
  Backend& backend_;
};

}  // namespace mantou::models
