// The transport: bytes to requests without a socket, then connections over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "base/error.h"
#include "server/http_server.h"
#include "server/response_channel.h"
#include "server/router.h"
#include "server/sse.h"
#include "server/test_transport.h"

namespace mantou::server {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using State = RequestReader::State;

const std::string kPost =
    "POST /a%20b?x=%31 HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello";
const std::string kChunked =
    "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nTrailer: t\r\n\r\n";

// Feeds `bytes` in pieces of `step`; returns the last state and leaves what was not taken in
// `rest`.
State feed(RequestReader& reader, std::string_view bytes, size_t step, std::string& rest) {
  rest.clear();
  State state = State::kMore;
  for (size_t i = 0; i < bytes.size(); i += step) {
    rest += bytes.substr(i, step);
    for (size_t used = 1; used > 0 && !rest.empty();) {
      state = reader.feed(rest, used);
      rest.erase(0, used);
      if (state == State::kDone || state == State::kProblem) {
        if (i + step < bytes.size()) rest += bytes.substr(i + step);
        return state;
      }
    }
  }
  return state;
}

TEST(QueryTest, ValuesAreDecodedByName) {
  EXPECT_EQ(query_value("a=1&bb=x%20y&c", "a"), "1");
  EXPECT_EQ(query_value("a=1&bb=x%20y&c", "bb"), "x y");
  EXPECT_EQ(query_value("a=1&bb=x%20y&c", "b"), "");
  EXPECT_EQ(query_value("a=1&bb=x%20y&c", "c"), "");
  EXPECT_EQ(query_value("a=%zz&a=2", "a"), "2");
  EXPECT_EQ(query_value("", "a"), "");
}

TEST(RequestReader, EverySplitGivesTheSameRequest) {
  for (const std::string& bytes : {kPost, kChunked}) {
    for (size_t step = 1; step <= bytes.size(); ++step) {
      RequestReader reader{HttpLimits{}};
      std::string rest;
      ASSERT_EQ(feed(reader, bytes + "GET /next", step, rest), State::kDone) << step;
      EXPECT_EQ(rest, "GET /next");
      const HttpRequest request = reader.take();
      EXPECT_EQ(request.method, "POST");
      EXPECT_EQ(request.body, "hello");
      EXPECT_TRUE(request.keep_alive);
      EXPECT_EQ(request.header("trailer"), "") << "trailers come too late to be headers";
      if (bytes == kPost) {
        EXPECT_EQ(request.path, "/a b");
        EXPECT_EQ(request.query, "x=%31");
        EXPECT_EQ(request.header("x-one"), "1");
        EXPECT_EQ(request.header("absent"), "");
      }
    }
  }
}

TEST(RequestReader, AnEmptyChunkedBodyMayComeByteByByte) {
  RequestReader reader{HttpLimits{}};
  std::string rest;
  const std::string head = "POST /e HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  ASSERT_EQ(feed(reader, head + "0\r\n\r\n", 1, rest), State::kDone);
  EXPECT_EQ(reader.take().body, "");
}

TEST(RequestReader, ProblemsHaveTheirStatus) {
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {"NONSENSE\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      // RFC 9112, 3.2: several, or one that is none; RFC 9110, 4.2.1: a URI without a host.
      {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\nhost: other\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h other\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h/path\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: user@h\r\n\r\n", 400},
      {"GET http://h/ HTTP/1.1\r\n\r\n", 400},
      {"GET http:///path HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET http://user@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nBad Header: x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\n\r\n", 411},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n70\r\n" +
           std::string(112, 'x') + "\r\n0\r\n\r\n",
       413},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: tea\r\n\r\nx", 417},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(2000, 'x') + "\r\n\r\n", 431},
      {"GET /" + std::string(2000, 'x'), 431},
  };
  HttpLimits limits;
  limits.header_bytes = 1000;
  limits.body_bytes = 100;
  for (const auto& [bytes, status] : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, bytes.size()}) {
      RequestReader reader(limits);
      std::string rest;
      ASSERT_EQ(feed(reader, bytes, step, rest), State::kProblem) << bytes;
      EXPECT_EQ(reader.problem().status, status) << bytes << reader.problem().message;
    }
  }
}

