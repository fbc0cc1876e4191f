// Every combination of backend, preset, cache type, quantization and kind of layer: which states it
// gives, or why it is refused.
#include "cli/cache_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "cli/backends.h"
#include "cli/inspection_backend.h"

namespace mantou::cli {
namespace {

using testing::HasSubstr;

class TwoLayers final : public models::Model {
 public:
  explicit TwoLayers(int64_t window, int head_dim) : window_(window), head_dim_(head_dim) {}
  const models::ModelInfo& info() const override { return info_; }
  const Head& head() const override { return head_; }
  std::vector<StateSpec> state_specs(KvType type) const override {
    return {{1, head_dim_, window_, type}, {1, head_dim_, 0, type}};
  }
  Tensor forward(Backend&, std::span<const int32_t>, std::span<const std::unique_ptr<LayerState>>,
                 const StopFlag*) const override {
    return {};
  }

  models::ModelInfo info_;

 private:
  int64_t window_;
  int head_dim_;
  Head head_;
};

class CacheOptions : public testing::Test {
 protected:
  CacheOptions() {
    folder_ = std::filesystem::temp_directory_path() /
              ("mantou-cache-options-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  ~CacheOptions() override { std::filesystem::remove_all(folder_); }
  void write_config(const char* text) { std::ofstream(folder_ / "kv_config.json") << text; }

  std::vector<StateSpec> states(const ModelOptions& options, int64_t window = 0,
                                int head_dim = 64) const {
    const auto backend = make_inspection_backend(wants_mlx(options));
    RawWeight table;  // f32: the type of keys and values on mlx
    backend->pack(table, WeightUse::kTable);
    return state_specs(TwoLayers(window, head_dim), *backend, options, folder_);
  }
  std::string refusal(const ModelOptions& options, int64_t window = 0, int head_dim = 64) const {
    try {
      states(options, window, head_dim);
    } catch (const Error& error) {
      return error.message();
    }
    return "works";
  }

  std::filesystem::path folder_;
};

// The reason a combination is refused for; empty: it works.
std::string expected(const ModelOptions& o, bool slides, bool has_config) {
  const bool mlx = o.backend == BackendChoice::kMlx || o.exact != Exact::kNo;
  if (o.backend == BackendChoice::kCpu && o.exact != Exact::kNo) return "--backend says cpu";
  const bool uniform = o.kv_quant == CacheQuant::k8 || o.kv_quant == CacheQuant::k4;
  const bool config = o.kv_quant == CacheQuant::kConfig || o.exact == Exact::kMixed;
  if (mlx && o.kv_type != CacheType::kAuto) return "--kv-type is for the cpu backend";
  if (o.exact == Exact::kMixed && uniform) return "leave --kv-quant out";
  if (config && !has_config) return "no kv_config.json";
  if (o.exact == Exact::kYes && slides && (uniform || config))
    return "mlx-lm quantizes no sliding cache";
  return "";
}

TEST_F(CacheOptions, EveryCombinationWorksOrSaysWhyNot) {
  int worked = 0, refused = 0;
  for (const bool has_config : {false, true}) {
    if (has_config) write_config(R"([{"layer_idx": 0, "bits": 4, "group_size": 32}])");
    for (const auto backend : {BackendChoice::kAuto, BackendChoice::kCpu, BackendChoice::kMlx})
      for (const auto exact : {Exact::kNo, Exact::kYes, Exact::kMixed})
        for (const auto type : {CacheType::kAuto, CacheType::kF16, CacheType::kBF16})
          for (const auto quant :
               {CacheQuant::kOff, CacheQuant::k8, CacheQuant::k4, CacheQuant::kConfig})
            for (const int64_t window : {0, 16}) {
              ModelOptions o;
              o.backend = backend;
              o.exact = exact;
              o.kv_type = type;
              o.kv_quant = quant;
              o.quantized_kv_start = 7;
              const std::string reason = expected(o, window > 0, has_config);
              if (!reason.empty()) {
                refused++;
                EXPECT_THAT(refusal(o, window), HasSubstr(reason));
                continue;
              }
              worked++;
              const auto specs = states(o, window);
              const bool config = quant == CacheQuant::kConfig || exact == Exact::kMixed;
              const int bits = quant == CacheQuant::k8 ? 8 : quant == CacheQuant::k4 ? 4 : 0;
              EXPECT_EQ(specs[0].quant, config     ? (KvQuant{4, 32, 7})
                                        : bits > 0 ? (KvQuant{bits, 64, 7})
                                                   : KvQuant{});
              EXPECT_EQ(specs[1].quant, bits > 0 && !config ? (KvQuant{bits, 64, 7}) : KvQuant{});
              EXPECT_EQ(specs[0].type, wants_mlx(o)               ? KvType::kF32
                                       : type == CacheType::kBF16 ? KvType::kBF16
                                                                  : KvType::kF16);
            }
  }
  EXPECT_GT(worked, 50);
  EXPECT_GT(refused, 50);
}

TEST_F(CacheOptions, ExactHasTheWindowsOfMlxLm) {
  ModelOptions o;
  o.exact = Exact::kYes;
  const auto backend = make_inspection_backend(true);
  backend->pack({}, WeightUse::kTable);
  TwoLayers model(16, 64);
  EXPECT_EQ(state_specs(model, *backend, o, folder_)[0].window, 16);
  model.info_.mlx_lm_slides = false;
  EXPECT_EQ(state_specs(model, *backend, o, folder_)[0].window, 0);
  o.kv_quant = CacheQuant::k8;
  EXPECT_EQ(state_specs(model, *backend, o, folder_)[0].quant.bits, 8);
  o.exact = Exact::kNo;
  EXPECT_EQ(state_specs(model, *backend, o, folder_)[0].window, 16);
}

TEST_F(CacheOptions, HeadsMustHaveTheGroups) {
  ModelOptions o;
  o.kv_quant = CacheQuant::k8;
  EXPECT_THAT(refusal(o, 0, 96), HasSubstr("heads of 96 dimensions have no groups of 64"));
  o.kv_group_size = 32;
  EXPECT_EQ(refusal(o, 0, 96), "works");
  o.kv_group_size = 48;
  EXPECT_THAT(refusal(o), HasSubstr("--kv-group-size is 48, must be 32, 64 or 128"));
}

TEST_F(CacheOptions, AConfigurationThatCannotBeIsRefused) {
  ModelOptions o;
  o.kv_quant = CacheQuant::kConfig;
  write_config(R"([{"layer_idx": 2, "bits": 8}])");
  EXPECT_THAT(refusal(o), HasSubstr("layer_idx is 2, must be 0 … 1"));
  write_config(R"([{"layer_idx": 0, "bits": 8}, {"layer_idx": 0, "bits": 4}])");
  EXPECT_THAT(refusal(o), HasSubstr("entry 1: layer_idx is 0 again"));
  write_config(R"([{"layer_idx": 1, "bits": 2}])");
  EXPECT_THAT(refusal(o), HasSubstr("bits is 2, must be 4 or 8"));
  write_config(R"([{"layer_idx": 1, "bits": 4, "group_size": 128}])");
  EXPECT_THAT(refusal(o), HasSubstr("layer 1: heads of 64 dimensions have no groups of 128"));
  EXPECT_EQ(refusal(o, 0, 256), "works");
  EXPECT_THAT(refusal(o, 0, 80), HasSubstr("layer 1: heads of 80 dimensions"));
  o.kv_quant = CacheQuant::k8;
  write_config("[{");
  EXPECT_EQ(refusal(o), "works");  // nothing asks for it
  o.kv_quant = CacheQuant::kConfig;
  EXPECT_THAT(refusal(o), HasSubstr("kv_config.json"));
}

}  // namespace
}  // namespace mantou::cli
