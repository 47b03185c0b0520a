// SPDX-License-Identifier: Apache-2.0
// integer_op.cpp: a convolution or a linear layer on integers in a plan for inference.
//
// Formula    real[k] = s_x s_w[k] sum[k] + b[k]; with a batch norm, which is folded in double:
//            g = gamma / sqrt(variance + eps), s_w[k] g[k] and (b[k] - mean[k]) g[k] + beta[k].
//            The weights stay the codes that were trained.
#include "quant/integer/integer_op.h"

#include <cmath>
#include <cstring>

#include "layers/plan/activation_op.h"
#include "quant/integer_grid.h"

namespace convscope {
namespace {

// Codes of w [K, inner], one step for all rows or one for each.
void round_weights(const Tensor& w, const Tensor& step, const LsqParts& lsq, const Tensor& codes) {
  const std::vector<double> steps = steps_of(step, lsq);
  const std::int64_t rows = codes.shape()[0], inner = codes.numel() / rows;
  const auto low = static_cast<float>(-lsq.rule.grid.qn);
  const auto high = static_cast<float>(lsq.rule.grid.qp);
  for (std::int64_t k = 0; k < rows; ++k) {
    const auto s = static_cast<float>(steps[steps.size() > 1 ? static_cast<std::size_t>(k) : 0]);
    for (std::int64_t i = k * inner; i < (k + 1) * inner; ++i) {
      codes.data<std::int8_t>()[i] =
          static_cast<std::int8_t>(code_of(w.data<float>()[i], s, low, high));
    }
  }
}

const double* doubles(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<double>() : nullptr;
}

}  // namespace

std::vector<ValueId> IntegerOp::all_inputs() const {
  std::vector<ValueId> out{it_.x, it_.w, it_.x_format.step, it_.w_format.step};
  for (const ValueId value : {it_.b, it_.residual}) {
    if (value != kNoValue) out.push_back(value);
  }
  if (it_.y_format) out.push_back(it_.y_format->step);
  if (it_.residual_format) out.push_back(it_.residual_format->step);
  return out;
}

std::string IntegerOp::text() const {
  const OperandTypes& types = *it_.problem.types;
  return cat(it_.kind, " ", it_.algorithm->name, " ", types.text(),
             it_.norm ? " + batch_norm2d" : "", it_.residual != kNoValue ? " + residual" : "",
             it_.relu ? fused_relu_text(it_.most) : "");
}

std::vector<RanKernel> IntegerOp::kernels(const PlanGraph&) const {
  return {{.layer = layer,
           .direction = Direction::forward,
           .kernel = it_.algorithm->name,
           .layout = it_.problem.layout}};
}

// s_w with the batch norm's factor, in `scales`; returns b with its shift.
Slot IntegerOp::emit_bias_and_scales(PlanBuilder& builder, Slot w_steps, Slot scales) const {
  const std::int64_t channels = it_.problem.k;
  const bool has_b = it_.b != kNoValue || it_.norm.has_value();
  const Slot slot = has_b ? builder.slot({channels}, DType::f64) : kNoSlot;
  builder.call([norm = it_.norm, channels, steps = builder.use(w_steps), to = builder.use(scales),
                bias = it_.b == kNoValue ? Tensor() : builder.value(it_.b),
                b = has_b ? builder.use(slot) : Tensor()] {
    for (std::int64_t k = 0; k < channels; ++k) {
      double scale = steps.data<double>()[steps.numel() > 1 ? k : 0];
      double shift = bias.defined() ? static_cast<double>(bias.data<float>()[k]) : 0;
      if (norm) {
        const double factor =
            norm->weight.value().at(k) / std::sqrt(norm->variance.at(k) + norm->eps);
        scale *= factor;
        shift = (shift - norm->mean.at(k)) * factor + norm->bias.value().at(k);
      }
      to.data<double>()[k] = scale;
      if (b.defined()) b.data<double>()[k] = shift;
    }
  });
  return slot;
}

// The packed codes.
Slot IntegerOp::emit_weights(PlanBuilder& builder, const OperandViews& views) const {
  const Slot codes = builder.temporary(builder.shape(it_.w), DType::i8);
  builder.call([w = builder.value(it_.w), step = builder.value(it_.w_format.step),
                lsq = it_.w_format.lsq,
                codes = builder.use(codes)] { round_weights(w, step, lsq, codes); });
  const auto bytes = it_.algorithm->prepared_size(it_.problem, Direction::forward);
  const Slot prepared = builder.slot({static_cast<std::int64_t>(bytes)}, DType::u8);
  builder.call([run = it_.algorithm->prepare_weights, problem = it_.problem,
                codes = builder.use(codes), to = builder.use(prepared), views] {
    run({problem, Direction::forward, codes.raw_data(), to.raw_data(), nullptr, views});
  });
  return prepared;
}

IntegerOp::Constants IntegerOp::emit_constants(PlanBuilder& builder) const {
  Constants out{};
  builder.prologue([&] {
    out.x_step = emit_steps(builder, it_.x_format);
    const Slot steps = emit_steps(builder, it_.w_format);
    out.w_steps = builder.slot({it_.problem.k}, DType::f64);
    out.b = emit_bias_and_scales(builder, steps, out.w_steps);
    out.y_step = it_.y_format ? emit_steps(builder, *it_.y_format) : kNoSlot;
    out.residual_step = it_.residual_format ? emit_steps(builder, *it_.residual_format) : kNoSlot;
    out.prepared = emit_weights(builder, {});
  });
  return out;
}

void IntegerOp::forward(PlanBuilder& builder) {
  const Constants constants = emit_constants(builder);
  const PlanGraph& graph = builder.graph();
  const bool from_images = it_.x == PlanGraph::input();
  const Tensor x = from_images ? Tensor() : builder.value(it_.x);
  Tensor residual = it_.residual == kNoValue ? Tensor() : builder.value(it_.residual);
  if (residual.defined() && residual.dtype() == DType::f32 &&
      graph.layout(it_.residual) == ActivationLayout::nchw) {
    const Shape& images = graph.shape(it_.residual);
    const Slot blocked = builder.slot(stored_shape(images, ActivationLayout::blocked), DType::f32);
    builder.call(
        [from = residual, to = builder.use(blocked), images] { convert_layout(from, images, to); });
    residual = builder.use(blocked);
  }
  const Tensor y = builder.value(output);
  // A linear layer's logits lie side by side, without lanes behind the last one.
  const std::int64_t padded = round_up(it_.problem.k, kChannelBlock);
  const bool packs = !it_.y_format && y.rank() == 2 && padded != it_.problem.k;
  const Tensor wide =
      packs ? builder.use(builder.slot({it_.problem.n, padded}, DType::f32)) : Tensor();
  void* const workspace =
      builder.workspace(it_.algorithm->workspace_bytes(it_.problem, Direction::forward));
  const auto tensor = [&](Slot slot) { return slot == kNoSlot ? Tensor() : builder.use(slot); };
  const Tensor b = tensor(constants.b), w_steps = tensor(constants.w_steps);
  const Tensor x_step = tensor(constants.x_step), y_step = tensor(constants.y_step);
  const Tensor residual_step = tensor(constants.residual_step);
  OperandViews views;
  views.x = {.scales = doubles(x_step), .low = it_.x_format.low(), .high = it_.x_format.high()};
  views.w = {.scales = doubles(w_steps), .per_channel = true};
  if (it_.y_format) {
    views.y = {.scales = doubles(y_step), .low = it_.y_format->low(), .high = it_.y_format->high()};
  }
  views.residual = {.scales = doubles(residual_step)};
  const Conv2dEpilogue epilogue{
      .residual = residual.defined() ? residual.raw_data() : nullptr,
      .relu = it_.relu,
      .most = it_.most,
      .residual_type = residual.defined() ? residual.dtype() : DType::f32};
  builder.call([problem = it_.problem, run = it_.algorithm->forward, images = builder.images(), x,
                from_images, y, wide, b, epilogue, views, workspace, residual,
                prepared = builder.use(constants.prepared),
                steps = std::array{x_step, w_steps, y_step, residual_step}] {
    const Tensor& to = wide.defined() ? wide : y;
    run({problem, from_images ? *images : x.raw_data(), nullptr, doubles(b), to.raw_data(),
         workspace, epilogue, prepared.raw_data(), views});
    if (!wide.defined()) return;
    for (std::int64_t n = 0; n < problem.n; ++n) {
      std::memcpy(y.data<float>() + n * problem.k, wide.data<float>() + n * wide.shape()[1],
                  static_cast<std::size_t>(problem.k) * sizeof(float));
    }
  });
}

}  // namespace convscope
