// SPDX-License-Identifier: Apache-2.0
// lanes_chain.cpp: runs consecutive convolutions of few channels as one operation of a compiled
// step, with samples in the vector lanes. ReLU, 2x2 max-pool and the fake quantiser of the input of
// each convolution run in the same operation.
//
//   NCHW -> lanes, then all layers of the chain on a lane group in the cache, then lanes -> NCHW
//
// Schedule of direct: each layer is the loop nest of direct_lesson_cpu.cpp, as in
// direct_batch_lanes_cpu.cpp. The chain adds the order of the layers: all layers run on one lane
// group before the next group begins.
//
// The layout is converted only at the two ends of the chain. A parallel loop runs the chain over
// chunks; a chunk is a range of lane groups. In backward each chunk sums its own weight gradients,
// and a second loop adds the chunks in order. The chunks depend only on the batch, so the result
// has the same bits for any number of threads. Other algorithms sum in another order, so their bits
// differ.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "framework/parallel.h"
#include "layers/conv2d/batch_lanes/cpu/batch_lanes.h"
#include "layers/conv2d/fusions/conv2d_chain.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

// Maximum number of chunks, enough for the cores of machines that train such small nets. The
// gradients of each chunk take a buffer of 16 floats for every weight.
constexpr std::int64_t kMaxChunks = 16;
// A layer leaves the chain only if another algorithm's estimate is below this share of the estimate
// of direct_batch_lanes, because a chain saves the conversions and the pooling pass.
constexpr double kClearly = 0.7;
constexpr const char* kAlgorithm = "direct_batch_lanes";

// The name that is reported when the chain runs.
constexpr const char* kName = "lanes_chain";

struct Stage {
  Conv2dProblem problem;
  LanesConv conv;
  ValueId x, weight, bias;  // bias: kNoValue when there is none
  PointwiseOp* before;      // an operation on the input; may be null
  std::string layer;
};

// The buffers of one stage of the chain. A stage is a convolution with its ReLU and pool. In the
// first stage, x is the chain's input in lanes.
struct StageMemory {
  const float* w = nullptr;
  const float* b = nullptr;
  float *packed = nullptr, *packed_backward = nullptr;
  // v is the input of the stage, x the input of its convolution, and y its output. Each buffer
  // holds all lane groups. v and x are the same buffer unless an operation precedes the
  // convolution.
  float *v = nullptr, *x = nullptr, *y = nullptr;
  std::uint8_t* winners = nullptr;  // winner_bytes for each lane group
  float* dw = nullptr;
  float* db = nullptr;
  bool accumulate = false;
  std::int64_t sums_at = 0;  // offset of its accumulators in a chunk's buffer
  PointwiseOp::ForwardPieces before = {};
  PointwiseOp::BackwardPieces before_gradient = {};
};

std::int64_t forward_scratch(const std::vector<Stage>& stages) {
  std::int64_t most = 0;
  for (const Stage& s : stages) most = std::max(most, s.conv.forward_scratch_floats);
  return ScratchArena::round_up(static_cast<std::size_t>(most) * sizeof(float)) / sizeof(float);
}

class LanesChainOp final : public Operation {
 public:
  LanesChainOp(std::vector<Stage> stages, std::int64_t batch, int lanes)
      : Operation("lanes_chain"),
        stages_(std::move(stages)),
        batch_(batch),
        lanes_(lanes),
        groups_(lane_groups(batch, lanes)),
        chunks_(std::min(groups_, kMaxChunks)) {}

  std::string text() const override {
    std::string out = cat("in the layout [", groups_, "][C][H][W][", lanes_, "]:");
    for (const Stage& stage : stages_) {
      out += cat(" ", stage.before ? stage.before->text() + " + " : "", stage.layer,
                 " conv2d direct_batch_lanes", stage.conv.relu ? " + relu" : "",
                 stage.conv.pool2x2 ? " + max_pool2d" : "", ";");
    }
    return out + " sums in another order";
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<ChainLayer> layers;
    for (const Stage& stage : stages_) {
      layers.push_back({stage.layer, stage.problem.nominal_flops()});
    }
    return chain_kernels(graph, kName, layers, wants_dx(graph));
  }

  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;
  // Keeps the operations that the stages refer to.
  void keep(std::vector<std::unique_ptr<Operation>> parts) { parts_ = std::move(parts); }

