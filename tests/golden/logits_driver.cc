// Teacher-forced logits of a model, for comparison with references in Python.
//
//   logits_driver MODEL IDS OUT.npy [--backend cpu|mlx] [--compute auto|f32] [--chunks A,B,…]
//                 [--threads N] [--kv f16|bf16|f32] [--kv-bits 8|4|config] [--kv-group N]
//                 [--kv-start N] [--argmax 1] [--from N]
//                 [--beside 1 | --together A,B,…]
//
// IDS holds one context a line: token ids separated by spaces. OUT.npy, which may be a pipe,
// becomes f32 [sum of lengths, vocabulary], row i the logits after token i of its context; with
// --from N without the rows of the first N tokens of every context. A context is forwarded in steps
// of A, B, … tokens, the last of these lengths for as often as needed. With --argmax 1 a row is the
// one number of the largest logit. --kv-bits config: layer by layer as MODEL/kv_config.json says.
//
// --beside 1: each context is a row that two others live beside. It joins them, is packed with them
// for a step of all three that is given up, before each step of its own, and stays alone for the
// second half of its steps.
// --together A,B,…: all contexts are rows of one state; the last A tokens of the first, B of the
// second, … are forwarded one by one in steps of all rows that have some left; a row that has none
// leaves.
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
#include "runtime/kv_scheme.h"
#ifdef MANTOU_MLX
#include "backends/mlx/mlx_backend.h"
#endif

namespace mantou {
namespace {

using States = std::vector<std::unique_ptr<LayerState>>;
using Ids = std::span<const int32_t>;

struct Arguments {
  std::string model, ids, out;
  bool mlx = false;
  cpu::CpuOptions cpu;
  std::vector<int> chunks{64};
  KvType kv = KvType::kF16;
  runtime::KvScheme scheme;
  bool argmax = false, beside = false;
  int64_t from = 0;
  std::vector<int> together;  // empty: every context alone
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
  return on_mlx::make_mlx_backend({std::max(1, options.threads)});
#else
  fail(ErrorCode::kUnsupported, "this build has no mlx backend");
#endif
}

Arguments parse(int argc, char** argv) {
  if (argc < 4 || argc % 2 != 0)
    fail(ErrorCode::kInvalidArgument, "usage: logits_driver MODEL IDS OUT.npy [--option value …]");
  using Kind = runtime::KvScheme::Kind;
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
    else if (option == "--from")
      a.from = std::max(0, std::atoi(value.c_str()));
    else if (option == "--beside")
      a.beside = value == "1";
    else if (option == "--together")
      a.together = numbers(value);
    else if (option == "--kv-bits") {
      a.scheme.kind = value == "config" ? Kind::kConfig : Kind::kUniform;
      a.scheme.bits = std::atoi(value.c_str());
    } else if (option == "--kv-group")
      a.scheme.group = std::atoi(value.c_str());
    else if (option == "--kv-start")
      a.scheme.start = std::atoi(value.c_str());
    else if (option == "--kv")
      a.kv = value == "f32" ? KvType::kF32 : value == "bf16" ? KvType::kBF16 : KvType::kF16;
    else
      fail(ErrorCode::kInvalidArgument, "unknown option {}", option);
  }
  if (!a.together.empty() && a.from > 0)
    fail(ErrorCode::kInvalidArgument, "--from does not go with --together");
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

// Runs contexts through a model and keeps what it says of their tokens.
class Runner {
 public:
  explicit Runner(const Arguments& arguments)
      : a_(arguments),
        artifact_(hub::ModelArtifact::open(hub::resolve_model(a_.model))),
        backend_(make_backend(a_.mlx, a_.cpu)),
        model_(models::load_model(*artifact_, *backend_)) {
    specs_ = runtime::with_scheme(
        a_.mlx ? model_->mlx_lm_state_specs(*backend_->own_kv_type()) : model_->state_specs(a_.kv),
        a_.scheme, artifact_->path());
  }

  size_t columns() const { return a_.argmax ? 1 : size_t(model_->info().vocab); }

  std::vector<float> alone(Ids ids) {
    States states = one_row();
    return in_chunks(states, 0, ids);
  }

  std::vector<float> beside_others(Ids ids) {
    States states;
    for (const Ids tokens : {ids.subspan(ids.size() / 3), ids.first(2), ids.first(0)}) {
      States one = one_row();
      in_chunks(one, 0, tokens);
      join(states, std::move(one));
    }
    return in_chunks(states, 2, ids);
  }

