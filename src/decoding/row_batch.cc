#include "decoding/row_batch.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::decoding {

bool RowBatch::contains(RequestId id) const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const auto& r) { return r->request.id == id; });
}

size_t RowBatch::index_of(RequestId id) const {
  for (size_t i = 0; i < rows_.size(); i++)
    if (rows_[i]->request.id == id) return i;
  fail(ErrorCode::kInternal, "request {} has no row", id);
}

void RowBatch::add(std::unique_ptr<Row> row, States state) {
  rows_.reserve(rows_.size() + 1);
  const int before = int(rows_.size());
  try {
    for (size_t i = 0; i < states_.size(); i++) {
      if (state.empty())
        states_[i]->add_row();
      else
        states_[i]->join(std::move(*state[i]));
    }
  } catch (...) {
    std::vector<int> old(static_cast<size_t>(before));
    for (int i = 0; i < before; i++) old[size_t(i)] = i;
    for (auto& s : states_)
      if (s->rows() > before) s->keep(old);
    throw;
  }
  rows_.push_back(std::move(row));
}

void RowBatch::remove(size_t index) {
  std::vector<int> kept;
  for (size_t i = 0; i < rows_.size(); i++)
    if (i != index) kept.push_back(int(i));
  for (auto& s : states_) s->keep(kept);
  rows_.erase(rows_.begin() + ptrdiff_t(index));
}

States RowBatch::fork(size_t index) const {
  States forked;
  for (const auto& s : states_) forked.push_back(s->fork(int(index)));
  return forked;
}

}  // namespace mantou::decoding
