// SPDX-License-Identifier: Apache-2.0
// lsq_cpu.cpp: learned step size quantisation on threads. Cuts values that share a step size into
// pieces; a task of a thread processes one piece. The partial sums of the pieces are added in a
// fixed order.
#include <algorithm>
#include <cmath>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "quant/lsq_pieces.h"
#include "quant/lsq_simd.h"

namespace convscope {

constinit IsaTable<LsqKernels> lsq_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // values in a piece: 64 KiB of v

// f64 versions of the loops of lsq_simd.cpp, for gradient checks.
struct DoubleLoops {
  void forward(const double* v, double s, double low, double high, double* y,
               std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) y[i] = code_of(v[i], s, low, high) * s;
  }
  double backward(const double* dy, const double* v, double s, double low, double high, double* dv,
                  std::int64_t n) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double u = v[i] / s;
      const double code = code_of(v[i], s, low, high);
      const bool inside = u > low && u < high;
      if (dv != nullptr) dv[i] = inside ? dy[i] : 0;
      total += dy[i] * (inside ? code - u : code);
    }
    return total;
  }
};

template <class T>
const auto& loops() {
  if constexpr (std::is_same_v<T, double>) {
    static constexpr DoubleLoops kLoops;
    return kLoops;
  } else {
    return lsq_kernels.get();
  }
}

// Splits [rows, inner] values among tasks. A long row is cut into pieces; several short rows form
// one task. The split depends only on the sizes, not on the number of threads.
struct Cut {
  std::int64_t rows, inner, pieces, rows_per_chunk;
  Cut(const Tensor& v, const Tensor& step)
      : rows(step.numel()),
        inner(v.numel() / step.numel()),
        pieces(ceil_div(inner, kGrain)),
        rows_per_chunk(std::max<std::int64_t>(1, kGrain / inner)) {}

  // Calls body(row, piece, offset into v, count) for every piece.
  template <class Body>
  void run(Body&& body) const {
    const std::int64_t blocks = ceil_div(rows, rows_per_chunk);
    parallel_chunks(blocks * pieces, [&](std::int64_t chunk, int) {
      const std::int64_t first = chunk / pieces * rows_per_chunk;
      const std::int64_t piece = chunk % pieces;
      const std::int64_t begin = piece * kGrain;
      const std::int64_t count = std::min(kGrain, inner - begin);
      const std::int64_t end = std::min(rows, first + rows_per_chunk);
      for (std::int64_t row = first; row < end; ++row) {
        body(row, piece, row * inner + begin, count);
      }
    });
  }
};

template <class T>
T step_of(const T* step, std::int64_t row, StepForm form) {
  if (form == StepForm::plain) return step[row];
  return static_cast<T>(std::exp(static_cast<double>(step[row])));
}

// Returns g, with the rate of the log variant.
template <class T>
double gradient_scale(const LsqRule& rule, const T* steps, std::int64_t count) {
  if (!rule.log_rate) return rule.g;
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) squares += std::exp(2 * static_cast<double>(steps[i]));
  return rule.g * (static_cast<double>(count) / std::max(squares, 1e-30));
}

// Returns ds/dt of the log variant.
template <class T>
double chain_of(const T* steps, std::int64_t row, StepForm form) {
  return form == StepForm::log ? static_cast<double>(step_of(steps, row, form)) : 1.0;
}

template <class T>
void forward_typed(const Tensor& v, const Tensor& step, const LsqRule& rule, const Tensor& y) {
  const T* const from = v.data<T>();
  const T* const steps = step.data<T>();
  T* const to = y.data<T>();
  const T low = static_cast<T>(-rule.grid.qn), high = static_cast<T>(rule.grid.qp);
  const auto& loop = loops<T>();
  Cut(v, step).run([&](std::int64_t row, std::int64_t, std::int64_t at, std::int64_t count) {
    loop.forward(from + at, step_of(steps, row, rule.form), low, high, to + at, count);
  });
}

void forward_cpu(const LsqForward* all, int count) {
  for (const LsqForward* a = all; a != all + count; ++a) {
    put_into_bounds(a->step, a->bounds, a->rule.form);
    if (a->v.dtype() == DType::f64) {
      forward_typed<double>(a->v, a->step, a->rule, a->y);
    } else {
      forward_typed<float>(a->v, a->step, a->rule, a->y);
    }
  }
}

template <class T>
void backward_typed(const Tensor& dy, const Tensor& v, const Tensor& step, const LsqRule& rule,
                    const Tensor& dv, const Tensor& dstep) {
  const T* const pdy = dy.data<T>();
  const T* const pv = v.data<T>();
  const T* const steps = step.data<T>();
  T* const pdv = dv.defined() ? dv.data<T>() : nullptr;
  const T low = static_cast<T>(-rule.grid.qn), high = static_cast<T>(rule.grid.qp);
  const auto& loop = loops<T>();
  const Cut cut(v, step);
  const Workspace memory(v.device(),
                         static_cast<std::size_t>(cut.rows * cut.pieces) * sizeof(double));
  double* const part = static_cast<double*>(memory.data());  // [rows][pieces]
  cut.run([&](std::int64_t row, std::int64_t piece, std::int64_t at, std::int64_t count) {
    part[row * cut.pieces + piece] =
        loop.backward(pdy + at, pv + at, step_of(steps, row, rule.form), low, high,
                      pdv == nullptr ? nullptr : pdv + at, count);
  });
  if (!dstep.defined()) return;
  T* const out = dstep.data<T>();
  const double g = gradient_scale(rule, steps, cut.rows);
  for (std::int64_t row = 0; row < cut.rows; ++row) {
    double sum = 0;
    for (std::int64_t p = 0; p < cut.pieces; ++p) sum += part[row * cut.pieces + p];
    out[row] = static_cast<T>(g * sum * chain_of(steps, row, rule.form));
  }
}

void backward_cpu(const LsqBackward* all, int count) {
  for (const LsqBackward* a = all; a != all + count; ++a) {
    if (a->v.dtype() == DType::f64) {
      backward_typed<double>(a->dy, a->v, a->step, a->rule, a->dv, a->dstep);
    } else {
      backward_typed<float>(a->dy, a->v, a->step, a->rule, a->dv, a->dstep);
    }
  }
}

}  // namespace

void lsq_forward_piece(const Tensor& step, const LsqRule& rule, const float* v, float* y,
                       std::int64_t count) {
  lsq_kernels.get().forward(v, step_of(step.data<float>(), 0, rule.form),
                            static_cast<float>(-rule.grid.qn), static_cast<float>(rule.grid.qp), y,
                            count);
}

double lsq_backward_piece(const Tensor& step, const LsqRule& rule, const float* dy, const float* v,
                          float* dv, std::int64_t count) {
  return lsq_kernels.get().backward(dy, v, step_of(step.data<float>(), 0, rule.form),
                                    static_cast<float>(-rule.grid.qn),
                                    static_cast<float>(rule.grid.qp), dv, count);
}

double lsq_step_gradient(const Tensor& step, const LsqRule& rule, double sum) {
  const float* const steps = step.data<float>();
  return gradient_scale(rule, steps, 1) * sum * chain_of(steps, 0, rule.form);
}

CONVSCOPE_KERNEL(lsq_kernel, cpu, forward_cpu)
CONVSCOPE_KERNEL(lsq_gradient_kernel, cpu, backward_cpu)
}  // namespace convscope