TEST(RequestReader, TargetsAndVersions) {
  std::string rest;
  RequestReader absolute{HttpLimits{}};
  feed(absolute, "GET http://host:80/path?q#f HTTP/1.1\r\nHost: h\r\n\r\n", 1000, rest);
  const HttpRequest request = absolute.take();
  EXPECT_EQ(request.path, "/path");
  // RFC 9112, 3.2.2: the target's host counts, Host is ignored.
  const struct {
    std::string target, host, path, query;
  } targets[] = {{"http://host:80/path?q#f", "host:80", "/path", "q"},
                 {"http://host", "host", "/", ""},
                 {"HTTP://host?q", "host", "/", "q"},
                 {"https://[::1]:8080/a/b", "[::1]:8080", "/a/b", ""},
                 {"/path?http://host/", "h", "/path", "http://host/"}};
  for (const auto& expected : targets) {
    RequestReader reader{HttpLimits{}};
    feed(reader, "GET " + expected.target + " HTTP/1.1\r\nHost: h\r\n\r\n", 1000, rest);
    const HttpRequest got = reader.take();
    EXPECT_EQ(got.header("host"), expected.host) << expected.target;
    EXPECT_EQ(got.path, expected.path) << expected.target;
    EXPECT_EQ(got.query, expected.query) << expected.target;
    EXPECT_EQ(got.headers.size(), 1u);
  }
  RequestReader old{HttpLimits{}};
  feed(old, "GET / HTTP/1.0\r\n\r\n", 1000, rest);
  EXPECT_TRUE(old.take().http_1_0);
}

TEST(ResponseChannel, GathersWhatWasWrittenAndWakesOnce) {
  int wakes = 0;
  ResponseChannel channel({}, [&] { ++wakes; });
  EXPECT_TRUE(channel.begin_stream("text/plain"));
  EXPECT_TRUE(channel.write("a"));
  EXPECT_TRUE(channel.write("bc"));
  EXPECT_EQ(wakes, 1);
  EXPECT_THAT(channel.take().bytes, HasSubstr("\r\n\r\n1\r\na\r\n2\r\nbc\r\n"));
  channel.finish();
  EXPECT_EQ(wakes, 2);
  const ResponseChannel::Batch last = channel.take();
  EXPECT_EQ(last.bytes, "0\r\n\r\n");
  EXPECT_TRUE(last.last);
  EXPECT_FALSE(last.close);
  EXPECT_FALSE(channel.write("late"));
}

TEST(ResponseChannel, TellsAboutAClientThatLeftExactlyOnce) {
  int calls = 0;
  ResponseChannel early({}, [] {});
  early.on_gone([&] { ++calls; });
  early.set_gone();
  early.set_gone();
  EXPECT_EQ(calls, 1);
  early.on_gone([&] { ++calls; });
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(early.begin_stream("text/plain"));
  ResponseChannel replaced({}, [] {});
  replaced.on_gone([] { ADD_FAILURE() << "another was to be called"; });
  replaced.on_gone([&] { ++calls; });
  replaced.set_gone();
  EXPECT_EQ(calls, 3);
  ResponseChannel complete({}, [] {});
  complete.on_gone([&] { ++calls; });
  complete.send({200, "x"});
  complete.set_gone();
  EXPECT_EQ(calls, 3);
}

