// Fetching from a hub on loopback that does what it should not.
#include "hub/download/fetch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <random>
#include <thread>

#include "base/file.h"
#include "hub/download/file_lock.h"
#include "hub/download/garbage.h"
#include "hub/download/test_hub.h"
#include "hub/expect_error.h"
#include "hub/resolve.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::expect_error;
using testing::Fault;
using testing::TempDirectory;
using testing::TestHub;
using testing::TestRequest;

std::string random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string out(size, '\0');
  for (char& c : out) c = char(random());
  return out;
}

class FetchTest : public ::testing::Test {
 protected:
  static constexpr size_t kLarge = 300'000;
  FetchTest() : weights_(random_bytes(kLarge, 1)) {
    hub_.add("org/m-GGUF", "m-Q4_K_M.gguf", weights_, true);
    hub_.add("org/m-GGUF", "m-Q8_0.gguf", random_bytes(1000, 2), true);
    hub_.add("org/m-GGUF", "README.md", "words", false);
    hub_.add("org/dir", "config.json", "{}", false);
    hub_.add("org/dir", "tokenizer.json", "{\"a\": 1}", false);
    hub_.add("org/dir", "model-00001-of-00002.safetensors", random_bytes(5000, 3), true);
    hub_.add("org/dir", "model-00002-of-00002.safetensors", random_bytes(6000, 4), true);
    hub_.add("org/dir", "model.safetensors.index.json", "{}", false);
    hub_.add("org/dir", "pytorch_model.bin", "no", true);
  }

  FetchOptions options() {
    FetchOptions options;
    options.hf_cache = root_.path() / "hub";
    options.endpoint.url = hub_.url();
    options.retry.sleep = [this](milliseconds delay) { slept_.push_back(delay); };
    options.keep_free = 0;
    return options;
  }
  fs::path fetch(const std::string& name, const FetchEvents& events = {}) {
    Fetcher fetcher(options());
    return fetcher.fetch(fetcher.plan(*parse_wish(name)), events);
  }
  void fail_content(std::vector<Fault> faults) {
    hub_.set_faults([faults, next = size_t{0}](const TestRequest& request) mutable {
      if (!request.content() || next == faults.size()) return Fault();
      return request.store ? faults[next++] : Fault();
    });
  }
  size_t count(const std::string& method, const std::string& text) {
    size_t n = 0;
    for (const TestRequest& request : hub_.requests())
      n += request.method == method && request.target.find(text) != std::string::npos;
    return n;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const ModelEntry& entry : list_models({root_.path() / "hub", root_.path() / "own"}))
      out.push_back(entry.name);
    return out;
  }
  fs::path repository() const { return root_.path() / "hub/models--org--m-GGUF"; }
  fs::path partial() const {
    return repository() / "blobs" / (TestHub::hash_of(weights_, true) + ".incomplete");
  }

  TempDirectory root_;
  TestHub hub_;
  std::string weights_;
  std::vector<milliseconds> slept_;
};

TEST_F(FetchTest, GgufFileInTheLayoutOfTheCache) {
  const fs::path file = fetch("org/m-GGUF");
  EXPECT_EQ(file, repository() / "snapshots" / hub_.commit / "m-Q4_K_M.gguf");
  EXPECT_EQ(read_file(file), weights_);
  EXPECT_EQ(fs::read_symlink(file), "../../blobs/" + TestHub::hash_of(weights_, true));
  EXPECT_EQ(read_file(repository() / "refs/main"), hub_.commit);
  EXPECT_EQ(names(), std::vector<std::string>{"org/m-GGUF"});
  EXPECT_EQ(find_fetched(root_.path() / "hub", *parse_wish("org/m-GGUF")), file);
  EXPECT_EQ(find_fetched(root_.path() / "hub", *parse_wish("org/m-GGUF:Q8_0")), "");
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(repository()))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("blobs", "refs", "snapshots"));

  const size_t before = hub_.requests().size();
  EXPECT_EQ(fetch("org/m-GGUF"), file);  // asks for the listing alone
  EXPECT_EQ(hub_.requests().size(), before + 1);
}

