// The bytes of one answer on their way from any thread to the io thread.
//
// Endpoints and sinks write on the Responder side; the connection takes everything that has
// gathered with one take() each time the previous write is done, so many small events leave in one
// write. Shared by both sides.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http.h"

namespace mantou::server {

class ResponseChannel final : public Responder {
 public:
  struct Options {
    bool keep_alive = true;
    bool http_1_0 = false;   // no chunks: the end of the connection ends a stream
    bool head_only = false;  // the answer to HEAD: headers alone
    size_t pending_limit = 1 << 20;
    Headers headers;  // of every answer
  };
  // `wake` is called from any thread when there is something to take; once until the next take().
  ResponseChannel(Options options, std::function<void()> wake);

  void send(HttpResponse response) override;
  bool begin_stream(std::string_view content_type) override;
  bool write(std::string_view bytes) override;
  void finish() override { end(false); }
  void finish_and_close() override { end(true); }
  bool started() const override;
  void on_gone(std::function<void()> callback) override;

  // The connection's side, io thread.
  struct Batch {
    std::string bytes;
    bool last = false;      // nothing follows
    bool close = false;     // close the connection after it
    bool overflow = false;  // the client is too slow: close at once
  };
  Batch take();
  void set_gone();  // the client left; an answer that is complete already stands
  // Has something written that says nothing, so that a client that left is noticed. False: such a
  // thing does not exist for this answer.
  bool probe();
  void close_after();  // the connection shall not be kept alive
  int status() const;  // 0: not started

 private:
  void begin(int status, std::string_view content_type, const Headers& headers,
             std::string_view framing);
  bool write(std::string_view bytes, std::unique_lock<std::mutex>& lock);
  void end(bool close);
  void notify(std::unique_lock<std::mutex>& lock);

  const Options options_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;  // of all below
  std::string pending_;
  std::function<void()> gone_callback_;
  int status_ = 0;
  bool streaming_ = false, events_ = false, complete_ = false, gone_ = false, overflow_ = false;
  bool close_ = false, woken_ = false;
};

}  // namespace mantou::server
