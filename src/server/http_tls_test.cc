// Connections that are no plain TCP: TLS, with OpenSSL's own client, and UNIX sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>
#include <thread>

#include "base/error.h"
#include "hub/test_files.h"
#include "server/test_tls.h"
#include "server/test_transport.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using namespace std::string_view_literals;
using Clock = std::chrono::steady_clock;
using hub::testing::TempDirectory;
using testing::HasSubstr;

// Why a server with these options does not start.
Error refusal(const HttpOptions& options) {
  try {
    HttpServer server(options, [](const HttpRequest&, const std::shared_ptr<Responder>&) {});
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "it started"};
}

class TlsTest : public TransportTest {
 protected:
  TlsTest() {
    const Identity identity = make_identity();
    options_.port = 0;
    options_.certificate_file = write("cert.pem", identity.certificate);
    options_.key_file = write("key.pem", identity.key);
  }
  std::string write(const std::string& name, std::string_view text) {
    return directory_.write(name, text);
  }
  TempDirectory directory_;
  HttpOptions options_;
};

TEST_F(TlsTest, AnswersAsWithoutIt) {
  start(options_);
  EXPECT_EQ(server_->url(), fmt::format("https://127.0.0.1:{}", port()));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(port(), version);
    EXPECT_EQ(client.get("/1").body, "GET /1 ");
    client.request("GET", "/stream");
    EXPECT_THAT(client.read().events(), testing::ElementsAre("one", "two"));
    const std::string body(3 << 20, 'x');
    client.request("POST", "/big", body);
    EXPECT_EQ(client.read().body, "POST /big " + body);
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_EQ(client.read().body, "GET /a ");
    EXPECT_EQ(client.read().body, "GET /b ");
  }
}

TEST_F(TlsTest, TheEndOfAConnectionIsSaid) {
  start(options_);
  TlsClient old(port());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read().body, "data: one\n\ndata: two\n\n");
  EXPECT_TRUE(old.ended_in_order());
  TlsClient refused(port());
  refused.send("NONSENSE\r\n\r\n");
  EXPECT_EQ(refused.read().status, 400);
  EXPECT_TRUE(refused.closed());
  EXPECT_TRUE(refused.ended_in_order());
}

TEST_F(TlsTest, AClientThatSendsNothingMoreIsAnswered) {
  start(options_);
  TlsClient client(port());
  client.request("GET", "/later");
  const auto responder = held();
  client.finish_sending();
  std::this_thread::sleep_for(20ms);
  responder->send({200, "here"});
  EXPECT_EQ(client.read_final().body, "here");
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.ended_in_order());

  TlsClient idle(port());
  EXPECT_EQ(idle.get("/").status, 200);
  idle.finish_sending();
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(idle.ended_in_order());
}

TEST_F(TlsTest, NoticesAClientThatLeaves) {
  start(options_);
  for (const bool in_order : {false, true}) {
    TlsClient client(port());
    client.request("GET", "/later");
    const auto responder = held();
    std::promise<void> gone;
    responder->on_gone([&] { gone.set_value(); });
    if (in_order) client.finish_sending();
    client.close();
    EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready) << in_order;
  }
}

TEST_F(TlsTest, WhoeverSpeaksNoTlsIsSentAwayInTime) {
  options_.limits.header_time = 100ms;
  start(options_);
  const auto began = Clock::now();
  TestClient plain(port()), silent(port()), half(port());
  plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  half.send("\x16\x03\x01\x02");
  for (TestClient* client : {&plain, &silent, &half})
    EXPECT_LT(client->count_until_closed(), 20u) << "nothing but an alert";
  EXPECT_LT(Clock::now() - began, 5s);
  EXPECT_EQ(TlsClient(port()).get("/").status, 200);
  EXPECT_EQ(requests_, 1);
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  start(options_);
  try {
    TlsClient client(port(), TLS1_1_VERSION);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("alert protocol version"));  // said by the server
  }
}

TEST_F(TlsTest, ManyLeaveDuringTheHandshake) {
  start(options_);
  for (int i = 0; i < 50; ++i) {
    TestClient client(port());
    client.send(std::string_view("\x16\x03\x01\x00\xff\x01", 6).substr(0, size_t(i % 7)));
  }
  EXPECT_EQ(TlsClient(port()).get("/").status, 200);
}

