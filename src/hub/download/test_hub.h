// A model hub on loopback for tests: speaks the part of the protocol that hub_client.h uses, and
// does what a fault says instead. Header only, used by *_test.cc alone.
//
// It listens on two ports: one is the hub, the other the store that large files are redirected to,
// as another origin. A thread a connection, one request a connection; ends with its threads.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/ascii.h"
#include "hub/download/digest.h"

namespace mantou::hub::testing {

struct TestRequest {
  std::string method, target;  // target decoded: "/org/m/resolve/…"
  std::map<std::string, std::string> headers;
  bool store = false;  // came to the store's port
  bool content() const { return method == "GET" && target.find("/api/") == std::string::npos; }
};

// What goes wrong with one answer; the default is nothing.
struct Fault {
  int status = 0;  // an error answer instead
  std::map<std::string, std::string> headers = {};
  std::optional<size_t> cut_after = {};  // closes after so many bytes of the body
  bool reset = false;                    // closes before the answer
  bool lie_length = false;               // announces and sends a byte less, as if that were all
  bool corrupt = false;                  // the first byte sent is another
  bool ignore_range = false;             // 200 with everything
  bool wrong_range = false;              // 206 with another range than asked for
  bool silent = false;                   // sends nothing more until the client goes
};

class TestHub {
 public:
  using Faults = std::function<Fault(const TestRequest&)>;

