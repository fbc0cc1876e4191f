// What one client may take from the others: sizes, times and connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/log.h"
#include "server/test_transport.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

TEST(RequestReader, TheFirstLineAndTheNumberOfFieldsHaveLimits) {
  HttpLimits limits;
  limits.target_bytes = 100;
  limits.header_fields = 3;
  const std::string end = " HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\n";
  const std::string line = "GET /" + std::string(100 - 5 - 10, 'x');  // with end's CR: 100
  const struct {
    std::string bytes;
    int status;  // 0: it is taken
  } cases[] = {
      {line + end + "\r\n", 0},
      {line + "x" + end + "\r\n", 414},
      {line + std::string(200, 'x'), 414},  // whatever follows
      {line + end + "C: 3\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(200, 'x') + "\r\n\r\n", 0},
  };
  for (const auto& [bytes, status] : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, bytes.size()}) {
      RequestReader reader(limits);
      RequestReader::State state = RequestReader::State::kMore;
      std::string held;
      for (size_t at = 0; at < bytes.size() && state == RequestReader::State::kMore; at += step) {
        held += bytes.substr(at, step);
        for (size_t used = 1; used > 0 && state == RequestReader::State::kMore; held.erase(0, used))
          state = reader.feed(held, used);
      }
      EXPECT_EQ(state, status == 0 ? RequestReader::State::kDone : RequestReader::State::kProblem)
          << bytes << " by " << step;
      if (status != 0) {
        EXPECT_EQ(reader.problem().status, status) << bytes;
      }
    }
  }
}

TEST_F(TransportTest, SilentClientsAreSentAway) {
  HttpOptions options;
  options.limits.header_time = 50ms;
  options.limits.body_time = 50ms;
  options.limits.idle_time = 50ms;
  start(options);
  TestClient idle(port()), header(port()), body(port());
  header.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx");
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(header.read().status, 408);
  EXPECT_EQ(body.read().status, 408);
}

// One byte now and then must not hold a connection for ever.
TEST_F(TransportTest, ATricklingHeaderRunsOutOfTime) {
  HttpOptions options;
  options.limits.header_time = 100ms;
  start(options);
  TestClient client(port());
  client.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 100; ++i) {
    client.send("X: y\r\n");
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(client.read().status, 408);
}

