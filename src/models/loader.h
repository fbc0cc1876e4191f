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

class Loader {
 public:
  Loader(hub::ModelArtifact& artifact, Backend& backend) : artifact_(artifact), backend_(backend) {}

  bool has(const std::string& tensor) const { return artifact_.has(tensor); }

  // Elements of a tensor.
  int64_t size(const std::string& tensor) { return artifact_.tensor(tensor).elements(); }

  // module.weight as stored: [rows, cols].
  Weight matrix(const std::string& module, int64_t rows, int64_t cols,
                WeightUse use = WeightUse::kMatrix);

  // Rows `order` of module.weight (and of module.bias), which has `stored` rows in all; a stack of
  // matrices [e, rows, cols] has e · rows. An empty order takes all.
  Linear linear(const std::string& module, int64_t stored, int64_t cols, bool bias,
                const RowList& order = {}, WeightUse use = WeightUse::kMatrix);

  // The values of a tensor of `size` floats, whatever its shape.
  std::vector<float> floats(const std::string& name, int64_t size);
  Weight vector(const std::string& name, const std::vector<float>& values);
  Weight vector(const std::string& name, int64_t size) { return vector(name, floats(name, size)); }

  hub::ModelArtifact& artifact() { return artifact_; }

 private:
  // A tensor of `size` floats as one value a row, so that rows can be selected before any is
  // decoded.
  RawWeight float_column(const std::string& name, int64_t size);
  std::vector<float> decode(RawWeight column, const std::string& name);
  RawWeight raw(const std::string& module, int64_t rows, int64_t cols);
  void require_finite(const RawWeight& raw, const std::string& name) const;
  Weight pack(const RawWeight& raw, const std::string& name, WeightUse use);

  hub::ModelArtifact& artifact_;
  Backend& backend_;
};

}  // namespace mantou::models
