// SPDX-License-Identifier: Apache-2.0
// sparse_net.cpp: a network of submanifold layers on one map, forward and backward, once per
// algorithm.
#include "experiments/bench/sparse/sparse_net.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>

#include "experiments/bench/device_timing.h"
#include "experiments/bench/sparse/sparse_oracle.h"

namespace convscope {
namespace {

using Problem = SparseConvProblem;
using SparseAlgorithm = SparseConvAlgorithm;

// The tensors that all algorithms of one precision share.
struct NetTensors {
  NetTensors(const std::vector<Problem>& layers, Device device) {
    std::uint64_t stream = 1;
    const auto numbers = [&](const Shape& shape, DType type, double size) {
      const Tensor out = random_operand({.name = "", .desc = {.shape = shape, .dtype = DType::f32}},
                                        Device{}, stream++)
                             .values;
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        out.data<float>()[i] *= static_cast<float>(size);
      }
      return out.to(type).to(device);
    };
    for (const Problem& z : layers) {
      const bool first = values.empty();
      if (first) values.push_back(numbers(z.x_shape(), z.dtype, 1));
      values.push_back(Tensor::empty(z.y_shape(), z.dtype, device));
      // This scale keeps the magnitude of the values about constant from layer to layer, so that
      // half precision does not overflow.
      const double terms = z.nominal_flops() / 2 / static_cast<double>(z.y_shape().numel());
      w.push_back(numbers(z.w_shape(), z.dtype, 1 / std::sqrt(std::max(1.0, terms))));
      dw.push_back(Tensor::empty(z.w_shape(), z.dtype, device));
      gradients.push_back(Tensor::empty(z.x_shape(), z.dtype, device));
    }
    gradients.push_back(numbers(layers.back().y_shape(), layers.back().dtype, 1));
  }
  std::vector<Tensor> values, gradients;  // before each layer, and after the last
  std::vector<Tensor> w, dw;

  Operands of(std::size_t layer, Direction direction) const {
    Operands out = sparse_conv_operands(
        direction, {.x = values[layer], .w = w[layer], .b = {}, .dy = gradients[layer + 1]});
    out.out[0] = direction == Direction::forward         ? values[layer + 1]
                 : direction == Direction::backward_data ? gradients[layer]
                                                         : dw[layer];
    return out;
  }
};

// One algorithm, or what auto chooses, for all layers and directions.
class NetContender {
 public:
  using Algorithms = std::vector<std::array<const SparseAlgorithm*, 3>>;  // by layer and direction

  NetContender(const std::vector<Problem>& layers, const NetTensors& tensors, Algorithms algorithms,
               Device device)
      : layers_(layers), tensors_(tensors), algorithms_(std::move(algorithms)), device_(device) {
    std::size_t work = 0, prepared = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      for (const Direction direction : kDirections) {
        const SparseAlgorithm& algorithm = algorithm_of(i, direction);
        work = std::max(work, algorithm.workspace_bytes(layers_[i], direction));
        prepared =
            std::max(prepared, algorithm.prepared_size(layers_[i], direction, WeightUse::once));
      }
    }
    workspace_ = std::make_unique<Workspace>(device, work);
    prepared_ = std::make_unique<Workspace>(device, prepared);
  }

  std::size_t workspace_bytes() const { return workspace_->bytes() + prepared_->bytes(); }
  void queue(std::size_t layer, Direction direction) const {
    const SparseAlgorithm& algorithm = algorithm_of(layer, direction);
    const Operands operands = tensors_.of(layer, direction);
    void* prepared = nullptr;
    if (algorithm.prepared_size(layers_[layer], direction, WeightUse::once) > 0) {
      prepared = prepared_->data();
      algorithm.prepare_weights({layers_[layer], direction, operands.input(1), prepared,
                                 workspace_->data(), OperandViews{}});
    }
    Operator<Problem>::run({algorithm, layers_[layer], direction, operands, OperandViews{},
                            workspace_->data(), prepared});
  }
  void queue_forward() const {
    for (std::size_t i = 0; i < layers_.size(); ++i) queue(i, Direction::forward);
  }
  void queue_backward() const {
    for (std::size_t i = layers_.size(); i-- > 0;) {
      queue(i, Direction::backward_weight);
      queue(i, Direction::backward_data);
    }
  }
  void wait() const { backend_of(device_).synchronize(device_.index); }

  // Runs all layers on poisoned memory. Among layers with equal channel counts, only the first is
  // checked.
  void check(SparseNetRow& row) const {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      for (const Direction direction : kDirections) poison(tensors_.of(i, direction).out[0].values);
    }
    queue_forward();
    queue_backward();
    wait();
    for (const Direction direction : kDirections) {
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const Problem& z = layers_[i];
        const auto same = [&](const Problem& other) { return other.c == z.c && other.k == z.k; };
        if (std::find_if(layers_.begin(), layers_.end(), same) - layers_.begin() <
            static_cast<std::ptrdiff_t>(i)) {
          continue;
        }
        const Operands operands = tensors_.of(i, direction);
        const Judgement verdict = SparseOracle(z, direction, operands, /*most_products=*/5e6)
                                      .judge(operands, algorithm_of(i, direction).error_growth);
        row.error_ratio = std::max(row.error_ratio, verdict.error_ratio);
        if (verdict.wrong.empty() || !row.wrong.empty()) continue;
        row.wrong = cat("layer ", i + 1, " (", z.c, "-", z.k, ") ", name_of(direction), ": ",
                        verdict.wrong);
      }
    }
  }

  std::vector<std::string> kernels() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      out.push_back(cat(layers_[i].c, "-", layers_[i].k, ": ", algorithms_[i][0]->name, ", ",
                        algorithms_[i][1]->name, ", ", algorithms_[i][2]->name));
    }
    return out;
  }

 private:
  const SparseAlgorithm& algorithm_of(std::size_t layer, Direction direction) const {
    return *algorithms_[layer][static_cast<std::size_t>(direction)];
  }
  void poison(const Tensor& tensor) const {
    backend_of(device_).fill_bytes(device_.index, tensor.raw_data(), 0xff,
                                   static_cast<std::size_t>(tensor.size_bytes()));
  }

  const std::vector<Problem>& layers_;
  const NetTensors& tensors_;
  const Algorithms algorithms_;
  const Device device_;
  std::unique_ptr<Workspace> workspace_, prepared_;
};

