#include "server/grammar_compiler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace mantou::server {
namespace {

Error ending_error() { return {ErrorCode::kUnavailable, "the server is shutting down"}; }

// The same text would be refused again; a lack of time or memory may pass.
bool is_final(const GrammarCompiler::Result& result) {
  const Error* error = std::get_if<Error>(&result);
  return error == nullptr || error->code() == ErrorCode::kInvalidArgument ||
         error->code() == ErrorCode::kUnsupported;
}

size_t bytes_of(const text::GrammarSource& source) {
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += sizeof(std::string) + choice.size();
  return bytes;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const text::Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      short_(options.max_waiting),
      long_(options.max_waiting) {
  for (Lane* lane : {&short_, &long_})
    lane->thread = std::thread([this, lane] {
      while (auto job = lane->waiting.pop()) run(*job);
    });
}

GrammarCompiler::~GrammarCompiler() { close(); }

void GrammarCompiler::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (Lane* lane : {&short_, &long_}) lane->waiting.close();
  for (Lane* lane : {&short_, &long_})
    if (lane->thread.joinable()) lane->thread.join();
}

void GrammarCompiler::compile(Job job) {
  std::unique_lock lock(mutex_);
  if (closed_) throw ending_error();
  if (const Result* kept = find(job.source)) {
    const Result result = *kept;
    lock.unlock();
    return job.done(result);
  }
  // Still under the lock, so that it is not close() that refuses.
  Lane& lane = bytes_of(job.source) <= options_.short_bytes ? short_ : long_;
  if (!lane.waiting.push(std::move(job)))
    fail(ErrorCode::kResourceExhausted,
         "{} grammars wait to be compiled already: try again in a moment", options_.max_waiting);
}

void GrammarCompiler::run(Job& job) {
  std::unique_lock lock(mutex_);
  const bool closed = closed_;
  // It may have been compiled while this one waited.
  const Result* kept = closed ? nullptr : find(job.source);
  const Result known = kept != nullptr ? *kept : Result(ending_error());
  lock.unlock();
  if (closed || kept != nullptr) return job.done(known);
  if (!job.is_wanted()) return;
  const Result result = compile(job.source);
  if (is_final(result)) keep(job.source, result);
  job.done(result);
}

GrammarCompiler::Result GrammarCompiler::compile(const text::GrammarSource& source) const try {
  return text::Grammar::compile(*tokenizer_, source);
} catch (const Error& error) {
  return error;
} catch (const std::bad_alloc&) {
  return Error(ErrorCode::kUnavailable, "out of memory");
} catch (const std::exception& other) {
  log_error("grammar", {{"error", other.what()}});
  return Error(ErrorCode::kInternal, "unexpected failure");
}

const GrammarCompiler::Result* GrammarCompiler::find(const text::GrammarSource& source) {
  const auto found = std::ranges::find(kept_, source, &Kept::source);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return &found->result;
}

void GrammarCompiler::keep(const text::GrammarSource& source, const Result& result) try {
  size_t bytes = bytes_of(source);
  if (const auto* grammar = std::get_if<std::shared_ptr<const text::Grammar>>(&result))
    bytes += bytes_of((*grammar)->source()) + (*grammar)->bytes();
  if (bytes > options_.max_kept_bytes) return;
  std::lock_guard lock(mutex_);
  kept_.push_front({source, result, bytes});
  kept_bytes_ += bytes;
  while (kept_.size() > options_.max_kept || kept_bytes_ > options_.max_kept_bytes) {
    kept_bytes_ -= kept_.back().bytes;
    kept_.pop_back();
  }
} catch (const std::bad_alloc&) {
  log_warn("no memory to keep a grammar");
}

}  // namespace mantou::server
