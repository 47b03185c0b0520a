// SPDX-License-Identifier: Apache-2.0
// rank_probe.cpp: a program that checks sums over GPUs, and recorded training steps (CUDA graphs)
// whose batch is divided among processes. Each process compares its results with expected values
// and with the other processes. Process 0 prints one line per check.
//
//   mpirun -n 2 rank_probe            checks, on the GPUs or on the emulated one
//   mpirun -n 2 rank_probe --speed    and the bytes per second of a sum
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/train_step.h"
#include "framework/distributed/rank_device.h"
#include "framework/random.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

constexpr Device kCuda{DeviceType::cuda, 0};
constexpr int kClasses = 5;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kImages = 41;  // 5 full batches, and one image that only one process gets

int failures = 0;

// All processes call this function together. The check passes only if it passes in all of them.
void check(ProcessGroup& group, const std::string& what, bool ok, const std::string& detail = "") {
  const bool all = group.most(ok ? 0 : 1) == 0;
  if (!all) ++failures;
  if (!ok || group.rank() == 0) {
    std::printf("%s %s%s%s\n", all ? "ok    " : "FAILED", what.c_str(), detail.empty() ? "" : ": ",
                detail.c_str());
  }
  std::fflush(stdout);
}

float term(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 101); }

Tensor terms(int rank, std::int64_t count) {
  const Tensor out = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i) out.data<float>()[i] = term(rank, i);
  return out;
}

// Returns multiples of 0.5 so small that their sums are exact in any order.
bool is_sum(const ProcessGroup& group, const Tensor& data, float weight) {
  const Tensor here = data.to(Device{});
  for (std::int64_t i = 0; i < here.numel(); ++i) {
    float sum = 0;
    for (int r = 0; r < group.size(); ++r) sum += weight * term(r, i);
    if (here.data<float>()[i] != sum) return false;
  }
  return true;
}

void check_sums(ProcessGroup& group, SumOrder order, const char* name) {
  const auto reducer = make_reducer(group, kCuda, order);
  if (group.rank() == 0) std::printf("sums, %s: %s\n", name, reducer->text().c_str());
  for (const std::int64_t count : {1, 7, 62000, 300000}) {
    const Tensor halves = terms(group.rank(), count).to(kCuda);
    const Tensor whole = terms(group.rank(), count).to(kCuda);
    reducer->sum(halves, 0.5f);
    reducer->sum(whole, 1);
    reducer->join();
    check(group, cat(name, ", ", count, " numbers"),
          is_sum(group, halves, 0.5f) && is_sum(group, whole, 1));
  }
  if (!reducer->is_recordable()) return;
  const Tensor from = terms(group.rank(), 5000).to(kCuda),
               to = Tensor::zeros({5000}, DType::f32, kCuda);
  const DeviceBackend& backend = backend_of(kCuda);
  backend.begin_recording(0);
  to.copy_from(from);
  reducer->sum(to, 0.5f);
  reducer->join();
  void* const recording = backend.end_recording(0);
  bool ok = true;
  for (int replay = 0; replay < 3; ++replay) {
    to.copy_from(Tensor::zeros({5000}, DType::f32, kCuda));
    backend.replay(0, recording);
    ok = ok && is_sum(group, to, 0.5f);
  }
  check(group, cat(name, ", recorded"), ok);
  backend.free_recording(0, recording);
}

// ---- steps ----

Dataset spots() {
  Dataset data;
  data.name = "spots";
  data.images = Tensor::empty({kImages, 1, 12, 12}, DType::u8);
  data.labels = Tensor::empty({kImages}, DType::i32);
  data.classes = kClasses;
  data.mean = {0.2};
  data.std = {0.35};
  Generator random(3, 1);
  for (std::int64_t n = 0; n < kImages; ++n) {
    const auto label = static_cast<std::int32_t>(random.below(kClasses));
    data.labels.data<std::int32_t>()[n] = label;
    for (std::int64_t i = 0; i < 144; ++i) {
      const bool bright = i / 12 / 3 == label % 4 && i % 12 < 6 + label;
      data.images.data<std::uint8_t>()[n * 144 + i] =
          static_cast<std::uint8_t>(random.below(60) + (bright ? 150u : 0u));
    }
  }
  return data;
}

