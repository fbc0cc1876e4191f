#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "hub/json_file.h"

namespace mantou::models {
namespace {

// What the scaling functions see: the rope to change, the rope_scaling object and its surroundings.
struct Scaling {
  Rope& rope;
  const hub::ConfigReader& config;
  const hub::ConfigReader& scaling;
  hub::ModelArtifact& artifact;
  double theta;

  // original_max_position_embeddings, which some checkpoints keep outside of rope_scaling.
  double original(double fallback) const {
    constexpr const char* kKey = "original_max_position_embeddings";
    const auto& from = scaling.has(kKey) || !config.has(kKey) ? scaling : config;
    return double(from.get_int(kKey, 1, kMaxPositions, int64_t(fallback)));
  }
};

void scale_default(const Scaling&) {}

void scale_linear(const Scaling& s) {
  const double factor = s.scaling.get_double("factor", 1e-3, 1e6);
  s.rope.recipe.factor = factor;
  for (double& f : s.rope.inv_freq) f /= factor;
}

// Long wavelengths are stretched by `factor`, short ones kept, those between interpolated. Source:
// the "llama3" rope type of config.json as published with Llama 3.1. What divides a frequency is
// rounded as GGUF's table of the same factors is, so that both formats give the same bits.
void scale_llama3(const Scaling& s) {
  const double factor = s.scaling.get_double("factor", 1, 1e6);
  const double low = s.scaling.get_double("low_freq_factor", 1e-3, 1e6, 1.0);
  const double high = s.scaling.get_double("high_freq_factor", 1e-3, 1e6, 4.0);
  const double original = s.original(8192);
  if (!(high > low)) s.scaling.fail_key("high_freq_factor", "must exceed low_freq_factor");
  RopeRecipe& recipe = s.rope.recipe;
  recipe.kind = RopeRecipe::Kind::kLlama3;
  recipe.factor = factor;
  recipe.low = low;
  recipe.high = high;
  recipe.original = original;
  for (double& f : s.rope.inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength > original / low) {
      f /= factor;
    } else if (wavelength > original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      f /= double(float(1 / ((1 - smooth) / factor + smooth)));
    }
  }
}

// Peng et al., arXiv:2309.00071: dimensions that turn often keep their frequency, slow ones are
// interpolated, with a ramp between; what is rotated is scaled against the softmax's temperature.
void scale_yarn(const Scaling& s) {
  const double factor = s.scaling.get_double("factor", 1e-3, 1e6);
  const double original = s.original(4096);
  const double fast = s.scaling.get_double("beta_fast", 1e-3, 1e6, 32.0);
  const double slow = s.scaling.get_double("beta_slow", 1e-3, 1e6, 1.0);
  const size_t count = s.rope.inv_freq.size();
  const double dims = 2 * double(count);
  const auto dimension = [&](double turns) {
    return dims * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
  };
  const bool truncate = s.scaling.get_bool("truncate", true);
  double low = dimension(fast), high = dimension(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  s.rope.recipe.kind = RopeRecipe::Kind::kYarn;
  s.rope.recipe.factor = factor;
  s.rope.recipe.low = low;
  s.rope.recipe.high = high;
  for (size_t i = 0; i < count; i++) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    double& f = s.rope.inv_freq[i];
    f = f / factor * ramp + f * (1 - ramp);
  }
  const auto temperature = [&](double weight) {
    return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1;
  };
  if (s.scaling.has("attention_factor")) {
    s.rope.scale = float(s.scaling.get_double("attention_factor", 1e-3, 1e3));
  } else {
    const double all = s.scaling.get_double("mscale_all_dim", 0, 1e3, 0.0);
    s.rope.scale =
        float(temperature(s.scaling.get_double("mscale", 0, 1e3, 1.0)) / temperature(all));
  }
}

std::vector<double> stored_factors(hub::ModelArtifact& artifact, const std::string& name,
                                   size_t count) {
  RawWeight row;
  row.data = artifact.tensor(name);
  row.rows = 1;
  row.cols = row.data.elements();
  std::vector<float> values(static_cast<size_t>(row.cols));
  decode_row(row, 0, values);
  if (values.size() != count)
    fail_param(ErrorCode::kCorruptData, name, "{}: {} has {} elements, the rope needs {}",
               artifact.path().string(), name, values.size(), count);
  for (const float value : values)
    if (!(value > 0) || std::isinf(value))
      fail_param(ErrorCode::kCorruptData, name, "{}: {} holds {}, must be positive",
                 artifact.path().string(), name, value);
  return {values.begin(), values.end()};
}

// Ding et al., arXiv:2402.13753: a factor for each frequency. The long factors hold at all
// positions, as in mlx-lm: a row's result may not change when it grows past the original context.
void scale_longrope(const Scaling& s) {
  const size_t count = s.rope.inv_freq.size();
  std::vector<double> factors;
  if (s.artifact.has("rope_factors_long.weight")) {
    factors = stored_factors(s.artifact, "rope_factors_long.weight", count);
    if (s.artifact.has("rope_factors_short.weight"))
      stored_factors(s.artifact, "rope_factors_short.weight", count);
  } else {
    factors = s.scaling.get_double_array("long_factor", 1e-6, 1e6, 4096);
    if (factors.size() == 1) factors.assign(count, factors[0]);
    if (factors.size() != count)
      s.scaling.fail_key("long_factor",
                         fmt::format("has {} entries, the rope needs {}", factors.size(), count));
  }
  s.rope.recipe.kind = RopeRecipe::Kind::kFactors;
  s.rope.recipe.factors.assign(factors.begin(), factors.end());
  for (size_t i = 0; i < count; i++) s.rope.inv_freq[i] /= double(s.rope.recipe.factors[i]);
  const double original = s.original(4096);
  const double longest =
      double(s.config.get_int("max_position_embeddings", 1, kMaxPositions, 131072));
  if (s.scaling.has("attention_factor"))
    s.rope.scale = float(s.scaling.get_double("attention_factor", 1e-3, 1e3));
  else if (longest > original)
    s.rope.scale = float(std::sqrt(1 + std::log(longest / original) / std::log(original)));
}

// The frequencies of the whole head, of which the first `partial_rotary_factor` are used.
void scale_proportional(const Scaling& s) {
  const double part = s.scaling.get_double("partial_rotary_factor", 0, 1, 1.0);
  const double factor = s.scaling.get_double("factor", 1e-3, 1e6, 1.0);
  const size_t dims = 2 * s.rope.inv_freq.size();
  const size_t rotated = size_t(double(dims) * part) / 2;
  s.rope.recipe.kind = RopeRecipe::Kind::kProportional;
  s.rope.recipe.factor = factor;
  s.rope.recipe.rotated = int(double(dims) * part);
  for (size_t i = 0; i < s.rope.inv_freq.size(); i++)
    s.rope.inv_freq[i] = i < rotated ? s.rope.inv_freq[i] / factor : 0;
}

struct ScalingType {
  std::string_view name;
  void (*scale)(const Scaling& scaling);
};
constexpr ScalingType kScalingTypes[] = {
    {"default", scale_default}, {"none", scale_default},
    {"mrope", scale_default},    // of text alone: all three positions are the same
    {"dynamic", scale_default},  // changes beyond the original context alone, where rows end
    {"linear", scale_linear},   {"llama3", scale_llama3},
    {"yarn", scale_yarn},       {"longrope", scale_longrope},
    {"su", scale_longrope},     {"proportional", scale_proportional},
};

std::string scaling_type(const hub::ConfigReader& scaling) {
  return scaling.get_string("rope_type", scaling.get_string("type", "default"));
}

void apply_scaling(const Scaling& s) {
  const std::string type = scaling_type(s.scaling);
  for (const ScalingType& known : kScalingTypes)
    if (known.name == type) return known.scale(s);
  std::vector<std::string_view> names;
  for (const ScalingType& known : kScalingTypes) names.push_back(known.name);
  fail_param(ErrorCode::kUnsupported, "rope_scaling",
             "{}: rope_scaling type \"{}\" is not supported ({} are)", s.config.origin(),
             hub::printable(type), fmt::join(names, ", "));
}

}  // namespace