TEST_F(TlsTest, AnswersInProgressAreFinishedAtTheEnd) {
  start(options_);
  TlsClient busy(port()), idle(port());
  EXPECT_EQ(idle.get("/").status, 200);
  busy.request("GET", "/later");
  const auto responder = held();
  std::thread answer([&] {
    std::this_thread::sleep_for(50ms);
    responder->send({200, "whole"});
  });
  server_->stop(5s);
  answer.join();
  EXPECT_EQ(busy.read().body, "whole");
}

TEST_F(TlsTest, BadFilesAreNamedAtTheStart) {
  const Identity other = make_identity(), rsa = make_identity(true);
  const Identity locked = make_identity(false, "password");
  const std::string good_certificate = options_.certificate_file, good_key = options_.key_file;
  const struct {
    std::string certificate, key, param, message;
  } cases[] = {
      {good_certificate, "", "ssl-key-file", "--ssl-key-file is missing"},
      {"", good_key, "ssl-cert-file", "--ssl-cert-file is missing"},
      {directory_.path() / "none.pem", good_key, "", "none.pem"},
      {good_certificate, directory_.path() / "none.pem", "", "none.pem"},
      {good_key, good_key, "ssl-cert-file", "key.pem' holds no certificate"},
      {good_certificate, good_certificate, "ssl-key-file", "cert.pem' holds no private key"},
      {good_certificate, write("o.pem", other.key), "ssl-key-file", "o.pem' does not"},
      {good_certificate, write("r.pem", rsa.key), "ssl-key-file", "r.pem' does not"},
      {write("l.crt", locked.certificate), write("l.pem", locked.key), "ssl-key-file",
       "l.pem' is locked by a password"},
  };
  for (const auto& [certificate, key, param, message] : cases) {
    options_.certificate_file = certificate;
    options_.key_file = key;
    const Error error = refusal(options_);
    EXPECT_THAT(error.message(), HasSubstr(message));
    EXPECT_TRUE(param.empty() || error.param() == param) << error.message();
  }
}

class UnixSocketTest : public TransportTest {
 protected:
  UnixSocketTest() : path_(directory_.path() / "server.sock") { options_.host = path_; }
  TempDirectory directory_;
  const std::string path_;
  HttpOptions options_;
};

TEST_F(UnixSocketTest, AnswersAndLeavesNothingBehind) {
  start(options_);
  EXPECT_EQ(server_->url(), "unix:" + path_);
  EXPECT_EQ(server_->port(), 0);
  struct stat status{};
  ASSERT_EQ(::lstat(path_.c_str(), &status), 0);
  EXPECT_TRUE(S_ISSOCK(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777, 0600);
  TestClient client(path_);
  EXPECT_EQ(client.get("/1").body, "GET /1 ");
  EXPECT_EQ(client.get("/2").body, "GET /2 ");
  TestClient leaves(path_);
  leaves.request("GET", "/later");
  std::promise<void> gone;
  const auto responder = held();
  responder->on_gone([&] { gone.set_value(); });
  leaves.close();
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
  server_->stop(1s);
  EXPECT_NE(::lstat(path_.c_str(), &status), 0);
}

TEST_F(UnixSocketTest, AFileThatNobodyListensOnIsReplaced) {
  {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_GE(fd, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  start(options_);
  EXPECT_EQ(TestClient(path_).get("/").status, 200);
}

TEST_F(UnixSocketTest, WhatIsSomebodysIsLeftAlone) {
  start(options_);
  const Error taken = refusal(options_);
  EXPECT_EQ(taken.param(), "host");
  EXPECT_THAT(taken.message(), HasSubstr("another program listens at " + path_));
  EXPECT_EQ(TestClient(path_).get("/").status, 200);

  HttpOptions options;
  options.host = directory_.write("file.sock", "precious"sv);
  EXPECT_THAT(refusal(options).message(), HasSubstr("is no socket"));
  EXPECT_EQ(std::filesystem::file_size(options.host), 8u);

  // One that took the name over is not removed at the end.
  std::filesystem::remove(path_);
  std::filesystem::copy_file(options.host, path_);
  server_->stop(1s);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, PathsThatCannotBeAreNamed) {
  options_.host = "/" + std::string(200, 'x') + ".sock";
  EXPECT_THAT(refusal(options_).message(), HasSubstr("has 206 bytes"));
  options_.host = directory_.path() / "none" / "server.sock";
  EXPECT_THAT(refusal(options_).message(), HasSubstr(options_.host));
  for (const char* path : {"server.sock", "./server", "/run/server"})
    EXPECT_TRUE(is_socket_path(path));
  for (const char* host : {"127.0.0.1", "::1", "localhost", "sock.example"})
    EXPECT_FALSE(is_socket_path(host));
}

}  // namespace
}  // namespace mantou::server
