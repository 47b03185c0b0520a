// SPDX-License-Identifier: Apache-2.0
// correlation1d.h: an operator that only the tests define. It shows that a new operator needs only
// a problem and algorithms to get selection, timing, checks, `explain` and benchmark rows.
//
//   y[n,k,i] = sum over c < C, t < T of x[n,c,i + t] w[k,c,t],   i < L - T + 1
//
// The algorithms are `reference` (all types and formats, sums in double) and `sliding` (prepared
// weights; f32, sparse f32, and integers of types i8:i8:i32:f32).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/dispatch/execute.h"

namespace convscope::testing {

struct Correlation1dProblem {
  std::int64_t n = 1, c = 1, length = 8;  // x [N,C,L]
  std::int64_t k = 1, taps = 3;           // w [K,C,T]
  DType dtype = DType::f32;
  MathMode math = MathMode::f32;
  std::optional<OperandTypes> types = {};
  WeightFormat weight_format = {};  // of the matrix [K, C T]

  std::int64_t out_length() const { return length - taps + 1; }
  std::int64_t columns() const { return c * taps; }
  bool is_empty() const { return n == 0; }
  OperandTypes operand_types() const { return types ? *types : OperandTypes::all(dtype); }
  double nominal_flops() const {
    return 2.0 * static_cast<double>(n * k * columns() * out_length());
  }
  double nominal_bytes() const {
    return static_cast<double>(size_of(dtype)) *
           static_cast<double>(n * c * length + k * columns() + n * k * out_length());
  }
  std::string kernel_text() const { return std::to_string(taps); }
  std::string text() const {
    return cat("n=", n, ",c=", c, ",length=", length, ",k=", k, ",taps=", taps,
               ",types=", operand_types().text(), ",weights=", weight_format.text());
  }
  OperandSpecs operands(Direction direction) const {
    const OperandTypes t = operand_types();
    const OperandSpec x{.name = "x", .desc = {.shape = {n, c, length}, .dtype = t.x}};
    const OperandSpec w{.name = "w",
                        .desc = {.shape = {k, c, taps}, .dtype = t.w, .sparsity = weight_format},
                        .is_weights = true};
    const OperandSpec y{.name = "y", .desc = {.shape = {n, k, out_length()}, .dtype = t.y}};
    if (direction == Direction::forward) return {{x, w}, {y}};
    if (direction == Direction::backward_data) return {{y, w}, {x}};
    return {{x, y}, {w}};
  }
  bool operator==(const Correlation1dProblem&) const = default;
};

struct CorrelationForwardArgs {
  const Correlation1dProblem& problem;
  const void *x, *w;
  void* y;
  void* workspace;
  const void* prepared;
  OperandViews views;
};
struct CorrelationBackwardDataArgs {
  const Correlation1dProblem& problem;
  const void *dy, *w;
  void* dx;
  void* workspace;
  const void* prepared;
  OperandViews views;
};
struct CorrelationBackwardWeightArgs {
  const Correlation1dProblem& problem;
  const void *x, *dy;
  void* dw;
  bool accumulate;
  void* workspace;
  OperandViews views;
};

}  // namespace convscope::testing

namespace convscope {

template <>
struct Operator<testing::Correlation1dProblem> {
  using Problem = testing::Correlation1dProblem;
  using ForwardArgs = testing::CorrelationForwardArgs;
  using BackwardDataArgs = testing::CorrelationBackwardDataArgs;
  using BackwardWeightArgs = testing::CorrelationBackwardWeightArgs;
  static constexpr const char* kOperation = "correlation1d";

  static Registry<Algorithm<Problem>>& algorithms(DeviceType device) {
    static Registry<Algorithm<Problem>> cpu("correlation algorithm");
    static Registry<Algorithm<Problem>> cuda("correlation algorithm");
    return device == DeviceType::cpu ? cpu : cuda;
  }

  static void run(const Call<Problem>& call) {
    const Operands& at = call.operands;
    switch (call.direction) {
      case Direction::forward:
        return call.algorithm.forward({call.problem, at.input(0), at.input(1), at.output(0),
                                       call.workspace, call.prepared, call.views});
      case Direction::backward_data:
        return call.algorithm.backward_data({call.problem, at.input(0), at.input(1), at.output(0),
                                             call.workspace, call.prepared, call.views});
      case Direction::backward_weight:
        return call.algorithm.backward_weight({call.problem, at.input(0), at.input(1), at.output(0),
                                               at.accumulate, call.workspace, call.views});
    }
  }
};

}  // namespace convscope