TEST_F(FetchTest, DirectoryAndNothingElse) {
  hub_.list_details = false;
  const fs::path snapshot = fetch("org/dir");
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(snapshot))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files, ::testing::UnorderedElementsAre(
                         "config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                         "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(read_file(snapshot / "tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(names(), std::vector<std::string>{"org/dir"});
  fs::remove(snapshot / "model-00002-of-00002.safetensors");
  EXPECT_EQ(names(), std::vector<std::string>{});
  EXPECT_EQ(find_fetched(root_.path() / "hub", *parse_wish("org/dir")), "");
}

TEST_F(FetchTest, ASecondQuantizationJoinsTheFirstAndANewCommitKeepsBoth) {
  fetch("org/m-GGUF:Q8_0");
  fetch("org/m-GGUF");
  const std::vector<std::string> both = {"org/m-GGUF:m-Q4_K_M", "org/m-GGUF:m-Q8_0"};
  EXPECT_EQ(names(), both);
  hub_.commit = std::string(40, 'd');
  fetch("org/m-GGUF");
  EXPECT_EQ(names(), both);
  EXPECT_EQ(read_file(repository() / "refs/main"), hub_.commit);
}

TEST_F(FetchTest, NamesThatAddressesCannotHold) {
  hub_.add("org/odd", "dir %20/m #1?ü+Q4_K_M.gguf", "odd", true);
  EXPECT_EQ(read_file(fetch("org/odd")), "odd");
  EXPECT_EQ(names(), std::vector<std::string>{"org/odd"});
}

TEST_F(FetchTest, AStoreOnTheHubsOwnHost) {
  hub_.store_beside = true;
  hub_.list_details = false;  // the checksum is in the redirect alone
  EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_);
  EXPECT_EQ(count("HEAD", TestHub::hash_of(weights_, true)), 0u);
}

TEST_F(FetchTest, TheTokenStaysWithTheHub) {
  FetchOptions with_token = options();
  with_token.endpoint.token = "hf_secret";
  Fetcher fetcher(with_token);
  fetcher.fetch(fetcher.plan(*parse_wish("org/m-GGUF")), {});
  size_t at_store = 0;
  for (const TestRequest& request : hub_.requests()) {
    EXPECT_EQ(request.headers.contains("authorization"), !request.store) << request.target;
    at_store += request.store;
  }
  EXPECT_EQ(at_store, 1u);
}

TEST_F(FetchTest, ResumesAfterACutWithTheTagOfWhatItHas) {
  fail_content({{.cut_after = 1000}, {.reset = true}, {.cut_after = 500}});
  EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_);
  std::vector<std::string> ranges;
  for (const TestRequest& request : hub_.requests())
    if (request.store && request.headers.contains("range")) {
      ranges.push_back(request.headers.at("range"));
      EXPECT_EQ(request.headers.at("if-range"), "\"store\"");
    }
  EXPECT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges.front(), "bytes=1000-");
  EXPECT_EQ(ranges.back(), "bytes=1500-");
  EXPECT_EQ(slept_.size(), 3u);
}

