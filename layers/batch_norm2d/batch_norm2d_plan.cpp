// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_plan.cpp: batch norm in a compiled step.
#include <cmath>

#include "framework/ops/accumulate.h"
#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"
#include "framework/tensor_kernels.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"
#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/add_op.h"
#include "layers/plan/batch_norm_op.h"

namespace convscope {
std::string BatchNormOp::text() const {
  return cat("batch_norm2d", residual_ ? " + residual" : "", relu_ ? fused_relu_text(most_) : "");
}

bool BatchNormOp::absorb(const Graph& graph, PlanOp& next) {
  if (relu_) return false;
  if (const auto most = fused_relu_bound(graph, next)) {
    most_ = *most;
    return relu_ = true;
  }
  const bool adds = dynamic_cast<AddOp*>(&next) != nullptr && next.inputs[0] != next.inputs[1];
  if (residual_ || !adds || graph.shape(next.output) != graph.shape(output)) return false;
  return residual_ = true;
}

// Computes factors in eval mode, when no preceding convolution has absorbed the batch norm.
void BatchNormOp::emit_running_factors(Emitter& builder, const Tensor& factor,
                                       const Tensor& shift) {
  builder.call([parts = parts_, mean = builder.use(mean_),
                inverse = builder.use(inverse_deviation_), factor, shift] {
    convert_kernel.get(mean.device())(parts.mean, mean);
    batch_norm_inverse_deviation(parts.variance, parts.eps, inverse);
    batch_norm_factors(parts.weight.value(), parts.bias.value(), inverse, factor, shift);
  });
}

void BatchNormOp::forward(Emitter& builder) {
  const Shape& shape = builder.shape(output);
  const Shape channels{shape[1]};
  mean_ = builder.slot(channels, DType::f64);
  inverse_deviation_ = builder.slot(channels, DType::f64);
  if (builder.training() && builder.is_nhwc(output)) return train_nhwc(builder);
  if (builder.training()) {
    const Slot variance = builder.slot(channels, DType::f64);
    const BatchNormTrainArgs args{.x = builder.value(inputs[0]),
                                  .weight = parts_.weight.value(),
                                  .bias = parts_.bias.value(),
                                  .eps = parts_.eps,
                                  .residual = residual_ ? builder.value(inputs[1]) : Tensor(),
                                  .relu = relu_,
                                  .most = most_,
                                  .y = builder.value(output),
                                  .mean = builder.use(mean_),
                                  .variance = builder.use(variance),
                                  .inverse_deviation = builder.use(inverse_deviation_)};
    const auto count = static_cast<double>(shape[0] * shape[2] * shape[3]);
    builder.call([device = builder.device(), args, parts = parts_, momentum = momentum_, count] {
      batch_norm_train_kernel.get(device)(args);
      batch_norm_move_running(args.mean, args.variance, count, momentum, parts.mean,
                              parts.variance);
    });
    return;
  }
  const Slot factor = builder.slot(channels, DType::f64);
  const Slot shift = builder.slot(channels, DType::f64);
  builder.prologue([&] { emit_running_factors(builder, builder.use(factor), builder.use(shift)); });
  if (builder.is_nhwc(output)) {
    const BatchNormHalfApplyArgs args{.x = builder.value(inputs[0]),
                                      .mean = builder.use(mean_),
                                      .factor = builder.use(factor),
                                      .shift = builder.use(shift),
                                      .residual = residual_ ? builder.value(inputs[1]) : Tensor(),
                                      .relu = relu_,
                                      .most = most_,
                                      .y = builder.value(output)};
    return builder.call(
        [run = batch_norm_half_apply_kernel.get(builder.device()), args] { run(args); });
  }
  builder.call([x = builder.value(inputs[0]), y = builder.value(output), mean = builder.use(mean_),
                factor = builder.use(factor), shift = builder.use(shift),
                residual = residual_ ? builder.value(inputs[1]) : Tensor(), relu = relu_,
                most = most_, device = builder.device()] {
    batch_norm_apply_kernel.get(device)(x, mean, factor, shift, y);
    if (residual.defined()) accumulate_kernel.get(device)(y, residual);
    if (!relu) return;
    if (std::isinf(most)) return unary_kernel.get(device)(UnaryOp::relu, y, y);
    bounded_relu_kernel.get(device)(y, most, Tensor(), y);
  });
}

// For f32 images the consumers of y decide how y is written: as f32, as fp16 operands of products,
// or as both. The bound for the scale of the operands is the sum of the bounds of this layer and of
// the residual.
void BatchNormOp::train_nhwc(Emitter& builder) {
  factors_ = builder.slot({3, builder.graph().stored_shape(output)[4]}, DType::f32);
  const Graph::ReadAs read = builder.graph().read_as(output);
  const bool half = builder.in_half(output);
  Emitter::Operands beside;
  if (residual_ && !half) beside = builder.operands_of(inputs[1]);
  const bool has_bound = !half && (!residual_ || beside.block != kNoSlot);
  const bool as_operands = has_bound && read.operands;
  // With a residual, the activation does not follow from x, so the backward pass reads y.
  const bool as_numbers = !as_operands || read.numbers || (relu_ && residual_);
  const BatchNormHalfArgs args{
      .x = builder.value(inputs[0]),
      .weight = parts_.weight.value(),
      .bias = parts_.bias.value(),
      .eps = parts_.eps,
      .momentum = momentum_,
      .residual = residual_ ? builder.value(inputs[1]) : Tensor(),
      .relu = relu_,
      .most = most_,
      .y = as_numbers ? builder.value(output) : Tensor(),
      .mean = builder.use(mean_),
      .inverse_deviation = builder.use(inverse_deviation_),
      .factors = builder.use(factors_),
      .running_mean = parts_.mean,
      .running_variance = parts_.variance,
      .y_half = has_bound ? builder.operands_target(output, as_operands, true) : Tensor(),
      .bound_alone = !as_operands,
      .residual_half = has_bound && residual_ ? builder.operands(inputs[1]) : Tensor(),
      .residual_has_bound = beside.has_bound,
      .x_moments = builder.moments(inputs[0])};
  builder.call([run = batch_norm_half_kernel.get(builder.device()), args] { run(args); });
}

void BatchNormOp::backward_nhwc(Emitter& builder) {
  Emitter::Target beside, dw, db;
  if (residual_ && builder.wants_gradient(inputs[1])) beside = builder.gradient_target(inputs[1]);
  if (parts_.weight.requires_grad()) dw = builder.parameter_gradient(parts_.weight);
  if (parts_.bias.requires_grad()) db = builder.parameter_gradient(parts_.bias);
  const auto emit = [&](const Tensor& dx, const Tensor& dx_half) {
    const BatchNormHalfGradientArgs args{.dy = builder.gradient(output),
                                         .x = builder.value(inputs[0]),
                                         .weight = parts_.weight.value(),
                                         .relu = relu_,
                                         .most = most_,
                                         .y = relu_ && residual_ ? builder.value(output) : Tensor(),
                                         .mean = builder.use(mean_),
                                         .inverse_deviation = builder.use(inverse_deviation_),
                                         .factors = builder.use(factors_),
                                         .residual_gradient = beside.tensor,
                                         .residual_accumulate = beside.accumulate,
                                         .dx = dx,
                                         .dx_half = dx_half,
                                         .dw = dw.tensor,
                                         .db = db.tensor,
                                         .dw_accumulate = dw.accumulate,
                                         .db_accumulate = db.accumulate};
    builder.call(
        [run = batch_norm_half_gradient_kernel.get(builder.device()), args] { run(args); });
  };
  if (!builder.wants_gradient(inputs[0])) return emit({}, {});
  if (!builder.in_half(output) && builder.graph().gradient_is_read_as_operands(inputs[0])) {
    return emit({}, builder.gradient_operands_target(inputs[0]));
  }
  builder.assign_gradient(inputs[0], [&](const Tensor& dx) { emit(dx, {}); });
}

void BatchNormOp::backward(Emitter& builder) {
  if (builder.is_nhwc(output)) return backward_nhwc(builder);
  const Shape channels{builder.shape(output)[1]};
  const Slot sum_dy = builder.slot(channels, DType::f64);
  const Slot sum_dy_x = builder.slot(channels, DType::f64);
  Emitter::Target beside;
  if (residual_ && builder.wants_gradient(inputs[1])) beside = builder.gradient_target(inputs[1]);
  const auto emit = [&](const Tensor& dx) {
    const BatchNormTrainGradientArgs args{.dy = builder.gradient(output),
                                          .x = builder.value(inputs[0]),
                                          .weight = parts_.weight.value(),
                                          .y = relu_ ? builder.value(output) : Tensor(),
                                          .most = most_,
                                          .mean = builder.use(mean_),
                                          .inverse_deviation = builder.use(inverse_deviation_),
                                          .residual_gradient = beside.tensor,
                                          .residual_accumulate = beside.accumulate,
                                          .dx = dx,
                                          .sum_dy = builder.use(sum_dy),
                                          .sum_dy_x = builder.use(sum_dy_x)};
    builder.call(
        [run = batch_norm_train_gradient_kernel.get(builder.device()), args] { run(args); });
  };
  if (builder.wants_gradient(inputs[0])) {
    builder.assign_gradient(inputs[0], emit);
  } else {
    emit(Tensor());
  }
  if (parts_.weight.requires_grad()) {
    const Emitter::Target dw = builder.parameter_gradient(parts_.weight);
    builder.call([inverse = builder.use(inverse_deviation_), sx = builder.use(sum_dy_x), dw] {
      batch_norm_parameter_gradient(sx, inverse, dw.tensor, dw.accumulate);
    });
  }
  if (parts_.bias.requires_grad()) {
    const Emitter::Target db = builder.parameter_gradient(parts_.bias);
    builder.call([s = builder.use(sum_dy), db] {
      batch_norm_parameter_gradient(s, Tensor(), db.tensor, db.accumulate);
    });
  }
}

}  // namespace convscope
