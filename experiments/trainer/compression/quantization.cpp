// SPDX-License-Identifier: Apache-2.0
// quantization.cpp: the work before and after each step of a network with quantisers. It starts
// them at their step and writes quant.csv, one row per quantiser when all are calibrated and at the
// end of each epoch.
#include "experiments/trainer/compression/quantization.h"

namespace convscope {

Quantization::Quantization(Module& model, const QuantPlan& plan, const RunFolder& folder,
                           std::int64_t steps)
    : tensors_(quantized_tensors(model)),
      pruned_(pruned_quantizers(model)),
      plan_(plan),
      folder_(folder) {
  count_kept();
  const std::string path = folder.file("quant.csv");
  csv_ = std::make_unique<AppendFile>(path, bytes_until_step(path, steps));
  if (csv_->size_bytes() == 0) csv_->append(quant_csv_header());
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
  if (due != observing_) observe(due);
  return first;
}

void Quantization::observe(bool on) {
  observing_ = on;
  for (const QuantizedTensor& tensor : tensors_) tensor.quantizer->observe(on);
}

bool Quantization::step_needs_host(std::int64_t steps, bool ends_epoch) const {
  if (steps < plan_.begin_step) return false;
  return !begun_ || ends_epoch || steps <= plan_.begin_step + plan_.calibration_batches;
}

void Quantization::after_step(std::int64_t steps, std::int64_t epoch) {
  if (!observing_) return;
  csv_->append(quant_csv_rows(tensors_, steps, epoch));
  // Stop counting clipped values at once. While a quantiser counts, the network cannot be compiled
  // and its steps cannot be recorded.
  observe(false);
}

}  // namespace convscope
