#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/activations.h"
#include "backends/cpu/buffer_pool.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kv_rows.h"
#include "backends/cpu/routing.h"
#include "backends/cpu/weight_storage.h"
#include "base/arena.h"
#include "base/cpu_count.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace mantou::cpu {
namespace {

// cos and sin of one rope for all tokens of the step: [T, frequencies] each.
struct RopeTable {
  const Rope* rope;
  Tensor cos, sin;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : options_(options),
        table_(kernels()),
        isa_(isa_from_environment()),
        pool_(options.threads > 0 ? options.threads : default_thread_count()),
        activations_(table_, pool_) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view numerics_id() const override {
    return options_.compute_f32 ? "cpu-f32-3" : kNumericsId;
  }

  Weight pack(const RawWeight& raw, WeightUse use) override {
    std::shared_ptr<const WeightStorage> storage;
    if (use == WeightUse::kTable) {
      storage = std::make_shared<TableStorage>(raw);
    } else if (use == WeightUse::kVector) {
      auto vector = std::make_shared<VectorStorage>();
      vector->values.resize(size_t(raw.cols));
      decode_row(raw, 0, vector->values);
      storage = std::move(vector);
    } else {
      storage = std::make_shared<MatrixStorage>(pack_matrix(raw, use == WeightUse::kRouter));
    }
    return Weight(raw.rows, raw.cols, std::move(storage));
  }

  Weight pack_experts(std::span<const RawWeight> experts) override {
    auto storage = std::make_shared<ExpertStorage>();
    for (const RawWeight& raw : experts) storage->matrices.push_back(pack_matrix(raw, false));
    return Weight(experts[0].rows, experts[0].cols, std::move(storage));
  }

  std::unique_ptr<LayerState> make_state(const StateSpec& spec) override {
    return std::make_unique<KvRows>(spec, blocks_);
  }

  void begin_step(const StepLayout& layout) override {
    layout_ = &layout;
    ropes_.clear();
    logits_ = Tensor();
  }
  void end_step() override {
    layout_ = nullptr;
    buffers_.end_step();
  }

  Tensor embed(const Weight& table, std::span<const int32_t> tokens, float scale) override {
    const RawWeight& raw = static_cast<const TableStorage*>(table.storage())->raw;
    Tensor x = buffers_.make(int64_t(tokens.size()), table.cols());
    activations_.for_rows(x, [&](int64_t t, int) {
      float* const out = row(x, t);
      decode_row(raw, tokens[size_t(t)], {out, size_t(x.cols())});
      if (scale != 1) cpu::scale(table_, out, scale, x.cols(), out);
    });
    return x;
  }

  std::vector<Tensor> project(const Tensor& x, const Norm* pre,
                              std::span<const Linear* const> linears) override {
    std::vector<Part> all;
    for (const Linear* linear : linears) all.push_back(part(*linear));
    return product(x, pre, all);
  }

  Tensor heads(Tensor x, int head_dim, const Norm* per_head, const Rope* rope) override {
    const RopeTable* angles = rope ? &rope_table(*rope) : nullptr;
    const int n = int(x.cols() / head_dim);
    const bool each = per_head && per_head->scale && per_head->scale.cols() == x.cols();
    const int64_t step = each ? head_dim : 0;
    activations_.for_rows(x, [&](int64_t t, int) {
      float* const v = row(x, t);
      for (int h = 0; per_head && h < n; h++)
        apply_norm(table_, *per_head, v + h * head_dim, head_dim, v + h * head_dim, h * step);
      if (!angles) return;
      const float *const cos = row(angles->cos, t), *const sin = row(angles->sin, t);
      const int rotated = int(2 * angles->cos.cols());
      if (rope->interleaved)
        rope_interleaved(v, cos, sin, n, head_dim, rotated);
      else
        cpu::rope(table_, v, cos, sin, n, head_dim, rotated);
    });
    return x;
  }

  Tensor attend(LayerState& state, const Tensor& q, const Tensor& k, const Tensor& v,
                const AttentionSpec& spec) override {
    KvRows& rows = static_cast<KvRows&>(state);
    if (k) append_kv(pool_, rows, *layout_, span(k), span(v), isa_);
    AttentionParams params;
    params.heads = spec.heads;
    params.scale = spec.scale;
    params.softcap = spec.softcap;
    params.window = state.spec().window;
    if (spec.sinks) params.sinks = {vector_of(*spec.sinks), size_t(spec.heads)};
    Tensor out = buffers_.make(q.rows(), q.cols());
    cpu::attend(pool_, attention_, rows, params, *layout_, span(q), span(out), isa_);
    return out;
  }