  TestHub() {
    for (Door* door : {&hub_, &store_}) {
      door->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof(address);
      if (door->fd < 0 || ::bind(door->fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
          ::listen(door->fd, 64) != 0 ||
          ::getsockname(door->fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        std::abort();
      door->port = ntohs(address.sin_port);
      door->thread = std::thread([this, door] { accept_all(*door); });
    }
  }
  ~TestHub() {
    stop_ = true;
    for (Door* door : {&hub_, &store_}) {
      ::shutdown(door->fd, SHUT_RDWR);  // wakes poll()
      door->thread.join();
      ::close(door->fd);
    }
    for (std::thread& thread : connections_) thread.join();
  }
  TestHub(const TestHub&) = delete;
  TestHub& operator=(const TestHub&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(hub_.port); }
  std::string store_url() const { return "http://127.0.0.1:" + std::to_string(store_.port); }

  bool store_beside = false;  // large files lie on the hub's own port
  std::string commit = std::string(40, 'c');
  bool list_details = true;  // sizes and hashes in the listing

  // Set before requests come. Large files have SHA-256 and lie in the store.
  void add(const std::string& repo, const std::string& path, std::string content, bool large) {
    repos_[repo][path] = {std::move(content), large};
  }
  static std::string hash_of(const std::string& content, bool large) {
    Digest digest = Digest::like(std::string(large ? 64 : 40, '0'), content.size());
    digest.add(content);
    return digest.hex();
  }
  void set_faults(Faults faults) {
    const std::lock_guard lock(mutex_);
    faults_ = std::move(faults);
  }
  std::vector<TestRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  struct File {
    std::string content;
    bool large = false;
  };
  struct Door {
    int fd = -1, port = 0;
    std::thread thread;
  };

  void accept_all(Door& door) {
    while (!stop_) {
      pollfd waiting{door.fd, POLLIN, 0};
      if (::poll(&waiting, 1, 200) <= 0) continue;
      const int fd = ::accept4(door.fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const std::lock_guard lock(mutex_);
      connections_.emplace_back([this, fd, store = &door == &store_] {
        serve(fd, store);
        ::close(fd);
      });
    }
  }

  void serve(int fd, bool store) {
    std::string text;
    char buffer[4096];
    while (text.find("\r\n\r\n") == std::string::npos) {
      pollfd waiting{fd, POLLIN, 0};
      if (stop_ || text.size() > 1 << 16) return;
      if (::poll(&waiting, 1, 50) <= 0) continue;
      const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return;
      text.append(buffer, size_t(n));
    }
    TestRequest request = parse(text);
    request.store = store;
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      if (faults_) fault = faults_(request);
    }
    if (!fault.reset) answer(fd, request, fault);
  }

  static std::string decoded(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        out += text[i];
        continue;
      }
      int value = 0;
      std::from_chars(text.data() + i + 1, text.data() + std::min(i + 3, text.size()), value, 16);
      out += char(value);
      i += 2;
    }
    return out;
  }

  static TestRequest parse(const std::string& text) {
    TestRequest request;
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    std::istringstream(line) >> request.method >> request.target;
    request.target = decoded(request.target);
    while (std::getline(lines, line) && line != "\r") {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      std::string value = line.substr(colon + 1);
      while (!value.empty() && (value.back() == '\r' || value.back() == ' ')) value.pop_back();
      request.headers[lower(line.substr(0, colon))] = value.substr(value.find_first_not_of(' '));
    }
    return request;
  }

  void answer(int fd, const TestRequest& request, const Fault& fault) {
    using Headers = std::map<std::string, std::string>;
    if (fault.status != 0) return send(fd, request, fault, fault.status, fault.headers, "no");
    if (request.store || request.target.rfind('/') == 0) {
      for (const auto& [repo, files] : repos_)
        for (const auto& [path, file] : files)
          if (file.large && request.target == "/" + hash_of(file.content, true))
            return send_file(fd, request, fault, file, {{"ETag", "\"store\""}});
      return send(fd, request, fault, 404, {}, "no");
    }
    for (const auto& [repo, files] : repos_) {
      if (request.target.starts_with("/api/models/" + repo + "/revision/"))
        return send(fd, request, fault, 200, {}, listing(files));
      const std::string base = "/" + repo + "/resolve/" + commit + "/";
      if (!request.target.starts_with(base)) continue;
      const auto found = files.find(request.target.substr(base.size()));
      if (found == files.end()) break;
      const File& file = found->second;
      const std::string hash = hash_of(file.content, file.large);
      Headers headers = {{"X-Repo-Commit", commit}, {"ETag", "\"" + hash + "\""}};
      if (!file.large) return send_file(fd, request, fault, file, headers);
      headers["X-Linked-Etag"] = "\"" + hash + "\"";
      headers["X-Linked-Size"] = std::to_string(file.content.size());
      headers["Location"] = (store_beside ? "" : store_url()) + "/" + hash;
      Fault none;  // the store's answer may fail, this one does not
      return send(fd, request, none, 302, headers, "elsewhere");
    }
    send(fd, request, fault, 404, {{"X-Error-Code", "RepoNotFound"}}, "no");
  }

  std::string listing(const std::map<std::string, File>& files) const {
    nlohmann::json siblings = nlohmann::json::array();
    for (const auto& [path, file] : files) {
      nlohmann::json sibling = {{"rfilename", path}};
      if (list_details) {
        sibling["size"] = file.content.size();
        sibling["blobId"] = hash_of(file.content, false);
        if (file.large)
          sibling["lfs"] = {{"sha256", hash_of(file.content, true)},
                            {"size", file.content.size()},
                            {"pointerSize", 135}};
      }
      siblings.push_back(sibling);
    }
    return nlohmann::json{{"sha", commit}, {"siblings", siblings}}.dump();
  }

  void send_file(int fd, const TestRequest& request, const Fault& fault, const File& file,
                 std::map<std::string, std::string> headers) {
    const std::string& all = file.content;
    size_t from = 0;
    const auto range = request.headers.find("range");
    const auto condition = request.headers.find("if-range");
    const bool same = condition == request.headers.end() || condition->second == headers["ETag"];
    const bool ranged = range != request.headers.end() && same && !fault.ignore_range;
    if (ranged) {
      const char* digits = range->second.c_str() + std::string_view("bytes=").size();
      std::from_chars(digits, range->second.c_str() + range->second.size(), from);
      if (from >= all.size()) return send(fd, request, fault, 416, {}, "");
      if (fault.wrong_range && from > 0) --from;
      headers["Content-Range"] = "bytes " + std::to_string(from) + "-" +
                                 std::to_string(all.size() - 1) + "/" + std::to_string(all.size());
    }
    std::string body = all.substr(from);
    if (fault.corrupt && !body.empty()) body[0] = char(body[0] ^ 1);
    if (fault.lie_length && !body.empty()) body.pop_back();
    send(fd, request, fault, ranged ? 206 : 200, headers, body);
  }

  void send(int fd, const TestRequest& request, const Fault& fault, int status,
            const std::map<std::string, std::string>& headers, const std::string& body) {
    std::string text = "HTTP/1.1 " + std::to_string(status) + " status\r\nConnection: close\r\n";
    for (const auto& [name, value] : headers)
      text.append(name).append(": ").append(value).append("\r\n");
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    if (request.method != "HEAD") text += body.substr(0, fault.cut_after.value_or(body.size()));
    size_t done = 0;
    while (done < text.size() && !stop_) {
      const ssize_t n = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += size_t(n);
    }
    while (fault.silent && !stop_) {
      pollfd waiting{fd, POLLIN, 0};
      if (::poll(&waiting, 1, 50) > 0) return;  // the client went
    }
  }

  std::map<std::string, std::map<std::string, File>> repos_;
  mutable std::mutex mutex_;  // requests_, faults_, connections_
  Faults faults_;
  std::vector<TestRequest> requests_;
  std::vector<std::thread> connections_;
  std::atomic<bool> stop_{false};
  Door hub_, store_;
};

}  // namespace mantou::hub::testing
