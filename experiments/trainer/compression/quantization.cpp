// SPDX-License-Identifier: Apache-2.0
// quantization.cpp: what the trainer does around each step of a network with quantisers: lets them
// begin at their step and writes quant.csv, two rows for each layer (weight, input) when all are
// calibrated and at the end of each epoch.
#include "experiments/trainer/compression/quantization.h"

#include <algorithm>

namespace convscope {
namespace {

// Values that share a step, as the mean of all steps that have any.
std::int64_t kept_for_each_step(const Tensor& mask, std::int64_t steps) {
  const Tensor keep = mask.to(Device{});
  const std::int64_t inner = keep.numel() / steps;
  std::int64_t kept = 0, used = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const float* const row = keep.data<float>() + step * inner;
    const auto in = inner - std::count(row, row + inner, 0.0f);
    kept += in;
    used += in > 0 ? 1 : 0;
  }
  return used > 0 ? kept / used : 0;
}

}  // namespace

Quantization::Quantization(Module& model, const QuantPlan& plan, const RunFolder& folder,
                           std::int64_t steps)
    : tensors_(quantized_tensors(model)), plan_(plan), folder_(folder) {
  for (const NamedModule& part : model.modules()) {
    const auto* mask = dynamic_cast<const Mask*>(part.module);
    if (mask == nullptr) continue;
    const std::string layer = part.name.substr(0, part.name.rfind('.'));
    for (const QuantizedTensor& tensor : tensors_) {
      if (tensor.is_weight && tensor.layer == layer) pruned_.push_back({tensor.quantizer, mask});
    }
  }
  count_kept();
  const std::string path = folder.file("quant.csv");
  csv_ = std::make_unique<AppendFile>(path, bytes_until_step(path, steps));
  if (csv_->size_bytes() == 0) csv_->append(quant_csv_header());
}

void Quantization::count_kept() {
  for (const auto& [quantizer, mask] : pruned_) {
    const std::int64_t steps = std::max<std::int64_t>(1, quantizer->options().channels);
    quantizer->set_kept(kept_for_each_step(mask->keep(), steps));
  }
}

bool Quantization::before_step(std::int64_t steps, bool ends_epoch) {
  const bool first = steps == plan_.begin_step;
  if (!begun_ && steps >= plan_.begin_step) {
    begun_ = true;
    for (const QuantizedTensor& tensor : tensors_) tensor.quantizer->begin();
    if (first && steps > 0) folder_.log(cat("quantisers begin after step ", steps));
  }
  const bool calibrated = steps + 1 == plan_.begin_step + plan_.calibration_batches;
  const bool due = begun_ && (ends_epoch || calibrated);
  if (due != observing_) {
    observing_ = due;
    for (const QuantizedTensor& tensor : tensors_) tensor.quantizer->observe(due);
  }
  return first;
}

bool Quantization::step_needs_host(std::int64_t steps, bool ends_epoch) const {
  if (steps < plan_.begin_step) return false;
  return !begun_ || ends_epoch || steps <= plan_.begin_step + plan_.calibration_batches;
}

void Quantization::after_step(std::int64_t steps, std::int64_t epoch) {
  if (observing_) csv_->append(quant_csv_rows(tensors_, steps, epoch));
}

}  // namespace convscope
