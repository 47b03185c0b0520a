// SPDX-License-Identifier: Apache-2.0
// slice.cpp: a part of a tensor along one axis. Copies rows, as concat does.
#include "framework/ops/concat/slice.h"

#include "framework/graph/simple_operation.h"
#include "framework/ops/concat/concat.h"

namespace convscope {
namespace {

class SliceOperation final : public SimpleOperation {
 public:
  SliceOperation(int axis, std::int64_t first, std::int64_t count)
      : SimpleOperation("slice"), axis_(axis), first_(first), count_(count) {}

  Shape output_shape(const std::vector<Shape>& all) const override {
    Shape y = all[0];
    const int axis = axis_of(y);
    CONVSCOPE_CHECK(axis >= 0 && axis < y.rank(), "slice", "expected an axis of x ", y, ", got ",
                    axis_);
    CONVSCOPE_CHECK(first_ >= 0 && count_ >= 0 && first_ <= y[axis] - count_, "slice",
                    "expected a part of the ", y[axis], " elements of axis ", axis, " of x ", y,
                    ", got ", count_, " from ", first_);
    y.set(axis, count_);
    return y;
  }
  void run(const Forward& a) const override {
    copy_rows_kernel.get(a.device())(a.x[0], rows_of(a.x[0].shape()), a.y);
  }
  void run(const Backward& a) const override {
    StridedRows rows = rows_of(a.dx[0].shape());
    std::swap(rows.from_stride, rows.to_stride);
    std::swap(rows.from_offset, rows.to_offset);
    a.dx[0].fill(0);
    copy_rows_kernel.get(a.device())(a.dy, rows, a.dx[0]);
  }

 private:
  int axis_of(const Shape& x) const { return axis_ < 0 ? axis_ + x.rank() : axis_; }

  // The rows that y takes from x.
  StridedRows rows_of(const Shape& x) const {
    std::int64_t outer = 1, inner = 1;
    for (int axis = 0; axis < axis_of(x); ++axis) outer *= x[axis];
    for (int axis = axis_of(x) + 1; axis < x.rank(); ++axis) inner *= x[axis];
    return {.rows = outer,
            .count = count_ * inner,
            .from_stride = x[axis_of(x)] * inner,
            .from_offset = first_ * inner,
            .to_stride = count_ * inner,
            .to_offset = 0};
  }

  int axis_;
  std::int64_t first_, count_;
};

}  // namespace

Variable slice(const Variable& x, int axis, std::int64_t first, std::int64_t count) {
  return convscope::apply(std::make_unique<SliceOperation>(axis, first, count), {x});
}

}  // namespace convscope
