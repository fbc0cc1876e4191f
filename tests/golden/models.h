// The real models of the golden tests: found in the directory that MANTOU_TEST_MODELS names.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

#include "engine/executor.h"

namespace mantou::golden {

inline std::filesystem::path models_directory() {
  const char* directory = std::getenv("MANTOU_TEST_MODELS");
  return directory ? directory : "";
}

// What an engine with all the memory it wants would grant.
inline Plan plan_of(const Request& request, const Executor& executor) {
  return resolve_plan(request, executor, std::numeric_limits<uint64_t>::max());
}

inline bool full_run() { return std::getenv("MANTOU_TEST_FULL") != nullptr; }

// Skips a test when no models are at hand; a directory without the file is a failure, not a skip.
#define MANTOU_NEEDS_MODELS()                     \
  if (mantou::golden::models_directory().empty()) \
  GTEST_SKIP() << "MANTOU_TEST_MODELS is not set; scripts/test.sh sets it"

}  // namespace mantou::golden