 private:
  struct Run;  // the arguments of a forward or backward call
  bool wants_dx(const Graph& graph) const { return graph.wants_gradient(stages_.front().x); }
  std::vector<StageMemory> memory(Emitter& emitter, bool backward);
  std::vector<LanesConv> convolutions() const {
    std::vector<LanesConv> out;
    for (const Stage& stage : stages_) out.push_back(stage.conv);
    return out;
  }
  std::vector<Conv2dProblem> problems() const {
    std::vector<Conv2dProblem> out;
    for (const Stage& stage : stages_) out.push_back(stage.problem);
    return out;
  }
  Slot floats(Emitter& emitter, std::int64_t count) const {
    return emitter.slot({std::max<std::int64_t>(count, 1)}, DType::f32);
  }

  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<Operation>> parts_;
  std::int64_t batch_;
  int lanes_;
  std::int64_t groups_, chunks_;
  std::vector<Slot> values_;     // v of each stage, then y of the last one
  std::vector<Slot> quantised_;  // x of each stage with an operation before its convolution
  std::vector<Slot> winners_;    // of each stage
};

// Lane group g: its index, first sample and number of samples.
struct Group {
  std::int64_t index, first, samples;
};
Group group_at(std::int64_t g, std::int64_t batch, int lanes) {
  const std::int64_t first = g * lanes;
  return {g, first, std::min<std::int64_t>(lanes, batch - first)};
}

struct LanesChainOp::Run {
  const LanesKernels* kernels;
  std::vector<LanesConv> stages;
  std::vector<Conv2dProblem> problems;
  std::vector<StageMemory> memory;
  std::int64_t batch, groups, chunks;
  int lanes;
  const StepState* state = nullptr;  // has the address of the images; or:
  const float* x = nullptr;          // the chain's input, NCHW
  float* y = nullptr;                // the chain's output, NCHW
  const float* dy = nullptr;
  float* dx = nullptr;  // null: not needed
  float* sums = nullptr;
  std::int64_t sums_step = 0;  // floats of one chunk
  double* learned = nullptr;   // [chunks][stages]: gradients of learned parameters of the
                               // operations before the convolutions, such as quantiser step sizes
  float* scratch = nullptr;    // one buffer for each thread, of:
  std::int64_t scratch_step = 0, value_floats = 0;

  // Calls body(group) for every group of every chunk; threads share the chunks.
  template <class F>
  void for_each_chunk(F&& body) const {
    parallel_chunks(chunks, [&](std::int64_t chunk, int thread) {
      body(chunk, groups * chunk / chunks, groups * (chunk + 1) / chunks,
           scratch + thread * scratch_step);
    });
  }