TEST_F(FetchTest, ResumesWhatAnEarlierRunLeft) {
  fail_content(std::vector<Fault>(100, {.cut_after = 0}));
  expect_error(ErrorCode::kUnavailable, "org/m-GGUF/m-Q4_K_M.gguf: ", [&] { fetch("org/m-GGUF"); });
  EXPECT_EQ(names(), std::vector<std::string>{});
  fs::create_directories(partial().parent_path());
  std::ofstream(partial(), std::ios::binary) << weights_.substr(0, 100'000);
  fail_content({});
  Fetcher fetcher(options());
  const FetchPlan plan = fetcher.plan(*parse_wish("org/m-GGUF"));
  EXPECT_EQ(plan.missing_bytes, kLarge - 100'000);
  EXPECT_EQ(read_file(fetcher.fetch(plan, {})), weights_);
  EXPECT_EQ(hub_.requests().back().headers.at("range"), "bytes=100000-");
}

TEST_F(FetchTest, APartialFileOfOtherBytesIsFoundOutAndReplaced) {
  fs::create_directories(partial().parent_path());
  for (const size_t size : {size_t{100}, kLarge, kLarge + 1}) {
    fs::remove_all(repository() / "snapshots");
    fs::remove(repository() / "blobs" / TestHub::hash_of(weights_, true));
    std::ofstream(partial(), std::ios::binary) << std::string(size, 'x');
    EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_) << size;
    EXPECT_FALSE(fs::exists(partial()));
  }
}

TEST_F(FetchTest, IgnoredAndWrongRangesStartAnew) {
  fail_content({{.cut_after = 1000}, {.ignore_range = true}});
  EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_);
  fs::remove_all(repository());
  fail_content({{.cut_after = 1000}, {.wrong_range = true}});
  EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_);
}

