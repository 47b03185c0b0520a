// SPDX-License-Identifier: Apache-2.0
// concat.cpp: joins tensors along one axis.
#include "framework/ops/concat/concat.h"

#include <cstring>

#include "framework/graph/apply.h"
#include "framework/parallel.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const StridedRows&, const Tensor&)> copy_rows_kernel{
    "concat"};

namespace {

class ConcatOperation final : public Operation {
 public:
  explicit ConcatOperation(int axis) : Operation("concat"), axis_(axis) {}

  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    std::vector<Shape> shapes;
    for (const ValueId input : inputs) shapes.push_back(graph.shape(input));
    const Shape y = concat_shape(shapes, axis_);
    if (axis_ < 0) axis_ += y.rank();
    return {y, graph.dtype(inputs[0])};
  }

  void forward(Emitter& emitter) override {
    for_each_part(emitter.graph(), [&](ValueId input, const StridedRows& rows) {
      emitter.call([run = copy_rows_kernel.get(emitter.device()), x = emitter.value(input), rows,
                    y = emitter.value(output())] { run(x, rows, y); });
    });
  }

  void backward(Emitter& emitter) override {
    for_each_part(emitter.graph(), [&](ValueId input, StridedRows rows) {
      if (!emitter.graph().wants_gradient(input)) return;
      std::swap(rows.from_stride, rows.to_stride);
      std::swap(rows.from_offset, rows.to_offset);
      emitter.assign_gradient(input, [&](const Tensor& dx) {
        emitter.call([run = copy_rows_kernel.get(emitter.device()), dy = emitter.gradient(output()),
                      rows, dx] { run(dy, rows, dx); });
      });
    });
  }

 private:
  // Calls visit(input, rows) with the rows that the input gives to y.
  template <class Visit>
  void for_each_part(const Graph& graph, const Visit& visit) const {
    const Shape& y = graph.shape(output());
    std::int64_t outer = 1, inner = 1, first = 0;
    for (int axis = 0; axis < axis_; ++axis) outer *= y[axis];
    for (int axis = axis_ + 1; axis < y.rank(); ++axis) inner *= y[axis];
    for (const ValueId input : inputs) {
      const std::int64_t count = graph.shape(input)[axis_] * inner;
      visit(input, {.rows = outer,
                    .count = count,
                    .from_stride = count,
                    .from_offset = 0,
                    .to_stride = y[axis_] * inner,
                    .to_offset = first});
      first += count;
    }
  }

  int axis_;
};

void copy_rows_cpu(const Tensor& from, const StridedRows& rows, const Tensor& to) {
  const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
  const auto* const source = static_cast<const std::byte*>(from.raw_data());
  auto* const target = static_cast<std::byte*>(to.raw_data());
  constexpr std::int64_t kGrainBytes = 1 << 15;
  const std::int64_t bytes = rows.count * element;
  parallel_for(rows.rows, 1 + kGrainBytes / (bytes + 1), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::memcpy(target + (rows.to_offset + row * rows.to_stride) * element,
                  source + (rows.from_offset + row * rows.from_stride) * element,
                  static_cast<std::size_t>(bytes));
    }
  });
}

}  // namespace

CONVSCOPE_KERNEL(copy_rows_kernel, cpu, copy_rows_cpu)

Shape concat_shape(const std::vector<Shape>& x, int axis) {
  Shape y = x.at(0);
  const int at = axis < 0 ? axis + y.rank() : axis;
  CONVSCOPE_CHECK(at >= 0 && at < y.rank(), "concat", "expected an axis of x ", y, ", got ", axis);
  for (std::size_t i = 1; i < x.size(); ++i) {
    Shape rest = x[i];
    const std::int64_t size = rest.rank() == y.rank() ? rest[at] : 0;
    if (rest.rank() == y.rank()) rest.set(at, y[at]);
    CONVSCOPE_CHECK(rest == y, "concat", "expected inputs that differ in axis ", at, " only, got ",
                    x[0], " and ", x[i]);
    y.set(at, y[at] + size);
  }
  return y;
}

Variable concat(const std::vector<Variable>& x, int axis) {
  return convscope::apply(std::make_unique<ConcatOperation>(axis), x);
}

}  // namespace convscope
