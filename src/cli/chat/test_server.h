// A server on loopback for tests that answers each request with the bytes a script gives and closes
// the connection. A thread; ends with the object.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ascii.h"

namespace mantou::cli {

struct SeenRequest {
  std::string head;  // the request line and the headers
  std::string body;
};

class TestServer {
 public:
  // The bytes of the whole answer; `hold` sends them and is silent until the client goes.
  struct Script {
    std::string bytes;
    bool hold = false;
  };
  using Answer = std::function<Script(const SeenRequest&)>;

  explicit TestServer(Answer answer) : answer_(std::move(answer)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd_ < 0 || ::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(fd_, 8) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~TestServer() {
    stop_ = true;
    thread_.join();
    ::close(fd_);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<SeenRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string json(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) +
           " x\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string stream(const std::string& events) {
    return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n" + events;
  }

 private:
  static bool wait(int fd) {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, 20) > 0;
  }
  void run() {
    while (!stop_) {
      if (!wait(fd_)) continue;
      const int client = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      serve(client);
      ::close(client);
    }
  }
  void serve(int client) {
    std::string text;
    size_t end = std::string::npos;
    char buffer[4096];
    for (;;) {
      end = text.find("\r\n\r\n");
      if (end != std::string::npos && text.size() >= end + 4 + length_of(text.substr(0, end)))
        break;
      if (stop_) return;
      if (!wait(client)) continue;
      const ssize_t n = ::recv(client, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      text.append(buffer, size_t(n));
    }
    const SeenRequest request{text.substr(0, end), text.substr(end + 4)};
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const Script script = answer_(request);
    ::send(client, script.bytes.data(), script.bytes.size(), MSG_NOSIGNAL);
    while (script.hold && !stop_ && !wait(client)) {
    }
  }
  static size_t length_of(const std::string& head) {
    const size_t at = lower(head).find("content-length: ");
    return at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
  }

  const Answer answer_;
  int fd_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<SeenRequest> requests_;
  std::thread thread_;
};

}  // namespace mantou::cli
