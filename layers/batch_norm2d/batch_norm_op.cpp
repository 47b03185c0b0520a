// SPDX-License-Identifier: Apache-2.0
// batch_norm_op.cpp: batch norm as an operation.
#include "layers/batch_norm2d/batch_norm_op.h"

#include <algorithm>
#include <cmath>

#include "framework/ops/accumulate.h"
#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"
#include "framework/tensor_kernels.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/plan/forward_moments.h"
#include "layers/plan/fused_relu.h"
#include "layers/plan/half_operand_calls.h"

namespace convscope {

const BatchNormPasses batch_norm2d_passes{
    .name = "batch_norm2d",
    .rank = 4,
    .train = [](const BatchNormTrainArgs& a) { batch_norm_train_kernel.get(a.x.device())(a); },
    .train_gradient =
        [](const BatchNormTrainGradientArgs& a) {
          batch_norm_train_gradient_kernel.get(a.x.device())(a);
        },
    .apply = batch_norm_apply_kernel,
    .sums = batch_norm_sums_kernel,
    .gradient = batch_norm_gradient_kernel};

namespace {

// Returns the number of elements of a channel.
double count_of(const Shape& x) {
  return static_cast<double>(x.numel() / std::max<std::int64_t>(1, x[1]));
}

}  // namespace

std::string BatchNormOp::text() const {
  return cat(passes_.name, residual_ ? " + residual" : "", relu_ ? fused_relu_text(most_) : "");
}

// Returns why a training step refuses x, or "" if it accepts x.
std::string refusal_of_one_value(const Shape& x) {
  if (x[0] * x[2] * x[3] != 1) return "";
  return cat("expected more than one value for each channel while training because the ",
             "variance of one value is 0, got x ", x);
}

TensorDesc BatchNormOp::bind(Graph& graph) {
  const TensorDesc& x = graph.desc(inputs[0]);
  const bool rows = passes_.rank == 2;
  CONVSCOPE_CHECK(
      x.shape.rank() == passes_.rank && (x.dtype == DType::f32 || x.dtype == DType::f64),
      passes_.name, "expected ", rows ? "rows x [n,C]" : "x [N,C,H,W]", " of type f32 or f64, got ",
      x.str());
  const Shape channels{x.shape[1]};
  const auto fits = [&](const TensorDesc& parameter) {
    return parameter.shape == channels && parameter.dtype == x.dtype;
  };
  const TensorDesc &weight = graph.desc(inputs[1]), &bias = graph.desc(inputs[2]);
  CONVSCOPE_CHECK(fits(weight) && fits(bias), passes_.name, "expected weight and bias [",
                  x.shape[1], "] of the type of x because x is ", x.str(), ", got ", weight.str(),
                  " and ", bias.str());
  CONVSCOPE_CHECK(!trains_ || rows || refusal_of_one_value(x.shape).empty(), passes_.name,
                  refusal_of_one_value(x.shape));
  CONVSCOPE_CHECK(
      trains_ || (parts_.mean.shape() == channels && parts_.variance.shape() == channels),
      passes_.name, "expected mean and variance [", x.shape[1], "], got ", parts_.mean.str(),
      " and ", parts_.variance.str());
  const auto parameter = [&](ValueId value) {
    const Variable* const known = graph.parameter_of(value);
    return known == nullptr ? Variable() : *known;
  };
  parts_.weight = parameter(inputs[1]);
  parts_.bias = parameter(inputs[2]);
  return {x.shape, x.dtype};
}

std::optional<Format> BatchNormOp::format(const Graph&, ActivationLayout) const {
  return Format{.writes_operands = trains_};
}

bool BatchNormOp::absorb(const Graph& graph, const Operation& next) {
  if (relu_) return false;
  if (const auto most = fused_relu_bound(graph, next)) {
    most_ = *most;
    return relu_ = true;
  }
  if (residual_ || !adds_residual(graph, next)) return false;
  return residual_ = true;
}

void BatchNormOp::forward(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  const Shape& shape = graph.shape(output());
  const Shape channels{shape[1]};
  mean_ = emitter.slot(channels, DType::f64);
  inverse_deviation_ = emitter.slot(channels, DType::f64);
  if (!trains_) return eval(emitter);
  if (graph.layout(output()) == ActivationLayout::nhwc) return train_nhwc(emitter);
  const Slot variance = emitter.slot(channels, DType::f64);
  const BatchNormTrainArgs args{.x = emitter.value(inputs[0]),
                                .weight = emitter.value(inputs[1]),
                                .bias = emitter.value(inputs[2]),
                                .eps = parts_.eps,
                                .residual = residual_value(emitter),
                                .relu = relu_,
                                .most = most_,
                                .y = emitter.value(output()),
                                .mean = emitter.use(mean_),
                                .variance = emitter.use(variance),
                                .inverse_deviation = emitter.use(inverse_deviation_)};
  const double count = count_of(shape);
  emitter.call([train = passes_.train, args, parts = parts_, momentum = momentum_, count] {
    train(args);
    // A single row has no meaningful variance, so it does not change the running statistics.
    if (!parts.mean.defined() || count <= 1) return;
    batch_norm_move_running(args.mean, args.variance, count, momentum, parts.mean, parts.variance);
  });
  if (statistics_ != nullptr && emitter.is_eager()) {
    *statistics_ = {args.mean, args.variance, args.inverse_deviation};
  }
}

// The factors depend on parameters only, so a compiled step computes them once.
void BatchNormOp::eval(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  const Shape channels{graph.shape(output())[1]};
  const Slot factor = emitter.slot(channels, DType::f64);
  const Slot shift = emitter.slot(channels, DType::f64);
  emitter.prologue([&] {
    emitter.call([parts = parts_, weight = emitter.value(inputs[1]),
                  bias = emitter.value(inputs[2]), mean = emitter.use(mean_),
                  inverse = emitter.use(inverse_deviation_), factor = emitter.use(factor),
                  shift = emitter.use(shift)] {
      convert_kernel.get(mean.device())(parts.mean, mean);
      batch_norm_inverse_deviation(parts.variance, parts.eps, inverse);
      batch_norm_factors(weight, bias, inverse, factor, shift);
    });
  });
  if (graph.layout(output()) == ActivationLayout::nhwc) {
    const BatchNormHalfApplyArgs args{.x = emitter.value(inputs[0]),
                                      .mean = emitter.use(mean_),
                                      .factor = emitter.use(factor),
                                      .shift = emitter.use(shift),
                                      .residual = residual_value(emitter),
                                      .relu = relu_,
                                      .most = most_,
                                      .y = emitter.value(output())};
    return emitter.call(
        [run = batch_norm_half_apply_kernel.get(emitter.device()), args] { run(args); });
  }
  emitter.call([x = emitter.value(inputs[0]), y = emitter.value(output()),
                mean = emitter.use(mean_), factor = emitter.use(factor), shift = emitter.use(shift),
                residual = residual_value(emitter), relu = relu_, most = most_,
                device = emitter.device(), &apply = passes_.apply] {
    apply.get(device)(x, mean, factor, shift, y);
    if (residual.defined()) accumulate_kernel.get(device)(y, residual);
    if (!relu) return;
    if (std::isinf(most)) return unary_kernel.get(device)(UnaryOp::relu, y, y);
    bounded_relu_kernel.get(device)(y, most, Tensor(), y);
  });
}

Emitter::Target BatchNormOp::target_if_wanted(Emitter& emitter, ValueId value) const {
  if (value == kNoValue || !emitter.graph().wants_gradient(value)) return {};
  return emitter.gradient_target(value);
}

// For f32 images the consumers of y decide how y is written: as f32, as fp16 operands of products,
// or as both. The bound for the scale of the operands is the sum of the bounds of this layer and of
// the residual.
void BatchNormOp::train_nhwc(Emitter& emitter) {
  factors_ = emitter.slot({3, emitter.graph().stored_shape(output())[4]}, DType::f32);
  const Graph::ReadAs read = emitter.graph().read_as(output());
  const bool half = is_half(emitter.graph().dtype(output()));
  CompanionSlot beside;
  if (residual_ && !half) beside = emitter.companion(residual(), Companion::operands);
  const bool has_bound = !half && (!residual_ || beside.slot != kNoSlot);
  const bool as_operands = has_bound && read.operands;
  // With a residual, the activation does not follow from x, so the backward pass reads y.
  const bool as_numbers = !as_operands || read.numbers || (relu_ && residual_);
  const BatchNormHalfArgs args{
      .x = emitter.value(inputs[0]),
      .weight = emitter.value(inputs[1]),
      .bias = emitter.value(inputs[2]),
      .eps = parts_.eps,
      .momentum = momentum_,
      .residual = residual_value(emitter),
      .relu = relu_,
      .most = most_,
      .y = as_numbers ? emitter.value(output()) : Tensor(),
      .mean = emitter.use(mean_),
      .inverse_deviation = emitter.use(inverse_deviation_),
      .factors = emitter.use(factors_),
      .running_mean = parts_.mean,
      .running_variance = parts_.variance,
      .y_half = has_bound ? operands_target(emitter, output(), Companion::operands, as_operands,
                                            /*bound=*/true)
                          : Tensor(),
      .bound_alone = !as_operands,
      .residual_half =
          has_bound && residual_ ? operands(emitter, residual(), Companion::operands) : Tensor(),
      .residual_has_bound = beside.has_bound,
      .x_moments = moments_of(emitter, inputs[0])};
  emitter.call([run = batch_norm_half_kernel.get(emitter.device()), args] { run(args); });
}

void BatchNormOp::backward_nhwc(Emitter& emitter) {
  const Emitter::Target beside = target_if_wanted(emitter, residual());
  const Emitter::Target dw = target_if_wanted(emitter, inputs[1]);
  const Emitter::Target db = target_if_wanted(emitter, inputs[2]);
  const auto emit = [&](const Tensor& dx, const Tensor& dx_half) {
    const BatchNormHalfGradientArgs args{
        .dy = emitter.gradient(output()),
        .x = emitter.value(inputs[0]),
        .weight = emitter.value(inputs[1]),
        .relu = relu_,
        .most = most_,
        .y = relu_ && residual_ ? emitter.value(output()) : Tensor(),
        .mean = emitter.use(mean_),
        .inverse_deviation = emitter.use(inverse_deviation_),
        .factors = emitter.use(factors_),
        .residual_gradient = beside.tensor,
        .residual_accumulate = beside.accumulate,
        .dx = dx,
        .dx_half = dx_half,
        .dw = dw.tensor,
        .db = db.tensor,
        .dw_accumulate = dw.accumulate,
        .db_accumulate = db.accumulate};
    emitter.call(
        [run = batch_norm_half_gradient_kernel.get(emitter.device()), args] { run(args); });
  };
  if (!emitter.graph().wants_gradient(inputs[0])) return emit({}, {});
  if (!is_half(emitter.graph().dtype(output())) &&
      emitter.graph().gradient_is_read_as_operands(inputs[0])) {
    return emit({}, operands_target(emitter, inputs[0], Companion::gradient_operands));
  }
  emitter.assign_gradient(inputs[0], [&](const Tensor& dx) { emit(dx, {}); });
}

void BatchNormOp::backward(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  if (graph.layout(output()) == ActivationLayout::nhwc) return backward_nhwc(emitter);
  const Shape channels{graph.shape(output())[1]};
  const Slot sum_dy = emitter.slot(channels, DType::f64);
  const Slot sum_dy_x = emitter.slot(channels, DType::f64);
  trains_ ? backward_train(emitter, sum_dy, sum_dy_x) : backward_eval(emitter, sum_dy, sum_dy_x);
  if (const Emitter::Target dw = target_if_wanted(emitter, inputs[1]); dw.tensor.defined()) {
    emitter.call([inverse = emitter.use(inverse_deviation_), sx = emitter.use(sum_dy_x), dw] {
      batch_norm_parameter_gradient(sx, inverse, dw.tensor, dw.accumulate);
    });
  }
  if (const Emitter::Target db = target_if_wanted(emitter, inputs[2]); db.tensor.defined()) {
    emitter.call([s = emitter.use(sum_dy), db] {
      batch_norm_parameter_gradient(s, Tensor(), db.tensor, db.accumulate);
    });
  }
}

void BatchNormOp::backward_train(Emitter& emitter, Slot sum_dy, Slot sum_dy_x) {
  const Emitter::Target beside = target_if_wanted(emitter, residual());
  const auto emit = [&](const Tensor& dx) {
    const BatchNormTrainGradientArgs args{.dy = emitter.gradient(output()),
                                          .x = emitter.value(inputs[0]),
                                          .weight = emitter.value(inputs[1]),
                                          .y = relu_ ? emitter.value(output()) : Tensor(),
                                          .most = most_,
                                          .mean = emitter.use(mean_),
                                          .inverse_deviation = emitter.use(inverse_deviation_),
                                          .residual_gradient = beside.tensor,
                                          .residual_accumulate = beside.accumulate,
                                          .dx = dx,
                                          .sum_dy = emitter.use(sum_dy),
                                          .sum_dy_x = emitter.use(sum_dy_x)};
    emitter.call([run = passes_.train_gradient, args] { run(args); });
  };
  if (!emitter.graph().wants_gradient(inputs[0])) return emit(Tensor());
  emitter.assign_gradient(inputs[0], emit);
}

void BatchNormOp::backward_eval(Emitter& emitter, Slot sum_dy, Slot sum_dy_x) {
  const Device device = emitter.device();
  emitter.call([run = passes_.sums.get(device), dy = emitter.gradient(output()),
                x = emitter.value(inputs[0]), mean = emitter.use(mean_), s = emitter.use(sum_dy),
                sx = emitter.use(sum_dy_x)] { run(dy, x, mean, s, sx); });
  if (!emitter.graph().wants_gradient(inputs[0])) return;
  const Shape& shape = emitter.graph().shape(output());
  const auto factor = [&] { return emitter.use(emitter.slot({shape[1]}, DType::f64)); };
  const double count = count_of(shape);
  emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
    emitter.call([run = passes_.gradient.get(device), weight = emitter.value(inputs[1]),
                  inverse = emitter.use(inverse_deviation_), s = emitter.use(sum_dy),
                  sx = emitter.use(sum_dy_x), count, a = factor(), b = factor(), d = factor(),
                  dy = emitter.gradient(output()), x = emitter.value(inputs[0]),
                  mean = emitter.use(mean_), dx] {
      batch_norm_gradient_factors(weight, inverse, s, sx, count, /*training=*/false, a, b, d);
      run(dy, x, mean, a, b, d, dx);
    });
  });
}

namespace {

bool absorb(const Graph& graph, Operation& first, Operation& next) {
  return static_cast<BatchNormOp&>(first).absorb(graph, next);
}

const bool registered = register_fusions("fuse", {{"batch_norm2d", "add", absorb},
                                                  {"batch_norm2d", "relu", absorb},
                                                  {"batch_norm2d", "relu6", absorb}});

}  // namespace

}  // namespace convscope