  std::vector<std::vector<float>> together(const std::vector<std::vector<int32_t>>& contexts) {
    struct Live {
      size_t context, at;
    };
    std::vector<std::vector<float>> out;
    std::vector<Live> live;
    States states;
    for (size_t i = 0; i < contexts.size(); i++) {
      const size_t steps = size_t(a_.together[std::min(i, a_.together.size() - 1)]);
      live.push_back({i, contexts[i].size() - std::min(steps, contexts[i].size())});
      States one = one_row();
      out.push_back(in_chunks(one, 0, std::span(contexts[i]).first(live[i].at)));
      join(states, std::move(one));
    }
    while (!live.empty()) {
      std::vector<Part> parts;
      for (size_t r = 0; r < live.size(); r++)
        parts.push_back({int(r), std::span(contexts[live[r].context]).subspan(live[r].at, 1),
                         int64_t(live[r].at)});
      const std::vector<float> said = forward(states, parts);
      std::vector<Live> next;
      std::vector<int> kept;
      for (size_t r = 0; r < live.size(); r++) {
        auto& mine = out[live[r].context];
        mine.insert(mine.end(), said.begin() + ptrdiff_t(r * columns()),
                    said.begin() + ptrdiff_t((r + 1) * columns()));
        if (++live[r].at == contexts[live[r].context].size()) continue;
        next.push_back(live[r]);
        kept.push_back(int(r));
      }
      if (kept.size() < live.size())
        for (auto& state : states) state->keep(kept);
      live = next;
    }
    return out;
  }

 private:
  struct Part {  // of a step: tokens of a row, which holds `position` already
    int row;
    Ids tokens;
    int64_t position;
  };

  States one_row() {
    States states;
    for (const StateSpec& spec : specs_) {
      states.push_back(backend_->make_state(spec));
      states.back()->add_row();
    }
    return states;
  }

  static void join(States& states, States other) {
    if (states.empty()) {
      states = std::move(other);
      return;
    }
    for (size_t i = 0; i < states.size(); i++) states[i]->join(std::move(*other[i]));
  }

  // All of a row's tokens, in steps of --chunks; rows beside it stay for half of the steps.
  std::vector<float> in_chunks(States& states, int row, Ids ids) {
    std::vector<size_t> counts;
    for (size_t at = 0; at < ids.size(); at += counts.back())
      counts.push_back(std::min(size_t(a_.chunks[std::min(counts.size(), a_.chunks.size() - 1)]),
                                ids.size() - at));
    std::vector<float> out;
    size_t at = 0;
    for (size_t step = 0; step < counts.size(); step++) {
      if (row > 0) give_up_step_of_all(states, ids[0]);
      if (row > 0 && step == counts.size() / 2) {
        for (auto& state : states) state->keep(std::array{row});
        row = 0;
      }
      const std::vector<float> said =
          forward(states, {{row, ids.subspan(at, counts[step]), int64_t(at)}});
      out.insert(out.end(), said.begin(), said.end());
      at += counts[step];
    }
    return out;
  }

  StepLayout begin(States& states, const std::vector<Part>& parts, std::vector<int32_t>& tokens) {
    StepLayout layout;
    for (const Part& part : parts) {
      layout.rows.push_back(
          {part.row, layout.total_tokens, int(part.tokens.size()), part.position});
      layout.total_tokens += int(part.tokens.size());
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    for (auto& state : states) state->begin_step(layout);
    backend_->begin_step(layout);
    return layout;
  }

  std::vector<float> forward(States& states, const std::vector<Part>& parts) {
    std::vector<int32_t> tokens;
    const StepLayout layout = begin(states, parts, tokens);
    std::vector<HeadRequest> requests;
    const auto want = a_.argmax ? HeadRequest::Want::kArgMax : HeadRequest::Want::kLogits;
    for (const StepRow& row : layout.rows)
      for (int i = 0; i < row.count; i++)
        if (row.position + i >= a_.from) requests.push_back({row.first + i, want});
    const Tensor hidden = model_->forward(*backend_, tokens, states, nullptr);
    std::vector<float> out;
    const auto scores =
        requests.empty() ? std::vector<Score>{} : backend_->head(hidden, model_->head(), requests);
    for (const Score& score : scores) {
      if (a_.argmax)
        out.push_back(float(score.arg_max));
      else
        out.insert(out.end(), score.logits.begin(), score.logits.end());
    }
    backend_->end_step();
    for (auto& state : states) state->commit_step();
    return out;
  }

  // As when a request is stopped between layers.
  void give_up_step_of_all(States& states, const int32_t& token) {
    std::vector<Part> parts;
    for (int row = 0; row < states[0]->rows(); row++)
      parts.push_back({row, Ids(&token, 1), states[0]->tokens(row)});
    std::vector<int32_t> tokens;
    begin(states, parts, tokens);
    model_->forward(*backend_, tokens, states, nullptr);
    backend_->end_step();
    for (auto& state : states) state->abort_step();
  }

  const Arguments& a_;
  std::unique_ptr<hub::ModelArtifact> artifact_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::Model> model_;
  std::vector<StateSpec> specs_;
};

int run(int argc, char** argv) {
  const Arguments a = parse(argc, argv);
  const auto contexts = read_contexts(a.ids);
  Runner runner(a);
  size_t total = 0;
  for (const auto& ids : contexts) total += ids.size() - std::min(ids.size(), size_t(a.from));
  std::ofstream out(a.out, std::ios::binary);
  write_header(out, total, runner.columns());
  const auto write = [&](const std::vector<float>& rows) {
    out.write(reinterpret_cast<const char*>(rows.data()),
              std::streamsize(rows.size() * sizeof(float)));
  };
  if (!a.together.empty()) {
    for (const auto& rows : runner.together(contexts)) write(rows);
  } else {
    for (const auto& ids : contexts)
      write(a.beside ? runner.beside_others(ids) : runner.alone(ids));
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
