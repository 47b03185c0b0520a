// SPDX-License-Identifier: Apache-2.0
// integer_constants.cpp: the operations of an integer graph whose results depend on parameters
// only.
#include "quant/integer/integer_constants.h"

#include <cmath>

#include "quant/integer/round_weights.h"

namespace convscope {
namespace {

// Returns a copy on the host, for short computations. The call waits for the device.
Tensor on_host(const Tensor& tensor) { return tensor.defined() ? tensor.to(Device{}) : tensor; }

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

TensorDesc StepSizesOp::bind(Graph& graph) {
  return {{graph.shape(inputs[0]).numel()}, DType::f64};
}

// On a GPU this bounds only a copy of the step sizes on the host. The kernels of the fake quantiser
// bound those on the GPU themselves.
void StepSizesOp::forward(Emitter& emitter) {
  emitter.call([parameter = emitter.value(inputs[0]), lsq = lsq_, to = emitter.value(output())] {
    const Tensor host = on_host(parameter);
    put_into_bounds(host, {.last = on_host(lsq.bounds.last), .first = on_host(lsq.bounds.first)},
                    lsq.rule.form);
    std::vector<double> steps;
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      const float given = host.data<float>()[i];
      steps.push_back(lsq.rule.form == StepForm::plain
                          ? given
                          : static_cast<float>(std::exp(static_cast<double>(given))));
    }
    to.copy_from(Tensor::from<double>(steps, to.shape()));
  });
}

TensorDesc ChannelScalesOp::bind(Graph&) {
  if (inputs.size() > 1 || norm_) more_outputs = {{{channels_}, DType::f64}};
  return {{channels_}, DType::f64};
}

void ChannelScalesOp::forward(Emitter& emitter) {
  emitter.call([norm = norm_, channels = channels_, steps = emitter.value(inputs[0]),
                bias = inputs.size() > 1 ? emitter.value(inputs[1]) : Tensor(),
                scales = emitter.value(output()),
                b = outputs.size() > 1 ? emitter.value(outputs[1]) : Tensor()] {
    const Tensor s = on_host(steps), given = on_host(bias);
    std::vector<double> scale(static_cast<std::size_t>(channels)), shift = scale;
    for (std::int64_t k = 0; k < channels; ++k) {
      const auto at = static_cast<std::size_t>(k);
      scale[at] = s.data<double>()[s.numel() > 1 ? k : 0];
      shift[at] = given.defined() ? static_cast<double>(given.data<float>()[k]) : 0;
    }
    if (norm) fold(*norm, scale, shift);
    scales.copy_from(Tensor::from<double>(scale, scales.shape()));
    if (b.defined()) b.copy_from(Tensor::from<double>(shift, b.shape()));
  });
}

TensorDesc WeightCodesOp::bind(Graph& graph) {
  return {.shape = graph.shape(inputs[0]),
          .dtype = DType::i8,
          .quantization = QuantParams{.scale = scales_, .low = -grid_.qn, .high = grid_.qp},
          .sparsity = blocks_ ? blocks_->format() : WeightFormat{}};
}

void WeightCodesOp::forward(Emitter& emitter) {
  const Tensor w = emitter.value(inputs[0]), steps = emitter.value(inputs[1]);
  const Tensor codes = emitter.value(output());
  if (!blocks_) {
    emitter.call([run = round_weights_kernel.get(emitter.device()), w, steps, grid = grid_, codes] {
      run(w, steps, grid, codes);
    });
    return;
  }
  emitter.call([run = round_blocks_kernel.get(emitter.device()), w, steps, grid = grid_,
                blocks = blocks_, codes] { run(w, steps, grid, blocks->view(nullptr), codes); });
}

}  // namespace convscope