  void forward() const {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      kernel_ran(kName, name_of(Direction::forward), problems[i]);
      kernels->pack_weights(stages[i], memory[i].w, memory[i].packed);
      if (memory[i].before.begin) memory[i].before.begin();
    }
    const float* const from = x != nullptr ? x : static_cast<const float*>(state->images);
    const std::int64_t in = stages.front().x_floats / lanes;
    const std::int64_t out = stages.back().y_floats / lanes;
    for_each_chunk([&](std::int64_t, std::int64_t begin, std::int64_t end, float* own) {
      for (std::int64_t g = begin; g < end; ++g) {
        const Group group = group_at(g, batch, lanes);
        samples_to_lanes(from + group.first * in, group.samples, in, lanes,
                         memory.front().v + g * stages.front().x_floats);
        for (std::size_t i = 0; i < stages.size(); ++i) {
          const LanesConv& z = stages[i];
          const StageMemory& m = memory[i];
          if (m.before.run) m.before.run(m.v + g * z.x_floats, m.x + g * z.x_floats, z.x_floats);
          kernels->forward(z, m.x + g * z.x_floats, m.packed, m.b, m.y + g * z.y_floats,
                           z.pool2x2 ? m.winners + g * z.winner_bytes : nullptr, own);
        }
        lanes_to_samples(memory.back().y + g * stages.back().y_floats, group.samples, out, lanes,
                         y + group.first * out);
      }
    });
  }

  void backward_group(const Group& group, float* chunk_sums, double* chunk_learned,
                      float* own) const {
    float* gradient = own;                      // of the stage's output
    float* previous = gradient + value_floats;  // of the stage's input
    float* const kernel_scratch = previous + value_floats;
    const std::int64_t out = stages.back().y_floats / lanes;
    samples_to_lanes(dy + group.first * out, group.samples, out, lanes, gradient);
    for (std::size_t i = stages.size(); i-- > 0;) {
      const LanesConv& z = stages[i];
      const StageMemory& m = memory[i];
      const std::int64_t g = group.index;
      const bool passes = static_cast<bool>(m.before_gradient.run);
      const bool wanted = i > 0 || dx != nullptr || passes;
      kernels->backward(z, m.x + g * z.x_floats, m.y + g * z.y_floats,
                        z.pool2x2 ? m.winners + g * z.winner_bytes : nullptr, gradient,
                        m.packed_backward, wanted ? previous : nullptr, chunk_sums + m.sums_at,
                        kernel_scratch);
      if (!wanted) return;
      std::swap(gradient, previous);
      if (!passes) continue;
      float* const dv = i > 0 || dx != nullptr ? previous : nullptr;
      chunk_learned[i] += m.before_gradient.run(gradient, m.v + g * z.x_floats, dv, z.x_floats);
      if (dv != nullptr) std::swap(gradient, previous);
    }
    if (dx == nullptr) return;
    const std::int64_t in = stages.front().x_floats / lanes;
    lanes_to_samples(gradient, group.samples, in, lanes, dx + group.first * in);
  }

  void backward() const {
    for (std::size_t i = 0; i < stages.size(); ++i) {
      kernel_ran(kName, name_of(Direction::backward_weight), problems[i]);
      if (i == 0 && dx == nullptr && !memory[i].before_gradient.run) continue;
      kernel_ran(kName, name_of(Direction::backward_data), problems[i]);
      kernels->pack_weights_backward(stages[i], memory[i].w, memory[i].packed_backward);
    }
    for_each_chunk([&](std::int64_t chunk, std::int64_t begin, std::int64_t end, float* own) {
      float* const chunk_sums = sums + chunk * sums_step;
      double* const chunk_learned = learned + chunk * static_cast<std::int64_t>(stages.size());
      std::fill_n(chunk_learned, stages.size(), 0.0);
      std::memset(chunk_sums, 0, static_cast<std::size_t>(sums_step) * sizeof(float));
      for (std::int64_t g = begin; g < end; ++g) {
        backward_group(group_at(g, batch, lanes), chunk_sums, chunk_learned, own);
      }
    });
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (!memory[i].before_gradient.end) continue;
      double sum = 0;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        sum += learned[static_cast<std::size_t>(chunk) * stages.size() + i];
      }
      memory[i].before_gradient.end(sum);
    }
    // A parallel item is one kernel of one stage.
    std::int64_t kernels_in_all = 0;
    for (const LanesConv& stage : stages) kernels_in_all += stage.k;
    parallel_for(kernels_in_all, 4, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t first = 0;
      for (std::size_t i = 0; i < stages.size(); ++i) {
        const LanesConv& z = stages[i];
        const StageMemory& m = memory[i];
        const std::int64_t from = std::max(begin - first, std::int64_t{0});
        const std::int64_t to = std::min(end - first, z.k);
        if (from < to) {
          kernels->reduce(z, sums + m.sums_at, sums_step, chunks, from, to, m.dw, m.db,
                          m.accumulate);
        }
        first += z.k;
      }
    });
  }
};

