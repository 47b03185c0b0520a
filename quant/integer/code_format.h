// SPDX-License-Identifier: Apache-2.0
// code_format.h: the codes of a value in a graph: their integer range, and where the step is stored
// that converts them to real numbers. Rule, step and rounding are those of the fake quantiser
// (lsq.h).
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

// Returns a copy on the host, for small work of the prologue, which waits for it. Kernels read
// steps on the device.
Tensor on_host(const Tensor& tensor);  // itself on the CPU; may be undefined

// Emits s, bounded as in the fake quantiser, as doubles [steps] that the prologue writes. Call it
// in PlanBuilder::prologue().
Slot emit_steps(PlanBuilder& builder, const CodeFormat& format);
std::vector<double> steps_of(const Tensor& step, const LsqParts& lsq);

}  // namespace convscope
