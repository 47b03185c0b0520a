// SPDX-License-Identifier: Apache-2.0
// shared_training.cpp: tasks of processes that train together, outside of training steps: checks
// that they agree, copies of weights, evaluation, stop signals.
#include "experiments/trainer/ranks/shared_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "experiments/config/build.h"
#include "experiments/trainer/signals.h"
#include "experiments/trainer/trainer.h"
#include "framework/int_math.h"
#include "quant/quantize_network.h"
#include "sparsity/sparsity_options.h"

namespace convscope {
namespace {

constexpr const char* kName = "ranks";

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

[[noreturn]] void refuse(const std::string& sentence) { fail(ErrorKind::kConfig, kName, sentence); }

// The reducer of a single process that computes its batches in chunks. It exchanges nothing.
class AloneReducer final : public Reducer {
 public:
  explicit AloneReducer(SumOrder order) : order_(order) {}
  void sum(const Tensor&, float) override {}  // the terms already contain the weights
  void join() override {}
  bool is_recordable() const override { return order_ == SumOrder::any; }
  std::string text() const override { return "one process"; }

 private:
  SumOrder order_;
};

// Returns the batch norm statistics of one process's images.
std::vector<Tensor> running_statistics(const Module& model) {
  std::vector<Tensor> out;
  for (const NamedTensor& buffer : model.buffers()) {
    if (is_running_statistic(buffer.name)) out.push_back(buffer.tensor);
  }
  return out;
}

std::vector<Tensor> state_of(Module& model) {
  std::vector<Tensor> out;
  for (const NamedParameter& p : model.parameters()) out.push_back(p.variable.value());
  for (const NamedTensor& b : model.buffers()) out.push_back(b.tensor);
  return out;
}

constexpr std::uint64_t kEmptyHash = 14695981039346656037u;
std::uint64_t add_bytes(std::uint64_t hash, const Tensor& t) {  // FNV-1a
  if (!t.defined()) return hash;
  const Tensor here = t.to(Device{});
  const auto* const bytes = static_cast<const unsigned char*>(here.raw_data());
  for (std::int64_t i = 0; i < here.size_bytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

std::int64_t batches_of(std::int64_t images, std::int64_t batch_size) {
  return ceil_div(images, batch_size);
}

// Refuses configs that look at whole batches. `key` makes a process compute a batch in parts.
void refuse_whole_batches(const ExperimentConfig& config, const char* key) {
  const auto refuse_because = [&](const char* expected, const char* why) {
    refuse(cat("expected ", expected, ", because ", key, " computes a batch in parts and ", why,
               "; leave ", key, " out"));
  };
  if (config.quant) {
    refuse_because("a network without quantisers", "a quantiser calibrates on whole batches");
  }
  if (!config.sparsity.values().empty() &&
      parse_sparsity(config.sparsity).method == PruneMethod::rigl) {
    refuse_because("another method than rigl", "rigl looks at the gradient of a whole batch");
  }
}

// Gradient accumulation: each process computes its share of a batch as `train.accumulate` parts.
Share accumulating_share(const ExperimentConfig& config, ProcessGroup* group) {
  if (config.train.deterministic_ranks) {
    refuse(
        cat("expected either train.accumulate or train.deterministic_ranks, because the second "
            "already computes a batch as train.rank_parts micro-batches, got accumulate ",
            config.train.accumulate, "; set train.rank_parts instead"));
  }
  refuse_whole_batches(config, "train.accumulate");
  return {.group = group, .chunks = static_cast<int>(config.train.accumulate)};
}

Share deterministic_share(const ExperimentConfig& config, ProcessGroup* group) {
  const std::int64_t parts = config.train.rank_parts;
  Share share{.group = group, .order = SumOrder::tree};
  if (!is_power_of_two(parts)) {
    refuse(
        cat("expected a power of two for train.rank_parts, because sums over parts are taken in "
            "pairs, got ",
            parts));
  }
  if (!is_power_of_two(share.size()) || share.size() > parts) {
    refuse(cat("expected 1, 2, 4, .. processes and at most train.rank_parts, which is ", parts,
               ", because train.deterministic_ranks computes each batch in so many parts, got ",
               share.size(), " processes"));
  }
  share.chunks = static_cast<int>(parts) / share.size();
  refuse_whole_batches(config, "train.deterministic_ranks");
  return share;
}

// Keeps the networks of the processes equal.
class Ranks final : public Hook {
 public:
  using Hook::Hook;

  void after_step(const Step& step) override {
    const TrainingSetup& setup = run_.setup;
    if (setup.share.group == nullptr || !setup.quant || step.recorded) return;
    if (setup.quant->calibrates(run_.state.step - 1)) {
      average_quantizers(*setup.share.group, *setup.model);
    }
  }

  void after_epoch() override {
    if (run_.setup.share.group == nullptr) return;
    check_same_network(*run_.setup.share.group, *run_.setup.model);
  }
};

}  // namespace

HookPointer rank_hook(Training& run) { return std::make_unique<Ranks>(run); }

Share share_of(const ExperimentConfig& config, ProcessGroup* group) {
  Share share{.group = group};
  if (config.train.accumulate > 1) {
    share = accumulating_share(config, group);
  } else if (config.train.deterministic_ranks) {
    share = deterministic_share(config, group);
  }
  share.bucket_bytes = std::llround(config.train.bucket_mib * 1024 * 1024);
  if (share.parts() > config.data.batch_size) {
    refuse(cat("expected at least as many images in a batch as it has parts, got data.batch_size ",
               config.data.batch_size, " and ", share.parts(), " parts on ", share.size(),
               share.size() == 1 ? " process" : " processes"));
  }
  return share;
}

std::int64_t images_at_once(std::int64_t batch_size, const Share& share) {
  return ceil_div(batch_size, std::int64_t{share.parts()});
}

std::unique_ptr<GradientExchange> exchange_of(Module& model, Device device, const Share& share) {
  if (!share.is_shared()) return nullptr;
  std::vector<OptimParameter> parameters;
  for (const NamedParameter& p : model.parameters()) {
    if (p.variable.requires_grad()) parameters.push_back({p.name, p.variable});
  }
  std::unique_ptr<Reducer> reducer = share.group != nullptr
                                         ? make_reducer(*share.group, device, share.order)
                                         : std::make_unique<AloneReducer>(share.order);
  return std::make_unique<GradientExchange>(
      std::move(reducer), std::move(parameters), running_statistics(model),
      ExchangeOptions{
          .order = share.order, .bucket_bytes = share.bucket_bytes, .chunks = share.chunks});
}

std::string share_text(const Share& share, const GradientExchange& exchange) {
  std::string out = cat("batches: ", share.parts(), " parts on ", share.size(),
                        share.size() == 1 ? " process" : " processes");
  if (share.group != nullptr) {
    out += cat(", gradients of ", exchange.bytes(), " bytes in ", exchange.bucket_count(),
               exchange.bucket_count() == 1 ? " bucket" : " buckets", " by ",
               exchange.reducer().text());
  }
  out += share.order == SumOrder::tree
             ? "; sums in a tree, the same bits for any number of processes"
             : "";
  return out + "; batch norm takes its statistics of each part, and averages the running ones";
}

void check_same(ProcessGroup& group, const std::string& what, const std::string& value) {
  const std::vector<std::string> all = group.gather(value);
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] == all[0]) continue;
    fail(ErrorKind::kConfig, kName,
         cat("expected the same ", what, " in all processes, got ", all[0], " (", group.name_of(0),
             ") and ", all[static_cast<std::size_t>(rank)], " (", group.name_of(rank), ")"));
  }
}

