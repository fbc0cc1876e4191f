// For tests: the transport with a handler that answers with what it got, or later.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "server/http_server.h"
#include "server/sse.h"
#include "server/test_client.h"

namespace mantou::server {

// A server whose handler answers with what it got.
class TransportTest : public testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    server_ = std::make_unique<HttpServer>(
        options, [this](const HttpRequest& request, std::shared_ptr<Responder> responder) {
          ++requests_;
          if (request.path == "/later") {
            std::lock_guard lock(mutex_);
            held_.push_back(std::move(responder));
            return;
          }
          if (request.path == "/stream") {
            responder->begin_stream(kEventStream);
            for (const char* text : {"one", "two"}) responder->write(sse_event(text));
            return responder->finish();
          }
          responder->send({200, request.method + " " + request.path + " " + request.body});
        });
  }
  int port() const { return server_->port(); }
  std::shared_ptr<Responder> held() {
    for (int i = 0; i < 20000; ++i) {
      {
        std::lock_guard lock(mutex_);
        if (!held_.empty()) {
          auto responder = held_.front();
          held_.erase(held_.begin());
          return responder;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw std::runtime_error("no request arrived");
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Responder>> held_;
  std::atomic<int> requests_{0};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace mantou::server
