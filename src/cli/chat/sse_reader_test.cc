// The rules and the examples are those of the HTML standard, section 9.2.
#include "cli/chat/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace mantou::cli {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> read(std::string_view stream, size_t piece) {
  std::vector<std::string> events;
  SseReader reader([&](const SseEvent& event) { events.push_back(event.name + "|" + event.data); });
  for (size_t at = 0; at < stream.size(); at += piece) reader.push(stream.substr(at, piece));
  return events;
}

TEST(SseReader, ExamplesOfTheStandard) {
  EXPECT_THAT(read("data: YHOO\ndata: +2\ndata: 10\n\n", 100), ElementsAre("|YHOO\n+2\n10"));
  EXPECT_THAT(read(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  "
                   "third event\n\n",
                   100),
              ElementsAre("|first event", "|second event", "| third event"));
  // The last has no blank line behind it and is discarded.
  EXPECT_THAT(read("data\n\ndata\ndata\n\ndata:", 100), ElementsAre("|", "|\n"));
  EXPECT_THAT(read("data:test\n\ndata: test\n\n", 100), ElementsAre("|test", "|test"));
  EXPECT_THAT(read("event: add\ndata: 73857293\n\nevent: none\n\ndata: x\n\n", 100),
              ElementsAre("add|73857293", "|x"));
}

TEST(SseReader, CutAnywhereGivesTheSame) {
  const std::string stream =
      "\xEF\xBB\xBF"
      "data: a\r\n\r\n: note\rdata: b\rdata: \xC3\xA4\r\revent: error\ndata:c\n\n"
      "data: d\r\n\ndata: e\n\r\n\r";
  const std::vector<std::string> whole = read(stream, stream.size());
  EXPECT_THAT(whole, ElementsAre("|a", "|b\n\xC3\xA4", "error|c", "|d", "|e"));
  for (size_t piece = 1; piece < stream.size(); piece++) EXPECT_EQ(read(stream, piece), whole);
}

TEST(SseReader, EndlessEventsAreRefused) {
  SseReader reader([](const SseEvent&) {});
  const std::string much(1 << 20, 'x');
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; i++) reader.push("data: " + much + "\n");
      },
      Error);
}

}  // namespace
}  // namespace mantou::cli
