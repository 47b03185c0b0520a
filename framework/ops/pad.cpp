// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/pad.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Padding2d&, PadMode, const Tensor&)> pad_kernel{
    "pad"};
constinit KernelSlot<void(const Tensor&, const Padding2d&, PadMode, const Tensor&)>
    pad_gradient_kernel{"pad"};

PadMode parse_pad_mode(std::string_view text) {
  for (int i = 0; i < kPadModeCount; ++i) {
    if (name_of(static_cast<PadMode>(i)) == text) return static_cast<PadMode>(i);
  }
  fail("pad", cat("expected zeros, reflect, replicate or circular, got '", text, "'"));
}

namespace {

constexpr std::int64_t kLargestPadding = std::int64_t{1} << 31;

// One axis: `size` pixels, `before` and `after` to be added.
void check_axis(const char* axis, std::int64_t size, std::int64_t before, std::int64_t after,
                PadMode mode, const Shape& x) {
  CONVSCOPE_CHECK(
      before >= 0 && after >= 0 && before <= kLargestPadding && after <= kLargestPadding, "pad",
      "expected a padding of 0 to 2^31 pixels, got ", before, " and ", after, " along ", axis);
  const std::int64_t most = before > after ? before : after;
  if (most == 0) return;
  switch (mode) {
    case PadMode::zeros:
      return;
    case PadMode::reflect:
      CONVSCOPE_CHECK(most < size, "pad", "expected a reflect padding smaller than ", axis, " = ",
                      size, " because the edge itself is not repeated, got ", most, " for x ", x);
      return;
    case PadMode::circular:
      CONVSCOPE_CHECK(most <= size, "pad", "expected a circular padding of at most ", axis, " = ",
                      size, " because the image is repeated once, got ", most, " for x ", x);
      return;
    case PadMode::replicate:
      CONVSCOPE_CHECK(size > 0, "pad", "expected at least one pixel to replicate along ", axis,
                      ", got x ", x);
      return;
  }
}

Shape padded_shape(const Tensor& x, const Padding2d& padding, PadMode mode) {
  CONVSCOPE_CHECK(
      x.defined() && x.rank() == 4 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), "pad",
      "expected x [N,C,H,W] of type f32 or f64, got ", x.str());
  check_axis("H", x.dim(2), padding.top, padding.bottom, mode, x.shape());
  check_axis("W", x.dim(3), padding.left, padding.right, mode, x.shape());
  return {x.dim(0), x.dim(1), padding.top + x.dim(2) + padding.bottom,
          padding.left + x.dim(3) + padding.right};
}

}  // namespace

Tensor pad2d(const Tensor& x, const Padding2d& padding, PadMode mode) {
  const Shape shape = padded_shape(x, padding, mode);
  if (padding == Padding2d{}) return x;
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.numel() > 0) pad_kernel.get(x.device())(x, padding, mode, y);
  return y;
}

Variable pad2d(const Variable& x, const Padding2d& padding, PadMode mode) {
  const Tensor y = pad2d(x.value(), padding, mode);
  if (padding == Padding2d{}) return x;
  return record("pad", y, {x},
                [shape = x.shape(), padding, mode](const Tensor& dy, GradientSink& out) {
                  const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
                  if (dx.numel() > 0) pad_gradient_kernel.get(dy.device())(dy, padding, mode, dx);
                  out.add(0, dx);
                });
}

}  // namespace convscope