Rope plain_rope(double theta, int dims) {
  Rope rope;
  rope.recipe.theta = theta;
  rope.recipe.dims = dims;
  for (int i = 0; i < dims; i += 2) rope.inv_freq.push_back(std::pow(theta, -double(i) / dims));
  return rope;
}

Rope read_rope(hub::ModelArtifact& artifact, const hub::ConfigReader& config, int head_dim,
               double default_theta) {
  const double theta = config.get_double("rope_theta", 1e-3, 1e12, default_theta);
  const auto scaling = config.get_object("rope_scaling");
  const double part = config.get_double("partial_rotary_factor", 0, 1, 1.0);
  // A proportional rope has the frequencies of the whole head and uses a part of them.
  const bool whole = scaling && scaling_type(*scaling) == "proportional";
  const int rotated = whole ? head_dim : std::max(2, int(part * head_dim + 1e-6) / 2 * 2);
  Rope rope = plain_rope(theta, rotated);
  if (scaling) apply_scaling({rope, config, *scaling, artifact, theta});
  for (const double f : rope.inv_freq)
    if (!std::isfinite(f) || !std::isfinite(rope.scale))
      config.fail_key("rope_scaling", fmt::format("and rope_theta {} make no frequencies", theta));
  const std::string table = "rope_freqs.weight";
  if (artifact.has(table)) {
    const std::vector<double> divisors = stored_factors(artifact, table, rope.inv_freq.size());
    for (size_t i = 0; i < divisors.size(); i++) rope.inv_freq[i] /= divisors[i];
    rope.recipe.kind = RopeRecipe::Kind::kFactors;
    rope.recipe.factors.assign(divisors.begin(), divisors.end());
  }
  return rope;
}

}  // namespace mantou::models