std::vector<StageMemory> LanesChainOp::memory(Emitter& emitter, bool backward) {
  std::vector<StageMemory> out(stages_.size());
  std::int64_t sums_at = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    StageMemory& m = out[i];
    m.w = emitter.value(stage.weight).data<float>();
    m.b = stage.bias != kNoValue ? emitter.value(stage.bias).data<float>() : nullptr;
    m.v = m.x = emitter.use(values_[i]).data<float>();
    if (stage.before) {
      m.x = emitter.use(quantised_[i]).data<float>();
      if (backward) {
        m.before_gradient = stage.before->backward_pieces(emitter);
      } else {
        m.before = stage.before->forward_pieces(emitter);
      }
    }
    m.y = emitter.use(values_[i + 1]).data<float>();
    m.winners = emitter.use(winners_[i]).data<std::uint8_t>();
    m.sums_at = sums_at;
    sums_at += stage.conv.sums_floats;
    const Slot packed = floats(emitter, stage.conv.weight_floats);
    (backward ? m.packed_backward : m.packed) = emitter.use(packed).data<float>();
    if (!backward) continue;
    const Emitter::Target dw = emitter.gradient_target(stage.weight);
    m.dw = dw.tensor.data<float>();
    m.accumulate = dw.accumulate;
    if (stage.bias != kNoValue) {
      m.db = emitter.gradient_target(stage.bias).tensor.data<float>();
    }
  }
  return out;
}

void LanesChainOp::forward(Emitter& emitter) {
  conversions = 2;  // input to lanes, and result back
  values_ = {floats(emitter, groups_ * stages_.front().conv.x_floats)};
  winners_.clear();
  quantised_.clear();
  for (const Stage& stage : stages_) {
    quantised_.push_back(stage.before ? floats(emitter, groups_ * stage.conv.x_floats) : kNoSlot);
    values_.push_back(floats(emitter, groups_ * stage.conv.y_floats));
    winners_.push_back(
        emitter.slot({std::max<std::int64_t>(groups_ * stage.conv.winner_bytes, 1)}, DType::u8));
  }
  Run run{.kernels = &lanes_kernels.get(),
          .stages = convolutions(),
          .problems = problems(),
          .memory = memory(emitter, false),
          .batch = batch_,
          .groups = groups_,
          .chunks = chunks_,
          .lanes = lanes_};
  if (inputs[0] == Graph::input()) {
    run.state = emitter.state();
  } else {
    run.x = emitter.value(inputs[0]).data<float>();
  }
  run.y = emitter.value(output()).data<float>();
  run.scratch_step = forward_scratch(stages_);
  run.scratch = static_cast<float*>(emitter.workspace(
      static_cast<std::size_t>(run.scratch_step * num_threads()) * sizeof(float)));
  emitter.call([run = std::move(run)] { run.forward(); });
}