TEST(Router, FindsRoutesAndSaysWhatThereIs) {
  EXPECT_EQ(find_route("GET", "/health").route->path, "/health");
  EXPECT_EQ(find_route("HEAD", "/health").route->path, "/health");
  EXPECT_EQ(find_route("GET", "/v1/models/a/b").route->path, "/v1/models/*");
  const RouteResult nothing = find_route("GET", "/v1/models/");
  EXPECT_EQ(nothing.response.status, 404);
  EXPECT_THAT(nothing.response.body, HasSubstr("POST /v1/chat/completions"));
  const RouteResult wrong = find_route("GET", "/v1/chat/completions");
  EXPECT_EQ(wrong.response.status, 405);
  EXPECT_EQ(wrong.response.headers, (Headers{{"Allow", "POST, OPTIONS"}}));
  EXPECT_EQ(find_route("OPTIONS", "/health").response.headers,
            (Headers{{"Allow", "GET, HEAD, OPTIONS"}}));
  EXPECT_EQ(find_route("OPTIONS", "*").response.status, 204);
}

TEST_F(TransportTest, KeepsTheConnectionAndAnswersPipelinedRequestsInOrder) {
  start();
  TestClient client(port());
  client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" + kPost + kChunked +
              "GET /stream HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read().body, "GET /1 ");
  EXPECT_EQ(client.read().body, "POST /a b hello");
  EXPECT_EQ(client.read().body, "POST /c hello");
  EXPECT_EQ(client.read().body, "data: one\n\ndata: two\n\n");
  EXPECT_EQ(client.read().body, "GET /2 ");
}

TEST_F(TransportTest, TakesARequestByteByByte) {
  start();
  TestClient client(port());
  for (const char byte : kPost) {
    client.send(std::string_view(&byte, 1));
    std::this_thread::sleep_for(100us);
  }
  EXPECT_EQ(client.read().body, "POST /a b hello");
}

TEST_F(TransportTest, HeadHasTheHeadersOnly) {
  start();
  TestClient client(port());
  client.request("HEAD", "/x");
  EXPECT_EQ(client.read(true).header("content-length"), "8");
  client.request("HEAD", "/stream");
  EXPECT_EQ(client.read(true).status, 200);
  EXPECT_EQ(client.get("/y").body, "GET /y ");
}

