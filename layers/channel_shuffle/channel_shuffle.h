// SPDX-License-Identifier: Apache-2.0
// channel_shuffle.h: interleaves the groups of channels, so that a grouped convolution reads
// channels of all groups of the one before it.
//
// Shapes      x [N,C,H,W] -> y, the same shape; f32 or f64
// Formula     y[n, j groups + i] = x[n, i C/groups + j]; the gradient is the shuffle with
//             C / groups groups
// Parameters  groups  divides C, required
// Usage       {type: channel_shuffle, groups: 4}
// Paper       X. Zhang, X. Zhou, M. Lin, J. Sun: ShuffleNet, CVPR 2018, arXiv 1707.01083
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

CONVSCOPE_API Variable channel_shuffle(const Variable& x, std::int64_t groups);

class CONVSCOPE_API ChannelShuffle final : public Module {
 public:
  explicit ChannelShuffle(std::int64_t groups) : groups_(groups) {}
  std::string kind() const override { return "channel_shuffle"; }
  std::int64_t groups() const { return groups_; }
  Variable forward(const Variable& x) override { return channel_shuffle(x, groups_); }
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t groups_;
};

// Assigns y. Images are [N,C,H,W], on the CPU also [N,C/16,H,W,16] of `channels` channels.
extern CONVSCOPE_API
    KernelSlot<void(std::int64_t channels, std::int64_t groups, const Tensor& x, const Tensor& y)>
        channel_shuffle_kernel;

}  // namespace convscope
