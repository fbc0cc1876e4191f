// For tests: an HTTP client on a plain socket that does exactly what it is told, and text doubles
// whose tokens are bytes. One thread each.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/http.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace mantou::server {

struct Reply {
  int status = 0;
  Headers headers;
  std::string body;                 // chunks joined
  std::vector<std::string> chunks;  // of a chunked body
  std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (equal_ignoring_case(key, name)) return value;
    }
    return {};
  }
  nlohmann::json json() const { return nlohmann::json::parse(body); }
  // The data of each event of a stream; comments left out.
  std::vector<std::string> events() const {
    std::vector<std::string> found;
    std::string_view rest = body;
    while (!rest.empty()) {
      const size_t end = rest.find("\n\n");
      if (end == rest.npos) throw std::runtime_error("an event without its end");
      const std::string_view event = rest.substr(0, end);
      rest.remove_prefix(end + 2);
      if (event.starts_with("data: ")) found.emplace_back(event.substr(6));
    }
    return found;
  }
};

class TestClient {
 public:
  explicit TestClient(int port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  // Over a UNIX socket.
  explicit TestClient(const std::string& path) {
    fd_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connect(reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  virtual ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  // Sends nothing more, but still listens.
  virtual void finish_sending() { ::shutdown(fd_, SHUT_WR); }

  // False when the server has closed its side.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = transmit(bytes);
      if (sent <= 0) return false;
      bytes.remove_prefix(size_t(sent));
    }
    return true;
  }
  bool request(std::string_view method, std::string_view path, std::string_view body = {},
               std::string_view more_headers = {}) {
    std::string text = std::string(method) + " " + std::string(path) +
                       " HTTP/1.1\r\nHost: localhost\r\n" + std::string(more_headers);
    if (method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return send(text + "\r\n" + std::string(body));
  }
  Reply post(std::string_view path, const nlohmann::json& body) {
    request("POST", path, body.dump());
    return read();
  }
  Reply get(std::string_view path, std::string_view headers = {}) {
    request("GET", path, {}, headers);
    return read();
  }

  // The next answer. Throws when it does not come whole within the time.
  Reply read(bool head = false) {
    Reply reply;
    std::string line = read_line();
    if (!line.starts_with("HTTP/1.1 ")) throw std::runtime_error("no status line: " + line);
    reply.status = std::stoi(line.substr(9));
    while (!(line = read_line()).empty()) {
      const size_t colon = line.find(": ");
      reply.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    }
    if (head || reply.status == 100 || reply.status == 204) return reply;
    if (reply.header("transfer-encoding") == "chunked") {
      read_chunks(reply);
    } else if (const std::string length = reply.header("content-length"); !length.empty()) {
      reply.body = read_bytes(std::stoul(length));
    } else {
      while (fill()) {
      }
      reply.body = std::exchange(buffer_, {});
    }
    return reply;
  }
  // The next answer after those that say "100 Continue".
  Reply read_final() {
    for (;;) {
      Reply reply = read();
      if (reply.status != 100) return reply;
    }
  }
  // True when the server closes the connection without another byte.
  bool closed() { return buffer_.empty() && !fill(); }

  std::string read_until(std::string_view text) {
    size_t at;
    while ((at = buffer_.find(text)) == std::string::npos) {
      if (!fill()) throw std::runtime_error("closed before '" + std::string(text) + "'");
    }
    std::string found = buffer_.substr(0, at + text.size());
    buffer_.erase(0, at + text.size());
    return found;
  }
  // How many bytes come before the server closes the connection.
  size_t count_until_closed() {
    while (fill()) {
    }
    return std::exchange(buffer_, {}).size();
  }
  // Exactly so many.
  std::string read_bytes(size_t count) {
    while (buffer_.size() < count) {
      if (!fill()) throw std::runtime_error("closed within a body");
    }
    std::string bytes = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return bytes;
  }

 protected:
  // As send() and recv() have it.
  virtual ssize_t transmit(std::string_view bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  virtual ssize_t receive(char* into, size_t size) { return ::recv(fd_, into, size, 0); }

  int fd_ = -1;

 private:
  void connect(const sockaddr* address, socklen_t size) {
    const timeval patience{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(fd_, address, size) != 0) {
      close();
      throw std::runtime_error("cannot connect");
    }
  }
  std::string read_line() {
    std::string line = read_until("\r\n");
    line.resize(line.size() - 2);
    return line;
  }
  void read_chunks(Reply& reply) {
    for (;;) {
      const size_t size = std::stoul(read_line(), nullptr, 16);
      const std::string chunk = read_bytes(size);
      if (!read_line().empty()) throw std::runtime_error("a chunk without its end");
      if (size == 0) return;
      reply.body += chunk;
      reply.chunks.push_back(chunk);
    }
  }
  bool fill() {
    char bytes[65536];
    errno = 0;
    const ssize_t got = receive(bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      throw std::runtime_error("no answer in time");
    if (got <= 0) return false;
    buffer_.append(bytes, size_t(got));
    return true;
  }

  std::string buffer_;
};

// Token id = byte; id 0 is the special end token.
class ByteTokenizer : public text::Tokenizer {
 public:
  ByteTokenizer() {
    for (int id = 0; id < 256; ++id) bytes_.push_back(id == 0 ? "<end>" : std::string(1, char(id)));
  }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(uint8_t(c));
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id != 0 || !skip_special) text += bytes_[size_t(id)];
    }
    return text;
  }
  int vocab_size() const override { return 256; }
  TokenId id_of(std::string_view token) const override {
    return token.size() == 1 ? uint8_t(token[0]) : -1;
  }
  std::string_view bytes_of(TokenId id) const override { return bytes_[size_t(id)]; }
  std::string_view piece_of(TokenId id) const override { return bytes_[size_t(id)]; }
  bool is_special(TokenId id) const override { return id == 0; }
  TokenId bos() const override { return -1; }
  const std::vector<TokenId>& end_ids() const override { return end_ids_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> end_ids_{0};
};

// "role:content\n" for each message, then the tools and the further variables as JSON.
class LineTemplate : public text::ChatTemplate {
 public:
  bool is_fallback() const override { return false; }
  text::ChatPrompt render(const nlohmann::ordered_json& messages,
                          const text::ChatOptions& options) const override {
    text::ChatPrompt prompt;
    for (size_t i = 0; i < messages.size(); ++i) {
      const auto content = messages[i].find("content");
      if (content == messages[i].end() || !content->is_string())
        fail_param(ErrorCode::kInvalidArgument, fmt::format("messages[{}].content", i),
                   "'messages[{}].content' must be text", i);
      prompt.text += messages[i]["role"].get<std::string>() + ":" + content->get<std::string>();
      prompt.text += '\n';
    }
    if (!options.tools.is_null()) prompt.text += "tools:" + options.tools.dump() + "\n";
    if (!options.extra.is_null()) prompt.text += "extra:" + options.extra.dump() + "\n";
    if (options.add_generation_prompt) prompt.text += "assistant:";
    prompt.ids = ByteTokenizer().encode(prompt.text, {});
    return prompt;
  }
};

}  // namespace mantou::server
