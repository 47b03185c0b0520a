// SPDX-License-Identifier: Apache-2.0
// weighted_sum.cpp: a weighted sum of losses. The forward pass also computes the gradient, so that
// only one tensor is kept for the backward pass.
#include "layers/losses/weighted_sum.h"

#include <algorithm>

#include "framework/number_text.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "layers/losses/scratch.h"

namespace convscope {

WeightedSum::WeightedSum(std::vector<Term> terms)
    : LossOperation("weighted_sum"), terms_(std::move(terms)) {}

std::string WeightedSum::text() const {
  std::string out;
  for (const Term& term : terms_) {
    out += cat(out.empty() ? "" : " + ", real_text(term.weight), " ", term.loss->text());
  }
  return out;
}

void WeightedSum::prepare(const Shape& rows, DType dtype, Device device) {
  for (const Term& term : terms_) term.loss->prepare(rows, dtype, device);
}

Shape WeightedSum::terms_shape(const Shape&) const { return {1}; }

Shape WeightedSum::scratch_shape(const Shape& x) const {
  std::int64_t most = 0;  // the losses are computed one after the other
  for (const Term& term : terms_) {
    const Shape own = term.loss->scratch_shape(x);
    most = std::max(most, LossScratch::holding({term.loss->terms_shape(x), own})[0]);
  }
  return LossScratch::holding({x, x, {1}, {most}});
}

void WeightedSum::run(const Forward& a) const {
  const auto binary = binary_kernel.get(a.device());
  const auto scale = scale_kernel.get(a.device());
  const auto sum = sum_kernel.get(a.device());
  LossScratch cut(a.scratch);
  const Tensor saved = cut.take(a.x.shape()), dx = cut.take(a.x.shape()), loss = cut.take({1});
  const Tensor rest = cut.rest();
  for (const Term& term : terms_) {
    const bool is_first = &term == &terms_.front();
    const Shape shape = term.loss->terms_shape(a.x.shape());
    LossScratch own(rest);
    const Tensor terms = own.take(shape);
    term.loss->run(Forward{.x = a.x,
                           .labels = a.labels,
                           .saved = saved,
                           .terms = terms,
                           .scratch = own.take(term.loss->scratch_shape(a.x.shape()))});
    const double factor = term.weight / static_cast<double>(shape.numel());
    sum(terms, (1u << shape.rank()) - 1, loss);
    scale(factor, loss, is_first ? a.terms : loss);
    if (!is_first) binary(BinaryOp::add, a.terms, loss, a.terms);
    term.loss->run(Backward{
        .saved = saved, .labels = a.labels, .factor = factor, .dx = is_first ? a.saved : dx});
    if (!is_first) binary(BinaryOp::add, a.saved, dx, a.saved);
  }
}

void WeightedSum::run(const Backward& a) const {
  scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
}

}  // namespace convscope