using Ints = std::vector<std::int64_t>;
LayerSpec layer(const char* type, const char* name,
                std::initializer_list<std::pair<const char*, OptionValue>> pairs = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : pairs) out.options.set(key, value);
  return out;
}

std::vector<LayerSpec> layers(bool with_statistics) {
  std::vector<LayerSpec> out = {
      layer("conv2d", "c1", {{"out_channels", std::int64_t{3}}, {"kernel_size", Ints{3}}})};
  if (with_statistics) out.push_back(layer("batch_norm2d", "b1"));
  out.push_back(layer("relu", "r1"));
  out.push_back(layer("avg_pool2d", "p1", {{"kernel_size", Ints{2}}}));
  if (with_statistics) out.push_back(layer("dropout", "d1", {{"p", 0.25}}));
  out.push_back(layer("flatten", "flat"));
  out.push_back(layer("linear", "f4", {{"out_features", std::int64_t{kClasses}}}));
  return out;
}

struct Training {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> losses;
  std::vector<std::int64_t> correct;
  std::string text;

  Training(Device device, bool with_statistics) {
    LayerContext context;
    context.seed = 5;
    context.device = device;
    model = build_layers(layers(with_statistics), {kBatch, 1, 12, 12}, context);
    ParameterGroup parameters;
    for (const NamedParameter& p : model->parameters()) {
      parameters.parameters.push_back({p.name, p.variable});
    }
    const OptimizerType& type = optimizer_types().get("sgd");
    Options options(type.fields);
    options.set("momentum", 0.9);
    optimizer = type.build({parameters}, options);
  }
  std::vector<float> state() const {
    std::vector<float> out;
    const auto add = [&](const Tensor& t) {
      const Tensor here = t.to(Device{});
      out.insert(out.end(), here.data<float>(), here.data<float>() + here.numel());
    };
    for (const NamedParameter& p : model->parameters()) add(p.variable.value());
    for (const NamedTensor& b : model->buffers()) add(b.tensor);
    return out;
  }
};

double rate(std::int64_t step) { return 0.05 / static_cast<double>(1 + step); }
constexpr int kEpochs = 2;

LoaderOptions options_of(const Share& share) {
  return {.batch_size = kBatch,
          .seed = 9,
          .prefetch = false,
          .part = share.rank(),
          .parts = share.size()};
}

void train_by_host(Training& t, Device device, const Share& share) {
  Loader loader(spots(), options_of(share));
  const auto exchange = exchange_of(*t.model, device, share);
  TrainStep step(*t.model, *t.optimizer, /*clip_norm=*/1, device);
  if (exchange) step.share(exchange.get(), share, stop_signal);
  std::int64_t now = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start_epoch(epoch);
    for (Batch batch; loader.next(batch); ++now) {
      t.model->set_step(now);
      const StepResult result = step.run(batch, rate(now));
      t.losses.push_back(result.loss);
      t.correct.push_back(result.correct);
    }
  }
  t.text = step.text();
}

bool train_by_device(Training& t, const Share& share) {
  Loader loader(spots(), options_of(share));
  const auto exchange = exchange_of(*t.model, kCuda, share);
  const auto steps = RecordedSteps::make(*t.model, t.optimizer.get(), /*clip_norm=*/1, loader,
                                         kCuda, &t.text, {}, exchange.get());
  if (!steps) return false;
  t.text = steps->text();
  std::int64_t now = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    steps->start_epoch(epoch, 0, now);
    while (true) {
      while (steps->queue(rate) > 0) {
      }
      if (steps->in_flight() == 0) break;
      const RecordedSteps::Launch launch = steps->collect();
      for (int i = 0; i < launch.steps; ++i) {
        t.losses.push_back(static_cast<double>(launch.outcomes[i].loss));
        t.correct.push_back(launch.outcomes[i].correct);
      }
      now += launch.steps;
    }
  }
  return true;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = d <= most ? most : d;  // a NaN stays
  }
  return most;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  return largest_difference(std::vector<float>(a.begin(), a.end()),
                            std::vector<float>(b.begin(), b.end()));
}