  Tensor add_output(const Tensor& x, const Linear& linear, const Join& join,
                    const Tensor& residual) override {
    Tensor y = product(x, nullptr, {part(linear)})[0];
    add_residual(y, join, residual);
    return y;
  }

  Tensor mlp(const Tensor& x, const MlpSpec& spec, const Tensor& residual) override {
    Tensor y = run_mlp(x, spec.pre ? &*spec.pre : nullptr, parts(spec.mlp));
    add_residual(y, spec.join, residual);
    return y;
  }

  // Experts run one after another, so that a token's sum has the same order in any batch.
  Tensor moe(const Tensor& x, const MoeSpec& spec, const Tensor& residual) override {
    const Tensor n = spec.pre ? normalized(x, *spec.pre) : x;
    const Tensor routed = spec.router_pre ? normalized(x, *spec.router_pre) : n;
    const Tensor scores = product(routed, nullptr, {part(spec.router)})[0];
    const auto work = route(span(scores), spec);
    Tensor y = spec.shared ? run_shared(n, spec) : zeros(x);
    for (size_t e = 0; e < work.size(); e++)
      if (!work[e].empty()) {
        const float factor = spec.expert_scale ? vector_of(*spec.expert_scale)[e] : 1;
        add_expert(n, parts(spec.experts, e), work[e], factor, y);
      }
    add_residual(y, spec.join, residual);
    return y;
  }

  Tensor add(const Tensor& a, const Tensor& b) override {
    Tensor y = buffers_.make(a.rows(), a.cols());
    activations_.for_rows(
        y, [&](int64_t t, int) { cpu::add(table_, row(a, t), row(b, t), y.cols(), row(y, t)); });
    return y;
  }

  Tensor multiply(const Tensor& x, const Weight& factor) override {
    Tensor y = buffers_.make(x.rows(), x.cols());
    const float by = *vector_of(factor);
    activations_.for_rows(
        y, [&](int64_t t, int) { cpu::scale(table_, row(x, t), by, y.cols(), row(y, t)); });
    return y;
  }

  Tensor join(const Tensor& x, const Join& join, const Tensor& residual) override {
    Tensor y = buffers_.make(x.rows(), x.cols());
    std::copy_n(data(x), x.rows() * x.cols(), data(y));
    add_residual(y, join, residual);
    return y;
  }

  Tensor layer_inputs(const Tensor& x, std::span<const int32_t> tokens,
                      const LayerInputs& spec) override {
    const Tensor looked_up = embed(spec.table, tokens, spec.table_scale);
    Tensor y = product(x, nullptr, {part(spec.projection)})[0];
    const int width = spec.width, layers = int(y.cols() / width);
    activations_.for_rows(y, [&](int64_t t, int) {
      float* const v = row(y, t);
      cpu::scale(table_, v, spec.projection_scale, y.cols(), v);
      for (int i = 0; i < layers; i++)
        apply_norm(table_, spec.norm, v + i * width, width, v + i * width);
      cpu::add(table_, v, row(looked_up, t), y.cols(), v);
      cpu::scale(table_, v, spec.scale, y.cols(), v);
    });
    return y;
  }

  Tensor add_layer_input(const Tensor& x, const LayerInputSpec& spec, const Tensor& inputs,
                         int layer) override {
    Tensor gate = product(x, nullptr, {part(spec.gate)})[0];
    activations_.for_rows(gate, [&](int64_t t, int) {
      activate(spec.activation, row(gate, t), row(inputs, t) + layer * gate.cols(), gate.cols());
    });
    Tensor y = product(gate, nullptr, {part(spec.projection)})[0];
    add_residual(y, {spec.post, 1, false}, x);
    return y;
  }