TEST_F(TransportTest, AsksForTheBodyOnceWhenTheClientWaits) {
  start();
  TestClient client(port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  client.send("ok");
  EXPECT_EQ(client.read().body, "POST / ok");
}

TEST_F(TransportTest, RefusesABodyBeforeItIsSentAndTheAnswerArrives) {
  HttpOptions options;
  options.limits.body_bytes = 1000;
  start(options);
  TestClient waits(port());
  waits.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(waits.read().status, 413);
  EXPECT_TRUE(waits.closed());
  // A client that sends without asking must see the answer, too, not a reset.
  TestClient sends(port());
  sends.request("POST", "/", std::string(4 << 20, 'x'));
  const Reply reply = sends.read();
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
  EXPECT_EQ(requests_, 0);
}

TEST_F(TransportTest, ABodyOfTheLimitIsTaken) {
  start();
  TestClient client(port());
  const std::string body(3 << 20, 'x');
  client.request("POST", "/", body);
  EXPECT_EQ(client.read().body.size(), std::string("POST / ").size() + body.size());
}

TEST_F(TransportTest, MalformedRequestsAreAnsweredAndClosed) {
  start();
  for (const char* bytes : {"\r\n\r\nGARBAGE\r\n\r\n", "\x16\x03\x01\x02", "GET / HTTP/9.9\r\n\r\n",
                            "POST / HTTP/1.1\r\nHost: h\r\n\r\n"}) {
    TestClient client(port());
    client.send(bytes);
    client.send("\r\n\r\n");
    const Reply reply = client.read();
    EXPECT_THAT(reply.status, testing::AnyOf(400, 411)) << bytes;
    EXPECT_TRUE(reply.json()["error"]["message"].is_string());
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(TestClient(port()).get("/").status, 200);
}

TEST_F(TransportTest, Http10EndsAStreamWithTheConnection) {
  start();
  TestClient client(port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const Reply reply = client.read();
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.body, "data: one\n\ndata: two\n\n");
}

TEST_F(TransportTest, RequestIdsAreEchoedWhenFitAndMadeOtherwise) {
  start();
  TestClient client(port());
  EXPECT_EQ(client.get("/", "X-Request-Id: abc-1\r\n").header("x-request-id"), "abc-1");
  EXPECT_THAT(client.get("/", "X-Request-Id: a b\r\n").header("x-request-id"),
              testing::StartsWith("req_"));
  EXPECT_NE(client.get("/").header("x-request-id"), client.get("/").header("x-request-id"));
}

TEST_F(TransportTest, NoticesAClientThatLeavesWhileNothingIsWritten) {
  start();
  TestClient client(port());
  client.request("GET", "/later");
  const auto responder = held();
  std::promise<void> gone;
  responder->on_gone([&] { gone.set_value(); });
  client.close();
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
  EXPECT_FALSE(responder->begin_stream(kEventStream));
}

TEST_F(TransportTest, AClientThatSendsNothingMoreStillGetsItsAnswers) {
  start();
  TestClient whole(port());
  whole.request("GET", "/later");
  const auto responder = held();
  whole.finish_sending();
  EXPECT_EQ(whole.read().status, 100) << "is it there? it is";
  std::this_thread::sleep_for(20ms);
  responder->send({200, "here"});
  EXPECT_EQ(whole.read().body, "here");
  EXPECT_TRUE(whole.closed());

  TestClient streams(port());
  streams.request("GET", "/later");
  const auto stream = held();
  stream->begin_stream(kEventStream);
  stream->write(sse_event("one"));
  streams.finish_sending();
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(stream->write(sse_event("two")));
  stream->finish();
  EXPECT_THAT(streams.read().events(), testing::ElementsAre("one", "two"));
  EXPECT_TRUE(streams.closed());

  TestClient pipelines(port());
  pipelines.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /");
  pipelines.finish_sending();
  EXPECT_EQ(pipelines.read_final().body, "GET /1 ");
  EXPECT_EQ(pipelines.read_final().body, "GET /2 ");
  EXPECT_TRUE(pipelines.closed());
}

// Nothing may be written before the answer to HTTP/1.0, so nothing tells this from leaving.
TEST_F(TransportTest, TheEndOfInputIsLeavingForHttp10) {
  start();
  TestClient client(port());
  client.send("GET /later HTTP/1.0\r\n\r\n");
  const auto responder = held();
  std::promise<void> gone;
  responder->on_gone([&] { gone.set_value(); });
  client.finish_sending();
  EXPECT_EQ(gone.get_future().wait_for(5s), std::future_status::ready);
}

TEST_F(TransportTest, ATakenPortIsNamed) {
  start();
  HttpOptions options;
  options.port = port();
  try {
    HttpServer second(options, [](const HttpRequest&, const std::shared_ptr<Responder>&) {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.param(), "port");
    EXPECT_THAT(error.message(), HasSubstr(fmt::format("port {} on 127.0.0.1", port())));
    EXPECT_THAT(error.message(), HasSubstr("--port"));
  }
  options.host = "not an address";
  EXPECT_THROW(HttpServer(options, [](const HttpRequest&, const std::shared_ptr<Responder>&) {}),
               Error);
}

TEST_F(TransportTest, StopLetsAnswersFinishWithinTheGrace) {
  start();
  TestClient finishes(port()), hangs(port());
  finishes.request("GET", "/later");
  const auto good = held();
  hangs.request("GET", "/later");
  const auto bad = held();
  std::thread answer([&] {
    std::this_thread::sleep_for(50ms);
    good->send({200, "done"});
  });
  server_->stop(500ms);
  answer.join();
  const Reply reply = finishes.read();
  EXPECT_EQ(reply.body, "done");
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(hangs.closed());
  EXPECT_THROW(TestClient{port()}, std::runtime_error);
  bad->send({200, "too late"});  // must not touch what is gone
  server_.reset();
}

}  // namespace
}  // namespace mantou::server
