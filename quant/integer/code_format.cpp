// SPDX-License-Identifier: Apache-2.0
// code_format.cpp: describes the integer codes of a quantised value in a graph, and the step size
// that converts them to real numbers.
#include "quant/integer/code_format.h"

#include <cmath>

namespace convscope {

const LsqParts* integer_parts(const Operation* op) {
  const LsqParts* const parts = lsq_parts(op);
  return parts != nullptr && parts->rule.integers != IntegerUse::never ? parts : nullptr;
}

Tensor on_host(const Tensor& tensor) { return tensor.defined() ? tensor.to(Device{}) : tensor; }

std::vector<double> steps_of(const Tensor& step, const LsqParts& lsq) {
  // On a GPU this function bounds only a copy of the step size on the host. The kernels that read
  // the step size on the GPU bound it themselves.
  const Tensor host = on_host(step);
  put_into_bounds(host, {.last = on_host(lsq.bounds.last), .first = on_host(lsq.bounds.first)},
                  lsq.rule.form);
  std::vector<double> out;
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    const float given = host.data<float>()[i];
    const float s = lsq.rule.form == StepForm::plain
                        ? given
                        : static_cast<float>(std::exp(static_cast<double>(given)));
    out.push_back(static_cast<double>(s));
  }
  return out;
}

Slot emit_steps(Emitter& emitter, const CodeFormat& format) {
  const Tensor step = emitter.value(format.step);
  const Slot slot = emitter.slot({step.numel()}, DType::f64);
  emitter.call([step, lsq = format.lsq, to = emitter.use(slot)] {
    to.copy_from(Tensor::from<double>(steps_of(step, lsq), to.shape()));
  });
  return slot;
}

}  // namespace convscope
