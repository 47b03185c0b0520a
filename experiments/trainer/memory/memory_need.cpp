// SPDX-License-Identifier: Apache-2.0
// memory_need.cpp: computes the memory that a config needs before any is allocated.
#include "experiments/trainer/memory/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "datasets/loader.h"
#include "experiments/config/build.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "framework/int_math.h"
#include "framework/memory/unbacked.h"
#include "layers/plan/step_plan.h"
#include "sparsity/mask.h"
#include "sparsity/prunable_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {
namespace {

std::string size_text(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / 1048576.0;
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

// Returns the bytes of images and their labels.
std::int64_t bytes_of(std::int64_t images, const DataFacts& data) {
  return images * (data.sample.numel() + 4 * data.labels.numel());
}

void count_data(const ExperimentConfig& config, const DataFacts& data, const Share& share,
                MemoryNeed& need) {
  const DataConfig& of = config.data;
  const std::int64_t rest = data.train - of.val_split;
  const std::int64_t train = of.limit > 0 ? std::min(of.limit, rest) : rest;
  const auto bytes = [&](std::int64_t images) { return bytes_of(images, data); };
  const std::int64_t loaded = bytes(data.train + data.test);
  need.loading_bytes = loaded;
  // A validation split and a limit both copy the images that are kept, so the loaded set and the
  // copies are in memory at the same time.
  if (of.val_split > 0) need.loading_bytes = loaded + bytes(data.train);
  if (of.limit > 0) need.loading_bytes = std::max(need.loading_bytes, loaded + bytes(train));
  need.data_bytes = bytes(train + of.val_split + data.test);
  const auto add_loader = [&](std::int64_t images, std::int64_t batch) {
    if (images < 1) return;
    need.batches_bytes += loader_bytes(images, data.sample, data.labels, {.batch_size = batch});
  };
  add_loader(train, ceil_div(of.batch_size, std::int64_t{share.size()}));
  for (const std::int64_t images : {of.val_split, data.test}) add_loader(images, of.batch_size);
}

// Returns the bytes of the sums over the parts of a batch that a process computes in turn
// (optim/gradient_exchange.h): one sum, or in a tree one of 1, 2, 4, ... parts.
std::int64_t partial_sum_bytes(Module& model, const Share& share) {
  const int sums = share.chunks == 1 ? 0
                   : share.order == SumOrder::tree
                       ? std::bit_width(static_cast<unsigned>(share.chunks)) - 1
                       : 1;
  std::int64_t bytes = 0;
  for (const NamedParameter& p : model.parameters()) {
    if (p.variable.requires_grad()) bytes += p.variable.value().size_bytes();
  }
  return sums * bytes;
}

// Adds the pruning masks that the training uses. Returns the bytes for the values of pruned weights
// that the training stores.
std::int64_t add_masks(const ExperimentConfig& config, Module& model, const Shape& input) {
  if (config.sparsity.values().empty()) return 0;
  const SparsityOptions options = parse_sparsity(config.sparsity);
  if (options.method == PruneMethod::none) return 0;
  std::int64_t held = 0;
  for (const PrunableLayer& layer : prunable_network(model, input).layers) {
    const Tensor weight = layer.weight();
    if (std::ranges::count(options.exclude, layer.name) > 0 && !options.structured()) continue;
    layer.module->add_weight_transform("mask", std::make_shared<Mask>(weight), /*first=*/true);
    held += weight.size_bytes();
  }
  return held;
}

// The masks have no values here, so a layer that is set to block_sparse is counted as a dense
// layer.
ExperimentConfig without_blocks(ExperimentConfig config) {
  const auto dense = [](Conv2dPolicy& policy) {
    for (std::string* word : {&policy.forward, &policy.backward_data, &policy.backward_weight}) {
      if (*word == "block_sparse") *word = "auto";
    }
  };
  dense(config.conv.policy);
  for (auto& [layer, policy] : config.conv.per_layer) dense(policy);
  return config;
}

void count_network(const ExperimentConfig& given, const DataFacts& data, const Share& share,
                   MemoryNeed& need) {
  const UnbackedMemory nothing;
  const bool blocks = !given.sparsity.values().empty() &&
                      parse_sparsity(given.sparsity).execute == SparseExecution::sparse;
  const ExperimentConfig config = blocks ? without_blocks(given) : given;
  const Device device = config.device;
  const auto model = build_model(config, data.sample, data.classes);
  const Shape input = batch_shape(images_at_once(config.data.batch_size, share), data.sample);
  const std::int64_t held = add_masks(config, *model, input);
  need.network_bytes = nothing.live_bytes(device) + held;
  const auto optimizer = build_optimizer(config, *model);
  const Loss loss(config.train.loss);
  const auto plan = StepPlan::make(*model, input, PlanMode::training, nullptr, {}, true, loss);
  need.step_bytes = plan ? plan->memory().arena_bytes : 0;
  need.update_bytes = nothing.live_bytes(device) - need.step_bytes - (need.network_bytes - held) +
                      partial_sum_bytes(*model, share);
  // A GPU keeps the recorded steps of training and evaluation at the same time; the CPU keeps the
  // compiled step of one of them.
  const bool records = device.type != DeviceType::cpu;
  const std::int64_t images = std::max(data.test, config.data.val_split);
  if (images == 0) return;
  model->eval();
  const Shape whole = batch_shape(std::min(config.data.batch_size, images), data.sample);
  const auto evaluation = StepPlan::make(
      *model, whole, records ? PlanMode::evaluation : PlanMode::inference, nullptr, {}, true, loss);
  if (!evaluation) return;
  need.evaluation_bytes = evaluation->memory().arena_bytes;
  if (!records) return;
  need.step_bytes += input.numel() * 4;
  need.evaluation_bytes += whole.numel() * 4;
  if (config.data.val_split > 0) need.evaluation_bytes *= 2;
}

// Returns the config keys that lower the need, the most effective one first.
std::string advice(const ExperimentConfig& config, const MemoryNeed& need, bool host) {
  const bool all = host && need.device.type == DeviceType::cpu;
  struct Way {
    std::int64_t bytes;
    std::string words;
  };
  std::vector<Way> ways;
  if (all || !host) {
    ways.push_back({need.network_bytes + need.update_bytes, "take a smaller model"});
  }
  ways.push_back({(all || !host ? need.step_bytes + need.evaluation_bytes : 0) +
                      (host ? need.batches_bytes : 0),
                  cat("lower data.batch_size (", config.data.batch_size, ")")});
  if (host) {
    const bool drawn = config.data.options.has("train_size");
    ways.push_back({std::max(need.data_bytes, need.loading_bytes),
                    drawn ? "lower data.train_size" : "take a smaller data.set"});
  }
  std::ranges::stable_sort(ways, [](const Way& a, const Way& b) { return a.bytes > b.bytes; });
  return cat(ways[0].words, " or ", ways[1].words);
}

[[noreturn]] void refuse(const ExperimentConfig& config, const MemoryRoom& room, bool host,
                         const std::string& got, const MemoryNeed& need) {
  fail(host ? ErrorKind::kConfig : ErrorKind::kUnavailable, "memory",
       cat("expected a config that fits into the ", size_text(room.bytes), " that ", room.source,
           ", got one that needs ", got, "; ", advice(config, need, host)));
}

}  // namespace

std::int64_t MemoryNeed::device_bytes() const {
  return network_bytes + update_bytes + step_bytes + evaluation_bytes;
}

std::int64_t MemoryNeed::host_bytes() const {
  const std::int64_t training =
      data_bytes + batches_bytes + (device.type == DeviceType::cpu ? device_bytes() : 0);
  return std::max(loading_bytes, training);
}

std::string MemoryNeed::text() const {
  // The memory of a dynamic step is unknown before the step runs.
  const auto planned = [](std::int64_t bytes) {
    return bytes > 0 ? size_text(bytes) : std::string("not counted (no plan)");
  };
  return cat("data set ", size_text(data_bytes), ", batches ", size_text(batches_bytes),
             ", network ", size_text(network_bytes), ", gradients and optimiser ",
             size_text(update_bytes), ", a training step ", planned(step_bytes), ", evaluation ",
             planned(evaluation_bytes));
}

MemoryNeed memory_need(const ExperimentConfig& config, const DataFacts& data, const Share& share) {
  MemoryNeed need{.device = config.device};
  count_data(config, data, share, need);
  count_network(config, data, share, need);
  return need;
}

std::string check_memory(const ExperimentConfig& config, const DataFacts& data, const Share& share,
                         const ControlGroups& groups) {
  const MemoryRoom host = host_memory_room(groups);
  MemoryNeed need{.device = config.device};
  count_data(config, data, share, need);
  try {
    count_network(config, data, share, need);
  } catch (const Error& error) {  // the address space is too small
    if (!std::string_view(error.what()).starts_with("[memory]")) throw;
    refuse(config, host, true, cat("more than the system's address space: ", error.what()), need);
  }
  if (host.bytes > 0 && need.host_bytes() > host.bytes) {
    const bool loads = need.host_bytes() == need.loading_bytes;
    refuse(config, host, true,
           cat("about ", size_text(need.host_bytes()),
               loads ? " to load its data set" : cat(" (", need.text(), ")")),
           need);
  }
  if (need.device.type != DeviceType::cpu) {
    const MemoryRoom room = memory_room(need.device);
    if (room.bytes > 0 && need.device_bytes() > room.bytes) {
      refuse(config, room, false,
             cat("about ", size_text(need.device_bytes()), " (", need.text(), ")"), need);
    }
  }
  return cat(
      "memory: about ", size_text(need.host_bytes()), " are needed",
      need.device.type == DeviceType::cpu
          ? ""
          : cat(" on the host and ", size_text(need.device_bytes()), " on ", need.device.str()),
      ": ", need.text());
}

}  // namespace convscope