// The algorithms of a row (a name or "auto"), or the reason why the row cannot run. If the named
// algorithm cannot compute dw (halo), the choice of `auto` computes dw; the row lists the kernels
// that ran.
struct FoundAlgorithms {
  NetContender::Algorithms algorithms;
  std::string refusal;
};
FoundAlgorithms algorithms_of(const std::string& word, const std::vector<Problem>& layers,
                              Device device) {
  const Registry<SparseAlgorithm>& table = sparse_conv_algorithms(device.type);
  FoundAlgorithms out;
  const SparseAlgorithm* const named = word == "auto" ? nullptr : table.find(word);
  if (word != "auto" && named == nullptr) {
    out.refusal = cat("there is no such algorithm for ", name_of(device.type));
    return out;
  }
  for (const Problem& z : layers) {
    out.algorithms.emplace_back();
    for (const Direction direction : kDirections) {
      const bool by_name = named != nullptr && (direction != Direction::backward_weight ||
                                                named->backward_weight != nullptr);
      const SparseAlgorithm* const algorithm =
          by_name ? named : auto_choice_of(z, direction, device, WeightUse::once);
      const Support support = algorithm == nullptr ? Support::no("finds no algorithm that accepts")
                                                   : support_of(*algorithm, z, direction);
      if (!support.yes) {
        out.refusal = cat(support.reason, " (layer ", z.c, "-", z.k, ", ", name_of(direction), ")");
        return out;
      }
      out.algorithms.back()[static_cast<std::size_t>(direction)] = algorithm;
    }
  }
  return out;
}

TimedThing thing_of(std::function<void()> queue, const NetContender& net, Device device) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  queue();
  net.wait();
  const std::chrono::duration<double> once = Clock::now() - begin;
  const bool on_cpu = device.type == DeviceType::cpu;
  return {.run = on_cpu ? std::function<void()>([queue, &net] { queue(), net.wait(); }) : queue,
          .estimate_seconds = once.count(),
          .seconds = {}};
}

// Times all algorithms of one precision, interleaved.
void bench_precision(const SparseNetOptions& options, const CloudMap& on,
                     ComputePrecision precision, const BenchProgress& progress,
                     SparseNetBench& out) {
  const Device device = options.timing.device;
  std::vector<Problem> layers;
  for (std::size_t i = 0; i + 1 < options.channels.size(); ++i) {
    layers.push_back({.map = on.map,
                      .c = options.channels[i],
                      .k = options.channels[i + 1],
                      .dtype = factor_type(precision),
                      .math = math_mode(precision)});
    layers.back().check();
  }
  std::unique_ptr<NetTensors> tensors;
  std::vector<std::unique_ptr<NetContender>> nets;
  std::vector<SparseNetRow> rows;
  for (const std::string& word : options.algorithms) {
    FoundAlgorithms found = algorithms_of(word, layers, device);
    if (!found.refusal.empty()) {
      out.refusals.push_back({word, precision, found.refusal});
      continue;
    }
    progress(cat("checking ", word));
    if (tensors == nullptr) tensors = std::make_unique<NetTensors>(layers, device);
    auto net =
        std::make_unique<NetContender>(layers, *tensors, std::move(found.algorithms), device);
    SparseNetRow row;
    row.algorithm = word;
    row.precision = precision;
    row.kernels = net->kernels();
    row.workspace_bytes = net->workspace_bytes();
    net->check(row);
    rows.push_back(std::move(row));
    nets.push_back(std::move(net));
  }
  std::vector<TimedThing> things;
  for (std::size_t i = 0; i < nets.size(); ++i) {
    if (!rows[i].wrong.empty()) continue;
    const NetContender& net = *nets[i];
    things.push_back(thing_of([&net] { net.queue_forward(); }, net, device));
    things.push_back(thing_of([&net] { net.queue_backward(); }, net, device));
  }
  progress("timing");
  const InterleaveOptions timing{.min_seconds = options.timing.min_seconds,
                                 .least_samples = options.timing.least_samples,
                                 .cold = options.timing.cold,
                                 .cpu_clock = options.timing.cpu_clock,
                                 .cache_bytes = std::size_t{64} << 20};
  if (device.type == DeviceType::cpu) {
    time_interleaved(things, timing);
  } else {
    time_on_device(things, device, timing);
  }
  std::size_t at = 0;
  for (SparseNetRow& row : rows) {
    if (row.wrong.empty()) {
      row.forward = summary_of(things[at++].seconds);
      row.backward = summary_of(things[at++].seconds);
    }
    out.rows.push_back(std::move(row));
  }
}

}  // namespace

SparseNetBench bench_sparse_net(const SparseNetOptions& options, const CloudMap& on,
                                const BenchProgress& progress) {
  SparseNetBench out;
  for (const ComputePrecision precision : options.precisions) {
    bench_precision(
        options, on, precision,
        [&](const std::string& what) { progress(cat(name_of(precision), ": ", what)); }, out);
  }
  return out;
}

}  // namespace convscope
