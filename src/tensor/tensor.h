// A matrix of activations that some backend made: [rows, cols], one row a token of the flat batch.
//
// A value: copying shares the storage, the last copy gives it back to the backend's pool. Only the
// backend that made a Tensor looks inside. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace mantou {

class Tensor {
 public:
  Tensor() = default;
  Tensor(int64_t rows, int64_t cols, std::shared_ptr<void> storage)
      : rows_(rows), cols_(cols), storage_(std::move(storage)) {}

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  explicit operator bool() const { return storage_ != nullptr; }
  void* storage() const { return storage_.get(); }  // for the backend alone

 private:
  int64_t rows_ = 0, cols_ = 0;
  std::shared_ptr<void> storage_;
};

}  // namespace mantou
