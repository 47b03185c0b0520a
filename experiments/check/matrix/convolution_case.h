// SPDX-License-Identifier: Apache-2.0
// convolution_case.h: the one check that every convolution algorithm has to pass.
//
// Before an algorithm runs, its output is filled with NaN, and output and workspace get guards. All
// pointers are one element off alignment. The result is compared with the f64 reference:
//
//   exact     small integers: every product and sum is exact in f32, so all bits must agree
//             (algorithms with exact_on_integers);
//   bounded   normal numbers: max|error| <= growth * eps * max(conv(|x|,|w|)), eps = 2^-23, growth
//             is error_growth (Algorithm::growth() for algorithms that sum in one chain);
//   offset    the same bound on 1 + 0.1 N(0,1), as after a ReLU or in images: all terms have one
//             sign, so partial sums and their rounding errors are as large as possible;
//   heavy     the same bound on N(0,1) / (0.1 + |N(0,1)|): few large numbers among many small ones;
//   flat, alternating, one_large
//             equal numbers, whose rounding errors have one sign: max|error| <= worst_growth * eps
//             * M, a bound that holds on any numbers, with M = max(conv(|x|,|w|)). For transforms,
//             M is the largest absolute value of the first input times the largest sum of absolute
//             values of the second (Algorithm::errs_by_tile()).
//
// An algorithm that prepares its weights does so once, into a block of memory with guards. It is
// then called twice without w. Both calls must leave the prepared weights unchanged, and must give
// the same bits if the algorithm is deterministic.
//
// With block-sparse weights, the kept blocks are at random positions. At all other positions, the
// reference has w = 0, and dw is not compared.
//
// On CUDA everything is copied to the device and back. Results on CUDA must also satisfy
// sum(error^2) <= L^2 sum(value^2), where L = 2e-6 for f32 (sums of up to 4608 products), 1e-3 for
// tf32, 1e-2 for bf16, 2e-3 for f16. NCHW16c images (layers/dispatch/activation_layout.h) have the
// same values; lanes after the last channel must be 0 in the output. Half precision in NHWC has f32
// weights, biases and dw (layers/conv2d/README.md); it runs on a device only, on addresses
// divisible by 16. Half-precision inputs are rounded before the reference reads them. A
// half-precision output is rounded once, by at most u = 2^-9 or 2^-12 of its value; the bound
// allows 2 u.
//
// The bound in each direction uses a sum of absolute values, called the magnitude. It is
// conv(|x|,|w|) + |b| for y and conv^T(|dy|,|w|) for dx. For dw it is the sum of |x||dy| over all
// pixels, plus the old |dw| when dw accumulates. In a sum of m steps, rounding errors add up to at
// most m eps/2 times the magnitude. Rounding errors of random sign grow like sqrt(m) times the
// partial sums. If the terms have random signs, partial sums grow like sqrt(m) and the magnitude
// grows like m, so the error is about 1 eps of the magnitude for any length. If the terms have one
// sign, partial sums are as large as the magnitude. The error of a sum in one chain then has a
// standard deviation of 0.126 sqrt(m) eps, and chains of 160 terms stay below 8 eps.
// framework/simd/sum_chain.h derives this bound and the bound on any numbers. A result that lacks
// one average term of up to a million terms still exceeds the bound.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "experiments/check/matrix/guarded_block.h"
#include "experiments/check/matrix/tiers.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/operands.h"

namespace convscope::matrix {

// The elements of one tensor, rounded to the type of the problem. They are stored off alignment,
// with NaN before and after them, so that reads outside the tensor return NaN.
struct CONVSCOPE_API Numbers {
  static constexpr std::size_t kAround = 65;  // odd, so that the first number is not aligned
  std::vector<float> values;                  // with their surroundings

