// SPDX-License-Identifier: Apache-2.0
// code_format.h: the codes of a value in a plan: which integers there are, and where the step lies
// that turns them into real numbers. The same rule, step and rounding as those of the fake
// quantiser (lsq.h).
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

// That of an operation of a plan which may be computed with codes; null: it is none.
CONVSCOPE_API const LsqParts* integer_parts(const PlanOp* op);

// On a device the prologue computes what is small on the host, from copies that it waits for; what
// steps read lies on the device.
Tensor on_host(const Tensor& tensor);  // itself on the CPU; may be undefined

// s as the fake quantiser takes it, as doubles [steps] that the prologue writes. To be called in
// PlanBuilder::prologue().
Slot emit_steps(PlanBuilder& builder, const CodeFormat& format);
std::vector<double> steps_of(const Tensor& step, const LsqParts& lsq);

}  // namespace convscope
