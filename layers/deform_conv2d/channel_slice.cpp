// SPDX-License-Identifier: Apache-2.0
// channel_slice.cpp: an operation that copies a range of channels of images.
#include "layers/deform_conv2d/channel_slice.h"

#include <cstring>

namespace convscope {

constinit KernelSlot<void(const Tensor&, std::int64_t, const Tensor&)> channel_slice_kernel{
    "channel_slice"};
constinit KernelSlot<void(const Tensor&, std::int64_t, const Tensor&)>
    channel_slice_gradient_kernel{"channel_slice"};

namespace {

class ChannelSliceOperation final : public SimpleOperation {
 public:
  ChannelSliceOperation(std::int64_t first, std::int64_t count)
      : SimpleOperation("channel_slice"), first_(first), count_(count) {}
  std::string text() const override {
    return cat("channels ", first_, " to ", first_ + count_ - 1);
  }
  Shape output_shape(const std::vector<Shape>& all) const override {
    const Shape& x = all[0];
    CONVSCOPE_CHECK(x.rank() == 4 && first_ >= 0 && count_ >= 1 && first_ + count_ <= x[1],
                    "channel_slice", "expected x [N,C,H,W] with at least ", first_ + count_,
                    " channels, got ", x);
    return {x[0], count_, x[2], x[3]};
  }
  void run(const Forward& a) const override {
    channel_slice_kernel.get(a.device())(a.x[0], first_, a.y);
  }
  void run(const Backward& a) const override {
    channel_slice_gradient_kernel.get(a.device())(a.dy, first_, a.dx[0]);
  }

 private:
  std::int64_t first_, count_;
};

// Byte counts for copying a range of channels. `image` is the size of one image of `whole`. The
// range begins `before` bytes after the start of the image and has `own` bytes.
struct Bytes {
  Bytes(const Tensor& whole, std::int64_t first, const Tensor& part) {
    const auto plane =
        static_cast<std::size_t>(whole.dim(2) * whole.dim(3)) * size_of(part.dtype());
    image = static_cast<std::size_t>(whole.dim(1)) * plane;
    before = static_cast<std::size_t>(first) * plane;
    own = static_cast<std::size_t>(part.dim(1)) * plane;
  }
  std::size_t image, before, own;
};

void slice_cpu(const Tensor& x, std::int64_t first, const Tensor& y) {
  const Bytes bytes(x, first, y);
  const auto* from = static_cast<const std::byte*>(x.raw_data()) + bytes.before;
  auto* to = static_cast<std::byte*>(y.raw_data());
  for (std::int64_t n = 0; n < x.dim(0); ++n, from += bytes.image, to += bytes.own) {
    std::memcpy(to, from, bytes.own);
  }
}

void gradient_cpu(const Tensor& dy, std::int64_t first, const Tensor& dx) {
  const Bytes bytes(dx, first, dy);
  const auto* from = static_cast<const std::byte*>(dy.raw_data());
  auto* to = static_cast<std::byte*>(dx.raw_data());
  const std::size_t behind = bytes.before + bytes.own;
  for (std::int64_t n = 0; n < dx.dim(0); ++n, from += bytes.own, to += bytes.image) {
    std::memset(to, 0, bytes.before);
    std::memcpy(to + bytes.before, from, bytes.own);
    std::memset(to + behind, 0, bytes.image - behind);
  }
}

}  // namespace

CONVSCOPE_KERNEL(channel_slice_kernel, cpu, slice_cpu)
CONVSCOPE_KERNEL(channel_slice_gradient_kernel, cpu, gradient_cpu)

Variable channel_slice(const Variable& x, std::int64_t first, std::int64_t count) {
  return apply(std::make_unique<ChannelSliceOperation>(first, count), {x});
}

}  // namespace convscope