  Numbers(std::int64_t count, Tier tier, std::uint64_t stream, DType dtype);
  const float* data() const { return values.data() + kAround; }
  std::int64_t count() const { return static_cast<std::int64_t>(values.size() - 2 * kAround); }
  std::vector<double> doubles(bool magnitudes = false) const;
};

// Returns the allowed error of an output element. `largest` is the largest magnitude in the output.
CONVSCOPE_API double allowed_error(const Conv2dProblem& problem, double error_growth,
                                   double expected, double largest);
// Returns the relative L2 error that an output on a device may have.
CONVSCOPE_API double allowed_l2(const Conv2dProblem& problem);
CONVSCOPE_API std::int64_t output_numel(const Conv2dProblem& z, Direction direction);

// Returns the variants of a problem that are checked. An f32 problem in NCHW is checked in every
// layout, and in half precision in NHWC with f32 weights. Any other problem has no other variant.
CONVSCOPE_API std::vector<Conv2dProblem> forms_of(const Conv2dProblem& problem);
CONVSCOPE_API bool takes_some_form(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                                   Direction direction);

// The result of the reference for one direction.
struct Expected {
  std::vector<double> values;
  double largest = 0;           // the largest magnitude
  double largest_of_tile = -1;  // see ConvolutionCase::largest_of_tile(); below 0: unknown
};

// What memory holds before a call. The check uses these values. The diagnosis of a fault changes
// one of them and compares the results.
struct Surroundings {
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  float output = kNaN;                            // old elements of an output that is assigned
  bool dirty_workspace = true;                    // the workspace is filled with NaN, else with 0
  float x = kNaN, w = kNaN, dy = kNaN, b = kNaN;  // before and after an input
};

// The first fault.
struct Fault {
  enum class Kind { none, values, memory, bits, exception };
  Kind kind = Kind::none;
  std::string sentence;   // "first wrong element 3 of 60: got 1, expected 2, ..."
  Conv2dProblem problem;  // with the layout of its images
  Direction direction = Direction::forward;
  Tier tier = Tier::exact;
  bool extra = false;  // the call has a bias (forward), or accumulates (gradients)
  Isa isa = Isa::scalar;
  int threads = 1;
  // Set when row-major images have wrong values:
  std::vector<float> result;
  std::size_t at = 0;  // the first wrong one
  double got = 0, expected = 0, error = 0, allowed = 0;
};

// The settings with which a case is checked.
struct Machines {
  bool each_isa = true;               // all instruction sets of this CPU, else the current one
  std::vector<int> threads = {1, 2};  // numbers of threads; all must give equal bits
};

class CONVSCOPE_API ConvolutionCase {
 public:
  ConvolutionCase(const Conv2dProblem& problem, Tier tier);

  const Conv2dProblem& problem() const { return problem_; }
  Tier tier() const { return tier_; }
  // Sets how many elements device pointers are off alignment. CPU pointers are always off by one.
  void set_shift(std::int64_t elements) { shift_ = elements; }

  // Checks the problem in every variant (forms_of()) that the algorithm accepts. Returns "" when it
  // passes, otherwise a report. Stores the outputs in `out` unless it is null.
  std::string check(const Conv2dAlgorithm& algorithm, Direction direction,
                    std::vector<float>* out = nullptr);
  // Checks all instruction sets and numbers of threads, whose results must have equal bits.
  std::string check_everywhere(const Conv2dAlgorithm& algorithm, Direction direction,
                               const Machines& machines = {});
  // Returns the fault of the last check.
  const Fault& fault() const { return fault_; }

  // Makes one call on the CPU in the problem's layout. Writes the row-major output to `result`.
  // Returns "", or a sentence that says which memory was damaged.
  std::string run(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                  std::vector<float>& result, const Surroundings& around) const;
  // Returns the reference's result in f64, computed once for each direction.
  const Expected& expect(Direction direction, bool extra);
  // Returns the allowed error of element i; 0 for exact numbers.
  double allowed(const Conv2dAlgorithm& algorithm, Direction direction, bool extra, double value);

  const Numbers& x() const { return x_; }
  const Numbers& w() const { return w_; }
  const Numbers& b() const { return b_; }
  const Numbers& dy() const { return y_; }
  const Numbers& dw_before() const { return dw_before_; }

 private:
  struct Pointers {
    const void *x, *w, *b, *dy;
    void *output, *workspace;
    const void* prepared;
    const Operand* places = nullptr;  // null: those on the host
  };
  struct HostBlock;

  std::string check_layout(const Conv2dAlgorithm& algorithm, Direction direction,
                           std::vector<float>* out);
  bool is_sparse() const { return !problem_.weight_format.is_dense(); }
  std::int64_t output_count(Direction direction) const;  // the stored ones of sparse dw
  template <class Visit>
  void for_each_stored(const Visit& visit) const;
  std::vector<float> kept(const Numbers& numbers, float around = Surroundings::kNaN) const;
  std::vector<double> dense_w(bool magnitudes) const;
  OperandViews views(const void* w, const Operand& places) const;
  void call(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
            const Pointers& at) const;
  DType output_type(Direction direction) const;
  Shape output_shape(Direction direction) const;
  ActivationLayout output_layout(Direction direction) const;
  bool writes_blocks(Direction direction) const;
  std::string run_on_host(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                          std::vector<float>& result, const Surroundings& around) const;
  std::string call_on_host(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                           Pointers at, const HostBlock& workspace, std::vector<float>& result,
                           const Surroundings& around) const;
  std::string run_on_device(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                            std::vector<float>& result) const;
  std::string compare(const Conv2dAlgorithm& algorithm, Direction direction, bool extra,
                      const std::vector<float>& result);
  std::vector<double> reference(Direction direction, bool extra, bool magnitudes) const;
  // Returns the largest absolute value of the first input, times the largest sum of absolute values
  // of the second (Algorithm::errs_by_tile()).
  double largest_of_tile(Direction direction, bool extra) const;
  std::string report(const Conv2dAlgorithm& algorithm, Direction direction);

  Conv2dProblem problem_;
  const Tier tier_;
  std::int64_t shift_ = 1;
  const Numbers x_, w_, b_, y_, dw_before_;
  Operand places_;  // of sparse weights: the kept blocks
  Expected expected_[3][2];
  Fault fault_;
};

}  // namespace convscope::matrix
