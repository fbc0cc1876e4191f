// Teacher-forced logits of a model, for comparison with references in Python.
//
//   logits_driver MODEL IDS OUT.npy [--backend cpu|mlx] [--compute auto|f32] [--chunks A,B,…]
//                 [--threads N] [--kv f16|bf16|f32] [--kv-bits 8|4] [--kv-group N] [--kv-start N]
//
// IDS holds one context a line: token ids separated by spaces. OUT.npy becomes f32 [sum of lengths,
// vocabulary], row i the logits after token i of its context. A context is forwarded in steps of A,
// B, … tokens, the last of these lengths for as often as needed. With --argmax 1 a row is the one
// number of the largest logit.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "backends/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "hub/model_artifact.h"
#include "hub/resolve.h"
#include "models/registry.h"
#ifdef MANTOU_MLX
#include "backends/mlx/mlx_backend.h"
#endif

namespace mantou {
namespace {

using States = std::vector<std::unique_ptr<LayerState>>;

struct Arguments {
  std::string model, ids, out;
  bool mlx = false;
  cpu::CpuOptions cpu;
  std::vector<int> chunks{64};
  KvType kv = KvType::kF16;
  KvQuant quant;
  bool argmax = false;
};

std::vector<int> numbers(const std::string& list) {
  std::istringstream words(list);
  std::vector<int> out;
  for (std::string word; std::getline(words, word, ',');)
    out.push_back(std::max(1, std::atoi(word.c_str())));
  return out;
}

std::unique_ptr<Backend> make_backend(bool mlx, const cpu::CpuOptions& options) {
  if (!mlx) return cpu::make_cpu_backend(options);
#ifdef MANTOU_MLX
  return on_mlx::make_mlx_backend(std::max(1, options.threads));
#else
  fail(ErrorCode::kUnsupported, "this build has no mlx backend");
#endif
}

Arguments parse(int argc, char** argv) {
  if (argc < 4 || argc % 2 != 0)
    fail(ErrorCode::kInvalidArgument, "usage: logits_driver MODEL IDS OUT.npy [--option value …]");
  Arguments a;
  a.model = argv[1];
  a.ids = argv[2];
  a.out = argv[3];
  for (int i = 4; i < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--compute")
      a.cpu.compute_f32 = value == "f32";
    else if (option == "--backend")
      a.mlx = value == "mlx";
    else if (option == "--chunks")
      a.chunks = numbers(value);
    else if (option == "--threads")
      a.cpu.threads = std::atoi(value.c_str());
    else if (option == "--argmax")
      a.argmax = value == "1";
    else if (option == "--kv-bits")
      a.quant.bits = std::atoi(value.c_str());
    else if (option == "--kv-group")
      a.quant.group = std::atoi(value.c_str());
    else if (option == "--kv-start")
      a.quant.start = std::atoi(value.c_str());
    else if (option == "--kv")
      a.kv = value == "f32" ? KvType::kF32 : value == "bf16" ? KvType::kBF16 : KvType::kF16;
    else
      fail(ErrorCode::kInvalidArgument, "unknown option {}", option);
  }
  return a;
}

std::vector<std::vector<int32_t>> read_contexts(const std::string& path) {
  std::istringstream lines(read_file(path));
  std::vector<std::vector<int32_t>> contexts;
  size_t total = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<int32_t> ids;
    for (int32_t id; words >> id;) ids.push_back(id);
    total += ids.size();
    if (!ids.empty()) contexts.push_back(std::move(ids));
  }
  if (total == 0) fail(ErrorCode::kInvalidArgument, "{}: no token ids", path);
  return contexts;
}

// The header of NumPy's .npy format, version 1.0.
void write_header(std::ostream& out, size_t rows, size_t cols) {
  std::string dictionary =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  dictionary.append(64 - (10 + dictionary.size() + 1) % 64, ' ');
  dictionary += '\n';
  out.write("\x93NUMPY\x01\x00", 8);
  const char length[] = {char(dictionary.size() & 255), char(dictionary.size() >> 8)};
  out.write(length, 2);
  out << dictionary;
}

void forward(Backend& backend, const models::Model& model, States& states,
             std::span<const int32_t> tokens, int64_t position, bool argmax, std::ostream& out) {
  StepLayout layout;
  layout.rows.push_back({0, 0, int(tokens.size()), position});
  layout.total_tokens = int(tokens.size());
  std::vector<HeadRequest> requests;
  const auto want = argmax ? HeadRequest::Want::kArgMax : HeadRequest::Want::kLogits;
  for (int i = 0; i < layout.total_tokens; i++) requests.push_back({i, want});
  for (auto& state : states) state->begin_step(layout);
  backend.begin_step(layout);
  const Tensor hidden = model.forward(backend, tokens, states, nullptr);
  for (const Score& score : backend.head(hidden, model.head(), requests)) {
    const auto best = float(score.arg_max);
    const std::span<const float> values = argmax ? std::span(&best, 1) : score.logits;
    out.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size_bytes()));
  }
  backend.end_step();
  for (auto& state : states) state->commit_step();
}

int run(int argc, char** argv) {
  const Arguments a = parse(argc, argv);
  const auto contexts = read_contexts(a.ids);
  const auto artifact = hub::ModelArtifact::open(hub::resolve_model(a.model));
  const auto backend = make_backend(a.mlx, a.cpu);
  const auto model = models::load_model(*artifact, *backend);
  size_t total = 0;
  for (const auto& ids : contexts) total += ids.size();
  std::ofstream out(a.out, std::ios::binary);
  write_header(out, total, a.argmax ? 1 : size_t(model->info().vocab));
  for (const auto& ids : contexts) {
    States states;
    for (StateSpec spec : model->state_specs(a.kv)) {
      spec.quant = a.quant;
      states.push_back(backend->make_state(spec));
      states.back()->add_row();
    }
    for (size_t at = 0, step = 0; at < ids.size(); step++) {
      const size_t wanted = size_t(a.chunks[std::min(step, a.chunks.size() - 1)]);
      const size_t count = std::min(wanted, ids.size() - at);
      forward(*backend, *model, states, std::span(ids).subspan(at, count), int64_t(at), a.argmax,
              out);
      at += count;
    }
  }
  out.flush();
  if (!out) fail(ErrorCode::kIo, "{}: cannot write", a.out);
  return 0;
}

}  // namespace
}  // namespace mantou

int main(int argc, char** argv) try {
  return mantou::run(argc, argv);
} catch (const std::exception& error) {
  std::cerr << "logits_driver: " << error.what() << '\n';
  return 1;
}