namespace convscope::testing {

using CorrelationAlgorithm = Algorithm<Correlation1dProblem>;

// ---- reference ----------------------------------------------------------------------------------

inline double stored(const void* at, DType type, std::int64_t i) {
  if (type == DType::f64) return static_cast<const double*>(at)[i];
  if (type == DType::i8) return static_cast<const std::int8_t*>(at)[i];
  return static_cast<double>(static_cast<const float*>(at)[i]);
}
inline void store(void* at, DType type, std::int64_t i, double value) {
  if (type == DType::f64) {
    static_cast<double*>(at)[i] = value;
  } else {
    static_cast<float*>(at)[i] = static_cast<float>(value);
  }
}

inline std::vector<double> real_array(const void* at, DType type, std::int64_t count,
                                      const Quantisation& meaning) {
  std::vector<double> out(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    out[static_cast<std::size_t>(i)] =
        meaning.scale(0) * (stored(at, type, i) - meaning.zero_point(0));
  }
  return out;
}

// Calls visit(row, column, i) for each stored weight, where i is the weight's index among the
// stored values.
template <class Visit>
void for_each_weight(const Correlation1dProblem& z, const BlockSparseView& blocks, Visit&& visit) {
  if (!blocks.defined()) {
    for (std::int64_t i = 0; i < z.k * z.columns(); ++i) visit(i / z.columns(), i % z.columns(), i);
    return;
  }
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < z.k / blocks.block_rows; ++row) {
    for (std::int32_t b = blocks.row_begin[row]; b < blocks.row_begin[row + 1]; ++b) {
      for (std::int64_t r = 0; r < blocks.block_rows; ++r) {
        for (std::int64_t c = 0; c < blocks.block_columns; ++c) {
          visit(row * blocks.block_rows + r, blocks.columns[b] * blocks.block_columns + c, at++);
        }
      }
    }
  }
}

inline std::int64_t x_at(const Correlation1dProblem& z, std::int64_t n, std::int64_t column,
                         std::int64_t i) {
  return (n * z.c + column / z.taps) * z.length + i + column % z.taps;
}

inline void reference_forward(const CorrelationForwardArgs& args) {
  const Correlation1dProblem& z = args.problem;
  const OperandTypes t = z.operand_types();
  const std::int64_t out = z.out_length();
  const auto x = real_array(args.x, t.x, z.n * z.c * z.length, args.views.x);
  std::vector<double> y(static_cast<std::size_t>(z.n * z.k * out));
  for_each_weight(z, args.views.w_blocks, [&](auto row, auto column, auto at) {
    const double w = static_cast<double>(args.views.w.scale(row)) * stored(args.w, t.w, at);
    for (std::int64_t n = 0; n < z.n; ++n) {
      for (std::int64_t i = 0; i < out; ++i) {
        y[static_cast<std::size_t>((n * z.k + row) * out + i)] +=
            w * x[static_cast<std::size_t>(x_at(z, n, column, i))];
      }
    }
  });
  for (std::size_t i = 0; i < y.size(); ++i) store(args.y, t.y, static_cast<std::int64_t>(i), y[i]);
}

inline void reference_backward_data(const CorrelationBackwardDataArgs& args) {
  const Correlation1dProblem& z = args.problem;
  const std::int64_t out = z.out_length();
  std::vector<double> dx(static_cast<std::size_t>(z.n * z.c * z.length));
  for_each_weight(z, args.views.w_blocks, [&](auto row, auto column, auto at) {
    for (std::int64_t n = 0; n < z.n; ++n) {
      for (std::int64_t i = 0; i < out; ++i) {
        dx[static_cast<std::size_t>(x_at(z, n, column, i))] +=
            stored(args.w, z.dtype, at) * stored(args.dy, z.dtype, (n * z.k + row) * out + i);
      }
    }
  });
  for (std::size_t i = 0; i < dx.size(); ++i) {
    store(args.dx, z.dtype, static_cast<std::int64_t>(i), dx[i]);
  }
}

inline void reference_backward_weight(const CorrelationBackwardWeightArgs& args) {
  const Correlation1dProblem& z = args.problem;
  const std::int64_t out = z.out_length();
  for_each_weight(z, args.views.w_blocks, [&](auto row, auto column, auto at) {
    double sum = args.accumulate ? stored(args.dw, z.dtype, at) : 0.0;
    for (std::int64_t n = 0; n < z.n; ++n) {
      for (std::int64_t i = 0; i < out; ++i) {
        sum += stored(args.x, z.dtype, x_at(z, n, column, i)) *
               stored(args.dy, z.dtype, (n * z.k + row) * out + i);
      }
    }
    store(args.dw, z.dtype, at, sum);
  });
}

inline Support reference_supports(const Correlation1dProblem& z, Direction direction) {
  if (z.types) {
    const OperandTypes integers{DType::i8, DType::i8, DType::i32, DType::f32};
    if (direction == Direction::forward && *z.types == integers) return {};
    return Support::no(cat("expects types i8:i8:i32:f32 in forward, got ", z.types->text()));
  }
  if (z.dtype == DType::f32 || z.dtype == DType::f64) return {};
  return Support::no(cat("expects elements of type f32 or f64, got ", name_of(z.dtype)));
}

// ---- sliding ------------------------------------------------------------------------------------

// Reorders the weights to [C T, K], so that the weights of all outputs at one position are
// adjacent.
inline void sliding_prepare(const PrepareArgs<Correlation1dProblem>& args) {
  const Correlation1dProblem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  auto* const to = static_cast<float*>(args.prepared);
  for (std::int64_t i = 0; i < z.k * z.columns(); ++i) {
    to[(i % z.columns()) * z.k + i / z.columns()] = w[i];
  }
}
inline bool sliding_prepares(const Correlation1dProblem& z) {
  return !z.types && z.weight_format.is_dense();
}

