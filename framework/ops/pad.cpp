// SPDX-License-Identifier: Apache-2.0
// pad.cpp: pads images.
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

// Checks the padding of one axis, which has `size` pixels and gets `before` and `after` more.
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

class PadOperation final : public SimpleOperation {
 public:
  PadOperation(const Padding2d& padding, PadMode mode)
      : SimpleOperation("pad"), padding_(padding), mode_(mode) {}
  std::string text() const override { return cat("pad ", name_of(mode_)); }
  Shape output_shape(const std::vector<Shape>& all) const override {
    const Shape& x = all[0];
    CONVSCOPE_CHECK(x.rank() == 4, "pad", "expected x [N,C,H,W], got ", x);
    check_axis("H", x[2], padding_.top, padding_.bottom, mode_, x);
    check_axis("W", x[3], padding_.left, padding_.right, mode_, x);
    return {x[0], x[1], padding_.top + x[2] + padding_.bottom,
            padding_.left + x[3] + padding_.right};
  }
  void run(const Forward& a) const override {
    pad_kernel.get(a.device())(a.x[0], padding_, mode_, a.y);
  }
  void run(const Backward& a) const override {
    pad_gradient_kernel.get(a.device())(a.dy, padding_, mode_, a.dx[0]);
  }

 private:
  Padding2d padding_;
  PadMode mode_;
};

}  // namespace

Tensor pad2d(const Tensor& x, const Padding2d& padding, PadMode mode) {
  CONVSCOPE_CHECK(
      x.defined() && x.rank() == 4 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), "pad",
      "expected x [N,C,H,W] of type f32 or f64, got ", x.str());
  if (padding == Padding2d{}) return x;
  return pad2d(Variable(x), padding, mode).value();
}

Variable pad2d(const Variable& x, const Padding2d& padding, PadMode mode) {
  CONVSCOPE_CHECK(x.rank() == 4, "pad", "expected x [N,C,H,W], got ", x.str());
  if (padding == Padding2d{}) return x;
  return apply(std::make_unique<PadOperation>(padding, mode), {x});
}

}  // namespace convscope