TEST_F(TransportTest, AClientThatDoesNotReadIsSentAwayInTime) {
  HttpOptions options;
  options.limits.write_time = 100ms;
  start(options);
  TestClient client(port(), 4096);
  client.request("GET", "/later");
  const auto responder = held();
  std::promise<void> gone;
  responder->on_gone([&] { gone.set_value(); });
  responder->begin_stream(kEventStream);
  const std::string piece(64 << 10, 'x');
  // More than the system's buffers take; below the limit of bytes at each moment or refused.
  for (int i = 0; i < 400 && responder->write(piece); ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
}

// The same within a body, where each byte is a piece in time.
TEST_F(TransportTest, ATricklingBodyRunsOutOfTime) {
  HttpOptions options;
  options.limits.body_time = 100ms;
  options.limits.slowest_rate = 1 << 20;
  start(options);
  TestClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
  for (int i = 0; i < 100; ++i) {
    client.send("x");
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(client.read().status, 408);
  EXPECT_EQ(requests_, 0);
}

TEST_F(TransportTest, ASlowBodyThatKeepsUpIsTaken) {
  HttpOptions options;
  options.limits.body_time = 200ms;
  options.limits.slowest_rate = 10;
  start(options);
  TestClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 40\r\n\r\n");
  for (int i = 0; i < 40; ++i) {
    client.send("x");
    std::this_thread::sleep_for(10ms);  // 400 ms in all
  }
  EXPECT_EQ(client.read().body, "POST / " + std::string(40, 'x'));
}

// Reads an answer far larger than the buffers between in pieces with pauses, about a second in all.
// Returns how much came.
size_t read_slowly(TestClient& client) {
  constexpr size_t kPiece = 64 << 10;
  client.read_until("\r\n\r\n");
  size_t got = 0;
  try {
    for (;; got += kPiece) {
      client.read_bytes(kPiece);
      std::this_thread::sleep_for(4ms);
    }
  } catch (const std::runtime_error&) {
    return got;
  }
}

TEST_F(TransportTest, AReaderThatTakesTooLongOnTheWholeIsCutOff) {
  constexpr size_t kSize = 16 << 20;
  for (const bool patient : {false, true}) {
    HttpOptions options;
    options.limits.write_time = 150ms;
    options.limits.slowest_rate = patient ? 1 << 20 : 1 << 30;
    start(options);
    TestClient client(port(), 4096);
    client.send("GET /later HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    held()->send({200, std::string(kSize, 'x')});
    EXPECT_EQ(read_slowly(client) == kSize, patient);
    server_.reset();
  }
}

TEST_F(TransportTest, IdleConnectionsGiveWayToNewOnes) {
  HttpOptions options;
  options.limits.connections = 2;
  start(options);
  TestClient first(port());
  EXPECT_EQ(first.get("/").status, 200);
  TestClient second(port());
  EXPECT_EQ(second.get("/").status, 200);
  EXPECT_EQ(first.get("/").status, 200);  // now the second is idle for longer
  TestClient third(port());
  EXPECT_EQ(third.get("/third").body, "GET /third ");
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(first.get("/").status, 200);
}

TEST_F(TransportTest, MoreBusyConnectionsThanAllowedWaitTheirTurn) {
  HttpOptions options;
  options.limits.connections = 2;
  start(options);
  TestClient first(port()), second(port());
  first.request("GET", "/later");
  second.request("GET", "/later");
  const auto one = held(), two = held();
  TestClient third(port()), fourth(port());
  third.request("GET", "/third");
  fourth.request("GET", "/fourth");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(requests_, 2);
  one->send({200, "one"});
  two->send({200, "two"});
  EXPECT_EQ(first.read().body, "one");
  EXPECT_EQ(second.read().body, "two");
  EXPECT_EQ(third.read().body, "GET /third ");
  EXPECT_EQ(fourth.read().body, "GET /fourth ");
}

TEST_F(TransportTest, FiveHundredConnectionsAreAllAnsweredAndKept) {
  start();
  constexpr int kClients = 500;
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(std::make_unique<TestClient>(port()));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kClients; ++i) clients[size_t(i)]->request("GET", fmt::format("/{}", i));
    for (int i = 0; i < kClients; ++i)
      ASSERT_EQ(clients[size_t(i)]->read().body, fmt::format("GET /{} ", i));
  }
}

// The connection ends in time, though the client goes on sending after a refusal.
TEST_F(TransportTest, WhatFollowsARefusedBodyIsReadForAShortTimeOnly) {
  HttpOptions options;
  options.limits.body_bytes = 1000;
  start(options);
  TestClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_EQ(client.read().status, 413);
  const auto began = Clock::now();
  while (client.send(std::string(1000, 'x')) && Clock::now() - began < 10s)
    std::this_thread::sleep_for(5ms);
  EXPECT_LT(Clock::now() - began, 5s);
}

// Info lines of the requests while `act` runs.
template <class Act>
std::string logged(const Act& act) {
  testing::internal::CaptureStderr();
  set_log_level(LogLevel::kInfo);
  act();
  set_log_level(LogLevel::kWarn);
  return testing::internal::GetCapturedStderr();
}

TEST_F(TransportTest, ALogLineARequestWithWhatItCost) {
  start();
  const std::string log = logged([&] {
    TestClient client(port());
    client.request("POST", "/a%20b?key=hidden", "secret body", "X-Request-Id: r-1\r\n");
    client.read();
    client.request("GET", "/stream", {}, "X-Request-Id: r-2\r\n");
    client.read();
    client.send("GET / HTTP/9.9\r\n\r\n");
    client.read();
    EXPECT_TRUE(client.closed());
    server_.reset();
  });
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3);
  EXPECT_THAT(log, testing::ContainsRegex(" info request id=r-1 method=POST path=\"/a b\" "
                                          "status=200 bytes=[0-9]+ ms=[0-9.]+\n"));
  EXPECT_THAT(log, HasSubstr("id=r-2 method=GET path=/stream status=200 bytes="));
  EXPECT_THAT(log, HasSubstr("status=400 bytes="));
  EXPECT_THAT(log, testing::Not(testing::AnyOf(HasSubstr("secret"), HasSubstr("hidden"))));
}

TEST_F(TransportTest, TheLogCountsBytesAsTheyLeft) {
  start();
  size_t received = 0;
  const std::string log = logged([&] {
    TestClient client(port());
    client.send("GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    received = client.count_until_closed();
    server_.reset();
  });
  EXPECT_THAT(log, HasSubstr(fmt::format(" bytes={} ", received)));
}

TEST_F(TransportTest, AClientThatLeftIsLoggedAs499) {
  start();
  const std::string log = logged([&] {
    TestClient client(port());
    client.request("GET", "/later");
    const auto responder = held();
    std::promise<void> gone;
    responder->on_gone([&] { gone.set_value(); });
    client.close();
    EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
    server_.reset();
  });
  EXPECT_THAT(log, HasSubstr("path=/later status=499 bytes=25 "));  // "100 Continue", to find out
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

TEST_F(TransportTest, KeptConnectionsAreAnsweredOnceMoreWhileTheServerEnds) {
  start();
  TestClient kept(port()), busy(port()), idle(port());
  EXPECT_EQ(kept.get("/").header("connection"), "");
  EXPECT_EQ(idle.get("/").status, 200);
  busy.request("GET", "/later");
  const auto responder = held();
  server_->stop_accepting();
  for (int i = 0; i < 5000 && kept.get("/").header("connection") != "close"; ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(kept.closed());
  EXPECT_THROW(TestClient{port()}, std::runtime_error);
  responder->send({200, "whole"});
  EXPECT_EQ(busy.read().body, "whole");
  EXPECT_TRUE(busy.closed());
  const auto began = Clock::now();
  server_->stop(10s);
  EXPECT_LT(Clock::now() - began, 5s) << "nobody waits for the idle one";
  EXPECT_TRUE(idle.closed());
}

}  // namespace
}  // namespace mantou::server
