// SPDX-License-Identifier: Apache-2.0
// code_format.h: describes the codes (integers) of a quantised value in a graph: their range, and
// the value of the graph that holds the step, which converts codes to real numbers. Rule, step and
// rounding are the same as in the fake quantiser (lsq.h).
#pragma once

#include "layers/plan/operation_op.h"
#include "quant/lsq.h"

namespace convscope {

struct CodeFormat {
  LsqParts lsq;
  ValueId step = kNoValue;  // a parameter of the graph: s, or log s

  DType dtype() const { return lsq.rule.grid.qn == 0 ? DType::u8 : DType::i8; }
  std::int32_t low() const { return -lsq.rule.grid.qn; }
  std::int32_t high() const { return lsq.rule.grid.qp; }
};

// Returns the parts of an operation that may be computed with codes; null for other operations.
CONVSCOPE_API const LsqParts* integer_parts(const PlanOp* op);

// Returns a copy on the host, for short computations in a prologue; waits for the device. Kernels
// read steps on the device.
Tensor on_host(const Tensor& tensor);  // itself on the CPU; may be undefined

// Emits calls that write s, bounded as in the fake quantiser, to the returned slot, f64 [steps].
// Call it in PlanBuilder::prologue().
Slot emit_steps(PlanBuilder& builder, const CodeFormat& format);
std::vector<double> steps_of(const Tensor& step, const LsqParts& lsq);

}  // namespace convscope
