// SPDX-License-Identifier: Apache-2.0
// linear_loss.cuh: softmax, cross-entropy and their gradient for one image in a warp, and the sum
// of the losses over the images of all blocks. linear_loss_cuda.cu and linear_tail_cuda.cu share
// this code.
#pragma once

#include <limits>

#include "framework/cuda/launch.cuh"
#include "layers/linear/linear_fused.h"

namespace convscope {

LinearLoss linear_loss_on_cuda();

// Returns whether a comes before b in argmax: first NaN, then the larger value, then the lower
// index.
__device__ inline bool comes_before(float a, int at_a, float b, int at_b) {
  const bool nan_a = a != a;
  const bool nan_b = b != b;
  if (nan_a != nan_b) return nan_a;
  if (nan_a || a == b) return at_a < at_b;
  return a > b;
}

// The softmax of one image, in a warp.
struct Softmax {
  float slope = 0;  // softmax - onehot for the lane's class; 0 if the label is not valid
  float total = 0, most = 0, logit_of_label = 0;
  bool valid = false;
  int hit = 0;

  // Returns the loss without its term log(total); loss() returns the whole loss. Both functions
  // return 0 if the label is not valid.
  __device__ double loss_without_logarithm() const {
    return valid ? static_cast<double>(most) - static_cast<double>(logit_of_label) : 0;
  }
  __device__ double loss() const {
    return valid ? ::log(static_cast<double>(total)) + loss_without_logarithm() : 0;
  }
};
// Computes the softmax of one image in a warp. Lane o has the logit of class o.
__device__ inline Softmax image_softmax(float logit, bool is_class, int lane, int label,
                                        int classes) {
  if (!is_class) logit = -std::numeric_limits<float>::infinity();
  float most = logit;
  int winner = lane;
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, most, offset);
    const int at = __shfl_xor_sync(kAllLanes, winner, offset);
    if (comes_before(other, at, most, winner)) {
      most = other;
      winner = at;
    }
  }
  const float e = is_class ? ::expf(logit - most) : 0.0f;
  Softmax out;
  out.most = most;
  out.total = warp_sum(e);
  out.valid = label >= 0 && label < classes;
  out.logit_of_label = __shfl_sync(kAllLanes, logit, out.valid ? label : 0);
  out.slope = out.valid ? e / out.total - (lane == label ? 1.0f : 0.0f) : 0.0f;
  out.hit = out.valid && winner == label ? 1 : 0;
  return out;
}

struct BlockSums {
  double loss;
  int correct;
};
struct LossSums {
  BlockSums* blocks;  // [blocks of the grid]
  int images;
  float* loss;
  std::int32_t* correct;
};
// Stores the sums of a block; called by one thread. Returns the number of blocks that were done
// before. When a launch ends, blocks_done is 0 again.
template <int kImages>
__device__ unsigned leave_losses(const double (&losses)[kImages], const int (&hits)[kImages],
                                 const LossSums& to, unsigned* blocks_done) {
  BlockSums sums{0, 0};
  for (int i = 0; i < kImages; ++i) {
    sums.loss += losses[i];
    sums.correct += hits[i];
  }
  to.blocks[blockIdx.x] = sums;
  __threadfence();
  return atomicAdd(blocks_done, 1u);
}
// Adds the sums of all blocks in their order; only the last block to finish does so. One warp calls
// this function with the result of leave_losses() in lane 0.
__device__ inline void add_losses_of_blocks(const LossSums& to, unsigned* blocks_done,
                                            unsigned ticket) {
  if (__shfl_sync(kAllLanes, ticket, 0) != gridDim.x - 1) return;
  __threadfence();
  const unsigned lane = threadIdx.x % 32;
  double loss = 0;
  int correct = 0;
  for (unsigned i = lane; i < gridDim.x; i += 32) {
    const volatile BlockSums* const from = to.blocks + i;
    loss += from->loss;
    correct += from->correct;
  }
  loss = warp_sum(loss);
  correct = warp_sum(correct);
  if (lane != 0) return;
  *to.loss = static_cast<float>(loss / static_cast<double>(to.images));
  *to.correct = correct;
  *blocks_done = 0;
}

}  // namespace convscope