void broadcast_network(ProcessGroup& group, Module& model) {
  for (const Tensor& tensor : state_of(model)) {
    if (tensor.numel() == 0) continue;
    const Tensor here = tensor.to(Device{}).clone();
    const auto bytes = static_cast<std::size_t>(here.size_bytes());
    const std::string sent =
        group.broadcast({static_cast<const char*>(here.raw_data()), group.rank() == 0 ? bytes : 0});
    CONVSCOPE_CHECK(sent.size() == bytes, kName, "expected ", bytes,
                    " bytes of a tensor of process 0, got ", sent.size());
    std::memcpy(here.raw_data(), sent.data(), bytes);
    tensor.copy_from(here);
  }
}

void check_same_network(ProcessGroup& group, Module& model) {
  std::uint64_t hash = kEmptyHash;
  for (const Tensor& tensor : state_of(model)) hash = add_bytes(hash, tensor);
  check_same(group, "weights after an epoch", cat("checksum ", hash));
}

std::string checksum_of(const Dataset& data) {
  const std::uint64_t hash = add_bytes(add_bytes(kEmptyHash, data.images), data.labels);
  return cat(data.name, " of ", data.size(), " samples, checksum ", hash);
}

void average_quantizers(ProcessGroup& group, Module& model) {
  std::vector<Tensor> tensors;
  for (const QuantizedTensor& tensor : quantized_tensors(model)) {
    for (const NamedParameter& p : tensor.quantizer->parameters()) {
      tensors.push_back(p.variable.value());
    }
    for (const NamedTensor& b : tensor.quantizer->buffers()) {
      if (!b.name.ends_with("batches_seen")) tensors.push_back(b.tensor);
    }
  }
  std::int64_t count = 0;
  for (const Tensor& t : tensors) count += t.numel();
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(count));
  for (const Tensor& t : tensors) {
    const Tensor here = t.to(Device{});
    values.insert(values.end(), here.data<float>(), here.data<float>() + here.numel());
  }
  group.sum(values.data(), count);
  std::size_t at = 0;
  for (const Tensor& t : tensors) {
    const Tensor mean = t.to(Device{}).clone();
    for (std::int64_t i = 0; i < mean.numel(); ++i) {
      mean.data<float>()[i] = static_cast<float>(values[at++] / group.size());
    }
    t.copy_from(mean);
  }
}

