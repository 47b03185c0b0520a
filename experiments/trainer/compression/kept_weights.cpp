// SPDX-License-Identifier: Apache-2.0
// kept_weights.cpp: tells the quantisers of pruned weights how many weights the masks keep.
#include "experiments/trainer/compression/kept_weights.h"

#include <algorithm>

#include "quant/quantize_network.h"
#include "sparsity/mask.h"

namespace convscope {
namespace {

// Returns how many kept weights share a step size, as a mean over the step sizes. A step size
// without kept weights does not count.
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

void count_kept(Module& model) {
  const std::vector<QuantizedTensor> tensors = quantized_tensors(model);
  for (const NamedModule& part : model.modules()) {
    const auto* mask = dynamic_cast<const Mask*>(part.module);
    if (mask == nullptr) continue;
    const std::string layer = part.name.substr(0, part.name.rfind('.'));
    for (const QuantizedTensor& tensor : tensors) {
      if (!tensor.is_weight || tensor.layer != layer) continue;
      const auto steps = std::max<std::int64_t>(1, tensor.quantizer->options().channels);
      tensor.quantizer->set_kept(kept_for_each_step(mask->keep(), steps));
    }
  }
}

}  // namespace convscope
