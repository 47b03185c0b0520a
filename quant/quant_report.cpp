// SPDX-License-Identifier: Apache-2.0
// quant_report.cpp: writes the rows of quant.csv, which show the step sizes and the share of
// clipped values in the last observed forward pass.
#include "quant/quant_report.h"

#include <algorithm>
#include <cstdio>

namespace convscope {

std::string quant_csv_header() {
  return "step,epoch,layer,tensor,bits,signed,step_size_min,step_size_mean,step_size_max,"
         "saturated_percent\n";
}

std::string quant_csv_rows(const std::vector<QuantizedTensor>& tensors, std::int64_t step,
                           std::int64_t epoch) {
  std::string out;
  for (const QuantizedTensor& tensor : tensors) {
    const Quantizer::Observed& seen = tensor.quantizer->observed();
    if (!seen.steps.defined()) continue;
    double least = seen.steps.at(0), largest = least, sum = 0;
    for (std::int64_t i = 0; i < seen.steps.numel(); ++i) {
      least = std::min(least, seen.steps.at(i));
      largest = std::max(largest, seen.steps.at(i));
      sum += seen.steps.at(i);
    }
    const QuantizerOptions& options = tensor.quantizer->options();
    char text[256];
    std::snprintf(text, sizeof text, "%lld,%lld,", static_cast<long long>(step),
                  static_cast<long long>(epoch));
    out += text;
    out += tensor.layer;
    std::snprintf(text, sizeof text, ",%s,%d,%d,%.6g,%.6g,%.6g,%.6g\n", tensor.tensor.c_str(),
                  options.bits, options.is_signed ? 1 : 0, least,
                  sum / static_cast<double>(seen.steps.numel()), largest, seen.clipped_percent);
    out += text;
  }
  return out;
}

}  // namespace convscope