TEST_F(FetchTest, WrongContentsAreFetchedOnceMoreThenRefused) {
  fail_content({{.corrupt = true}});
  std::vector<std::string> notes;
  EXPECT_EQ(read_file(fetch(
                "org/m-GGUF",
                {.progress = {}, .note = [&](const std::string& note) { notes.push_back(note); }})),
            weights_);
  EXPECT_EQ(notes.size(), 1u);
  fs::remove_all(repository());
  fail_content({{.corrupt = true}, {.corrupt = true}});
  expect_error(ErrorCode::kCorruptData,
               "org/m-GGUF/m-Q4_K_M.gguf: the contents do not have the checksum",
               [&] { fetch("org/m-GGUF"); });
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(FetchTest, WrongLengthsAreNeverTaken) {
  fail_content({{.lie_length = true}});
  EXPECT_EQ(read_file(fetch("org/m-GGUF")), weights_);
  fs::remove_all(repository());
  fail_content(std::vector<Fault>(100, {.lie_length = true}));
  expect_error(ErrorCode::kUnavailable, "the server sends 299999 bytes, the hub lists 300000",
               [&] { fetch("org/m-GGUF"); });
}

TEST_F(FetchTest, BusyServersAreAskedAgainAsTheyWish) {
  hub_.set_faults([n = 0](const TestRequest&) mutable {
    ++n;
    if (n == 1) return Fault{.status = 429, .headers = {{"Retry-After", "7"}}};
    return n == 3 ? Fault{.status = 503} : Fault();
  });
  fetch("org/m-GGUF");
  ASSERT_EQ(slept_.size(), 2u);
  EXPECT_EQ(slept_[0], milliseconds(7000));
  EXPECT_EQ(slept_[1], milliseconds(500));
  hub_.set_faults([](const TestRequest&) {
    return Fault{.status = 429, .headers = {{"Retry-After", "3600"}}};
  });
  expect_error(ErrorCode::kUnavailable, "answers 429 and asks to come back in 3600 s",
               [&] { fetch("org/m-GGUF"); });
  hub_.set_faults([](const TestRequest&) { return Fault{.status = 500}; });
  slept_.clear();
  expect_error(ErrorCode::kUnavailable, "org/m-GGUF: the server answers 500; gave up after 4 tries",
               [&] { fetch("org/m-GGUF"); });
  EXPECT_EQ(slept_,
            (std::vector<milliseconds>{milliseconds(500), milliseconds(1000), milliseconds(2000)}));
}

TEST_F(FetchTest, RefusalsSayWhatToDo) {
  expect_error(ErrorCode::kNotFound, "org/none: ", [&] { fetch("org/none"); });
  EXPECT_TRUE(slept_.empty());
  hub_.set_faults([](const TestRequest&) { return Fault{.status = 401}; });
  expect_error(ErrorCode::kNotFound, "private or gated; check the name, or set HF_TOKEN",
               [&] { fetch("org/m-GGUF"); });
  hub_.set_faults([](const TestRequest& request) {
    return request.content() ? Fault{.status = 403, .headers = {{"X-Error-Code", "GatedRepo"}}}
                             : Fault();
  });
  expect_error(ErrorCode::kNotFound, "is gated: accept its terms at " + hub_.url() + "/org/m-GGUF",
               [&] { fetch("org/m-GGUF"); });
}

TEST_F(FetchTest, SlowTransfersEnd) {
  fail_content({{.cut_after = 10, .silent = true}});
  TransportOptions slow;
  slow.base = hub_.url();
  slow.low_speed_time = std::chrono::seconds(1);
  Fetcher fetcher(options(), make_curl_transport(slow));
  EXPECT_EQ(read_file(fetcher.fetch(fetcher.plan(*parse_wish("org/m-GGUF")), {})), weights_);
}

TEST_F(FetchTest, SpaceIsCheckedBeforeTheFirstByte) {
  FetchOptions greedy = options();
  greedy.keep_free = uint64_t{1} << 60;
  Fetcher fetcher(greedy);
  const FetchPlan plan = fetcher.plan(*parse_wish("org/m-GGUF"));
  expect_error(ErrorCode::kResourceExhausted, "org/m-GGUF: 0 MiB are to come",
               [&] { fetcher.fetch(plan, {}); });
  EXPECT_EQ(count("GET", "/resolve/"), 0u);
}

TEST_F(FetchTest, Offline) {
  FetchOptions offline = options();
  offline.endpoint.offline = true;
  expect_error(ErrorCode::kUnavailable, "--offline or HF_HUB_OFFLINE", [&] { Fetcher f(offline); });
}

TEST_F(FetchTest, OnlyAllowedSchemesAndHosts) {
  fail_content({{.status = 302, .headers = {{"Location", "http://example.com/x"}}}});
  expect_error(ErrorCode::kInvalidArgument, "refusing to fetch from http://example.com/x",
               [&] { fetch("org/m-GGUF"); });
  fail_content({{.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}});
  expect_error(ErrorCode::kInvalidArgument,
               "refusing to fetch from file:", [&] { fetch("org/m-GGUF"); });
  FetchOptions other = options();
  for (const char* url : {"ftp://127.0.0.1", "nonsense url", ""}) {
    other.endpoint.url = url;
    expect_error(ErrorCode::kInvalidArgument, "HF_ENDPOINT", [&] { Fetcher f(other); });
  }
  TransportOptions strict;
  strict.base = "https://example.com";
  HttpRequest plain;
  plain.url = hub_.url();
  expect_error(ErrorCode::kInvalidArgument, "refusing to fetch from http://127.0.0.1",
               [&] { make_curl_transport(strict)->exchange(plain, {}); });
}

TEST_F(FetchTest, EndlessRedirectsEnd) {
  hub_.set_faults([](const TestRequest& request) {
    return Fault{.status = 307, .headers = {{"Location", request.target}}};
  });
  expect_error(ErrorCode::kUnavailable, "more than 10 redirects", [&] { fetch("org/m-GGUF"); });
}

// ---- Several at once.

TEST_F(FetchTest, ThreadsAndProcessesShareOneDownload) {
  const FetchOptions shared = options();
  const auto work = [&] {
    FetchOptions mine = shared;
    mine.retry.sleep = nullptr;
    Fetcher fetcher(mine);
    return read_file(fetcher.fetch(fetcher.plan(*parse_wish("org/m-GGUF")), {})) == weights_;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = work();
    } catch (...) {
      good = false;
    }
    ::_exit(good ? 0 : 1);
  }
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { good += work(); });
  for (std::thread& thread : threads) thread.join();
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(good, 3);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(count("GET", TestHub::hash_of(weights_, true)), 1u);
}

