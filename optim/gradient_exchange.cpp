// SPDX-License-Identifier: Apache-2.0
// gradient_exchange.cpp: sums the gradients of a network over all processes of a group during the
// backward pass.
#include "optim/gradient_exchange.h"

#include <algorithm>
#include <utility>

#include "framework/int_math.h"
#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/pack/pack.h"

namespace convscope {
namespace {

constexpr const char* kName = "ranks";
// Elements: gradients are aligned to 64 bytes, like separate tensors.
constexpr std::int64_t kAlignment = 16;

std::int64_t padded(std::int64_t elements) { return round_up(elements, kAlignment); }

void fill_zero(const Tensor& t) {
  if (t.numel() == 0) return;
  backend_of(t.device())
      .fill_bytes(t.device().index, t.raw_data(), 0, static_cast<std::size_t>(t.size_bytes()));
}

}  // namespace

std::vector<std::vector<std::size_t>> gradient_buckets(
    const std::vector<OptimParameter>& parameters, std::int64_t bucket_bytes) {
  std::vector<std::vector<std::size_t>> out;
  std::int64_t bytes = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (out.empty() || bytes >= bucket_bytes) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().push_back(i);
    bytes += padded(parameters[i].variable.value().numel()) * 4;
  }
  return out;
}

GradientExchange::GradientExchange(std::unique_ptr<Reducer> reducer,
                                   std::vector<OptimParameter> parameters,
                                   std::vector<Tensor> averages, const ExchangeOptions& options)
    : reducer_(std::move(reducer)), options_(options), averages_(std::move(averages)) {
  CONVSCOPE_CHECK(!parameters.empty(), kName, "expected parameters to train, got none");
  const bool halves = (options.chunks & (options.chunks - 1)) == 0;
  CONVSCOPE_CHECK(options.chunks >= 1 && (halves || options.order == SumOrder::any), kName,
                  "expected a power of two as the number of chunks of a tree, got ",
                  options.chunks);
  const Device device = parameters.front().variable.device();
  std::int64_t elements = 0;
  for (const OptimParameter& p : parameters) {
    CONVSCOPE_CHECK(p.variable.dtype() == DType::f32 && p.variable.device() == device, kName,
                    "expected f32 parameters on ", device.str(), ", got ", p.name, " ",
                    p.variable.value().str());
    elements += padded(p.variable.value().numel());
  }
  block_ = Tensor::zeros({elements}, DType::f32, device);
  std::int64_t at = 0;
  for (const std::vector<std::size_t>& members :
       gradient_buckets(parameters, options.bucket_bytes)) {
    const std::int64_t begin = at;
    for (const std::size_t i : members) {
      Variable& variable = parameters[i].variable;
      const std::int64_t count = variable.value().numel();
      Slot slot{.parameter = parameters[i],
                .view = block_.slice_rows(at, count).reshape(variable.shape()),
                .bucket = buckets_.size()};
      at += padded(count);
      slot_of_[variable.state()] = slots_.size();
      variable.state()->grad = slot.view;
      variable.state()->grad_is_zero = true;
      slots_.push_back(std::move(slot));
    }
    buckets_.push_back(
        {.data = block_.slice_rows(begin, at - begin), .slots = members.size(), .partial = {}});
  }
  std::int64_t averaged = 0;
  for (const Tensor& t : averages_) averaged += t.numel();
  packed_averages_ = Tensor::zeros({averaged}, DType::f32, device);
  if (options.chunks > 1) first_averages_ = Tensor::zeros({averaged}, DType::f32, device);
}

GradientExchange::~GradientExchange() = default;

void GradientExchange::begin_step() {
  chunk_ = 0;
  if (options_.chunks == 1 || averages_.empty()) return;
  pack(averages_, packed_averages_);
  first_averages_.copy_from(packed_averages_);
}

void GradientExchange::begin_chunk(float weight) {
  weight_ = weight;
  next_bucket_ = 0;
  for (Slot& slot : slots_) slot.is_ready = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.slots;
}

void GradientExchange::begin_backward(float weight) {
  begin_chunk(weight);
  if (averages_.empty()) return;
  pack(averages_, packed_averages_);
  send(packed_averages_, partial_averages_);
}

// Adds the gradients of this process's chunks of the batch, then sends the sum. In tree order, the
// partial sums are merged like carries in a binary counter. Chunk 1 is added to chunk 0, chunk 3 to
// chunk 2, the sum of chunks 2 and 3 to the sum of chunks 0 and 1, and so on.
// Otherwise each chunk is added to the sum of the chunks before it, which needs one partial sum.
void GradientExchange::send(const Tensor& data, std::vector<Tensor>& partial) {
  const bool any = options_.order == SumOrder::any;
  if (any && options_.chunks == 1) return reducer_->sum(data, weight_);
  scale_kernel.get(data.device())(weight_, data, data);
  std::size_t level = 0;
  if (any && chunk_ > 0) accumulate(data, partial[0]);
  for (; !any && ((chunk_ >> level) & 1) != 0; ++level) accumulate(data, partial[level]);
  if (is_last_chunk()) return reducer_->sum(data, 1);
  if (partial.size() <= level) partial.resize(level + 1);
  if (!partial[level].defined()) {
    partial[level] = Tensor::empty(data.shape(), DType::f32, data.device());
  }
  partial[level].copy_from(data);
}

// The graph may have replaced the tensor.
void GradientExchange::take_gradient(Slot& slot) const {
  Variable::State& state = *slot.parameter.variable.state();
  slot.has_gradient = state.grad.defined() && !state.grad_is_zero;
  if (!slot.has_gradient) {
    fill_zero(slot.view);
  } else if (state.grad.raw_data() != slot.view.raw_data()) {
    slot.view.copy_from(state.grad);
  }
  state.grad = slot.view;
}

void GradientExchange::start_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    Bucket& bucket = buckets_[next_bucket_];
    ++next_bucket_;
    send(bucket.data, bucket.partial);
  }
}

void GradientExchange::ready(const Variable& parameter) {
  const auto at = slot_of_.find(parameter.state());
  if (at == slot_of_.end()) return;
  Slot& slot = slots_[at->second];
  if (slot.is_ready) return;
  slot.is_ready = true;
  take_gradient(slot);
  --buckets_[slot.bucket].missing;
  start_buckets();
}

void GradientExchange::end_backward() {
  for (Slot& slot : slots_) {
    if (slot.is_ready) continue;
    take_gradient(slot);
    slot.is_ready = true;
    --buckets_[slot.bucket].missing;
  }
  start_buckets();
  has_run_ = true;
  if (!is_last_chunk() && !averages_.empty()) unpack(first_averages_, averages_);
  ++chunk_;
}

void GradientExchange::no_images() {
  begin_chunk(0);
  if (!averages_.empty()) {
    fill_zero(packed_averages_);
    send(packed_averages_, partial_averages_);
  }
  for (Slot& slot : slots_) {
    fill_zero(slot.view);
    slot.parameter.variable.state()->grad = slot.view;
    slot.has_gradient = slot.has_gradient || !has_run_;
    slot.is_ready = true;
  }
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  start_buckets();
  ++chunk_;
}

void GradientExchange::finish() {
  reducer_->join();
  if (!averages_.empty()) unpack(packed_averages_, averages_);
  for (const Slot& slot : slots_) {
    slot.parameter.variable.state()->grad_is_zero = !slot.has_gradient;
  }
}

}  // namespace convscope
