#include "base/log.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/mailbox.h"

namespace mantou {
namespace {

TEST(Log, PlainValuesStayBareOthersAreQuotedAndEscaped) {
  EXPECT_EQ(format_log_line("request", {{"id", "a-1"}, {"status", 200}, {"ms", 1.5}}),
            "request id=a-1 status=200 ms=1.5");
  EXPECT_EQ(format_log_line("x", {{"path", "/a b"}, {"empty", ""}}), "x path=\"/a b\" empty=\"\"");
  EXPECT_EQ(format_log_line("x", {{"p", "a\"b\\c\r\nerror forged=1"}}),
            "x p=\"a\\\"b\\\\c\\x0d\\x0aerror forged=1\"");
}

// Read back by a parser of JSON: what it finds is what was logged.
TEST(Log, JsonMembersHoldTheSameValues) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string text = format_log_members("request", {{"id", "a\"b\\c\r\n\x01"},
                                                          {"status", 200},
                                                          {"ms", 1.5},
                                                          {"big", 1e300},
                                                          {"on", true},
                                                          {"none", nan},
                                                          {"path", "/\xff\xc3\xa9"},
                                                          {"digits", "12"}});
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse("{" + text + "}");
  EXPECT_EQ(json["event"], "request");
  EXPECT_EQ(json["id"], "a\"b\\c\r\n\x01");
  EXPECT_EQ(json["status"], 200);
  EXPECT_EQ(json["ms"], 1.5);
  EXPECT_EQ(json["big"], 1e300);
  EXPECT_EQ(json["on"], true);
  EXPECT_EQ(json["none"], "nan");
  EXPECT_EQ(json["path"], "/\xef\xbf\xbd\xc3\xa9");
  EXPECT_EQ(json["digits"], "12");
}

TEST(Mailbox, KeepsOrderAndRefusesWhenFullOrClosed) {
  Mailbox<int> mailbox(2);
  EXPECT_TRUE(mailbox.push(1));
  EXPECT_TRUE(mailbox.push(2));
  EXPECT_FALSE(mailbox.push(3));
  EXPECT_EQ(mailbox.pop(), 1);
  mailbox.close();
  EXPECT_FALSE(mailbox.push(4));
  EXPECT_EQ(mailbox.pop(), 2);
  EXPECT_EQ(mailbox.pop(), std::nullopt);
}

TEST(Mailbox, EveryMessageOfManyWritersArrivesOnceAtManyReaders) {
  constexpr int kWriters = 4, kEach = 500;
  Mailbox<int> mailbox;
  std::vector<long> sums(2, 0);
  std::vector<int> counts(2, 0);
  std::vector<std::thread> readers, writers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      while (const auto message = mailbox.pop()) {
        sums[r] += *message;
        ++counts[r];
      }
    });
  }
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < kEach; ++i) mailbox.push(w * kEach + i);
    });
  }
  for (std::thread& thread : writers) thread.join();
  mailbox.close();
  for (std::thread& thread : readers) thread.join();
  constexpr long kAll = kWriters * kEach;
  EXPECT_EQ(counts[0] + counts[1], kAll);
  EXPECT_EQ(sums[0] + sums[1], kAll * (kAll - 1) / 2);
}

}  // namespace
}  // namespace mantou
