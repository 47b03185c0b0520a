// SPDX-License-Identifier: Apache-2.0
// pool2d_plan.cpp: the pooling layers in a planned step.
#include "layers/plan/max_pool_op.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {
namespace {

class AvgPoolOp final : public PlanOp {
 public:
  explicit AvgPoolOp(const Pool2dWindow& window) : window_(window) {}
  std::string text() const override { return "avg_pool2d"; }

  void forward(PlanBuilder& builder) override {
    builder.call([device = builder.device(), window = window_, x = builder.value(inputs[0]),
                  y = builder.value(output)] { avg_pool_kernel.get(device)(x, window, y); });
  }
  void backward(PlanBuilder& builder) override {
    builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
      builder.call([device = builder.device(), window = window_, dy = builder.gradient(output),
                    dx] { avg_pool_gradient_kernel.get(device)(dy, window, dx); });
    });
  }

 private:
  Pool2dWindow window_;
};

class AdaptiveAvgPoolOp final : public PlanOp {
 public:
  std::string text() const override { return "adaptive_avg_pool2d"; }

  void forward(PlanBuilder& builder) override {
    builder.call([device = builder.device(), x = builder.value(inputs[0]),
                  y = builder.value(output)] { adaptive_pool_kernel.get(device)(x, y); });
  }
  void backward(PlanBuilder& builder) override {
    builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
      builder.call([device = builder.device(), dy = builder.gradient(output), dx] {
        adaptive_pool_gradient_kernel.get(device)(dy, dx);
      });
    });
  }
};

}  // namespace

void MaxPoolOp::forward(PlanBuilder& builder) {
  const Tensor x = builder.value(inputs[0]);
  const Tensor y = builder.value(output);
  Tensor taps;
  if (builder.wants_gradient(inputs[0])) {
    const bool small = window_.kernel_h * window_.kernel_w <= 256;
    taps_ = builder.slot(builder.shape(output), small ? DType::u8 : DType::i32);
    taps = builder.use(taps_);
  }
  builder.call([device = builder.device(), window = window_, x, y, taps] {
    max_pool_kernel.get(device)(x, window, y, taps);
  });
}

void MaxPoolOp::backward(PlanBuilder& builder) {
  builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
    builder.call([device = builder.device(), window = window_, dy = builder.gradient(output),
                  taps = builder.use(taps_),
                  dx] { max_pool_gradient_kernel.get(device)(dy, taps, window, dx); });
  });
}

int Pool2d::describe(PlanGraph& graph, int x) {
  std::unique_ptr<PlanOp> op;
  if (pool_ == PoolKind::max) {
    op = std::make_unique<MaxPoolOp>(window_);
  } else {
    op = std::make_unique<AvgPoolOp>(window_);
  }
  return graph.add(std::move(op), {x}, output_shape(graph.shape(x)));
}

int AdaptiveAvgPool2d::describe(PlanGraph& graph, int x) {
  return graph.add(std::make_unique<AdaptiveAvgPoolOp>(), {x}, output_shape(graph.shape(x)));
}

}  // namespace convscope
