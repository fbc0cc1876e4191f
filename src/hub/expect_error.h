// For tests: that an Error says what it should. Header only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace mantou::hub::testing {

// Runs `call` and expects an Error with `code` whose message contains `text`.
template <class Call>
void expect_error(ErrorCode code, const std::string& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error, where one was to say: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_THAT(error.message(), ::testing::HasSubstr(text));
  }
}

}  // namespace mantou::hub::testing