inline void sliding_integers(const CorrelationForwardArgs& args) {
  const Correlation1dProblem& z = args.problem;
  const auto* const x = static_cast<const std::int8_t*>(args.x);
  const auto* const w = static_cast<const std::int8_t*>(args.w);
  auto* const y = static_cast<float*>(args.y);
  for (std::int64_t n = 0; n < z.n; ++n) {
    for (std::int64_t k = 0; k < z.k; ++k) {
      const auto scale = static_cast<float>(args.views.x.scale(0) * args.views.w.scale(k));
      for (std::int64_t i = 0; i < z.out_length(); ++i) {
        std::int32_t sum = 0;
        for (std::int64_t column = 0; column < z.columns(); ++column) {
          sum +=
              (x[x_at(z, n, column, i)] - args.views.x.zero_point(0)) * w[k * z.columns() + column];
        }
        y[(n * z.k + k) * z.out_length() + i] = scale * static_cast<float>(sum);
      }
    }
  }
}

inline void sliding_sparse(const CorrelationForwardArgs& args) {
  const Correlation1dProblem& z = args.problem;
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const w = static_cast<const float*>(args.views.w_blocks.values);
  auto* const y = static_cast<float*>(args.y);
  std::fill_n(y, z.n * z.k * z.out_length(), 0.0f);
  for_each_weight(z, args.views.w_blocks, [&](auto row, auto column, auto at) {
    for (std::int64_t n = 0; n < z.n; ++n) {
      float* const out = y + (n * z.k + row) * z.out_length();
      const float* const in = x + x_at(z, n, column, 0);
      for (std::int64_t i = 0; i < z.out_length(); ++i) out[i] += w[at] * in[i];
    }
  });
}

inline void sliding_forward(const CorrelationForwardArgs& args) {
  const Correlation1dProblem& z = args.problem;
  if (z.types) return sliding_integers(args);
  if (!z.weight_format.is_dense()) return sliding_sparse(args);
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const w = static_cast<const float*>(args.prepared);  // [C T, K]
  auto* const sums = static_cast<float*>(args.workspace);          // [K]
  for (std::int64_t n = 0; n < z.n; ++n) {
    for (std::int64_t i = 0; i < z.out_length(); ++i) {
      std::fill_n(sums, z.k, 0.0f);
      for (std::int64_t column = 0; column < z.columns(); ++column) {
        const float value = x[x_at(z, n, column, i)];
        for (std::int64_t k = 0; k < z.k; ++k) sums[k] += value * w[column * z.k + k];
      }
      for (std::int64_t k = 0; k < z.k; ++k) {
        static_cast<float*>(args.y)[(n * z.k + k) * z.out_length() + i] = sums[k];
      }
    }
  }
}

inline Support sliding_supports(const Correlation1dProblem& z, Direction direction) {
  if (z.types) return reference_supports(z, direction);
  if (z.dtype == DType::f32) return {};
  return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
}

// ---- algorithms ---------------------------------------------------------------------------------

inline CorrelationAlgorithm reference_algorithm() {
  return {
      .name = "reference",
      .idea = "the formula, sums in double",
      .supports = reference_supports,
      .cost = [](const Correlation1dProblem& z, Direction) -> Cost {
        return {.flops = z.nominal_flops(),
                .bytes = z.nominal_bytes(),
                .issued = 100 * z.nominal_flops()};
      },
      .workspace_bytes = [](const Correlation1dProblem&, Direction) -> std::size_t { return 0; },
      .auto_ok = false,
      .takes_mixed_types = true,
      .takes_sparse_weights = true,
      .forward = reference_forward,
      .backward_data = reference_backward_data,
      .backward_weight = reference_backward_weight};
}

inline CorrelationAlgorithm sliding_algorithm() {
  return {.name = "sliding",
          .idea = "outputs of one pixel side by side, weights transposed once",
          .supports = sliding_supports,
          .cost = [](const Correlation1dProblem& z, Direction) -> Cost {
            return {.flops = z.nominal_flops(),
                    .bytes = z.nominal_bytes(),
                    .issued = 5 * z.nominal_flops()};
          },
          .workspace_bytes = [](const Correlation1dProblem& z, Direction) -> std::size_t {
            return sizeof(float) * static_cast<std::size_t>(z.k);
          },
          .prepared_bytes = [](const Correlation1dProblem& z, Direction) -> std::size_t {
            return sliding_prepares(z) ? sizeof(float) * static_cast<std::size_t>(z.k * z.columns())
                                       : 0;
          },
          .prepare_weights = sliding_prepare,
          .error_growth = 4,
          .takes_mixed_types = true,
          .takes_sparse_weights = true,
          .forward = sliding_forward};
}

// Registers the algorithms once per program. (An algorithm of the library registers itself in its
// own source file.)
inline void register_correlation() {
  static const bool done = register_algorithm(reference_algorithm(), __FILE__) &&
                           register_algorithm(sliding_algorithm(), __FILE__);
  (void)done;
}

}  // namespace convscope::testing
