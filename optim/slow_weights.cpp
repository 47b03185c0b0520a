// SPDX-License-Identifier: Apache-2.0
// slow_weights.cpp: second copies of the weights: their average, and the slow weights of Lookahead.
#include "optim/slow_weights.h"

#include <utility>

#include "optim/update.h"

namespace convscope {
namespace {

class SlowWeights final : public Optimizer {
 public:
  SlowWeights(std::unique_ptr<Optimizer> fast, std::vector<OptimState> statistics,
              const SlowWeightsOptions& options)
      : Optimizer(fast->groups()),
        fast_(std::move(fast)),
        statistics_(std::move(statistics)),
        options_(options),
        table_(groups_) {
    CONVSCOPE_CHECK(options.decay >= 0 && options.decay < 1, "optim.ema",
                    "expected a decay from 0 to below 1, got ", options.decay);
    CONVSCOPE_CHECK(options.k >= 0 && options.alpha >= 0 && options.alpha <= 1, "optim.lookahead",
                    "expected k >= 0 and alpha from 0 to 1, got k ", options.k, " and alpha ",
                    options.alpha);
    if (options.decay == 0) statistics_.clear();
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) add(parameter);
    }
    for (const OptimState& each : statistics_) average_.push_back(copy("average.", each));
    updates_ = Tensor::zeros({1}, DType::i32);
  }

  std::string kind() const override { return fast_->kind(); }

  bool list_step(double lr, bool counts, UpdateTable& table) override {
    if (counts && updates() == 0) start();
    if (!fast_->list_step(lr, counts, table)) return false;
    table.set_slow_weights(1 - options_.decay, options_.alpha);
    const bool moves = options_.k > 0 && (updates() + 1) % options_.k == 0;
    std::size_t row = 0;
    std::size_t i = 0;
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) {
        const void* const w = parameter.variable.value().raw_data();
        const std::size_t at = i++;
        if (row == table.rows().size() || table.rows()[row].w != w) continue;  // has no gradient
        UpdateRow& to = table.row(row++);
        if (!average_.empty()) to.average = average_[at].tensor.raw_data();
        if (!slow_.empty()) to.slow = slow_[at].tensor.raw_data();
        to.scalars.value[kMovesSlowWeights] = moves ? 1 : 0;
      }
    }
    for (const OptimState& each : statistics_) {
      table.add_average(each.tensor, average_[i++].tensor);
    }
    if (counts) ++*updates_.data<std::int32_t>();
    return true;
  }

  void queue_directions() override { fast_->queue_directions(); }
  bool has_directions() const override { return fast_->has_directions(); }

  void step(double lr) override {
    list_step(lr, /*counts=*/true, table_);
    queue_directions();
    if (!table_.rows().empty()) update_kernel.get(table_.device())(table_);
  }

  std::vector<OptimState> state() override {
    std::vector<OptimState> out = fast_->state();
    out.insert(out.end(), average_.begin(), average_.end());
    out.insert(out.end(), slow_.begin(), slow_.end());
    out.push_back({"updates", updates_});
    return out;
  }

  std::vector<AveragedTensor> averages() override {
    std::vector<AveragedTensor> out;
    if (average_.empty() || updates() == 0) return out;
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) {
        out.push_back({parameter.variable.value(), average_[out.size()].tensor});
      }
    }
    for (const OptimState& each : statistics_) {
      out.push_back({each.tensor, average_[out.size()].tensor});
    }
    return out;
  }

 private:
  std::int32_t updates() const { return *updates_.data<std::int32_t>(); }

  static OptimState copy(const char* prefix, const OptimState& of) {
    return {prefix + of.name, of.tensor.clone()};
  }

  void add(const OptimParameter& parameter) {
    const OptimState w{parameter.name, parameter.variable.value()};
    if (options_.decay > 0) average_.push_back(copy("average.", w));
    if (options_.k > 0) slow_.push_back(copy("slow.", w));
  }

  // Copies the weights, which may have been loaded after the constructor.
  void start() {
    std::size_t i = 0;
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) {
        const Tensor& w = parameter.variable.value();
        if (!average_.empty()) average_[i].tensor.copy_from(w);
        if (!slow_.empty()) slow_[i].tensor.copy_from(w);
        ++i;
      }
    }
    for (const OptimState& each : statistics_) average_[i++].tensor.copy_from(each.tensor);
  }

  std::unique_ptr<Optimizer> fast_;
  std::vector<OptimState> statistics_;
  SlowWeightsOptions options_;
  std::vector<OptimState> average_;  // of the parameters, then of the statistics; or empty
  std::vector<OptimState> slow_;     // of the parameters; or empty
  Tensor updates_;                   // i32 [1]
  UpdateTable table_;
};

}  // namespace

std::unique_ptr<Optimizer> with_slow_weights(std::unique_ptr<Optimizer> optimizer,
                                             std::vector<OptimState> statistics,
                                             const SlowWeightsOptions& options) {
  if (!options.any()) return optimizer;
  return std::make_unique<SlowWeights>(std::move(optimizer), std::move(statistics), options);
}

AveragedWeights::AveragedWeights(Optimizer* optimizer) {
  if (optimizer != nullptr) tensors_ = optimizer->averages();
  exchange();
}

AveragedWeights::~AveragedWeights() { exchange(); }

void AveragedWeights::exchange() const {
  for (const AveragedTensor& each : tensors_) {
    const Tensor weight = each.weight.clone();
    each.weight.copy_from(each.average);
    each.average.copy_from(weight);
  }
}

}  // namespace convscope
