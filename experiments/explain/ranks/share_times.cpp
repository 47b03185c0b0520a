// SPDX-License-Identifier: Apache-2.0
// share_times.cpp: measures the time of one process for its share of a batch, and when in the
// backward pass each bucket of gradients is complete.
#include "experiments/explain/ranks/share_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "datasets/dataset.h"
#include "experiments/bench/net/net_bench.h"
#include "experiments/bench/statistics.h"
#include "experiments/config/build.h"
#include "experiments/trainer/train_step.h"
#include "layers/training_rule.h"
#include "optim/gradient_exchange.h"
#include "optim/loss_scale.h"

namespace convscope {
namespace {

// With this small learning rate the weights hardly change, so that all timed steps do the same work
// on similar numbers.
constexpr double kLearningRate = 1e-5;

// A reducer that sends nothing. For each bucket it queues a time mark (an event) on the device when
// the bucket is complete.
class DepartureClock final : public Reducer {
 public:
  explicit DepartureClock(Device device) : device_(device), backend_(backend_of(device)) {}
  ~DepartureClock() override {
    for (void* const mark : marks_) backend_.free_mark(device_.index, mark);
  }
  DepartureClock(const DepartureClock&) = delete;
  DepartureClock& operator=(const DepartureClock&) = delete;

  void begin() { bytes_.clear(); }
  void sum(const Tensor& data, float) override {
    set_mark(bytes_.size());
    bytes_.push_back(static_cast<double>(data.size_bytes()));
  }
  void join() override { set_mark(bytes_.size()); }
  std::string text() const override { return "a clock"; }

  std::size_t size() const { return bytes_.size(); }
  double bytes(std::size_t i) const { return bytes_[i]; }
  // Returns the seconds from the completion of bucket i to the end of the backward pass (join()).
  // Waits for the device.
  double seconds_before_end(std::size_t i) const {
    void* const end = marks_[bytes_.size()];
    backend_.wait_for_mark(device_.index, end);
    return 1e-3 * backend_.ms_between(device_.index, marks_[i], end);
  }

 private:
  void set_mark(std::size_t i) {
    while (marks_.size() <= i) marks_.push_back(backend_.make_mark(device_.index));
    backend_.set_mark(device_.index, marks_[i]);
  }

  Device device_;
  const DeviceBackend& backend_;
  std::vector<void*> marks_;  // the last mark belongs to join()
  std::vector<double> bytes_;
};

std::vector<OptimParameter> trained_parameters(Module& model) {
  std::vector<OptimParameter> out;
  for (const NamedParameter& p : model.parameters()) {
    if (p.variable.requires_grad()) out.push_back({p.name, p.variable});
  }
  return out;
}

std::vector<Tensor> averaged_statistics(const Module& model) {
  std::vector<Tensor> out;
  for (const NamedTensor& buffer : model.buffers()) {
    const std::string& name = buffer.name;
    if (name.ends_with("running_mean") || name.ends_with("running_var")) {
      out.push_back(buffer.tensor);
    }
  }
  return out;
}

double median_seconds(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return quantile(seconds, 0.5);
}

}  // namespace

struct ShareTimer::Network {
  ExperimentConfig config;
  ShareTimingOptions options;
  SampleInfo sample;
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Pruner> pruner;
  LossScale loss_scale;
};

ShareTimer::ShareTimer(const ExperimentConfig& config, const ShareTimingOptions& options)
    : network_(std::make_unique<Network>()) {
  if (dataset_types().get(config.data.set).point_grid) {
    fail(ErrorKind::kUnavailable, "explain",
         cat("expected a network on images with --ranks, because steps are timed on random images, "
             "got one on the points of ",
             config.data.set));
  }
  Network& n = *network_;
  n.config = config;
  n.options = options;
  n.sample = sample_info(config);
  n.model = build_model(config, n.sample.shape, n.sample.classes);
  n.optimizer = build_optimizer(config, *n.model);
  // The number of steps has no effect on the measured times.
  n.pruner =
      build_pruner(config, *n.model, n.optimizer.get(), n.sample.shape, /*total_steps=*/1000);
  if (n.pruner) n.pruner->prune_now();
  bind_pruner(n.pruner.get(), *n.optimizer);
}

ShareTimer::~ShareTimer() = default;

std::int64_t ShareTimer::parameters() const { return network_->model->parameter_count(); }

ShareTimes ShareTimer::measure(std::int64_t images, int chunks) {
  Network& n = *network_;
  const ExperimentConfig& config = n.config;
  const Batch batch = random_batch(*n.model, n.sample.shape, images, n.sample.classes,
                                   static_cast<std::uint64_t>(config.seed));
  require_trainable(*n.model, batch.x.shape(),
                    cat("a process has ", images, images == 1 ? " image" : " images",
                        " of a batch; try another data.batch_size or fewer --ranks"));
  settle_quantizers(config, *n.model, batch.x.to(config.device));
  n.model->train();
  Share share{.chunks = chunks,
              .order = config.train.deterministic_ranks ? SumOrder::tree : SumOrder::any,
              .bucket_bytes = std::llround(config.train.bucket_mib * 1024 * 1024)};
  auto own_clock = std::make_unique<DepartureClock>(config.device);
  DepartureClock& clock = *own_clock;
  GradientExchange exchange(
      std::move(own_clock), trained_parameters(*n.model), averaged_statistics(*n.model),
      {.order = share.order, .bucket_bytes = share.bucket_bytes, .chunks = chunks});
  TrainStep train_step(*n.model, *n.optimizer, config.optim.clip_grad_norm, config.device,
                       /*base_bytes=*/0, config.train.plan, Loss(config.train.loss));
  if (config.precision == ComputePrecision::f16) train_step.scale_loss(&n.loss_scale);
  train_step.share(&exchange, share, nullptr);

  std::vector<double> steps, backwards;
  std::vector<std::vector<double>> before_end;
  std::int64_t step = 0;
  const auto run = [&](bool counts) {
    n.model->set_step(step++);
    clock.begin();
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = train_step.run(batch, kLearningRate);
    if (n.pruner) n.pruner->rest();
    const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
    if (!std::isfinite(result.loss)) {
      fail(ErrorKind::kRun, "explain",
           cat("expected a finite loss on random images because only then the whole step is done, "
               "got ",
               result.loss));
    }
    before_end.resize(clock.size());
    if (!counts) return all.count();
    steps.push_back(all.count());
    backwards.push_back(result.backward_s / chunks);
    for (std::size_t i = 0; i < clock.size(); ++i) {
      before_end[i].push_back(clock.seconds_before_end(i));
    }
    return all.count();
  };
  for (int i = 0; i < n.options.warm_up; ++i) run(/*counts=*/false);
  for (double total = 0;
       std::ssize(steps) < n.options.least_samples ||
       (total < n.options.min_seconds && std::ssize(steps) < n.options.most_samples);) {
    total += run(/*counts=*/true);
  }

  ShareTimes out{.images = images,
                 .chunks = chunks,
                 .step_s = median_seconds(steps),
                 .backward_s = median_seconds(backwards)};
  for (std::size_t i = 0; i < before_end.size(); ++i) {
    const double ready = out.backward_s - median_seconds(before_end[i]);
    out.departures.push_back({.ready_s = std::max(0.0, ready), .bytes = clock.bytes(i)});
  }
  out.execution =
      train_step.plan() != nullptr ? "planned" : cat("dynamic: ", train_step.why_dynamic());
  return out;
}

}  // namespace convscope
