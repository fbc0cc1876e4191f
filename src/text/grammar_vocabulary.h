// What grammars know of a tokenizer, a few bytes a token. Used by text/ only.
#pragma once

#include "text/bridge_handle.h"

namespace mantou::text {

class Tokenizer;

class GrammarVocabulary {
 public:
  explicit GrammarVocabulary(const Tokenizer& tokenizer);
  const BridgeVocabulary* handle() const { return handle_.get(); }

 private:
  BridgeHandle<BridgeVocabulary> handle_;
};

}  // namespace mantou::text