void LanesChainOp::backward(Emitter& emitter) {
  Run run{.kernels = &lanes_kernels.get(),
          .stages = convolutions(),
          .problems = problems(),
          .memory = memory(emitter, true),
          .batch = batch_,
          .groups = groups_,
          .chunks = chunks_,
          .lanes = lanes_};
  run.dy = emitter.gradient(output()).data<float>();
  std::int64_t kernel_scratch = 0;
  for (const Stage& stage : stages_) {
    const LanesConv& z = stage.conv;
    run.sums_step += z.sums_floats;
    run.value_floats = std::max({run.value_floats, z.x_floats, z.y_floats});
    kernel_scratch = std::max(kernel_scratch, z.backward_scratch_floats);
  }
  // Buffers start on cache lines.
  const auto lines = [](std::int64_t count) { return (count + 15) / 16 * 16; };
  run.value_floats = lines(run.value_floats);
  run.scratch_step = 2 * run.value_floats + lines(kernel_scratch);
  run.scratch = static_cast<float*>(emitter.workspace(
      static_cast<std::size_t>(run.scratch_step * num_threads()) * sizeof(float)));
  run.sums = static_cast<float*>(
      emitter.workspace(static_cast<std::size_t>(run.sums_step * chunks_) * sizeof(float)));
  run.learned = static_cast<double*>(
      emitter.workspace(static_cast<std::size_t>(chunks_) * stages_.size() * sizeof(double)));
  conversions += emitter.graph().wants_gradient(inputs[0]) ? 2 : 1;  // dy to lanes, dx back
  if (!emitter.graph().wants_gradient(inputs[0])) {
    emitter.call([run = std::move(run)] { run.backward(); });
    return;
  }
  emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
    run.dx = dx.data<float>();
    emitter.call([run = std::move(run)] { run.backward(); });
  });
}

// Estimated milliseconds of one convolution, summed over the directions that the graph needs:
// `chosen_ms` with the selected algorithms, `lanes_ms` with samples in the vector lanes.
struct Estimate {
  double chosen_ms = 0, lanes_ms = 0;
};
Estimate estimate(const Graph& graph, const Conv2dOp& op) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("direct_batch_lanes");
  Estimate out;
  for (const Direction direction : kDirections) {
    if (direction != Direction::forward && !graph.training()) continue;
    if (op.choice(direction).algorithm == nullptr) continue;  // not needed
    out.chosen_ms += op.chosen_ms(direction);
    Cost in_lanes = algorithm.cost(op.problem(), direction);
    // The chain converts no layout between layers.
    in_lanes.transposed = 0;
    out.lanes_ms += estimated_ms(cost_key_of(algorithm, direction), in_lanes, DeviceType::cpu,
                                 op.problem().dtype);
  }
  return out;
}

bool accepts(const Graph& graph, const ChainLink& link) {
  const Conv2dOp& conv = *link.conv;
  const int lanes = lanes_for_batch(graph.shape(Graph::input())[0]);
  if (*LanesConv::refusal(conv.problem(), lanes) != '\0') return false;
  const Estimate more = estimate(graph, conv);
  return more.chosen_ms >= kClearly * more.lanes_ms ||
         conv.choice(Direction::forward).word == kAlgorithm;
}

void form_chains(Graph& graph) {
  const Shape& images = graph.shape(Graph::input());
  if (images.rank() != 4) return;
  const int lanes = lanes_for_batch(images[0]);
  const ChainRules rules{.algorithm = kAlgorithm, .takes_pointwise = true, .accepts = accepts};
  auto& ops = graph.ops();
  for (std::size_t i = 0; i < ops.size();) {
    const std::vector<ChainLink> links = chain_from(graph, ops[i].get(), rules, ops.size());
    // A chain saves time because the data stay in the lanes between its operations. A single
    // convolution has no such saving, so it runs in the lanes only when the selection chose
    // direct_batch_lanes.
    const bool alone = links.size() == 1 && !links.front().pools;
    if (links.empty() || (alone && links.front().conv->choice(Direction::forward).algorithm->name !=
                                       std::string_view(kAlgorithm))) {
      ++i;
      continue;
    }
    std::vector<Stage> stages;
    for (const ChainLink& link : links) {
      const Conv2dOp& conv = *link.conv;
      stages.push_back({conv.problem(), LanesConv(conv.problem(), lanes, conv.relu(), link.pools),
                        conv.x(), conv.weight(), conv.bias(), link.before, conv.layer});
    }
    auto joined = std::make_unique<LanesChainOp>(std::move(stages), images[0], lanes);
    LanesChainOp& chain = *joined;
    chain.keep(replace_chain(graph, links, std::move(joined)));
  }
}

const bool registered = register_pass("batch_lanes", form_chains);

}  // namespace
}  // namespace convscope
