// SPDX-License-Identifier: Apache-2.0
// code_format.h: describes the integer codes of a quantised value in a graph. A CodeFormat has the
// range of the codes, and the value of the graph that holds the step size, which converts codes to
// real numbers. Rule, step size and rounding are the same as in the fake quantiser (lsq.h).
#pragma once

#include "framework/graph/simple_operation.h"
#include "quant/lsq.h"

namespace convscope {

struct CodeFormat {
  LsqParts lsq;
  ValueId step = kNoValue;  // a parameter of the graph: s, or log s

  DType dtype() const { return lsq.rule.grid.qn == 0 ? DType::u8 : DType::i8; }
  std::int32_t low() const { return -lsq.rule.grid.qn; }
  std::int32_t high() const { return lsq.rule.grid.qp; }
};

// Returns the rule and the bounds of a quantiser operation that inference may compute with codes,
// and null for all other operations.
CONVSCOPE_API const LsqParts* integer_parts(const Operation* op);

// Returns a copy on the host, for short computations in a prologue. The call waits for the device.
// Kernels on the device read the step sizes there instead.
Tensor on_host(const Tensor& tensor);  // itself on the CPU; may be undefined

// Emits a call that writes the step sizes s to a slot, and returns the slot: f64 [number of step
// sizes]. The step sizes have the same bounds as in the fake quantiser. Call this function in
// Emitter::prologue().
Slot emit_steps(Emitter& emitter, const CodeFormat& format);
std::vector<double> steps_of(const Tensor& step, const LsqParts& lsq);

}  // namespace convscope
