// For tests: a whole server over loopback, with real sockets, a real engine thread and a scripted
// executor.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/fake_executor.h"
#include "server/server.h"
#include "server/test_client.h"

namespace mantou::server {

using nlohmann::json;

// The bytes of `text`, then the end token.
inline auto answer(const std::string& text) {
  return [text](const Request&, int64_t i) {
    return GeneratedToken{i < int64_t(text.size()) ? TokenId(uint8_t(text[size_t(i)])) : 0, 0, {}};
  };
}

inline json chat_body(const json& more = json::object()) {
  json body = {{"model", "any"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  body.update(more);
  return body;
}

inline json completion_body(const json& more = json::object()) {
  json body = {{"model", "any"}, {"prompt", "Hi"}};
  body.update(more);
  return body;
}

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    script_.capabilities.vocab_size = 256;
    script_.capabilities.numerics_id = "fake-1";
    script_.token = answer("Hello, world");
    script_.on_admit = [this](const Request& request) {
      std::lock_guard lock(mutex_);
      admitted_.push_back(request);
    };
    options_.http.port = 0;
  }
  void start(EngineOptions engine = {}) {
    engine_ = std::make_unique<Engine>(std::make_unique<FakeExecutor>(script_, record_), engine);
    server_ = std::make_unique<Server>(options_);
    server_->attach({*engine_, std::make_shared<ByteTokenizer>(), std::make_shared<LineTemplate>(),
                     "org/tiny", 1700000000, defaults_, output_format_});
  }
  // As main ends them: workers and compilers of grammars use the engine until the server has
  // stopped.
  void TearDown() override {
    if (server_) server_->stop_accepting();
    if (engine_) engine_->shutdown(std::chrono::milliseconds(0));
    server_.reset();
    engine_.reset();
    EXPECT_THAT(record_->violations(), testing::IsEmpty());
    EXPECT_EQ(record_->live_rows(), 0);
  }
  int port() const { return server_->port(); }
  Reply post(std::string_view path, const json& body) {
    TestClient client(port());
    return client.post(path, body);
  }
  Request last_admitted() {
    std::lock_guard lock(mutex_);
    return admitted_.back();
  }
  void wait_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "condition never became true";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  FakeScript script_;
  ServerOptions options_;
  RequestDefaults defaults_;
  text::OutputFormat output_format_;
  std::shared_ptr<FakeRecord> record_ = std::make_shared<FakeRecord>();
  std::mutex mutex_;
  std::vector<Request> admitted_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
};

}  // namespace mantou::server