bool is_the_same_everywhere(ProcessGroup& group, const std::vector<float>& values) {
  const std::string own(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
  for (const std::string& other : group.gather(own)) {
    if (other != own) return false;
  }
  return true;
}

void check_steps(ProcessGroup& group) {
  const Share share{.group = &group};
  for (const bool with_statistics : {false, true}) {
    const std::string name = with_statistics ? "batch norm and dropout" : "plain network";
    Training shared(kCuda, with_statistics), recorded(kCuda, with_statistics);
    train_by_host(shared, kCuda, share);
    check(group, cat(name, ": all processes end with the same bits"),
          is_the_same_everywhere(group, shared.state()));
    if (!with_statistics) {
      Training alone(Device{}, with_statistics);
      train_by_host(alone, Device{}, Share{});
      const double off = largest_difference(alone.losses, shared.losses);
      check(group, cat(name, ": losses of one process on the CPU"), off < 2e-5, cat(off));
      const double weights = largest_difference(alone.state(), shared.state());
      check(group, cat(name, ": weights of one process on the CPU"), weights < 2e-5, cat(weights));
    }
    if (!train_by_device(recorded, share)) {
      if (group.rank() == 0) std::printf("not recorded: %s\n", recorded.text.c_str());
      continue;
    }
    if (group.rank() == 0) std::printf("%s\n", recorded.text.c_str());
    check(group, cat(name, ": recorded, all processes end with the same bits"),
          is_the_same_everywhere(group, recorded.state()));
    const double losses = largest_difference(shared.losses, recorded.losses);
    check(group, cat(name, ": losses of recorded steps"), losses < 1e-6, cat(losses));
    check(group, cat(name, ": correct answers of recorded steps"),
          shared.correct == recorded.correct);
    // With two processes, every summation order gives the same bits. With more processes, the
    // grouping of the terms may differ.
    const double weights = largest_difference(shared.state(), recorded.state());
    check(group, cat(name, ": weights of recorded steps"),
          group.size() == 2 ? weights == 0 : weights < 2e-5, cat(weights));
  }
}

// ---- speed ----

void time_sums(ProcessGroup& group) {
  const auto reducer = make_reducer(group, kCuda, SumOrder::any);
  const DeviceBackend& backend = backend_of(kCuda);
  for (const std::int64_t bytes : {10'000, 250'000, 4'000'000, 45'000'000}) {
    const Tensor data = Tensor::zeros({bytes / 4}, DType::f32, kCuda);
    constexpr int kSums = 50;
    double best = INFINITY;
    void* const begin = backend.make_mark(0);
    void* const end = backend.make_mark(0);
    for (int sample = 0; sample < 6; ++sample) {
      backend.synchronize(0);
      (void)group.most(0);  // all begin at the same time
      backend.set_mark(0, begin);
      for (int i = 0; i < kSums; ++i) {
        reducer->sum(data, 0.5f);
        reducer->join();
      }
      backend.set_mark(0, end);
      best = std::min(best, backend.ms_between(0, begin, end) / kSums);
    }
    backend.free_mark(0, begin);
    backend.free_mark(0, end);
    const double worst = group.most(best);
    const double n = group.size();
    if (group.rank() == 0) {
      std::printf("sum of %lld bytes: %.1f us, %.1f GB/s of the bus, by %s\n",
                  static_cast<long long>(bytes), 1e3 * worst,
                  static_cast<double>(bytes) * 2 * (n - 1) / n / worst * 1e-6,
                  reducer->text().c_str());
    }
  }
}

int run(bool speed) {
  const std::optional<RankEnvironment> environment = rank_environment();
  if (!environment) {
    std::printf("start several processes: mpirun -n 2 %s\n", "rank_probe");
    return 2;
  }
  const auto group = ProcessGroup::join(*environment);
  set_process_group(group.get());
  try {
    take_device_of_rank(*group);
    check_device_of_rank(*group, kCuda);
    check_sums(*group, SumOrder::any, "any order");
    if ((group->size() & (group->size() - 1)) == 0) {
      check_sums(*group, SumOrder::tree, "as a tree");
    }
    check_steps(*group);
    if (speed) time_sums(*group);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    group->fail_all(exit_code(error.kind()), error.what());
  }
  if (group->rank() == 0) std::printf(failures == 0 ? "all is well\n" : "%d FAILED\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace convscope

int main(int argc, char** argv) {
  return convscope::run(argc > 1 && std::string(argv[1]) == "--speed");
}
