// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d/execute.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/conv2d/epilogue.h"

namespace convscope {

Conv2dScratch::Conv2dScratch(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                             Direction direction, Device device)
    : algorithm_(algorithm),
      problem_(problem),
      direction_(direction),
      workspace_bytes_(ScratchArena::round_up(algorithm.workspace_bytes(problem, direction))),
      prepared_bytes_(algorithm.prepared_size(problem, direction)),
      memory_(device, workspace_bytes_ + prepared_bytes_) {}

const void* Conv2dScratch::prepare(const void* w) const {
  if (prepared_bytes_ == 0) return nullptr;
  void* const prepared = static_cast<std::byte*>(memory_.data()) + workspace_bytes_;
  algorithm_.prepare_weights({problem_, direction_, w, prepared, memory_.data()});
  return prepared;
}

namespace {

void run_forward(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, const Tensor& x,
                 const Tensor& w, const Tensor& b, const Tensor& y,
                 const Conv2dEpilogue& epilogue) {
  const Conv2dScratch scratch(algorithm, problem, Direction::forward, x.device());
  algorithm.forward({problem, x.raw_data(), w.raw_data(), b.defined() ? b.raw_data() : nullptr,
                     y.raw_data(), scratch.workspace(),
                     algorithm.fuses_epilogue ? epilogue : Conv2dEpilogue{},
                     scratch.prepare(w.raw_data())});
  if (!algorithm.fuses_epilogue && !epilogue.empty()) {
    conv2d_epilogue_kernel.get(y.device())(epilogue, y);
  }
}

void run_backward_data(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                       const Tensor& dy, const Tensor& w, const Tensor& dx) {
  const Conv2dScratch scratch(algorithm, problem, Direction::backward_data, dy.device());
  algorithm.backward_data({problem, dy.raw_data(), w.raw_data(), dx.raw_data(), scratch.workspace(),
                           scratch.prepare(w.raw_data())});
}

void run_backward_weight(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                         const Tensor& x, const Tensor& dy, const Tensor& dw, bool accumulate) {
  const Conv2dScratch scratch(algorithm, problem, Direction::backward_weight, x.device());
  algorithm.backward_weight(
      {problem, x.raw_data(), dy.raw_data(), dw.raw_data(), accumulate, scratch.workspace()});
}

// Between 1 and the next number of what the factors are rounded to.
double eps_of(const Conv2dProblem& problem) {
  if (problem.dtype == DType::f64) return std::numeric_limits<double>::epsilon();
  if (problem.dtype == DType::bf16) return 0x1p-7;
  if (problem.dtype == DType::f16 || problem.precision == Precision::tf32) return 0x1p-10;
  return static_cast<double>(std::numeric_limits<float>::epsilon());
}

Tensor magnitudes(const Tensor& of) {
  const Tensor host = of.to(Device{}).to(DType::f64).clone();
  double* values = host.data<double>();
  for (std::int64_t i = 0; i < host.numel(); ++i) values[i] = std::abs(values[i]);
  return host.to(of.dtype()).to(of.device());
}

Tensor residual_tensor(const Conv2dEpilogue& epilogue, const Tensor& y) {
  const Tensor zeros = Tensor::zeros(y.shape(), y.dtype(), y.device());
  conv2d_epilogue_kernel.get(y.device())({.residual = epilogue.residual}, zeros);
  return zeros;
}

// `size` holds the same sum over magnitudes: |error| <= growth eps max(size) for each of the two.
void compare(const Conv2dChoice& choice, const Conv2dProblem& problem, Direction direction,
             const Tensor& first, const Tensor& second, const Tensor& size) {
  const Tensor a = first.to(Device{});
  const Tensor b = second.to(Device{});
  const Tensor scale = size.to(Device{});
  double largest = 0;
  for (std::int64_t i = 0; i < scale.numel(); ++i) largest = std::max(largest, scale.at(i));
  const double growth = choice.algorithm->error_growth + choice.checked_by->error_growth;
  const double bound = growth * eps_of(problem) * largest;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    // A NaN or infinity in one must be one in the other; the bound is no help there.
    if (!std::isfinite(a.at(i)) && !std::isfinite(b.at(i))) continue;
    if (std::abs(a.at(i) - b.at(i)) <= bound) continue;
    fail(ErrorKind::kRun, "conv2d",
         cat("expected '", choice.algorithm->name, "' and '", choice.checked_by->name,
             "' to agree within ", bound, " in ", name_of(direction), " of ", problem.text(),
             ", got ", a.at(i), " and ", b.at(i), " at element ", i));
  }
}

}  // namespace

void execute_forward(const Conv2dChoice& choice, const Conv2dProblem& problem, const Tensor& x,
                     const Tensor& w, const Tensor& b, const Tensor& y,
                     const Conv2dEpilogue& epilogue) {
  run_forward(*choice.algorithm, problem, x, w, b, y, epilogue);
  if (choice.checked_by == nullptr) return;
  const Tensor other = Tensor::empty(y.shape(), y.dtype(), y.device());
  const Tensor size = Tensor::empty(y.shape(), y.dtype(), y.device());
  run_forward(*choice.checked_by, problem, x, w, b, other, epilogue);
  // relu moves no two numbers apart, and a residual is one more term of the sum.
  const Tensor residual =
      epilogue.residual == nullptr ? Tensor() : magnitudes(residual_tensor(epilogue, y));
  run_forward(*choice.algorithm, problem, magnitudes(x), magnitudes(w),
              b.defined() ? magnitudes(b) : b, size,
              {.residual = residual.defined() ? residual.raw_data() : nullptr});
  compare(choice, problem, Direction::forward, y, other, size);
}

void execute_backward_data(const Conv2dChoice& choice, const Conv2dProblem& problem,
                           const Tensor& dy, const Tensor& w, const Tensor& dx) {
  run_backward_data(*choice.algorithm, problem, dy, w, dx);
  if (choice.checked_by == nullptr) return;
  const Tensor other = Tensor::empty(dx.shape(), dx.dtype(), dx.device());
  const Tensor size = Tensor::empty(dx.shape(), dx.dtype(), dx.device());
  run_backward_data(*choice.checked_by, problem, dy, w, other);
  run_backward_data(*choice.algorithm, problem, magnitudes(dy), magnitudes(w), size);
  compare(choice, problem, Direction::backward_data, dx, other, size);
}

void execute_backward_weight(const Conv2dChoice& choice, const Conv2dProblem& problem,
                             const Tensor& x, const Tensor& dy, const Tensor& dw, bool accumulate) {
  if (choice.checked_by == nullptr) {
    return run_backward_weight(*choice.algorithm, problem, x, dy, dw, accumulate);
  }
  const Tensor other = accumulate ? dw.clone() : Tensor::empty(dw.shape(), dw.dtype(), dw.device());
  const Tensor size =
      accumulate ? magnitudes(dw) : Tensor::empty(dw.shape(), dw.dtype(), dw.device());
  run_backward_weight(*choice.algorithm, problem, x, dy, dw, accumulate);
  run_backward_weight(*choice.checked_by, problem, x, dy, other, accumulate);
  run_backward_weight(*choice.algorithm, problem, magnitudes(x), magnitudes(dy), size, accumulate);
  compare(choice, problem, Direction::backward_weight, dw, other, size);
}

}  // namespace convscope