// If there are fewer batches than processes, each process evaluates the whole data set.
Dataset batches_of_rank(const Dataset& data, std::int64_t batch_size, const Share& share) {
  const std::int64_t batches = batches_of(data.size(), batch_size);
  if (share.size() == 1 || batches < share.size()) return data;
  std::vector<std::int64_t> samples;
  for (std::int64_t b = share.rank(); b < batches; b += share.size()) {
    const std::int64_t end = std::min((b + 1) * batch_size, data.size());
    for (std::int64_t i = b * batch_size; i < end; ++i) samples.push_back(i);
  }
  return subset(data, samples);
}

Evaluation combined_evaluation(ProcessGroup& group, const Evaluation& own,
                               const std::vector<double>& batch_loss_sums,
                               std::int64_t whole_images, const Loader& train) {
  const std::int64_t batches = batches_of(whole_images, train.options().batch_size);
  const auto labels = static_cast<double>(train.dataset().label_shape().numel());  // of an image
  const bool is_shared = batches >= group.size();
  // The first elements are the loss sums of the batches; the last three are the sums of the whole
  // evaluation.
  std::vector<double> values(static_cast<std::size_t>(batches) + 3);
  for (std::size_t i = 0; i < batch_loss_sums.size(); ++i) {
    const std::size_t batch = is_shared ? static_cast<std::size_t>(group.rank()) +
                                              i * static_cast<std::size_t>(group.size())
                                        : i;
    if (is_shared || group.rank() == 0) values.at(batch) = batch_loss_sums[i];
  }
  const bool counts = is_shared || group.rank() == 0;
  const auto at = static_cast<std::size_t>(batches);
  values[at] = counts ? own.accuracy / 100 * labels * static_cast<double>(own.images) : 0;
  values[at + 1] = counts ? static_cast<double>(own.images) : 0;
  values[at + 2] = own.complete ? 0 : 1;
  group.sum(values.data(), static_cast<std::int64_t>(values.size()));
  Evaluation out;
  out.images = std::llround(values[at + 1]);
  out.complete = values[at + 2] == 0;
  double loss_sum = 0;
  for (std::size_t b = 0; b < at; ++b) loss_sum += values[b];
  if (out.images > 0) {
    const auto images = static_cast<double>(out.images);
    out.loss = loss_sum / images;
    out.accuracy = 100.0 * std::round(values[at]) / (images * labels);
  }
  return out;
}

int stop_signal() {
  const int own = StopSignals::received();
  if (own != 0 || process_group() == nullptr) return own;
  return process_group()->signal_of_others();
}

int agreed_stop(ProcessGroup* group) {
  const int own = stop_signal();
  return group == nullptr ? own : static_cast<int>(group->most(own));
}

}  // namespace convscope
