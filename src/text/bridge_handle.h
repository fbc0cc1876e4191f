// Ownership and errors of bridge.h in C++ terms. Used by text/ only.
#pragma once

#include <bridge.h>

#include <memory>
#include <string>
#include <string_view>

namespace mantou::text {

struct BridgeDeleter {
  void operator()(BridgeTokenizer* tokenizer) const { bridge_tokenizer_free(tokenizer); }
  void operator()(BridgeTemplate* compiled) const { bridge_template_free(compiled); }
  void operator()(BridgeVocabulary* vocabulary) const { bridge_vocabulary_free(vocabulary); }
  void operator()(BridgeGrammar* grammar) const { bridge_grammar_free(grammar); }
  void operator()(BridgeRow* row) const { bridge_row_free(row); }
};
template <class T>
using BridgeHandle = std::unique_ptr<T, BridgeDeleter>;

// A buffer the bridge fills in.
template <class Buffer, void (*kFree)(Buffer)>
class BridgeBuffer {
 public:
  BridgeBuffer() = default;
  ~BridgeBuffer() { kFree(buffer_); }
  BridgeBuffer(const BridgeBuffer&) = delete;
  BridgeBuffer& operator=(const BridgeBuffer&) = delete;

  Buffer* out() { return &buffer_; }
  auto begin() const { return buffer_.data; }
  auto end() const { return buffer_.data + buffer_.size; }

 private:
  Buffer buffer_{};
};
using BridgeIdsBuffer = BridgeBuffer<BridgeIds, bridge_ids_free>;
using BridgeBytesBuffer = BridgeBuffer<BridgeBytes, bridge_bytes_free>;

inline BridgeSlice to_slice(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view to_view(BridgeSlice slice) { return {slice.data, slice.size}; }

}  // namespace mantou::text