  std::vector<Score> head(const Tensor& hidden, const Head& head,
                          std::span<const HeadRequest> requests) override {
    if (requests.empty()) return {};
    Tensor x = buffers_.make(int64_t(requests.size()), hidden.cols());
    for (size_t i = 0; i < requests.size(); i++)
      std::copy_n(row(hidden, requests[i].token), hidden.cols(), row(x, int64_t(i)));
    logits_ = product(x, &head.norm, {Part{&matrix_of(head.weight), nullptr}})[0];
    const float scale = head.scale / (head.input_divisor * head.divisor);
    std::vector<Score> scores(requests.size());
    activations_.for_rows(logits_, [&](int64_t t, int) {
      float* const v = row(logits_, t);
      if (scale != 1) cpu::scale(table_, v, scale, logits_.cols(), v);
      if (head.softcap > 0) softcap(table_, v, head.softcap, logits_.cols(), v);
      Score& score = scores[size_t(t)];
      if (requests[size_t(t)].want == HeadRequest::Want::kLogits) {
        score.logits = {v, size_t(logits_.cols())};
      } else {
        const ArgMax best = arg_max(table_, v, logits_.cols());
        score.arg_max = !best.has_nan && std::isfinite(best.value) ? int32_t(best.index) : -1;
      }
    });
    return scores;
  }

 private:
  static std::span<float> span(const Tensor& t) {
    return {data(t), size_t(t.rows()) * size_t(t.cols())};
  }

  // A matrix and its bias (or nullptr).
  struct Part {
    const PackedMatrix* matrix;
    const float* bias;
  };
  struct MlpParts {
    std::optional<Part> gate;
    Part up, down;
    Activation activation;
  };

  static Part part(const Linear& linear) {
    return {&matrix_of(linear.weight), linear.bias ? vector_of(*linear.bias) : nullptr};
  }
  static Part part(const Linear& experts, size_t e) {
    const PackedMatrix& matrix = cpu::expert_of(experts.weight, e);
    return {&matrix, experts.bias ? vector_of(*experts.bias) + e * size_t(matrix.rows) : nullptr};
  }
  static MlpParts parts(const Mlp& mlp) {
    const std::optional<Part> gate = mlp.gate ? std::optional(part(*mlp.gate)) : std::nullopt;
    return {gate, part(mlp.up), part(mlp.down), mlp.activation};
  }
  static MlpParts parts(const Experts& all, size_t e) {
    return {part(all.gate, e), part(all.up, e), part(all.down, e), all.activation};
  }

  PackedMatrix pack_matrix(const RawWeight& raw, bool exact) {
    return options_.compute_f32 || exact ? pack_dense_f32(raw, weights_, pool_)
                                         : cpu::pack(raw, weights_, pool_);
  }

  // parts[i](pre?(x)) with their biases; x is normalised and quantized once.
  std::vector<Tensor> product(const Tensor& x, const Norm* pre, const std::vector<Part>& parts) {
    Activations::Forms forms;
    for (const Part& p : parts)
      (is_dense(p.matrix->family) ? forms.panels : forms.quantized) = true;
    const MatmulInput input = activations_.prepare(x, pre, forms);
    std::vector<Tensor> outputs;
    std::vector<MatmulJob> jobs;
    for (const Part& p : parts) {
      outputs.push_back(buffers_.make(x.rows(), p.matrix->rows));
      jobs.push_back({p.matrix, data(outputs.back()), size_t(p.matrix->rows)});
    }
    matmul(table_, pool_, jobs, input);
    for (size_t i = 0; i < parts.size(); i++)
      if (parts[i].bias)
        activations_.for_rows(outputs[i], [&](int64_t t, int) {
          cpu::add(table_, row(outputs[i], t), parts[i].bias, outputs[i].cols(),
                   row(outputs[i], t));
        });
    return outputs;
  }

  void add_residual(const Tensor& y, const Join& join, const Tensor& residual) {
    activations_.for_rows(y, [&](int64_t t, int) {
      float* const v = row(y, t);
      if (join.post) apply_norm(table_, *join.post, v, int(y.cols()), v);
      if (join.scale != 1) cpu::scale(table_, v, join.scale, y.cols(), v);
      if (residual) cpu::add(table_, v, row(residual, t), y.cols(), v);
    });
  }

