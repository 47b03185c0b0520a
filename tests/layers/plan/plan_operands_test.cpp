// SPDX-License-Identifier: Apache-2.0
// plan_operands_test.cpp: tests that a compiled tf32 step on a GPU counts the cost of converting
// images to fp16 operands when it chooses layouts. The operations in these tests have known costs.
#include <gtest/gtest.h>

#include "layers/plan/layouts/layout_op.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

using enum ActivationLayout;

struct Costs {
  double nchw = 0, nhwc = 0;  // ms; below 0: not supported
};

class FakeOp : public Operation {
 public:
  explicit FakeOp(const Costs& costs) : Operation("fake"), costs_(costs) {}
  void forward(Emitter&) override {}
  void backward(Emitter&) override {}
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    const double ms = layout == nchw ? costs_.nchw : costs_.nhwc;
    if (ms < 0) return std::nullopt;
    Format out = only_nhwc_;
    out.ms = ms;
    return layout == nhwc ? out : Format{.ms = ms};
  }

 protected:
  Format only_nhwc_;  // what holds in NHWC besides the time

 private:
  Costs costs_;
};

// An operation that would read fp16 operands: its input image in the forward pass, and for dw the
// image and the gradient.
class Product final : public FakeOp {
 public:
  explicit Product(const Costs& costs) : FakeOp(costs) {
    only_nhwc_.has_own_kernels = true;
    only_nhwc_.reads_image_operands = only_nhwc_.reads_gradient_operands = true;
  }
};

class Norm final : public FakeOp {
 public:
  explicit Norm(const Costs& costs) : FakeOp(costs) { only_nhwc_.writes_operands = true; }
};

constexpr Costs kFree{}, kPlainAlone{.nchw = 0, .nhwc = -1};

// A graph of images of one shape.
struct Net {
  const Shape images{16, 32, 28, 28};
  Graph graph{images, PlanMode::training, {.type = DeviceType::cuda}};
  ValueId weight = graph.parameter(Variable(Tensor::zeros({1}), /*requires_grad=*/true));

  template <class Op>
  ValueId add(std::vector<ValueId> from, const Costs& costs) {
    from.push_back(weight);  // so that the result has a gradient
    const ValueId out = graph.add(std::make_unique<Op>(costs), std::move(from));
    graph.set_result(out);
    return out;
  }
  // Images with a gradient are copied in both directions.
  ValueId add_product(ValueId from, double gain) { return add<Product>({from}, {gain, 0}); }
  double copy_there() const { return conversion_ms(graph, Graph::input(), nhwc); }
  double copies_of_both() const { return 2 * copy_there(); }
  // Returns the gain in ms at which NHWC costs as much as NCHW: the layout conversions of the
  // image, of the result and of its gradient, plus `passes` passes that make fp16 operands.
  double between_copies(double passes) const {
    return copy_there() + copies_of_both() + passes * pass();
  }
  double pass() const { return operands_ms(graph, Graph::input()); }
  bool is_last(ValueId value) const { return graph.layout(value) == nhwc; }
  void choose_layouts() { run_pass("layouts", graph); }
};

// After a layout conversion, no operation writes the fp16 operands of an image or of a gradient, so
// separate passes make them.
TEST(PlanOperands, BehindACopyTakeAPassEach) {
  for (const double passes : {1.5, 2.5}) {
    Net net;
    const ValueId y = net.add_product(Graph::input(), net.between_copies(passes));
    net.add<Norm>({y}, kPlainAlone);
    net.choose_layouts();
    EXPECT_EQ(net.is_last(y), passes > 2) << passes;
  }
}

TEST(PlanOperands, OfAGradientAreWrittenByTheNormBehind) {
  for (const double passes : {0.5, 1.5}) {
    Net net;
    const ValueId y = net.add_product(Graph::input(), net.between_copies(passes));
    const ValueId z = net.add<Norm>({y}, kFree);
    net.choose_layouts();
    EXPECT_EQ(net.is_last(y), passes > 1) << passes;
    EXPECT_EQ(net.is_last(z), passes > 1) << passes;
  }
}

// The preceding batch norm has the same layout as the product, so the batch norm itself writes the
// product's fp16 operand.
TEST(PlanOperands, OfAnImageAreWrittenByTheNormInFront) {
  for (const double passes : {0.5, 1.5}) {
    Net net;
    const ValueId x = net.add<Norm>({Graph::input()}, kFree);
    const ValueId y = net.add_product(x, net.between_copies(passes));
    net.add<FakeOp>({y}, kPlainAlone);  // writes no operands of the gradient
    net.choose_layouts();
    EXPECT_EQ(net.is_last(y), passes > 1) << passes;
    EXPECT_EQ(net.is_last(x), passes > 1) << passes;
  }
}

// A norm that stays NCHW writes no operands.
TEST(PlanOperands, OfAnImageBehindANormInAnotherLayoutTakeAPass) {
  for (const double passes : {1.5, 2.5}) {
    Net net;
    const ValueId x = net.add<Norm>({Graph::input()}, kPlainAlone);
    const double gain = 2 * net.copies_of_both() + passes * net.pass();
    const ValueId y = net.add_product(x, gain);
    net.choose_layouts();
    EXPECT_EQ(net.is_last(y), passes > 2) << passes;
  }
}

TEST(PlanOperands, OfTwoReadersAreMadeOnce) {
  for (const double passes : {1.25, 1.75}) {  // for each: half a pass for x, one for dy
    Net net;
    const ValueId a = net.add_product(Graph::input(), net.between_copies(passes));
    const ValueId b = net.add_product(Graph::input(), net.between_copies(passes));
    net.add<FakeOp>({a, b}, kPlainAlone);
    net.choose_layouts();
    EXPECT_EQ(net.is_last(a), passes > 1.5) << passes;
    EXPECT_EQ(net.is_last(b), passes > 1.5) << passes;
  }
}

TEST(PlanOperands, CostWhatTwoCallsAndTenBytesOfEachNumberTake) {
  const Net net;
  // Nine channels are stored as 16.
  const Graph nine({16, 9, 28, 28}, PlanMode::training, {.type = DeviceType::cuda});
  const Graph sixteen({16, 16, 28, 28}, PlanMode::training, {.type = DeviceType::cuda});
  EXPECT_EQ(operands_ms(nine, Graph::input()), operands_ms(sixteen, Graph::input()));
  EXPECT_GT(net.pass(), operands_ms(sixteen, Graph::input()));
  EXPECT_GE(net.pass(), 4e-3);
}

}  // namespace
}  // namespace convscope
