// SPDX-License-Identifier: Apache-2.0
// integer_op.cpp: an integer convolution or linear layer in an inference graph.
//
// Formula    real[k] = s_x s_w[k] sum[k] + b[k]; A batch norm is folded in double: with g = gamma /
//            sqrt(variance + eps), s_w[k] becomes s_w[k] g[k], and b[k] becomes (b[k] - mean[k])
//            g[k] + beta[k]. The weights keep their trained codes.
#include "quant/integer/integer_op.h"

#include <algorithm>
#include <cmath>

#include "layers/plan/fused_relu.h"
#include "quant/integer/round_weights.h"

namespace convscope {
namespace {

const double* doubles(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<double>() : nullptr;
}

void fold(const BatchNormFold& norm, std::vector<double>& scale, std::vector<double>& shift) {
  const Tensor gamma = on_host(norm.weight.value()), beta = on_host(norm.bias.value());
  const Tensor mean = on_host(norm.mean), variance = on_host(norm.variance);
  for (std::size_t k = 0; k < scale.size(); ++k) {
    const auto at = static_cast<std::int64_t>(k);
    const double factor = gamma.at(at) / std::sqrt(variance.at(at) + norm.eps);
    scale[k] *= factor;
    shift[k] = (shift[k] - mean.at(at)) * factor + beta.at(at);
  }
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
             it_.relu ? fused_relu_text(it_.most) : "",
             it_.why_dense.empty() ? "" : cat(" (dense, because ", it_.why_dense, ")"));
}

std::vector<RanKernel> IntegerOp::kernels(const Graph&) const {
  return {{.layer = layer,
           .direction = Direction::forward,
           .kernel = it_.algorithm->name,
           .layout = it_.problem.layout}};
}

// Writes the scale of each channel to `scales`: the step size of the weight times the factor of the
// batch norm. Returns the slot of the bias b, which includes the shift of the batch norm.
Slot IntegerOp::emit_bias_and_scales(Emitter& emitter, Slot w_steps, Slot scales) const {
  const std::int64_t channels = it_.problem.k;
  const bool has_b = it_.b != kNoValue || it_.norm.has_value();
  const Slot slot = has_b ? emitter.slot({channels}, DType::f64) : kNoSlot;
  emitter.call([norm = it_.norm, channels, steps = emitter.use(w_steps), to = emitter.use(scales),
                bias = it_.b == kNoValue ? Tensor() : emitter.value(it_.b),
                b = has_b ? emitter.use(slot) : Tensor()] {
    const Tensor s = on_host(steps), given = on_host(bias);
    std::vector<double> scale(static_cast<std::size_t>(channels)), shift = scale;
    for (std::int64_t k = 0; k < channels; ++k) {
      const auto at = static_cast<std::size_t>(k);
      scale[at] = s.data<double>()[s.numel() > 1 ? k : 0];
      shift[at] = given.defined() ? static_cast<double>(given.data<float>()[k]) : 0;
    }
    if (norm) fold(*norm, scale, shift);
    to.copy_from(Tensor::from<double>(scale, to.shape()));
    if (b.defined()) b.copy_from(Tensor::from<double>(shift, b.shape()));
  });
  return slot;
}

void IntegerOp::emit_codes(Emitter& emitter, const Scales& scales, Slot codes) const {
  emitter.call([run = round_weights_kernel.get(emitter.device()), w = emitter.value(it_.w),
                steps = emitter.use(scales.w_grid_steps), grid = it_.w_format.lsq.rule.grid,
                codes = emitter.use(codes)] { run(w, steps, grid, codes); });
}

void IntegerOp::emit_block_codes(Emitter& emitter, const Scales& scales, Slot codes) const {
  emitter.call([run = round_blocks_kernel.get(emitter.device()), w = emitter.value(it_.w),
                steps = emitter.use(scales.w_grid_steps), grid = it_.w_format.lsq.rule.grid,
                sparse = it_.sparse,
                codes = emitter.use(codes)] { run(w, steps, grid, sparse->view(nullptr), codes); });
}

// Emits calls that round the weights to codes, in the memory order that the algorithm reads:
// prepared, or the order of w.
void IntegerOp::emit_weights(Emitter& emitter, Constants& out) const {
  const auto bytes = it_.algorithm->prepared_size(it_.problem, Direction::forward);
  if (bytes == 0) {
    out.codes = emitter.slot(emitter.graph().shape(it_.w), DType::i8);
    emit_codes(emitter, out.scales, out.codes);
    return;
  }
  const bool in_blocks = !it_.problem.weight_format.is_dense();
  const std::int64_t stored = it_.problem.weight_format.stored_elements();
  const Slot codes = emitter.temporary(
      in_blocks ? Shape{std::max<std::int64_t>(1, stored)} : emitter.graph().shape(it_.w),
      DType::i8);
  if (in_blocks) {
    emit_block_codes(emitter, out.scales, codes);
  } else {
    emit_codes(emitter, out.scales, codes);
  }
  out.prepared = emitter.slot({static_cast<std::int64_t>(bytes)}, DType::u8);
  void* const workspace =
      emitter.workspace(it_.algorithm->workspace_bytes(it_.problem, Direction::forward));
  emitter.call([run = it_.algorithm->prepare_weights, problem = it_.problem,
                sparse = in_blocks ? it_.sparse : Ref<SparseWeights>(), codes = emitter.use(codes),
                to = emitter.use(out.prepared), workspace] {
    OperandViews views;
    if (sparse) views.w_blocks = sparse->view(codes.raw_data());
    run({problem, Direction::forward, codes.raw_data(), to.raw_data(), workspace, views});
  });
}

IntegerOp::Scales IntegerOp::emit_scales(Emitter& emitter) const {
  Scales out{};
  out.x_step = emit_steps(emitter, it_.x_format);
  out.w_grid_steps = emit_steps(emitter, it_.w_format);
  out.w_steps = emitter.slot({it_.problem.k}, DType::f64);
  out.b = emit_bias_and_scales(emitter, out.w_grid_steps, out.w_steps);
  out.y_step = it_.y_format ? emit_steps(emitter, *it_.y_format) : kNoSlot;
  out.residual_step = it_.residual_format ? emit_steps(emitter, *it_.residual_format) : kNoSlot;
  return out;
}

IntegerOp::Constants IntegerOp::emit_constants(Emitter& emitter) const {
  Constants out{};
  emitter.prologue([&] {
    out.scales = emit_scales(emitter);
    emit_weights(emitter, out);
  });
  return out;
}

// Returns the residual as codes or as f32, in NCHW16c if the algorithm needs that layout. Returns
// an undefined tensor if there is no residual.
Tensor IntegerOp::nchw16c_residual(Emitter& emitter) const {
  if (it_.residual == kNoValue) return {};
  const Graph& graph = emitter.graph();
  const Tensor given = emitter.value(it_.residual);
  if (given.dtype() != DType::f32 || graph.layout(it_.residual) != ActivationLayout::nchw) {
    return given;
  }
  const Shape& images = graph.shape(it_.residual);
  const Slot nchw16c = emitter.slot(stored_shape(images, ActivationLayout::nchw16c), DType::f32);
  emitter.call([given, to = emitter.use(nchw16c), images] { convert_layout(given, images, to); });
  return emitter.use(nchw16c);
}

void IntegerOp::forward(Emitter& emitter) {
  const Constants constants = emit_constants(emitter);
  const Tensor residual = nchw16c_residual(emitter);  // may emit a separate call
  const bool from_images = it_.x == Graph::input();
  const Tensor x = from_images ? Tensor() : emitter.value(it_.x);
  const Tensor y = emitter.value(output());
  // The logits of a linear layer are contiguous: no unused lanes follow the last one.
  const std::int64_t padded = round_up(it_.problem.k, kChannelBlock);
  const bool packs = !it_.y_format && y.rank() == 2 && padded != it_.problem.k;
  const Shape logits{it_.problem.n, it_.problem.k, 1, 1};
  const Slot in_blocks =
      packs ? emitter.slot(stored_shape(logits, ActivationLayout::nchw16c), DType::f32) : kNoSlot;
  void* const workspace =
      emitter.workspace(it_.algorithm->workspace_bytes(it_.problem, Direction::forward));
  const auto tensor = [&](Slot slot) { return slot == kNoSlot ? Tensor() : emitter.use(slot); };
  const Tensor prepared = tensor(constants.prepared), codes = tensor(constants.codes);
  const Tensor to = packs ? emitter.use(in_blocks) : y;
  const Scales& scales = constants.scales;
  const Tensor b = tensor(scales.b), w_steps = tensor(scales.w_steps);
  const Tensor x_step = tensor(scales.x_step), y_step = tensor(scales.y_step);
  const Tensor residual_step = tensor(scales.residual_step);
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
  emitter.call([problem = it_.problem, run = it_.algorithm->forward, state = emitter.state(), x,
                from_images, to, b, epilogue, views, workspace, residual, prepared, codes,
                steps = std::array{x_step, w_steps, y_step, residual_step}] {
    run({problem, from_images ? state->images : x.raw_data(),
         codes.defined() ? codes.raw_data() : nullptr, doubles(b), to.raw_data(), workspace,
         epilogue, prepared.defined() ? prepared.raw_data() : nullptr, views});
  });
  if (!packs) return;
  emitter.call([from = emitter.use(in_blocks), logits, to = emitter.value(output())] {
    convert_layout(from, logits, to.reshape(logits));
  });
}

}  // namespace convscope