TEST_F(FetchTest, ADeadProcessHoldsNothing) {
  const fs::path path = root_.path() / "locks/one.lock";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::try_take(path);
    [[maybe_unused]] const auto written = ::write(ready[1], lock ? "x" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_FALSE(FileLock::try_take(path));
  int holder = 0;
  const auto lock = FileLock::take(path, FileLock::Mode::kExclusive, [&](int process) {
    holder = process;
    ::kill(child, SIGKILL);
  });
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(holder, child);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FetchTest, KilledProcessesLeaveNothingHalfWritten) {
  hub_.add("org/s", "s-Q4_K_M-00001-of-00002.gguf", random_bytes(kLarge, 5), true);
  hub_.add("org/s", "s-Q4_K_M-00002-of-00002.gguf", random_bytes(kLarge, 6), true);
  hub_.set_faults([n = 0](const TestRequest& request) mutable {  // so that it takes a few tries
    return request.store ? Fault{.cut_after = size_t(20'000 * (1 + ++n % 5))} : Fault();
  });
  FetchOptions patient = options();
  patient.retry.sleep = [](milliseconds) { std::this_thread::sleep_for(milliseconds(1)); };
  std::mt19937 random(7);
  int finished = 0;
  for (int round = 0; round < 200 && finished == 0; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        Fetcher fetcher(patient);
        fetcher.fetch(fetcher.plan({"org/s", ""}), {});
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    std::this_thread::sleep_for(milliseconds(random() % 30));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    finished += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const fs::path blobs = root_.path() / "hub/models--org--s/blobs";
    std::error_code none;
    for (fs::directory_iterator at(blobs, none), end; !none && at != end; ++at) {
      if (at->path().extension() == ".incomplete") continue;
      ASSERT_EQ(TestHub::hash_of(read_file(at->path()), true), at->path().filename());
    }
    for (const std::string& name : names()) ASSERT_EQ(name, "org/s");
    ASSERT_EQ(names().empty(), find_fetched(root_.path() / "hub", {"org/s", ""}).empty());
  }
  EXPECT_EQ(fetch("org/s").filename(), "s-Q4_K_M-00001-of-00002.gguf");
  EXPECT_EQ(read_file(fetch("org/s")), random_bytes(kLarge, 5));
}

// ---- Many simulated transfers: whatever goes wrong, the cache is whole and the bytes are right.

constexpr size_t kMostBytes = 40'000;

Fault any_fault(std::mt19937& random) {
  switch (random() % 12) {
    case 0:
      return {.cut_after = random() % kMostBytes};
    case 1:
      return {.reset = true};
    case 2:
      return {.status = 429, .headers = {{"Retry-After", std::to_string(random() % 20)}}};
    case 3:
      return {.status = 500 + int(random() % 5)};
    case 4:
      return {.cut_after = random() % kMostBytes, .ignore_range = true};
    case 5:
      return {.wrong_range = true};
    case 6:
      return {.lie_length = true};
    case 7:
      return {.corrupt = random() % 4 == 0};
    case 8:
      return {.ignore_range = true};
    default:
      return {};
  }
}

TEST(FetchProperty, TheCacheIsAlwaysWhole) {
  const int transfers = std::getenv("MANTOU_TEST_FULL") != nullptr ? 1000 : 60;
  int whole = 0;
  for (int seed = 0; seed < transfers; ++seed) {
    std::mt19937 random{uint32_t(seed)};
    const TempDirectory root;
    TestHub hub;
    std::map<std::string, std::string> contents;
    for (const char* name : {"m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"}) {
      contents[name] = random_bytes(random() % kMostBytes, random());
      hub.add("org/m", name, contents[name], random() % 4 != 0);
    }
    hub.list_details = random() % 2 == 0;
    hub.set_faults([faults = std::mt19937(uint32_t(seed))](const TestRequest& request) mutable {
      return request.content() || faults() % 4 == 0 ? any_fault(faults) : Fault();
    });
    FetchOptions options;
    options.hf_cache = root.path() / "hub";
    options.endpoint.url = hub.url();
    options.keep_free = 0;
    options.retry.sleep = [](milliseconds) {};
    for (int run = 0; run < 4; ++run) {
      fs::path file;
      try {
        Fetcher fetcher(options);
        file = fetcher.fetch(fetcher.plan({"org/m", ""}), {});
      } catch (const Error& error) {
        EXPECT_EQ(error.message().find('\n'), std::string::npos);
        EXPECT_NE(error.message().find("org/m"), std::string::npos) << error.message();
      }
      // Each blob has the contents its name says, and links lead to whole ones.
      const fs::path repository = options.hf_cache / "models--org--m";
      std::error_code none;
      for (fs::directory_iterator at(repository / "blobs", none), end; !none && at != end; ++at) {
        if (at->path().extension() == ".incomplete") continue;
        const std::string name = at->path().filename(), bytes = read_file(at->path());
        ASSERT_EQ(TestHub::hash_of(bytes, name.size() == 64), name) << "seed " << seed;
      }
      ASSERT_EQ(fs::exists(repository / "snapshots"), !file.empty()) << "seed " << seed;
      if (file.empty()) continue;
      for (const auto& [name, bytes] : contents)
        ASSERT_EQ(read_file(file.parent_path() / name), bytes) << "seed " << seed;
      ++whole;
      break;
    }
  }
  EXPECT_GT(whole, transfers / 2);
}

// ---- Garbage.

TEST_F(FetchTest, GarbageIsWhatNobodyUses) {
  const fs::path cache = root_.path() / "hub";
  const fs::path file = fetch("org/m-GGUF");
  const fs::path blobs = repository() / "blobs";
  const auto write = [](const fs::path& path) { std::ofstream(path, std::ios::binary) << "12"; };
  write(blobs / "unused");
  write(blobs / "young.incomplete");
  write(blobs / "old.incomplete");
  fs::last_write_time(blobs / "old.incomplete",
                      fs::file_time_type::clock::now() - kIncompleteAge - std::chrono::hours(1));
  const auto named = [&](bool remove) {
    std::vector<std::string> out;
    for (const Garbage& item : collect_garbage(cache, remove)) out.push_back(item.path.filename());
    return out;
  };
  const auto all = ::testing::UnorderedElementsAre("unused", "old.incomplete", "fetch.lock",
                                                   TestHub::hash_of(weights_, true) + ".lock");
  EXPECT_THAT(named(false), all);
  EXPECT_TRUE(fs::exists(blobs / "unused"));
  {
    const auto busy = FileLock::try_take(cache / ".locks/models--org--m-GGUF/fetch.lock",
                                         FileLock::Mode::kShared);
    EXPECT_THAT(named(true), ::testing::ElementsAre(TestHub::hash_of(weights_, true) + ".lock"));
    EXPECT_TRUE(fs::exists(blobs / "unused"));
  }
  EXPECT_THAT(named(true),
              ::testing::UnorderedElementsAre("unused", "old.incomplete", "fetch.lock"));
  EXPECT_EQ(read_file(file), weights_);
  EXPECT_TRUE(fs::exists(blobs / "young.incomplete"));
  EXPECT_FALSE(fs::exists(blobs / "unused"));
  EXPECT_FALSE(fs::exists(cache / ".locks/models--org--m-GGUF"));
  EXPECT_TRUE(named(true).empty());
  EXPECT_TRUE(collect_garbage(root_.path() / "none", false).empty());
}

TEST_F(FetchTest, SnapshotsThatWereMovedAreInUse) {
  const fs::path file = fetch("org/m-GGUF");
  const fs::path snapshot = file.parent_path(), moved = root_.path() / "elsewhere";
  fs::create_directory(moved);
  fs::create_symlink(repository() / "blobs" / TestHub::hash_of(weights_, true),
                     moved / file.filename());
  fs::remove_all(snapshot);
  fs::create_directory_symlink(moved, snapshot);
  for (const Garbage& item : collect_garbage(root_.path() / "hub", true))
    EXPECT_EQ(item.kind, Garbage::Kind::kLock) << item.path;
  EXPECT_EQ(read_file(file), weights_);
}

}  // namespace
}  // namespace mantou::hub