  Tensor run_mlp(const Tensor& x, const Norm* pre, const MlpParts& mlp) {
    std::vector<Part> inputs;
    if (mlp.gate) inputs.push_back(*mlp.gate);
    inputs.push_back(mlp.up);
    const std::vector<Tensor> results = product(x, pre, inputs);
    const Tensor &gate = results.front(), &up = results.back();
    if (!mlp.gate) ones_.resize(std::max(ones_.size(), size_t(up.cols())), 1.0f);
    activations_.for_rows(gate, [&](int64_t t, int) {
      activate(mlp.activation, row(gate, t), mlp.gate ? row(up, t) : ones_.data(), gate.cols());
    });
    return product(gate, nullptr, {mlp.down})[0];
  }

  Tensor run_shared(const Tensor& n, const MoeSpec& spec) {
    Tensor y = run_mlp(n, nullptr, parts(*spec.shared));
    if (!spec.shared_gate) return y;
    const Tensor score = product(n, nullptr, {part(*spec.shared_gate)})[0];
    activations_.for_rows(y, [&](int64_t t, int) {
      const float factor = float(1 / (1 + std::exp(-double(*row(score, t)))));
      cpu::scale(table_, row(y, t), factor, y.cols(), row(y, t));
    });
    return y;
  }

  void add_expert(const Tensor& n, const MlpParts& expert, std::span<const Assignment> tokens,
                  float factor, const Tensor& y) {
    Tensor x = buffers_.make(int64_t(tokens.size()), n.cols());
    for (size_t i = 0; i < tokens.size(); i++)
      std::copy_n(row(n, tokens[i].token), n.cols(), row(x, int64_t(i)));
    const Tensor result = run_mlp(x, nullptr, expert);
    activations_.for_rows(result, [&](int64_t i, int) {
      const Assignment& a = tokens[size_t(i)];
      cpu::scale(table_, row(result, i), a.weight * factor, result.cols(), row(result, i));
      cpu::add(table_, row(y, a.token), row(result, i), y.cols(), row(y, a.token));
    });
  }

  Tensor normalized(const Tensor& x, const Norm& norm) {
    Tensor out = buffers_.make(x.rows(), x.cols());
    activations_.for_rows(x, [&](int64_t t, int) {
      apply_norm(table_, norm, row(x, t), int(x.cols()), row(out, t));
    });
    return out;
  }

  Tensor zeros(const Tensor& like) {
    Tensor out = buffers_.make(like.rows(), like.cols());
    std::fill_n(data(out), out.rows() * out.cols(), 0.0f);
    return out;
  }

  void activate(Activation activation, float* gate, const float* up, int64_t n) const {
    switch (activation) {
      case Activation::kSilu:
        return silu_mul(table_, gate, up, n, gate);
      case Activation::kGeluTanh:
        return gelu_tanh_mul(table_, gate, up, n, gate);
      case Activation::kGeluErf:
        return gelu_erf_mul(gate, up, n, gate);
      case Activation::kSwigluOai:
        return swiglu_oai(table_, gate, up, n, gate);
    }
  }

  const RopeTable& rope_table(const Rope& rope) {
    for (const RopeTable& table : ropes_)
      if (table.rope == &rope) return table;
    const int64_t n = int64_t(rope.inv_freq.size());
    RopeTable table{&rope, buffers_.make(layout_->total_tokens, n),
                    buffers_.make(layout_->total_tokens, n)};
    for (const StepRow& r : layout_->rows)
      for (int i = 0; i < r.count; i++)
        for (int64_t f = 0; f < n; f++) {
          const double angle = double(r.position + i) * rope.inv_freq[size_t(f)];
          row(table.cos, r.first + i)[f] = float(std::cos(angle) * double(rope.scale));
          row(table.sin, r.first + i)[f] = float(std::sin(angle) * double(rope.scale));
        }
    ropes_.push_back(std::move(table));
    return ropes_.back();
  }

  const CpuOptions options_;
  const KernelTable& table_;
  const Isa isa_;
  ThreadPool pool_;
  Arena weights_;
  std::shared_ptr<KvBlockPool> blocks_ = KvBlockPool::create();
  BufferPool buffers_;  // before everything that holds Tensors
  Activations activations_;
  AttentionWorkspace attention_;
  const StepLayout* layout_ = nullptr;
  std::vector<RopeTable> ropes_;
  std::vector<float> ones_;  // in place of the gate's partner
  Tensor logits_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace mantou::cpu
