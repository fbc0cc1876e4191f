// Compiles the grammars of requests on two threads of its own, one for short sources and one for
// long ones: one that takes long holds up nobody who asks for none, and few who ask for a usual
// one. Keeps those used last: clients send the same schema or tools again and again. Made and
// closed by the Server, shared with its Services; compile() from any thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>

#include "base/error.h"
#include "base/mailbox.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace mantou::server {

class GrammarCompiler {
 public:
  struct Options {
    size_t short_bytes = 16 << 10;
    size_t max_waiting = 128;  // of short ones, and as many long ones
    size_t max_kept = 64;
    size_t max_kept_bytes = 64 << 20;  // of memory, by Grammar::bytes()
  };
  // An Error is what Grammar::compile threw, of a grammar whose param is "grammar"; kInternal for
  // what it should not throw.
  using Result = std::variant<std::shared_ptr<const text::Grammar>, Error>;
  struct Job {
    text::GrammarSource source;
    std::function<bool()> is_wanted;          // false: it is not worth the work any more
    std::function<void(const Result&)> done;  // throws nothing
  };

  explicit GrammarCompiler(std::shared_ptr<const text::Tokenizer> tokenizer)
      : GrammarCompiler(std::move(tokenizer), Options()) {}
  GrammarCompiler(std::shared_ptr<const text::Tokenizer> tokenizer, Options options);
  ~GrammarCompiler();  // as close()
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls job.done once, unless job.is_wanted says otherwise: before it returns when the result is
  // kept from before, else on a thread of the compiler's. Throws kResourceExhausted when too many
  // wait, kUnavailable behind close().
  void compile(Job job);

  // Ends what waits with kUnavailable; waits for what is being compiled, 30 s at most. One thread
  // at a time, and none of the compiler's.
  void close();

 private:
  struct Kept {
    text::GrammarSource source;
    Result result;
    size_t bytes;
  };

  struct Lane {
    explicit Lane(size_t max_waiting) : waiting(max_waiting) {}
    Mailbox<Job> waiting;
    std::thread thread;
  };

  void run(Job& job);
  Result compile(const text::GrammarSource& source) const;
  const Result* find(const text::GrammarSource& source);  // mutex_ is held
  void keep(const text::GrammarSource& source, const Result& result);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const Options options_;
  std::mutex mutex_;      // of the three below
  std::list<Kept> kept_;  // used last, first
  size_t kept_bytes_ = 0;
  bool closed_ = false;
  Lane short_, long_;
};

}  // namespace mantou::server
