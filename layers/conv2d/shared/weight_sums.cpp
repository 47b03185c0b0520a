// SPDX-License-Identifier: Apache-2.0
// weight_sums.cpp: how direct and pointwise convolution sum dw: output channels are in the lanes,
// and each slice of the batch has separate sums.
#include "layers/conv2d/shared/weight_sums.h"

#include <algorithm>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/tiles.h"

namespace convscope {

WeightBlocks::WeightBlocks(const Conv2dProblem& problem)
    : z(problem),
      kernels(z.k_per_group()),
      depth(z.c_per_group() * z.r * z.s),
      lanes(tile_kernels.get().lanes),
      width(kernels > lanes ? 2 * lanes : lanes),
      blocks(ceil_div(kernels, width)) {}

std::int64_t WeightBlocks::slices_for(std::int64_t wanted, std::int64_t totals) const {
  const std::int64_t chains = ceil_div(z.n * totals, std::int64_t{kSumChain});
  return std::clamp<std::int64_t>(std::max(wanted, chains), 1, std::max<std::int64_t>(1, z.n));
}

WeightSums::WeightSums(const WeightBlocks& plan, const Conv2dBackwardWeightArgs& args)
    : plan_(plan),
      sums_(static_cast<float*>(args.workspace)),
      dw_(static_cast<float*>(args.dw)),
      accumulate_(args.accumulate) {}

float* WeightSums::begin(std::int64_t slice, std::int64_t block) const {
  const std::int64_t depth = plan_.depth;
  float* const sums = at(slice, block);
  std::fill_n(sums, plan_.width * depth, 0.0f);
  if (accumulate_ && slice == 0) {
    gemm_kernels.get().transpose(dw_ + plan_.first_kernel(block) * depth, depth,
                                 plan_.kernel_count(block), depth, sums, plan_.width);
  }
  return sums;
}

void WeightSums::write(std::int64_t block) const {
  const std::int64_t depth = plan_.depth;
  float* const sums = at(0, block);
  for (std::int64_t slice = 1; slice < plan_.slices; ++slice) {
    const float* const more = at(slice, block);
    for (std::int64_t i = 0; i < plan_.width * depth; ++i) sums[i] += more[i];
  }
  gemm_kernels.get().transpose(sums, plan_.width, depth, plan_.kernel_count(block),
                               dw_ + plan_.first_kernel(block) * depth, depth);
}

}  // namespace convscope
